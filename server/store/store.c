#include "server/store/store.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/log.h"
#include "common/os/newfile.h"
#include "server/store/commit.h"
#include "server/store/row.h"
#include "server/store/state.h"

enum { SCHEMA = 1, META_MAX = 4096 };

/* --- the folder --- */

static int open_store_folder(struct store *s, const char *name, int *fd, struct err *e)
{
    if (mkdirat(s->dir_fd, name, 0750) == -1 && errno != EEXIST) {
        return err_sys(e, "mkdir %s/%s", s->dir, name);
    }
    *fd = openat(s->dir_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    return *fd != -1 ? 0 : err_sys(e, "%s/%s", s->dir, name);
}

static int take_lock(struct store *s, struct err *e)
{
    char pid[24] = "";
    int n;

    s->lock_fd = openat(s->dir_fd, "lock", O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0640);
    if (s->lock_fd == -1) {
        return err_sys(e, "%s/lock", s->dir);
    }
    if (flock(s->lock_fd, LOCK_EX | LOCK_NB) == -1) {
        ssize_t got = errno == EWOULDBLOCK ? pread(s->lock_fd, pid, sizeof pid - 1, 0) : -1;
        uint64_t who = 0;
        if (got == -1) {
            return err_sys(e, "%s/lock", s->dir);
        }
        return slice_u64(slice_of(pid, (size_t)got), &who)
                   ? err_set(e, E_BUSY,
                             "%s: in use by another mirrord (process %" PRIu64
                             "); stop it or use another state_dir",
                             s->dir, who)
                   : err_set(e, E_BUSY, "%s: in use by another mirrord", s->dir);
    }
    n = snprintf(pid, sizeof pid, "%d", (int)getpid());
    if (ftruncate(s->lock_fd, 0) == -1 || pwrite(s->lock_fd, pid, (size_t)n, 0) != n) {
        log_debug("store.lock", "the process number could not be recorded"); /* a full disk */
    }
    return 0;
}

/* Files without a name are made in blobs/ and linked through /proc; some file systems and
 * containers lack one of both. */
static bool tmpfile_works(struct store *s)
{
    char proc[40];
    int fd = openat(s->blobs_fd, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    bool ok;

    if (fd == -1) {
        return false;
    }
    snprintf(proc, sizeof proc, "/proc/self/fd/%d", fd);
    ok = faccessat(AT_FDCWD, proc, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
    close(fd);
    return ok;
}

static bool is_missing(const char *path)
{
    return access(path, F_OK) == -1 && errno == ENOENT;
}

/* Missing parents are often a slip in the path, or a disk that is not mounted. */
static int make_dir(const struct store *s, struct err *e)
{
    bool fresh = is_missing(s->dir);
    char *copy = mem_strdup(s->dir);
    const char *parent = dirname(copy);
    bool deep = fresh && is_missing(parent);
    int rc = dir_make(s->dir, 0750, e);

    if (rc == 0 && deep) {
        log_warn("store.created",
                 "dir=%s neither the folder nor its parent %s existed; check state_dir if this "
                 "mirror is not new",
                 s->dir, parent);
    } else if (rc == 0 && fresh) {
        log_info("store.created", "dir=%s", s->dir);
    }
    free(copy);
    return rc;
}

static int open_folders(struct store *s, struct err *e)
{
    int rc = make_dir(s, e);

    if (rc != 0) {
        return rc;
    }
    s->dir_fd = open(s->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (s->dir_fd == -1) {
        return err_sys(e, "%s", s->dir);
    }
    rc = take_lock(s, e);
    rc = rc != 0 ? rc : open_store_folder(s, "blobs", &s->blobs_fd, e);
    rc = rc != 0 ? rc : open_store_folder(s, "partial", &s->partial_fd, e);
    rc = rc != 0 ? rc : open_store_folder(s, "quarantine", &s->quarantine_fd, e);
    /* Small blobs and tokens' hashes lie in there: not for everybody, which is how RocksDB would
     * make it. */
    if (rc == 0 && mkdirat(s->dir_fd, "meta", 0750) == -1 && errno != EEXIST) {
        rc = err_sys(e, "mkdir %s/meta", s->dir);
    }
    if (rc == 0 && fsync(s->dir_fd) == -1) {
        rc = err_sys(e, "%s: fsync", s->dir);
    }
    s->tmpfile = rc == 0 && tmpfile_works(s);
    return rc;
}

/* --- the rows that describe the store --- */

static int meta_get(struct store *s, struct slice key, struct buf *out, struct err *e)
{
    int rc = kv_get(s->kv, TABLE_META, key, out, e);
    return rc == E_NOTFOUND ? 0 : rc; /* absent and empty are the same */
}

static int check_schema(struct store *s, bool *fresh, struct err *e)
{
    struct buf row = BUF_INIT(META_MAX);
    uint64_t have = 0;
    int rc = meta_get(s, SLICE("schema"), &row, e);

    *fresh = rc == 0 && row.n == 0;
    if (rc == 0 && !*fresh && !slice_u64(buf_slice(&row), &have)) {
        rc = err_set(e, E_CORRUPT, "%s: the schema version cannot be parsed", s->dir);
    } else if (rc == 0 && have > SCHEMA) {
        rc = err_set(e, E_UNSUPPORTED,
                     "%s: written by a newer mirrord (schema %" PRIu64
                     ", this one knows %d); upgrade mirrord or use another state_dir",
                     s->dir, have, SCHEMA);
    }
    buf_free(&row);
    return rc;
}

static int take_clean_mark(struct store *s, struct err *e)
{
    struct buf row = BUF_INIT(META_MAX);
    int rc = meta_get(s, SLICE("clean"), &row, e);

    s->was_clean = rc == 0 && row.n != 0;
    buf_free(&row);
    return rc;
}

static int sum_row(void *arg, struct slice key, struct slice value)
{
    struct blob_row r;

    (void)key;
    if (blob_row_decode(value, &r, NULL) == 0) {
        counts_add(arg, r.size_bytes);
    }
    return 0;
}

static int load_counts(struct store *s, struct counts *c, struct err *e)
{
    int rc = counts_load(s, c, e);

    if (rc == 0) {
        return 0;
    }
    if (rc != E_NOTFOUND && rc != E_CORRUPT) {
        return rc;
    }
    *c = (struct counts){0};
    return kv_scan_once(s->kv, NULL, TABLE_BLOB, SLICE_NONE, SLICE_NONE, sum_row, c, e);
}

/* The store is ours now: says so before anything else is written. */
static int mark_open(struct store *s, bool fresh, struct err *e)
{
    struct batch *b = batch_new();
    uint8_t uuid[16];

    if (fresh) {
        if (getrandom(uuid, sizeof uuid, 0) != (ssize_t)sizeof uuid) {
            batch_free(&b);
            return err_sys(e, "getrandom");
        }
        batch_put(b, TABLE_META, SLICE("schema"), SLICE("1"));
        batch_put(b, TABLE_META, SLICE("uuid"), slice_of(uuid, sizeof uuid));
    }
    batch_del(b, TABLE_META, SLICE("clean"));
    return store_commit(s, &b, COMMIT_SYNC, e);
}

static int open_rows(struct store *s, uint64_t cache_bytes, struct err *e)
{
    size_t n = strlen(s->dir) + sizeof "/meta";
    char *meta = mem_new(n);
    struct counts counts = {0};
    bool fresh = false;
    int rc;

    snprintf(meta, n, "%s/meta", s->dir);
    rc = kv_open(meta, cache_bytes, &s->kv, e);
    free(meta);
    rc = rc != 0 ? rc : check_schema(s, &fresh, e);
    rc = rc != 0 ? rc : take_clean_mark(s, e);
    rc = rc != 0 ? rc : load_counts(s, &counts, e);
    if (rc != 0) {
        return rc;
    }
    s->was_clean = s->was_clean || fresh;
    committer_open(s, &counts);
    rc = partials_open(s, &s->partials, e);
    return rc != 0 ? rc : mark_open(s, fresh, e);
}

/* --- open and close --- */

static void free_store(struct store *s)
{
    int *fds[] = {&s->quarantine_fd, &s->partial_fd, &s->blobs_fd, &s->dir_fd, &s->lock_fd};

    committer_close(&s->committer);
    kv_close(&s->kv);
    atimes_fini(&s->atimes);
    seals_fini(&s->seals);
    parked_fini(s);
    partials_close(&s->partials);
    space_fini(&s->space);
    for (size_t i = 0; i < ARRAY_LEN(fds); i++) {
        if (*fds[i] != -1) {
            close(*fds[i]);
        }
    }
    free(s->dir);
    free(s);
}

int store_open(const struct store_settings *set, struct store **out, struct err *e)
{
    struct store *s = NEW(struct store);
    int rc;

    *out = NULL;
    s->dir = mem_strdup(set->state_dir);
    s->lock_fd = s->dir_fd = s->blobs_fd = s->partial_fd = s->quarantine_fd = -1;
    list_init(&s->stages);
    space_init(&s->space, set);
    seals_init(&s->seals);
    atimes_init(&s->atimes);
    rc = open_folders(s, e);
    rc = rc != 0 ? rc : space_open(s, e);
    rc = rc != 0 ? rc : open_rows(s, set->block_cache_bytes, e);
    if (rc != 0) {
        free_store(s);
        return rc;
    }
    *out = s;
    return 0;
}

void store_close(struct store **sp)
{
    struct store *s = *sp;
    struct batch *b;

    if (s == NULL) {
        return;
    }
    *sp = NULL;
    CHECK(list_empty(&s->stages));
    if (store_healthy(s, NULL)) {
        struct err e;
        b = batch_new();
        batch_put(b, TABLE_META, SLICE("clean"), SLICE("1"));
        if (store_commit(s, &b, COMMIT_SYNC, &e) != 0) {
            log_warn("store.close", "why=\"%s\"", e.text);
        }
    }
    free_store(s);
}

const char *store_folder(const struct store *s)
{
    return s->dir;
}

bool store_was_clean(const struct store *s)
{
    return s->was_clean;
}

/* --- reads --- */

/* A row about a blob that is elsewhere. Small bytes are brought here. */
static int get_elsewhere(struct store *s, enum table t, struct slice key, struct buf *value,
                         struct err *e)
{
    struct blob_row r = {.place = BLOB_FILE};
    char row[BLOB_ROW_BYTES];
    struct digest d;

    if (key.n != DIGEST_BYTES) {
        return E_NOTFOUND;
    }
    memcpy(d.b, key.p, DIGEST_BYTES);
    if (!blob_is_elsewhere(s, &d, &r.size_bytes)) {
        return E_NOTFOUND;
    }
    if (t == TABLE_INLINE) {
        struct blob *b = NULL;
        int rc = r.size_bytes <= BLOB_INLINE_BYTES ? blob_open(s, &d, &b, e) : E_NOTFOUND;
        blob_release(&b);
        return rc != 0 ? rc : kv_get(s->kv, t, key, value, e);
    }
    blob_row_encode(&r, row);
    buf_clear(value);
    buf_add(value, row, sizeof row);
    return value->rc;
}

int store_get(struct store *s, enum table t, struct slice key, struct buf *value, struct err *e)
{
    int rc = kv_get(s->kv, t, key, value, e);

    return rc == E_NOTFOUND && (t == TABLE_BLOB || t == TABLE_INLINE)
               ? get_elsewhere(s, t, key, value, e)
               : rc;
}

int store_scan(struct store *s, enum table t, struct slice from, struct slice to,
               int (*row)(void *arg, struct slice key, struct slice value), void *arg,
               struct err *e)
{
    return kv_scan(s->kv, NULL, t, from, to, row, arg, e);
}

struct kv_view *store_view_open(struct store *s)
{
    return kv_view_open(s->kv);
}

void store_view_close(struct kv_view **vp)
{
    kv_view_close(vp);
}

int store_view_scan(struct store *s, struct kv_view *view, enum table t, struct slice from,
                    struct slice to, int (*row)(void *arg, struct slice key, struct slice value),
                    void *arg, struct err *e)
{
    return kv_scan_once(s->kv, view, t, from, to, row, arg, e);
}

int store_scan_once(struct store *s, enum table t, struct slice from, struct slice to,
                    int (*row)(void *arg, struct slice key, struct slice value), void *arg,
                    struct err *e)
{
    return kv_scan_once(s->kv, NULL, t, from, to, row, arg, e);
}

void store_metrics(struct store *s, struct buf *out)
{
    kv_metrics(s->kv, out);
}
