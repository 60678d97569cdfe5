#include "server/cache/object.h"

#include "server/cache/neighbor.h"
#include "server/cache/variant.h"
#include "server/cache/row_bytes.h"

enum { ROW_VERSION = 1, FIXED_BYTES = 2 + DIGEST_BYTES };
enum {
    FLAG_MUST_REVALIDATE = 1,
    FLAG_ORIGIN = 2,
    FLAG_MUST_ASK = 4
}; /* rows of before do not end in an origin */

void object_key(struct buf *out, struct slice repo, struct slice key, struct slice principal)
{
    buf_adds(out, repo);
    buf_byte(out, 0);
    buf_adds(out, key);
    if (principal.n > 0) {
        buf_byte(out, 0);
        buf_adds(out, principal);
    }
}

bool object_key_is(struct slice object_key, struct slice of, bool below)
{
    return slice_starts(object_key, of) &&
           (below || object_key.n == of.n || object_key.p[of.n] == '\0');
}

struct slice object_key_of_row(struct slice key)
{
    ptrdiff_t nul = slice_find(key, '\0');

    CHECK(nul >= 0);
    return slice_from(key, (size_t)nul + 1);
}

void object_encode(const struct object *o, struct buf *out)
{
    buf_byte(out, ROW_VERSION);
    buf_byte(out, (uint8_t)(FLAG_ORIGIN | (o->must_revalidate ? FLAG_MUST_REVALIDATE : 0) |
                            (o->must_ask ? FLAG_MUST_ASK : 0)));
    buf_add(out, o->digest.b, DIGEST_BYTES);
    buf_be(out, 8, o->size_bytes);
    buf_be(out, 8, o->stored_unix_s);
    buf_be(out, 8, o->validated_unix_s);
    buf_be(out, 8, o->age_s);
    buf_be(out, 8, o->fresh_until_unix_s);
    buf_be(out, 8, o->swr_s);
    buf_be(out, 8, o->sie_s);
    row_put_slice(out, o->etag);
    row_put_slice(out, o->origin_etag);
    row_put_slice(out, o->last_modified);
    row_put_slice(out, o->content_type);
    row_put_slice(out, o->url);
    buf_be(out, 8, o->nfields);
    for (size_t i = 0; i < o->nfields; i++) {
        row_put_slice(out, o->fields[i].name);
        row_put_slice(out, o->fields[i].value);
    }
    buf_be(out, 8, o->origin);
}

static bool get_u32(struct slice *in, uint32_t *out)
{
    uint64_t v;

    if (!slice_be(in, 8, &v) || v > UINT32_MAX) {
        return false;
    }
    *out = (uint32_t)v;
    return true;
}

static bool get_text(struct slice *in, struct arena *a, struct slice *out)
{
    if (!row_get_slice(in, out)) {
        return false;
    }
    if (out->p != NULL) {
        *out = arena_copy(a, *out);
    }
    return true;
}

bool object_row_digest(struct slice row, struct digest *out)
{
    if (row.n < FIXED_BYTES || row.p[0] != ROW_VERSION) {
        return false;
    }
    memcpy(out->b, row.p + 2, DIGEST_BYTES);
    return true;
}

