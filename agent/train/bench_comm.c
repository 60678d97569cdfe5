/* trainer bench --comm - how fast the ranks sum, by size: what a run's gradients will take, and
 * whether the sums are right. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/train/ranks.h"
#include "agent/train/verbs.h"
#include "agent/train/watchdog.h"
#include "common/codec/jwrite.h"
#include "common/codec/units.h"
#include "common/os/clock.h"

enum { LEAST_BYTES = 1 << 10, MOST_CPU_BYTES = 16 << 20, MOST_GPU_BYTES = 1 << 30, STEP = 4 };
enum { FEW = 5, MANY = 50, ROWS = 16 };

struct row {
    int64_t bytes;
    double took_ns; /* of one sum */
};

struct bench {
    const struct options *o;
    const struct kops *k;
    struct comm *comm;
    struct watchdog *watchdog;
    struct kstream *ks;
    float *buf;
    struct row row[ROWS];
    size_t rows;
};

static int64_t most_bytes(const struct bench *b)
{
    return strcmp(b->k->name, "cpu") == 0 ? MOST_CPU_BYTES : MOST_GPU_BYTES;
}

static int lost(struct bench *b, int rc, struct err *e)
{
    return rc != 0 ? err_set(e, rc, "%s: the allreduce failed: %s%s", b->comm->name,
                             comm_fault(b->comm), b->k->fault())
                   : 0;
}

/* Each rank brings its number, from 1 on, in every element: the sums of all are known. */
static int check_sum(struct bench *b, int64_t n, struct err *e)
{
    float *x = mem_array((size_t)n, sizeof *x),
          want = (float)(b->comm->size * (b->comm->size + 1)) / 2;
    size_t bytes = (size_t)n * sizeof *x;
    int64_t wrong = 0;
    int rc;

    for (int64_t i = 0; i < n; i++) {
        x[i] = (float)(b->comm->rank + 1);
    }
    rc = b->k->mem_put(b->ks, b->buf, x, bytes);
    rc = rc != 0 ? rc : comm_allreduce(b->comm, b->ks, DT_F32, b->buf, n);
    rc = rc != 0 ? rc : b->k->mem_get(b->ks, x, b->buf, bytes);
    for (int64_t i = 0; rc == 0 && i < n; i++) {
        wrong += x[i] != want;
    }
    free(x);
    return rc != 0 ? lost(b, rc, e)
           : wrong == 0
               ? 0
               : err_set(
                     e, E_SICK,
                     "%s: of %lld sums, %lld are wrong on rank %d; a GPU or a link corrupts data",
                     b->comm->name, (long long)n, (long long)wrong, b->comm->rank);
}

static int time_sum(struct bench *b, int64_t n, struct err *e)
{
    int64_t bytes = n * (int64_t)sizeof(float), times = most_bytes(b) / bytes;
    uint64_t begin;
    int rc;

    times = times < FEW ? FEW : times > MANY ? MANY : times;
    rc = b->k->mem_zero(b->ks, b->buf, (size_t)bytes);
    rc = rc != 0 ? rc : comm_barrier(b->comm, b->ks);
    begin = clock_now_ns();
    for (int64_t i = 0; rc == 0 && i < times; i++) {
        rc = comm_allreduce(b->comm, b->ks, DT_F32, b->buf, n);
    }
    rc = rc != 0 ? rc : b->k->stream_sync(b->ks);
    b->row[b->rows++] =
        (struct row){.bytes = bytes, .took_ns = (double)(clock_now_ns() - begin) / (double)times};
    return lost(b, rc, e);
}

/* --- the report ------------------------------------------------------------------------------- */

static double gb_per_s(const struct row *r)
{
    return (double)r->bytes / r->took_ns;
}

/* What the slowest link carried: each byte goes 2 (n - 1) / n times over it, whatever n is
 * (nccl-tests, PERFORMANCE.md). */
static double bus_gb_per_s(const struct bench *b, const struct row *r)
{
    return gb_per_s(r) * 2 * (b->comm->size - 1) / b->comm->size;
}

static void print_row(const struct bench *b, const struct row *r)
{
    char size[UNITS_TEXT];

    size_format((uint64_t)r->bytes, size);
    printf("%12s %14.1f %12.3f %12.3f\n", size, r->took_ns / 1e3, gb_per_s(r), bus_gb_per_s(b, r));
    fflush(stdout);
}

