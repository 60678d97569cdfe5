#include "server/fetch/sigv4.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "common/codec/url.h"
#include "common/hash/digest.h"

enum { CANONICAL_MAX = 128 << 10, QUERY_PARTS = 32 };

void sigv4_date(uint64_t unix_s, char out[SIGV4_DATE_ROOM])
{
    time_t t = (time_t)min_u64(unix_s, 253402300799); /* the year 9999 */
    struct tm tm;

    gmtime_r(&t, &tm);
    snprintf(out, SIGV4_DATE_ROOM, "%04d%02d%02dT%02d%02d%02dZ", (tm.tm_year + 1900) % 10000,
             tm.tm_mon + 1, tm.tm_mday, tm.tm_hour, tm.tm_min, tm.tm_sec);
}

/* --- the query --- */

struct part {
    struct slice name, value; /* encoded */
};

static int part_order(const void *x, const void *y)
{
    const struct part *a = x, *b = y;
    int by_name = slice_cmp(a->name, b->name);

    return by_name != 0 ? by_name : slice_cmp(a->value, b->value);
}

static bool encode_anew(struct slice raw, struct arena *a, struct slice *out)
{
    struct buf plain = BUF_INIT(raw.n + 1), coded = BUF_INIT(3 * raw.n + 1);
    bool ok = url_decode(raw, &plain);

    url_encode(buf_slice(&plain), &coded);
    *out = arena_copy(a, slice_of(coded.n != 0 ? coded.p : "", coded.n));
    buf_free(&plain);
    buf_free(&coded);
    return ok;
}

bool sigv4_query(struct slice raw, struct buf *out)
{
    struct part part[QUERY_PARTS];
    struct arena a = {0};
    size_t n = 0;
    bool ok = true;

    while (raw.n != 0 && ok) {
        struct slice value = slice_cut(&raw, '&');
        struct slice name = slice_cut(&value, '=');
        if (name.n == 0 && value.n == 0) {
            continue;
        }
        ok = n < QUERY_PARTS && encode_anew(name, &a, &part[n].name) &&
             encode_anew(value, &a, &part[n].value);
        n++;
    }
    if (ok && n != 0) {
        qsort(part, n, sizeof part[0], part_order);
    }
    for (size_t i = 0; ok && i < n; i++) {
        buf_addf(out, "%s" SLICE_FMT "=" SLICE_FMT, i != 0 ? "&" : "", SLICE_ARG(part[i].name),
                 SLICE_ARG(part[i].value));
    }
    arena_fini(&a);
    return ok && out->rc == 0;
}

/* --- the canonical request --- */

/* Without blanks at its ends, runs of them as one. */
static void add_value(struct slice value, struct buf *out)
{
    value = slice_trim(value);
    for (size_t i = 0; i < value.n; i++) {
        if (value.p[i] != ' ' || value.p[i - 1] != ' ') {
            buf_byte(out, (uint8_t)value.p[i]);
        }
    }
}

static int field_order(const void *x, const void *y)
{
    const struct http_field *a = x, *b = y;

    return slice_cmp(a->name, b->name);
}

static void add_signed_names(const struct http_field *field, size_t n, struct buf *out)
{
    for (size_t i = 0; i < n; i++) {
        buf_addf(out, "%s" SLICE_FMT, i != 0 ? ";" : "", SLICE_ARG(field[i].name));
    }
}

static int canonical_sigv4_request(const struct sigv4_request *r, const struct http_field *field,
                                   size_t n, struct digest *out, struct err *e)
{
    struct buf b = BUF_INIT(CANONICAL_MAX);
    int rc;

    buf_addf(&b, SLICE_FMT "\n" SLICE_FMT "\n" SLICE_FMT "\n", SLICE_ARG(r->method),
             SLICE_ARG(r->path), SLICE_ARG(r->query));
    for (size_t i = 0; i < n; i++) {
        buf_adds(&b, field[i].name);
        buf_byte(&b, ':');
        add_value(field[i].value, &b);
        buf_byte(&b, '\n');
    }
    buf_byte(&b, '\n');
    add_signed_names(field, n, &b);
    buf_byte(&b, '\n');
    buf_adds(&b, r->payload);
    rc = b.rc != 0
             ? err_set(e, E_TOOBIG, "the request to sign has more than %d bytes", CANONICAL_MAX)
             : 0;
    if (rc == 0) {
        digest_of(buf_slice(&b), out);
    }
    if (b.p != NULL) {
        OPENSSL_cleanse(b.p, b.n); /* a session token was in it */
    }
    buf_free(&b);
    return rc;
}

