/* hf.c - repositories of a Hub, each at a revision: one question tells what the revision stands
 * for, pages list what the commit has. What is listed lies where server/repo/hf/synced.h says. A
 * commit is had whole or not at all. */
#include <inttypes.h>
#include <stdlib.h>

#include "common/codec/url.h"
#include "server/repo/hf/synced.h"
#include "server/store/tree.h"
#include "server/sync/http/http_engine.h"

struct hub_repo {
    struct hub_lister *all;
    const char *asked; /* as the setting says it */
    struct hf_spec spec;
    struct doc *doc;
    bool known; /* info and commit are */
    char *id;   /* canonical */
    char *commit;
    char *folder; /* in the tree */
    struct buf info, tree, manifest;
    unsigned pages;
};

struct hub_lister {
    struct http_engine *g;
    struct hub_repo *repo;
    size_t count, next, done;
    unsigned busy;
    bool over;
    void (*each)(struct hub_repo *r); /* what is asked of each */
    void (*then)(struct hub_lister *l);
    void (*failed)(struct hub_lister *l, int rc, const struct err *why);
    struct digest before; /* probe: what it was */
    uint64_t made_bytes;
};

/* --- entries of a repository ---
 *
 * What is known of a Hub's repositories as entries of the tree: their files and documents, links
 * from other names; and where the bytes of each are.
 */

enum { /* kinds of `ref`, above the bits of http_engine.h; the repository's index from bit 8 on */
       REF_INFO = 1 << 4,
       REF_TREE = 2 << 4,
       REF_FILE = 3 << 4,
       REF_KIND = 0xf0,
};

static int give_hub_entry(struct hub_repo *r, const char *below, struct slice more,
                          struct sync_entry *en, uint64_t kind)
{
    struct buf path = BUF_INIT(8192);
    struct hub_lister *l = r->all;
    int rc = 0;

    buf_addf(&path, "%s/%s", r->folder, below);
    buf_adds(&path, more);
    en->type = SYNC_FILE;
    en->path = buf_slice(&path);
    en->mtime_ns = SYNC_TIME_UNKNOWN;
    en->ref = (uint64_t)(r - l->repo) << 8 | kind;
    if (path.rc != 0 || !tree_path_valid(en->path)) {
        rc = err_set(&l->g->why, E_UNSUPPORTED, "it has a file with an invalid path");
    }
    rc = rc != 0 ? rc : l->g->ev.on_entry(l->g->arg, en);
    buf_free(&path);
    return rc;
}

static int give_made_hub_file(struct hub_repo *r, const char *name, const struct buf *made,
                              uint64_t kind)
{
    struct sync_entry en = {.size_bytes = made->n, .digest_known = true};

    digest_of(buf_slice(made), &en.digest);
    return give_hub_entry(r, name, SLICE(""), &en, kind);
}

static int give_files(struct hub_repo *r)
{
    struct manifest m;
    int rc = 0;

    if (!manifest_open(buf_slice(&r->manifest), &m)) {
        return err_set(&r->all->g->why, E_PROTOCOL, "its listing cannot be parsed");
    }
    for (size_t i = 0; rc == 0 && i < m.count; i++) {
        struct manifest_entry f;
        char oid[GIT_OID_HEX + 1];
        manifest_at(&m, i, &f);
        if (f.folder) {
            continue;
        }
        git_oid_format(&f.oid, oid);
        rc = give_hub_entry(r, "files/", f.path,
                            &(struct sync_entry){.size_bytes = f.size_bytes,
                                                 .digest_known = f.lfs,
                                                 .digest = f.sha256,
                                                 .validator = f.lfs ? SLICE_NONE : slice_str(oid)},
                            REF_FILE);
    }
    return rc;
}

static bool is_listed(void *arg, struct slice path, bool folder, uint64_t size_bytes)
{
    const struct manifest *m = arg;
    struct manifest_entry unused;

    (void)folder;
    (void)size_bytes;
    return manifest_find(m, path, &unused);
}

/* The Hub's word on the revision names all files; what was left out of the listing goes there
 * too. */
static int file_filter_info(struct hub_repo *r, struct err *e)
{
    struct buf out = BUF_INIT(r->info.max);
    struct manifest m;
    int rc;

    if (r->all->g->site->file_filter == NULL) {
        return 0;
    }
    if (!manifest_open(buf_slice(&r->manifest), &m)) {
        return err_set(e, E_PROTOCOL, "its listing cannot be parsed");
    }
    rc = json_filter(buf_slice(&r->info), is_listed, &m, &out, e);
    buf_free(&r->info);
    r->info = out;
    return rc;
}