bool object_decode(struct slice row, struct arena *a, struct object *out)
{
    struct slice in = row;
    uint64_t n;

    *out = (struct object){0};
    if (!object_row_digest(row, &out->digest)) {
        return false;
    }
    out->must_revalidate = (row.p[1] & FLAG_MUST_REVALIDATE) != 0;
    out->must_ask = (row.p[1] & FLAG_MUST_ASK) != 0;
    in = slice_from(in, FIXED_BYTES);
    if (!slice_be(&in, 8, &out->size_bytes) || !slice_be(&in, 8, &out->stored_unix_s) ||
        !slice_be(&in, 8, &out->validated_unix_s) || !slice_be(&in, 8, &out->age_s) ||
        !slice_be(&in, 8, &out->fresh_until_unix_s) || !get_u32(&in, &out->swr_s) ||
        !get_u32(&in, &out->sie_s) || !get_text(&in, a, &out->etag) ||
        !get_text(&in, a, &out->origin_etag) || !get_text(&in, a, &out->last_modified) ||
        !get_text(&in, a, &out->content_type) || !get_text(&in, a, &out->url) ||
        !slice_be(&in, 8, &n) || n > OBJECT_FIELDS) {
        return false;
    }
    for (; out->nfields < n; out->nfields++) {
        struct http_field *f = &out->fields[out->nfields];
        if (!get_text(&in, a, &f->name) || !get_text(&in, a, &f->value)) {
            return false;
        }
    }
    return (row.p[1] & FLAG_ORIGIN) == 0 || slice_be(&in, 8, &out->origin);
}

bool object_row_is_carried(struct slice row)
{
    struct slice swr;
    uint64_t s;

    if (row.n < FIXED_BYTES + 6 * 8) {
        return false;
    }
    swr = slice_from(row, FIXED_BYTES + 5 * 8);
    return slice_be(&swr, 8, &s) && s == OBJECT_CARRIED_S;
}

/* --- what of an answer is kept ---------------------------------------------------------------- */

/* Fields that describe the connection, this one transfer or the origin's own machinery; Set-Cookie
 * is one user's. The validators and the type have places of their own. */
static bool dropped(struct slice name)
{
    static const char *const names[] = {
        "accept-ranges",
        "age",
        "alt-svc",
        "connection",
        "content-length",
        "content-range",
        "content-type",
        "etag",
        "keep-alive",
        "last-modified",
        "location",
        "nel",
        "p3p",
        "proxy-authenticate",
        "proxy-authentication-info",
        "proxy-connection",
        "ratelimit",
        "report-to",
        "server",
        "set-cookie",
        "set-cookie2",
        "strict-transport-security",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
        "via",
        "warning",
        "www-authenticate",
        "cache-status",
        "x-request-id",
        "repr-digest",
        "content-digest",
    };

    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        if (slice_eqs(name, names[i])) {
            return true;
        }
    }
    return is_neighbors_field(name);
}

static bool named_in_connection(const struct origin_head *h, struct slice name)
{
    struct slice list = origin_head_field(h, "connection");

    while (list.n > 0) {
        if (slice_ieq(slice_trim(slice_cut(&list, ',')), name)) {
            return true;
        }
    }
    return false;
}

struct keeping {
    struct object *object;
    const struct origin_head *head;
    struct arena *arena;
    size_t bytes;
};

static bool keep_field(struct keeping *k, struct slice name, struct slice value)
{
    struct object *o = k->object;

    if (o->nfields == OBJECT_FIELDS || k->bytes + name.n + value.n > OBJECT_FIELD_BYTES) {
        return false;
    }
    k->bytes += name.n + value.n;
    o->fields[o->nfields++] =
        (struct http_field){arena_copy(k->arena, name), arena_copy(k->arena, value)};
    return true;
}

/* --- Vary --- */

enum { VARY_NAMES = 64 };

struct vary_names {
    struct slice name[VARY_NAMES]; /* each once */
    size_t n;
    bool all; /* none was left out */
};

/* The names in Vary that count, or those that do not (variant_ignores()). */
static void vary_names(const struct origin_head *h, bool count, struct vary_names *out)
{
    out->n = 0;
    out->all = true;
    for (size_t i = 0; i < h->nfields; i++) {
        struct slice rest = slice_eqs(h->fields[i].name, "vary") ? h->fields[i].value : SLICE_NONE;
        while (rest.n > 0) {
            struct slice name = slice_trim(slice_cut(&rest, ','));
            size_t at = 0;
            if (name.n == 0 || variant_ignores(name) == count) {
                continue;
            }
            while (at < out->n && !slice_ieq(out->name[at], name)) {
                at++;
            }
            if (at == VARY_NAMES) {
                out->all = false;
                return;
            }
            out->name[at] = name;
            out->n = at == out->n ? at + 1 : out->n;
        }
    }
}

