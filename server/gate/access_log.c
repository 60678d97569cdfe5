#include <errno.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "common/base/log.h"
#include "common/os/clock.h"
#include "common/os/lock.h"
#include "common/os/ring.h"
#include "common/os/log_writer.h"
#include "server/gate/access_line.h"

enum {
    RING_BYTES = 1 << 20, /* of each loop: some 3,000 lines */
    HURRY_BYTES = RING_BYTES / 4,
    GATHER_MS = 50, /* a line waits this long for others */
    LOG_WRITER_BYTES = 4 << 20,
};

/* What one loop writes. */
struct log_shard {
    struct ring *ring;
    struct access_second second;
    _Atomic uint64_t dropped; /* found no room in the ring */
};

/* loop --> its ring --> the carrier, a thread --> the log writer of a file or of stderr --> its
 * thread writes
 *
 * A loop touches its shard alone. Whatever takes from the rings, or puts another log writer there,
 * holds the lock. */
struct access_log {
    _Atomic bool on, json, stop;
    struct log_shard *log_shards; /* one a loop */
    unsigned shard_count;
    pthread_t carrier;
    sem_t lines, hurry;            /* a ring is no longer empty; one fills, or it is the end */
    struct lock lock;              /* over the four below */
    struct log_writer *log_writer; /* NULL: nobody reads it */
    bool owned;                    /* not the one that writes to stderr anyway */
    struct buf batch;              /* on its way from the rings to the log writer */
    struct access_second second;   /* of lines of other threads */
    char *path;                    /* as configured; the setter's own */
    _Atomic uint64_t dropped;      /* by log writers that are gone */
};

/* --- a loop --- */

static void put_in_log_shard(struct access_log *l, struct log_shard *n, struct slice line)
{
    size_t waited;

    if (!ring_put(n->ring, line, &waited)) {
        atomic_fetch_add_explicit(&n->dropped, 1, memory_order_relaxed);
        return;
    }
    if (waited == 0) {
        sem_post(&l->lines);
    }
    if (waited < HURRY_BYTES && waited + line.n >= HURRY_BYTES) {
        sem_post(&l->hurry);
    }
}

void access_log_write(struct access_log *l, unsigned loop, const struct access_entry *en)
{
    char room[ACCESS_LINE_BYTES];
    bool json = atomic_load_explicit(&l->json, memory_order_relaxed);

    if (!atomic_load_explicit(&l->on, memory_order_relaxed)) {
        return;
    }
    if (loop != ACCESS_NO_LOOP) {
        CHECK(loop < l->shard_count);
        put_in_log_shard(l, &l->log_shards[loop],
                         access_line(room, &l->log_shards[loop].second, json, en, clock_unix_ms()));
        return;
    }
    lock_take(&l->lock);
    if (l->log_writer != NULL) {
        (void)log_writer_add(l->log_writer,
                             access_line(room, &l->second, json, en, clock_unix_ms()), false);
    }
    lock_drop(&l->lock);
}

/* --- the carrier --- */

/* What waits goes to the log writer of now, which counts what it drops. */
static void empty_log_shards(struct access_log *l)
{
    for (unsigned i = 0; i < l->shard_count; i++) {
        if (ring_take(l->log_shards[i].ring, &l->batch)) {
            sem_post(&l->lines); /* its loop does not: it saw the ring in use */
        }
        if (l->log_writer != NULL && l->batch.n > 0) {
            (void)log_writer_add(l->log_writer, buf_slice(&l->batch), true);
        }
        buf_clear(&l->batch);
    }
}

static void wait_for_log_writer(sem_t *s)
{
    while (sem_wait(s) == -1 && errno == EINTR) {
    }
}

static void wait_for_others(struct access_log *l)
{
    struct timespec until;

    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += GATHER_MS * 1000000;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    while (sem_clockwait(&l->hurry, CLOCK_MONOTONIC, &until) == -1 && errno == EINTR) {
    }
}

static void *carry(void *arg)
{
    struct access_log *l = arg;

    while (!atomic_load(&l->stop)) {
        wait_for_log_writer(&l->lines);
        wait_for_others(l);
        /* Whoever posted before now put his line before now: one look is for all of them. */
        while (sem_trywait(&l->lines) == 0 || sem_trywait(&l->hurry) == 0) {
        }
        lock_take(&l->lock);
        empty_log_shards(l);
        lock_drop(&l->lock);
    }
    return NULL;
}

