#include "server/repo/hf/xet.h"

#include <inttypes.h>

#include "common/base/endian.h"
#include "common/codec/jwrite.h"
#include "common/codec/url.h"
#include "server/repo/hf/xorb.h"
#include "server/http/range.h"
#include "server/repo/capability.h"
#include "server/repo/plan.h"

#define NOBODY "anonymous"

enum { URL_BYTES = 16384, JSON_BYTES = 64 << 20 };

uint64_t xet_from_bytes(const char *setting)
{
    return setting == NULL || strcmp(setting, "large") == 0 ? XET_LARGE_FROM_BYTES + 1
           : strcmp(setting, "on") == 0                     ? 1
                                                            : UINT64_MAX;
}

static struct slice xet_path_below(const struct xet_place *at, const char *what, struct arena *a)
{
    return arena_fmt(a, SLICE_FMT "/api/" SLICE_FMT "/" SLICE_FMT "/%s/" SLICE_FMT,
                     SLICE_ARG(at->home), SLICE_ARG(at->type), SLICE_ARG(at->id), what,
                     SLICE_ARG(at->commit));
}

void xet_announce(const struct xet_place *at, const struct digest *d, struct arena *a,
                  struct plan *p)
{
    char hex[DIGEST_HEX + 1];

    digest_format(d, hex);
    plan_field(p, SLICE("x-xet-hash"), arena_copy(a, slice_str(hex)));
    plan_field(p, SLICE("link"),
               arena_fmt(a, "<" SLICE_FMT ">; rel=\"xet-auth\"",
                         SLICE_ARG(xet_path_below(at, "xet-read-token", a))));
}

struct slice xet_credential(struct slice authorization)
{
    struct slice token = authorization;

    if (!slice_ieq(slice_cut(&token, ' '), SLICE("bearer")) || slice_trim(token).n == 0) {
        return SLICE(NOBODY);
    }
    return slice_trim(token);
}

void xet_token_json(struct slice store, struct slice credential, uint64_t exp_unix_s,
                    struct buf *out)
{

    jwrite_open(out, NULL, '{');
    jwrite_text(out, "casUrl", store);
    jwrite_text(out, "accessToken", credential);
    jwrite_u64(out, "exp", exp_unix_s);
    jwrite_close(out, '}');
}

void xet_token(const struct xet_place *at, struct slice authorization, uint64_t now_unix_s,
               struct arena *a, struct plan *p)
{
    struct slice store = xet_path_below(at, "xet", a);
    struct slice token = xet_credential(authorization);
    struct buf body = BUF_INIT(URL_BYTES);

    xet_token_json(store, token, now_unix_s + XET_TOKEN_S, &body);
    plan_reply(p, 200, arena_copy(a, buf_slice(&body)));
    buf_free(&body);
    p->content_type = SLICE("application/json; charset=utf-8");
    plan_field(p, SLICE("cache-control"), SLICE("private, no-store"));
    plan_field(p, SLICE("x-xet-cas-url"), store);
    plan_field(p, SLICE("x-xet-access-token"), token);
    plan_field(p, SLICE("x-xet-token-expiration"), arena_u64(a, now_unix_s + XET_TOKEN_S));
}

bool xet_is_nobody(struct slice token)
{
    return slice_eqs(token, NOBODY);
}

enum xet_ask xet_path_parse(struct slice path, struct digest *out)
{
    struct slice word = slice_cut(&path, '/');
    enum xet_ask ask = slice_eqs(word, "data") ? XET_ASK_DATA : XET_ASK_NONE;

    /* hf_xet before 1.5 says no "v1", 1.0 "reconstruction" */
    word = slice_eqs(word, "v1") ? slice_cut(&path, '/') : word;
    if (slice_eqs(word, "reconstructions") || slice_eqs(word, "reconstruction")) {
        ask = XET_ASK_TERMS;
    }
    return ask != XET_ASK_NONE && digest_parse(path, out) ? ask : XET_ASK_NONE;
}

/* --- what a file consists of ------------------------------------------------------------------ */

struct term {
    uint64_t chunk, end; /* of the file's chunks */
    uint64_t base;       /* the first chunk of its stretch */
    char hash[DIGEST_HEX + 1];
};

/* Clients keep stretches by this name, some on disk: it holds for these bytes in this framing
 * alone. */
static void name_term(struct term *t, const struct digest *d)
{
    uint8_t from[DIGEST_BYTES + 8];
    struct digest of;

    memcpy(from, d->b, DIGEST_BYTES);
    be_put(from + DIGEST_BYTES, 8, t->base);
    digest_of(slice_of((const char *)from, sizeof from), &of);
    digest_format(&of, t->hash);
}

static void say_range(struct buf *out, const char *key, uint64_t start, uint64_t end)
{
    jwrite_open(out, key, '{');
    jwrite_u64(out, "start", start);
    jwrite_u64(out, "end", end);
    jwrite_close(out, '}');
}

