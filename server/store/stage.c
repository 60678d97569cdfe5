/* stage.c - bytes that become a blob: open, parked to be resumed, sealed, or swept at the next
 * start. */

#include "server/store/blob.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>
#include <uthash.h>

#include "common/base/endian.h"
#include "common/base/log.h"
#include "common/os/clock.h"
#include "common/os/descriptor.h"
#include "common/os/newfile.h"
#include "server/store/row.h"
#include "server/store/state.h"

struct stage {
    struct list node; /* under space.lock, as the numbers are */
    struct store *s;
    int fd;
    uint64_t id; /* of its file under partial/; 0: it has no name */
    bool named;  /* the caller may resume it; else the name is a stand-in for O_TMPFILE */
    _Atomic bool name_synced;
    _Atomic bool lost;   /* bytes that the disk did not take; the kernel reports it once: */
    struct lock syncing; /* so one thread syncs at a time, and the next one sees its result */
    uint64_t reserved_bytes;
    uint64_t written_bytes; /* never more than reserved */
    uint64_t length_bytes;  /* the file's: what is written below may leave holes */
};

/* --- parked --- */

/* A stage that nobody has open, but whose file stays under partial/ for somebody to resume: its
 * bytes are on the store's account all the same. */
struct parked {
    UT_hash_handle hh;
    uint64_t id;
    uint64_t bytes;
};

/* What a file takes on disk: it may be sparse. */
static uint64_t parked_size(const struct stat *st)
{
    return min_u64((uint64_t)st->st_blocks * 512, (uint64_t)st->st_size);
}

/* Under space.lock. */
static void unpark(struct store *s, uint64_t id)
{
    struct parked *p;

    HASH_FIND(hh, s->parked, &id, sizeof id, p);
    if (p != NULL) {
        HASH_DEL(s->parked, p);
        s->space.parked_bytes -= p->bytes;
        free(p);
    }
}

static void parked_add(struct store *s, uint64_t id, uint64_t bytes)
{
    struct parked *p = NEW(struct parked);

    p->id = id;
    p->bytes = bytes;
    lock_take(&s->space.lock);
    unpark(s, id);
    HASH_ADD(hh, s->parked, id, sizeof p->id, p);
    s->space.parked_bytes += bytes;
    lock_drop(&s->space.lock);
}

/* Somebody has it open now, or it is gone. */
static void parked_take(struct store *s, uint64_t id)
{
    lock_take(&s->space.lock);
    unpark(s, id);
    lock_drop(&s->space.lock);
}

void parked_fini(struct store *s)
{
    struct parked *p;
    struct parked *tmp;

    HASH_ITER(hh, s->parked, p, tmp)
    {
        HASH_DEL(s->parked, p);
        free(p);
    }
}

void stage_name(uint64_t id, char out[STAGE_NAME])
{
    snprintf(out, STAGE_NAME, "%016" PRIx64, id);
}

void stage_key(uint64_t id, char key[STAGE_KEY_BYTES])
{
    be_put(key, STAGE_KEY_BYTES, id);
}

/* --- open and close --- */

