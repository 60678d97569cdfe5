#include "server/hub/home.h"

#include <stdlib.h>

#include "common/codec/weblink.h"
#include "server/hub/kept.h"
#include "server/repo/hf/key.h"
#include "server/repo/hf/openness.h"
#include "server/repo/hf/path.h"
#include "server/plan/gather.h"
#include "server/store/atime.h"

enum {
    DOC_BYTES = 64 << 20,
    MANIFEST_BYTES = 256 << 20,
};

/* --- rows --------------------------------------------------------------------------------------------------------- */

struct reading {
    struct homes *homes;
    struct slice type, id; /* p == NULL: any */
};

struct home *homes_place(struct homes *h, struct slice type, struct slice id)
{
    struct home *x = homes_find(h, type, id);

    if (x == NULL) {
        x = ARENA_NEW(&h->arena, struct home);
        x->name = arena_fmt(&h->arena, SLICE_FMT "/" SLICE_FMT, SLICE_ARG(type), SLICE_ARG(id));
        x->type = slice_first(x->name, type.n);
        x->id = slice_from(x->name, type.n + 1);
        HASH_ADD_KEYPTR(hh, h->by_name, x->name.p, x->name.n, x);
    }
    return x;
}

struct home *homes_find(const struct homes *h, struct slice type, struct slice id)
{
    struct buf name = BUF_INIT(OBJECT_KEY_MAX);
    struct home *x = NULL;

    buf_addf(&name, SLICE_FMT "/" SLICE_FMT, SLICE_ARG(type), SLICE_ARG(id));
    if (name.rc == 0) {
        HASH_FIND(hh, h->by_name, name.p, name.n, x);
    }
    buf_free(&name);
    return x;
}

static bool is_meant(const struct reading *r, struct slice type, struct slice id)
{
    return r->type.p == NULL || (slice_eq(type, r->type) && slice_eq(id, r->id));
}

/* Hours are all that is noted of later hits. */
static void note_asked(const struct reading *r, struct home *x, const struct object_info *o)
{
    uint32_t hour = 0;
    struct err unused;

    if (atime_hour(r->homes->view->hub->store, &o->digest, &hour, &unused) != 0) {
        hour = 0;
    }
    x->last_asked_unix_s =
        max_u64(x->last_asked_unix_s, max_u64(o->stored_unix_s, (uint64_t)hour * 3600));
}

static void add_doc(struct reading *r, const struct object_info *o, struct slice key,
                    const struct hf_path *at)
{
    struct homes *h = r->homes;
    struct home *x = homes_place(h, at->type, at->id);
    struct home_doc *d = ARENA_NEW(&h->arena, struct home_doc);

    d->listing = at->route == HF_TREE;
    d->rev = arena_copy_opt(&h->arena, at->rev);
    d->row_key = arena_copy(&h->arena, o->key);
    d->callers = key.n != o->key.n;
    d->digest = o->digest;
    d->asked_unix_s = o->validated_unix_s;
    d->next = x->docs;
    x->docs = d;
    note_asked(r, x, o);
}

static struct home_blob *blob_place(struct homes *h, struct home *x, struct slice etag)
{
    struct home_blob *b = NULL;

    HASH_FIND(hh, x->blobs, etag.p, etag.n, b);
    if (b == NULL) {
        b = ARENA_NEW(&h->arena, struct home_blob);
        b->etag = arena_copy(&h->arena, etag);
        HASH_ADD_KEYPTR(hh, x->blobs, b->etag.p, b->etag.n, b);
    }
    return b;
}

static void add_blob(struct reading *r, const struct object_info *o, struct slice key)
{
    struct slice type, id, etag;
    struct home_blob *b;
    struct home *x;

    if (!key_read_file(key, &type, &id, &etag) || !is_meant(r, type, id)) {
        return;
    }
    x = homes_place(r->homes, type, id);
    b = blob_place(r->homes, x, etag);
    if (!b->whole) {
        x->whole_bytes += o->size_bytes;
    }
    b->whole = true;
    b->size_bytes = b->have_bytes = o->size_bytes;
    note_asked(r, x, o);
}

static int on_object(void *arg, const struct object_info *o)
{
    struct reading *r = arg;
    struct slice rest = o->key;
    struct slice key = slice_cut(&rest, '\0');
    struct arena a = {0};
    struct hf_path at;
    struct err unused;

    if (!origin_owns(r->homes->view->r->origin, o->origin)) {
        return 0; /* what another origin had under the name is none of this one's */
    }
    /* What came by a caller's right shows who is let in to what; files of closed repositories are marked too, but
     * that they exist is in the Hub's public listing. */
    if (!slice_starts(key, SLICE("api/"))) {
        add_blob(r, o, key);
    } else if ((rest.n == 0 || r->homes->view->all) && slice_find(key, '?') < 0 &&
               hf_path_parse(key, &a, &at, &unused) == 0 && at.id.n != 0 &&
               ((at.route == HF_INFO) || (at.route == HF_TREE && at.path.n == 0)) &&
               (at.route == HF_INFO || hf_is_commit(at.rev)) && is_meant(r, at.type, at.id)) {
        add_doc(r, o, key, &at);
    }
    arena_fini(&a);
    return 0;
}

