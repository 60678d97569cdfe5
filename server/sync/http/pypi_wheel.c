/* pypi_wheel.c - what a wheel requires, where the index has no metadata beside it: read out of the wheel itself, a few ranges of it,
 * or all of it where the upstream knows none. */
#include <inttypes.h>
#include <stdlib.h>

#include "server/store/blob.h"
#include "server/sync/http/pypi.h"

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

struct py_file *pypi_wheel_of(struct py_project *p, struct py_file *f)
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

/* --- out of what an earlier run brought --------------------------------------------------------------------------- */

bool pypi_wheel_have(struct py_meta *m)
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
        rc = rc == 0 ? wheel_feed(&w, first, slice_of(room, n), &m->bytes, NULL) : rc;
    }
    buf_free(&part);
    blob_release(&b);
    return rc == 0;
}

/* --- asking ------------------------------------------------------------------------------------------------------- */

static void ask(struct py_meta *m);

/* 0 and not done: more is to be asked for. */
static int take_part(struct py_meta *m, struct doc *d, struct err *e)
{
    struct wheel *w = &m->wheel;
    bool begun = w->size_bytes != 0;
    uint64_t end = d->first + d->body.n;

    if (d->total == LENGTH_UNKNOWN || d->total == 0) {
        return err_set(e, E_INVALID, "the upstream does not tell its size");
    }
    if (begun && d->total != w->size_bytes) {
        return err_set(e, E_CORRUPT, "it has %" PRIu64 " bytes, %" PRIu64 " were announced",
                       d->total, w->size_bytes);
    }
    if (!begun) {
        wheel_begin(w, m->project->name, d->total);
    }
    if (d->first > w->first || w->end > end) {
        return !begun ? 0 : err_set(e, E_PROTOCOL, "the upstream sent less than it said");
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
            return err_set(e, E_CORRUPT, "its SHA-256 is not the announced one");
        }
    }
    wheel_begin(&m->wheel, m->project->name, d->body.n);
    rc = wheel_feed(&m->wheel, 0, buf_slice(&d->body), &m->bytes, e);
    CHECK(rc != 0 || m->wheel.step == WHEEL_DONE);
    return rc;
}

static void on_part(struct doc *d, int rc)
{
    struct py_meta *m = d->arg;
    struct err why = d->why;

    m->asked_bytes += d->body.n;
    if (rc == 0) {
        err_clear(&why);
        rc = d->status == 206 ? take_part(m, d, &why) : take_whole(m, d, &why);
    } else if (rc == E_NOTFOUND) {
        rc = err_set(&why, E_AGAIN, "the upstream answers %d", d->status);
    } else if (rc == E_TOOBIG) {
        err_set(&why, rc, "the upstream knows no ranges, and it has more than %d MiB",
                WHOLE_BYTES >> 20);
    }
    doc_free(&m->doc);
    if (rc == 0 && m->wheel.step != WHEEL_DONE) {
        ask(m);
    } else {
        pypi_wheel_read(m, rc, &why);
    }
}

static void ask(struct py_meta *m)
{
    struct doc_want want = {.url = m->file->url.p,
                            .via = m->project->url,
                            .max_bytes = WHOLE_BYTES,
                            .end = PROBE_BYTES};
    bool more = m->wheel.size_bytes == 0 || wheel_wants(&m->wheel, &want.first, &want.end);

    CHECK(more);
    m->doc = doc_open(m->project->l->g, &want, on_part, m);
}

void pypi_wheel_ask(struct py_meta *m)
{
    uint64_t size = m->file->size_bytes;

    wheel_begin(&m->wheel, m->project->name, size != LENGTH_UNKNOWN ? size : 0);
    ask(m);
}
