#include "server/hub/repo_index.h"

#include <stdlib.h>

#include "common/codec/weblink.h"
#include "server/hub/kept.h"
#include "server/hub/pinning.h"
#include "server/hub/inventory_priv.h"
#include "server/plan/paged_fetch.h"
#include "server/repo/hf/hf.h"
#include "server/repo/hf/key.h"
#include "server/repo/hf/openness.h"
#include "server/repo/hf/path.h"
#include "server/store/atime.h"
#include "server/store/pin.h"

enum {
    DOC_BYTES = 64 << 20,
    MANIFEST_BYTES = 256 << 20,
};
enum { SHORT_COMMIT = 7, COMMIT_HEX = 40 };

struct repo_index_blob {
    UT_hash_handle hh;
    struct slice etag;
    uint64_t size_bytes, have_bytes;
    bool whole;
};

/* --- rows ------------------------------------------------------------------------------------- */

struct reading {
    struct repo_indexes *repo_indexes;
    struct slice type, id; /* p == NULL: any */
};

static struct repo_index *find_repo_index(const struct repo_indexes *h, struct slice type,
                                          struct slice id)
{
    struct buf name = BUF_INIT(OBJECT_KEY_MAX);
    struct repo_index *x = NULL;

    buf_addf(&name, SLICE_FMT "/" SLICE_FMT, SLICE_ARG(type), SLICE_ARG(id));
    if (name.rc == 0) {
        HASH_FIND(hh, h->by_name, name.p, name.n, x);
    }
    buf_free(&name);
    return x;
}

static struct repo_index *repo_index_slot(struct repo_indexes *h, struct slice type,
                                          struct slice id)
{
    struct repo_index *x = find_repo_index(h, type, id);

    if (x == NULL) {
        x = ARENA_NEW(&h->arena, struct repo_index);
        x->name = arena_fmt(&h->arena, SLICE_FMT "/" SLICE_FMT, SLICE_ARG(type), SLICE_ARG(id));
        x->type = slice_first(x->name, type.n);
        x->id = slice_from(x->name, type.n + 1);
        HASH_ADD_KEYPTR(hh, h->by_name, x->name.p, x->name.n, x);
    }
    return x;
}

static bool is_meant(const struct reading *r, struct slice type, struct slice id)
{
    return r->type.p == NULL || (slice_eq(type, r->type) && slice_eq(id, r->id));
}

/* Hours are all that is noted of later hits. */
static void note_asked(const struct reading *r, struct repo_index *x, const struct object_info *o)
{
    uint32_t hour = 0;
    struct err unused;

    if (atime_hour(r->repo_indexes->view->hub->store, &o->digest, &hour, &unused) != 0) {
        hour = 0;
    }
    x->last_asked_unix_s =
        max_u64(x->last_asked_unix_s, max_u64(o->stored_unix_s, (uint64_t)hour * 3600));
}

static void add_doc(struct reading *r, const struct object_info *o, struct slice key,
                    const struct hf_path *at)
{
    struct repo_indexes *h = r->repo_indexes;
    struct repo_index *x = repo_index_slot(h, at->type, at->id);
    struct repo_index_doc *d = ARENA_NEW(&h->arena, struct repo_index_doc);

    d->listing = at->route == HF_TREE;
    d->rev = arena_copy_opt(&h->arena, at->rev);
    d->row_key = arena_copy(&h->arena, o->key);
    d->callers = key.n != o->key.n;
    d->digest = o->digest;
    d->asked_unix_s = o->validated_unix_s;
    d->next = x->docs;
    x->docs = d;
    note_asked(r, x, o);
}

static struct repo_index_blob *blob_place(struct repo_indexes *h, struct repo_index *x,
                                          struct slice etag)
{
    struct repo_index_blob *b = NULL;

    HASH_FIND(hh, x->blobs, etag.p, etag.n, b);
    if (b == NULL) {
        b = ARENA_NEW(&h->arena, struct repo_index_blob);
        b->etag = arena_copy(&h->arena, etag);
        HASH_ADD_KEYPTR(hh, x->blobs, b->etag.p, b->etag.n, b);
    }
    return b;
}

static void add_index_blob(struct reading *r, const struct object_info *o, struct slice key)
{
    struct slice type, id, etag;
    struct repo_index_blob *b;
    struct repo_index *x;

    if (!key_read_file(key, &type, &id, &etag) || !is_meant(r, type, id)) {
        return;
    }
    x = repo_index_slot(r->repo_indexes, type, id);
    b = blob_place(r->repo_indexes, x, etag);
    if (!b->whole) {
        x->whole_bytes += o->size_bytes;
    }
    b->whole = true;
    b->size_bytes = b->have_bytes = o->size_bytes;
    note_asked(r, x, o);
}

