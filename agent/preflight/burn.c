/* burn.c - the checks of --full: what a node's disks and GPUs do when they are asked to. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent/agent.h"
#include "agent/preflight/cudalib.h"
#include "agent/preflight/look.h"
#include "agent/preflight/nvml.h"
#include "common/base/dice.h"
#include "common/codec/jread.h"
#include "common/codec/units.h"
#include "common/os/clock.h"
#include "common/os/forked.h"
#include "common/os/newfile.h"

/* --- the local cache's disk ------------------------------------------------------------------- */

enum { WRITE_BYTES = 128 << 20, WRITE_PIECE = 4 << 20, WRITE_MS = 5000 };

/* Not zeros and nothing that repeats: file systems and disks that pack or share what they store
 * would tell nothing. */
static void put_noise(uint64_t *p, size_t bytes, uint64_t seed)
{
    for (size_t i = 0; i < bytes / sizeof *p; i++) {
        p[i] = dice_throw(&seed);
    }
}

static uint64_t rate_of(uint64_t bytes, uint64_t took_ns)
{
    return (uint64_t)((double)bytes * 1e9 / (double)(took_ns > 0 ? took_ns : 1));
}

static int write_some(int fd, uint64_t *noise, uint64_t *bytes_per_s, struct err *e)
{
    uint64_t began = clock_now_ns(), n = 0;

    while (n < WRITE_BYTES && clock_now_ns() - began < (uint64_t)WRITE_MS * 1000000) {
        int rc;
        noise[0] = n; /* each piece another */
        rc = fd_write_all(fd, noise, WRITE_PIECE, e);
        if (rc != 0) {
            return rc;
        }
        n += WRITE_PIECE;
    }
    if (fdatasync(fd) == -1) {
        return err_sys(e, "fdatasync");
    }
    *bytes_per_s = rate_of(n, clock_now_ns() - began);
    return 0;
}

