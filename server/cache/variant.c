#include "server/cache/variant.h"

#include <ctype.h>

enum { MARK = '~', OTHERS_BYTES = 1024 /* the repo's name, a digest, what stands between them */ };

_Static_assert(LOOKUP_KEY_MAX + VARY_KEY_MAX + OTHERS_BYTES <= OBJECT_KEY_MAX,
               "the longest key of a want and the longest tail go into one key of a row");

static bool names(const struct http_field *fields, size_t nfields, struct slice name)
{
    for (size_t i = 0; i < nfields; i++) {
        struct slice rest = slice_eqs(fields[i].name, "vary") ? fields[i].value : SLICE_NONE;
        while (rest.n > 0) {
            if (slice_ieq(slice_trim(slice_cut(&rest, ',')), name)) {
                return true;
            }
        }
    }
    return false;
}

static void add_vary_field(struct buf *b, const struct lookup_field *f)
{
    if (b->n == 0) {
        buf_byte(b, MARK);
    }
    buf_adds(b, f->name);
    if (f->same.p != NULL) {
        buf_byte(b, ':');
        buf_adds(b, f->same);
    }
    buf_byte(b, '\n');
}

static struct slice finish_vary_text(struct buf *b, struct arena *a)
{
    struct slice s = b->n != 0 ? arena_copy(a, buf_slice(b)) : SLICE("");

    CHECK(b->rc == 0); /* whoever makes a want sees to VARIANT_FIELDS and VARIANT_VALUES */
    buf_free(b);
    return s;
}

bool variant_ignores(struct slice name)
{
    static const char *const all[] = {
        "accept-encoding", "authorization", "connection", "cookie", "dnt",        "host",
        "origin",          "priority",      "range",      "te",     "user-agent", "referer",
    };
    static const char *const beginnings[] = {"access-control-request-", "if-", "sec-", "proxy-",
                                             "x-forwarded-"};

    for (size_t i = 0; i < ARRAY_LEN(all); i++) {
        if (slice_ieq(name, slice_str(all[i]))) {
            return true;
        }
    }
    for (size_t i = 0; i < ARRAY_LEN(beginnings); i++) {
        struct slice b = slice_str(beginnings[i]);
        if (name.n > b.n && slice_ieq(slice_first(name, b.n), b)) {
            return true;
        }
    }
    return false;
}

static const struct lookup_field *vary_field_of(const struct lookup *w, struct slice name)
{
    for (size_t i = 0; i < w->forwards; i++) {
        if (slice_ieq(w->forward[i].name, name)) {
            return &w->forward[i];
        }
    }
    return NULL;
}

/* Fields that Vary names, in lower case, sorted, without a repeat. */
struct named {
    struct lookup_field field[VARIANT_FIELDS + VARIANT_NAMES];
    size_t n;
};

static void name_one(struct named *all, const struct lookup_field *f)
{
    size_t at = 0;

    while (at < all->n && slice_cmp(all->field[at].name, f->name) < 0) {
        at++;
    }
    if (all->n == ARRAY_LEN(all->field) ||
        (at < all->n && slice_eq(all->field[at].name, f->name))) {
        return;
    }
    memmove(&all->field[at + 1], &all->field[at], (all->n - at) * sizeof all->field[0]);
    all->field[at] = *f;
    all->n++;
}

static struct slice lower_field(struct slice s, struct arena *a)
{
    char *to = arena_alloc(a, s.n);

    for (size_t i = 0; i < s.n; i++) {
        to[i] = (char)tolower((unsigned char)s.p[i]);
    }
    return slice_of(to, s.n);
}

/* A token (RFC 9110 5.1). Anything else, "a:b", is no field of any request, and a tail could not
 * hold it. */
static bool is_field_name(struct slice name)
{
    for (size_t i = 0; i < name.n; i++) {
        unsigned char c = (unsigned char)name.p[i];
        if (!isalnum(c) && (c == '\0' || strchr("!#$%&'*+-.^_`|~", c) == NULL)) {
            return false;
        }
    }
    return name.n != 0;
}

static void name_all(const struct lookup *w, struct slice vary, struct arena *a, struct named *all)
{
    while (vary.n > 0) {
        struct slice name = slice_trim(slice_cut(&vary, ','));
        const struct lookup_field *f = vary_field_of(w, name);
        if (f != NULL) {
            name_one(all, f);
        } else if (w->varies && name.n <= VARIANT_VALUE && is_field_name(name) &&
                   !variant_ignores(name)) {
            struct lookup_field none = {.name = lower_field(name, a)};
            name_one(all, &none);
        }
    }
}

static void name_vary(const struct lookup *w, const struct http_field *fields, size_t nfields,
                      struct arena *a, struct named *all)
{
    for (size_t i = 0; i < nfields; i++) {
        if (slice_eqs(fields[i].name, "vary")) {
            name_all(w, fields[i].value, a, all);
        }
    }
}

static struct slice vary_key_of(const struct named *all, struct arena *a)
{
    struct buf b = BUF_INIT(VARY_KEY_MAX);

    for (size_t i = 0; i < all->n; i++) {
        add_vary_field(&b, &all->field[i]);
    }
    return finish_vary_text(&b, a);
}

struct slice variant_of_answer(const struct lookup *w, const struct http_field *fields,
                               size_t nfields, struct arena *a)
{
    struct named all = {.n = 0};

    name_vary(w, fields, nfields, a, &all);
    return vary_key_of(&all, a);
}

struct slice variant_of_all(const struct lookup *w, const struct http_field *fields, size_t nfields,
                            struct arena *a)
{
    struct named all = {.n = 0};