/* All entries of a repository whose commit is listed; frees its manifest. Trouble is in g->why. */
static int hf_give_repo(struct hub_repo *r)
{
    int rc = file_filter_info(r, &r->all->g->why);

    rc = rc != 0 ? rc : give_made_hub_file(r, "info.json", &r->info, REF_INFO);
    rc = rc != 0 ? rc : give_made_hub_file(r, "tree.json", &r->tree, REF_TREE);
    rc = rc != 0 ? rc : give_files(r);
    buf_free(&r->manifest);
    return rc;
}

/* --- links: commits, other spellings ---------------------------------------------------------- */

static int give_link(struct hub_lister *l, const struct hub_repo *r, struct slice id,
                     struct slice rev)
{
    struct buf path = BUF_INIT(4096), target = BUF_INIT(4096);
    struct sync_entry en = {.type = SYNC_LINK, .mtime_ns = SYNC_TIME_UNKNOWN};
    int rc = 0;

    hf_folder(r->spec.type, id, rev, &path);
    if (!slice_eqs(buf_slice(&path), r->folder)) {
        buf_str(&target, slice_find(id, '/') >= 0 ? "../" : "");
        buf_str(&target, r->folder + r->spec.type.n + 1);
        en.path = buf_slice(&path);
        en.target = buf_slice(&target);
        rc = l->g->ev.on_entry(l->g->arg, &en);
    }
    buf_free(&path);
    buf_free(&target);
    return rc;
}

/* Two revisions may stand for one commit, and both may be listed: the first one gets the link. */
static bool linked_before(const struct hub_lister *l, size_t i)
{
    for (size_t k = 0; k < l->count; k++) {
        const struct hub_repo *a = &l->repo[k], *b = &l->repo[i];
        bool itself = slice_eqs(a->spec.rev, b->commit);
        if ((k < i || itself) && k != i && slice_eq(a->spec.type, b->spec.type) &&
            slice_eq(a->spec.id, b->spec.id) && strcmp(a->commit, b->commit) == 0) {
            return true;
        }
    }
    return false;
}

/* Of all: from each commit, and from each spelling that was asked for, to the folder. */
static int hf_give_links(struct hub_lister *l)
{
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < l->count; i++) {
        const struct hub_repo *r = &l->repo[i];
        bool renamed = !slice_eqs(r->spec.id, r->id);
        if (renamed) {
            rc = give_link(l, r, r->spec.id, r->spec.rev);
        }
        if (rc == 0 && !linked_before(l, i)) {
            rc = give_link(l, r, r->spec.id, slice_str(r->commit));
            rc = rc == 0 && renamed ? give_link(l, r, slice_str(r->id), slice_str(r->commit)) : rc;
        }
    }
    return rc;
}

/* --- where the bytes are ---------------------------------------------------------------------- */

static void hf_source(struct http_engine *g, const struct sync_entry *en, struct source *out)
{
    struct hub_lister *l = g->lister_state;
    struct hub_repo *r = &l->repo[en->ref >> 8];
    struct buf url = BUF_INIT(16384);
    struct slice path;

    out->whole = true;
    switch (en->ref & REF_KIND) {
    case REF_INFO:
        out->bytes = buf_slice(&r->info);
        return;
    case REF_TREE:
        out->bytes = buf_slice(&r->tree);
        return;
    default:
        break;
    }
    path = slice_from(en->path, strlen(r->folder) + strlen("/files/"));
    buf_addf(&url, "%s" SLICE_FMT "%s/resolve/%s/", g->base, SLICE_ARG(r->spec.prefix), r->id,
             r->commit);
    url_encode_path(path, &url);
    out->url = mem_strdup(buf_cstr(&url));
    buf_free(&url);
    out->git_known = !en->digest_known && git_oid_parse(en->validator, &out->git);
}

/* --- hf ---
 *
 * Repositories of a Hub as a list.
 *
 * owns     struct hub_repo its strings and documents, until the engine is closed
 * threads  the run's
 */

enum {
    INFO_BYTES = 16 << 20,
    PAGE_BYTES = 64 << 20,
    MADE_BYTES = 512 << 20, /* documents of all repositories, kept until they are taken */
    PAGES_MAX = 4000,
};

/* --- each repository, so many at once --------------------------------------------------------- */

static void continue_hf_listing(struct hub_lister *l)
{
    while (!l->over && l->busy < l->g->site->parallel && l->next < l->count) {
        l->busy++;
        l->each(&l->repo[l->next++]);
    }
}

static void for_each(struct hub_lister *l, void (*each)(struct hub_repo *r),
                     void (*then)(struct hub_lister *l),
                     void (*failed)(struct hub_lister *l, int rc, const struct err *why))
{
    l->next = l->done = 0;
    l->over = false;
    l->each = each;
    l->then = then;
    l->failed = failed;
    continue_hf_listing(l);
}