/* What is under way, or parked. */
static void on_unfinished(void *arg, struct slice tail, uint64_t have_bytes, uint64_t total_bytes)
{
    struct reading *r = arg;
    struct slice type, id, etag;
    struct home_blob *b;
    struct home *x;

    if (!key_read_file(slice_cut(&tail, '\0'), &type, &id, &etag)) {
        return;
    }
    x = homes_find(r->homes, type, id);
    if (x == NULL) {
        return;
    }
    b = blob_place(r->homes, x, etag);
    if (!b->whole) {
        b->size_bytes = total_bytes;
    }
    b->have_bytes = max_u64(b->have_bytes, have_bytes);
}

int homes_read(struct homes *h, struct slice type, struct slice id, struct err *e)
{
    struct reading r = {h, type, id};
    struct slice repo = slice_str(h->view->r->name);
    struct cache *c = h->view->hub->cache;
    struct arena *a = &h->arena;
    int rc =
        cache_list(c, repo, type.p != NULL ? key_words(type, id, a) : SLICE(""), on_object, &r, e);

    if (rc == 0 && type.p != NULL) {
        rc = cache_list(c, repo, key_files(type, id, a), on_object, &r, e);
    }
    if (rc == 0) {
        cache_unfinished(c, repo, on_unfinished, &r);
    }
    return rc < 0 ? rc : 0;
}

void homes_free(struct homes *h)
{
    struct home *x, *next;

    HASH_ITER(hh, h->by_name, x, next)
    {
        HASH_CLEAR(hh, x->blobs);
        HASH_DEL(h->by_name, x);
    }
    arena_fini(&h->arena);
}

/* --- what the Hub said -------------------------------------------------------------------------------------------- */

static void learn(struct homes *h, struct home *x)
{
    for (struct home_doc *d = x->docs; d != NULL; d = d->next) {
        struct buf doc = BUF_INIT(DOC_BYTES), made = BUF_INIT(2 * (size_t)DOC_BYTES);
        struct repo_info info;
        struct err unused;
        if (!d->listing && !d->understood &&
            blob_read_whole(h->view->hub->store, &d->digest, &doc, &unused) == 0 &&
            info_make(buf_slice(&doc), &made, &unused) == 0 && info_read(buf_slice(&made), &info)) {
            d->understood = true;
            d->closed = info.closed;
            d->id = arena_copy(&h->arena, info.id);
            d->commit = arena_copy(&h->arena, info.commit);
        }
        buf_free(&doc);
        buf_free(&made);
    }
}

/* The name that the Hub knows it by; x's own, when it did not tell. */
static struct slice canonical(const struct home *x)
{
    const struct home_doc *best = NULL;

    for (const struct home_doc *d = x->docs; d != NULL; d = d->next) {
        if (d->understood && (best == NULL || d->asked_unix_s > best->asked_unix_s)) {
            best = d;
        }
    }
    return best != NULL ? best->id : x->id;
}

static void move_docs(struct home *from, struct home *to)
{
    struct home_doc *d;

    while ((d = from->docs) != NULL) {
        from->docs = d->next;
        d->next = to->docs;
        to->docs = d;
    }
    to->last_asked_unix_s = max_u64(to->last_asked_unix_s, from->last_asked_unix_s);
}

void homes_learn(struct homes *h)
{
    struct home *x, *next;

    HASH_ITER(hh, h->by_name, x, next)
    {
        struct slice id;
        learn(h, x);
        id = canonical(x);
        if (!slice_eq(id, x->id)) {
            x->known_as = id;
            move_docs(x, homes_place(h, x->type, id));
        }
    }
    HASH_ITER(hh, h->by_name, x, next)
    {
        if (!h->view->all &&
            openness_hides(h->view->hub->store, h->view->r->name, x->type, x->id)) {
            x->docs = NULL; /* what was everybody's before is not shown to everybody */
        }
    }
}

static struct home *spelled(const struct homes *h, struct slice type, struct slice id)
{
    struct home *x = homes_find(h, type, id), *other, *next;

    if (x == NULL) {
        HASH_ITER(hh, h->by_name, other, next)
        {
            if (slice_eq(other->type, type) && slice_ieq(other->id, id)) {
                x = other;
            }
        }
    }
    while (x != NULL && x->known_as.n != 0) {
        x = homes_find(h, type, x->known_as);
    }
    return x;
}

/* A listing is under the Hub's own name, the Hub's word under the name that was asked for. */
static bool has_word(const struct home *x)
{
    for (const struct home_doc *d = x->docs; d != NULL; d = d->next) {
        if (!d->listing) {
            return true;
        }
    }
    return false;
}

