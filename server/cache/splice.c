/* splice.c - an origin's answer judged: is it the object that is being filled, or a part of it that may be joined?
 *
 * Only what has one strong validator, or a digest that judges the whole, is put together out of several answers. Anything
 * else is another generation: the fill begins anew, or ends.
 */

#include <inttypes.h>

#include "server/cache/filler.h"

/* n: the length as announced, or (a lower bound) what has come of it. The repo's bound, an index's size and the bound of
 * documents are held before the first byte is passed on, else as soon as they are passed. */
int splice_check_length(const struct fill *f, uint64_t n, bool whole, struct err *e)
{
    uint64_t want = f->want.size_bytes;
    uint64_t max = f->want.max_bytes;

    if (max != 0 && n > max) {
        return err_set(e, E_REFUSED,
                       "the object has %s%" PRIu64 " bytes, this repo takes up to %" PRIu64
                       " (max_object)",
                       whole ? "" : "more than ", whole ? n : max, max);
    }
    if (want != LENGTH_UNKNOWN && (n > want || (whole && n != want))) {
        COUNT(f->cache, verify_failures, 1);
        return err_set(e, E_CORRUPT,
                       "the origin has %s%" PRIu64 " bytes, the index promises %" PRIu64,
                       whole ? "" : "more than ", whole ? n : want, want);
    }
    if (f->want.document && n > f->cache->set.document_bytes) {
        return err_set(e, E_TOOBIG, "the index document is larger than %" PRIu64 " bytes",
                       f->cache->set.document_bytes);
    }
    return 0;
}

static void set_total(struct fill *f, uint64_t total)
{
    lock_take(&f->lock);
    f->total_bytes = total;
    lock_drop(&f->lock);
}

static bool same_validator(const struct fill *f, const struct fetch_head *h)
{
    struct slice etag = slice_trim(fetch_field(h, "etag"));

    return slice_eq(etag, f->object.origin_etag);
}

/* May parts be joined? A strong validator, or a digest that judges the whole (research/package-protocols 6.17). */
static bool part_can_be_joined(const struct fill *f, const struct fetch_head *h)
{
    return h->framed && h->total != LENGTH_UNKNOWN &&
           fetch_field(h, "content-encoding").p == NULL &&
           (f->want.digest_known || etag_is_strong(slice_trim(fetch_field(h, "etag"))));
}

void splice_forget_earlier(struct fill *f)
{
    lock_take(&f->lock);
    extents_fini(&f->have);
    f->total_bytes = LENGTH_UNKNOWN;
    lock_drop(&f->lock);
    f->object.origin_etag = SLICE_NONE;
}

static int ask_for_all(struct filler *fl)
{
    fl->again = true;
    return 1;
}

/* Is the text behind it wanted, too? Of trouble only where there is no older generation to be given instead. */
static bool has_words(const struct fill *f, const struct fetch_head *h)
{
    return f->want.pass_on && !f->want.head_only && h->status != 304 && h->status != 429 &&
           (h->status < 500 || !f->replaces) &&
           (h->content_length == LENGTH_UNKNOWN || h->content_length <= TEXT_MAX);
}

static const struct fetch_head *keep_head(struct fill *f, const struct fetch_head *h)
{
    struct fetch_head *kept = ARENA_NEW(&f->arena, struct fetch_head);
    struct http_field *fields = arena_alloc(&f->arena, (h->nfields + 1) * sizeof *fields);

    *kept = *h;
    for (size_t i = 0; i < h->nfields; i++) {
        fields[i].name = arena_copy(&f->arena, h->fields[i].name);
        fields[i].value = arena_copy(&f->arena, h->fields[i].value);
    }
    kept->fields = fields;
    kept->url = arena_copy(&f->arena, h->url);
    kept->why = SLICE_NONE;
    return kept;
}

void splice_tell(struct filler *fl, bool whole)
{
    struct fill *f = fl->fill;
    struct slice text = buf_slice(&fl->gather);

    f->text = !whole ? SLICE_NONE : text.p != NULL ? text : SLICE("");
    f->owner->other(f->owner_arg, f, fl->no);
    f->text = SLICE_NONE;
    fl->no = NULL;
}

int splice_first(struct filler *fl, const struct fetch_head *h)
{
    struct fill *f = fl->fill;
    bool resumed = f->resume_id != 0 && f->total_bytes != LENGTH_UNKNOWN;
    uint64_t total = h->status == 206 ? h->total : h->content_length;

    if (h->status == 416 && fl->ask_end != LENGTH_UNKNOWN && !f->want.head_only) {
        return ask_for_all(fl); /* empty, or shorter than the hint */
    }
    if (h->status != 200 && h->status != 206) {
        fl->other = true;
        if (has_words(f, h)) {
            fl->no = keep_head(f, h);
            return 0;
        }
        f->owner->other(f->owner_arg, f, h);
        return 1;
    }
    if (total != LENGTH_UNKNOWN && splice_check_length(f, total, true, &fl->why) != 0) {
        fl->rc = fl->why.code;
        return 1;
    }
    if (f->want.head_only || fill_is_refused(f, h)) {
        fl->other = true;
        f->owner->other(f->owner_arg, f, h);
        return 1;
    }
    if (h->status == 206) {
        if (!part_can_be_joined(f, h) && (fl->recv > 0 || h->total > fl->ask_end)) {
            return ask_for_all(fl);
        }
        if (resumed && (h->total != f->total_bytes || !same_validator(f, h))) {
            return ask_for_all(fl);
        }
        set_total(f, h->total);
        fl->end = min_u64(fl->end, h->total);
    } else {
        if (resumed) {
            splice_forget_earlier(f);
        }
        fl->recv = 0;
        fl->end = h->content_length;
        f->want_all = true;
        set_total(f, h->content_length);
    }
    filler_claim(fl);
    fill_learn(f, h, h->status == 206 || fl->ask_end == LENGTH_UNKNOWN || resumed);
    return 0;
}

/* A later request of the same fill: anything but the same object is another generation, and never spliced. */
int splice_later(struct filler *fl, const struct fetch_head *h)
{
    struct fill *f = fl->fill;
    struct err why;

    if (h->status == 206 && h->total == f->total_bytes && same_validator(f, h)) {
        if (!fl->straight) {
            fl->detour = false;
            fill_led(f, h);
        }
        return 0;
    }
    if (h->status == 200 && same_validator(f, h) &&
        (h->content_length == f->total_bytes || f->total_bytes == LENGTH_UNKNOWN)) {
        if (filler_count(f) >
            1) { /* the origin has stopped giving ranges: one stream does it all */
            f->splices = false;
            for (unsigned i = 0; i < FILLERS_MAX; i++) {
                if (f->fillers[i] != NULL && f->fillers[i] != fl) {
                    filler_stop(f->fillers[i]);
                }
            }
        }
        fl->replay = true;
        fl->recv = 0;
        fl->end = f->total_bytes;
        filler_claim(fl);
        return 0;
    }
    if (h->status == 200 || h->status == 206 || h->status == 412 || h->status == 416) {
        err_set(&why, E_CHANGED, "the origin's file changed while it was fetched");
        fill_fail(f, E_CHANGED, &why);
        return 1;
    }
    err_set(&fl->why, E_NETWORK, "the origin answered %d in mid-fill", h->status);
    fl->rc = E_NETWORK;
    fl->tries += !fl->straight && h->status >= 400 && h->status < 500 && h->status != 429 ? 3 : 0;
    return 1;
}
