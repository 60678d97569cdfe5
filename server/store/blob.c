#include "server/store/blob.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/os/descriptor.h"
#include "common/os/newfile.h"
#include "server/store/keep.h"
#include "server/store/row.h"
#include "server/store/state.h"

enum { ROW_MAX = 4096, OPEN_TRIES = 3 };

struct blob {
    atomic_uint holds;
    struct digest digest;
    uint64_t size_bytes;
    int fd;
    char bytes[]; /* inline ones */
};

void blob_path(const struct digest *d, char out[BLOB_PATH])
{
    char hex[DIGEST_HEX + 1];

    digest_format(d, hex);
    snprintf(out, BLOB_PATH, "%.2s/%.2s/%s", hex, hex + 2, hex);
}

static struct blob *blob_new(const struct digest *d, uint64_t size_bytes, size_t inline_bytes)
{
    struct blob *b = mem_new(sizeof *b + inline_bytes);

    atomic_init(&b->holds, 1);
    b->digest = *d;
    b->size_bytes = size_bytes;
    b->fd = -1;
    return b;
}

struct blob *blob_of_bytes(const struct digest *d, struct slice bytes)
{
    struct blob *b = blob_new(d, bytes.n, bytes.n);

    if (bytes.n != 0) {
        memcpy(b->bytes, bytes.p, bytes.n);
    }
    return b;
}

int blob_open_file(struct store *s, const struct digest *d, uint64_t size_bytes, struct blob **out,
                   struct err *e)
{
    char path[BLOB_PATH];
    struct stat st;
    int fd;

    *out = NULL;
    blob_path(d, path);
    fd = descriptor_within(DESCRIPTORS_OF_FILES,
                           openat(s->blobs_fd, path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC));
    if (fd == -1 && (errno == EMFILE || errno == ENFILE || errno == ENOMEM)) {
        /* Nothing is said of its bytes: an E_IO would have a scrub drop them. */
        return err_set(e, E_BUSY, "blobs/%s: too many files are open", path);
    }
    if (fd == -1) {
        return err_sys(e, "blobs/%s", path);
    }
    if (fstat(fd, &st) == -1 || !S_ISREG(st.st_mode) || (uint64_t)st.st_size != size_bytes) {
        close(fd);
        return err_set(e, E_CORRUPT, "blobs/%s: not a regular file of the recorded size", path);
    }
    *out = blob_new(d, size_bytes, 0);
    (*out)->fd = fd;
    return 0;
}

struct blob *blob_of_fd(int fd, uint64_t size_bytes)
{
    const struct digest none = {{0}};
    struct blob *b = blob_new(&none, size_bytes, 0);

    b->fd = fd;
    return b;
}

static int open_inline(struct store *s, const struct digest *d, const struct blob_row *r,
                       struct blob **out, struct err *e)
{
    struct buf bytes = BUF_INIT(BLOB_INLINE_BYTES);
    int rc = kv_get(s->kv, TABLE_INLINE, digest_key(d), &bytes, e);

    if (rc == 0 && bytes.n != r->size_bytes) {
        rc = err_set(e, E_CORRUPT, "an inline blob has %zu bytes instead of %zu", bytes.n,
                     (size_t)r->size_bytes);
    }
    if (rc == 0) {
        *out = blob_of_bytes(d, buf_slice(&bytes));
    }
    buf_free(&bytes);
    return rc;
}

int blob_inline(struct store *s, const struct digest *d, struct buf *out, struct err *e)
{
    return kv_get(s->kv, TABLE_INLINE, digest_key(d), out, e);
}

static int try_open(struct store *s, const struct digest *d, struct buf *row, struct blob **out,
                    struct err *e)
{
    struct blob_row r;
    int rc = blob_row_decode(buf_slice(row), &r, e);

    if (rc != 0) {
        return rc;
    }
    rc = r.place == BLOB_INLINE ? open_inline(s, d, &r, out, e)
                                : blob_open_file(s, d, r.size_bytes, out, e);
    return rc == E_NOTFOUND || rc == E_TOOBIG
               ? err_set(e, E_CORRUPT, "the bytes of a blob are not where its row says")
               : rc;
}

/* Between the look at the row and the look at the file an eviction may have taken both, and a seal
 * may have brought them back: what seems damaged is looked at again on the commit thread, where
 * nothing moves. */