    for (size_t i = 0; i < w->forwards; i++) {
        if (w->forward[i].sent == SENT) {
            name_one(&all, &w->forward[i]);
        }
    }
    name_vary(w, fields, nfields, a, &all);
    return vary_key_of(&all, a);
}

struct line { /* of a tail */
    struct slice name;
    struct slice same; /* p == NULL: the request had none */
};

static struct slice lines_of(struct slice vary_key)
{
    return vary_key.n != 0 ? slice_from(vary_key, 1)
                           : vary_key; /* a name may begin with a MARK, too */
}

static bool next_line(struct slice *lines, struct line *out)
{
    struct slice rest;
    bool has_value;

    if (lines->n == 0) {
        return false;
    }
    rest = slice_cut(lines, '\n');
    has_value = slice_find(rest, ':') >= 0;
    out->name = slice_cut(&rest, ':');
    out->same = has_value ? rest : SLICE_NONE;
    return true;
}

static bool vary_key_names(struct slice vary_key, struct slice name)
{
    struct slice lines = lines_of(vary_key);
    struct line l;

    while (next_line(&lines, &l)) {
        if (slice_eq(l.name, name)) {
            return true;
        }
    }
    return false;
}

struct slice variant_like(const struct lookup *w, struct slice vary_key, struct arena *a)
{
    struct buf b = BUF_INIT(VARY_KEY_MAX);
    struct slice lines = lines_of(vary_key);
    struct line l;

    while (next_line(&lines, &l)) {
        const struct lookup_field *f = vary_field_of(w, l.name);
        struct lookup_field none = {.name = l.name};
        if (f != NULL || w->varies) {
            add_vary_field(&b, f != NULL ? f : &none);
        }
    }
    return finish_vary_text(&b, a);
}

static struct lookup_field *copy_fields(const struct lookup *w, struct arena *a)
{
    struct lookup_field *to = w->forwards != 0 ? arena_alloc(a, w->forwards * sizeof *to) : NULL;

    if (to != NULL) {
        memcpy(to, w->forward, w->forwards * sizeof *to);
    }
    return to;
}

const struct lookup_field *variant_send(const struct lookup *w, struct slice vary_key,
                                        struct arena *a)
{
    struct lookup_field *to = copy_fields(w, a);

    for (size_t i = 0; i < w->forwards; i++) {
        if (to[i].sent == SENT_ONCE_NAMED && vary_key_names(vary_key, to[i].name)) {
            to[i].sent = SENT;
        }
    }
    return to;
}

const struct lookup_field *variant_sent(const struct lookup *w, struct arena *a)
{
    struct lookup_field *to = copy_fields(w, a);

    for (size_t i = 0; i < w->forwards; i++) {
        if (to[i].sent == SENT_ONCE_NAMED) {
            to[i].value = to[i].same = SLICE_NONE;
        }
    }
    return to;
}

bool variant_names_another(const struct http_field *fields, size_t nfields, char *const *known,
                           size_t nknown)
{
    for (size_t i = 0; i < nfields; i++) {
        struct slice rest = slice_eqs(fields[i].name, "vary") ? fields[i].value : SLICE_NONE;
        while (rest.n > 0) {
            struct slice name = slice_trim(slice_cut(&rest, ','));
            size_t at = 0;
            while (at < nknown && !slice_ieq(slice_str(known[at]), name)) {
                at++;
            }
            if (name.n != 0 && at == nknown && !variant_ignores(name)) {
                return true;
            }
        }
    }
    return false;
}

static struct slice vary_field_value(const struct lookup *w, struct slice name)
{
    for (size_t i = 0; i < w->forwards; i++) {
        if (slice_eq(w->forward[i].name, name)) {
            return w->forward[i].same;
        }
    }
    return SLICE_NONE; /* not forwarded any more: the origin gets none */
}

bool vary_matches(struct slice vary_key, const struct lookup *w)
{
    struct slice lines = lines_of(vary_key);
    struct line l;

    while (next_line(&lines, &l)) {
        struct slice has = vary_field_value(w, l.name);
        if ((has.p == NULL) != (l.same.p == NULL) || !slice_eq(has, l.same)) {
            return false;
        }
    }
    return true;
}

bool variant_alike(struct slice vary_key, struct slice other)
{
    struct slice left = lines_of(vary_key);
    struct slice right = lines_of(other);
    struct line a;
    struct line b;
    bool more;

    do {
        more = next_line(&left, &a);
        if (next_line(&right, &b) != more || (more && !slice_eq(a.name, b.name))) {
            return false;
        }
    } while (more);
    return true;
}

bool variant_answers(const struct object *o, struct slice vary_key, const struct lookup *w)
{
    for (size_t i = 0; i < w->forwards; i++) {
        const struct lookup_field *f = &w->forward[i];
        if (f->same.p != NULL && !vary_key_names(vary_key, f->name) &&
            names(o->fields, o->nfields, f->name)) {
            return false;
        }
    }
    return vary_matches(vary_key, w);
}

void variant_key(struct buf *out, struct slice row_key, struct slice vary_key)
{
    buf_adds(out, row_key);
    if (vary_key.n != 0) {
        buf_byte(out, 0);
        buf_adds(out, vary_key);
    }
}

struct slice variant_of_row(struct slice key_of_row)
{
    const char *nul = key_of_row.n != 0 ? memrchr(key_of_row.p, 0, key_of_row.n) : NULL;
    struct slice last =
        nul != NULL ? slice_from(key_of_row, (size_t)(nul - key_of_row.p) + 1) : SLICE("");

    return last.n != 0 && last.p[0] == MARK ? last : SLICE("");
}
