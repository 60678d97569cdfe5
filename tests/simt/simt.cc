#include "tests/simt/simt.h"

#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

#include <vector>

enum { THREADS_MAX = 1024, STACK_BYTES = 256 << 10, LANES = 32 };
enum { GRID_YZ_MAX = 65535, SHARED_MAX = 227 << 10 }; /* a Hopper's; a grid's x has 31 bits */

namespace
{

struct copy {
    void *to;
    const void *from;
    bool valid;
    bool ends; /* a group, and copies nothing itself */
};

enum fiber_state { FRESH, READY, WAITS, GONE };

struct fiber {
    simt_thread thread; /* first: simt_now points here */
    fiber_state state;
    ucontext_t birth;
    void *context[5]; /* for __builtin_setjmp(), which makes no system call */
    char *stack;
    const char *waits_for;
    std::vector<copy> copies;
};

struct warp {
    void *lane[LANES];
    unsigned alive, came, mask; /* bits are lanes */
    void (*all)(void *lane[LANES]);
};

fiber threads[THREADS_MAX];
warp warps[THREADS_MAX / LANES];
void *scheduler[5];
ucontext_t nowhere;
const std::function<void()> *running;
int count, gone;
int at_barrier, brought_sum, barrier_result;
char *shared;
size_t shared_mapped;
simt_order order_now = SIMT_FORWARD;
uint64_t random_state = 1;

[[noreturn]] void die(const char *what)
{
    fprintf(stderr, "simt: %s\n", what);
    for (int i = 0; i < count; i++) {
        if (threads[i].state == WAITS) {
            fprintf(stderr, "simt: thread %d of block %u,%u,%u waits for %s\n", i,
                    threads[i].thread.block.x, threads[i].thread.block.y, threads[i].thread.block.z,
                    threads[i].waits_for);
        }
    }
    abort();
}

/* A function of its own: a jump may not stand in the function that it may lead back to. */
__attribute__((noinline, noreturn)) void jump(void **to)
{
    __builtin_longjmp(to, 1);
}

fiber *self()
{
    return reinterpret_cast<fiber *>(simt_now);
}

int number(const fiber *f)
{
    return static_cast<int>(f - threads);
}

void wait(const char *what)
{
    fiber *f = self();

    f->state = WAITS;
    f->waits_for = what;
    if (__builtin_setjmp(f->context) == 0) {
        jump(scheduler);
    }
}

void copy_now(const copy &c)
{
    if (c.valid) {
        memcpy(c.to, c.from, 16);
    } else {
        memset(c.to, 0, 16);
    }
}

/* --- meetings: they are over when all have come that still run -------------------------------- */

void release_block()
{
    if (at_barrier == 0 || at_barrier + gone < count) {
        return;
    }
    barrier_result = brought_sum;
    at_barrier = brought_sum = 0;
    for (int i = 0; i < count; i++) {
        if (threads[i].state == WAITS) {
            threads[i].state = READY;
        }
    }
}

void release_warp(int w)
{
    warp *x = &warps[w];

    if (x->came == 0 || (x->alive & x->mask & ~x->came) != 0) {
        return;
    }
    x->all(x->lane);
    for (int i = 0; i < LANES; i++) {
        if (x->lane[i] != nullptr) {
            threads[w * LANES + i].state = READY;
            x->lane[i] = nullptr;
        }
    }
    x->came = 0;
}

void run_thread()
{
    int i = number(self());

    (*running)();
    for (const copy &c : self()->copies) {
        if (!c.ends) {
            copy_now(c);
        }
    }
    self()->copies.clear();
    self()->state = GONE;
    gone++;
    warps[i / LANES].alive &= ~(1u << i % LANES);
    release_block();
    release_warp(i / LANES);
}

/* One thread after another, of all blocks: a new context costs system calls. */
void fiber_main()
{
    for (;;) {
        run_thread();
        if (__builtin_setjmp(self()->context) == 0) {
            jump(scheduler);
        }
    }
}

void begin(fiber *f)
{
    f->stack = static_cast<char *>(mmap(nullptr, STACK_BYTES, PROT_READ | PROT_WRITE,
                                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
    getcontext(&f->birth);
    f->birth.uc_stack.ss_sp = f->stack;
    f->birth.uc_stack.ss_size =
        STACK_BYTES - number(f) % 64 * 64; /* else all stacks share a few lines of the cache */
    f->birth.uc_link = nullptr;
    makecontext(&f->birth, fiber_main, 0);
    swapcontext(&nowhere, &f->birth);
}

void resume(fiber *f)
{
    f->state = READY;
    simt_now = &f->thread;
    if (__builtin_setjmp(scheduler) != 0) {
        return; /* it waits, or is gone */
    }
    if (f->stack == nullptr) {
        begin(f);
    }
    jump(f->context);
}

/* --- who is next ------------------------------------------------------------------------------ */

uint64_t next_random()
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return random_state >> 33;
}

std::vector<int> turns(int n)
{
    std::vector<int> turn(static_cast<size_t>(n));

    for (int i = 0; i < n; i++) {
        turn[static_cast<size_t>(i)] = order_now == SIMT_BACKWARD ? n - 1 - i : i;
    }
    for (int i = n - 1; order_now == SIMT_SHUFFLED && i > 0; i--) {
        std::swap(turn[static_cast<size_t>(i)], turn[next_random() % static_cast<uint64_t>(i + 1)]);
    }
    return turn;
}

/* One warp, lane by lane, until all its threads wait or are gone. */
bool run_warp(int w)
{
    std::vector<int> turn = turns(std::min<int>(LANES, count - w * LANES));
    bool progress = false, again = true;

    while (again) {
        again = false;
        for (int i : turn) {
            fiber *f = &threads[w * LANES + i];

            if (f->state == FRESH || f->state == READY) {
                resume(f);
                progress = again = true;
            }
        }
    }
    return progress;
}

/* The block's shared memory ends where memory ends, and holds NaN in every type. */
void map_shared(size_t size_bytes)
{
    size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    size_t whole = (size_bytes + page - 1) / page * page;

    shared = static_cast<char *>(
        mmap(nullptr, whole + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    mprotect(shared + whole, page, PROT_NONE);
    shared_mapped = whole;
}

void run_block(dim3 grid, dim3 block, dim3 at)
{
    int all = (count + LANES - 1) / LANES;

    gone = at_barrier = brought_sum = 0;
    for (int i = 0; i < count; i++) {
        unsigned n = static_cast<unsigned>(i);

        threads[i].thread = {dim3(n % block.x, n / block.x % block.y, n / block.x / block.y), at,
                             block, grid};
        threads[i].state = FRESH;
        warps[i / LANES].alive |= 1u << i % LANES;
    }
    while (gone < count) {
        bool progress = false;

        for (int w : turns(all)) {
            progress = run_warp(w) || progress;
        }
        if (!progress) {
            die("threads wait for each other");
        }
    }
}

} // namespace

simt_thread *simt_now;

void simt_set_order(simt_order order, uint64_t seed)
{
    order_now = order;
    random_state = seed;
}

void *simt_shared()
{
    return shared;
}

void simt_run(dim3 grid, dim3 block, size_t shared_bytes, const std::function<void()> &kernel)
{
    unsigned blocks = grid.x * grid.y * grid.z;

    count = static_cast<int>(block.x * block.y * block.z);
    if (count < 1 || count > THREADS_MAX || block.z > 64 || blocks == 0 || grid.y > GRID_YZ_MAX ||
        grid.z > GRID_YZ_MAX || shared_bytes > SHARED_MAX) {
        die("no such grid");
    }
    running = &kernel;
    map_shared(shared_bytes);
    for (int i : turns(static_cast<int>(blocks))) {
        unsigned n = static_cast<unsigned>(i);

        memset(shared, 0xff, shared_mapped);
        run_block(grid, block, dim3(n % grid.x, n / grid.x % grid.y, n / grid.x / grid.y));
    }
    munmap(shared, shared_mapped + static_cast<size_t>(sysconf(_SC_PAGESIZE)));
}

void simt_warp(unsigned mask, void *mine, void (*all)(void *lane[LANES]))
{
    int i = number(self());
    warp *w = &warps[i / LANES];

    if (w->came != 0 && (w->all != all || w->mask != mask)) {
        die("lanes of a warp do different things");
    }
    w->all = all;
    w->mask = mask;
    w->came |= 1u << i % LANES;
    w->lane[i % LANES] = mine;
    self()->state = WAITS; /* for release_warp() */
    self()->waits_for = "its warp";
    release_warp(i / LANES);
    if (self()->state == WAITS) {
        wait("its warp");
    }
}

int simt_block(int brought)
{
    at_barrier++;
    brought_sum += brought;
    self()->state = WAITS;
    release_block();
    if (self()->state == WAITS) {
        wait("the block");
    }
    return barrier_result;
}

void simt_copy_16(void *to, const void *from, bool valid)
{
    if (reinterpret_cast<uintptr_t>(to) % 16 != 0 ||
        (valid && reinterpret_cast<uintptr_t>(from) % 16 != 0)) {
        die("a copy of 16 bytes from or to where it may not be");
    }
    if (order_now == SIMT_BACKWARD || (order_now == SIMT_SHUFFLED && next_random() % 2 == 0)) {
        copy_now({to, from, valid, false});
    } else {
        self()->copies.push_back({to, from, valid, false});
    }
}

void simt_copies_end()
{
    self()->copies.push_back({nullptr, nullptr, false, true});
}

void simt_copies_done(int left)
{
    std::vector<copy> &all = self()->copies;
    int groups = 0;

    for (const copy &c : all) {
        groups += c.ends;
    }
    while (groups > left) {
        if (all.front().ends) {
            groups--;
        } else {
            copy_now(all.front());
        }
        all.erase(all.begin());
    }
}
