#include "server/cluster/bucket.h"

#include <event2/event.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/base/text.h"
#include "common/codec/httpdate.h"
#include "common/codec/url.h"
#include "common/hash/digest.h"
#include "common/os/clock.h"
#include "common/os/lock.h"
#include "common/os/message_queue.h"
#include "common/xfer/xfer.h"
#include "server/fetch/content_range.h"
#include "server/fetch/s3.h"
#include "server/fetch/s3_list.h"
#include "server/fetch/s3_xml.h"

enum {
    CONNECTIONS = 64,
    REFUSAL_BYTES = 16 << 10, /* of its document; the rest is not read */
    LIST_BYTES = 4 << 20,
    PAGE_KEYS = 1000,
    URL_BYTES = 16 << 10,
};

struct bucket {
    struct s3 *s3;
    char *ca_file;
    char *place;
    uint64_t connect_ms;
    unsigned stall_s;
    _Atomic uint64_t date_unix_s;
    _Atomic uint64_t requests[BUCKET_METHODS][BUCKET_RESULTS];
    _Atomic uint64_t sent_bytes, received_bytes;
    struct event_base *base;
    struct message_queue *mail;
    struct xfer_loop *transfers;
    struct message stop;
    struct message interruption;
    atomic_bool is_interrupted;
    struct list calls; /* under way; the loop's thread alone */
    pthread_t thread;
};

/* One request, of a thread that waits for it. The loop's thread fills in what follows `over`. */
struct call {
    struct bucket *b;
    struct xfer_params params;
    struct message message;
    struct list under_way; /* in bucket.calls */
    struct xfer *transfer;
    struct lock lock;
    struct cond is_over;
    bool over;
    int rc;
    struct err why;
    int status;
    struct buf *body;               /* of a success; NULL: it is ignored */
    struct buf refusal;             /* the document of another status */
    char region[40];                /* x-amz-bucket-region */
    char etag[BUCKET_ETAG_ROOM];    /* "": none, or too long */
    const struct bucket_body *sent; /* a body that is read, or NULL */
    bool ranged;                    /* `range` is valid */
    uint64_t date_unix_s;
    struct content_range range;
};

/* --- on the loop's thread --- */

static int on_response_head(void *arg, const struct xfer_head *h)
{
    struct call *c = arg;
    struct slice date = xfer_head_field(h, "date");
    struct slice region = xfer_head_field(h, "x-amz-bucket-region");
    struct slice range = xfer_head_field(h, "content-range");
    struct slice etag = xfer_head_field(h, "etag");
    uint64_t unix_s;

    c->status = h->status;
    if (date.p != NULL && httpdate_parse(date, clock_unix_s(), &unix_s)) {
        c->date_unix_s = unix_s;
        atomic_store(&c->b->date_unix_s, unix_s);
    }
    snprintf(c->region, sizeof c->region, SLICE_FMT, SLICE_ARG(region));
    if (etag.n < sizeof c->etag) {
        snprintf(c->etag, sizeof c->etag, SLICE_FMT, SLICE_ARG(etag));
    }
    c->ranged = range.p != NULL && content_range_parse(range, &c->range);
    return 0;
}

static int on_response_body(void *arg, struct slice bytes)
{
    struct call *c = arg;

    atomic_fetch_add(&c->b->received_bytes, bytes.n);
    if (c->status / 100 != 2) {
        size_t room = c->refusal.max - c->refusal.n;
        buf_add(&c->refusal, bytes.p, min_u64(bytes.n, room));
    } else if (c->body != NULL) {
        buf_adds(c->body, bytes);
        if (c->body->rc != 0) {
            return err_set(&c->why, E_TOOBIG, "the object has more than %zu bytes", c->body->max);
        }
    }
    return 0;
}

static void on_response_end(void *arg, int rc, const struct err *why, uint64_t body_bytes)
{
    struct call *c = arg;

    (void)body_bytes;
    list_remove_if(&c->under_way);
    if (c->status != 0) {
        atomic_fetch_add(&c->b->sent_bytes,
                         c->params.body_read != NULL ? c->params.body_bytes : c->params.body.n);
    }
    lock_take(&c->lock);
    c->rc = rc;
    if (rc != 0 && c->why.code == 0) {
        c->why = *why;
    }
    c->over = true;
    cond_signal(&c->is_over);
    lock_drop(&c->lock);
}

