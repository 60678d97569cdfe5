/* libnccl.so for the host's GPU: sums between processes, through a file that all of them map. A
 * collective is work of its stream like any other, and is not done before its peers have come.
 *
 * FAKE_NCCL     "inprogress=3;1.async=6", a number for all ranks or for one:
 *     inprogress=N   a call is under way for N questions, before it is done
 *     async=RESULT   what the communicator's state becomes, at the operation that `at` names (1: the first)
 *     at=K           and for:
 *     never=1        operation K is never done, nor any after it
 *     kill=1         the process dies of SIGKILL in operation K
 *     hang=1         the call of operation K does not return
 *     init=RESULT    the ranks do not connect; initnever=1: they never get ready
 *     abort=1        ncclCommAbort() does not return
 *     memory=BYTES   of the device, taken by the first sum of 4 MiB or more
 *     version=N      as ncclGetVersion() has it: 22105 is 2.21.5
 *
 * Calls that a communicator's user may not make end the process with a word: a blocking one, an
 * operation while the last call is under way, destroying a communicator that has failed.
 */
#include <nccl.h>

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <string>

#include "kernels/float16.h"
#include "tests/simt/runtime.h"

enum { RANKS_MAX = 8, SPLITS_MAX = 4, PIECE_BYTES = 1 << 20, LARGE_BYTES = 4 << 20 };

/* What the ranks share. Of each piece: all have brought theirs, all have taken the sum. */
struct meeting {
    std::atomic<int> joined;
    std::atomic<int> color[SPLITS_MAX][RANKS_MAX]; /* of each split, + 1 */
    std::atomic<uint64_t> brought[RANKS_MAX], took[RANKS_MAX];
    alignas(64) char piece[RANKS_MAX][PIECE_BYTES];
};

struct simt_nccl {
    int rank, ranks;
    meeting *with;
    long under_way; /* questions until the last call is done */
    uint64_t pieces;
    long operations;
    int splits;
    simt_nccl *parent; /* of a split that is not known to be complete yet */
    int split;
    ncclResult_t state;
    bool initialised, finalised;
    std::atomic<bool> aborted;
    std::string path;
};

static long wish(const char *name)
{
    return simt_wish("FAKE_NCCL", name, 0);
}

[[noreturn]] static void misused(const char *what)
{
    fprintf(stderr, "fake nccl: %s\n", what);
    abort();
}

static void for_ever()
{
    for (;;) {
        pause();
    }
}

/* As the real one's log has them. */
static void log_line(const char *text)
{
    const char *path = getenv("NCCL_DEBUG_FILE"), *level = getenv("NCCL_DEBUG");
    FILE *f = path != nullptr && level != nullptr ? fopen(path, "a") : nullptr;

    if (f != nullptr) {
        fprintf(f, "host:%d:%d [0] %s\n", getpid(), getpid(), text);
        fclose(f);
    }
}

ncclResult_t ncclGetVersion(int *version)
{
    *version = static_cast<int>(simt_wish("FAKE_NCCL", "version", 22809));
    return ncclSuccess;
}

ncclResult_t ncclGetUniqueId(ncclUniqueId *id)
{
    int fd;

    memset(id, 0, sizeof *id);
    strcpy(id->internal, "/dev/shm/fake-nccl-XXXXXX");
    fd = mkstemp(id->internal);
    if (fd == -1 || ftruncate(fd, sizeof(meeting)) == -1) {
        return ncclSystemError;
    }
    close(fd);
    return ncclSuccess;
}

const char *ncclGetErrorString(ncclResult_t rc)
{
    return rc == ncclRemoteError ? "remote process exited or there was a network error"
           : rc == ncclSystemError ? "unhandled system error (run with NCCL_DEBUG=INFO for details)"
           : rc == ncclInvalidUsage ? "invalid usage (run with NCCL_DEBUG=WARN for details)"
                                    : "internal error - please report this issue to the NCCL developers";
}

const char *ncclGetLastError(ncclComm_t)
{
    return "";
}

