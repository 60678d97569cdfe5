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
};

static int keep(struct fill *f, struct batch **rows, struct err *e)
{
    struct cache *c = f->cache;
    bool replaces;
    int rc = 0;

    if (batch_sift(*rows, c->store, f->want.reader->replaces, &replaces)) {
        batch_free(rows);
    } else {
        rc = store_commit(c->store, rows, COMMIT_LAZY, e);
        /* The first word on a file counts for those who had it without any. Shards say little each, and are many. */
        if (c->on_change != NULL && (replaces || f->want.class == WANT_MUTABLE)) {
            c->on_change(c->on_change_arg, f->want.repo, SLICE_NONE);
        }
    }
    *rows = batch_new();
    return rc;
}

static int read_all(struct fill *f, void *state, struct buf *piece, struct batch **rows,
                    struct err *e)
{
    const struct want_reader *r = f->want.reader;
    int rc = 0;

    for (uint64_t at = 0; rc == 0 && at < f->total_bytes; at += PIECE_BYTES) {
        size_t n = (size_t)min_u64(PIECE_BYTES, f->total_bytes - at);
        char *to;
        buf_clear(piece);
        to = buf_room(piece, n);
        CHECK(to != NULL);
        rc = fd_pread_all(f->fd, to, n, at, e);
        if (rc == 0) {
            rc = r->feed(state, slice_of(to, n), *rows, e);
        }
        if (rc == 0 && batch_bytes(*rows) >= ROWS_BYTES) {
            rc = keep(f, rows, e);
        }
    }
    return rc == 0 ? r->finish(state, *rows, e) : rc;
}

int fill_note(struct fill *f, struct err *e)
{
    const struct object *o = &f->object;
    struct buf piece = BUF_INIT(PIECE_BYTES);
    struct batch *rows = batch_new();
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
    rc = read_all(f, state, &piece, &rows, e);
    f->want.reader->close(state);
    kept = keep(f, &rows, &why); /* also of one that is refused: they say what to do about it */
    if (kept != 0) {
        log_warn("fill.note", "repo=" SLICE_FMT " why=\"%s\"", SLICE_ARG(f->want.repo), why.text);
    }
    batch_free(&rows);
    buf_free(&piece);
    log_debug("fill.noted", "repo=" SLICE_FMT " bytes=%" PRIu64 " took_ms=%" PRIu64 " rc=%d",
              SLICE_ARG(f->want.repo), f->total_bytes, clock_now_ms() - began_ms, rc);
    return rc;
}
