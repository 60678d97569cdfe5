/* conda.c - a conda channel by its own indexes: of each subdirectory the repodata, packed where it
 * is, and the packages that it names, each with its digest before it is fetched. The other forms of
 * the index, and what stands beside it, come as they are; the gate tells whether all speak of one
 * state. */
#include <stdio.h>
#include <stdlib.h>

#include "server/repo/conda/repodata.h"
#include "server/sync/http/http_engine.h"
#include "server/sync/pieces.h"

enum { PATH_ROOM = 8192 };
#define INDEX_BYTES ((uint64_t)2 << 30)

/* Read: the first that is there. */
static const char *const forms[] = {"repodata.json.zst", "repodata.json"};
static const char *const beside[] = {
    "repodata.json",
    "repodata.json.zst",
    "repodata.json.bz2",
    "current_repodata.json",
    "current_repodata.json.zst",
    "current_repodata.json.bz2",
    "current_repodata.json.gz",
    "run_exports.json",
    "run_exports.json.zst",
};

struct conda {
    struct http_engine *g;
    size_t subdir, form;
    struct doc *doc;
    struct buf path, package;
    size_t folder; /* how much of the two is the subdirectory, with its '/' */
};

static void end_conda_listing(struct conda *c, int rc, const struct err *why)
{
    struct engine_listed l = {.digests = true};

    http_listed(c->g, rc, why, &l);
}

static struct slice path_of_conda_file(struct buf *b, size_t folder, struct slice name)
{
    b->n = folder;
    buf_adds(b, name);
    return buf_slice(b);
}

/* --- what an index names --- */

static int on_listed_conda(void *arg, const struct repodata_file *f, struct err *e)
{
    struct conda *c = arg;

    return http_give(c->g, path_of_conda_file(&c->package, c->folder, f->name), f->size_bytes,
                     &f->sum, 0, e);
}

static int feed_conda_repodata(void *arg, struct slice bytes, struct err *e)
{
    return repodata_feed(arg, bytes, e);
}

static int read_packages(struct conda *c, const struct digest *d, struct err *e)
{
    struct repodata_events ev = {.on_file = on_listed_conda, .arg = c};
    struct repodata *r = repodata_open(&ev);
    int rc = pieces_read(c->g->site->store, d, packing_of(slice_str(forms[c->form]), NULL),
                         feed_conda_repodata, r, e);

    rc = rc != 0 ? rc : repodata_finish(r, e);
    repodata_close(&r);
    return rc == E_INVALID ? E_AGAIN : rc; /* maybe it is being written */
}

/* What no index names, and clients ask for. */
static int give_beside(struct conda *c, struct err *e)
{
    static const struct sum unknown = {0};
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < ARRAY_LEN(beside); i++) {
        if (strcmp(beside[i], forms[c->form]) != 0) {
            rc = http_give(c->g, path_of_conda_file(&c->package, c->folder, slice_str(beside[i])),
                           UINT64_MAX, &unknown, REF_OPTIONAL, e);
        }
    }
    if (rc == 0) {
        struct buf up = BUF_INIT(PATH_ROOM);
        struct slice folder = slice_first(buf_slice(&c->package), c->folder - 1);
        buf_adds(&up, slice_first(folder, slice_behind(folder, '/')));
        buf_str(&up, "channeldata.json");
        rc = http_give(c->g, buf_slice(&up), UINT64_MAX, &unknown, REF_OPTIONAL, e);
        buf_free(&up);
    }
    return rc;
}

static int take_index(struct conda *c, const struct doc *d, struct err *e)
{
    struct sum sum = {.kind = SUM_SHA256};
    int rc;

    memcpy(sum.b, keep_digest(d->keep)->b, DIGEST_BYTES);
    heads_note(c->g, buf_slice(&c->path), d->validator);
    rc = http_give(c->g, buf_slice(&c->path), keep_size(d->keep), &sum, 0, e);
    rc = rc != 0 ? rc : read_packages(c, keep_digest(d->keep), e);
    return rc != 0 ? rc : give_beside(c, e);
}

/* --- one subdirectory after the other --- */

static void request_repodata(struct conda *c);

static void request_next_subdir(struct conda *c)
{
    const struct sync_conf *conf = c->g->site->conf;

    if (c->subdir == conf->subdirs_count) {
        end_conda_listing(c, 0, NULL);
        return;
    }
    c->folder = 0;
    path_of_conda_file(&c->path, 0, slice_str(conf->subdirs[c->subdir]));
    buf_byte(&c->path, '/');
    c->folder = c->path.n;
    (void)path_of_conda_file(&c->package, 0, buf_slice(&c->path));
    c->form = 0;
    request_repodata(c);
}

static void on_index(struct doc *d, int rc)
{
    struct conda *c = d->arg;
    struct err why = d->why;

    if ((rc == E_NOTFOUND || rc == E_DENIED) && c->form + 1 < ARRAY_LEN(forms)) {
        doc_free(&c->doc);
        c->form++;
        request_repodata(c);
        return;
    }
    if (rc == 0) {
        err_clear(&why);
        rc = take_index(c, d, &why);
    }
    doc_free(&c->doc);
    if (rc != 0) {
        why.code = rc;
        err_prefix(&why, "%.120s", buf_cstr(&c->path));
        end_conda_listing(c, rc, &why);
        return;
    }
    c->subdir++;
    request_next_subdir(c);
}

static void request_repodata(struct conda *c)
{
    struct doc_want w = {.max_bytes = INDEX_BYTES};
    char *url;

    (void)path_of_conda_file(&c->path, c->folder, slice_str(forms[c->form]));
    url = http_url_of(c->g, buf_slice(&c->path));
    w.url = url;
    w.keep_as = buf_cstr(&c->path);
    c->doc = doc_open(c->g, &w, on_index, c);
    free(url);
}

static void conda_start(struct http_engine *g)
{
    struct conda *c = NEW(struct conda);

    c->g = g;
    c->path = BUF_INIT(PATH_ROOM);
    c->package = BUF_INIT(PATH_ROOM);
    g->lister_state = c;
    heads_begin(g);
    request_next_subdir(c);
}

static void conda_free(struct http_engine *g)
{
    struct conda *c = g->lister_state;

    if (c != NULL) {
        doc_free(&c->doc);
        buf_free(&c->path);
        buf_free(&c->package);
        free(c);
        g->lister_state = NULL;
    }
}

const struct lister lister_conda = {"conda", conda_start, conda_free, heads_probe, NULL};
