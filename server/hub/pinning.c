#include "server/hub/pinning.h"

#include <stdlib.h>

#include "server/hub/kept.h"
#include "server/repo/hf/key.h"
#include "server/plan/paged_fetch.h"
#include "server/store/pin.h"

#define OWNER        "mirrorctl hf pin "
#define OWNER_IMPORT "import"

static struct slice scope_of(struct arena *a, struct slice repo, struct slice type, struct slice id,
                             struct slice commit)
{
    return arena_fmt(a, SLICE_FMT "/" SLICE_FMT "/" SLICE_FMT "@" SLICE_FMT, SLICE_ARG(repo),
                     SLICE_ARG(type), SLICE_ARG(id), SLICE_ARG(commit));
}

/* repo/key */
static struct slice in_repo(struct arena *a, struct slice repo, struct slice key)
{
    return arena_fmt(a, SLICE_FMT "/" SLICE_FMT, SLICE_ARG(repo), SLICE_ARG(key));
}

static struct slice files_of(struct arena *a, struct slice repo, struct slice type, struct slice id)
{
    return in_repo(a, repo, key_files(type, id, a));
}

static struct slice pinned_repo_key(struct arena *a, struct slice repo, struct slice type,
                                    struct slice id)
{
    return in_repo(a, repo, key_words(type, id, a));
}

struct keys {
    struct arena *a;
    struct slice *at;
    size_t count, room;
};

static void add_pinning_key(struct keys *k, struct slice key)
{
    if (k->count == k->room) {
        k->room = k->room != 0 ? 2 * k->room : 256;
        k->at = realloc(k->at, k->room * sizeof k->at[0]);
        CHECK(k->at != NULL);
    }
    k->at[k->count++] = key;
}

/* In its pages. */
static void add_listing(struct keys *k, const struct plan_runner *x, struct slice key)
{
    add_pinning_key(k, key);
    for (unsigned i = 1; i < PAGED_FETCH_PARTS_MAX; i++) {
        struct slice part = part_key(key, i, k->a);
        if (!kept_is_here(x->hub->store, slice_str(x->r->name), part)) {
            return;
        }
        add_pinning_key(k, part);
    }
}

/* The listing, and what the Hub says of the revision. */
static void add_docs(struct keys *k, const struct plan_runner *x, struct slice type,
                     struct slice id, struct slice rev, const struct plan_runner_commit *c)
{
    add_pinning_key(k, key_info(type, id, rev, k->a));
    if (!slice_eqs(rev, "main")) { /* whose it is is asked there */
        add_pinning_key(k, key_info(type, id, SLICE("main"), k->a));
    }
    add_listing(k, x, key_tree(type, c->id, c->commit, k->a));
    if (!slice_eq(c->id,
                  id)) { /* where one token fetches for all, the name may not be known before */
        add_listing(k, x, key_tree(type, id, c->commit, k->a));
    }
}

int pinning_set(struct plan_runner *x, struct slice type, struct slice id, struct slice rev,
                const struct plan_runner_commit *c,
                bool (*chosen)(const void *arg, struct slice path), const void *arg,
                uint64_t *files, struct err *e)
{
    struct arena a = {0};
    struct keys k = {.a = &a};
    struct slice scope = scope_of(&a, slice_str(x->r->name), type, c->id, c->commit);
    struct slice owner = arena_fmt(&a, OWNER SLICE_FMT, SLICE_ARG(rev));
    int rc;

    add_docs(&k, x, type, id, rev, c);
    *files = 0;
    for (size_t i = 0; i < c->files.count; i++) {
        struct manifest_entry f;
        manifest_at(&c->files, i, &f);
        if (f.folder || (chosen != NULL && !chosen(arg, f.path))) {
            continue;
        }
        ++*files;
        add_pinning_key(&k, key_file(type, c->id, &f, &a));
    }
    rc = pin_set_keys(x->hub->store, scope, owner, k.at, k.count, e);
    free(k.at);
    arena_fini(&a);
    return rc;
}

void pinning_import(struct slice repo, struct slice type, const struct slice *names, size_t count,
                    struct batch *b)
{
    struct arena a = {0};

    batch_put(b, TABLE_PIN, files_of(&a, repo, type, names[0]), SLICE(OWNER_IMPORT));
    for (size_t i = 0; i < count; i++) {
        batch_put(b, TABLE_PIN, pinned_repo_key(&a, repo, type, names[i]), SLICE(OWNER_IMPORT));
    }
    arena_fini(&a);
}

/* --- away with them --------------------------------------------------------------------------- */

struct finding {
    struct arena a;
    struct slice before;       /* "repo/type/id@" */
    struct slice files, words; /* an import's */
    struct slice rev;
    struct keys found;
};

static int on_pin(void *arg, const struct pin_info *p)
{
    struct finding *x = arg;
    struct slice commit, name;

    if (x->rev.p == NULL && slice_eqs(p->owner, OWNER_IMPORT) &&
        (slice_ieq(p->scope, x->files) || slice_ieq(p->scope, x->words))) {
        add_pinning_key(&x->found, arena_copy(&x->a, p->scope));
        return 0;
    }
    if (p->keys.n == 0 || p->scope.n < x->before.n ||
        !slice_ieq(slice_first(p->scope, x->before.n), x->before)) {
        return 0;
    }
    commit = slice_from(p->scope, x->before.n);
    name = slice_starts(p->owner, SLICE(OWNER)) ? slice_from(p->owner, strlen(OWNER)) : SLICE("");
    if (x->rev.p == NULL || slice_eq(name, x->rev) ||
        (x->rev.n >= 7 && slice_starts(commit, x->rev))) {
        add_pinning_key(&x->found, arena_copy(&x->a, p->scope));
    }
    return 0;
}

int pinning_clear(struct store *s, struct slice repo, struct slice type, struct slice id,
                  struct slice rev, uint64_t *count, struct err *e)
{
    struct finding x = {.rev = rev};
    struct batch *b = batch_new();
    int rc;

    x.found.a = &x.a;
    x.before = scope_of(&x.a, repo, type, id, SLICE(""));
    x.files = files_of(&x.a, repo, type, id);
    x.words = pinned_repo_key(&x.a, repo, type, id);
    rc = pin_list(s, on_pin, &x, e);
    *count = x.found.count;
    for (size_t i = 0; i < x.found.count; i++) {
        batch_del(b, TABLE_PIN, x.found.at[i]);
    }
    if (rc == 0 && *count == 0) {
        rc = err_set(e, E_NOTFOUND,
                     "no matching revision of " SLICE_FMT " is pinned; see `mirrorctl cache pins`",
                     SLICE_ARG(id));
    }
    rc = rc != 0 ? rc : store_commit(s, &b, COMMIT_SYNC, e);
    batch_free(&b);
    free(x.found.at);
    arena_fini(&x.a);
    return rc;
}

bool pinning_has(struct store *s, struct slice repo, struct slice type, struct slice id,
                 struct slice commit)
{
    struct buf row = BUF_INIT(32 << 20);
    struct arena a = {0};
    struct err unused;
    bool has = store_get(s, TABLE_PIN, scope_of(&a, repo, type, id, commit), &row, &unused) == 0;

    buf_free(&row);
    arena_fini(&a);
    return has;
}