static void cancel_call(struct call *c)
{
    struct err why = {0};

    xfer_cancel(&c->transfer);
    on_response_end(c, err_set(&why, E_CANCELLED, "this program is ending"), &why, 0);
}

static ptrdiff_t on_request_body(void *arg, uint64_t offset, void *p, size_t n)
{
    const struct bucket_body *body = ((struct call *)arg)->sent;

    return body->read(body->arg, offset, p, n);
}

static void on_call(struct message *m)
{
    static const struct xfer_events events = {on_response_head, on_response_body, on_response_end};
    struct call *c = CONTAINER_OF(m, struct call, message);

    if (atomic_load(&c->b->is_interrupted)) {
        cancel_call(c);
        return;
    }
    list_push_back(&c->b->calls, &c->under_way);
    c->transfer = xfer_start(c->b->transfers, &c->params, &events, c);
}

static void on_interruption(struct message *m)
{
    struct bucket *b = CONTAINER_OF(m, struct bucket, interruption);

    LIST_EACH (&b->calls, it) {
        cancel_call(LIST_ITEM(it, struct call, under_way));
    }
}

static void on_stop(struct message *m)
{
    event_base_loopbreak(CONTAINER_OF(m, struct bucket, stop)->base);
}

static void *run_bucket(void *arg)
{
    struct bucket *b = arg;

    event_base_loop(b->base, EVLOOP_NO_EXIT_ON_EMPTY);
    xfer_loop_close(&b->transfers);
    message_queue_close(&b->mail);
    return NULL;
}

/* --- one request --- */

struct request {
    enum xfer_method method;
    const char *key;                  /* NULL: the bucket itself */
    const char *query;                /* or NULL */
    struct slice body;                /* of a PUT or POST */
    const char *sha256_hex;           /* of the body, if not the true one */
    const struct bucket_body *hashed; /* instead of body and sha256_hex; NULL: none */
    bool if_absent;                   /* If-None-Match: * */
    bool ranged;
    uint64_t first, last;
    struct buf *out;
};

static void write_url(const struct bucket *b, const struct request *r, struct buf *url)
{
    buf_str(url, b->s3->bucket.url);
    if (r->key != NULL) {
        url_encode_path(slice_str(b->s3->bucket.prefix), url);
        url_encode_path(slice_str(r->key), url);
    }
    if (r->query != NULL) {
        buf_addf(url, "?%s", r->query);
    }
}

static bool says_full(const struct s3_no *no, int status)
{
    return status == 507 || strcmp(no->code, "QuotaExceeded") == 0 ||
           strcmp(no->code, "XMinioStorageFull") == 0;
}

static int judge_refusal(const struct call *c, struct err *e)
{
    const char *name = c->b->s3->bucket.name;
    struct s3_no no;
    int rc;

    s3_no_read(buf_slice(&c->refusal), slice_str(c->region), &no);
    rc = s3_no_judge(c->b->s3, c->status, &no, e);
    if (rc != 0) {
        return rc;
    }
    switch (c->status) {
    case 404:
        return strcmp(no.code, "NoSuchKey") == 0 || strcmp(no.code, "NoSuchUpload") == 0
                   ? err_set(e, E_NOTFOUND, "not found in bucket %.80s", name)
                   : err_set(e, E_PROTOCOL,
                             "bucket %.80s responded with a 404 that does not come from S3", name);
    case 412:
        return err_set(e, E_EXISTS, "the key exists already in bucket %.80s", name);
    case 416:
        return err_set(e, E_CORRUPT, "an object in bucket %.80s ends before the range", name);
    case 401:
    case 403:
        return err_set(e, E_DENIED, "bucket %.80s does not permit this request (%d %s%s%s)", name,
                       c->status, no.code, no.message[0] != '\0' ? ": " : "", no.message);
    }
    if (says_full(&no, c->status)) {
        return err_set(e, E_NOSPACE, "bucket %.80s has no space left (%d %s)", name, c->status,
                       no.code);
    }
    if (c->status == 409 || c->status == 429 || c->status >= 500) {
        return err_set(e, E_AGAIN, "bucket %.80s is temporarily unavailable (%d %s)", name,
                       c->status, no.code);
    }
    return err_set(e, E_PROTOCOL, "bucket %.80s responded with status %d %s%s%s", name, c->status,
                   no.code, no.message[0] != '\0' ? ": " : "", no.message);
}