static int on_index_object(void *arg, const struct object_info *o)
{
    struct reading *r = arg;
    struct slice rest = o->key;
    struct slice key = slice_cut(&rest, '\0');
    struct arena a = {0};
    struct hf_path at;
    struct err unused;

    if (!origin_owns(r->repo_indexes->view->r->origin, o->origin)) {
        return 0; /* what another origin had under the name is none of this one's */
    }
    /* What came by a caller's right shows who is let in to what; files of closed repositories are
     * marked too, but that they exist is in the Hub's public listing. */
    if (!slice_starts(key, SLICE("api/"))) {
        add_index_blob(r, o, key);
    } else if ((rest.n == 0 || r->repo_indexes->view->all) && slice_find(key, '?') < 0 &&
               hf_path_parse(key, &a, &at, &unused) == 0 && at.id.n != 0 &&
               ((at.route == HF_INFO) || (at.route == HF_TREE && at.path.n == 0)) &&
               (at.route == HF_INFO || hf_is_commit(at.rev)) && is_meant(r, at.type, at.id)) {
        add_doc(r, o, key, &at);
    }
    arena_fini(&a);
    return 0;
}

/* What is under way, or parked. */
static void on_unfinished(void *arg, struct slice tail, uint64_t have_bytes, uint64_t total_bytes)
{
    struct reading *r = arg;
    struct slice type, id, etag;
    struct repo_index_blob *b;
    struct repo_index *x;

    if (!key_read_file(slice_cut(&tail, '\0'), &type, &id, &etag)) {
        return;
    }
    x = find_repo_index(r->repo_indexes, type, id);
    if (x == NULL) {
        return;
    }
    b = blob_place(r->repo_indexes, x, etag);
    if (!b->whole) {
        b->size_bytes = total_bytes;
    }
    b->have_bytes = max_u64(b->have_bytes, have_bytes);
}

static int read_rows(struct repo_indexes *h, struct slice type, struct slice id, struct err *e)
{
    struct reading r = {h, type, id};
    struct slice repo = slice_str(h->view->r->name);
    struct cache *c = h->view->hub->cache;
    struct arena *a = &h->arena;
    int rc = cache_list(c, repo, type.p != NULL ? key_words(type, id, a) : SLICE(""),
                        on_index_object, &r, e);

    if (rc == 0 && type.p != NULL) {
        rc = cache_list(c, repo, key_files(type, id, a), on_index_object, &r, e);
    }
    if (rc == 0) {
        cache_unfinished(c, repo, on_unfinished, &r);
    }
    return rc < 0 ? rc : 0;
}

void repo_indexes_free(struct repo_indexes *h)
{
    struct repo_index *x, *next;

    HASH_ITER(hh, h->by_name, x, next)
    {
        HASH_CLEAR(hh, x->blobs);
        HASH_DEL(h->by_name, x);
    }
    arena_fini(&h->arena);
}

/* --- what the Hub said ------------------------------------------------------------------------ */

static void read_index_docs(struct repo_indexes *h, struct repo_index *x)
{
    for (struct repo_index_doc *d = x->docs; d != NULL; d = d->next) {
        struct buf doc = BUF_INIT(DOC_BYTES), made = BUF_INIT(2 * (size_t)DOC_BYTES);
        struct repo_info info;
        struct err unused;
        if (!d->listing && !d->understood &&
            blob_read_whole(h->view->hub->store, &d->digest, &doc, &unused) == 0 &&
            info_make(buf_slice(&doc), &made, &unused) == 0 && info_read(buf_slice(&made), &info)) {
            d->understood = true;
            d->closed = info.closed;
            d->id = arena_copy(&h->arena, info.id);
            d->commit = arena_copy(&h->arena, info.commit);
        }
        buf_free(&doc);
        buf_free(&made);
    }
}

/* The name that the Hub knows it by; x's own, when it did not tell. */
static struct slice canonical_index_name(const struct repo_index *x)
{
    const struct repo_index_doc *best = NULL;

    for (const struct repo_index_doc *d = x->docs; d != NULL; d = d->next) {
        if (d->understood && (best == NULL || d->asked_unix_s > best->asked_unix_s)) {
            best = d;
        }
    }
    return best != NULL ? best->id : x->id;
}

