/* hub_trees.c - lists of repositories as a Hub answers them: searched, sorted, in parts. Tasks,
 * tags and downloads are unknown here, so a filter by those finds nothing. */
#include <inttypes.h>
#include <stdlib.h>

#include "common/codec/form.h"
#include "common/codec/url.h"
#include "server/repo/hosted/hosted.h"
#include "server/repo/hosted/hub.h"
#include "server/repo/hosted/image.h"
#include "server/repo/hosted/python.h"

enum { VALUE_BYTES = 1024, LIMIT_MAX = 1000, TREES_MAX = 1 << 20 };

struct row {
    struct slice id; /* "owner/name" */
    struct snap snap;
};

struct search {
    struct slice words, author, cursor; /* p == NULL: any, all, from the front */
    bool by_time, rising, nothing;
    size_t limit;
};

struct trees {
    struct search find;
    const struct repo *r;
    struct slice type;
    const struct listing_sight *sight;
    struct arena arena;
    struct row *row;
    size_t count, room;
};

/* --- what is asked for ------------------------------------------------------------------------ */

static bool is_false_text(struct slice v)
{
    return slice_ieq(v, SLICE("false")) || slice_eqs(v, "0");
}

/* What no repository of ours has. */
static bool is_filter(struct slice name)
{
    static const char *const names[] = {
        "filter", "pipeline_tag", "library",        "language",           "apps",
        "tags",   "inference",    "num_parameters", "inference_provider", "trained_dataset"};

    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        if (slice_eqs(name, names[i])) {
            return true;
        }
    }
    return false;
}

static void read_field(struct search *s, struct slice name, struct slice value)
{
    uint64_t n;

    if (slice_eqs(name, "search")) {
        s->words = value;
    } else if (slice_eqs(name, "author")) {
        s->author = value;
    } else if (slice_eqs(name, "cursor")) {
        s->cursor = value;
    } else if (slice_eqs(name, "limit") && slice_u64(value, &n) && n != 0) {
        s->limit = (size_t)min_u64(n, LIMIT_MAX);
    } else if (slice_eqs(name, "sort")) {
        s->by_time = slice_eqs(value, "lastModified") || slice_eqs(value, "createdAt");
    } else if (slice_eqs(name, "direction")) {
        s->rising = slice_eqs(value, "1");
    } else if (is_filter(name) || (slice_eqs(name, "gated") && !is_false_text(value))) {
        s->nothing = true;
    }
}

static struct search read_query(struct slice query, struct arena *a)
{
    struct search s = {.limit = LIMIT_MAX};

    struct slice name, value;

    while (form_next(&query, &name, &value)) {
        value = form_value(value, VALUE_BYTES, a);
        if (value.n != 0) {
            read_field(&s, name, value);
        }
    }
    return s;
}

/* --- which trees ------------------------------------------------------------------------------ */

static bool id_contains_word(struct slice text, struct slice word)
{
    for (size_t i = 0; i + word.n <= text.n; i++) {
        if (slice_ieq(slice_first(slice_from(text, i), word.n), word)) {
            return true;
        }
    }
    return false;
}

static bool search_matches(const struct search *s, struct slice id)
{
    struct slice words = s->words;
    struct slice rest = id;
    struct slice owner = slice_cut(&rest, '/');

    if (s->author.p != NULL && !slice_ieq(owner, s->author)) {
        return false;
    }
    while (words.n != 0) {
        if (!id_contains_word(id, slice_cut(&words, ' '))) {
            return false;
        }
    }
    return true;
}

static bool seen(struct trees *t, struct slice tree)
{
    struct buf subject = BUF_INIT(VALUE_BYTES);
    bool yes = true;

    if (t->sight != NULL) {
        buf_addf(&subject, "%s/" SLICE_FMT "/", t->r->name, SLICE_ARG(tree));
        yes = subject.rc == 0 && t->sight->sees(t->sight->arg, buf_slice(&subject));
    }
    buf_free(&subject);
    return yes;
}

static int on_hub_tree(void *arg, struct slice name, const struct snap *sn)
{
    struct trees *t = arg;
    struct slice id = name;
    struct slice type = hub_cut_type(&id);

    if (image_is_tree(name) || python_owns(name) || !slice_eq(type, t->type) ||
        !search_matches(&t->find, id) || !seen(t, name)) {
        return 0;
    }
    if (t->count == TREES_MAX) {
        return E_TOOBIG;
    }
    if (t->count == t->room) {
        t->room = t->room != 0 ? 2 * t->room : 64;
        t->row = reallocarray(t->row, t->room, sizeof *t->row);
        CHECK(t->row != NULL);
    }
    t->row[t->count++] = (struct row){arena_copy(&t->arena, id), *sn};
    return 0;
}