static void wait_for_call(struct call *c)
{
    lock_init(&c->lock, LOCK_LEAF);
    cond_init(&c->is_over);
    c->message.deliver = on_call;
    message_queue_post(c->b->mail, &c->message);
    lock_take(&c->lock);
    while (!c->over) {
        cond_wait(&c->is_over, &c->lock);
    }
    lock_drop(&c->lock);
    cond_fini(&c->is_over);
    lock_fini(&c->lock);
}

static int send_signed(struct call *c, const struct request *r, struct err *e)
{
    static const struct http_field if_absent = {{"if-none-match", 13}, {"*", 1}};
    struct s3_request s = {.method = r->method, .fields = &if_absent, .nfields = r->if_absent};
    struct buf url = BUF_INIT(URL_BYTES);
    struct slice lines[S3_LINES];
    char hex[DIGEST_HEX + 1];
    struct arena a = {0};
    struct digest d;
    size_t n = 0;
    int rc;

    if (r->method == XFER_PUT || r->method == XFER_POST) {
        if (r->hashed != NULL) {
            d = r->hashed->sha256;
        } else {
            digest_of(r->body, &d);
        }
        digest_format(&d, hex);
        s.payload = slice_str(r->sha256_hex != NULL ? r->sha256_hex : hex);
    }
    write_url(c->b, r, &url);
    rc = s3_sign(c->b->s3, &s, clock_unix_s(), &url, &a, lines, &n, e);
    if (rc == 0) {
        c->params = (struct xfer_params){.method = r->method,
                                         .url = buf_slice(&url),
                                         .fields = lines,
                                         .nfields = n,
                                         .body = r->body,
                                         .ranged = r->ranged,
                                         .range_first = r->first,
                                         .range_last = r->last,
                                         .connect_timeout_ms = c->b->connect_ms,
                                         .idle_timeout_s = c->b->stall_s,
                                         .ca_file = c->b->ca_file};
        if (r->hashed != NULL && r->hashed->bytes.p == NULL) {
            c->sent = r->hashed;
            c->params.body_bytes = r->hashed->size_bytes;
            c->params.body_read = on_request_body;
        } else if (r->hashed != NULL) {
            c->params.body = r->hashed->bytes;
        }
        wait_for_call(c);
    }
    arena_fini(&a);
    buf_free(&url);
    return rc;
}

static void count_request(struct bucket *b, enum xfer_method method, int rc)
{
    static const enum bucket_method methods[] = {[XFER_GET] = BUCKET_GET,
                                                 [XFER_PUT] = BUCKET_PUT,
                                                 [XFER_POST] = BUCKET_POST,
                                                 [XFER_DELETE] = BUCKET_DELETE};
    enum bucket_result result = rc == 0                            ? BUCKET_OK
                                : rc == E_NOTFOUND                 ? BUCKET_ABSENT
                                : rc == E_EXISTS                   ? BUCKET_EXISTS
                                : rc == E_AGAIN                    ? BUCKET_BUSY
                                : rc == E_DENIED || rc == E_CONFIG ? BUCKET_DENIED
                                                                   : BUCKET_FAILED;

    atomic_fetch_add(&b->requests[methods[method]][result], 1);
}

/* *c: how it ended, with E_* in c->rc; the caller frees nothing. */
static int send_request(struct bucket *b, const struct request *r, struct call *c, struct err *e)
{
    int rc;

    *c = (struct call){.b = b, .body = r->out, .refusal = BUF_INIT(REFUSAL_BYTES)};
    if (r->out != NULL) {
        buf_clear(r->out);
    }
    rc = send_signed(c, r, e);
    if (rc == 0 && c->rc != 0) {
        rc = err_set(e, c->rc, "bucket %.80s: %s", b->s3->bucket.name, c->why.text);
    } else if (rc == 0 && c->status / 100 != 2) {
        rc = judge_refusal(c, e);
    }
    if (c->over && r->sha256_hex == NULL) { /* the probe has one that is to be refused */
        count_request(b, r->method, rc);
    }
    buf_free(&c->refusal);
    return rc;
}

static int send_plain(struct bucket *b, const struct request *r, struct err *e)
{
    struct call c;

    return send_request(b, r, &c, e);
}

static int send_dated(struct bucket *b, const struct request *r, uint64_t *date_unix_s,
                      struct err *e)
{
    struct call c;
    int rc = send_request(b, r, &c, e);