static int create_named(struct store *s, uint64_t *id, struct err *e)
{
    char name[STAGE_NAME];
    bool unlinks = false;
    int fd;

    do {
        if (getrandom(id, sizeof *id, 0) != (ssize_t)sizeof *id) {
            err_sys(e, "getrandom");
            return -1;
        }
        *id |= 1; /* 0 means none */
        stage_name(*id, name);
        fd = openat(s->partial_fd, name, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    } while (fd == -1 && errno == EEXIST);
    if (fd != -1) {
        fd = descriptor_within(DESCRIPTORS_OF_FILES, fd);
        unlinks = fd == -1;
    }
    if (fd == -1) {
        err_sys(e, "partial/%s", name);
    }
    if (unlinks) {
        unlinkat(s->partial_fd, name, 0);
    }
    return fd;
}

/* As long as it is going to be, as far as is known: bytes come in any order, and runs of zeros are
 * left out. */
static uint64_t length_of(int fd, uint64_t expect_bytes)
{
    struct stat st;

    if (fstat(fd, &st) == -1) {
        return 0;
    }
    if ((uint64_t)st.st_size < expect_bytes && ftruncate(fd, (off_t)expect_bytes) == 0) {
        return expect_bytes;
    }
    return (uint64_t)st.st_size;
}

static struct stage *stage_new(struct store *s, int fd, uint64_t id, bool named,
                               uint64_t reserved_bytes)
{
    struct stage *st = NEW(struct stage);

    st->s = s;
    st->fd = fd;
    st->id = id;
    st->named = named;
    st->reserved_bytes = reserved_bytes;
    st->length_bytes = length_of(fd, reserved_bytes);
    lock_init(&st->syncing, LOCK_LEAF);
    lock_take(&s->space.lock);
    list_push_back(&s->stages, &st->node);
    lock_drop(&s->space.lock);
    return st;
}

/* A full disk shows here as well as in stage_write(). */
static int note_full(struct store *s, int rc)
{
    if (rc == E_NOSPACE) {
        space_exhausted(s);
    }
    return rc;
}

int stage_open(struct store *s, uint64_t expect_bytes, bool named, struct stage **out,
               struct err *e)
{
    struct err why = {0};
    uint64_t id = 0;
    int fd = -1;
    int rc = space_reserve(s, expect_bytes, e);

    *out = NULL;
    if (rc != 0) {
        return rc;
    }
    if (!named && s->tmpfile) {
        fd = descriptor_within(DESCRIPTORS_OF_FILES,
                               openat(s->blobs_fd, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600));
        if (fd == -1) {
            err_sys(&why, "create a file in %s/blobs", s->dir);
        }
    } else {
        fd = create_named(s, &id, &why);
    }
    if (fd == -1) {
        space_release(s, expect_bytes, 0);
        if (e != NULL) {
            *e = why;
        }
        return note_full(s, why.code);
    }
    *out = stage_new(s, fd, id, named, expect_bytes);
    return 0;
}

bool stage_is_open(struct store *s, uint64_t id)
{
    bool yes = false;

    lock_take(&s->space.lock);
    LIST_EACH (&s->stages, it) {
        yes = yes || LIST_ITEM(it, struct stage, node)->id == id;
    }
    lock_drop(&s->space.lock);
    return yes;
}

int stage_resume(struct store *s, uint64_t id, uint64_t expect_bytes, struct stage **out,
                 struct err *e)
{
    char name[STAGE_NAME];
    struct stat st;
    uint64_t have = 0;
    uint64_t more = 0;
    int fd;
    int rc;

    *out = NULL;
    CHECK(id != 0);
    if (stage_is_open(s, id)) {
        return err_set(e, E_BUSY, "the stage is already open");
    }
    stage_name(id, name);
    fd = descriptor_within(DESCRIPTORS_OF_FILES,
                           openat(s->partial_fd, name, O_RDWR | O_NOFOLLOW | O_CLOEXEC));
    if (fd == -1) {
        return err_sys(e, "partial/%s", name);
    }
    parked_take(s, id);
    if (fstat(fd, &st) == -1 || !S_ISREG(st.st_mode)) {
        rc = err_set(e, E_CORRUPT, "partial/%s is not a file", name);
    } else {
        have = parked_size(&st);
        more = expect_bytes > have ? expect_bytes - have : 0;
        rc = space_adopt(s, have, more, e);
    }
    if (rc != 0) {
        parked_add(s, id, have);
        close(fd);
        return rc;
    }
    *out = stage_new(s, fd, id, true, have + more);
    (*out)->written_bytes = have;
    return 0;
}

void stage_expect(struct stage *st, uint64_t length_bytes)
{
    st->length_bytes = length_of(st->fd, length_bytes);
}

uint64_t stage_written_bytes(const struct stage *st)
{
    uint64_t n;

    lock_take(&st->s->space.lock);
    n = st->written_bytes;
    lock_drop(&st->s->space.lock);
    return n;
}

uint64_t stage_id(const struct stage *st)
{
    return st->named ? st->id : 0;
}

int stage_fd(const struct stage *st)
{
    return st->fd;
}

int stage_peek(const struct stage *st, uint64_t size_bytes, struct blob **out, struct err *e)
{
    int fd = descriptor_within(DESCRIPTORS_OF_FILES, fcntl(st->fd, F_DUPFD_CLOEXEC, 0));

    *out = NULL;
    if (fd == -1) {
        return err_sys(e, "duplicate the descriptor of a stage");
    }
    *out = blob_of_fd(fd, size_bytes);
    return 0;
}

static void stage_free(struct stage **sp)
{
    struct stage *st = *sp;

    *sp = NULL;
    lock_take(&st->s->space.lock);
    list_remove(&st->node);
    lock_drop(&st->s->space.lock);
    space_release(st->s, st->reserved_bytes, st->written_bytes);
    close(st->fd);
    lock_fini(&st->syncing);
    free(st);
}

void stage_abort(struct stage **sp)
{
    struct stage *st = *sp;

    if (st == NULL) {
        return;
    }
    if (st->id != 0) {
        char name[STAGE_NAME];
        stage_name(st->id, name);
        unlinkat(st->s->partial_fd, name, 0); /* what stays is swept at the next start */
    }
    stage_free(sp);
}

void stage_park(struct stage **sp)
{
    struct stat st;

    if (*sp != NULL && (*sp)->named && fstat((*sp)->fd, &st) == 0) {
        parked_add((*sp)->s, (*sp)->id, parked_size(&st));
        stage_free(sp);
    } else {
        stage_abort(sp);
    }
}

/* --- writing --- */

int stage_write(struct stage *st, const void *p, size_t n, uint64_t off, struct err *e)
{
    int rc = space_write(st->s, &st->reserved_bytes, &st->written_bytes, n, e);

    if (rc != 0) {
        return rc;
    }
    rc = off + n <= st->length_bytes ? fd_pwrite_sparse(st->fd, p, n, off, e)
                                     : fd_pwrite_all(st->fd, p, n, off, e);
    return note_full(st->s, rc);
}

int stage_unwrite(struct stage *st, uint64_t off, uint64_t n, struct err *e)
{
    struct space *x = &st->s->space;
    struct stat now;

    if (n == 0) {
        return 0;
    }
    if (fallocate(st->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)off, (off_t)n) == -1) {
        return err_sys(e, "fallocate");
    }
    if (fstat(st->fd, &now) == -1) {
        return err_sys(e, "fstat");
    }
    lock_take(&x->lock);
    /* Where it had holes, less was on the account: what is on the disk stays there. */
    n = min_u64(n, st->written_bytes - min_u64(st->written_bytes, parked_size(&now)));
    st->written_bytes -= n;
    st->reserved_bytes -= n;
    x->written_bytes -= n;
    x->staged_bytes -= n;
    lock_drop(&x->lock);
    return 0;
}

