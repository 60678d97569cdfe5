/* prefetch_row.c - jobs as rows of JSON, by number. A token is never in one. */
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/base/endian.h"
#include "common/base/log.h"
#include "common/codec/jread.h"
#include "common/codec/jwrite.h"
#include "server/hub/prefetch_priv.h"
#include "server/store/store.h"

enum { ROW_BYTES = 256 << 10, KEY_BYTES = 8 };

static const char *const states[] = {"waiting", "asking", "fetching", "done", "failed", "stopped"};

const char *prefetch_state_name(enum prefetch_state s)
{
    return states[s];
}

void prefetch_want_copy(struct prefetch *p, const struct prefetch_want *w)
{
    struct prefetch_want *to = &p->want;
    struct arena *a = &p->arena;

    CHECK(w->includes <= PREFETCH_PATTERNS && w->excludes <= PREFETCH_PATTERNS);
    *to = *w;
    to->repo = arena_copy(a, w->repo);
    to->type = arena_copy(a, w->type);
    to->id = arena_copy(a, w->id);
    to->rev = arena_copy(a, w->rev);
    for (size_t i = 0; i < w->includes; i++) {
        p->include[i] = arena_copy(a, w->include[i]);
    }
    for (size_t i = 0; i < w->excludes; i++) {
        p->exclude[i] = arena_copy(a, w->exclude[i]);
    }
    to->include = p->include;
    to->exclude = p->exclude;
    to->authorization = arena_copy_opt(a, w->authorization);
    p->had_token = w->authorization.p != NULL;
    snprintf(p->view.repo, sizeof p->view.repo, SLICE_FMT, SLICE_ARG(to->repo));
    snprintf(p->view.type, sizeof p->view.type, SLICE_FMT, SLICE_ARG(to->type));
    snprintf(p->view.name, sizeof p->view.name, SLICE_FMT, SLICE_ARG(to->id));
    snprintf(p->view.rev, sizeof p->view.rev, SLICE_FMT, SLICE_ARG(to->rev));
    p->view.pin = w->pin;
}

void prefetch_free(struct prefetch **pp)
{
    struct prefetch *p = *pp;

    *pp = NULL;
    if (p == NULL) {
        return;
    }
    if (p->want.authorization.p != NULL) {
        explicit_bzero((void *)(uintptr_t)p->want.authorization.p, p->want.authorization.n);
    }
    arena_fini(&p->arena);
    free(p);
}

/* --- writing ------------------------------------------------------------------------------------------------------ */

static void write_patterns(struct buf *out, const char *key, const struct slice *at, size_t count)
{
    jwrite_open(out, key, '[');
    for (size_t i = 0; i < count; i++) {
        jwrite_text(out, NULL, at[i]);
    }
    jwrite_close(out, ']');
}

static void write_row(struct prefetch *p, struct buf *out)
{
    const struct prefetch_want *w = &p->want;
    struct prefetch_view v;

    lock_take(&p->all->lock);
    v = p->view;
    lock_drop(&p->all->lock);
    jwrite_open(out, NULL, '{');
    jwrite_text(out, "repo", w->repo);
    jwrite_text(out, "type", w->type);
    jwrite_text(out, "id", w->id);
    jwrite_text(out, "rev", w->rev);
    write_patterns(out, "include", w->include, w->includes);
    write_patterns(out, "exclude", w->exclude, w->excludes);
    jwrite_bool(out, "pin", w->pin);
    jwrite_bool(out, "token", p->had_token);
    jwrite_str(out, "commit", v.commit);
    jwrite_str(out, "state", states[v.state]);
    jwrite_u64(out, "code", (uint64_t)-v.code);
    jwrite_str(out, "why", v.why);
    jwrite_u64(out, "files", v.files);
    jwrite_u64(out, "files_done", v.files_done);
    jwrite_u64(out, "files_failed", v.files_failed);
    jwrite_u64(out, "bytes", v.bytes);
    jwrite_u64(out, "bytes_done", v.bytes_done);
    jwrite_u64(out, "here_bytes", v.here_bytes);
    jwrite_u64(out, "began_unix_s", v.began_unix_s);
    jwrite_u64(out, "ended_unix_s", v.ended_unix_s);
    jwrite_close(out, '}');
}