    *date_unix_s = c.date_unix_s;
    return rc;
}

/* --- the calls --- */

bool bucket_is_undecided(int rc)
{
    switch (rc) {
    case 0:
    case E_EXISTS:
    case E_DENIED:
    case E_CONFIG:
    case E_INVALID:
        return false;
    default:
        return true;
    }
}

int bucket_get(struct bucket *b, const char *key, struct buf *out, struct err *e)
{
    uint64_t date_unix_s;

    return bucket_get_dated(b, key, out, &date_unix_s, e);
}

int bucket_get_dated(struct bucket *b, const char *key, struct buf *out, uint64_t *date_unix_s,
                     struct err *e)
{
    struct request r = {.method = XFER_GET, .key = key, .out = out};

    return send_dated(b, &r, date_unix_s, e);
}

int bucket_get_range(struct bucket *b, const char *key, uint64_t first, uint64_t n, struct buf *out,
                     struct err *e)
{
    struct request r = {.method = XFER_GET,
                        .key = key,
                        .ranged = true,
                        .first = first,
                        .last = first + n - 1,
                        .out = out};
    struct call c;
    int rc;

    CHECK(n != 0);
    rc = send_request(b, &r, &c, e);
    if (rc == 0 && c.status == 206 && c.ranged && c.range.total < first + n) {
        rc = err_set(e, E_CORRUPT, "an object in bucket %.80s ends within the range",
                     b->s3->bucket.name);
    } else if (rc == 0 && (c.status != 206 || !c.ranged || c.range.first != first ||
                           c.range.end != first + n || out->n != n)) {
        rc = err_set(e, E_PROTOCOL,
                     "bucket %.80s: the response to a range of %" PRIu64 " bytes is not that range "
                     "(status %d, %zu bytes)",
                     b->s3->bucket.name, n, c.status, out->n);
    }
    return rc;
}

int bucket_put(struct bucket *b, const char *key, struct slice body, struct err *e)
{
    struct request r = {.method = XFER_PUT, .key = key, .body = body};

    return send_plain(b, &r, e);
}

int bucket_create(struct bucket *b, const char *key, struct slice body, struct err *e)
{
    return bucket_create_as(b, key, body, NULL, e);
}

int bucket_create_dated(struct bucket *b, const char *key, struct slice body, uint64_t *date_unix_s,
                        struct err *e)
{
    struct request r = {.method = XFER_PUT, .key = key, .body = body, .if_absent = true};

    return send_dated(b, &r, date_unix_s, e);
}

int bucket_create_as(struct bucket *b, const char *key, struct slice body, const char *sha256_hex,
                     struct err *e)
{
    struct request r = {
        .method = XFER_PUT, .key = key, .body = body, .sha256_hex = sha256_hex, .if_absent = true};

    return send_plain(b, &r, e);
}

int bucket_create_body(struct bucket *b, const char *key, const struct bucket_body *body,
                       struct err *e)
{
    struct request r = {.method = XFER_PUT, .key = key, .hashed = body, .if_absent = true};

    return send_plain(b, &r, e);
}

int bucket_delete(struct bucket *b, const char *key, struct err *e)
{
    struct request r = {.method = XFER_DELETE, .key = key};
    int rc = send_plain(b, &r, e);

    return rc == E_NOTFOUND ? 0 : rc;
}

/* --- an object in parts --- */

struct parts_reply {
    char *id;      /* BUCKET_UPLOAD_ID_ROOM; NULL: it is not asked for */
    bool complete; /* the object is there */
};

static int on_parts_open(void *arg, struct slice name, unsigned depth)
{
    struct parts_reply *p = arg;

    if (depth == 0) {
        p->complete = slice_eqs(name, "CompleteMultipartUploadResult");
    }
    return 0;
}

static int on_parts_close(void *arg, struct slice name, struct slice text, unsigned depth)
{
    struct parts_reply *p = arg;

    if (p->id != NULL && depth == 1 && slice_eqs(name, "UploadId") &&
        text.n < BUCKET_UPLOAD_ID_ROOM) {
        snprintf(p->id, BUCKET_UPLOAD_ID_ROOM, SLICE_FMT, SLICE_ARG(text));
    }
    return 0;
}