static int sync_data(struct stage *st, struct err *e)
{
    int rc = 0;

    lock_take(&st->syncing);
    if (fdatasync(st->fd) == -1) {
        st->lost = true;
        rc = err_sys(e, "fdatasync");
    } else if (st->lost) {
        rc = err_set(e, E_IO, "the disk lost bytes of the file");
    }
    lock_drop(&st->syncing);
    return rc;
}

int stage_sync(struct stage *st, struct err *e)
{
    int rc = sync_data(st, e);

    if (rc != 0) {
        return note_full(st->s, rc);
    }
    if (st->id != 0 && !st->name_synced) {
        if (fsync(st->s->partial_fd) == -1) {
            return note_full(st->s, err_sys(e, "partial: fsync"));
        }
        st->name_synced = true;
    }
    return 0;
}

bool stage_lost(const struct stage *st)
{
    return st->lost;
}

/* --- sealing --- */

static void put_rows(struct batch *b, const struct digest *d, const struct blob_row *r,
                     struct slice chunks)
{
    char row[BLOB_ROW_BYTES];

    blob_row_encode(r, row);
    batch_put(b, TABLE_BLOB, digest_key(d), slice_of(row, sizeof row));
    if (chunks.n != 0) {
        batch_put(b, TABLE_CHUNKS, digest_key(d), chunks);
    }
}

void blob_put_small(struct store *s, const struct digest *d, struct slice bytes, struct batch *b,
                    struct blob **out)
{
    struct blob_row r = {BLOB_INLINE, bytes.n, clock_unix_s(), 0};

    seal_enter(s, d);
    batch_sealed(b, s, d);
    put_rows(b, d, &r, SLICE_NONE);
    batch_put(b, TABLE_INLINE, digest_key(d), bytes);
    if (out != NULL) {
        *out = blob_of_bytes(d, bytes);
    }
}

static int seal_inline(struct stage *st, const struct digest *d, uint64_t size_bytes,
                       struct batch *b, struct blob **out, struct err *e)
{
    char bytes[BLOB_INLINE_BYTES];
    int rc = fd_pread_all(st->fd, bytes, (size_t)size_bytes, 0, e);

    if (rc == 0) {
        blob_put_small(st->s, d, slice_of(bytes, (size_t)size_bytes), b, out);
    }
    return rc;
}

