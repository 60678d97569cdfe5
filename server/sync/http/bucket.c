#include "server/sync/http/bucket.h"

#include <inttypes.h>
#include <stdlib.h>

#include "common/codec/isotime.h"
#include "common/codec/url.h"
#include "server/fetch/s3_xml.h"
#include "server/store/tree.h"
#include "server/sync/http/http_engine.h"

enum { ETAG_MAX = 256 };

/* --- the page, read twice: some servers say how keys are encoded only behind them --- */

struct reader {
    const struct bucket_page_events *ev;
    struct bucket_page *page;
    struct err *e;
    bool url_encoded, has_token, in_object;
    struct buf key, raw_key, etag;
    struct bucket_object object;
};

static bool is_true(struct slice s)
{
    return slice_ieq(slice_trim(s), SLICE("true"));
}

static int on_root(void *arg, struct slice name, unsigned depth)
{
    struct reader *r = arg;

    return depth != 0 || slice_eqs(name, "ListBucketResult")
               ? 0
               : err_set(r->e, E_INVALID, "this is not the list of a bucket, but <" SLICE_FMT ">",
                         (int)(name.n < 40 ? name.n : 40), name.p);
}

static int on_word(void *arg, struct slice name, struct slice text, unsigned depth)
{
    struct reader *r = arg;

    if (depth != 1) {
        return 0;
    }
    if (slice_eqs(name, "IsTruncated")) {
        r->page->more = is_true(text);
    } else if (slice_eqs(name, "EncodingType")) {
        r->url_encoded = slice_ieq(slice_trim(text), SLICE("url"));
    } else if (slice_eqs(name, "NextContinuationToken")) {
        if (text.n == 0 || text.n > BUCKET_TOKEN_MAX || memchr(text.p, 0, text.n) != NULL) {
            return err_set(r->e, E_INVALID, "invalid continuation token of %zu bytes", text.n);
        }
        memcpy(r->page->token, text.p, text.n);
        r->page->token[text.n] = '\0';
        r->has_token = true;
    }
    return 0;
}

static int on_element(void *arg, struct slice name, unsigned depth)
{
    struct reader *r = arg;

    if (depth == 1 && slice_eqs(name, "Contents")) {
        r->in_object = true;
        r->object =
            (struct bucket_object){.size_bytes = SYNC_SIZE_UNKNOWN, .mtime_ns = SYNC_TIME_UNKNOWN};
        buf_clear(&r->raw_key);
        buf_clear(&r->etag);
    }
    return 0;
}

/* As AWS encodes: a '+' is a blank. */
static bool decode_key(struct reader *r)
{
    buf_clear(&r->key);
    if (!r->url_encoded) {
        buf_adds(&r->key, buf_slice(&r->raw_key));
        return r->key.rc == 0;
    }
    for (size_t i = 0; i < r->raw_key.n; i++) {
        if (r->raw_key.p[i] == '+') {
            r->raw_key.p[i] = ' ';
        }
    }
    return url_decode(buf_slice(&r->raw_key), &r->key) && r->key.rc == 0;
}

static int give_object(struct reader *r)
{
    r->in_object = false;
    r->page->objects++;
    if (r->raw_key.rc != 0 || !decode_key(r) || r->key.n == 0) {
        r->page->left_out++;
        return 0;
    }
    r->object.key = buf_slice(&r->key);
    r->object.etag = r->etag.rc == 0 ? buf_slice(&r->etag) : SLICE("");
    return r->ev->on_object(r->ev->arg, &r->object, r->e);
}

/* Some servers leave the quotes away that the field has. What would break a field is none. */
static void take_etag(struct reader *r, struct slice text)
{
    bool bare = text.n < 2 || text.p[0] != '"' || text.p[text.n - 1] != '"';

    text = bare ? text : slice_of(text.p + 1, text.n - 2);
    for (size_t i = 0; i < text.n; i++) {
        if ((uint8_t)text.p[i] <= ' ' || (uint8_t)text.p[i] >= 0x7f || text.p[i] == '"') {
            return;
        }
    }
    if (text.n != 0) {
        buf_addf(&r->etag, "\"" SLICE_FMT "\"", SLICE_ARG(text));
    }
}

static int on_bucket_element(void *arg, struct slice name, struct slice text, unsigned depth)
{
    struct reader *r = arg;
    uint64_t n;

    if (depth == 1 && r->in_object) {
        return give_object(r);
    }
    if (depth != 2 || !r->in_object) {
        return 0;
    }
    if (slice_eqs(name, "Key")) {
        buf_clear(&r->raw_key);
        buf_adds(&r->raw_key, text);
    } else if (slice_eqs(name, "Size") && slice_u64(slice_trim(text), &n) && n < INT64_MAX) {
        r->object.size_bytes = n;
    } else if (slice_eqs(name, "LastModified")) {
        if (!isotime_parse(slice_trim(text), &r->object.mtime_ns)) {
            r->object.mtime_ns = SYNC_TIME_UNKNOWN;
        }
    } else if (slice_eqs(name, "ETag")) {
        buf_clear(&r->etag);
        take_etag(r, slice_trim(text));
    }
    return 0;
}

int bucket_page_read(struct slice doc, const struct bucket_page_events *ev, struct bucket_page *out,
                     struct err *e)
{
    struct reader r = {.ev = ev,
                       .page = out,
                       .e = e,
                       .key = BUF_INIT(BUCKET_KEY_MAX),
                       .raw_key = BUF_INIT(3 * BUCKET_KEY_MAX),
                       .etag = BUF_INIT(ETAG_MAX)};
    struct s3_xml_events words = {on_root, on_word, &r},
                         parts = {on_element, on_bucket_element, &r};
    int rc;