/* --- the signature --- */

static void mac(const void *key, size_t nkey, struct slice text, uint8_t out[DIGEST_BYTES])
{
    unsigned n = 0;

    CHECK(HMAC(EVP_sha256(), key, (int)nkey, (const uint8_t *)text.p, text.n, out, &n) != NULL);
    CHECK(n == DIGEST_BYTES);
}

/* Each step's key is made of the one before; only the last meets the request. */
static void signing_key(const struct sigv4_keys *k, struct slice day, uint8_t out[DIGEST_BYTES])
{
    struct buf first = BUF_INIT(k->secret.n + 8);
    uint8_t a[DIGEST_BYTES], b[DIGEST_BYTES];

    buf_str(&first, "AWS4");
    buf_adds(&first, k->secret);
    mac(first.p, first.n, day, a);
    mac(a, sizeof a, k->region, b);
    mac(b, sizeof b, k->service, a);
    mac(a, sizeof a, SLICE("aws4_request"), out);
    OPENSSL_cleanse(first.p, first.n);
    OPENSSL_cleanse(a, sizeof a);
    OPENSSL_cleanse(b, sizeof b);
    buf_free(&first);
}

int sigv4_sign(const struct sigv4_keys *k, const struct sigv4_request *r, uint64_t unix_s,
               struct buf *out, struct err *e)
{
    struct http_field field[SIGV4_FIELDS_MAX];
    struct buf scope = BUF_INIT(512), text = BUF_INIT(2048);
    char date[SIGV4_DATE_ROOM], hex[DIGEST_HEX + 1];
    uint8_t key[DIGEST_BYTES];
    struct digest d;
    int rc;

    if (r->nfields > SIGV4_FIELDS_MAX || r->nfields == 0) {
        return err_set(e, E_TOOBIG, "a request with %zu header fields cannot be signed",
                       r->nfields);
    }
    memcpy(field, r->fields, r->nfields * sizeof field[0]);
    qsort(field, r->nfields, sizeof field[0], field_order);
    rc = canonical_sigv4_request(r, field, r->nfields, &d, e);
    if (rc != 0) {
        return rc;
    }
    sigv4_date(unix_s, date);
    buf_addf(&scope, "%.8s/" SLICE_FMT "/" SLICE_FMT "/aws4_request", date, SLICE_ARG(k->region),
             SLICE_ARG(k->service));
    digest_format(&d, hex);
    buf_addf(&text, "AWS4-HMAC-SHA256\n%s\n" SLICE_FMT "\n%s", date, SLICE_ARG(buf_slice(&scope)),
             hex);
    signing_key(k, slice_of(date, 8), key);
    mac(key, sizeof key, buf_slice(&text), d.b);
    OPENSSL_cleanse(key, sizeof key);
    digest_format(&d, hex);
    buf_addf(out, "AWS4-HMAC-SHA256 Credential=" SLICE_FMT "/" SLICE_FMT ", SignedHeaders=",
             SLICE_ARG(k->access_key), SLICE_ARG(buf_slice(&scope)));
    add_signed_names(field, r->nfields, out);
    buf_addf(out, ", Signature=%s", hex);
    rc = scope.rc != 0 || text.rc != 0 || out->rc != 0
             ? err_set(e, E_TOOBIG, "the Authorization field has more than %zu bytes", out->max)
             : 0;
    buf_free(&scope);
    buf_free(&text);
    return rc;
}