static void repo_fails(struct hub_repo *r, int rc, const struct err *why)
{
    struct hub_lister *l = r->all;
    struct err e = *why;

    l->busy--;
    if (l->over) {
        return;
    }
    l->over = true;
    err_prefix(&e, "repository %.160s", r->asked);
    l->failed(l, rc, &e);
}

static void repo_done(struct hub_repo *r)
{
    struct hub_lister *l = r->all;

    l->busy--;
    if (l->over) {
        return;
    }
    if (++l->done == l->count) {
        l->over = true;
        l->then(l);
    } else {
        continue_hf_listing(l);
    }
}

/* --- what a revision stands for --------------------------------------------------------------- */

static int read_hub_repo(struct hub_repo *r, struct slice doc, struct err *e)
{
    struct buf made = BUF_INIT(INFO_BYTES * 2), folder = BUF_INIT(4096);
    struct arena a = {0};
    struct repo_info info;
    int rc = info_make(doc, &made, e);

    if (rc == 0 && !info_read(buf_slice(&made), &info)) {
        rc = err_set(e, E_PROTOCOL, "the Hub's description of it cannot be parsed");
    }
    if (rc == 0) {
        hf_folder(r->spec.type, info.id, r->spec.rev, &folder);
        r->id = mem_strdup(arena_cstr(&a, info.id));
        r->commit = mem_strdup(arena_cstr(&a, info.commit));
        r->folder = mem_strdup(buf_cstr(&folder));
        rc = info_plain(doc, &r->info, e);
        r->known = rc == 0;
    }
    arena_fini(&a);
    buf_free(&folder);
    buf_free(&made);
    return rc;
}

static void on_info(struct doc *d, int rc)
{
    struct hub_repo *r = d->arg;
    struct err why = d->why;

    if (rc == 0) {
        err_clear(&why);
        rc = read_hub_repo(r, buf_slice(&d->body), &why);
    }
    doc_free(&r->doc);
    if (rc != 0) {
        repo_fails(r, rc, &why);
    } else {
        repo_done(r);
    }
}

static void ask_info(struct hub_repo *r)
{
    struct buf path = BUF_INIT(4096);

    buf_addf(&path, "%sapi/" SLICE_FMT "/" SLICE_FMT "/revision/", r->all->g->base,
             SLICE_ARG(r->spec.type), SLICE_ARG(r->spec.id));
    url_encode(r->spec.rev, &path);
    r->doc = doc_ask(r->all->g, buf_cstr(&path), "application/json", INFO_BYTES, on_info, r);
    buf_free(&path);
}

/* All that was asked for, and what it stands for now. */
static void cursor_of(const struct hub_lister *l, struct digest *out)
{
    struct hasher *h = hasher_new_whole();

    for (size_t i = 0; i < l->count; i++) {
        const struct hub_repo *r = &l->repo[i];
        hasher_add(h, r->asked, strlen(r->asked) + 1);
        hasher_add(h, r->folder, strlen(r->folder) + 1);
        hasher_add(h, r->commit, strlen(r->commit) + 1);
    }
    hasher_final(h, out);
    hasher_free(&h);
}

/* --- probe ------------------------------------------------------------------------------------ */

static void probe_then(struct hub_lister *l)
{
    struct digest now;

    cursor_of(l, &now);
    http_probed(l->g, digest_eq(&now, &l->before) ? PROBE_SAME : PROBE_CHANGED);
}

/* The list asks again, and says what is wrong. */
static void probe_failed(struct hub_lister *l, int rc, const struct err *why)
{
    (void)rc;
    (void)why;
    http_probed(l->g, PROBE_UNKNOWN);
}

static struct hub_lister *lister_of(struct http_engine *g)
{
    const struct sync_conf *c = g->site->conf;
    struct hub_lister *l = g->lister_state;

    if (l != NULL) {
        return l;
    }
    l = NEW(struct hub_lister);
    l->g = g;
    l->count = c->repos_count;
    l->repo = mem_array(l->count + 1, sizeof l->repo[0]);
    for (size_t i = 0; i < l->count; i++) {
        struct hub_repo *r = &l->repo[i];
        r->all = l;
        r->asked = c->repos[i];
        r->info = BUF_INIT(INFO_BYTES);
        r->tree = BUF_INIT(MADE_BYTES);
        r->manifest = BUF_INIT(MADE_BYTES);
        CHECK(hf_spec_parse(slice_str(r->asked), &r->spec)); /* the settings were checked */
    }
    g->lister_state = l;
    return l;
}

static void hub_probe(struct http_engine *g, struct slice cursor)
{
    struct hub_lister *l = lister_of(g);

    memset(&l->before, 0, sizeof l->before);
    if (cursor.n == DIGEST_BYTES) {
        memcpy(l->before.b, cursor.p, DIGEST_BYTES);
    }
    for_each(l, ask_info, probe_then, probe_failed);
}

