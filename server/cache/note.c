/* note.c - an index that has come whole, read for what it tells of other keys (want.h: want_reader).
 *
 * Its rows are there before its own is, and before the last of its bytes leave: whoever has read it and asks for what it names
 * finds them.
 */

#include <inttypes.h>

#include "common/base/log.h"
#include "common/codec/httpdate.h"
#include "common/os/clock.h"
#include "common/os/newfile.h"
#include "server/cache/cache_priv.h"

enum {
    PIECE_BYTES = 256 << 10,
    ROWS_BYTES = 1 << 20, /* a commit: others wait behind it */
    TOLD_MAX = 4 << 20,   /* of one index: many times what the largest channels name */
};

struct note {
    struct want_rows rows;
    struct fill *fill;
    uint64_t told;
    bool changed;
};

static int keep(struct note *n, struct err *e)
{
    struct fill *f = n->fill;
    struct batch *b = n->rows.batch;
    bool replaces;
    int rc = 0;

    n->rows.batch = batch_new();
    if (batch_sift(b, f->cache->store, f->want.reader->replaces, &replaces)) {
        batch_free(&b);
    } else {
        rc = store_commit(f->cache->store, &b, COMMIT_LAZY, e);
        /* The first word on a file counts for those who had it without any. Shards say little each, and are many. */
        n->changed = n->changed || replaces || f->want.class == WANT_MUTABLE;
    }
    return rc;
}

static int on_told(struct want_rows *rows, struct err *e)
{
    struct note *n = CONTAINER_OF(rows, struct note, rows);

    if (n->told == TOLD_MAX) {
        return err_set(e, E_TOOBIG, "an index that names more than %d things", TOLD_MAX);
    }
    n->told++;
    return batch_bytes(rows->batch) < ROWS_BYTES ? 0 : keep(n, e);
}

static int read_all(struct note *n, void *state, struct buf *piece, struct err *e)
{
    struct fill *f = n->fill;
    const struct want_reader *r = f->want.reader;
    int rc = 0;

    for (uint64_t at = 0; rc == 0 && at < f->total_bytes; at += PIECE_BYTES) {
        size_t bytes = (size_t)min_u64(PIECE_BYTES, f->total_bytes - at);
        char *to;
        buf_clear(piece);
        to = buf_room(piece, bytes);
        CHECK(to != NULL);
        rc = fd_pread_all(f->fd, to, bytes, at, e);
        if (rc == 0) {
            rc = r->feed(state, slice_of(to, bytes), &n->rows, e);
        }
    }
    return rc == 0 ? r->finish(state, &n->rows, e) : rc;
}

int fill_note(struct fill *f, struct err *e)
{
    const struct object *o = &f->object;
    struct buf piece = BUF_INIT(PIECE_BYTES);
    struct note n = {.rows = {batch_new(), on_told}, .fill = f};
    struct cache *c = f->cache;
    uint64_t began_ms = clock_now_ms();
    uint64_t modified = 0;
    struct err why = {0};
    void *state;
    int rc, kept;

    if (o->last_modified.p == NULL ||
        !httpdate_parse(o->last_modified, clock_unix_s(), &modified)) {
        modified = 0;
    }
    state = f->want.reader->open(&f->want, o->url, modified, o->validated_unix_s);
    rc = read_all(&n, state, &piece, e);
    f->want.reader->close(state);
    kept = keep(&n, &why); /* also of one that is refused: they say what to do about it */
    if (kept != 0) {
        log_warn("fill.note", "repo=" SLICE_FMT " why=\"%s\"", SLICE_ARG(f->want.repo), why.text);
    }
    if (n.changed && c->on_change != NULL) { /* once: it voids all answers of the repo */
        c->on_change(c->on_change_arg, f->want.repo, SLICE_NONE);
    }
    batch_free(&n.rows.batch);
    buf_free(&piece);
    log_debug("fill.noted", "repo=" SLICE_FMT " bytes=%" PRIu64 " took_ms=%" PRIu64 " rc=%d",
              SLICE_ARG(f->want.repo), f->total_bytes, clock_now_ms() - began_ms, rc);
    return rc;
}