/* --- in order, in parts ----------------------------------------------------------------------- */

static int compare_hub_trees(const struct search *s, uint64_t left_s, struct slice left,
                             uint64_t right_s, struct slice right)
{
    if (s->by_time && left_s != right_s) {
        return (left_s < right_s) == s->rising ? -1 : 1;
    }
    return slice_cmp(left, right);
}

static int by_search(const void *a, const void *b, void *arg)
{
    const struct row *x = a;
    const struct row *y = b;

    return compare_hub_trees(arg, x->snap.created_unix_s, x->id, y->snap.created_unix_s, y->id);
}

/* After the last one that was listed, "<seconds>:<id>", also when that one is gone. */
static size_t first_row(const struct trees *t)
{
    struct slice id = t->find.cursor;
    uint64_t unix_s = 0;
    size_t i = 0;

    if (id.p == NULL || !slice_u64(slice_cut(&id, ':'), &unix_s)) {
        return 0;
    }
    while (i < t->count && compare_hub_trees(&t->find, t->row[i].snap.created_unix_s, t->row[i].id,
                                             unix_s, id) <= 0) {
        i++;
    }
    return i;
}

static void write_row(const struct trees *t, const struct row *row, struct buf *out)
{
    struct slice rest = row->id;
    char id[HUB_COMMIT_HEX + 1];

    hub_commit_id(&row->snap.root, id);
    jwrite_open(out, NULL, '{');
    jwrite_text(out, "_id", slice_first(slice_str(id), 24));
    jwrite_text(out, "id", row->id);
    if (slice_eqs(t->type, "models")) {
        jwrite_text(out, "modelId", row->id);
    }
    jwrite_text(out, "author", slice_cut(&rest, '/'));
    jwrite_str(out, "sha", id);
    hub_when(out, "lastModified", row->snap.created_unix_s);
    hub_when(out, "createdAt", row->snap.created_unix_s);
    jwrite_bool(out, "private", !t->r->anonymous_read);
    jwrite_bool(out, "gated", false);
    jwrite_bool(out, "disabled", false);
    jwrite_word(out, "tags", SLICE("[]"));
    jwrite_u64(out, "downloads", 0);
    jwrite_u64(out, "likes", 0);
    jwrite_close(out, '}');
}

/* The same question, but for where it begins. */
static void write_next(const struct plan *p, const struct row *last, struct buf *out)
{
    struct slice query = p->text;

    buf_addf(out, SLICE_FMT "?", SLICE_ARG(p->location));
    while (query.n != 0) {
        struct slice field = slice_cut(&query, '&');
        if (!slice_starts(field, SLICE("cursor="))) {
            buf_addf(out, SLICE_FMT "&", SLICE_ARG(field));
        }
    }
    buf_addf(out, "cursor=%" PRIu64 "%%3A", last->snap.created_unix_s);
    url_encode(last->id, out);
}

static void write_rows(const struct trees *t, const struct plan *p, struct listing_out *out)
{
    size_t first = first_row(t);
    size_t end = t->count - first > t->find.limit ? first + t->find.limit : t->count;

    jwrite_open(out->body, NULL, '[');
    for (size_t i = first; i < end; i++) {
        write_row(t, &t->row[i], out->body);
    }
    jwrite_close(out->body, ']');
    if (end < t->count) {
        write_next(p, &t->row[end - 1], &out->next);
    }
}

int hub_trees(struct store *s, const struct repo *r, const struct plan *p,
              const struct listing_sight *sight, struct listing_out *out, struct err *e)
{
    struct trees t = {.r = r, .type = p->entry.path, .sight = sight};
    int rc = 0;

    out->content_type = SLICE("application/json");
    t.find = read_query(p->text, &t.arena);
    if (!t.find.nothing) {
        rc = head_list(s, slice_str(r->name), on_hub_tree, &t, e);
    }
    if (rc == 0) {
        if (t.count != 0) {
            qsort_r(t.row, t.count, sizeof *t.row, by_search, &t.find);
        }
        write_rows(&t, p, out);
    }
    free(t.row);
    arena_fini(&t.arena);
    if (rc == E_TOOBIG) {
        return err_set(e, rc, "there are more than %d repositories; request those of one author",
                       TREES_MAX);
    }
    return rc == 0 && out->next.rc != 0 ? err_set(e, E_INVALID, "the query is too long") : rc;
}