/* --- what a commit has ------------------------------------------------------------------------ */

static void ask_page(struct hub_repo *r, const char *url);

static bool is_wanted_hub_file(void *arg, struct slice path, bool folder, uint64_t size_bytes)
{
    struct file_filter *s = arg;

    return folder ? file_filter_wants_path(s, path, true)
                  : file_filter_wants_below(s, path, size_bytes);
}

static int add_page(struct hub_repo *r, struct doc *d, struct err *e)
{
    struct file_filter *s = r->all->g->site->file_filter;
    struct buf sifted = BUF_INIT(2 * PAGE_BYTES);
    struct slice page = buf_slice(&d->body);
    bool first = r->pages == 0, last = d->next == NULL;
    size_t before = r->tree.n;
    int rc = s != NULL ? json_filter(page, is_wanted_hub_file, s, &sifted, e) : 0;

    page = s != NULL ? buf_slice(&sifted) : page;
    rc = rc != 0 ? rc : manifest_add(page, slice_str(d->final_url), first, last, &r->manifest, e);
    rc = rc != 0 ? rc : json_join(page, first, &r->tree, e);
    r->all->made_bytes += r->tree.n - min_u64(before, r->tree.n);
    if (rc == 0 && (r->all->made_bytes > MADE_BYTES || ++r->pages > PAGES_MAX)) {
        rc = err_set(e, E_TOOBIG,
                     "the listing has more than %d pages, or all listings have more than %d MiB",
                     PAGES_MAX, MADE_BYTES >> 20);
    }
    buf_free(&sifted);
    return rc;
}

static void on_hub_page(struct doc *d, int rc)
{
    struct hub_repo *r = d->arg;
    struct http_engine *g = d->g;
    struct err why = d->why;
    char *next = NULL;

    if (rc == 0) {
        err_clear(&why);
        rc = add_page(r, d, &why);
        next = rc == 0 && d->next != NULL ? mem_strdup(d->next) : NULL;
    }
    doc_free(&r->doc);
    if (rc == 0 && next != NULL) {
        ask_page(r, next);
    } else if (rc == 0) {
        err_clear(&g->why);
        rc = hf_give_repo(r);
        why = g->why;
    }
    if (rc != 0) {
        repo_fails(r, rc, &why);
    } else if (next == NULL) {
        repo_done(r);
    }
    free(next);
}

static void ask_page(struct hub_repo *r, const char *url)
{
    r->doc = doc_ask(r->all->g, url, "application/json", PAGE_BYTES, on_hub_page, r);
}

static void ask_tree(struct hub_repo *r)
{
    struct buf url = BUF_INIT(4096);

    buf_addf(&url, "%sapi/" SLICE_FMT "/%s/tree/%s?recursive=true&expand=false", r->all->g->base,
             SLICE_ARG(r->spec.type), r->id, r->commit);
    ask_page(r, buf_cstr(&url));
    buf_free(&url);
}

/* --- the list --------------------------------------------------------------------------------- */

static void list_failed(struct hub_lister *l, int rc, const struct err *why)
{
    http_listed(l->g, rc, why, NULL);
}

static void trees_then(struct hub_lister *l)
{
    struct http_engine *g = l->g;
    struct engine_listed done = {0};
    struct digest now;
    int rc;

    err_clear(&g->why);
    rc = hf_give_links(l);
    cursor_of(l, &now);
    buf_clear(&g->cursor);
    buf_add(&g->cursor, now.b, DIGEST_BYTES);
    http_listed(g, rc, rc != 0 ? &g->why : NULL, &done);
}

static void infos_then(struct hub_lister *l)
{
    for_each(l, ask_tree, trees_then, list_failed);
}

static void hub_start(struct http_engine *g)
{
    struct hub_lister *l = lister_of(g);
    bool known = true;

    for (size_t i = 0; i < l->count; i++) {
        known = known && l->repo[i].known;
    }
    if (known) { /* the probe has asked */
        infos_then(l);
    } else {
        for_each(l, ask_info, infos_then, list_failed);
    }
}

static void hub_free(struct http_engine *g)
{
    struct hub_lister *l = g->lister_state;

    for (size_t i = 0; l != NULL && i < l->count; i++) {
        struct hub_repo *r = &l->repo[i];
        doc_free(&r->doc);
        buf_free(&r->info);
        buf_free(&r->tree);
        buf_free(&r->manifest);
        free(r->id);
        free(r->commit);
        free(r->folder);
    }
    if (l != NULL) {
        free(l->repo);
        free(l);
        g->lister_state = NULL;
    }
}

const struct lister lister_hf = {"hf", hub_start, hub_free, hub_probe, hf_source};