static void write_parts_query(struct buf *out, const char *id, unsigned number)
{
    if (number != 0) {
        buf_addf(out, "partNumber=%u&", number);
    }
    buf_str(out, "uploadId=");
    url_encode(slice_str(id), out);
}

int bucket_parts_create(struct bucket *b, const char *key, char id[BUCKET_UPLOAD_ID_ROOM],
                        struct err *e)
{
    struct buf doc = BUF_INIT(REFUSAL_BYTES);
    struct parts_reply reply = {.id = id};
    struct s3_xml_events ev = {on_parts_open, on_parts_close, &reply};
    struct request r = {.method = XFER_POST, .key = key, .query = "uploads=", .out = &doc};
    int rc = send_plain(b, &r, e);

    id[0] = '\0';
    if (rc == 0 && (s3_xml_read(buf_slice(&doc), &ev, NULL) != 0 || id[0] == '\0')) {
        rc = err_set(e, E_PROTOCOL, "bucket %.80s began an upload in parts without an id",
                     b->s3->bucket.name);
    }
    buf_free(&doc);
    return rc;
}

int bucket_part_put(struct bucket *b, const char *key, const char *id, unsigned number,
                    const struct bucket_body *body, char etag[BUCKET_ETAG_ROOM], struct err *e)
{
    struct buf query = BUF_INIT(URL_BYTES);
    struct request r = {.method = XFER_PUT, .key = key, .hashed = body};
    struct call c;
    int rc;

    CHECK(number != 0 && number <= BUCKET_PARTS_MAX);
    write_parts_query(&query, id, number);
    r.query = buf_cstr(&query);
    rc = send_request(b, &r, &c, e);
    if (rc == 0 && (c.etag[0] == '\0' || strpbrk(c.etag, "<>&") != NULL)) {
        rc = err_set(e, E_PROTOCOL, "bucket %.80s stored a part without an ETag",
                     b->s3->bucket.name);
    }
    if (rc == 0) {
        memcpy(etag, c.etag, BUCKET_ETAG_ROOM);
    }
    buf_free(&query);
    return rc;
}

static void write_parts_list(struct buf *out, char (*etag)[BUCKET_ETAG_ROOM], unsigned parts)
{
    buf_str(out, "<CompleteMultipartUpload>");
    for (unsigned i = 0; i < parts; i++) {
        buf_addf(out, "<Part><PartNumber>%u</PartNumber><ETag>%s</ETag></Part>", i + 1, etag[i]);
    }
    buf_str(out, "</CompleteMultipartUpload>");
}

/* A bucket may begin a response with status 200 and fail afterwards: the document decides. */
static int judge_completion(const struct bucket *b, struct slice doc, struct err *e)
{
    struct parts_reply reply = {0};
    struct s3_xml_events ev = {on_parts_open, on_parts_close, &reply};
    struct s3_no no;

    if (s3_xml_read(doc, &ev, NULL) == 0 && reply.complete) {
        return 0;
    }
    s3_no_read(doc, SLICE_NONE, &no);
    return err_set(e, E_AGAIN, "bucket %.80s did not complete an object in parts (%s)",
                   b->s3->bucket.name, no.code);
}

int bucket_parts_complete(struct bucket *b, const char *key, const char *id,
                          char (*etag)[BUCKET_ETAG_ROOM], unsigned parts, struct err *e)
{
    struct buf query = BUF_INIT(URL_BYTES), list = BUF_INIT(4 << 20), doc = BUF_INIT(REFUSAL_BYTES);
    struct request r = {.method = XFER_POST, .key = key, .out = &doc};
    int rc;

    CHECK(parts != 0 && parts <= BUCKET_PARTS_MAX);
    write_parts_query(&query, id, 0);
    write_parts_list(&list, etag, parts);
    r.query = buf_cstr(&query);
    r.body = buf_slice(&list);
    rc = send_plain(b, &r, e);
    rc = rc != 0 ? rc : judge_completion(b, buf_slice(&doc), e);
    buf_free(&query);
    buf_free(&list);
    buf_free(&doc);
    return rc;
}

int bucket_parts_abort(struct bucket *b, const char *key, const char *id, struct err *e)
{
    struct buf query = BUF_INIT(URL_BYTES);
    struct request r = {.method = XFER_DELETE, .key = key};
    int rc;

    write_parts_query(&query, id, 0);
    r.query = buf_cstr(&query);
    rc = send_plain(b, &r, e);
    buf_free(&query);
    return rc == E_NOTFOUND ? 0 : rc;
}

