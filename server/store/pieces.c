#include "server/store/pieces.h"

#include <stdlib.h>

#include "common/base/endian.h"
#include "common/hash/gear.h"
#include "server/store/state.h"

enum { HEAD = 8 + 8 + DIGEST_BYTES + 4, ITEM = 4 + PIECE_ID, STEP = 1 << 20 };
static const char magic[8] = "mrdpcs01";

/* --- the list --- */

int pieces_decode(struct slice bytes, struct pieces *out, struct err *e)
{
    const char *p = bytes.p;
    uint64_t off = 0;
    bool good =
        bytes.n >= HEAD && bytes.n <= PIECES_BYTES_MAX && memcmp(bytes.p, magic, sizeof magic) == 0;

    *out = (struct pieces){0};
    if (good) {
        out->size_bytes = be_get(p + 8, 8);
        memcpy(out->whole.b, p + 16, DIGEST_BYTES);
        out->count = (size_t)be_get(p + 16 + DIGEST_BYTES, 4);
        good = out->count == (bytes.n - HEAD) / ITEM && (bytes.n - HEAD) % ITEM == 0;
    }
    if (good) {
        out->piece = mem_array(out->count + 1, sizeof out->piece[0]);
    }
    p += HEAD;
    for (size_t i = 0; good && i < out->count; i++, p += ITEM) {
        struct blob_piece *x = &out->piece[i];
        x->off = off;
        x->n = (uint32_t)be_get(p, 4);
        memcpy(x->id, p + 4, PIECE_ID);
        off += x->n;
        good = x->n != 0 && x->n <= GEAR_MAX && (x->n >= GEAR_MIN || i + 1 == out->count);
    }
    if (good && off == out->size_bytes) {
        return 0;
    }
    pieces_free(out);
    return err_set(e, E_CORRUPT, "the list of pieces cannot be decoded");
}

void pieces_free(struct pieces *p)
{
    free(p->piece);
    p->piece = NULL;
    p->count = 0;
}

/* --- making one --- */

struct maker {
    struct gear gear;
    struct hasher *hasher; /* of the piece at work */
    uint32_t n;
    uint32_t count;
    struct buf *out;
};

static void finish_piece(struct maker *m)
{
    struct digest d;

    if (m->n == 0) {
        return;
    }
    hasher_final(m->hasher, &d);
    hasher_free(&m->hasher);
    m->hasher = hasher_new_whole();
    buf_be(m->out, 4, m->n);
    buf_add(m->out, d.b, PIECE_ID);
    m->count++;
    m->n = 0;
}

static void add_bytes(struct maker *m, const char *p, size_t n)
{
    while (n != 0) {
        bool end;
        size_t take = gear_cut(&m->gear, p, n, &end);
        hasher_add(m->hasher, p, take);
        m->n += (uint32_t)take;
        if (end) {
            finish_piece(m);
        }
        p += take;
        n -= take;
    }
}

static int read_blob(struct blob *b, const _Atomic bool *stop, struct maker *m, struct err *e)
{
    char *p = mem_new(STEP);
    uint64_t size = blob_size_bytes(b);
    int rc = 0;

    for (uint64_t off = 0; rc == 0 && m->out->rc == 0 && off < size; off += STEP) {
        size_t n = (size_t)min_u64(STEP, size - off);
        rc = blob_read(b, off, p, n, e);
        if (rc == 0) {
            add_bytes(m, p, n);
        }
        if (rc == 0 && *stop) {
            rc = err_set(e, E_CANCELLED, "stopped");
        }
    }
    finish_piece(m);
    free(p);
    return rc;
}

/* Only while the blob is the one that was read: a row that outlives it would stay for good. */
static void keep_pieces_row(struct store *s, const struct digest *d, struct slice blob_row,
                            struct slice list)
{
    struct batch *batch = batch_new();

    batch_require_value(batch, TABLE_BLOB, digest_key(d), blob_row);
    batch_put(batch, TABLE_PIECES, digest_key(d), list);
    (void)!store_commit(s, &batch, COMMIT_LAZY, NULL); /* the list is good all the same */
}

int pieces_make(struct store *s, const struct digest *d, const _Atomic bool *stop, struct buf *out,
                struct err *e)
{
    struct buf blob_row = BUF_INIT(4096);
    struct maker m = {.hasher = hasher_new_whole(), .out = out};
    struct blob *b = NULL;
    int rc = kv_get(s->kv, TABLE_BLOB, digest_key(d), &blob_row, e);

    buf_clear(out);
    rc = rc != 0 ? rc : blob_open(s, d, &b, e);
    if (rc == 0) {
        buf_add(out, magic, sizeof magic);
        buf_be(out, 8, blob_size_bytes(b));
        buf_adds(out, digest_key(d));
        buf_be(out, 4, 0);
        rc = read_blob(b, stop, &m, e);
    }
    if (rc == 0 && out->rc != 0) {
        rc = err_set(e, out->rc, "the blob is too large for a list of its pieces");
    }
    if (rc == 0) {
        be_put(out->p + HEAD - 4, 4, m.count);
        keep_pieces_row(s, d, buf_slice(&blob_row), buf_slice(out));
    }
    hasher_free(&m.hasher);
    blob_release(&b);
    buf_free(&blob_row);
    return rc;
}

int pieces_get(struct store *s, const struct digest *d, struct buf *out, struct err *e)
{
    return store_get(s, TABLE_PIECES, digest_key(d), out, e);
}