void check_write(struct look *l, struct finding *f)
{
    char rate[UNITS_TEXT], need[UNITS_TEXT];
    struct err why = {0};
    uint64_t bytes_per_s = 0, want = 0, *noise;
    /* Without a name: nothing is left, however we end. */
    int fd = open(l->agent->local_cache_dir, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    int rc;

    if (fd == -1 && (errno == ENOENT || errno == EOPNOTSUPP)) {
        finding_skip(f,
                     errno == ENOENT
                         ? "there is no local cache yet"
                         : "the local cache's file system does not support unnamed temporary files "
                           "(O_TMPFILE)");
        return;
    }
    if (fd == -1) {
        rc = err_sys(&why, "%s", l->agent->local_cache_dir);
    } else {
        noise = mem_new(WRITE_PIECE);
        put_noise(noise, WRITE_PIECE, 88172645463325252u ^ clock_now_ns());
        rc = write_some(fd, noise, &bytes_per_s, &why);
        free(noise);
        close(fd);
    }
    if (rc != 0) {
        finding_bad(f, "WRITE_FAILED", "check the mount, its permissions and the kernel's log",
                    "the local cache: %s", why.text);
        return;
    }
    size_format(bytes_per_s, rate);
    if (expect_u64(&l->expect, EXPECT_disk_rate, &want) && bytes_per_s < want) {
        size_format(want, need);
        finding_bad(f, "WRITE_SLOW", "check the disk (smartctl) and what else writes to it",
                    "the local cache's disk writes %s/s, expected at least %s/s", rate, need);
    }
    finding_ok(f, "the local cache's disk writes %s/s", rate);
}

/* --- to a GPU and back ------------------------------------------------------------------------ */

enum { COPY_BYTES = 64 << 20, COPY_TIMES = 4 };

struct copy {
    const struct cudalib *c;
    void *host, *back;
    cuda_memory there, beside;
    uint64_t in_per_s, out_per_s;
    bool differs;
};

static int one_way(struct copy *y, bool in, uint64_t *best)
{
    int rc = 0;

    for (int i = 0; rc == 0 && i < COPY_TIMES; i++) {
        uint64_t began = clock_now_ns();

        rc = in ? y->c->MemcpyHtoD(y->there, y->host, COPY_BYTES)
                : y->c->MemcpyDtoH(y->back, y->beside, COPY_BYTES);
        rc = rc != 0 ? rc : y->c->CtxSynchronize();
        *best = max_u64(*best, rate_of(COPY_BYTES, clock_now_ns() - began));
    }
    return rc;
}

/* There, from one place to another on the device, and back: the bytes must be the same. */
static int copy_round(struct copy *y, uint64_t seed)
{
    int rc = y->c->MemHostAlloc(&y->back, COPY_BYTES, 0);

    rc = rc != 0 ? rc : y->c->MemHostAlloc(&y->host, COPY_BYTES, 0);
    rc = rc != 0 ? rc : y->c->MemAlloc(&y->there, COPY_BYTES);
    rc = rc != 0 ? rc : y->c->MemAlloc(&y->beside, COPY_BYTES);
    if (rc != 0) {
        return rc;
    }
    put_noise(y->host, COPY_BYTES, seed | 1);
    rc = one_way(y, true, &y->in_per_s);
    rc = rc != 0 ? rc : y->c->MemcpyDtoD(y->beside, y->there, COPY_BYTES);
    rc = rc != 0 ? rc : one_way(y, false, &y->out_per_s);
    y->differs = rc == 0 && memcmp(y->back, y->host, COPY_BYTES) != 0;
    return rc;
}

static int copy_on(const struct cudalib *c, int i, char name[48], struct copy *y)
{
    cuda_context *context = NULL;
    char bdf[24] = "";
    int device = 0;
    int rc = c->DeviceGet(&device, i);

    *y = (struct copy){.c = c};
    if (rc == 0 && c->DeviceGetPCIBusId(bdf, sizeof bdf, device) == 0) {
        snprintf(name, 48, "GPU %d (%.16s)", i, bdf);
    } else {
        snprintf(name, 48, "GPU %d", i);
    }
    rc = rc != 0 ? rc : c->CtxCreate(&context, 0, device);
    rc = rc != 0 ? rc : copy_round(y, clock_now_ns());
    if (y->host != NULL) {
        c->MemFreeHost(y->host);
    }
    if (y->back != NULL) {
        c->MemFreeHost(y->back);
    }
    if (y->there != 0) {
        c->MemFree(y->there);
    }
    if (y->beside != 0) {
        c->MemFree(y->beside);
    }
    if (context != NULL) {
        c->CtxDestroy(context);
    }
    return rc;
}

void check_copy(struct look *l, struct finding *f)
{
    uint64_t want = 0, slowest = UINT64_MAX;
    char name[48], rate[UNITS_TEXT], need[UNITS_TEXT];
    struct cudalib c;
    struct err why = {0};
    int count = 0;

    if (cudalib_open(&c, &why) != 0 || c.rc != 0 || c.DeviceGetCount(&count) != 0 || count == 0) {
        finding_skip(f, "CUDA finds no GPU; see the check `cuda`");
        return;
    }
    for (int i = 0; i < count; i++) {
        struct copy y;
        int rc = copy_on(&c, i, name, &y);
        uint64_t worse = y.in_per_s < y.out_per_s ? y.in_per_s : y.out_per_s;

        if (rc != 0) {
            finding_bad(
                f, "COPY_FAILED",
                "check the kernel's log and whether the GPU's memory is in use (`gpu-memory`)",
                "%s: %s (%d)", name, cudalib_error(&c, rc), rc);
            continue;
        }
        if (y.differs) {
            finding_bad(f, "COPY_DIFFERS", "take the GPU out of service: it corrupts data silently",
                        "%s: 64 MiB that were copied to it and back came back corrupted", name);
        }
        slowest = worse < slowest ? worse : slowest;
        if (expect_u64(&l->expect, EXPECT_copy_rate, &want) && worse < want) {
            size_format(worse, rate);
            size_format(want, need);
            finding_bad(f, "COPY_SLOW",
                        "check the GPU's link (`pcie`) and whether the process runs near the GPU "
                        "(`affinity`)",
                        "%s: %s/s between host and GPU, expected at least %s/s", name, rate, need);
        }
    }
    size_format(slowest, rate);
    finding_ok(f, "%d %s: at least %s/s between host and GPU, data intact", count,
               plural((uint64_t)count, "GPU", "GPUs"), rate);
}

/* --- products, by our own trainer ------------------------------------------------------------- */

enum { BENCH_GPUS = 64, BENCH_TEXT = 256 << 10, NOT_STARTED = -1 };

struct bench {
    char gpu[48]; /* as CUDA_VISIBLE_DEVICES names it */
    pid_t pid;
    int fd;
    double tflops; /* the best row; 0: none */
    char said[160];
};

/* Those that a job was given, else all that NVML counts. */
static size_t name_gpus(unsigned n, struct bench *b)
{
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    struct slice rest = slice_str(visible);
    size_t k = 0;

    if (visible == NULL) {
        for (; k < n && k < BENCH_GPUS; k++) {
            snprintf(b[k].gpu, sizeof b[k].gpu, "%zu", k);
        }
        return k;
    }
    while (rest.n > 0 && k < BENCH_GPUS) {
        struct slice one = slice_trim(slice_cut(&rest, ','));
        if (one.n == 0 || one.n >= sizeof b[k].gpu || slice_eq(one, SLICE("-1"))) {
            break;
        }
        snprintf(b[k++].gpu, sizeof b[0].gpu, SLICE_FMT, SLICE_ARG(one));
    }
    return k;
}

/* It ends when we do, however that is: else it would have the GPU for itself while a job starts
 * there. */
NORETURN static void become_bench(const struct bench *b, pid_t parent, int fd)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) {
        _exit(1);
    }
    dup2(fd, STDOUT_FILENO);
    dup2(fd, STDERR_FILENO);
    setenv("CUDA_DEVICE_ORDER", "PCI_BUS_ID", 1); /* as NVML counts */
    setenv("CUDA_VISIBLE_DEVICES", b->gpu, 1);
    execlp("trainer", "trainer", "bench", "--json", "--device", "cuda", "--dtype", "bf16",
           "--config", "gpt2-124m", "--batch", "8", "--seq", "1024", "--only", "gemm",
           (char *)NULL);
    _exit(127);
}