static void move_docs(struct repo_index *from, struct repo_index *to)
{
    struct repo_index_doc *d;

    while ((d = from->docs) != NULL) {
        from->docs = d->next;
        d->next = to->docs;
        to->docs = d;
    }
    to->last_asked_unix_s = max_u64(to->last_asked_unix_s, from->last_asked_unix_s);
}

static void learn_all(struct repo_indexes *h)
{
    struct repo_index *x, *next;

    HASH_ITER(hh, h->by_name, x, next)
    {
        struct slice id;
        read_index_docs(h, x);
        id = canonical_index_name(x);
        if (!slice_eq(id, x->id)) {
            x->known_as = id;
            move_docs(x, repo_index_slot(h, x->type, id));
        }
    }
    HASH_ITER(hh, h->by_name, x, next)
    {
        if (!h->view->all &&
            openness_hides(h->view->hub->store, h->view->r->name, x->type, x->id)) {
            x->docs = NULL; /* what was everybody's before is not shown to everybody */
        }
    }
}

static struct repo_index *spelled(const struct repo_indexes *h, struct slice type, struct slice id)
{
    struct repo_index *x = find_repo_index(h, type, id), *other, *next;

    if (x == NULL) {
        HASH_ITER(hh, h->by_name, other, next)
        {
            if (slice_eq(other->type, type) && slice_ieq(other->id, id)) {
                x = other;
            }
        }
    }
    while (x != NULL && x->known_as.n != 0) {
        x = find_repo_index(h, type, x->known_as);
    }
    return x;
}

/* A listing is under the Hub's own name, the Hub's word under the name that was asked for. */
static bool has_word(const struct repo_index *x)
{
    for (const struct repo_index_doc *d = x->docs; d != NULL; d = d->next) {
        if (!d->listing) {
            return true;
        }
    }
    return false;
}

int repo_indexes_ask(struct repo_indexes *h, struct slice type, struct slice id,
                     struct repo_index **out, struct err *e)
{
    int rc = read_rows(h, type, id, e);

    learn_all(h);
    *out = spelled(h, type, id);
    if (rc == 0 && *out != NULL && !slice_eq((*out)->id, id)) {
        rc = read_rows(h, type, (*out)->id, e); /* its files are with that name */
        learn_all(h);
    }
    if (rc == 0 && (*out == NULL || !has_word(*out))) { /* asked for by yet another */
        repo_indexes_free(h);
        *h = REPO_INDEXES_OF(h->view);
        rc = read_rows(h, SLICE_NONE, SLICE_NONE, e);
        learn_all(h);
        *out = spelled(h, type, id);
    }
    if (rc == 0 && (*out == NULL || ((*out)->docs == NULL && !h->view->all))) {
        *out = NULL;
        rc = err_set(e, E_NOTFOUND,
                     "this mirror does not know " SLICE_FMT
                     " in repo %s, because no client has requested it yet; see `mirrorctl hf ls`",
                     SLICE_ARG(id), h->view->r->name);
    }
    return rc;
}

/* --- listings --------------------------------------------------------------------------------- */

/* Of one listing, as plan/paged_fetch.h calls its parts, each with the caller's mark behind it. */
static int each_part(const struct repo_indexes *h, const struct repo_index_doc *d,
                     int (*each)(void *arg, const struct paged_fetch_part *p, struct err *e),
                     void *arg, struct err *e)
{
    struct buf row_key = BUF_INIT(OBJECT_KEY_MAX), row = BUF_INIT(OBJECT_ROW_MAX),
               doc = BUF_INIT(DOC_BYTES);
    struct slice principal = d->row_key;
    struct slice key = slice_cut(&principal, '\0');
    struct store *s = h->view->hub->store;
    struct paged_fetch_part p = {.last = false};
    struct arena a = {0};
    int rc = 0;

    for (unsigned i = 0; rc == 0 && !p.last && i < PAGED_FETCH_PARTS_MAX; i++) {
        struct object o;
        buf_clear(&row_key);
        buf_clear(&doc);
        object_key(&row_key, slice_str(h->view->r->name), part_key(key, i, &a), principal);
        rc = store_get(s, TABLE_OBJECT, buf_slice(&row_key), &row, e);
        rc = rc != 0 ? rc : kept_read(s, buf_slice(&row), &a, &o, &doc, e);
        if (rc == 0) {
            p.doc = buf_slice(&doc);
            p.url = o.url;
            p.first = i == 0;
            p.last = weblink_next(object_field(&o, "link")).p == NULL;
            rc = each(arg, &p, e);
        }
        arena_reset(&a);
    }
    arena_fini(&a);
    buf_free(&row_key);
    buf_free(&row);
    buf_free(&doc);
    return rc;
}

