#include "kernels/flight.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/check.h"
#include "common/os/clock.h"

/* An entry that is being replaced has seq 0, and whoever looks takes it for absent. */
struct cell {
    _Atomic uint64_t seq;
    _Atomic int op, dt;
    _Atomic int64_t count;
    _Atomic(const char *) comm;
    _Atomic uint64_t posted_ns, done_ns, limit_ms;
};

struct flight {
    struct cell cell[FLIGHT_ENTRIES];
    _Atomic uint64_t posted, returned, done;
    _Atomic uint64_t beat_ns, limit_ms;
};

struct flight *flight_open(void)
{
    struct flight *f = NEW(struct flight);

    atomic_store(&f->limit_ms, UINT64_MAX);
    flight_beat(f);
    return f;
}

void flight_close(struct flight **fp)
{
    free(*fp);
    *fp = NULL;
}

uint64_t flight_post(struct flight *f, enum flight_op op, enum dtype dt, int64_t count,
                     const char *comm)
{
    uint64_t seq = atomic_load(&f->posted) + 1;
    struct cell *c = &f->cell[seq % FLIGHT_ENTRIES];

    atomic_store(&c->seq, 0);
    atomic_store(&c->op, (int)op);
    atomic_store(&c->dt, (int)dt);
    atomic_store(&c->count, count);
    atomic_store(&c->comm, comm);
    atomic_store(&c->posted_ns, clock_now_ns());
    atomic_store(&c->done_ns, 0);
    atomic_store(&c->limit_ms, atomic_load(&f->limit_ms));
    atomic_store(&c->seq, seq);
    atomic_store(&f->posted, seq);
    flight_beat(f);
    return seq;
}

void flight_returned(struct flight *f, uint64_t seq)
{
    atomic_store(&f->returned, seq);
    flight_beat(f);
}

void flight_done(struct flight *f, uint64_t seq)
{
    uint64_t now = clock_now_ns();

    for (uint64_t i = atomic_load(&f->done) + 1; i <= seq; i++) {
        struct cell *c = &f->cell[i % FLIGHT_ENTRIES];

        if (atomic_load(&c->seq) == i) {
            atomic_store(&c->done_ns, now);
        }
        atomic_store(&f->done, i);
    }
    flight_beat(f);
}

void flight_beat(struct flight *f)
{
    if (f != NULL) {
        atomic_store_explicit(&f->beat_ns, clock_now_ns(), memory_order_relaxed);
    }
}

void flight_allow(struct flight *f, uint64_t limit_ms)
{
    atomic_store(&f->limit_ms, limit_ms);
    flight_beat(f);
}

static bool read_cell(const struct flight *f, uint64_t seq, struct flight_entry *out)
{
    const struct cell *c = &f->cell[seq % FLIGHT_ENTRIES];

    if (atomic_load(&c->seq) != seq) {
        return false;
    }
    *out = (struct flight_entry){.seq = seq,
                                 .op = (enum flight_op)atomic_load(&c->op),
                                 .dt = (enum dtype)atomic_load(&c->dt),
                                 .count = atomic_load(&c->count),
                                 .comm = atomic_load(&c->comm),
                                 .posted_ns = atomic_load(&c->posted_ns),
                                 .done_ns = atomic_load(&c->done_ns),
                                 .limit_ms = atomic_load(&c->limit_ms)};
    return atomic_load(&c->seq) == seq;
}

void flight_look(const struct flight *f, struct flight_view *out)
{
    *out = (struct flight_view){.done = atomic_load(&f->done),
                                .returned = atomic_load(&f->returned),
                                .posted = atomic_load(&f->posted),
                                .beat_ns = atomic_load(&f->beat_ns),
                                .limit_ms = atomic_load(&f->limit_ms)};
    if (out->done < out->posted && !read_cell(f, out->done + 1, &out->waits)) {
        out->waits.seq = 0; /* completed, and replaced, meanwhile */
    }
}

