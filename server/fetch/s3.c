#include "server/fetch/s3.h"

#include <openssl/crypto.h>
#include <stdlib.h>

#include "common/codec/base64.h"
#include "common/codec/url.h"
#include "server/fetch/s3_xml.h"
#include "server/fetch/sigv4.h"

enum { BUCKET_MAX = 255, PREFIX_MAX = 1024, REGION_MAX = 32, URL_MAX = 16384 };

#define DIGITS  "0123456789"
#define SMALL   "abcdefghijklmnopqrstuvwxyz"
#define CAPITAL "ABCDEFGHIJKLMNOPQRSTUVWXYZ"

/* --- the settings --- */

/* "s3://bucket/some prefix/": the prefix is raw, as the tools of S3 write it, and gets its '/'. */
static int read_url(const char *url, struct origin_bucket *b, struct err *e)
{
    struct slice prefix = slice_from(slice_str(url), 5), name = slice_cut(&prefix, '/');
    struct slice rest = prefix;
    struct arena a = {0};

    if (name.n == 0 || name.n > BUCKET_MAX || strspn(name.p, CAPITAL SMALL DIGITS "._-") < name.n ||
        name.p[0] == '.') {
        return err_set(e, E_CONFIG, "the URL names no valid bucket; write s3://bucket/prefix/");
    }
    if (prefix.n > PREFIX_MAX) {
        return err_set(e, E_CONFIG, "the prefix of a bucket has at most %d bytes", PREFIX_MAX);
    }
    while (rest.n != 0) {
        struct slice part = slice_cut(&rest, '/');
        if (slice_eqs(part, ".") || slice_eqs(part, "..")) {
            return err_set(e, E_CONFIG, "the prefix of a bucket must not contain \".\" or \"..\"");
        }
    }
    b->name = mem_strdup(arena_cstr(&a, name));
    b->prefix = mem_strdup(arena_fmt(&a, SLICE_FMT "%s", SLICE_ARG(prefix),
                                     prefix.n == 0 || prefix.p[prefix.n - 1] == '/' ? "" : "/")
                               .p);
    arena_fini(&a);
    return 0;
}

static int read_region(const char *text, struct origin_bucket *b, struct err *e)
{
    const char *region = text != NULL ? text : "us-east-1";

    if (region[0] == '\0' || strlen(region) > REGION_MAX ||
        region[strspn(region, CAPITAL SMALL DIGITS "_-")] != '\0') {
        return err_set(e, E_CONFIG,
                       "invalid region; use letters, digits, '-' and '_', such as "
                       "eu-west-1");
    }
    b->region = mem_strdup(region);
    return 0;
}

/* The bucket as the first part of the path, or of the host's name. A certificate for *.s3... covers
 * no name with dots. */
static int make_url(const struct origin_settings *set, struct origin_bucket *b, struct err *e)
{
    const char *tail = strncmp(b->region, "cn-", 3) == 0 ? ".cn" : "";
    struct buf host = BUF_INIT(1024);
    struct arena a = {0};
    const char *at = set->endpoint != NULL
                         ? set->endpoint
                         : arena_fmt(&a, "https://s3.%s.amazonaws.com%s", b->region, tail).p;
    bool dotted = strchr(b->name, '.') != NULL;
    struct url u;
    bool path;
    int rc = url_split(slice_str(at), &u, e);

    if (rc != 0 || u.path.n != 1 || u.query.p != NULL) {
        rc = err_set(e, E_CONFIG,
                     "invalid endpoint; write a URL without a path, such as "
                     "https://s3.example:9000");
        goto out;
    }
    path = set->addressing != NULL ? strcmp(set->addressing, "path") == 0
                                   : set->endpoint != NULL || (dotted && u.tls);
    if (!path && (u.ipv6 || b->name[strspn(b->name, SMALL DIGITS ".-")] != '\0')) {
        rc = err_set(e, E_CONFIG,
                     "the bucket's name cannot be part of a host name; write addressing = path");
        goto out;
    }
    url_write_origin(&u, &host);
    if (path) {
        b->url = mem_strdup(arena_fmt(&a, "%s/%s/", buf_cstr(&host), b->name).p);
    } else {
        const char *scheme = u.tls ? "https://" : "http://";
        b->url = mem_strdup(
            arena_fmt(&a, "%s%s.%s/", scheme, b->name, buf_cstr(&host) + strlen(scheme)).p);
    }
out:
    buf_free(&host);
    arena_fini(&a);
    return rc;
}

