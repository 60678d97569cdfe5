#include "server/cache/variant.h"

enum { MARK = '~' };

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

static void add(struct buf *b, const struct want_field *f)
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

static struct slice settle(struct buf *b, struct arena *a)
{
    struct slice s = b->n != 0 ? arena_copy(a, buf_slice(b)) : SLICE("");

    CHECK(b->rc == 0); /* whoever makes a want sees to VARIANT_FIELDS and VARIANT_VALUES */
    buf_free(b);
    return s;
}

struct slice variant_of_answer(const struct want *w, const struct http_field *fields,
                               size_t nfields, struct arena *a)
{
    struct buf b = BUF_INIT(VARIANT_TAIL_MAX);

    for (size_t i = 0; i < w->forwards; i++) {
        if (names(fields, nfields, w->forward[i].name)) {
            add(&b, &w->forward[i]);
        }
    }
    return settle(&b, a);
}

struct slice variant_of_all(const struct want *w, struct arena *a)
{
    struct buf b = BUF_INIT(VARIANT_TAIL_MAX);

    for (size_t i = 0; i < w->forwards; i++) {
        add(&b, &w->forward[i]);
    }
    return settle(&b, a);
}

struct line { /* of a tail */
    struct slice name;
    struct slice same; /* p == NULL: the request had none */
};

static bool next_line(struct slice *tail, struct line *out)
{
    struct slice rest;
    bool has_value;

    if (tail->n != 0 && tail->p[0] == MARK) {
        *tail = slice_from(*tail, 1);
    }
    if (tail->n == 0) {
        return false;
    }
    rest = slice_cut(tail, '\n');
    has_value = slice_find(rest, ':') >= 0;
    out->name = slice_cut(&rest, ':');
    out->same = has_value ? rest : SLICE_NONE;
    return true;
}

static bool tail_names(struct slice tail, struct slice name)
{
    struct line l;

    while (next_line(&tail, &l)) {
        if (slice_eq(l.name, name)) {
            return true;
        }
    }
    return false;
}

struct slice variant_like(const struct want *w, struct slice tail, struct arena *a)
{
    struct buf b = BUF_INIT(VARIANT_TAIL_MAX);

    for (size_t i = 0; i < w->forwards; i++) {
        if (tail_names(tail, w->forward[i].name)) {
            add(&b, &w->forward[i]);
        }
    }
    return settle(&b, a);
}

static struct slice value_of(const struct want *w, struct slice name)
{
    for (size_t i = 0; i < w->forwards; i++) {
        if (slice_eq(w->forward[i].name, name)) {
            return w->forward[i].same;
        }
    }
    return SLICE_NONE; /* not forwarded any more: the origin gets none */
}

bool variant_suits(struct slice tail, const struct want *w)
{
    struct line l;

    while (next_line(&tail, &l)) {
        struct slice has = value_of(w, l.name);
        if ((has.p == NULL) != (l.same.p == NULL) || !slice_eq(has, l.same)) {
            return false;
        }
    }
    return true;
}

bool variant_alike(struct slice tail, struct slice other)
{
    struct line a;
    struct line b;
    bool more;

    do {
        more = next_line(&tail, &a);
        if (next_line(&other, &b) != more || (more && !slice_eq(a.name, b.name))) {
            return false;
        }
    } while (more);
    return true;
}

bool variant_answers(const struct object *o, struct slice tail, const struct want *w)
{
    for (size_t i = 0; i < w->forwards; i++) {
        const struct want_field *f = &w->forward[i];
        if (f->same.p != NULL && !tail_names(tail, f->name) &&
            names(o->fields, o->nfields, f->name)) {
            return false;
        }
    }
    return variant_suits(tail, w);
}

void variant_key(struct buf *out, struct slice row_key, struct slice tail)
{
    buf_adds(out, row_key);
    if (tail.n != 0) {
        buf_byte(out, 0);
        buf_adds(out, tail);
    }
}

struct slice variant_of_row(struct slice key_tail)
{
    const char *nul = key_tail.n != 0 ? memrchr(key_tail.p, 0, key_tail.n) : NULL;
    struct slice last =
        nul != NULL ? slice_from(key_tail, (size_t)(nul - key_tail.p) + 1) : SLICE("");

    return last.n != 0 && last.p[0] == MARK ? last : SLICE("");
}