static int open_here(struct store *s, const struct digest *d, struct blob **out, struct err *e)
{
    struct buf row = BUF_INIT(ROW_MAX);
    int rc = 0;

    *out = NULL;
    for (int i = 0; i < OPEN_TRIES; i++) {
        rc = kv_get(s->kv, TABLE_BLOB, digest_key(d), &row, e);
        rc = rc != 0 ? rc : try_open(s, d, &row, out, e);
        if (rc != E_CORRUPT || damage_confirm(s, d, DAMAGE_PLACE, NULL) != E_CHANGED) {
            break;
        }
    }
    buf_free(&row);
    return rc;
}

int blob_open(struct store *s, const struct digest *d, struct blob **out, struct err *e)
{
    const struct blob_source *src = s->blob_source;
    int rc = open_here(s, d, out, e);

    if (rc == E_IO && blob_is_elsewhere(s, d, NULL) &&
        damage_confirm(s, d, DAMAGE_UNREADABLE, NULL) == 0) {
        rc = E_NOTFOUND;
    }
    if ((rc == E_NOTFOUND || rc == E_CORRUPT) && src != NULL) { /* a damaged one was dropped */
        struct err why = {0};
        int brought = src->bring(src->arg, d, &why);
        if (brought == 0) {
            rc = open_here(s, d, out, e);
        } else if (brought != E_NOTFOUND) {
            rc = brought;
            if (e != NULL) {
                *e = why;
            }
        }
    }
    return rc;
}

bool blob_is_elsewhere(struct store *s, const struct digest *d, uint64_t *size_bytes)
{
    const struct blob_source *src = s->blob_source;
    uint64_t size;

    return src != NULL && src->has(src->arg, d, size_bytes != NULL ? size_bytes : &size);
}

int blob_length(struct store *s, const struct digest *d, uint64_t *size_bytes, struct err *e)
{
    struct blob *b = NULL;
    int rc = open_here(s, d, &b, e);

    if (rc == 0) {
        *size_bytes = b->size_bytes;
    } else if (blob_is_elsewhere(s, d, size_bytes)) {
        rc = 0;
    }
    blob_release(&b);
    return rc;
}

void store_set_blob_source(struct store *s, struct blob_source *src)
{
    s->blob_source = src;
}

int blob_open_early(struct store *s, const struct batch_rows *rows, const struct digest *d,
                    struct blob **out, struct err *e)
{
    struct slice value;
    struct blob_row r;
    int rc;

    *out = NULL;
    if (!batch_rows_get(rows, TABLE_BLOB, digest_key(d), &value)) {
        return blob_open(s, d, out, e);
    }
    rc = blob_row_decode(value, &r, e);
    if (rc == 0 && r.place == BLOB_FILE) {
        return blob_open_file(s, d, r.size_bytes, out, e);
    }
    if (rc == 0 && !batch_rows_get(rows, TABLE_INLINE, digest_key(d), &value)) {
        return blob_open(s, d, out, e);
    }
    if (rc == 0) {
        *out = blob_of_bytes(d, value);
    }
    return rc;
}

struct blob *blob_hold(struct blob *b)
{
    atomic_fetch_add_explicit(&b->holds, 1, memory_order_relaxed);
    return b;
}

void blob_release(struct blob **bp)
{
    struct blob *b = *bp;

    if (b == NULL) {
        return;
    }
    *bp = NULL;
    if (atomic_fetch_sub_explicit(&b->holds, 1, memory_order_acq_rel) == 1) {
        if (b->fd != -1) {
            close(b->fd);
        }
        free(b);
    }
}

uint64_t blob_size_bytes(const struct blob *b)
{
    return b->size_bytes;
}

const struct digest *blob_digest(const struct blob *b)
{
    return &b->digest;
}

int blob_fd(const struct blob *b)
{
    return b->fd;
}

struct slice blob_bytes(const struct blob *b)
{
    CHECK(b->fd == -1);
    return slice_of(b->bytes, (size_t)b->size_bytes);
}

int blob_read(struct blob *b, uint64_t off, void *p, size_t n, struct err *e)
{
    if (off > b->size_bytes || n > b->size_bytes - off) {
        return err_set(e, E_INVALID, "a read past the end of a blob");
    }
    if (b->fd != -1) {
        return fd_pread_all(b->fd, p, n, off, e);
    }
    if (n != 0) {
        memcpy(p, b->bytes + off, n);
    }
    return 0;
}

