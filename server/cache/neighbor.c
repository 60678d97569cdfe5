#include "server/cache/neighbor.h"

#include <stdlib.h>

#include "common/codec/base64.h"
#include "server/cache/row_bytes.h"

enum { VERSION = 1, PLAIN_MAX = NEIGHBOR_TEXT_MAX / 4 * 3, FORWARDS_MAX = 64, TARGETS_MAX = 16 };

enum { /* bits of a lookup */
       BIT_VARIES = 1,
       BIT_DOCUMENT = 2,
       BIT_NO_HTML = 4,
       BIT_DIGEST = 8,
       BIT_BACKGROUND = 16,
       BIT_REFRESH = 32,
       BIT_BOUNDED = 64,
       BIT_SIBLING = 128,
       BIT_DOUBTED = 256,
       BIT_PARENT_DEAD = 512,
       BITS_MAX = 1023,
};

bool is_neighbors_field(struct slice name)
{
    return slice_starts(name, SLICE("mirrord-"));
}

/* --- out --- */

static unsigned bits_of(const struct lookup *w, bool sibling, enum lookup_parent parent)
{
    return (w->varies ? BIT_VARIES : 0u) | (w->document ? BIT_DOCUMENT : 0u) |
           (w->no_html ? BIT_NO_HTML : 0u) | (w->digest_known ? BIT_DIGEST : 0u) |
           (w->background ? BIT_BACKGROUND : 0u) |
           (w->request_cache_control.refresh ? BIT_REFRESH : 0u) |
           (w->request_cache_control.bounded ? BIT_BOUNDED : 0u) | (sibling ? BIT_SIBLING : 0u) |
           (w->stored == STORED_IS_DOUBTED ? BIT_DOUBTED : 0u) |
           (parent == PARENT_IS_DEAD ? BIT_PARENT_DEAD : 0u);
}

static void put_sum(struct buf *b, const struct lookup_sum *s)
{
    buf_byte(b, (uint8_t)s->kind);
    switch (s->kind) {
    case LOOKUP_SUM_NONE:
        break;
    case LOOKUP_SUM_GIT_OID:
        buf_add(b, &s->git_oid, sizeof s->git_oid);
        break;
    case LOOKUP_SUM_SHA512:
        buf_add(b, &s->sha512, sizeof s->sha512);
        break;
    }
}

static void put_lookup(struct buf *b, const struct lookup *w, bool sibling,
                       enum lookup_parent parent)
{
    const struct request_cache_control *cc = &w->request_cache_control;
    const uint64_t numbers[] = {origin_identity(w->origin), bits_of(w, sibling, parent), w->class,
                                w->redirects, w->repr_digest, w->size_bytes, w->max_bytes, w->ttl_s,
                                w->neg_ttl_s, w->refusal_ttl_s, w->swr_s, w->sie_s, w->floor_s,
                                w->ruled, w->since_unix_s,
                                /* what a status means is decided where the client asks */
                                w->errors & (ERRORS_PASSED_ON | REFUSALS_END_KEPT), w->client,
                                w->patience_ms, cc->max_age_s, cc->min_fresh_s, cc->max_stale_s};
    const struct slice texts[] = {w->repo,    w->key,         w->url,       w->via,
                                  w->accept,  w->token_scope, w->principal, w->authorization,
                                  w->content, w->held_by};

    buf_byte(b, VERSION);
    for (size_t i = 0; i < ARRAY_LEN(numbers); i++) {
        buf_be(b, 8, numbers[i]);
    }
    for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
        row_put_slice(b, texts[i]);
    }
    buf_add(b, w->digest.b, DIGEST_BYTES);
    put_sum(b, &w->sum);
    buf_be(b, 8, w->forwards);
    for (size_t i = 0; i < w->forwards; i++) {
        buf_byte(b, (uint8_t)w->forward[i].sent);
        row_put_slice(b, w->forward[i].name);
        row_put_slice(b, w->forward[i].value);
        row_put_slice(b, w->forward[i].same);
    }
    buf_be(b, 8, w->ntargets);
    for (size_t i = 0; i < w->ntargets; i++) {
        row_put_slice(b, w->targets[i]);
    }
    row_put_slice(b, w->reader != NULL ? slice_str(w->reader->name) : SLICE_NONE);
}