static bool map_meeting(simt_nccl *c, int fd)
{
    void *map = fd == -1 ? MAP_FAILED
                         : mmap(nullptr, sizeof(meeting), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

    if (fd != -1) {
        close(fd);
    }
    c->with = map == MAP_FAILED ? nullptr : static_cast<meeting *>(map);
    return c->with != nullptr;
}

static void join(simt_nccl *c)
{
    if (++c->with->joined == c->ranks) {
        unlink(c->path.c_str());
    }
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t *out, int ranks, ncclUniqueId id, int rank,
                                    ncclConfig_t *config)
{
    simt_nccl *c = new simt_nccl();

    if (config->blocking != 0) {
        misused("a communicator that blocks hangs with its peers");
    }
    if (ranks > RANKS_MAX || !map_meeting(c, open(id.internal, O_RDWR))) {
        return ncclSystemError;
    }
    c->rank = rank;
    c->ranks = ranks;
    c->path = id.internal;
    c->under_way = wish("inprogress");
    join(c);
    log_line("NCCL INFO Using network Socket");
    *out = c;
    return ncclInProgress;
}

/* All ranks of the parent have said their color: who is in this part is known. */
static void look_for_part(simt_nccl *c)
{
    const std::atomic<int> *color = c->parent->with->color[c->split];
    int mine = color[c->parent->rank], fd;

    for (int r = 0; r < c->parent->ranks; r++) {
        if (color[r] == 0) {
            return;
        }
    }
    for (int r = 0; r < c->parent->ranks; r++) {
        c->rank += color[r] == mine && r < c->parent->rank;
        c->ranks += color[r] == mine;
    }
    c->path = c->parent->path + "." + std::to_string(c->split) + "." + std::to_string(mine);
    fd = open(c->path.c_str(), O_RDWR | O_CREAT, 0600);
    if (fd == -1 || ftruncate(fd, sizeof(meeting)) == -1 || !map_meeting(c, fd)) {
        c->state = ncclSystemError;
        return;
    }
    c->parent = nullptr;
    join(c);
}

static void look_whether_ready(simt_nccl *c)
{
    if (c->parent != nullptr) {
        look_for_part(c);
    }
    if (c->with == nullptr) {
        return;
    }
    if (c->initialised || wish("initnever") != 0) {
        return;
    }
    if (wish("init") != 0) {
        log_line("init.cc:1 NCCL WARN Bootstrap : no socket interface found");
        c->state = static_cast<ncclResult_t>(wish("init"));
    }
    c->initialised = c->with->joined == c->ranks || c->state != ncclSuccess;
}

ncclResult_t ncclCommSplit(ncclComm_t parent, int color, int key, ncclComm_t *out, ncclConfig_t *config)
{
    simt_nccl *c = new simt_nccl();

    if (config->blocking != 0 || key != parent->rank || parent->splits == SPLITS_MAX) {
        misused("a split of another kind than this double knows");
    }
    c->parent = parent;
    c->split = parent->splits++;
    parent->with->color[c->split][parent->rank] = color + 1;
    parent->under_way = c->under_way = wish("inprogress");
    *out = c;
    return ncclInProgress;
}

ncclResult_t ncclCommUserRank(const ncclComm_t c, int *rank)
{
    *rank = c->rank;
    return ncclSuccess;
}

ncclResult_t ncclCommCount(const ncclComm_t c, int *ranks)
{
    *ranks = c->ranks;
    return ncclSuccess;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t c, ncclResult_t *state)
{
    look_whether_ready(c);
    if (c->state != ncclSuccess) {
        *state = c->state;
    } else if (c->under_way > 0 || !c->initialised) {
        c->under_way -= c->under_way > 0;
        *state = ncclInProgress;
    } else {
        *state = ncclSuccess;
    }
    return ncclSuccess;
}

ncclResult_t ncclCommFinalize(ncclComm_t c)
{
    c->finalised = true;
    c->under_way = wish("inprogress");
    return ncclInProgress;
}

ncclResult_t ncclCommDestroy(ncclComm_t c)
{
    if (c->state != ncclSuccess || c->aborted || !c->finalised) {
        misused("a communicator that failed, or was not finalised, hangs when it is destroyed");
    }
    munmap(c->with, sizeof *c->with);
    delete c;
    return ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t c)
{
    if (wish("abort") != 0) {
        for_ever();
    }
    c->aborted = true;
    return ncclSuccess;
}

/* --- sums ------------------------------------------------------------------------------------- */

static size_t bytes_of(ncclDataType_t type)
{
    return type == ncclDouble ? 8 : type == ncclFloat ? 4 : 2;
}

static double get(ncclDataType_t type, const void *from, size_t i)
{
    switch (type) {
    case ncclDouble:
        return static_cast<const double *>(from)[i];
    case ncclFloat:
        return static_cast<const float *>(from)[i];
    case ncclBfloat16:
        return bf16_widen(static_cast<const uint16_t *>(from)[i]);
    default:
        return f16_widen(static_cast<const uint16_t *>(from)[i]);
    }
}

static void put(ncclDataType_t type, void *to, size_t i, double x)
{
    switch (type) {
    case ncclDouble:
        static_cast<double *>(to)[i] = x;
        break;
    case ncclFloat:
        static_cast<float *>(to)[i] = static_cast<float>(x);
        break;
    case ncclBfloat16:
        static_cast<uint16_t *>(to)[i] = bf16_round(static_cast<float>(x));
        break;
    default:
        static_cast<uint16_t *>(to)[i] = f16_round(static_cast<float>(x));
    }
}

enum kind { ALLREDUCE, REDUCE_SCATTER, ALLGATHER };

/* A collective that is under way on its stream. */
struct sum {
    simt_nccl *c;
    kind what;
    const char *from;
    char *to;
    ncclDataType_t type;
    size_t count, done; /* elements that each rank brings */
    bool brought;
};

static bool all_are_at(const std::atomic<uint64_t> *at, int ranks, uint64_t want)
{
    for (int i = 0; i < ranks; i++) {
        if (at[i] < want) {
            return false;
        }
    }
    return true;
}

/* Elements [from, to) of this piece; `to_first` is where the first one goes. */
static void add_up(const sum *s, size_t from, size_t to, char *to_first)
{
    const struct meeting *with = s->c->with;

    for (size_t i = from; i < to; i++) {
        double x = 0;

        for (int r = 0; r < s->c->ranks; r++) {
            x += get(s->type, with->piece[r], i);
        }
        put(s->type, to_first, i - from, x);
    }
}

/* The same for what almost all elements are. */
static void add_up_floats(const sum *s, size_t from, size_t to, float *to_first)
{
    const struct meeting *with = s->c->with;
    const float *piece[RANKS_MAX];

    for (int r = 0; r < s->c->ranks; r++) {
        piece[r] = reinterpret_cast<const float *>(with->piece[r]);
    }
    for (size_t i = from; i < to; i++) {
        double x = 0;

        for (int r = 0; r < s->c->ranks; r++) {
            x += static_cast<double>(piece[r][i]);
        }
        to_first[i - from] = static_cast<float>(x);
    }
}

static void take_sum(sum *s, size_t n)
{
    size_t mine = s->what == ALLREDUCE ? s->count : s->count / static_cast<size_t>(s->c->ranks);
    size_t first = s->what == ALLREDUCE ? 0 : mine * static_cast<size_t>(s->c->rank);

    size_t from = first > s->done ? first - s->done : 0;
    size_t to = first + mine > s->done ? first + mine - s->done : 0;
    size_t size = bytes_of(s->type);

    to = to < n ? to : n;
    if (from >= to) {
        return;
    }
    char *at = s->to + (s->done + from - first) * size;
    if (s->type == ncclFloat) {
        add_up_floats(s, from, to, reinterpret_cast<float *>(at));
    } else {
        add_up(s, from, to, at);
    }
}

static void take(sum *s, size_t n)
{
    size_t size = bytes_of(s->type);

    if (s->what != ALLGATHER) {
        take_sum(s, n);
        return;
    }
    for (int r = 0; r < s->c->ranks; r++) {
        memcpy(s->to + (static_cast<size_t>(r) * s->count + s->done) * size, s->c->with->piece[r],
               n * size);
    }
}

/* One piece further, if the others let it. */
static bool go_on(sum *s)
{
    simt_nccl *c = s->c;
    size_t room = PIECE_BYTES / bytes_of(s->type), left = s->count - s->done;
    size_t n = left < room ? left : room;

    if (c->aborted) {
        return true;
    }
    if (!s->brought) {
        if (!all_are_at(c->with->took, c->ranks, c->pieces)) {
            return false;
        }
        memcpy(c->with->piece[c->rank], s->from + s->done * bytes_of(s->type), n * bytes_of(s->type));
        c->with->brought[c->rank] = c->pieces + 1;
        s->brought = true;
    }
    if (!all_are_at(c->with->brought, c->ranks, c->pieces + 1)) {
        return false;
    }
    take(s, n);
    c->with->took[c->rank] = ++c->pieces;
    s->brought = false;
    s->done += n;
    return s->done == s->count;
}

static ncclResult_t misbehave(simt_nccl *c, bool *never)
{
    if (c->operations != wish("at")) {
        return ncclSuccess;
    }
    if (wish("kill") != 0) {
        raise(SIGKILL);
    }
    if (wish("hang") != 0) {
        for_ever();
    }
    *never = wish("never") != 0;
    if (wish("async") != 0) {
        log_line("transport.cc:1 NCCL WARN NET/IB : Got completion from peer with status=12");
        c->state = static_cast<ncclResult_t>(wish("async"));
        *never = true;
    }
    return ncclSuccess;
}

static ncclResult_t begin(kind what, const void *from, void *to, size_t count, ncclDataType_t type,
                          ncclComm_t c, cudaStream_t stream)
{
    bool never = false;

    if (!c->initialised || c->under_way > 0) {
        misused("a call while the last one is under way");
    }
    if (c->operations++ == 0) {
        log_line("NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM");
        log_line("NCCL INFO 24 coll channels, 24 collnet channels, 16 nvls channels, 32 p2p channels");
    }
    if (count * bytes_of(type) >= LARGE_BYTES) {
        static bool has_taken;

        if (!has_taken && !simt_take_memory(static_cast<size_t>(wish("memory")))) {
            c->state = ncclUnhandledCudaError;
            return c->state;
        }
        has_taken = true;
    }
    simt_trace(stream, what == ALLGATHER ? "allgather" : what == ALLREDUCE ? "allreduce" : "reduce_scatter",
               count * bytes_of(type));
    misbehave(c, &never);
    c->under_way = wish("inprogress");
    sum *s = new sum{c, what, static_cast<const char *>(from), static_cast<char *>(to), type, count, 0, false};
    simt_enqueue(stream, [s, never] {
        if (never || (s->count > 0 && !go_on(s))) {
            return false;
        }
        delete s;
        return true;
    });
    return c->under_way > 0 ? ncclInProgress : ncclSuccess;
}

ncclResult_t ncclAllReduce(const void *from, void *to, size_t count, ncclDataType_t type,
                           ncclRedOp_t, ncclComm_t c, cudaStream_t stream)
{
    return begin(ALLREDUCE, from, to, count, type, c, stream);
}

ncclResult_t ncclReduceScatter(const void *from, void *to, size_t count, ncclDataType_t type,
                               ncclRedOp_t, ncclComm_t c, cudaStream_t stream)
{
    return begin(REDUCE_SCATTER, from, to, count * static_cast<size_t>(c->ranks), type, c, stream);
}

ncclResult_t ncclAllGather(const void *from, void *to, size_t count, ncclDataType_t type,
                           ncclComm_t c, cudaStream_t stream)
{
    return begin(ALLGATHER, from, to, count, type, c, stream);
}