static int link_once(struct stage *st, const char *path)
{
    char from[64];

    if (st->id != 0) {
        stage_name(st->id, from);
        return linkat(st->s->partial_fd, from, st->s->blobs_fd, path, 0);
    }
    snprintf(from, sizeof from, "/proc/self/fd/%d", st->fd);
    return linkat(AT_FDCWD, from, st->s->blobs_fd, path, AT_SYMLINK_FOLLOW);
}

/* An existing file of the right size is another seal's, or an orphan of one: its data was synced
 * before it got the name. Any other is debris from outside. */
static int link_name(struct stage *st, const char *path, uint64_t size_bytes, struct err *e)
{
    struct stat have;

    if (link_once(st, path) == 0) {
        return 0;
    }
    if (errno != EEXIST) {
        return err_sys(e, "link blobs/%s", path);
    }
    if (fstatat(st->s->blobs_fd, path, &have, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(have.st_mode) &&
        (uint64_t)have.st_size == size_bytes) {
        return 0;
    }
    if (unlinkat(st->s->blobs_fd, path, 0) == -1 && errno != ENOENT) {
        return err_sys(e, "blobs/%s is damaged and cannot be removed", path);
    }
    return link_once(st, path) == 0 ? 0 : err_sys(e, "link blobs/%s", path);
}

static int sync_folder(struct store *s, const char *path, struct err *e)
{
    char folder[6];
    int fd;
    int rc = 0;

    memcpy(folder, path, 5);
    folder[5] = '\0';
    fd = openat(s->blobs_fd, folder, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd == -1) {
        return err_sys(e, "blobs/%s", folder);
    }
    if (fsync(fd) == -1) {
        rc = err_sys(e, "blobs/%s: fsync", folder);
    }
    close(fd);
    return rc;
}

/* Data before name, name before row: after a power cut a name never leads to missing bytes, a row
 * never to a missing name. */
static int give_name(struct stage *st, const struct digest *d, uint64_t size_bytes, struct err *e)
{
    char path[BLOB_PATH];
    int rc;

    blob_path(d, path);
    if (st->lost) {
        return err_set(e, E_IO, "sealing %.12s...: the disk lost bytes of the file", path + 6);
    }
    if (ftruncate(st->fd, (off_t)size_bytes) == -1 || fchmod(st->fd, 0444) == -1 ||
        fdatasync(st->fd) == -1) {
        return err_sys(e, "sealing %.12s...", path + 6);
    }
    rc = seal_folder(st->s, d, e);
    rc = rc != 0 ? rc : link_name(st, path, size_bytes, e);
    return rc != 0 ? rc : sync_folder(st->s, path, e);
}

/* The digest is entered before we look whether the blob exists: from then on its file stays. */
static int seal_file(struct stage *st, const struct digest *d, uint64_t size_bytes,
                     struct slice chunks, struct batch *b, struct blob **out, struct err *e)
{
    struct store *s = st->s;
    struct blob_row r = {BLOB_FILE, size_bytes, clock_unix_s(), 0};
    struct blob *blob = NULL;
    bool exists = false;
    int rc;

    seal_enter(s, d);
    batch_sealed(b, s, d);
    rc = blob_is_here(s, d, &exists, e);
    if (rc == 0 && (!exists || blob_open_file(s, d, size_bytes, &blob, NULL) != 0)) {
        rc = give_name(st, d, size_bytes, e);
        rc = rc != 0 ? rc : blob_open_file(s, d, size_bytes, &blob, e);
    }
    if (rc != 0) {
        return rc;
    }
    put_rows(b, d, &r, chunks);
    if (st->id != 0) {
        batch_after(b, AFTER_UNPARK, NULL, st->id);
    }
    if (out != NULL) {
        *out = blob_hold(blob);
    }
    blob_release(&blob);
    return 0;
}

int stage_seal(struct stage **sp, const struct digest *digest, uint64_t size_bytes,
               const struct digest *chunk, size_t count, struct batch *b, struct blob **out,
               struct err *e)
{
    struct stage *st = *sp;
    struct buf chunks = BUF_INIT((size_t)1 << 30);
    struct err why = {0};
    int rc;

    *sp = NULL;
    if (out != NULL) {
        *out = NULL;
    }
    if (size_bytes <= BLOB_INLINE_BYTES) {
        rc = seal_inline(st, digest, size_bytes, b, out, &why);
    } else {
        if (count > 1) {
            chunks_encode(digest, size_bytes, chunk, count, &chunks);
        }
        rc = seal_file(st, digest, size_bytes, buf_slice(&chunks), b, out, &why);
    }
    buf_free(&chunks);
    if (rc != 0 && e != NULL) {
        *e = why;
    }
    note_full(st->s, rc);
    if (rc == 0 && size_bytes > BLOB_INLINE_BYTES) {
        stage_free(&st); /* the name under partial/ goes after the commit */
    } else {
        stage_abort(&st);
    }
    return rc;
}

int blob_put_bytes(struct store *s, struct slice bytes, struct batch *b, struct blob **out,
                   struct err *e)
{
    struct hasher *h;
    struct stage *st = NULL;
    struct digest d;
    const struct digest *chunk;
    size_t count;
    int rc;

    if (out != NULL) {
        *out = NULL;
    }
    if (bytes.n <= BLOB_INLINE_BYTES) {
        digest_of(bytes, &d);
        blob_put_small(s, &d, bytes, b, out);
        return 0;
    }
    rc = stage_open(s, bytes.n, false, &st, e);
    rc = rc != 0 ? rc : stage_write(st, bytes.p, bytes.n, 0, e);
    if (rc != 0) {
        stage_abort(&st);
        return rc;
    }
    h = hasher_new();
    hasher_add(h, bytes.p, bytes.n);
    hasher_final(h, &d);
    chunk = hasher_chunks(h, &count);
    rc = stage_seal(&st, &d, bytes.n, chunk, count, b, out, e);
    hasher_free(&h);
    return rc;
}

/* --- what an earlier run has left --- */

struct sweep {
    struct store *s;
    struct batch *batch;
    size_t rows, files;
};

static bool id_of_name(const char *name, uint64_t *id)
{
    uint8_t raw[STAGE_KEY_BYTES];

    if (!slice_hex(slice_str(name), raw, sizeof raw)) {
        return false;
    }
    *id = be_get(raw, sizeof raw);
    return true;
}

static void sweep_name(struct sweep *w, const char *name)
{
    struct buf row = BUF_INIT((size_t)64 << 20);
    char key[STAGE_KEY_BYTES];
    struct stat st;
    uint64_t id = 0;
    int rc = E_NOTFOUND;

    if (id_of_name(name, &id)) {
        if (stage_is_open(w->s, id)) {
            return;
        }
        stage_key(id, key);
        rc = kv_get(w->s->kv, TABLE_PARTIAL, slice_of(key, sizeof key), &row, NULL);
        buf_free(&row);
    }
    if (rc == E_NOTFOUND && unlinkat(w->s->partial_fd, name, 0) == 0) {
        w->files++;
    } else if (fstatat(w->s->partial_fd, name, &st, AT_SYMLINK_NOFOLLOW) == 0) {
        parked_add(w->s, id, parked_size(&st));
    }
}

static int sweep_row(void *arg, struct slice key, struct slice value)
{
    struct sweep *w = arg;
    char name[STAGE_NAME] = "?";

    (void)value;
    if (key.n == STAGE_KEY_BYTES) {
        stage_name(be_get(key.p, STAGE_KEY_BYTES), name);
    }
    if (faccessat(w->s->partial_fd, name, F_OK, AT_SYMLINK_NOFOLLOW) == -1 && errno == ENOENT) {
        batch_del(w->batch, TABLE_PARTIAL, key);
        w->rows++;
    }
    return 0;
}

static int sweep_names(struct sweep *w, struct err *e)
{
    int fd = openat(w->s->partial_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *d = fd != -1 ? fdopendir(fd) : NULL;
    struct dirent *ent;

    if (d == NULL) {
        int rc = err_sys(e, "%s/partial", w->s->dir);
        if (fd != -1) {
            close(fd);
        }
        return rc;
    }
    while ((ent = readdir(d)) != NULL) {
        if (ent->d_name[0] != '.') {
            sweep_name(w, ent->d_name);
        }
    }
    closedir(d);
    return 0;
}

int stage_sweep(struct store *s, struct err *e)
{
    struct sweep w = {.s = s, .batch = batch_new()};
    int rc = sweep_names(&w, e);

    rc = rc != 0 ? rc
                 : kv_scan(s->kv, NULL, TABLE_PARTIAL, SLICE_NONE, SLICE_NONE, sweep_row, &w, e);
    if (rc == 0 && w.rows != 0) {
        rc = store_commit(s, &w.batch, COMMIT_LAZY, e);
    }
    batch_free(&w.batch);
    if (w.rows != 0 || w.files != 0) {
        log_info("store.swept", "partial_files=%zu partial_rows=%zu", w.files, w.rows);
    }
    return rc;
}