int prefetch_save(struct prefetch *p, struct err *e)
{
    struct buf row = BUF_INIT(ROW_BYTES);
    char key[KEY_BYTES];
    struct batch *b;
    int rc;

    write_row(p, &row);
    if (row.rc != 0) {
        rc = err_set(e, E_TOOBIG, "its patterns are too long");
    } else {
        be_put(key, KEY_BYTES, p->view.id);
        b = batch_new();
        batch_put(b, TABLE_PREFETCH, slice_of(key, KEY_BYTES), buf_slice(&row));
        rc = store_commit(p->all->hub->store, &b, COMMIT_SYNC, e);
    }
    buf_free(&row);
    return rc;
}

int prefetch_forget(struct store *s, uint64_t id, struct err *e)
{
    struct batch *b = batch_new();
    char key[KEY_BYTES];

    be_put(key, KEY_BYTES, id);
    batch_del(b, TABLE_PREFETCH, slice_of(key, KEY_BYTES));
    return store_commit(s, &b, COMMIT_LAZY, e);
}

/* --- reading ------------------------------------------------------------------------------------------------------ */

static uint64_t number(const json_t *o, const char *key)
{
    uint64_t n;

    return jread_u64(o, key, &n) ? n : 0;
}

static size_t patterns(const json_t *o, const char *key, struct slice out[PREFETCH_PATTERNS])
{
    const json_t *list = json_object_get(o, key), *one;
    size_t n = 0, i;

    json_array_foreach(list, i, one)
    {
        if (json_is_string(one) && n < PREFETCH_PATTERNS) {
            out[n++] = jread_slice(one);
        }
    }
    return n;
}

static void read_view(const json_t *o, struct prefetch_view *v)
{
    for (size_t i = 0; i < ARRAY_LEN(states); i++) {
        if (slice_eqs(jread_text(o, "state"), states[i])) {
            v->state = (enum prefetch_state)i;
        }
    }
    snprintf(v->commit, sizeof v->commit, SLICE_FMT, SLICE_ARG(jread_text(o, "commit")));
    snprintf(v->why, sizeof v->why, SLICE_FMT, SLICE_ARG(jread_text(o, "why")));
    v->code = -(int)number(o, "code");
    v->files = number(o, "files");
    v->files_done = number(o, "files_done");
    v->files_failed = number(o, "files_failed");
    v->bytes = number(o, "bytes");
    v->bytes_done = number(o, "bytes_done");
    v->here_bytes = number(o, "here_bytes");
    v->began_unix_s = number(o, "began_unix_s");
    v->ended_unix_s = number(o, "ended_unix_s");
}

static struct prefetch *read_row(const json_t *o)
{
    struct slice include[PREFETCH_PATTERNS], exclude[PREFETCH_PATTERNS];
    struct prefetch *p = NEW(struct prefetch);
    struct prefetch_want w = {.repo = jread_text(o, "repo"),
                              .type = jread_text(o, "type"),
                              .id = jread_text(o, "id"),
                              .rev = jread_text(o, "rev"),
                              .include = include,
                              .exclude = exclude,
                              .pin = json_is_true(json_object_get(o, "pin"))};

    w.includes = patterns(o, "include", include);
    w.excludes = patterns(o, "exclude", exclude);
    prefetch_want_copy(p, &w);
    p->had_token = json_is_true(json_object_get(o, "token"));
    read_view(o, &p->view);
    return p;
}

struct loading {
    void (*each)(void *arg, struct prefetch *p);
    void *arg;
};

static int on_row(void *arg, struct slice key, struct slice value)
{
    struct loading *x = arg;
    json_t *o = json_loadb(value.p != NULL ? value.p : "", value.n, JSON_ALLOW_NUL, NULL);

    if (json_is_object(o) && key.n == KEY_BYTES && jread_text(o, "id").n != 0) {
        struct prefetch *p = read_row(o);
        p->view.id = be_get(key.p, KEY_BYTES);
        x->each(x->arg, p);
    } else {
        log_warn("prefetch.row", "why=\"a row does not read\"");
    }
    json_decref(o);
    return 0;
}

int prefetch_load(struct store *s, void (*each)(void *arg, struct prefetch *p), void *arg,
                  struct err *e)
{
    struct loading x = {each, arg};

    return store_scan(s, TABLE_PREFETCH, SLICE_NONE, SLICE_NONE, on_row, &x, e);
}
