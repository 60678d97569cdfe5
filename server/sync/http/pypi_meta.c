/* pypi_meta.c - what a file requires: its metadata, asked for beside it or read out of it, learnt,
 * and applied as often as more is asked of its project. */
#include <inttypes.h>
#include <stdlib.h>

#include "server/repo/python/metadata.h"
#include "server/store/blob.h"
#include "server/sync/http/pypi.h"

static void pypi_wheel_read(struct py_meta *m, int rc, struct err *why);

/* --- metadata out of a wheel ---
 *
 * What a wheel requires, where the index has no metadata beside it: read out of the wheel itself, a
 * few ranges of it, or all of it where the upstream knows none.
 */

enum {
    WHOLE_BYTES = 32 << 20, /* each of those under way is in memory */
    PROBE_BYTES = 64 << 10, /* the size is not known: many have no more */
};

/* Dependencies may differ between platforms, and hardly ever between Pythons of one platform. */
static bool alike(const struct py_file *a, const struct py_file *b)
{
    return a->dist.wheel && b->dist.wheel && slice_eq(a->dist.platform, b->dist.platform) &&
           pyversion_cmp(&a->dist.version, &b->dist.version) == 0;
}

static bool untold_wheel(const struct py_file *f)
{
    return f->chosen && f->dist.wheel && f->metadata.p == NULL;
}

/* Whose METADATA stands for f's: the smallest chosen one of its version and platform, or the one
 * that was read. */
static struct py_file *pypi_wheel_of(struct py_project *p, struct py_file *f)
{
    struct py_file *best = f;

    for (size_t i = 0; i < p->files; i++) {
        struct py_file *o = &p->file[i];
        if (!untold_wheel(o) || !alike(o, f)) {
            continue;
        }
        if (o->meta != NULL) {
            return o;
        }
        if (o->size_bytes < best->size_bytes) { /* not known is most */
            best = o;
        }
    }
    return best;
}

/* --- out of what an earlier run brought ------------------------------------------------------- */

/* True: the wheel is here already, and m->bytes are its METADATA. */
static bool pypi_wheel_have(struct py_meta *m)
{
    struct blob *b = NULL;
    struct buf part = BUF_INIT(WHOLE_BYTES);
    struct wheel w;
    uint64_t first, end;
    int rc;

    if (!m->file->digest_known ||
        blob_open(m->project->l->g->site->store, &m->file->digest, &b, NULL) != 0) {
        return false;
    }
    wheel_begin(&w, m->project->name, blob_size_bytes(b));
    rc = blob_size_bytes(b) != 0 ? 0 : E_INVALID;
    while (rc == 0 && wheel_wants(&w, &first, &end)) {
        size_t n = (size_t)(end - first);
        char *room = buf_room(&part, n + 1);
        rc = room != NULL ? blob_read(b, first, room, n, NULL) : E_TOOBIG;
        rc = rc != 0 ? rc : wheel_feed(&w, first, slice_of(room, n), &m->bytes, NULL);
    }
    buf_free(&part);
    blob_release(&b);
    return rc == 0;
}

/* --- asking ----------------------------------------------------------------------------------- */

static void request_pypi_metadata(struct py_meta *m);

/* 0 and not done: more is to be asked for. */
static int take_metadata_part(struct py_meta *m, struct doc *d, struct err *e)
{
    struct wheel *w = &m->wheel;
    bool begun = w->size_bytes != 0;
    uint64_t end = d->first + d->body.n;

    if (d->total == LENGTH_UNKNOWN || d->total == 0) {
        return err_set(e, E_INVALID, "the upstream does not report its size");
    }
    if (begun && d->total != w->size_bytes) {
        return err_set(e, E_CORRUPT, "it has %" PRIu64 " bytes, but %" PRIu64 " were announced",
                       d->total, w->size_bytes);
    }
    if (!begun) {
        wheel_begin(w, m->project->name, d->total);
    }
    if (d->first > w->first || w->end > end) {
        return !begun ? 0 : err_set(e, E_PROTOCOL, "the upstream sent less than was requested");
    }
    return wheel_feed(w, d->first, buf_slice(&d->body), &m->bytes, e);
}

static int take_whole(struct py_meta *m, struct doc *d, struct err *e)
{
    struct digest got;
    int rc;

    if (m->file->digest_known) {
        digest_of(buf_slice(&d->body), &got);
        if (!digest_eq(&got, &m->file->digest)) {
            return err_set(e, E_CORRUPT, "its SHA-256 does not match the announced one");
        }
    }
    wheel_begin(&m->wheel, m->project->name, d->body.n);
    rc = wheel_feed(&m->wheel, 0, buf_slice(&d->body), &m->bytes, e);
    CHECK(rc != 0 || m->wheel.step == WHEEL_DONE);
    return rc;
}