int blob_read_whole(struct store *s, const struct digest *d, struct buf *out, struct err *e)
{
    struct blob *b = NULL;
    char *room;
    int rc = blob_open(s, d, &b, e);

    if (rc != 0) {
        return rc;
    }
    room = b->size_bytes <= out->max ? buf_room(out, (size_t)b->size_bytes) : NULL;
    rc = room != NULL
             ? blob_read(b, 0, room, (size_t)b->size_bytes, e)
             : err_set(e, E_TOOBIG, "the document is too large: %" PRIu64 " bytes", b->size_bytes);
    if (rc == 0) {
        buf_grew(out, (size_t)b->size_bytes);
    }
    blob_release(&b);
    return rc;
}

int blob_git_oid(struct blob *b, struct git_oid *out, struct err *e)
{
    enum { STEP = 1 << 20 };
    struct git_hasher *h = git_hasher_new(b->size_bytes);
    char *p = mem_new((size_t)min_u64(STEP, b->size_bytes) + 1);
    int rc = 0;

    for (uint64_t off = 0; rc == 0 && off < b->size_bytes; off += STEP) {
        size_t n = (size_t)min_u64(STEP, b->size_bytes - off);
        rc = blob_read(b, off, p, n, e);
        if (rc == 0) {
            git_hasher_add(h, slice_of(p, n));
        }
    }
    git_hasher_final(h, out);
    git_hasher_free(&h);
    free(p);
    return rc;
}

int blob_exists(struct store *s, const struct digest *d, bool *yes, struct err *e)
{
    int rc = blob_is_here(s, d, yes, e);

    *yes = *yes || (rc == 0 && blob_is_elsewhere(s, d, NULL));
    return rc;
}

int blob_is_here(struct store *s, const struct digest *d, bool *yes, struct err *e)
{
    struct buf row = BUF_INIT(ROW_MAX);
    int rc = kv_get(s->kv, TABLE_BLOB, digest_key(d), &row, e);

    buf_free(&row);
    *yes = rc == 0;
    return rc == E_NOTFOUND ? 0 : rc;
}

/* --- chunk lists --- */

static int hash_chunks(struct store *s, struct blob *b, struct buf *out, struct err *e)
{
    enum { STEP = 1 << 20 };
    struct hasher *h = hasher_new();
    char *p = mem_new(STEP);
    struct digest whole;
    const struct digest *chunk;
    size_t count;
    int rc = 0;

    for (uint64_t off = 0; rc == 0 && off < b->size_bytes; off += STEP) {
        size_t n = (size_t)min_u64(STEP, b->size_bytes - off);
        rc = blob_read(b, off, p, n, e);
        hasher_add(h, p, n);
    }
    hasher_final(h, &whole);
    if (rc == 0 && !digest_eq(&whole, &b->digest)) {
        (void)!damage_confirm(s, &b->digest, DAMAGE_BYTES, NULL);
        rc = err_set(e, E_CORRUPT, "the blob's bytes do not match its digest");
    }
    if (rc == 0) {
        chunk = hasher_chunks(h, &count);
        chunks_encode(&b->digest, b->size_bytes, chunk, count, out);
    }
    hasher_free(&h);
    free(p);
    return rc;
}

/* A list that nobody gave at the seal is made once and kept. */
static int make_chunks(struct store *s, struct blob *b, struct buf *out, struct err *e)
{
    struct batch *batch;
    int rc = hash_chunks(s, b, out, e);

    if (rc != 0) {
        return rc;
    }
    batch = batch_new();
    batch_put(batch, TABLE_CHUNKS, digest_key(&b->digest), buf_slice(out));
    (void)!store_commit(s, &batch, COMMIT_LAZY, NULL); /* the list is good all the same */
    return 0;
}

int blob_chunks(struct store *s, const struct digest *d, struct buf *out, struct err *e)
{
    struct blob *b = NULL;
    int rc;

    buf_clear(out);
    rc = blob_open(s, d, &b, e);
    if (rc == 0 && b->size_bytes <= CHUNK_BYTES) {
        chunks_encode(d, b->size_bytes, d, b->size_bytes != 0 ? 1 : 0, out);
    } else if (rc == 0) {
        rc = kv_get(s->kv, TABLE_CHUNKS, digest_key(d), out, e);
        if (rc == E_NOTFOUND) {
            rc = make_chunks(s, b, out, e);
        }
    }
    blob_release(&b);
    return rc == 0 && out->rc != 0 ? err_set(e, out->rc, "the chunk list is too large") : rc;
}
