/* stock_pulled.c - repositories that are pulled through: what the cache's rows tell of them. */
#include <stdlib.h>

#include "server/hub/home.h"
#include "server/hub/pinning.h"
#include "server/hub/stock_priv.h"
#include "server/repo/hf/hf.h"
#include "server/repo/hf/key.h"
#include "server/store/pin.h"

enum { SHORT_COMMIT = 7, COMMIT_HEX = 40 };

/* --- revisions of one home ---------------------------------------------------------------------------------------- */

struct revisions {
    struct stock_revision *at;
    size_t count;
};

static struct stock_revision *find(struct revisions *all, struct slice name, struct slice commit)
{
    for (size_t i = 0; i < all->count; i++) {
        if (name.n != 0 ? slice_eq(all->at[i].name, name) : slice_eq(all->at[i].commit, commit)) {
            return &all->at[i];
        }
    }
    return NULL;
}

static void add(struct revisions *all, struct slice name, struct slice commit, uint64_t asked)
{
    struct stock_revision *x = find(all, name, commit);

    if (x == NULL) {
        all->at[all->count++] =
            (struct stock_revision){.name = name, .commit = commit, .asked_unix_s = asked};
    } else if (name.n != 0 && asked > x->asked_unix_s) {
        x->commit = commit;
        x->asked_unix_s = asked;
    }
}

/* main, the other names, then commits that no name stands for: asked for last in front. */
static int by_name(const void *a, const void *b)
{
    const struct stock_revision *x = a, *y = b;

    if ((x->name.n == 0) != (y->name.n == 0)) {
        return x->name.n == 0 ? 1 : -1;
    }
    if (x->name.n == 0) {
        return x->asked_unix_s != y->asked_unix_s ? (x->asked_unix_s < y->asked_unix_s ? 1 : -1)
                                                  : slice_cmp(x->commit, y->commit);
    }
    if (slice_eqs(x->name, "main") != slice_eqs(y->name, "main")) {
        return slice_eqs(x->name, "main") ? -1 : 1;
    }
    return slice_cmp(x->name, y->name);
}

static struct slice branch_of(const struct home_doc *d)
{
    return d->rev.p == NULL ? SLICE("main") : hf_is_commit(d->rev) ? SLICE("") : d->rev;
}

/* By `cache pin`, all that it has. */
static bool all_pinned(const struct homes *h, const struct home *x)
{
    struct slice key, repo = slice_str(h->view->r->name);
    struct arena a = {0};
    struct pin_table pins;
    struct err unused;
    bool yes = false;

    if (pins_load(h->view->hub->store, &pins, &unused) >= 0) {
        key = arena_fmt(&a, SLICE_FMT "0", SLICE_ARG(key_files(x->type, x->id, &a)));
        yes = pins_cover(&pins, repo, key);
    }
    pins_free(&pins);
    arena_fini(&a);
    return yes;
}

static void mark(struct homes *h, const struct home *x, struct revisions *all)
{
    bool pinned = all_pinned(h, x);

    for (size_t i = 0; i < all->count; i++) {
        struct stock_revision *r = &all->at[i];
        const struct held_branch *b =
            r->name.n != 0 ? held_find(h->view->r->state, x->type, x->id, r->name) : NULL;
        if (b != NULL) {
            r->upstream = r->commit;
            r->commit = arena_copy(&h->arena, b->commit);
            r->held = true;
        }
    }
    for (size_t i = 0; i < all->count; i++) {
        struct stock_revision *r = &all->at[i];
        r->pinned = pinned || pinning_has(h->view->hub->store, slice_str(h->view->r->name), x->type,
                                          x->id, r->commit);
    }
}

static struct revisions revisions_of(struct homes *h, const struct home *x)
{
    struct arena *a = &h->arena;
    struct revisions all = {0};
    size_t room = 0;

    for (const struct home_doc *d = x->docs; d != NULL; d = d->next) {
        room++;
    }
    all.at = arena_alloc(a, (room + 1) * sizeof all.at[0]);
    for (const struct home_doc *d = x->docs; d != NULL; d = d->next) {
        if (!d->listing && d->understood && branch_of(d).n != 0) {
            add(&all, branch_of(d), d->commit, d->asked_unix_s);
        }
    }
    for (const struct home_doc *d = x->docs; d != NULL; d = d->next) {
        if (d->listing || (d->understood && branch_of(d).n == 0)) {
            add(&all, SLICE(""), d->listing ? d->rev : d->commit, d->asked_unix_s);
        }
    }
    if (all.count > 1) {
        qsort(all.at, all.count, sizeof all.at[0], by_name);
    }
    mark(h, x, &all);
    return all;
}

/* --- a commit's files --------------------------------------------------------------------------------------------- */

struct walk {
    struct stock_sum *sum;
    int (*each)(void *arg, const struct stock_file *f);
    void *arg;
};

static int walk_files(const struct manifest *m, const struct home *blobs, struct walk *w)
{
    int rc = 0;

    w->sum->known = true;
    for (size_t i = 0; rc == 0 && i < m->count; i++) {
        struct manifest_entry f;
        struct stock_file out;
        manifest_at(m, i, &f);
        if (f.folder) {
            continue;
        }
        out = (struct stock_file){.path = f.path,
                                  .size_bytes = f.size_bytes,
                                  .lfs = f.lfs,
                                  .sha256 = f.sha256,
                                  .oid = f.oid};
        out.state = home_state(blobs, &f, &out.have_bytes);
        w->sum->files++;
        w->sum->bytes += f.size_bytes;
        w->sum->files_here += out.state == STOCK_WHOLE;
        w->sum->bytes_here += out.have_bytes;
        rc = w->each != NULL ? w->each(w->arg, &out) : 0;
    }
    return rc;
}

