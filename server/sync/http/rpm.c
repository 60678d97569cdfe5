/* rpm.c - an rpm repository by its own indexes: repomd.xml, all that it vouches for, and the
 * packages of its primary index, each with its digest before it is fetched. One repository, or
 * several below the origin, one after the other. */
#include <stdio.h>
#include <stdlib.h>

#include "server/store/blob.h"
#include "server/sync/http/http_engine.h"
#include "server/sync/pieces.h"
#include "server/sync/rpm/repomd.h"

enum { PATH_ROOM = 8192, REPOMD_BYTES = 4 << 20 };
#define INDEX_BYTES ((uint64_t)2 << 30)

static const char *const signatures[] = {"repodata/repomd.xml.asc", "repodata/repomd.xml.key"};

struct rpm {
    struct http_engine *g;
    size_t at; /* of the repositories */
    struct doc *doc;
    struct repomd md;
    struct buf path, package;
    size_t folder; /* how much of the two is the repository, with its '/' */
};

static void end_rpm_listing(struct rpm *x, int rc, const struct err *why)
{
    struct engine_listed l = {.digests = true};

    http_listed(x->g, rc, why, &l);
}

static void fail_rpm_listing(struct rpm *x, int rc, const struct err *why)
{
    struct err e = *why;

    e.code = rc;
    err_prefix(&e, "%.120s", buf_cstr(&x->path));
    doc_free(&x->doc);
    end_rpm_listing(x, rc, &e);
}

static struct slice path_of_rpm_file(struct buf *b, size_t folder, struct slice below)
{
    b->n = folder;
    buf_adds(b, below);
    return buf_slice(b);
}

static int give_rpm_entry(struct rpm *x, struct slice below, uint64_t size_bytes,
                          const struct sum *sum, uint64_t ref, struct err *e)
{
    return http_give(x->g, path_of_rpm_file(&x->package, x->folder, below), size_bytes, sum, ref,
                     e);
}

static int give_kept(struct rpm *x, struct slice below, const struct digest *d, uint64_t size_bytes,
                     struct err *e)
{
    struct sum sum = {.kind = SUM_SHA256};

    memcpy(sum.b, d->b, DIGEST_BYTES);
    return give_rpm_entry(x, below, size_bytes, &sum, 0, e);
}

static void request_rpm_doc(struct rpm *x, struct slice below, uint64_t max_bytes,
                            void (*done)(struct doc *d, int rc))
{
    struct doc_want w = {.max_bytes = max_bytes};
    char *url = http_url_of(x->g, path_of_rpm_file(&x->path, x->folder, below));

    w.url = url;
    w.keep_as = buf_cstr(&x->path);
    x->doc = doc_open(x->g, &w, done, x);
    free(url);
}

static void request_next_repo(struct rpm *x);

/* --- primary --- */

static int on_listed_rpm(void *arg, struct slice path, uint64_t size_bytes, const struct sum *sum,
                         struct err *e)
{
    return give_rpm_entry(arg, path, size_bytes, sum, 0, e);
}

static int feed_rpm_index(void *arg, struct slice bytes, struct err *e)
{
    return primary_feed(arg, bytes, e);
}

static int read_packages(struct rpm *x, const struct digest *d, struct err *e)
{
    struct primary_events ev = {on_listed_rpm, x};
    struct primary *p = primary_open(&ev);
    struct slice path = repomd_find(&x->md, "primary")->path;
    int rc = pieces_read(x->g->site->store, d, packing_of(path, NULL), feed_rpm_index, p, e);

    rc = rc != 0 ? rc : primary_finish(p, e);
    primary_close(&p);
    return rc;
}

/* d: of what is in the store, whatever brought it. */
static void take_primary(struct rpm *x, const struct digest *d, uint64_t size_bytes)
{
    const struct repomd_data *named = repomd_find(&x->md, "primary");
    struct err e = {0};
    struct sum got;
    int rc = pieces_sum(x->g->site->store, d, named->sum.kind, &got, &e);

    if (rc == 0 && !sum_eq(&got, &named->sum)) {
        rc = err_set(&e, E_AGAIN, "its digest does not match the one in repomd.xml");
    }
    rc = rc != 0 ? rc : give_kept(x, named->path, d, size_bytes, &e);
    rc = rc != 0 ? rc : read_packages(x, d, &e);
    if (rc != 0) {
        (void)path_of_rpm_file(&x->path, x->folder, named->path);
        fail_rpm_listing(x, rc, &e);
        return;
    }
    doc_free(&x->doc);
    repomd_free(&x->md);
    x->at++;
    request_next_repo(x);
}

