#include "server/fetch/s3_list.h"

#include "common/codec/isotime.h"
#include "common/codec/url.h"
#include "server/fetch/s3_xml.h"

enum { ETAG_MAX = 256 };

/* --- the page, read twice: some servers say how keys are encoded only behind them --- */

struct reader {
    const struct s3_list_events *ev;
    struct s3_list_page *page;
    struct err *e;
    bool url_encoded, has_token, in_object;
    struct buf key, raw_key, etag;
    struct s3_object object;
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
        if (text.n == 0 || text.n > S3_TOKEN_MAX || memchr(text.p, 0, text.n) != NULL) {
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
        r->object = (struct s3_object){.size_bytes = S3_SIZE_UNKNOWN, .mtime_ns = S3_TIME_UNKNOWN};
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
            r->object.mtime_ns = S3_TIME_UNKNOWN;
        }
    } else if (slice_eqs(name, "ETag")) {
        buf_clear(&r->etag);
        take_etag(r, slice_trim(text));
    }
    return 0;
}

int s3_list_read(struct slice doc, const struct s3_list_events *ev, struct s3_list_page *out,
                 struct err *e)
{
    struct reader r = {.ev = ev,
                       .page = out,
                       .e = e,
                       .key = BUF_INIT(S3_KEY_MAX),
                       .raw_key = BUF_INIT(3 * S3_KEY_MAX),
                       .etag = BUF_INIT(ETAG_MAX)};
    struct s3_xml_events words = {on_root, on_word, &r},
                         parts = {on_element, on_bucket_element, &r};
    int rc;

    *out = (struct s3_list_page){0};
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