static int sum_up(struct homes *h, const struct home *x, struct slice commit, struct walk *w,
                  struct err *e)
{
    struct buf bytes = BUF_INIT(0);
    struct manifest m;
    int rc = home_manifest(h, x, commit, &bytes, &m, e);

    if (rc == 0) {
        const struct home *blobs = m.id.n != 0 ? homes_find(h, x->type, m.id) : x;
        rc = walk_files(&m, blobs, w);
    }
    buf_free(&bytes);
    return rc;
}

/* For tables: a listing that is not here leaves the sum unknown. */
static void sum_only(struct homes *h, const struct home *x, struct stock_revision *r)
{
    struct walk w = {.sum = &r->sum};
    struct err unused;

    if (sum_up(h, x, r->commit, &w, &unused) != 0) {
        r->sum = (struct stock_sum){0};
    }
}

/* --- all of them -------------------------------------------------------------------------------------------------- */

static void describe(struct homes *h, const struct home *x, struct stock_repo *out)
{
    struct revisions all = revisions_of(h, x);

    *out = (struct stock_repo){.kind = STOCK_PULLED,
                               .type = x->type,
                               .id = x->id,
                               .commit = SLICE(""),
                               .revisions = all.count,
                               .cached_bytes = x->whole_bytes,
                               .last_asked_unix_s = x->last_asked_unix_s};
    if (all.count != 0) {
        sum_only(h, x, &all.at[0]);
        out->commit = all.at[0].commit;
        out->sum = all.at[0].sum;
    }
    for (size_t i = 0; i < all.count; i++) {
        out->pinned = out->pinned || all.at[i].pinned;
        out->held = out->held || all.at[i].held;
    }
}

static int in_order(struct home *a, struct home *b)
{
    return slice_cmp(a->name, b->name);
}

static int each_repo(const struct stock_view *v, struct slice prefix,
                     int (*each)(void *arg, const struct stock_repo *x), void *arg, struct err *e)
{
    struct homes h = HOMES_OF(v);
    struct home *x, *next;
    int rc = homes_read(&h, SLICE_NONE, SLICE_NONE, e);

    homes_learn(&h);
    HASH_SORT(h.by_name, in_order);
    HASH_ITER(hh, h.by_name, x, next)
    {
        struct stock_repo out;
        if (rc != 0 || x->known_as.n != 0 || (x->docs == NULL && !v->all) ||
            !stock_shown(x->type, x->id, prefix)) {
            continue;
        }
        describe(&h, x, &out);
        rc = each(arg, &out);
    }
    homes_free(&h);
    return rc;
}

static int each_revision(const struct stock_view *v, struct slice type, struct slice id,
                         int (*each)(void *arg, const struct stock_revision *x), void *arg,
                         struct err *e)
{
    struct homes h = HOMES_OF(v);
    struct home *x = NULL;
    int rc = homes_ask(&h, type, id, &x, e);

    if (rc == 0) {
        struct revisions all = revisions_of(&h, x);
        for (size_t i = 0; rc == 0 && i < all.count; i++) {
            sum_only(&h, x, &all.at[i]);
            rc = each(arg, &all.at[i]);
        }
    }
    homes_free(&h);
    return rc;
}

/* --- one ---------------------------------------------------------------------------------------------------------- */

static const struct stock_revision *choose(const struct revisions *all, struct slice rev)
{
    for (size_t i = 0; i < all->count; i++) {
        const struct stock_revision *x = &all->at[i];
        if (slice_eq(x->name, rev) || (rev.n >= SHORT_COMMIT && slice_starts(x->commit, rev))) {
            return x;
        }
    }
    return NULL;
}

static int each_file(const struct stock_view *v, struct slice type, struct slice id,
                     struct slice rev, struct arena *a, struct stock_revision *about,
                     int (*each)(void *arg, const struct stock_file *f), void *arg, struct err *e)
{
    struct homes h = HOMES_OF(v);
    struct walk w = {&about->sum, each, arg};
    const struct stock_revision *x;
    struct revisions all;
    struct home *home = NULL;
    int rc = homes_ask(&h, type, id, &home, e);

    if (rc != 0) {
        goto out;
    }
    all = revisions_of(&h, home);
    x = choose(&all, rev);
    if (x == NULL) {
        rc = err_set(e, E_NOTFOUND,
                     "no revision \"" SLICE_FMT "\" of " SLICE_FMT
                     " is known here, nobody has asked for it, see `mirrorctl hf show %s " SLICE_FMT
                     "`",
                     SLICE_ARG(rev), SLICE_ARG(home->id), v->r->name, SLICE_ARG(home->id));
        goto out;
    }
    about->name = arena_copy(a, x->name);
    about->commit = arena_copy(a, x->commit);
    about->upstream = arena_copy(a, x->upstream);
    about->asked_unix_s = x->asked_unix_s;
    about->held = x->held;
    about->pinned = x->pinned;
    rc = sum_up(&h, home, x->commit, &w, e);
    if (rc == E_NOTFOUND) {
        err_set(e, rc,
                "the listing of " SLICE_FMT " at %.40s is not here, nobody has asked for its "
                "files yet, `mirrorctl hf prefetch` brings it",
                SLICE_ARG(home->id), about->commit.p);
    }
out:
    homes_free(&h);
    return rc;
}

int stock_pulled_id(const struct stock_view *v, struct slice type, struct slice id, struct arena *a,
                    struct slice *out, struct err *e)
{
    struct homes h = HOMES_OF(v);
    struct home *x = NULL;
    int rc = homes_ask(&h, type, id, &x, e);

    if (rc == 0) {
        *out = arena_copy(a, x->id);
    }
    homes_free(&h);
    return rc;
}

const struct stock_ops stock_pulled = {each_repo, each_revision, each_file};