static char *wiped_later(struct slice s)
{
    char *p = mem_new(s.n + 1);

    memcpy(p, s.p, s.n);
    return p;
}

/* access_key:secret_key[:session_token]. What stands alone in its file was read as a token of
 * HTTP's. */
static int read_keys(const char *text, struct s3 *b, struct err *e)
{
    struct slice rest = slice_str(text), access, secret;

    if (text == NULL) {
        return 0;
    }
    if (slice_starts(rest, SLICE("Bearer "))) {
        rest = slice_from(rest, 7);
    }
    access = slice_cut(&rest, ':');
    secret = slice_cut(&rest, ':');
    if (access.n == 0 || secret.n == 0 || slice_find(access, ' ') >= 0 ||
        slice_find(access, '/') >= 0 || slice_find(access, ',') >= 0) {
        return err_set(e, E_CONFIG,
                       "the file that authorization names must contain access_key:secret_key or "
                       "access_key:secret_key:session_token in one line");
    }
    b->access_key = wiped_later(access);
    b->secret = wiped_later(secret);
    b->token = rest.n != 0 ? wiped_later(rest) : NULL;
    return 0;
}

int s3_open(const struct origin_settings *set, struct s3 **out, struct buf *url, struct err *e)
{
    struct s3 *b = NEW(struct s3);
    int rc = read_url(set->url, &b->bucket, e);

    *out = NULL;
    rc = rc != 0 ? rc : read_region(set->region, &b->bucket, e);
    rc = rc != 0 ? rc : make_url(set, &b->bucket, e);
    rc = rc != 0 ? rc : read_keys(set->authorization, b, e);
    if (rc != 0) {
        s3_close(&b);
        return rc;
    }
    buf_str(url, b->bucket.url);
    url_encode_path(slice_str(b->bucket.prefix), url);
    *out = b;
    return 0;
}

static void wipe(char *s)
{
    if (s != NULL) {
        OPENSSL_cleanse(s, strlen(s));
        free(s);
    }
}

void s3_close(struct s3 **bp)
{
    struct s3 *b = *bp;

    *bp = NULL;
    if (b == NULL) {
        return;
    }
    free(b->bucket.name);
    free(b->bucket.url);
    free(b->bucket.prefix);
    free(b->bucket.region);
    wipe(b->access_key);
    wipe(b->secret);
    wipe(b->token);
    free(b);
}

/* --- a request --- */

/* Path and query as they are signed: encoded anew, so that what goes out is what was reckoned
 * with. */
static int canonical_url(const struct url *u, struct arena *a, struct slice *path,
                         struct slice *query, struct err *e)
{
    struct buf plain = BUF_INIT(URL_MAX), coded = BUF_INIT(3 * URL_MAX), parts = BUF_INIT(URL_MAX);
    int rc = 0;

    if (!url_decode(u->path, &plain) || plain.rc != 0 || !sigv4_query(u->query, &parts)) {
        rc = err_set(e, E_INVALID, "the URL cannot be signed");
    } else {
        url_encode_path(buf_slice(&plain), &coded);
        *path = arena_copy(a, buf_slice(&coded));
        *query = arena_copy(a, slice_of(parts.n != 0 ? parts.p : "", parts.n));
    }
    buf_free(&plain);
    buf_free(&coded);
    buf_free(&parts);
    return rc;
}

static struct slice method_name(enum xfer_method m)
{
    static const struct slice name[] = {
        [XFER_GET] = {"GET", 3},   [XFER_HEAD] = {"HEAD", 4},     [XFER_PUT] = {"PUT", 3},
        [XFER_POST] = {"POST", 4}, [XFER_DELETE] = {"DELETE", 6}, [XFER_PATCH] = {"PATCH", 5},
    };

    return name[m];
}

/* Fields but for the host's, as they are signed and sent. */
static size_t add_s3_fields(const struct s3 *b, const struct s3_request *r, const char *date,
                            struct slice payload, struct http_field *f)
{
    size_t n = 0;