const char *flight_op_name(enum flight_op op)
{
    switch (op) {
    case FLIGHT_ALLREDUCE:
        return "allreduce";
    case FLIGHT_REDUCE_SCATTER:
        return "reduce_scatter";
    case FLIGHT_ALLGATHER:
        return "allgather";
    case FLIGHT_SPLIT:
        return "split";
    case FLIGHT_BARRIER:
        return "barrier";
    }
    return "?";
}

const char *flight_dtype_name(enum dtype dt)
{
    switch (dt) {
    case DT_F32:
        return "f32";
    case DT_F64:
        return "f64";
    case DT_BF16:
        return "bf16";
    case DT_F16:
        return "f16";
    }
    return "?";
}

size_t flight_bytes(const struct flight_entry *x)
{
    return (size_t)x->count * dtype_bytes(x->dt);
}

/* --- writing ---------------------------------------------------------------------------------- */

static int write_flight_bytes(int fd, const char *p, size_t n)
{
    while (n > 0) {
        ssize_t did = write(fd, p, n);

        if (did < 0 && errno == EINTR) {
            continue;
        }
        if (did <= 0) {
            return did < 0 ? -errno : -EIO;
        }
        p += did;
        n -= (size_t)did;
    }
    return 0;
}

/* A moment of the monotonic clock as people's clocks had it. */
static uint64_t unix_ms_of(uint64_t at_ns, uint64_t now_ns, uint64_t now_unix_ms)
{
    return now_unix_ms - (now_ns - at_ns) / 1000000u;
}

static int put_entry(int fd, const struct flight_entry *x, uint64_t now_ns, uint64_t now_unix_ms)
{
    char line[320], done[32] = "null";
    int n;

    if (x->done_ns != 0) {
        snprintf(done, sizeof done, "%" PRIu64, unix_ms_of(x->done_ns, now_ns, now_unix_ms));
    }
    n = snprintf(line, sizeof line,
                 "{\"seq\": %" PRIu64 ", \"op\": \"%s\", \"dtype\": \"%s\", \"count\": %" PRId64
                 ", \"bytes\": %zu, \"comm\": \"%s\", \"posted_unix_ms\": %" PRIu64
                 ", \"done_unix_ms\": %s}\n",
                 x->seq, flight_op_name(x->op), flight_dtype_name(x->dt), x->count, flight_bytes(x),
                 x->comm, unix_ms_of(x->posted_ns, now_ns, now_unix_ms), done);
    return write_flight_bytes(fd, line, (size_t)n);
}

static int put_all(int fd, const struct flight *f, const char *head)
{
    uint64_t last = atomic_load(&f->posted), now_ns = clock_now_ns(), now_unix_ms = clock_unix_ms();
    uint64_t first = last > FLIGHT_ENTRIES ? last - FLIGHT_ENTRIES + 1 : 1;
    struct flight_entry x;
    int rc = write_flight_bytes(fd, head, strlen(head));

    rc = rc != 0 ? rc : write_flight_bytes(fd, "\n", 1);
    for (uint64_t i = first; rc == 0 && i <= last; i++) {
        if (read_cell(f, i, &x)) {
            rc = put_entry(fd, &x, now_ns, now_unix_ms);
        }
    }
    return rc;
}

int flight_write(const struct flight *f, const char *path, const char *head)
{
    char part[PATH_MAX];
    int fd, rc;

    if (snprintf(part, sizeof part, "%s.part", path) >= (int)sizeof part) {
        return -ENAMETOOLONG;
    }
    fd = open(part, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (fd == -1) {
        return -errno;
    }
    rc = put_all(fd, f, head);
    if (close(fd) == -1 && rc == 0) {
        rc = -errno;
    }
    if (rc == 0 && rename(part, path) == -1) {
        rc = -errno;
    }
    if (rc != 0) {
        unlink(part);
    }
    return rc;
}