bool neighbor_text(const struct lookup *w, bool sibling, enum lookup_parent parent, struct buf *out)
{
    struct buf plain = BUF_INIT(PLAIN_MAX);
    char *text = NULL;
    bool fits;

    put_lookup(&plain, w, sibling, parent);
    fits = plain.rc == 0 && w->forwards <= FORWARDS_MAX && w->ntargets <= TARGETS_MAX;
    if (fits) {
        text = mem_new(BASE64_ROOM(plain.n));
        base64_encode(plain.p, plain.n, text);
        buf_str(out, text);
    }
    free(text);
    buf_free(&plain);
    return fits && out->rc == 0;
}

/* --- in --- */

static bool take_number(struct slice *in, uint64_t most, uint64_t *out)
{
    return slice_be(in, 8, out) && *out <= most;
}

static bool take_text(struct slice *in, struct arena *a, struct slice *out)
{
    if (!row_get_slice(in, out)) {
        return false;
    }
    *out = arena_copy_opt(a, *out);
    return true;
}

static bool take_raw(struct slice *in, void *out, size_t n)
{
    struct slice s;

    if (!slice_take(in, n, &s)) {
        return false;
    }
    memcpy(out, s.p, n);
    return true;
}

static bool take_sum(struct slice *in, struct lookup_sum *out)
{
    uint8_t kind;

    if (!take_raw(in, &kind, 1)) {
        return false;
    }
    switch (kind) {
    case LOOKUP_SUM_NONE:
        out->kind = LOOKUP_SUM_NONE;
        return true;
    case LOOKUP_SUM_GIT_OID:
        out->kind = LOOKUP_SUM_GIT_OID;
        return take_raw(in, &out->git_oid, sizeof out->git_oid);
    case LOOKUP_SUM_SHA512:
        out->kind = LOOKUP_SUM_SHA512;
        return take_raw(in, &out->sha512, sizeof out->sha512);
    default:
        return false;
    }
}

static bool take_numbers(struct slice *in, struct lookup *w, uint64_t *origin)
{
    struct request_cache_control *cc = &w->request_cache_control;
    uint64_t bits, class, redirects, repr, ruled, errors;
    uint64_t s[9]; /* of 32 bits each */
    bool ok =
        take_number(in, UINT64_MAX, origin) && take_number(in, BITS_MAX, &bits) &&
        take_number(in, LOOKUP_MUTABLE, &class) && take_number(in, REDIRECTS_AT_HOME, &redirects) &&
        take_number(in, REPR_DIGEST_ASKED, &repr) && take_number(in, UINT64_MAX, &w->size_bytes) &&
        take_number(in, UINT64_MAX, &w->max_bytes);

    for (size_t i = 0; ok && i < 6; i++) {
        ok = take_number(in, UINT32_MAX, &s[i]);
    }
    ok = ok && take_number(in, UINT8_MAX, &ruled) &&
         take_number(in, UINT64_MAX, &w->since_unix_s) && take_number(in, UINT8_MAX, &errors) &&
         take_number(in, UINT64_MAX, &w->client) && take_number(in, UINT64_MAX, &w->patience_ms);
    for (size_t i = 6; ok && i < 9; i++) {
        ok = take_number(in, UINT32_MAX, &s[i]);
    }
    if (!ok) {
        return false;
    }
    w->class = (enum lookup_class) class;
    w->redirects = (enum lookup_redirects)redirects;
    w->repr_digest = (enum lookup_repr_digest)repr;
    w->ttl_s = (uint32_t)s[0];
    w->neg_ttl_s = (uint32_t)s[1];
    w->refusal_ttl_s = (uint32_t)s[2];
    w->swr_s = (uint32_t)s[3];
    w->sie_s = (uint32_t)s[4];
    w->floor_s = (uint32_t)s[5];
    w->ruled = (unsigned)ruled;
    w->errors = (unsigned)errors & (ERRORS_PASSED_ON | REFUSALS_END_KEPT);
    *cc = (struct request_cache_control){.refresh = (bits & BIT_REFRESH) != 0,
                                         .bounded = (bits & BIT_BOUNDED) != 0,
                                         .max_age_s = (uint32_t)s[6],
                                         .min_fresh_s = (uint32_t)s[7],
                                         .max_stale_s = (uint32_t)s[8]};
    w->varies = (bits & BIT_VARIES) != 0;
    w->document = (bits & BIT_DOCUMENT) != 0;
    w->no_html = (bits & BIT_NO_HTML) != 0;
    w->digest_known = (bits & BIT_DIGEST) != 0;
    w->background = (bits & BIT_BACKGROUND) != 0;
    w->stored = (bits & BIT_DOUBTED) != 0 ? STORED_IS_DOUBTED : STORED_COUNTS;
    w->parent = (bits & BIT_PARENT_DEAD) != 0 ? PARENT_IS_DEAD : PARENT_IS_UNKNOWN;
    w->asker = (bits & BIT_SIBLING) != 0 ? NEIGHBOR_ASKS_HELD : NEIGHBOR_ASKS;
    return true;
}