int homes_ask(struct homes *h, struct slice type, struct slice id, struct home **out, struct err *e)
{
    int rc = homes_read(h, type, id, e);

    homes_learn(h);
    *out = spelled(h, type, id);
    if (rc == 0 && *out != NULL && !slice_eq((*out)->id, id)) {
        rc = homes_read(h, type, (*out)->id, e); /* its files are with that name */
        homes_learn(h);
    }
    if (rc == 0 && (*out == NULL || !has_word(*out))) { /* asked for by yet another */
        homes_free(h);
        *h = HOMES_OF(h->view);
        rc = homes_read(h, SLICE_NONE, SLICE_NONE, e);
        homes_learn(h);
        *out = spelled(h, type, id);
    }
    if (rc == 0 && (*out == NULL || ((*out)->docs == NULL && !h->view->all))) {
        *out = NULL;
        rc = err_set(e, E_NOTFOUND,
                     "nothing is known here of " SLICE_FMT
                     " in repo %s, no client has asked for it yet, see `mirrorctl hf ls`",
                     SLICE_ARG(id), h->view->r->name);
    }
    return rc;
}

/* --- listings ----------------------------------------------------------------------------------------------------- */

/* Of one listing, as plan/gather.h calls its parts, each with the caller's mark behind it. */
static int each_part(const struct homes *h, const struct home_doc *d,
                     int (*each)(void *arg, const struct gather_part *p, struct err *e), void *arg,
                     struct err *e)
{
    struct buf row_key = BUF_INIT(OBJECT_KEY_MAX), row = BUF_INIT(OBJECT_ROW_MAX),
               doc = BUF_INIT(DOC_BYTES);
    struct slice principal = d->row_key;
    struct slice key = slice_cut(&principal, '\0');
    struct store *s = h->view->hub->store;
    struct gather_part p = {.last = false};
    struct arena a = {0};
    int rc = 0;

    for (unsigned i = 0; rc == 0 && !p.last && i < GATHER_PARTS_MAX; i++) {
        struct object o;
        buf_clear(&row_key);
        buf_clear(&doc);
        object_key(&row_key, slice_str(h->view->r->name), part_key(key, i, &a), principal);
        rc = store_get(s, TABLE_OBJECT, buf_slice(&row_key), &row, e);
        if (rc == 0) {
            rc = kept_read(s, buf_slice(&row), &a, &o, &doc, e);
        }
        if (rc == 0) {
            p.doc = buf_slice(&doc);
            p.url = o.url;
            p.first = i == 0;
            p.last = weblink_next(object_field(&o, "link")).p == NULL;
            rc = each(arg, &p, e);
        }
        arena_reset(&a);
    }
    arena_fini(&a);
    buf_free(&row_key);
    buf_free(&row);
    buf_free(&doc);
    return rc;
}

int home_listing(const struct homes *h, const struct home *x, struct slice commit,
                 int (*each)(void *arg, const struct gather_part *p, struct err *e), void *arg,
                 struct err *e)
{
    int rc = err_set(e, E_NOTFOUND, "no listing of commit %.40s is here", commit.p);

    for (const struct home_doc *d = x->docs; d != NULL && rc != 0; d = d->next) {
        if (d->listing && slice_eq(d->rev, commit)) {
            rc = each_part(h, d, each, arg, e);
        }
    }
    return rc;
}

static int add_part(void *arg, const struct gather_part *p, struct err *e)
{
    struct buf *bytes = arg;

    if (p->first) {
        buf_clear(bytes);
    }
    return manifest_add(p->doc, p->url, p->first, p->last, bytes, e);
}

int home_manifest(struct homes *h, const struct home *x, struct slice commit, struct buf *bytes,
                  struct manifest *out, struct err *e)
{
    int rc;

    *bytes = BUF_INIT(MANIFEST_BYTES);
    rc = home_listing(h, x, commit, add_part, bytes, e);
    if (rc == 0 && !manifest_open(buf_slice(bytes), out)) {
        rc = err_set(e, E_CORRUPT, "the listing of commit %.40s does not read", commit.p);
    }
    if (rc != 0) {
        buf_free(bytes);
    }
    return rc;
}

const struct home_doc *home_word(const struct home *x, struct slice rev)
{
    const struct home_doc *best = NULL;

    for (const struct home_doc *d = x->docs; d != NULL; d = d->next) {
        bool meant = (d->rev.p == NULL ? slice_eqs(rev, "main") : slice_eq(d->rev, rev)) ||
                     slice_eq(d->commit, rev);
        if (!d->listing && d->understood && meant &&
            (best == NULL || d->asked_unix_s > best->asked_unix_s)) {
            best = d;
        }
    }
    return best;
}

enum stock_state home_state(const struct home *blobs, const struct manifest_entry *f,
                            uint64_t *have_bytes)
{
    char room[ETAG_HEX + 1];
    struct slice etag = key_etag(f, room);
    struct home_blob *b = NULL;

    if (blobs != NULL) {
        HASH_FIND(hh, blobs->blobs, etag.p, etag.n, b);
    }
    *have_bytes = b != NULL ? min_u64(b->have_bytes, f->size_bytes) : 0;
    if (f->size_bytes == 0) { /* nothing is missing of it */
        return STOCK_WHOLE;
    }
    return b == NULL ? STOCK_ABSENT : b->whole ? STOCK_WHOLE : STOCK_PARTIAL;
}
