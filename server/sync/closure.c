#include "server/sync/closure.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "server/store/seek.h"

enum { REPORTED = 10, SENTENCE_BYTES = 150, MORE_BYTES = 70 };

struct closure {
    const struct closure_want *want;
    struct seek indexes;
    struct seek named; /* its way down is another */
    struct closure_report *out;
    char first[SENTENCE_BYTES]; /* what is wrong */
    char more[MORE_BYTES];      /* what else, by name alone */
};

struct closure_report *closure_report(struct closure *x)
{
    return x->out;
}

struct store *closure_store(struct closure *x)
{
    return x->want->store;
}

struct slice closure_name_of(struct slice path, struct slice *folder)
{
    size_t n = slice_behind(path, '/');

    if (folder != NULL) {
        *folder = slice_first(path, n);
    }
    return slice_from(path, n);
}

/* --- the tree's files --- */

int closure_find(struct closure *x, struct slice path, struct closure_file *out, struct err *e)
{
    const struct entry *en;
    int rc = seek_get(&x->indexes, path, &en, e);

    if (rc == 0 && en->type != ENTRY_FILE) {
        return E_NOTFOUND;
    }
    if (rc == 0) {
        *out = (struct closure_file){path, en->digest, en->size_bytes};
    }
    return rc;
}

struct found {
    struct arena arena;
    struct closure_file *at;
    size_t count, room;
    bool (*is_index)(struct slice path);
};

static int on_closure_entry(void *arg, const struct entry *en)
{
    struct found *f = arg;

    if (en->type != ENTRY_FILE || !f->is_index(en->path)) {
        return 0;
    }
    if (f->count == f->room) {
        f->room = f->room != 0 ? 2 * f->room : 16;
        f->at = realloc(f->at, f->room * sizeof f->at[0]);
        CHECK(f->at != NULL);
    }
    f->at[f->count++] =
        (struct closure_file){arena_copy(&f->arena, en->path), en->digest, en->size_bytes};
    return 0;
}

int closure_each(struct closure *x, bool (*is_index)(struct slice path),
                 int (*check)(struct closure *x, const struct closure_file *f, struct err *e),
                 struct err *e)
{
    struct found f = {.is_index = is_index};
    int rc =
        tree_walk(x->want->store, x->want->root, SLICE(""), SLICE_NONE, on_closure_entry, &f, e);

    for (size_t i = 0; rc == 0 && i < f.count; i++) {
        rc = check(x, &f.at[i], e);
        if (rc != 0 && e != NULL &&
            memmem(e->text, strlen(e->text), f.at[i].path.p, f.at[i].path.n) == NULL) {
            err_prefix(e, "%.*s", (int)min_u64(f.at[i].path.n, 100), f.at[i].path.p);
        }
    }
    arena_fini(&f.arena);
    free(f.at);
    return rc;
}

/* --- what indexes say --- */

/* "first; also NAME, NAME, and 12 more" is put together as they come. */
static void note_closure_gap(struct closure *x, const char *sentence, struct slice name)
{
    size_t n = strlen(x->more);

    x->out->wrong++;
    if (x->out->wrong == 1) {
        snprintf(x->first, sizeof x->first, "%s", sentence);
    } else if (n + name.n + 3 < sizeof x->more && x->out->wrong <= 4) {
        snprintf(x->more + n, sizeof x->more - n, "%s" SLICE_FMT, n == 0 ? "; also " : ", ",
                 SLICE_ARG(name));
    }
    if (x->want->say != NULL && x->out->wrong <= REPORTED) {
        x->want->say(x->want->arg, "closure: %s", sentence);
    }
}

void closure_wrong(struct closure *x, const char *fmt, ...)
{
    char text[2 * SENTENCE_BYTES];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    note_closure_gap(x, text, slice_str(text));
}

/* The end of a long path tells more than its beginning. */
static struct slice tail(struct slice path, size_t n)
{
    return path.n > n ? slice_from(path, path.n - n) : path;
}

static int same_bytes(struct closure *x, const struct entry *en, uint64_t size_bytes,
                      const struct sum *sum, bool *same, struct err *e)
{
    struct digest d;
    struct sum got;
    int rc = 0;

    *same = en->type == ENTRY_FILE && (size_bytes == UINT64_MAX || en->size_bytes == size_bytes);
    if (!*same || sum->kind == SUM_NONE) {
        return 0;
    }
    if (sum_digest(sum, &d)) {
        *same = digest_eq(&d, &en->digest);
    } else {
        struct digest blob = en->digest;
        rc = pieces_sum(x->want->store, &blob, sum->kind, &got, e);
        *same = rc == 0 && sum_eq(&got, sum);
    }
    return rc;
}

int closure_names(struct closure *x, struct slice index, struct slice path, uint64_t size_bytes,
                  const struct sum *sum, struct err *e)
{
    char text[2 * SENTENCE_BYTES];
    const struct entry *en;
    bool same = false;
    int rc = seek_get(&x->named, path, &en, e);
    bool there = rc == 0;

    if (rc == 0) {
        rc = same_bytes(x, en, size_bytes, sum, &same, e);
    } else if (rc == E_NOTFOUND) {
        rc = 0;
    }
    if (rc != 0 || same) {
        x->out->files += rc == 0;
        return rc;
    }
    if (!there &&
        !file_filter_wants(
            x->want->file_filter,
            &(struct sync_entry){.type = SYNC_FILE, .path = path, .size_bytes = size_bytes})) {
        x->out->unwanted++;
        return 0;
    }
    index = tail(index, 48);
    path = tail(path, 72);
    snprintf(text, sizeof text, SLICE_FMT " names " SLICE_FMT ", which %s", SLICE_ARG(index),
             SLICE_ARG(path), there ? "does not match" : "is missing");
    note_closure_gap(x, text, closure_name_of(path, NULL));
    return 0;
}

/* --- the whole --- */

int closure_check(const struct closure_want *w, struct closure_report *out, struct err *e)
{
    struct closure x = {.want = w, .out = out};
    int rc;

    *out = (struct closure_report){0};
    seek_open(&x.indexes, w->store, w->root);
    seek_open(&x.named, w->store, w->root);
    rc = w->profile->check(&x, e);
    seek_close(&x.indexes);
    seek_close(&x.named);
    if (rc == 0 && out->wrong > 1) {
        return err_set(e, E_AGAIN, "%s%s (%llu in total)", x.first, x.more,
                       (unsigned long long)out->wrong);
    }
    if (rc == 0 && out->wrong == 1) {
        return err_set(e, E_AGAIN, "%s", x.first);
    }
    return rc == E_INVALID ? E_AGAIN : rc;
}