/* Without a process its pid stays 0, and said has the reason. */
static void start_bench(struct bench *b)
{
    pid_t me = getpid(), pid;
    struct err why;
    int fd;

    b->fd = -1;
    if (forked_start(&pid, &fd, &why) != 0) {
        snprintf(b->said, sizeof b->said, "%s", why.text);
        return;
    }
    if (pid == 0) {
        become_bench(b, me, fd);
    }
    b->pid = pid;
    b->fd = fd;
}

static double best_row(const json_t *o)
{
    const json_t *rows = json_object_get(o, "rows");
    double best = 0;

    for (size_t i = 0; i < json_array_size(rows); i++) {
        double v = json_number_value(json_object_get(json_array_get(rows, i), "tflops"));
        best = v > best ? v : best;
    }
    return best;
}

/* The last line of what it said is its result, or why there is none. */
static int end_bench(struct bench *b)
{
    struct buf text = BUF_INIT(BENCH_TEXT);
    struct slice rest, last = SLICE_NONE;
    int status = 0;
    char *room;
    ssize_t n = 1;

    if (b->pid == 0) {
        return NOT_STARTED;
    }
    while (n > 0 && (room = buf_room(&text, 4096)) != NULL) {
        n = read(b->fd, room, 4096);
        buf_grew(&text, n > 0 ? (size_t)n : 0);
    }
    close(b->fd);
    waitpid(b->pid, &status, 0);
    rest = buf_slice(&text);
    while (rest.n > 0) {
        struct slice line = slice_cut(&rest, '\n');
        last = line.n > 0 ? line : last;
    }
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0 && last.n > 0) {
        json_t *o = json_loadb(last.p, last.n, 0, NULL);
        b->tflops = best_row(o);
        json_decref(o);
    }
    snprintf(b->said, sizeof b->said, "%.*s", (int)min_u64(last.n, 150),
             last.p != NULL ? last.p : "");
    buf_free(&text);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/* All at once: what they share (power, cooling) is shared by a job as well. */
void check_gemm(struct look *l, struct finding *f)
{
    enum { NO_PROGRAM = 127, NO_CUDA = 69 };
    struct bench *b = mem_array(BENCH_GPUS, sizeof *b);
    struct nvml *nvml = NULL;
    double fastest = 0, slowest = 1e12;
    uint64_t want = 0;
    size_t n;

    n = name_gpus(nvml_open(&nvml, NULL) == 0 ? nvml->n : 0, b);
    if (n == 0) {
        finding_skip(f, "no GPU");
    }
    for (size_t i = 0; i < n; i++) {
        start_bench(&b[i]);
    }
    for (size_t i = 0; i < n; i++) {
        int code = end_bench(&b[i]);

        if (code == NO_PROGRAM) {
            finding_skip(f, "trainer is not in PATH");
        } else if (code == NO_CUDA) {
            finding_skip(f, "trainer: %s", b[i].said);
        } else if (code == NOT_STARTED) {
            finding_warn(f, "GEMM_NOT_RUN",
                         "check the limit on the number of processes (ulimit -u, pids.max)",
                         "GPU %s: trainer bench could not be started: %s", b[i].gpu, b[i].said);
        } else if (b[i].tflops <= 0) {
            finding_bad(f, "GEMM_FAILED",
                        "check the kernel's log; run `trainer bench --only gemm` by hand",
                        "GPU %s: trainer bench exited with %d: %s", b[i].gpu, code, b[i].said);
        }
        if (b[i].tflops > 0) {
            fastest = b[i].tflops > fastest ? b[i].tflops : fastest;
            slowest = b[i].tflops < slowest ? b[i].tflops : slowest;
        }
    }
    for (size_t i = 0; i < n; i++) {
        bool low = expect_u64(&l->expect, EXPECT_tflops, &want) && b[i].tflops < (double)want;
        if (b[i].tflops > 0 && (low || b[i].tflops < 0.8 * fastest)) {
            finding_bad(f, "GEMM_SLOW",
                        "see the checks `throttle` and `temperature`; check cooling and power",
                        "GPU %s: %.0f TFLOP/s in matrix products, %s %.0f", b[i].gpu, b[i].tflops,
                        low ? "expected at least" : "but another GPU of this node reaches",
                        low ? (double)want : fastest);
        }
    }
    if (fastest > 0) {
        finding_ok(f, "%zu %s: %.0f to %.0f TFLOP/s in matrix products", n,
                   plural(n, "GPU", "GPUs"), slowest, fastest);
    }
    free(b);
}
