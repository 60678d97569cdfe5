#include "agent/pull/parts.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/os/newfile.h"

/* .state: "mrdpart1", size, part size, count (u64 LE each), the whole's digest, length of the ETag
 * (u64 LE), the ETag, one bit a part, and the SHA-256 of all that. */
static const char magic[] = "mrdpart1";

static size_t parts_of(uint64_t size_bytes)
{
    return size_bytes == SIZE_UNKNOWN ? 0 : (size_t)((size_bytes + PART_BYTES - 1) / PART_BYTES);
}

static void make_room_for_parts(struct parts *p, size_t count)
{
    if (count > p->room) {
        size_t room = count + count / 2 + 8;
        p->state = realloc(p->state, room);
        CHECK(p->state != NULL);
        memset(p->state + p->room, PART_MISSING, room - p->room);
        p->room = room;
    }
    p->count = count > p->count ? count : p->count;
}

void parts_snapshot(const struct parts *p, struct buf *out)
{
    struct digest sum;

    buf_add(out, magic, 8);
    buf_le(out, 8, p->size_bytes);
    buf_le(out, 8, PART_BYTES);
    buf_le(out, 8, p->count);
    buf_add(out, p->digest.b, DIGEST_BYTES);
    buf_le(out, 8, strlen(p->etag));
    buf_str(out, p->etag);
    for (size_t i = 0; i < p->count; i += 8) {
        uint8_t bits = 0;
        for (size_t k = 0; k < 8 && i + k < p->count; k++) {
            bits |= (uint8_t)((p->state[i + k] == PART_DONE) << k);
        }
        buf_byte(out, bits);
    }
    digest_of(buf_slice(out), &sum);
    buf_add(out, sum.b, DIGEST_BYTES);
}

int parts_save(struct local_cache *s, const struct digest *key, int fd, struct slice snapshot,
               struct err *e)
{
    char path[PATH_MAX];
    struct newfile *f = NULL;
    int rc;

    /* What .state names must survive a power cut before .state does. */
    if (fdatasync(fd) == -1) {
        return err_sys(e, "fdatasync");
    }
    local_cache_partial_path(s, key, ".state", path);
    rc = newfile_open(path, 0644, &f, e);
    if (rc == 0) {
        newfile_write(f, snapshot.p, snapshot.n);
        rc = newfile_commit(&f, e);
    }
    return rc;
}

/* True when the state is sound and of the object that p describes; then p has its bits. */
static bool take_state(struct parts *p, struct slice s, uint64_t file_bytes)
{
    struct digest sum;
    uint64_t size, part, count, n;

    if (s.n < 8 + DIGEST_BYTES) {
        return false;
    }
    digest_of(slice_first(s, s.n - DIGEST_BYTES), &sum);
    if (memcmp(sum.b, s.p + s.n - DIGEST_BYTES, DIGEST_BYTES) != 0 || memcmp(s.p, magic, 8) != 0) {
        return false;
    }
    s = slice_from(slice_first(s, s.n - DIGEST_BYTES), 8);
    if (!slice_le(&s, 8, &size) || !slice_le(&s, 8, &part) || !slice_le(&s, 8, &count) ||
        size != p->size_bytes || part != PART_BYTES || count > PARTS_MAX ||
        (size != SIZE_UNKNOWN && count != parts_of(size)) || s.n < DIGEST_BYTES ||
        memcmp(s.p, p->digest.b, DIGEST_BYTES) != 0) {
        return false;
    }
    s = slice_from(s, DIGEST_BYTES);
    if (!slice_le(&s, 8, &n) || n >= PARTS_ETAG_ROOM || s.n != n + (count + 7) / 8) {
        return false;
    }
    if (digest_is_zero(&p->digest) && (n == 0 || !slice_eqs(slice_first(s, n), p->etag))) {
        return false;
    }
    s = slice_from(s, n);
    make_room_for_parts(p, (size_t)count);
    for (size_t i = 0; i < count; i++) {
        uint64_t end = min_u64((i + 1) * PART_BYTES, size);
        if (((uint8_t)s.p[i / 8] >> (i % 8) & 1) != 0 && end <= file_bytes) {
            parts_mark(p, i, PART_DONE);
        }
    }
    p->resumed = p->ndone;
    return true;
}