/* --- where the lines go --- */

static int open_log_writer(const char *path, struct log_writer **out, bool *owned, struct err *e)
{
    *out = NULL;
    *owned = false;
    if (strcmp(path, "none") == 0) {
        return 0;
    }
    if (strcmp(path, "stderr") == 0) {
        *out = log_use_writer();
    }
    if (*out != NULL) {
        return 0;
    }
    *owned = true;
    return log_writer_open("access-log", strcmp(path, "stderr") != 0 ? path : NULL,
                           LOG_WRITER_BYTES, out, e);
}

static void close_log_writer(struct access_log *l, struct log_writer *s, bool owned)
{
    if (s != NULL && owned) {
        atomic_fetch_add(&l->dropped, log_writer_dropped(s));
        log_writer_close(&s);
    }
}

int access_log_set(struct access_log *l, const char *path, const char *format, struct err *e)
{
    struct log_writer *fresh = NULL, *old;
    bool owned = false, old_owned, same = l->path != NULL && strcmp(l->path, path) == 0;
    char *name;
    int rc;

    rc = same ? 0 : open_log_writer(path, &fresh, &owned, e);
    if (rc != 0) {
        return rc;
    }
    atomic_store(&l->json, strcmp(format, "json") == 0);
    if (same) {
        return 0;
    }
    name = mem_strdup(path);
    lock_take(&l->lock);
    empty_log_shards(l);
    old = l->log_writer;
    old_owned = l->owned;
    l->log_writer = fresh;
    l->owned = owned;
    lock_drop(&l->lock);
    free(l->path);
    l->path = name;
    atomic_store(&l->on, fresh != NULL);
    close_log_writer(l, old, old_owned);
    return 0;
}

int access_log_try(const struct access_log *l, const char *path, struct err *e)
{
    if (strcmp(path, "none") == 0 || strcmp(path, "stderr") == 0 ||
        (l->path != NULL && strcmp(l->path, path) == 0)) {
        return 0;
    }
    return log_writer_try(path, e);
}

int access_log_open(const char *path, const char *format, unsigned loops, struct access_log **out,
                    struct err *e)
{
    struct access_log *l = NEW(struct access_log);
    int rc;

    lock_init(&l->lock, LOCK_ACCESS_LOG);
    l->batch = BUF_INIT(RING_BYTES);
    l->shard_count = loops;
    l->log_shards = mem_array(loops, sizeof l->log_shards[0]);
    for (unsigned i = 0; i < loops; i++) {
        l->log_shards[i].ring = ring_open(RING_BYTES);
    }
    CHECK(sem_init(&l->lines, 0, 0) == 0 && sem_init(&l->hurry, 0, 0) == 0);
    l->carrier = thread_start("access-carrier", carry, l);
    rc = access_log_set(l, path, format, e);
    if (rc != 0) {
        access_log_close(&l);
    }
    *out = l;
    return rc;
}

void access_log_reopen(struct access_log *l)
{
    lock_take(&l->lock);
    empty_log_shards(l);
    if (l->log_writer != NULL) {
        log_writer_reopen(l->log_writer);
    }
    lock_drop(&l->lock);
}

uint64_t access_log_dropped(struct access_log *l)
{
    uint64_t n = atomic_load(&l->dropped);

    for (unsigned i = 0; i < l->shard_count; i++) {
        n += atomic_load_explicit(&l->log_shards[i].dropped, memory_order_relaxed);
    }
    lock_take(&l->lock);
    n += l->log_writer != NULL ? log_writer_dropped(l->log_writer) : 0;
    lock_drop(&l->lock);
    return n;
}

void access_log_close(struct access_log **lp)
{
    struct access_log *l = *lp;

    *lp = NULL;
    if (l == NULL) {
        return;
    }
    atomic_store(&l->stop, true);
    sem_post(&l->lines);
    sem_post(&l->hurry);
    pthread_join(l->carrier, NULL);
    lock_take(&l->lock);
    empty_log_shards(l);
    lock_drop(&l->lock);
    close_log_writer(l, l->log_writer, l->owned);
    for (unsigned i = 0; i < l->shard_count; i++) {
        ring_close(&l->log_shards[i].ring);
    }
    sem_destroy(&l->lines);
    sem_destroy(&l->hurry);
    lock_fini(&l->lock);
    buf_free(&l->batch);
    free(l->log_shards);
    free(l->path);
    free(l);
}