static void on_metadata_part(struct doc *d, int rc)
{
    struct py_meta *m = d->arg;
    struct err why = d->why;

    m->asked_bytes += d->body.n;
    if (rc == 0) {
        err_clear(&why);
        rc = d->status == 206 ? take_metadata_part(m, d, &why) : take_whole(m, d, &why);
    } else if (rc == E_NOTFOUND) {
        rc = err_set(&why, E_AGAIN, "the upstream answers %d", d->status);
    } else if (rc == E_TOOBIG) {
        err_set(&why, rc,
                "the upstream does not support range requests, and the file is larger than %d MiB",
                WHOLE_BYTES >> 20);
    }
    doc_free(&m->doc);
    if (rc == 0 && m->wheel.step != WHEEL_DONE) {
        request_pypi_metadata(m);
    } else {
        pypi_wheel_read(m, rc, &why);
    }
}

static void request_pypi_metadata(struct py_meta *m)
{
    struct doc_want want = {.url = m->file->url.p,
                            .via = m->project->url,
                            .max_bytes = WHOLE_BYTES,
                            .end = PROBE_BYTES};
    bool more = m->wheel.size_bytes == 0 || wheel_wants(&m->wheel, &want.first, &want.end);

    CHECK(more);
    m->doc = doc_open(m->project->l->g, &want, on_metadata_part, m);
}

/* ends with pypi_wheel_read() */
static void pypi_wheel_ask(struct py_meta *m)
{
    uint64_t size = m->file->size_bytes;

    wheel_begin(&m->wheel, m->project->name, size != LENGTH_UNKNOWN ? size : 0);
    request_pypi_metadata(m);
}

enum {
    META_BYTES = 4 << 20,
    META_KEPT = 64 << 20, /* of all; what is beyond is fetched once more */
    SAID_MAX = 50,        /* wheels that were read */
};

int pypi_meta_apply(struct py_meta *m, struct err *e)
{
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < m->count; i++) {
        rc = pypi_require(m->project->l, &m->needs[i], m->project->envs, m->project, e);
    }
    return rc;
}

static struct py_meta *meta_new(struct py_project *p, struct py_file *f)
{
    struct py_meta *m = NEW(struct py_meta);

    m->project = p;
    m->file = f;
    m->bytes = BUF_INIT(META_BYTES + 1);
    f->meta = m;
    list_push_back(&p->l->unread, &m->node);
    return m;
}

/* Nothing lies beside it: one of its version and platform is read. */
static void want_inside(struct py_project *p, struct py_file *f)
{
    struct py_file *of = pypi_wheel_of(p, f);

    if (of->meta == NULL) {
        meta_new(p, of)->inside = true;
    }
    f->meta = of->meta;
}

/* A file that is new here: what does it require? Wheels of one version mostly say the same, in the
 * same bytes. */
static void want_beside(struct py_project *p, struct py_file *f)
{
    struct digest d;
    struct slice hex = f->metadata;
    bool known = slice_starts(hex, SLICE("sha256=")) && digest_parse(slice_from(hex, 7), &d);

    LIST_EACH (&p->metas, it) {
        struct py_meta *m = LIST_ITEM(it, struct py_meta, node);
        if (known && m->digest_known && digest_eq(&m->digest, &d)) {
            f->meta = m;
            return;
        }
    }
    (void)meta_new(p, f);
    f->meta->digest_known = known;
    if (known) {
        f->meta->digest = d;
    }
}

void pypi_meta_want(struct py_project *p, struct py_file *f)
{
    if (f->metadata.p != NULL) {
        want_beside(p, f);
    } else if (f->dist.wheel) {
        want_inside(p, f);
    }
}

struct lines {
    struct py_lister *l;
    const struct py_file *file;
    struct requirement *all;
    size_t n, room;
};

static int on_requires(void *arg, struct slice requirement, struct err *e)
{
    struct lines *x = arg;
    struct requirement r;
    bool left = false;

    if (pypi_read_requirement(x->l, requirement, &r, &left, e) != 0) {
        /* One package's bad word is no reason to mirror none of the others. */
        pypi_say(x->l, "%.100s: left out: %s", arena_cstr(&x->l->arena, x->file->name), e->text);
        err_clear(e);
        left = true;
    }
    if (left) {
        return 0;
    }
    if (x->n == x->room) {
        x->room = x->room != 0 ? 2 * x->room : 16;
        x->all = realloc(x->all, x->room * sizeof x->all[0]);
        CHECK(x->all != NULL);
    }
    x->all[x->n++] = r;
    return 0;
}