static int begin_anew(struct parts *p, const char *state_path, struct err *e)
{
    /* A .state may outlive its file by a crash: it must not speak of the new one. */
    if (!p->stateless && unlink(state_path) == -1 && errno != ENOENT) {
        return err_sys(e, "cannot remove the old state of the partial file");
    }
    if (ftruncate(p->fd, 0) == -1) {
        return err_sys(e, "cannot truncate the partial file");
    }
    make_room_for_parts(p, parts_of(p->size_bytes));
    /* Room first: a full disk should say so now, not after an hour. */
    if (p->size_bytes == SIZE_UNKNOWN || p->size_bytes <= PART_BYTES) {
        return 0;
    }
    if (fallocate(p->fd, 0, 0, (off_t)p->size_bytes) == -1 &&
        (errno != EOPNOTSUPP || ftruncate(p->fd, (off_t)p->size_bytes) == -1)) {
        int rc = err_sys(e, "cannot allocate %llu bytes", (unsigned long long)p->size_bytes);
        (void)!ftruncate(p->fd, 0); /* ext4 has given it all that there was */
        return rc;
    }
    p->laid_out = true;
    return 0;
}

int parts_open(struct local_cache *s, const struct digest *key, const struct digest *digest,
               uint64_t size_bytes, const char *etag, struct parts **out, struct err *e)
{
    struct parts *p = NEW(struct parts);
    struct buf text = BUF_INIT(PARTS_MAX / 8 + 4096);
    char part_path[PATH_MAX];
    char state_path[PATH_MAX];
    struct stat st;
    int rc = 0;

    *out = NULL;
    p->fd = -1;
    p->key = *key;
    p->digest = *digest;
    p->size_bytes = size_bytes;
    p->stateless = size_bytes <= PART_BYTES;
    memcpy(p->etag, etag, strnlen(etag, PARTS_ETAG_ROOM - 1));
    local_cache_partial_path(s, key, ".part", part_path);
    local_cache_partial_path(s, key, ".state", state_path);
    if (parts_of(size_bytes) > PARTS_MAX) {
        rc = err_set(e, E_TOOBIG, "the file is too large: %llu bytes",
                     (unsigned long long)size_bytes);
        goto out;
    }
    p->fd = open(part_path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644);
    if (p->fd == -1 || fstat(p->fd, &st) == -1) {
        rc = err_sys(e, "cannot open the partial file");
        goto out;
    }
    if (p->stateless || buf_read_file(&text, state_path, NULL) != 0 ||
        !take_state(p, buf_slice(&text), (uint64_t)st.st_size)) {
        rc = begin_anew(p, state_path, e);
    } else {
        p->laid_out = (uint64_t)st.st_size == p->size_bytes;
    }
out:
    buf_free(&text);
    if (rc != 0) {
        parts_close(&p, NULL);
        return err_prefix(e, "the local cache %s", local_cache_dir(s));
    }
    *out = p;
    return 0;
}

size_t parts_next(const struct parts *p)
{
    size_t i = p->prefix;

    while (i < p->count && p->state[i] != PART_MISSING) {
        i++;
    }
    return i;
}

size_t parts_length(const struct parts *p, size_t i)
{
    return (size_t)min_u64(PART_BYTES, p->size_bytes - i * PART_BYTES);
}

static void follow_to(struct follow *f, uint64_t end);

void parts_mark(struct parts *p, size_t i, enum part_state st)
{
    CHECK(i < PARTS_MAX && (p->size_bytes == SIZE_UNKNOWN || i < p->count));
    make_room_for_parts(p, i + 1);
    p->ndone += (size_t)(st == PART_DONE) - (size_t)(p->state[i] == PART_DONE);
    p->state[i] = (uint8_t)st;
    if (st != PART_DONE && i < p->prefix) {
        p->prefix = i;
    }
    while (p->prefix < p->count && p->state[p->prefix] == PART_DONE) {
        p->prefix++;
    }
    if (st == PART_DONE && p->follow != NULL && !p->hashed) {
        follow_to(p->follow, parts_prefix_bytes(p));
    }
}

void parts_end(struct parts *p, uint64_t size_bytes)
{
    CHECK(p->size_bytes == SIZE_UNKNOWN || p->size_bytes == size_bytes);
    p->size_bytes = size_bytes;
    CHECK(p->count <= parts_of(size_bytes));
    make_room_for_parts(p, parts_of(size_bytes));
}

bool parts_complete(const struct parts *p)
{
    return p->size_bytes != SIZE_UNKNOWN && p->ndone == p->count;
}

uint64_t parts_prefix_bytes(const struct parts *p)
{
    return min_u64(p->prefix * PART_BYTES, p->size_bytes);
}