/* --- lists --- */

struct listing {
    struct bucket *b;
    size_t prefix; /* bytes of the cluster's prefix in each key */
    size_t left;
    int (*each)(void *arg, const struct bucket_key *k);
    void *arg;
    int stopped; /* what each() returned */
};

static int on_listed_object(void *arg, const struct s3_object *o, struct err *e)
{
    struct listing *l = arg;
    char key[S3_KEY_MAX + 1];
    struct bucket_key k = {.key = key};

    if (!slice_starts(o->key, slice_str(l->b->s3->bucket.prefix)) ||
        memchr(o->key.p, '\0', o->key.n) != NULL) {
        return err_set(e, E_PROTOCOL, "the list has a key that does not begin with the prefix");
    }
    if (l->left == 0) {
        return E_CANCELLED;
    }
    l->left--;
    snprintf(key, sizeof key, SLICE_FMT, SLICE_ARG(slice_from(o->key, l->prefix)));
    k.size_bytes = o->size_bytes;
    k.modified_unix_s = o->mtime_ns > 0 ? (uint64_t)o->mtime_ns / 1000000000u : 0;
    l->stopped = l->each(l->arg, &k);
    return l->stopped != 0 ? E_CANCELLED : 0;
}

static void write_list_query(const struct listing *l, const char *prefix, const char *after,
                             const struct s3_list_page *page, struct buf *out)
{
    const char *base = l->b->s3->bucket.prefix;
    struct buf key = BUF_INIT(4 * S3_KEY_MAX);

    if (page->more) {
        buf_str(out, "continuation-token=");
        url_encode(slice_str(page->token), out);
        buf_byte(out, '&');
    }
    buf_addf(out, "encoding-type=url&list-type=2&max-keys=%zu&prefix=",
             (size_t)min_u64(l->left, PAGE_KEYS));
    buf_addf(&key, "%s%s", base, prefix);
    url_encode(buf_slice(&key), out);
    if (after[0] != '\0' && !page->more) {
        buf_clear(&key);
        buf_addf(&key, "%s%s", base, after);
        buf_str(out, "&start-after=");
        url_encode(buf_slice(&key), out);
    }
    buf_free(&key);
}

static int list_page(struct listing *l, const char *prefix, const char *after,
                     struct s3_list_page *page, struct err *e)
{
    struct s3_list_events ev = {on_listed_object, l};
    struct buf query = BUF_INIT(URL_BYTES), doc = BUF_INIT(LIST_BYTES);
    struct request r = {.method = XFER_GET, .out = &doc};
    int rc;

    write_list_query(l, prefix, after, page, &query);
    r.query = buf_cstr(&query);
    rc = send_plain(l->b, &r, e);
    rc = rc != 0 ? rc : s3_list_read(buf_slice(&doc), &ev, page, e);
    if (rc == E_INVALID) {
        rc = err_prefix(e, "bucket %.80s", l->b->s3->bucket.name);
    }
    buf_free(&query);
    buf_free(&doc);
    return rc;
}

int bucket_list(struct bucket *b, const char *prefix, const char *after, size_t max,
                int (*each)(void *arg, const struct bucket_key *k), void *arg, struct err *e)
{
    struct listing l = {
        .b = b, .prefix = strlen(b->s3->bucket.prefix), .left = max, .each = each, .arg = arg};
    struct s3_list_page page = {0};
    int rc;

    do {
        rc = list_page(&l, prefix, after, &page, e);
    } while (rc == 0 && page.more && l.left != 0);
    return rc == E_CANCELLED ? l.stopped : rc;
}

/* --- the bucket itself --- */

static int on_versioning(void *arg, struct slice name, struct slice text, unsigned depth)
{
    bool *yes = arg;

    if (depth == 1 && slice_eqs(name, "Status")) {
        *yes = slice_ieq(slice_trim(text), SLICE("Enabled"));
    }
    return 0;
}

int bucket_is_versioned(struct bucket *b, bool *yes, struct err *e)
{
    struct buf doc = BUF_INIT(REFUSAL_BYTES);
    struct request r = {.method = XFER_GET, .query = "versioning", .out = &doc};
    struct s3_xml_events ev = {NULL, on_versioning, yes};
    int rc = send_plain(b, &r, e);

    *yes = false;
    rc = rc != 0 ? rc : s3_xml_read(buf_slice(&doc), &ev, e);
    buf_free(&doc);
    return rc;
}