    if (r->method == XFER_GET || r->method == XFER_HEAD) {
        f[n++] = (struct http_field){SLICE("x-amz-checksum-mode"), SLICE("ENABLED")};
    }
    f[n++] = (struct http_field){SLICE("x-amz-content-sha256"), payload};
    f[n++] = (struct http_field){SLICE("x-amz-date"), slice_str(date)};
    if (b->token != NULL) {
        f[n++] = (struct http_field){SLICE("x-amz-security-token"), slice_str(b->token)};
    }
    for (size_t i = 0; i < r->nfields; i++) {
        f[n++] = r->fields[i];
    }
    return n;
}

int s3_sign(const struct s3 *b, const struct s3_request *req, uint64_t unix_s, struct buf *url,
            struct arena *a, struct slice lines[], size_t *n, struct err *e)
{
    struct sigv4_keys keys = {slice_str(b->access_key), slice_str(b->secret),
                              slice_str(b->bucket.region), SLICE("s3")};
    struct sigv4_request r = {.method = method_name(req->method),
                              .payload = req->payload.p != NULL ? req->payload
                                                                : SLICE(SIGV4_EMPTY_PAYLOAD)};
    struct http_field fields[S3_LINES];
    struct buf host = BUF_INIT(1024), signature = BUF_INIT(4096);
    char date[SIGV4_DATE_ROOM];
    struct slice name;
    struct url u;
    int rc;

    CHECK(req->nfields <= S3_FIELDS_MAX);
    *n = 0;
    if (b->access_key == NULL) {
        for (size_t i = 0; i < req->nfields; i++) {
            lines[(*n)++] = arena_fmt(a, SLICE_FMT ": " SLICE_FMT, SLICE_ARG(req->fields[i].name),
                                      SLICE_ARG(req->fields[i].value));
        }
        return 0;
    }
    rc = url_split(buf_slice(url), &u, e);
    rc = rc != 0 ? rc : canonical_url(&u, a, &r.path, &r.query, e);
    if (rc != 0) {
        return rc;
    }
    url_write_origin(&u, &host);
    name = arena_copy(a, buf_slice(&host));
    buf_clear(url); /* u is void from here on */
    buf_addf(url, SLICE_FMT SLICE_FMT "%s" SLICE_FMT, SLICE_ARG(name), SLICE_ARG(r.path),
             r.query.n != 0 ? "?" : "", SLICE_ARG(r.query));
    name = slice_from(name, (size_t)slice_find(name, ':') + 3);
    sigv4_date(unix_s, date);
    r.nfields = add_s3_fields(b, req, date, r.payload, fields);
    fields[r.nfields++] = (struct http_field){SLICE("host"), name};
    r.fields = fields;
    rc = sigv4_sign(&keys, &r, unix_s, &signature, e);
    if (rc == 0 && url->rc != 0) {
        rc = err_set(e, E_TOOBIG, "the URL has more than %zu bytes", url->max);
    }
    if (rc == 0) {
        for (size_t i = 0; i + 1 < r.nfields; i++) {
            lines[(*n)++] = arena_fmt(a, SLICE_FMT ": " SLICE_FMT, SLICE_ARG(fields[i].name),
                                      SLICE_ARG(fields[i].value));
        }
        lines[(*n)++] = arena_fmt(a, "Authorization: " SLICE_FMT, SLICE_ARG(buf_slice(&signature)));
    }
    buf_free(&host);
    buf_free(&signature);
    return rc;
}

/* --- an answer --- */

bool s3_checksum(struct slice value, struct slice type, struct digest *out)
{
    size_t n = 0;

    return (type.p == NULL || slice_ieq(slice_trim(type), SLICE("FULL_OBJECT"))) &&
           base64_decode(slice_trim(value), out->b, sizeof out->b, &n) && n == sizeof out->b;
}

/* --- a no --- */

/* What a stranger wrote, for a log and a page. */
static void copy_printable_text(char *to, size_t room, struct slice s)
{
    size_t n = 0;

    for (size_t i = 0; i < s.n && n + 1 < room; i++) {
        to[n++] = s.p[i] >= ' ' && s.p[i] < 0x7f && s.p[i] != '"' ? s.p[i] : ' ';
    }
    to[n] = '\0';
}