int repo_index_listing(const struct repo_indexes *h, const struct repo_index *x,
                       struct slice commit,
                       int (*each)(void *arg, const struct paged_fetch_part *p, struct err *e),
                       void *arg, struct err *e)
{
    int rc = err_set(e, E_NOTFOUND, "there is no listing of commit %.40s on this mirror", commit.p);

    for (const struct repo_index_doc *d = x->docs; d != NULL && rc != 0; d = d->next) {
        if (d->listing && slice_eq(d->rev, commit)) {
            rc = each_part(h, d, each, arg, e);
        }
    }
    return rc;
}

static int add_index_part(void *arg, const struct paged_fetch_part *p, struct err *e)
{
    struct buf *bytes = arg;

    if (p->first) {
        buf_clear(bytes);
    }
    return manifest_add(p->doc, p->url, p->first, p->last, bytes, e);
}

static int read_manifest(struct repo_indexes *h, const struct repo_index *x, struct slice commit,
                         struct buf *bytes, struct manifest *out, struct err *e)
{
    int rc;

    *bytes = BUF_INIT(MANIFEST_BYTES);
    rc = repo_index_listing(h, x, commit, add_index_part, bytes, e);
    if (rc == 0 && !manifest_open(buf_slice(bytes), out)) {
        rc = err_set(e, E_CORRUPT, "the listing of commit %.40s cannot be parsed", commit.p);
    }
    if (rc != 0) {
        buf_free(bytes);
    }
    return rc;
}

const struct repo_index_doc *repo_index_word(const struct repo_index *x, struct slice rev)
{
    const struct repo_index_doc *best = NULL;

    for (const struct repo_index_doc *d = x->docs; d != NULL; d = d->next) {
        bool meant = (d->rev.p == NULL ? slice_eqs(rev, "main") : slice_eq(d->rev, rev)) ||
                     slice_eq(d->commit, rev);
        if (!d->listing && d->understood && meant &&
            (best == NULL || d->asked_unix_s > best->asked_unix_s)) {
            best = d;
        }
    }
    return best;
}

static enum inventory_state state_of(const struct repo_index *blobs, const struct manifest_entry *f,
                                     uint64_t *have_bytes)
{
    char room[ETAG_HEX + 1];
    struct slice etag = key_etag(f, room);
    struct repo_index_blob *b = NULL;

    if (blobs != NULL) {
        HASH_FIND(hh, blobs->blobs, etag.p, etag.n, b);
    }
    *have_bytes = b != NULL ? min_u64(b->have_bytes, f->size_bytes) : 0;
    if (f->size_bytes == 0) { /* nothing is missing of it */
        return INVENTORY_WHOLE;
    }
    return b == NULL ? INVENTORY_ABSENT : b->whole ? INVENTORY_WHOLE : INVENTORY_PARTIAL;
}

/* --- revisions of one home -------------------------------------------------------------------- */

struct revisions {
    struct inventory_revision *at;
    size_t count;
};

static struct inventory_revision *find_revision(struct revisions *all, struct slice name,
                                                struct slice commit)
{
    for (size_t i = 0; i < all->count; i++) {
        if (name.n != 0 ? slice_eq(all->at[i].name, name) : slice_eq(all->at[i].commit, commit)) {
            return &all->at[i];
        }
    }
    return NULL;
}

static void add_revision(struct revisions *all, struct slice name, struct slice commit,
                         uint64_t asked)
{
    struct inventory_revision *x = find_revision(all, name, commit);

    if (x == NULL) {
        all->at[all->count++] =
            (struct inventory_revision){.name = name, .commit = commit, .asked_unix_s = asked};
    } else if (name.n != 0 && asked > x->asked_unix_s) {
        x->commit = commit;
        x->asked_unix_s = asked;
    }
}