uint64_t bucket_date_unix_s(const struct bucket *b)
{
    return atomic_load(&((struct bucket *)(uintptr_t)b)->date_unix_s);
}

void bucket_stats(struct bucket *b, struct bucket_stats *sum)
{
    for (size_t m = 0; m < BUCKET_METHODS; m++) {
        for (size_t r = 0; r < BUCKET_RESULTS; r++) {
            sum->requests[m][r] += atomic_load(&b->requests[m][r]);
        }
    }
    sum->sent_bytes += atomic_load(&b->sent_bytes);
    sum->received_bytes += atomic_load(&b->received_bytes);
}

const char *bucket_place(const struct bucket *b)
{
    return b->place;
}

static void start_thread(struct bucket *b)
{
    struct xfer_limits limits = {.connections = CONNECTIONS, .host_connections = CONNECTIONS};
    struct event_config *config = event_config_new();

    CHECK(config != NULL);
    CHECK(event_config_set_flag(config, EVENT_BASE_FLAG_NOLOCK | EVENT_BASE_FLAG_IGNORE_ENV) == 0);
    list_init(&b->calls);
    b->base = event_base_new_with_config(config);
    CHECK(b->base != NULL);
    event_config_free(config);
    b->mail = message_queue_open(b->base);
    b->transfers = xfer_loop_open(b->base, &limits);
    b->thread = thread_start("bucket", run_bucket, b);
}

static int open_s3(const struct bucket_settings *set, struct s3 **out, struct buf *url,
                   struct err *e)
{
    struct origin_settings s3 = {.url = set->url,
                                 .endpoint = set->endpoint,
                                 .region = set->region,
                                 .addressing = set->addressing,
                                 .authorization = set->authorization};
    int rc;

    *out = NULL;
    if (strncmp(set->url, "s3://", 5) != 0) {
        return err_set(e, E_CONFIG, "the URL names no bucket; write s3://bucket/prefix/");
    }
    rc = s3_open(&s3, out, url, e);
    if (rc == 0 && (*out)->access_key == NULL) {
        rc = err_set(e, E_CONFIG, "a bucket that is written to needs keys; set authorization");
    }
    if (rc != 0) {
        s3_close(out);
    }
    return rc;
}

int bucket_check_settings(const struct bucket_settings *set, struct err *e)
{
    struct buf url = BUF_INIT(4096);
    struct s3 *s3;
    int rc = open_s3(set, &s3, &url, e);

    s3_close(&s3);
    buf_free(&url);
    return rc;
}

int bucket_open(const struct bucket_settings *set, struct bucket **out, struct err *e)
{
    struct bucket *b = NEW(struct bucket);
    struct buf url = BUF_INIT(4096), place = BUF_INIT(8192);
    int rc;

    *out = NULL;
    rc = open_s3(set, &b->s3, &url, e);
    if (rc != 0) {
        free(b);
        goto out;
    }
    b->ca_file = set->ca_file != NULL ? mem_strdup(set->ca_file) : NULL;
    b->connect_ms = set->connect_ms != 0 ? set->connect_ms : 5000;
    b->stall_s = set->stall_s != 0 ? set->stall_s : 20;
    buf_addf(&place, "%s at %s", set->url, buf_cstr(&url));
    b->place = mem_strdup(buf_cstr(&place));
    start_thread(b);
    *out = b;
out:
    buf_free(&url);
    buf_free(&place);
    return rc;
}

void bucket_interrupt(struct bucket *b)
{
    if (!atomic_exchange(&b->is_interrupted, true)) {
        b->interruption.deliver = on_interruption;
        message_queue_post(b->mail, &b->interruption);
    }
}

bool bucket_is_interrupted(const struct bucket *b)
{
    return atomic_load(&b->is_interrupted);
}

void bucket_close(struct bucket **bp)
{
    struct bucket *b = *bp;

    *bp = NULL;
    if (b == NULL) {
        return;
    }
    b->stop.deliver = on_stop;
    message_queue_post(b->mail, &b->stop);
    pthread_join(b->thread, NULL);
    event_base_free(b->base);
    s3_close(&b->s3);
    free(b->ca_file);
    free(b->place);
    free(b);
}