static void print_comm_json(const struct bench *b)
{
    struct buf text = BUF_INIT(64 << 10);

    jwrite_open(&text, NULL, '{');
    jwrite_str(&text, "comm", b->comm->name);
    jwrite_str(&text, "facts", b->comm->facts);
    jwrite_str(&text, "device", b->k->device);
    jwrite_u64(&text, "ranks", (uint64_t)b->comm->size);
    jwrite_open(&text, "rows", '[');
    for (size_t i = 0; i < b->rows; i++) {
        jwrite_open(&text, NULL, '{');
        jwrite_u64(&text, "bytes", (uint64_t)b->row[i].bytes);
        jwrite_double(&text, "us", b->row[i].took_ns / 1e3);
        jwrite_double(&text, "gb_per_s", gb_per_s(&b->row[i]));
        jwrite_double(&text, "bus_gb_per_s", bus_gb_per_s(b, &b->row[i]));
        jwrite_close(&text, '}');
    }
    jwrite_close(&text, ']');
    jwrite_close(&text, '}');
    printf("%s\n", buf_cstr(&text));
    buf_free(&text);
}

static int run_sizes(struct bench *b, struct err *e)
{
    bool tell = b->comm->rank == 0 && !b->o->json;
    int rc = 0;

    if (tell) {
        printf("%d rank%s over %s on %s%s%s\n\n%12s %14s %12s %12s\n", b->comm->size,
               b->comm->size == 1 ? "" : "s", b->comm->name, b->k->device,
               b->comm->facts[0] != '\0' ? ", " : "", b->comm->facts, "allreduce", "us", "GB/s",
               "bus GB/s");
        fflush(stdout); /* should the first sum hang */
    }
    for (int64_t bytes = LEAST_BYTES; rc == 0 && bytes <= most_bytes(b); bytes *= STEP) {
        rc = check_sum(b, bytes / (int64_t)sizeof(float), e);
        rc = rc != 0 ? rc : time_sum(b, bytes / (int64_t)sizeof(float), e);
        if (rc == 0 && tell) {
            print_row(b, &b->row[b->rows - 1]);
        }
    }
    return rc;
}

/* --- the verb --------------------------------------------------------------------------------- */

static const char *bench_environment(const char *name)
{
    return getenv(name);
}

static int open_bench(struct bench *b, struct err *e)
{
    struct ranks ranks;
    int rc = ranks_read(bench_environment, &ranks, e);

    rc = rc != 0 ? rc : setup_device(b->o, ranks.local_rank, &b->k, e);
    if (rc == 0) {
        ranks.timeout_ms = LONG_WAIT * (uint64_t)b->o->comm_timeout * 1000;
        rc = ranks_join(&ranks, b->k, &b->comm, e);
    }
    if (rc == 0) {
        const struct watchdog_options wo = {.comm = b->comm,
                                            .k = b->k,
                                            .out = ".",
                                            .host = ranks.master_addr,
                                            .timeout_ms = (uint64_t)b->o->comm_timeout * 1000};

        rc = watchdog_open(&wo, &b->watchdog, e);
    }
    if (rc == 0 && b->k->stream_open(&b->ks) != 0) {
        rc = err_set(e, E_CUDA, "%s: cannot open a stream: %s", b->k->name, b->k->fault());
    }
    if (rc == 0) {
        void *buf = NULL;

        comm_watch(b->comm, b->k, b->ks);
        rc = b->k->mem_alloc(&buf, (size_t)most_bytes(b));
        b->buf = buf;
        rc = rc != 0
                 ? err_set(e, rc, "%s: not enough memory for an allreduce of 1 GiB", b->k->device)
                 : 0;
    }
    return rc;
}

int bench_comm(const struct options *o, struct err *e)
{
    struct bench b = {.o = o};
    int rc = setup_at_least("comm-timeout", o->comm_timeout, 1, e);

    rc = rc != 0 ? rc : open_bench(&b, e);
    rc = rc != 0 ? rc : run_sizes(&b, e);
    if (rc != 0 && b.watchdog != NULL) {
        watchdog_fail(b.watchdog, rc, e->text);
    }
    if (rc != 0) {
        return rc; /* nothing is freed of a group that did not form */
    }
    if (b.comm->rank == 0 && o->json) {
        print_comm_json(&b);
    }
    b.k->mem_free(b.buf);
    b.k->stream_close(&b.ks);
    watchdog_close(&b.watchdog);
    comm_close(&b.comm);
    return 0;
}