/* main, the other names, then commits that no name stands for: asked for last in front. */
static int compare_revision_names(const void *a, const void *b)
{
    const struct inventory_revision *x = a, *y = b;

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

static struct slice branch_of(const struct repo_index_doc *d)
{
    return d->rev.p == NULL ? SLICE("main") : hf_is_commit(d->rev) ? SLICE("") : d->rev;
}

/* By `cache pin`, all that it has. */
static bool all_pinned(const struct repo_indexes *h, const struct repo_index *x)
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

static void mark(struct repo_indexes *h, const struct repo_index *x, struct revisions *all)
{
    bool pinned = all_pinned(h, x);

    for (size_t i = 0; i < all->count; i++) {
        struct inventory_revision *r = &all->at[i];
        const struct held_branch *b =
            r->name.n != 0 ? held_find(h->view->r->state, x->type, x->id, r->name) : NULL;
        if (b != NULL) {
            r->upstream = r->commit;
            r->commit = arena_copy(&h->arena, b->commit);
            r->held = true;
        }
    }
    for (size_t i = 0; i < all->count; i++) {
        struct inventory_revision *r = &all->at[i];
        r->pinned = pinned || pinning_has(h->view->hub->store, slice_str(h->view->r->name), x->type,
                                          x->id, r->commit);
    }
}

static struct revisions revisions_of(struct repo_indexes *h, const struct repo_index *x)
{
    struct arena *a = &h->arena;
    struct revisions all = {0};
    size_t room = 0;

    for (const struct repo_index_doc *d = x->docs; d != NULL; d = d->next) {
        room++;
    }
    all.at = arena_alloc(a, (room + 1) * sizeof all.at[0]);
    for (const struct repo_index_doc *d = x->docs; d != NULL; d = d->next) {
        if (!d->listing && d->understood && branch_of(d).n != 0) {
            add_revision(&all, branch_of(d), d->commit, d->asked_unix_s);
        }
    }
    for (const struct repo_index_doc *d = x->docs; d != NULL; d = d->next) {
        if (d->listing || (d->understood && branch_of(d).n == 0)) {
            add_revision(&all, SLICE(""), d->listing ? d->rev : d->commit, d->asked_unix_s);
        }
    }
    if (all.count > 1) {
        qsort(all.at, all.count, sizeof all.at[0], compare_revision_names);
    }
    mark(h, x, &all);
    return all;
}

/* --- a commit's files ------------------------------------------------------------------------- */

struct walk {
    struct inventory_sum *sum;
    int (*each)(void *arg, const struct inventory_file *f);
    void *arg;
};

static int walk_files(const struct manifest *m, const struct repo_index *blobs, struct walk *w)
{
    int rc = 0;

    w->sum->known = true;
    for (size_t i = 0; rc == 0 && i < m->count; i++) {
        struct manifest_entry f;
        struct inventory_file out;
        manifest_at(m, i, &f);
        if (f.folder) {
            continue;
        }
        out = (struct inventory_file){.path = f.path,
                                      .size_bytes = f.size_bytes,
                                      .lfs = f.lfs,
                                      .sha256 = f.sha256,
                                      .oid = f.oid};
        out.state = state_of(blobs, &f, &out.have_bytes);
        w->sum->files++;
        w->sum->bytes += f.size_bytes;
        w->sum->files_here += out.state == INVENTORY_WHOLE;
        w->sum->bytes_here += out.have_bytes;
        rc = w->each != NULL ? w->each(w->arg, &out) : 0;
    }
    return rc;
}

static int sum_up_revision(struct repo_indexes *h, const struct repo_index *x, struct slice commit,
                           struct walk *w, struct err *e)
{
    struct buf bytes = BUF_INIT(0);
    struct manifest m;
    int rc = read_manifest(h, x, commit, &bytes, &m, e);

    if (rc == 0) {
        const struct repo_index *blobs = m.id.n != 0 ? find_repo_index(h, x->type, m.id) : x;
        rc = walk_files(&m, blobs, w);
    }
    buf_free(&bytes);
    return rc;
}

/* For tables: a listing that is not here leaves the sum unknown. */
static void sum_only(struct repo_indexes *h, const struct repo_index *x,
                     struct inventory_revision *r)
{
    struct walk w = {.sum = &r->sum};
    struct err unused;

    if (sum_up_revision(h, x, r->commit, &w, &unused) != 0) {
        r->sum = (struct inventory_sum){0};
    }
}

/* --- all of them ------------------------------------------------------------------------------ */

static void describe_repo_index(struct repo_indexes *h, const struct repo_index *x,
                                struct inventory_repo *out)
{
    struct revisions all = revisions_of(h, x);

    *out = (struct inventory_repo){.kind = INVENTORY_PULLED,
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

static int in_order(struct repo_index *a, struct repo_index *b)
{
    return slice_cmp(a->name, b->name);
}

static int each_repo(const struct inventory_view *v, struct slice prefix,
                     int (*each)(void *arg, const struct inventory_repo *x), void *arg,
                     struct err *e)
{
    struct repo_indexes h = REPO_INDEXES_OF(v);
    struct repo_index *x, *next;
    int rc = read_rows(&h, SLICE_NONE, SLICE_NONE, e);

    learn_all(&h);
    HASH_SORT(h.by_name, in_order);
    HASH_ITER(hh, h.by_name, x, next)
    {
        struct inventory_repo out;
        if (rc != 0 || x->known_as.n != 0 || (x->docs == NULL && !v->all) ||
            !inventory_shown(x->type, x->id, prefix)) {
            continue;
        }
        describe_repo_index(&h, x, &out);
        rc = each(arg, &out);
    }
    repo_indexes_free(&h);
    return rc;
}

static int each_revision(const struct inventory_view *v, struct slice type, struct slice id,
                         int (*each)(void *arg, const struct inventory_revision *x), void *arg,
                         struct err *e)
{
    struct repo_indexes h = REPO_INDEXES_OF(v);
    struct repo_index *x = NULL;
    int rc = repo_indexes_ask(&h, type, id, &x, e);

    if (rc == 0) {
        struct revisions all = revisions_of(&h, x);
        for (size_t i = 0; rc == 0 && i < all.count; i++) {
            sum_only(&h, x, &all.at[i]);
            rc = each(arg, &all.at[i]);
        }
    }
    repo_indexes_free(&h);
    return rc;
}

/* --- one -------------------------------------------------------------------------------------- */

static const struct inventory_revision *choose_revision(const struct revisions *all,
                                                        struct slice rev)
{
    for (size_t i = 0; i < all->count; i++) {
        const struct inventory_revision *x = &all->at[i];
        if (slice_eq(x->name, rev) || (rev.n >= SHORT_COMMIT && slice_starts(x->commit, rev))) {
            return x;
        }
    }
    return NULL;
}

static int each_file(const struct inventory_view *v, struct slice type, struct slice id,
                     struct slice rev, struct arena *a, struct inventory_revision *about,
                     int (*each)(void *arg, const struct inventory_file *f), void *arg,
                     struct err *e)
{
    struct repo_indexes h = REPO_INDEXES_OF(v);
    struct walk w = {&about->sum, each, arg};
    const struct inventory_revision *x;
    struct revisions all;
    struct repo_index *repo_index = NULL;
    int rc = repo_indexes_ask(&h, type, id, &repo_index, e);

    if (rc != 0) {
        goto out;
    }
    all = revisions_of(&h, repo_index);
    x = choose_revision(&all, rev);
    if (x == NULL) {
        rc = err_set(e, E_NOTFOUND,
                     "no revision \"" SLICE_FMT "\" of " SLICE_FMT
                     " is known here, because no client has requested it; see `mirrorctl hf show "
                     "%s " SLICE_FMT "`",
                     SLICE_ARG(rev), SLICE_ARG(repo_index->id), v->r->name,
                     SLICE_ARG(repo_index->id));
        goto out;
    }
    about->name = arena_copy(a, x->name);
    about->commit = arena_copy(a, x->commit);
    about->upstream = arena_copy(a, x->upstream);
    about->asked_unix_s = x->asked_unix_s;
    about->held = x->held;
    about->pinned = x->pinned;
    rc = sum_up_revision(&h, repo_index, x->commit, &w, e);
    if (rc == E_NOTFOUND) {
        err_set(e, rc,
                "the listing of " SLICE_FMT
                " at %.40s is not here, because no client has requested its files yet; run "
                "`mirrorctl hf prefetch` to fetch it",
                SLICE_ARG(repo_index->id), about->commit.p);
    }
out:
    repo_indexes_free(&h);
    return rc;
}

static int pulled_id(const struct inventory_view *v, struct slice type, struct slice id,
                     struct arena *a, struct slice *out, struct err *e)
{
    struct repo_indexes h = REPO_INDEXES_OF(v);
    struct repo_index *x = NULL;
    int rc = repo_indexes_ask(&h, type, id, &x, e);

    if (rc == 0) {
        *out = arena_copy(a, x->id);
    }
    repo_indexes_free(&h);
    return rc;
}

const struct inventory_ops inventory_pulled = {each_repo, each_revision, each_file, pulled_id};