static int on_s3_element_close(void *arg, struct slice name, struct slice text, unsigned depth)
{
    struct s3_no *no = arg;

    if (depth == 1 && slice_eqs(name, "Code")) {
        copy_printable_text(no->code, sizeof no->code, text);
    } else if (depth == 1 && slice_eqs(name, "Message")) {
        copy_printable_text(no->message, sizeof no->message, text);
    } else if (depth == 1 && slice_eqs(name, "Region")) {
        copy_printable_text(no->region, sizeof no->region, text);
    }
    return 0;
}

static int on_s3_element_open(void *arg, struct slice name, unsigned depth)
{
    (void)arg;
    return depth != 0 || slice_eqs(name, "Error") ? 0 : E_INVALID;
}

/* 412 and 416 speak of what was asked; a redirect that names a place is followed, but for one that
 * names a region: what is signed for here is worth nothing there. */
bool s3_is_no(const struct xfer_head *h)
{
    if (h->status / 100 == 3) {
        return h->status != 304 && (xfer_head_field(h, "location").p == NULL ||
                                    xfer_head_field(h, "x-amz-bucket-region").p != NULL);
    }
    return h->status >= 400 && h->status != 412 && h->status != 416;
}

void s3_no_read(struct slice body, struct slice region, struct s3_no *out)
{
    struct s3_xml_events ev = {on_s3_element_open, on_s3_element_close, out};

    *out = (struct s3_no){0};
    (void)!s3_xml_read(body, &ev, NULL); /* what came before it broke is worth having */
    if (out->region[0] == '\0') {
        copy_printable_text(out->region, sizeof out->region, region);
    }
}

static bool says(const struct s3_no *no, const char *const codes[])
{
    for (; *codes != NULL; codes++) {
        if (strcmp(no->code, *codes) == 0) {
            return true;
        }
    }
    return false;
}

int s3_no_judge(const struct s3 *b, int status, const struct s3_no *no, struct err *e)
{
    static const char *const elsewhere[] = {"PermanentRedirect", "TemporaryRedirect",
                                            "AuthorizationHeaderMalformed",
                                            "IllegalLocationConstraintException", NULL};
    static const char *const keys[] = {"InvalidAccessKeyId",
                                       "SignatureDoesNotMatch",
                                       "InvalidToken",
                                       "InvalidSecurity",
                                       "TokenRefreshRequired",
                                       "InvalidClientTokenId",
                                       "UnrecognizedClientException",
                                       NULL};
    const char *name = b->bucket.name;

    if ((status / 100 == 3 || status == 400) && no->region[0] != '\0' &&
        strcmp(no->region, b->bucket.region) != 0) {
        return err_set(e, E_CONFIG,
                       "bucket %.80s is in region %s, not in %s; write region = \"%s\"", name,
                       no->region, b->bucket.region, no->region);
    }
    if (status / 100 == 3 || says(no, elsewhere)) {
        return err_set(e, E_CONFIG,
                       "bucket %.60s is at another endpoint (%d %s: %s); check endpoint and "
                       "region",
                       name, status, no->code, no->message);
    }
    if (strcmp(no->code, "NoSuchBucket") == 0) {
        return err_set(e, E_CONFIG,
                       "there is no bucket %.80s at this endpoint; check its name "
                       "and endpoint",
                       name);
    }
    if (strcmp(no->code, "RequestTimeTooSkewed") == 0) {
        return err_set(e, E_DENIED,
                       "the clocks of this machine and of S3 differ by more than S3 allows "
                       "(%s); check this machine's clock",
                       no->code);
    }
    if (strcmp(no->code, "ExpiredToken") == 0) {
        return err_set(e, E_DENIED,
                       "the session token has expired (%s); renew the file that authorization "
                       "names, then reload",
                       no->code);
    }
    if (says(no, keys)) {
        return err_set(e, E_DENIED, "S3 rejects the keys (%s%s%s); check authorization", no->code,
                       no->message[0] != '\0' ? ": " : "", no->message);
    }
    return 0;
}