static void add_vary_names(struct buf *b, const struct vary_names *names)
{
    for (size_t i = 0; i < names->n; i++) {
        if (b->n + 2 + names->name[i].n <= OBJECT_FIELD_BYTES / 2) {
            buf_addf(b, "%s" SLICE_FMT, b->n > 0 ? ", " : "", SLICE_ARG(names->name[i]));
        }
    }
}

/* All lines of Vary as one, each name once; "*" for more names that count than have room. Names
 * that do not count follow as far as there is room. p == NULL: the answer has no Vary. */
static struct slice vary_of(const struct origin_head *h, struct arena *a)
{
    struct vary_names counting, others;
    struct buf b = BUF_INIT(OBJECT_FIELD_BYTES);
    size_t bytes = 0;
    struct slice s;

    vary_names(h, true, &counting);
    vary_names(h, false, &others);
    for (size_t i = 0; i < counting.n; i++) {
        bytes += counting.name[i].n + 2;
    }
    if (!counting.all || bytes > OBJECT_FIELD_BYTES / 2) {
        return SLICE("*");
    }
    add_vary_names(&b, &counting);
    add_vary_names(&b, &others);
    s = b.n > 0 ? arena_copy(a, buf_slice(&b)) : SLICE_NONE;
    CHECK(b.rc == 0);
    buf_free(&b);
    return s;
}

/* --- what is kept --- */

/* Without Vary, Content-Encoding and Link the bytes would be given to those for whom they are not,
 * mean something else, or pass for all of a list: they have room before all else, in this order. */
enum importance { MEANS_OTHERS, MEANS_LIST, MEANS_LITTLE };

static enum importance importance_of(struct slice name)
{
    return slice_eqs(name, "content-encoding") ? MEANS_OTHERS
           : slice_eqs(name, "link")           ? MEANS_LIST
                                               : MEANS_LITTLE;
}

static void keep_those(struct keeping *k, enum importance what)
{
    const struct origin_head *h = k->head;

    for (size_t i = 0; i < h->nfields; i++) {
        struct slice name = h->fields[i].name;
        if (importance_of(name) == what && !slice_eqs(name, "vary") && !dropped(name) &&
            (what != MEANS_LITTLE || !named_in_connection(h, name))) {
            (void)keep_field(k, name, h->fields[i].value);
        }
    }
}

static void keep_fields(struct object *o, const struct origin_head *h, struct arena *a)
{
    struct keeping k = {.object = o, .head = h, .arena = a};
    struct slice vary = vary_of(h, a);

    o->nfields = 0;
    if (vary.p != NULL) {
        (void)keep_field(&k, SLICE("vary"), vary); /* it has room: it is the first */
    }
    keep_those(&k, MEANS_OTHERS);
    keep_those(&k, MEANS_LIST);
    keep_those(&k, MEANS_LITTLE);
}

static void take_header_field(struct slice *to, const struct origin_head *h, const char *name,
                              struct arena *a)
{
    struct slice v = slice_trim(origin_head_field(h, name));

    *to = v.n > 0 && v.n <= 1024 ? arena_copy(a, v) : SLICE_NONE;
}

void object_learn(struct object *o, const struct origin_head *h, struct arena *a)
{
    take_header_field(&o->origin_etag, h, "etag", a);
    take_header_field(&o->last_modified, h, "last-modified", a);
    take_header_field(&o->content_type, h, "content-type", a);
    o->url = arena_copy(a, h->url);
    keep_fields(o, h, a);
}

/* Removes all lines of that name; how many bytes the others have. */
static size_t take_out(struct object *o, struct slice name)
{
    size_t bytes = 0;
    size_t n = 0;

    for (size_t i = 0; i < o->nfields; i++) {
        if (!slice_eq(o->fields[i].name, name)) {
            bytes += o->fields[i].name.n + o->fields[i].value.n;
            o->fields[n++] = o->fields[i];
        }
    }
    o->nfields = n;
    return bytes;
}