static void on_primary(struct doc *d, int rc)
{
    struct rpm *x = d->arg;

    if (rc == 0) {
        struct digest digest = *keep_digest(d->keep);
        take_primary(x, &digest, keep_size(d->keep));
    } else { /* not there: its repomd.xml has just been replaced */
        fail_rpm_listing(x, rc == E_NOTFOUND ? E_AGAIN : rc, &d->why);
    }
}

/* What some repo holds is not fetched. */
static void ask_primary(struct rpm *x)
{
    const struct repomd_data *named = repomd_find(&x->md, "primary");
    struct blob *b = NULL;
    struct digest d;

    if (sum_digest(&named->sum, &d) && blob_open(x->g->site->store, &d, &b, NULL) == 0) {
        uint64_t size_bytes = blob_size_bytes(b);
        take_primary(x, &d, size_bytes);
        blob_release(&b);
        return;
    }
    request_rpm_doc(x, named->path, INDEX_BYTES, on_primary);
}

/* --- repomd.xml --- */

static int take_repomd(struct rpm *x, const struct doc *d, struct err *e)
{
    static const struct sum unknown = {0};
    struct buf text = BUF_INIT(REPOMD_BYTES);
    int rc = pieces_load(x->g->site->store, keep_digest(d->keep), &text, e);

    if (rc == 0) {
        rc = repomd_read(buf_slice(&text), &x->md, e);
        rc = rc == E_INVALID ? E_AGAIN : rc; /* maybe it is being written */
    }
    buf_free(&text);
    if (rc != 0) {
        return rc;
    }
    heads_note(x->g, buf_slice(&x->path), d->validator);
    rc = give_kept(x, SLICE("repodata/repomd.xml"), keep_digest(d->keep), keep_size(d->keep), e);
    for (size_t i = 0; rc == 0 && i < x->md.count; i++) {
        const struct repomd_data *named = &x->md.data[i];
        if (!slice_eqs(named->type, "primary")) {
            rc = give_rpm_entry(x, named->path, named->size_bytes, &named->sum, 0, e);
        }
    }
    for (size_t i = 0; rc == 0 && i < ARRAY_LEN(signatures); i++) {
        rc = give_rpm_entry(x, slice_str(signatures[i]), UINT64_MAX, &unknown, REF_OPTIONAL, e);
    }
    return rc;
}

static void on_repomd(struct doc *d, int rc)
{
    struct rpm *x = d->arg;
    struct err why = d->why;

    if (rc == 0) {
        err_clear(&why);
        rc = take_repomd(x, d, &why);
    }
    if (rc != 0) {
        fail_rpm_listing(x, rc, &why);
        return;
    }
    doc_free(&x->doc);
    ask_primary(x);
}

/* --- one repository after the other --- */

static void request_next_repo(struct rpm *x)
{
    const struct sync_conf *conf = x->g->site->conf;

    if (x->at == (conf->subdirs_count != 0 ? conf->subdirs_count : 1)) {
        end_rpm_listing(x, 0, NULL);
        return;
    }
    x->path.n = x->package.n = 0;
    if (conf->subdirs_count != 0) {
        buf_str(&x->path, conf->subdirs[x->at]);
        buf_byte(&x->path, '/');
        buf_adds(&x->package, buf_slice(&x->path));
    }
    x->folder = x->path.n;
    request_rpm_doc(x, SLICE("repodata/repomd.xml"), REPOMD_BYTES, on_repomd);
}

static void rpm_start(struct http_engine *g)
{
    struct rpm *x = NEW(struct rpm);

    x->g = g;
    x->path = BUF_INIT(PATH_ROOM);
    x->package = BUF_INIT(PATH_ROOM);
    g->lister_state = x;
    heads_begin(g);
    request_next_repo(x);
}

static void rpm_free(struct http_engine *g)
{
    struct rpm *x = g->lister_state;

    if (x != NULL) {
        doc_free(&x->doc);
        repomd_free(&x->md);
        buf_free(&x->path);
        buf_free(&x->package);
        free(x);
        g->lister_state = NULL;
    }
}

const struct lister lister_rpm = {"rpm", rpm_start, rpm_free, heads_probe, NULL};
