/* profile.c - a conda channel's gate: each repodata of a subdirectory, in whatever packing, names
 * only what is there. What else speaks of packages (run_exports.json, channeldata.json,
 * repodata_from_packages.json) vouches for no file. */
#include "server/sync/closure.h"
#include "server/repo/conda/repodata.h"

struct reading {
    struct closure *x;
    struct slice index, folder;
    struct buf path;
};

static struct slice plain_conda_name(struct slice path)
{
    struct slice name;

    packing_of(closure_name_of(path, NULL), &name);
    return name;
}

static bool is_read(struct slice path)
{
    struct slice name = plain_conda_name(path);

    return slice_eqs(name, "repodata.json") || slice_eqs(name, "current_repodata.json") ||
           slice_eqs(name, "repodata_shards.msgpack");
}

static unsigned conda_profile_rank(struct slice path)
{
    static const char *const names[] = {"repodata_from_packages.json", "run_exports.json",
                                        "patch_instructions.json", "index.html"};
    struct slice name = plain_conda_name(path);

    if (slice_eqs(name, "channeldata.json")) {
        return 2;
    }
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        if (slice_eqs(name, names[i])) {
            return 1;
        }
    }
    return is_read(path) ? 1 : 0;
}

static int on_conda_closure_file(void *arg, const struct repodata_file *f, struct err *e)
{
    struct reading *r = arg;

    buf_clear(&r->path);
    buf_adds(&r->path, r->folder);
    buf_adds(&r->path, f->name);
    return closure_names(r->x, r->index, buf_slice(&r->path), f->size_bytes, &f->sum, e);
}

static int feed_conda_closure(void *arg, struct slice bytes, struct err *e)
{
    return repodata_feed(arg, bytes, e);
}

static int check_index(struct closure *x, const struct closure_file *f, struct err *e)
{
    struct reading r = {.x = x, .index = f->path, .path = BUF_INIT(8192)};
    struct repodata_events ev = {.on_file = on_conda_closure_file, .arg = &r};
    struct repodata *p;
    int rc;

    if (slice_eqs(plain_conda_name(f->path), "repodata_shards.msgpack")) {
        closure_report(x)->unread++;
        return 0;
    }
    closure_name_of(f->path, &r.folder);
    p = repodata_open(&ev);
    rc = pieces_read(closure_store(x), &f->digest, packing_of(f->path, NULL), feed_conda_closure, p,
                     e);
    rc = rc != 0 ? rc : repodata_finish(p, e);
    repodata_close(&p);
    buf_free(&r.path);
    closure_report(x)->indexes += rc == 0;
    return rc;
}

static int check_conda_closure(struct closure *x, struct err *e)
{
    return closure_each(x, is_read, check_index, e);
}

const struct profile profile_conda = {"conda", conda_profile_rank, check_conda_closure};