uint64_t parts_done_bytes(const struct parts *p)
{
    uint64_t n = p->ndone * PART_BYTES;

    if (p->size_bytes != SIZE_UNKNOWN && p->count > 0 && p->state[p->count - 1] == PART_DONE) {
        n -= p->count * PART_BYTES - p->size_bytes; /* the last one is short */
    }
    return n;
}

/* --- the SHA-256 of the whole, as it grows ---------------------------------------------------- */

enum { STEP_BYTES = 1 << 20 };

struct follow {
    struct job job;
    struct pool *pool;
    struct hasher *hasher;
    int fd;
    uint64_t end;     /* known to be there */
    uint64_t job_end; /* what the job under way reads up to */
    uint64_t at;      /* the loop's view of how far it is */
    bool busy;
    int rc;
    struct err why;
    void (*moved)(void *arg, int rc, const struct err *why);
    void *arg;
};

static void read_on(struct job *j)
{
    struct follow *f = CONTAINER_OF(j, struct follow, job);
    char *p = mem_new(STEP_BYTES);
    uint64_t at = hasher_count(f->hasher);

    while (f->rc == 0 && at < f->job_end) {
        size_t n = (size_t)min_u64(STEP_BYTES, f->job_end - at);
        f->rc = fd_pread_all(f->fd, p, n, at, &f->why);
        if (f->rc == 0) {
            hasher_add(f->hasher, p, n);
            at += n;
        }
    }
    free(p);
}

static void submit_part_read(struct follow *f)
{
    if (!f->busy && f->rc == 0 && f->end > f->at) {
        f->busy = true;
        f->job_end = f->end;
        pool_submit(f->pool, &f->job, CLIENT_PROGRAM);
    }
}

static void on_part_read(struct job *j)
{
    struct follow *f = CONTAINER_OF(j, struct follow, job);
    struct err why = f->why;
    int rc = f->rc;

    f->busy = false;
    f->at = hasher_count(f->hasher);
    submit_part_read(f); /* from here on the fields are the next job's, if there is one */
    f->moved(f->arg, rc, &why);
}

static struct follow *follow_new(struct pool *pool, struct message_queue *reply, int fd,
                                 void (*moved)(void *arg, int rc, const struct err *why), void *arg)
{
    struct follow *f = NEW(struct follow);

    f->job = (struct job){.work = read_on, .done = on_part_read, .reply = reply};
    f->pool = pool;
    f->hasher = hasher_new_whole();
    f->fd = fd;
    f->moved = moved;
    f->arg = arg;
    return f;
}

static void follow_to(struct follow *f, uint64_t end)
{
    f->end = max_u64(f->end, end);
    submit_part_read(f);
}

static void follow_free(struct follow **fp)
{
    struct follow *f = *fp;

    if (f != NULL) {
        CHECK(!f->busy);
        *fp = NULL;
        hasher_free(&f->hasher);
        free(f);
    }
}

void parts_hash(struct parts *p, struct pool *pool, struct message_queue *reply,
                void (*moved)(void *arg, int rc, const struct err *why), void *arg)
{
    follow_free(&p->follow);
    p->follow = follow_new(pool, reply, p->fd, moved, arg);
    p->hashed = false;
    follow_to(p->follow, parts_prefix_bytes(p));
}

void parts_hashed(struct parts *p, const struct digest *d)
{
    p->hashed = true;
    p->got = *d;
}

bool parts_is_hashing(const struct parts *p)
{
    return p->follow != NULL && p->follow->busy;
}

bool parts_digest(struct parts *p, struct digest *out)
{
    if (!parts_complete(p)) {
        return false;
    }
    if (!p->hashed) {
        if (p->follow->busy || p->follow->at != p->size_bytes) {
            return false;
        }
        hasher_final(p->follow->hasher, &p->got);
        p->hashed = true;
    }
    *out = p->got;
    return true;
}

void parts_close(struct parts **pp, struct local_cache *discard_of)
{
    struct parts *p = *pp;
    char path[PATH_MAX];

    if (p == NULL) {
        return;
    }
    *pp = NULL;
    follow_free(&p->follow);
    if (discard_of != NULL) {
        local_cache_partial_path(discard_of, &p->key, ".state", path);
        unlink(path);
        local_cache_partial_path(discard_of, &p->key, ".part", path);
        unlink(path);
    }
    if (p->fd != -1) {
        close(p->fd);
    }
    free(p->state);
    free(p);
}
