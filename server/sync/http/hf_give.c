/* hf_give.c - what is known of a Hub's repositories as entries of the tree: their files and documents, links from other names; and
 * where the bytes of each are. */
#include <inttypes.h>

#include "common/codec/url.h"
#include "server/store/tree.h"
#include "server/sync/http/hf.h"

enum { /* kinds of `ref`, above the bits of http_engine.h; the repository's index from bit 8 on */
       REF_INFO = 1 << 4,
       REF_TREE = 2 << 4,
       REF_FILE = 3 << 4,
       REF_KIND = 0xf0,
};

static int give(struct hub_repo *r, const char *below, struct slice more, struct sync_entry *en,
                uint64_t kind)
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
        rc = err_set(&l->g->why, E_UNSUPPORTED, "it has a path that no tree here can have");
    }
    rc = rc == 0 ? l->g->ev.on_entry(l->g->arg, en) : rc;
    buf_free(&path);
    return rc;
}

static int give_made(struct hub_repo *r, const char *name, const struct buf *made, uint64_t kind)
{
    struct sync_entry en = {.size_bytes = made->n, .digest_known = true};

    digest_of(buf_slice(made), &en.digest);
    return give(r, name, SLICE(""), &en, kind);
}

static int give_files(struct hub_repo *r)
{
    struct manifest m;
    int rc = 0;

    if (!manifest_open(buf_slice(&r->manifest), &m)) {
        return err_set(&r->all->g->why, E_PROTOCOL, "its listing is not understood");
    }
    for (size_t i = 0; rc == 0 && i < m.count; i++) {
        struct manifest_entry f;
        char oid[GIT_OID_HEX + 1];
        manifest_at(&m, i, &f);
        if (f.folder) {
            continue;
        }
        git_oid_format(&f.oid, oid);
        rc = give(r, "files/", f.path,
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

/* The Hub's word on the revision names all files; what was left out of the listing goes there too. */
static int sift_info(struct hub_repo *r, struct err *e)
{
    struct buf out = BUF_INIT(r->info.max);
    struct manifest m;
    int rc;

    if (r->all->g->site->sift == NULL) {
        return 0;
    }
    if (!manifest_open(buf_slice(&r->manifest), &m)) {
        return err_set(e, E_PROTOCOL, "its listing is not understood");
    }
    rc = json_sift(buf_slice(&r->info), is_listed, &m, &out, e);
    buf_free(&r->info);
    r->info = out;
    return rc;
}

int hf_give_repo(struct hub_repo *r)
{
    int rc = sift_info(r, &r->all->g->why);

    rc = rc == 0 ? give_made(r, "info.json", &r->info, REF_INFO) : rc;
    rc = rc == 0 ? give_made(r, "tree.json", &r->tree, REF_TREE) : rc;
    rc = rc == 0 ? give_files(r) : rc;
    buf_free(&r->manifest);
    return rc;
}

/* --- links: commits, other spellings ------------------------------------------------------------------------------ */

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

int hf_give_links(struct hub_lister *l)
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

/* --- where the bytes are ------------------------------------------------------------------------------------------ */

void hf_source(struct http_engine *g, const struct sync_entry *en, struct source *out)
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