/* All lines of one field are replaced by all that the 304 has of it, or by none when they are too
 * many. */
static void renew_field(struct object *o, const struct origin_head *h, struct slice name,
                        struct arena *a)
{
    size_t bytes = take_out(o, name);

    for (size_t i = 0; i < h->nfields && o->nfields < OBJECT_FIELDS; i++) {
        struct slice value = h->fields[i].value;
        if (slice_eq(h->fields[i].name, name) && bytes + name.n + value.n <= OBJECT_FIELD_BYTES) {
            bytes += name.n + value.n;
            o->fields[o->nfields++] =
                (struct http_field){arena_copy(a, name), arena_copy(a, value)};
        }
    }
}

static bool stands_earlier(const struct origin_head *h, size_t i)
{
    for (size_t j = 0; j < i; j++) {
        if (slice_eq(h->fields[j].name, h->fields[i].name)) {
            return true;
        }
    }
    return false;
}

/* A 304 that varies by other fields than its object is not believed: at most the names that do not
 * count are others. */
static void renew_vary(struct object *o, const struct origin_head *h, struct arena *a)
{
    struct object was = *o;
    struct slice vary = vary_of(h, a);
    size_t bytes;

    if (vary.p == NULL) {
        return;
    }
    bytes = take_out(o, SLICE("vary"));
    if (o->nfields < OBJECT_FIELDS && bytes + 4 + vary.n <= OBJECT_FIELD_BYTES) {
        o->fields[o->nfields++] = (struct http_field){SLICE("vary"), vary};
    } else {
        *o = was;
    }
}

/* Some servers send the type of an error page with a 304, or the type without its parameters, and
 * clients of images go by an exact type: a 304 may only say more of the same type, its charset for
 * instance. */
static void renew_type(struct object *o, const struct origin_head *h, struct arena *a)
{
    struct slice is = slice_trim(origin_head_field(h, "content-type")), was = o->content_type;
    struct slice fresh = is;

    if (is.n != 0 && is.n <= 1024 &&
        slice_ieq(slice_trim(slice_cut(&is, ';')), slice_trim(slice_cut(&was, ';'))) &&
        (slice_trim(is).n != 0 || slice_trim(was).n == 0)) {
        o->content_type = arena_copy(a, fresh);
    }
}

void object_renew(struct object *o, const struct origin_head *h, struct arena *a)
{
    struct object fresh = *o;

    take_header_field(&fresh.last_modified, h, "last-modified", a);
    if (fresh.last_modified.p != NULL) {
        o->last_modified = fresh.last_modified;
    }
    (void)take_out(o, SLICE("date")); /* without one it was said now */
    renew_type(o, h, a);
    renew_vary(o, h, a);
    for (size_t i = 0; i < h->nfields; i++) {
        struct slice name = h->fields[i].name;
        if (!dropped(name) && !named_in_connection(h, name) && !slice_eqs(name, "vary") &&
            !slice_eqs(name, "content-encoding") && !stands_earlier(h, i)) {
            renew_field(o, h, name, a);
        }
    }
}

struct slice object_field(const struct object *o, const char *name)
{
    for (size_t i = 0; i < o->nfields; i++) {
        if (slice_eqs(o->fields[i].name, name)) {
            return o->fields[i].value;
        }
    }
    return SLICE_NONE;
}

bool etag_is_strong(struct slice etag)
{
    if (etag.n < 2 || etag.p[0] != '"' || etag.p[etag.n - 1] != '"') {
        return false;
    }
    for (size_t i = 1; i + 1 < etag.n; i++) {
        uint8_t c = (uint8_t)etag.p[i];
        if (c == '"' || c <= ' ' || c == 0x7f) {
            return false;
        }
    }
    return true;
}
