/* profile.c - an rpm repository's gate: what repodata/repomd.xml vouches for is there, and so are
 * the packages of its primary index. Wherever repositories stand in the tree. */
#include "server/sync/closure.h"
#include "server/sync/rpm/repomd.h"

enum { REPOMD_BYTES = 4 << 20 };

struct reading {
    struct closure *x;
    struct slice index, root; /* what stands before "repodata/" */
    struct buf path;
};

static bool is_repomd(struct slice path)
{
    return slice_eqs(path, "repodata/repomd.xml") ||
           slice_ends(path, SLICE("/repodata/repomd.xml"));
}

static unsigned rpm_profile_rank(struct slice path)
{
    struct slice folder;
    struct slice name = closure_name_of(path, &folder);

    if (!slice_eqs(folder, "repodata/") && !slice_ends(folder, SLICE("/repodata/"))) {
        return 0;
    }
    return slice_starts(name, SLICE("repomd.xml")) ? 2 : 1;
}

static int names(struct reading *r, struct slice below, uint64_t size_bytes, const struct sum *sum,
                 struct err *e)
{
    buf_clear(&r->path);
    buf_adds(&r->path, r->root);
    buf_adds(&r->path, below);
    return closure_names(r->x, r->index, buf_slice(&r->path), size_bytes, sum, e);
}

static int on_rpm_closure_file(void *arg, struct slice path, uint64_t size_bytes,
                               const struct sum *sum, struct err *e)
{
    return names(arg, path, size_bytes, sum, e);
}

static int feed_rpm_closure(void *arg, struct slice bytes, struct err *e)
{
    return primary_feed(arg, bytes, e);
}

/* A file that is missing or differs has been reported already. */
static int check_primary(struct reading *r, const struct repomd_data *d, struct err *e)
{
    struct primary_events ev = {on_rpm_closure_file, r};
    struct buf where = BUF_INIT(8192);
    struct closure_file f;
    struct primary *p;
    int rc;

    buf_adds(&where, r->root);
    buf_adds(&where, d->path);
    rc = closure_find(r->x, buf_slice(&where), &f, e);
    if (rc == 0) {
        r->index = f.path;
        p = primary_open(&ev);
        rc = pieces_read(closure_store(r->x), &f.digest, packing_of(f.path, NULL), feed_rpm_closure,
                         p, e);
        rc = rc != 0 ? rc : primary_finish(p, e);
        primary_close(&p);
        closure_report(r->x)->indexes += rc == 0;
    }
    buf_free(&where);
    return rc == E_NOTFOUND ? 0 : rc;
}

static int check_repomd(struct closure *x, const struct closure_file *f, struct err *e)
{
    struct reading r = {.x = x, .index = f->path, .path = BUF_INIT(8192)};
    struct buf text = BUF_INIT(REPOMD_BYTES);
    uint64_t wrong = closure_report(x)->wrong;
    struct repomd m;
    int rc = pieces_load(closure_store(x), &f->digest, &text, e);

    r.root = slice_first(f->path, f->path.n - strlen("repodata/repomd.xml"));
    rc = rc != 0 ? rc : repomd_read(buf_slice(&text), &m, e);
    buf_free(&text);
    if (rc != 0) {
        return rc;
    }
    for (size_t i = 0; rc == 0 && i < m.count; i++) {
        rc = names(&r, m.data[i].path, m.data[i].size_bytes, &m.data[i].sum, e);
    }
    closure_report(x)->indexes++;
    if (rc == 0 && closure_report(x)->wrong == wrong) {
        rc = check_primary(&r, repomd_find(&m, "primary"), e);
    }
    repomd_free(&m);
    buf_free(&r.path);
    return rc;
}

static int check_rpm_closure(struct closure *x, struct err *e)
{
    return closure_each(x, is_repomd, check_repomd, e);
}

const struct profile profile_rpm = {"rpm", rpm_profile_rank, check_rpm_closure};