/* bytes: of m->bytes. */
int pypi_meta_learn(struct py_meta *m, struct err *e)
{
    struct py_lister *l = m->project->l;
    struct lines x = {.l = l, .file = m->file};
    struct metadata_events ev = {on_requires, &x};
    struct slice name, version;
    int rc = metadata_read(buf_slice(&m->bytes), &ev, &name, &version, e);

    m->needs = x.all;
    m->count = x.n;
    m->read = true;
    if (rc != 0) {
        pypi_say(l, "%.200s: %s", arena_cstr(&l->arena, m->file->name), e->text);
        err_clear(e);
    }
    if (!m->digest_known) {
        digest_of(buf_slice(&m->bytes), &m->digest);
        m->digest_known = true;
    }
    l->meta_bytes += m->bytes.n;
    if (m->inside || l->meta_bytes > META_KEPT) {
        l->meta_bytes -= m->bytes.n;
        buf_free(&m->bytes);
    }
    list_push_back(&m->project->metas, &m->node);
    return pypi_meta_apply(m, e);
}

/* --- asking ----------------------------------------------------------------------------------- */

static void on_meta(struct doc *d, int rc)
{
    struct py_meta *m = d->arg;
    struct py_lister *l = m->project->l;
    struct err why = d->why;
    struct digest got;

    if (rc == 0) {
        err_clear(&why);
        buf_adds(&m->bytes, buf_slice(&d->body));
        digest_of(buf_slice(&d->body), &got);
        rc = m->digest_known && !digest_eq(&got, &m->digest)
                 ? err_set(&why, E_CORRUPT, "its SHA-256 does not match the announced one")
                 : pypi_meta_learn(m, &why);
    } else if (rc == E_NOTFOUND) {
        /* The page says that it is there: then the file is of no use to clients that believe it. */
        rc = err_set(&why, E_AGAIN, "the upstream answers %d", d->status);
    }
    if (rc != 0) {
        err_prefix(&why, "metadata of %.100s", arena_cstr(&l->arena, m->file->name));
    }
    doc_free(&m->doc);
    pypi_answered(l, rc, &why);
}

/* What an earlier run brought is not asked for again. */
static bool have_beside(struct py_meta *m)
{
    return m->digest_known &&
           blob_read_whole(m->project->l->g->site->store, &m->digest, &m->bytes, NULL) == 0;
}

bool pypi_meta_have(struct py_meta *m)
{
    return m->inside ? pypi_wheel_have(m) : have_beside(m);
}

static void say_inside(const struct py_meta *m)
{
    struct py_lister *l = m->project->l;

    if (l->inside++ < SAID_MAX) {
        pypi_say(l,
                 "no metadata for %.200s: it was read from the wheel (%" PRIu64
                 " bytes requested) and is used for all wheels of its version and platform",
                 arena_cstr(&l->arena, m->file->name), m->asked_bytes);
    }
}

/* With rc E_INVALID, E_TOOBIG, E_UNSUPPORTED its requirements are unknown; any other error ends
 * the run. */
/* Untold: the run goes on, and is held in the end. */
static void pypi_wheel_read(struct py_meta *m, int rc, struct err *why)
{
    struct py_lister *l = m->project->l;

    if (rc == 0) {
        say_inside(m);
        rc = pypi_meta_learn(m, why);
    } else if (rc == E_INVALID || rc == E_TOOBIG || rc == E_UNSUPPORTED) {
        m->untold = arena_cstr(&l->arena, slice_str(why->text));
        pypi_say(l, "what %.200s requires cannot be read: %s", arena_cstr(&l->arena, m->file->name),
                 m->untold);
        rc = 0;
    } else {
        err_prefix(why, "metadata in %.100s", arena_cstr(&l->arena, m->file->name));
    }
    pypi_answered(l, rc, why);
}

/* "x.whl" -> "x.whl.metadata", in front of a query. */
struct slice pypi_meta_url(const struct py_file *f, struct arena *a)
{
    struct slice query = f->url;
    struct slice path = slice_cut(&query, '?');

    return arena_fmt(a, SLICE_FMT ".metadata%s" SLICE_FMT, SLICE_ARG(path),
                     path.n != f->url.n ? "?" : "", SLICE_ARG(query));
}

void pypi_meta_ask(struct py_meta *m)
{
    struct py_lister *l = m->project->l;
    struct doc_want w = {.via = m->project->url, .max_bytes = META_BYTES};

    l->busy++;
    if (m->inside) {
        pypi_wheel_ask(m);
        return;
    }
    w.url = pypi_meta_url(m->file, &l->arena).p;
    m->doc = doc_open(l->g, &w, on_meta, m);
}

void pypi_meta_free(struct py_meta *m)
{
    doc_free(&m->doc);
    buf_free(&m->bytes);
    free(m->needs);
    free(m);
}