static bool take_forwards(struct slice *in, struct arena *a, struct lookup *w)
{
    struct lookup_field *to;
    uint64_t n;
    uint8_t sent;

    if (!take_number(in, FORWARDS_MAX, &n)) {
        return false;
    }
    to = arena_alloc(a, (n + 1) * sizeof *to);
    for (size_t i = 0; i < n; i++) {
        if (!take_raw(in, &sent, 1) || sent > NEVER_SENT || !take_text(in, a, &to[i].name) ||
            !take_text(in, a, &to[i].value) || !take_text(in, a, &to[i].same)) {
            return false;
        }
        to[i].sent = (enum lookup_sent)sent;
    }
    w->forward = to;
    w->forwards = n;
    return true;
}

static bool take_targets(struct slice *in, struct arena *a, struct lookup *w)
{
    struct slice *to;
    uint64_t n;

    if (!take_number(in, TARGETS_MAX, &n)) {
        return false;
    }
    to = arena_alloc(a, (n + 1) * sizeof *to);
    for (size_t i = 0; i < n; i++) {
        if (!take_text(in, a, &to[i])) {
            return false;
        }
    }
    w->targets = to;
    w->ntargets = n;
    return true;
}

static bool take_lookup(struct slice in, struct arena *a, struct neighbor_asked *out)
{
    struct lookup *w = &out->lookup;
    struct slice *texts[] = {&w->repo,    &w->key,         &w->url,       &w->via,
                             &w->accept,  &w->token_scope, &w->principal, &w->authorization,
                             &w->content, &w->held_by};
    uint8_t version;

    if (!take_raw(&in, &version, 1) || version != VERSION || !take_numbers(&in, w, &out->origin)) {
        return false;
    }
    for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
        if (!take_text(&in, a, texts[i])) {
            return false;
        }
    }
    return take_raw(&in, w->digest.b, DIGEST_BYTES) && take_sum(&in, &w->sum) &&
           take_forwards(&in, a, w) && take_targets(&in, a, w) && take_text(&in, a, &out->reader) &&
           in.n == 0 && w->repo.n != 0 && w->key.n <= LOOKUP_KEY_MAX && w->url.n != 0;
}

bool neighbor_lookup(struct slice text, struct arena *a, struct neighbor_asked *out)
{
    char *plain = mem_new(PLAIN_MAX);
    size_t n = 0;
    bool ok;

    *out = (struct neighbor_asked){.lookup.hint_end = LENGTH_UNKNOWN};
    ok = text.n <= NEIGHBOR_TEXT_MAX && base64_decode(text, plain, PLAIN_MAX, &n) &&
         take_lookup(slice_of(plain, n), a, out);
    free(plain);
    return ok;
}