    *out = (struct bucket_page){0};
    rc = s3_xml_read(doc, &words, e);
    if (rc == 0 && out->more && !r.has_token) {
        rc = err_set(e, E_INVALID,
                     "the list is truncated but has no continuation token; the server does "
                     "not support ListObjectsV2");
    }
    rc = rc != 0 ? rc : s3_xml_read(doc, &parts, e);
    buf_free(&r.key);
    buf_free(&r.raw_key);
    buf_free(&r.etag);
    return rc;
}

/* --- page after page ---
 *
 * Each is asked for by the token of the one before. One after the other: a token cannot be guessed,
 * and a list split by delimiters is wrong where keys lie flat. A list without end stops at the
 * number of entries, at the bytes that a list may have, when a token comes twice, or when page
 * after page is empty. */

enum { PAGE_BYTES = 32 << 20, EMPTY_PAGES_MAX = 100 };

struct bucket {
    struct http_engine *g;
    const struct origin_bucket *of;
    struct doc *doc;
    struct bucket_page page;
    uint64_t pages, entries, left_out;
    unsigned empty;       /* pages on end */
    uint64_t mark, limit; /* of a ring of tokens: Brent's tortoise stays for 2^n pages */
    struct slice prefix;
};

static void request_bucket_page(struct bucket *x);

static void end_bucket_listing(struct bucket *x, int rc, const struct err *why)
{
    struct engine_listed l = {.left_out = x->left_out};

    if (rc == 0) {
        x->g->site->log(x->g->site->log_arg, "%" PRIu64 " pages of the bucket's list were read",
                        x->pages);
    }
    http_listed(x->g, rc, why, &l);
}

static int on_bucket_object(void *arg, const struct bucket_object *o, struct err *e)
{
    struct bucket *x = arg;
    struct sync_entry en = {.type = SYNC_FILE,
                            .size_bytes = o->size_bytes,
                            .mtime_ns = o->mtime_ns,
                            .validator = o->etag};
    int rc;

    if (!slice_starts(o->key, x->prefix)) {
        return err_set(e, E_PROTOCOL, "the list has a key that does not begin with the prefix");
    }
    en.path = slice_from(o->key, x->prefix.n);
    /* "a/", which some tools put where they show a folder, is no file; and nothing is called "a//b"
     * or "../a". */
    if (!tree_path_valid(en.path)) {
        x->left_out++;
        return 0;
    }
    if (++x->entries > x->g->site->entries_max) {
        return err_set(e, E_TOOBIG,
                       "the bucket lists more than %" PRIu64 " keys; raise max_entries",
                       x->g->site->entries_max);
    }
    rc = x->g->ev.on_entry(x->g->arg, &en);
    return rc != 0 ? err_set(e, rc, "an entry of the bucket's list was rejected") : 0;
}

/* Pages must lead on: not to where we were, nor through nothing for ever. */
static int check_progress(struct bucket *x, struct err *e)
{
    uint64_t now = slice_hash(slice_str(x->page.token));

    x->empty = x->page.objects == 0 ? x->empty + 1 : 0;
    if (x->pages > 1 && now == x->mark) {
        return err_set(e, E_PROTOCOL, "the list leads back to a page that was already read");
    }
    if (x->empty == EMPTY_PAGES_MAX) {
        return err_set(e, E_PROTOCOL, "the list has too many empty pages in a row");
    }
    if (x->pages >= x->limit) {
        x->limit = 2 * x->pages;
        x->mark = now;
    }
    return 0;
}

static void on_bucket_page(struct doc *d, int rc)
{
    struct bucket *x = d->arg;
    struct bucket_page_events ev = {on_bucket_object, x};
    struct err why = d->why;

    x->pages++;
    if (rc == 0) {
        err_clear(&why);
        rc = bucket_page_read(buf_slice(&d->body), &ev, &x->page, &why);
        x->left_out += x->page.left_out;
    }
    if (rc == E_INVALID) { /* of a list that is E_PROTOCOL: it may be better the next time */
        rc = why.code = E_PROTOCOL;
    }
    doc_free(&x->doc);
    if (rc == 0 && x->page.more) {
        rc = check_progress(x, &why);
    }
    if (rc != 0) {
        err_prefix(&why, "page %" PRIu64 " of the list", x->pages);
        end_bucket_listing(x, rc, &why);
    } else if (x->page.more) {
        request_bucket_page(x);
    } else {
        end_bucket_listing(x, 0, NULL);
    }
}

/* Sorted and encoded as it will be signed. */
static void request_bucket_page(struct bucket *x)
{
    struct buf url = BUF_INIT(32 << 10);

    buf_addf(&url, "%s?", x->of->url);
    if (x->page.more) {
        buf_str(&url, "continuation-token=");
        url_encode(slice_str(x->page.token), &url);
        buf_byte(&url, '&');
    }
    buf_str(&url, "encoding-type=url&list-type=2&max-keys=1000&prefix=");
    url_encode(x->prefix, &url);
    x->doc = doc_ask(x->g, buf_cstr(&url), NULL, PAGE_BYTES, on_bucket_page, x);
    buf_free(&url);
}

static void bucket_start(struct http_engine *g)
{
    struct bucket *x = NEW(struct bucket);

    x->g = g;
    x->of = origin_bucket(g->site->origin);
    x->prefix = slice_str(x->of->prefix);
    g->lister_state = x;
    request_bucket_page(x);
}

static void bucket_free(struct http_engine *g)
{
    struct bucket *x = g->lister_state;

    if (x != NULL) {
        doc_free(&x->doc);
        free(x);
        g->lister_state = NULL;
    }
}

const struct lister lister_bucket = {"bucket", bucket_start, bucket_free, NULL, NULL};