static bool next_term(struct term *t, uint64_t chunks_end, const struct digest *d)
{
    t->chunk = t->end;
    t->base = t->chunk / XET_TERM_CHUNKS * XET_TERM_CHUNKS;
    t->end = min_u64(t->base + XET_TERM_CHUNKS, chunks_end);
    if (t->chunk < t->end) {
        name_term(t, d);
    }
    return t->chunk < t->end;
}

static void say_terms(struct buf *out, const struct term *first, uint64_t chunks_end,
                      const struct digest *d, uint64_t size_bytes)
{
    struct term t = *first;

    jwrite_open(out, "terms", '[');
    while (next_term(&t, chunks_end, d)) {
        uint64_t bytes = min_u64(t.end * XORB_CHUNK_BYTES, size_bytes) - t.chunk * XORB_CHUNK_BYTES;
        jwrite_open(out, NULL, '{');
        jwrite_str(out, "hash", t.hash);
        jwrite_u64(out, "unpacked_length", bytes);
        say_range(out, "range", t.chunk - t.base, t.end - t.base);
        jwrite_close(out, '}');
    }
    jwrite_close(out, ']');
}

static void say_places(struct buf *out, const struct term *first, uint64_t chunks_end,
                       const struct digest *d, uint64_t size_bytes, struct slice url)
{
    struct term t = *first;

    jwrite_open(out, "fetch_info", '{');
    while (next_term(&t, chunks_end, d)) {
        uint64_t end = min_u64(t.end * XORB_CHUNK_BYTES, size_bytes);
        jwrite_open(out, t.hash, '[');
        jwrite_open(out, NULL, '{');
        say_range(out, "range", t.chunk - t.base, t.end - t.base);
        jwrite_text(out, "url", url);
        say_range(out, "url_range", xorb_framed(t.chunk * XORB_CHUNK_BYTES), xorb_framed(end) - 1);
        jwrite_close(out, '}');
        jwrite_close(out, ']');
    }
    jwrite_close(out, '}');
}

void xet_terms(const struct xet_place *at, const struct http_req *req, const struct digest *d,
               uint64_t size_bytes, struct slice key, struct arena *a, struct plan *p)
{
    struct slice url;
    struct buf body = BUF_INIT(JSON_BYTES);
    uint64_t first = 0;
    uint64_t end = size_bytes;
    uint64_t chunks_end;
    struct term t = {0};
    char hex[DIGEST_HEX + 1];
    bool suffix = false;

    if (range_peek(req, &first, &end, &suffix) && suffix) {
        first = 0;
        end = size_bytes;
    }
    end = min_u64(end, size_bytes);
    if (first >= end) {
        plan_reply(p, 416, SLICE("the range begins after the end of the file\n"));
        plan_field(p, SLICE("content-range"), arena_fmt(a, "bytes */%" PRIu64, size_bytes));
        return;
    }
    digest_format(d, hex);
    url = arena_fmt(a, SLICE_FMT "/data/%s%s" SLICE_FMT, SLICE_ARG(xet_path_below(at, "xet", a)),
                    hex, key.p != NULL ? "?key=" : "", SLICE_ARG(key));
    t.end = first / XORB_CHUNK_BYTES;
    chunks_end = (end + XORB_CHUNK_BYTES - 1) / XORB_CHUNK_BYTES;
    jwrite_open(&body, NULL, '{');
    jwrite_u64(&body, "offset_into_first_range", first % XORB_CHUNK_BYTES);
    say_terms(&body, &t, chunks_end, d, size_bytes);
    say_places(&body, &t, chunks_end, d, size_bytes, url);
    jwrite_close(&body, '}');
    plan_reply(p, body.rc == 0 ? 200 : 507, arena_copy(a, buf_slice(&body)));
    buf_free(&body);
    p->content_type = SLICE("application/json; charset=utf-8");
    plan_field(p, SLICE("cache-control"), SLICE("private, no-store"));
}

/* --- keys --- */

static struct slice purpose_of(const struct repo *r, const struct xet_place *at,
                               const struct digest *d, struct arena *a)
{
    char hex[DIGEST_HEX + 1];

    digest_format(d, hex);
    return arena_fmt(a, "xet %s/" SLICE_FMT "/" SLICE_FMT "/" SLICE_FMT "/%s", r->name,
                     SLICE_ARG(at->type), SLICE_ARG(at->id), SLICE_ARG(at->commit), hex);
}

struct slice xet_key_seal(const struct repo *r, const struct xet_place *at, const struct digest *d,
                          struct slice credential, uint64_t now_unix_s, struct arena *a)
{
    return capability_seal(purpose_of(r, at, d, a), credential, now_unix_s + XET_KEY_S, a);
}

enum xet_key xet_key_open(const struct repo *r, const struct xet_place *at, const struct digest *d,
                          struct slice query, uint64_t now_unix_s, struct arena *a,
                          struct slice *credential)
{
    if (!slice_eqs(slice_cut(&query, '='), "key")) {
        return XET_KEY_NONE;
    }
    return capability_open(query, purpose_of(r, at, d, a), now_unix_s, a, credential) ? XET_KEY_GOOD
                                                                                      : XET_KEY_BAD;
}
