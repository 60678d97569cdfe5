/* Every state of an ingest, by the calls that lead to it, and every call that is not allowed there;
 * what is parked is found again, also when a version before this one parked it. */
#include "server/store/ingest.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/wait.h>

#include "common/base/log.h"
#include "tests/harness/states.h"
#include "tests/harness/store.h"

enum { SIZE = 300001, HALF = 150003 };

static const struct ingest_how named = {.length_bytes = SIZE, .named = true, .hash_bytes = SIZE};
static const struct ingest_how small = {.small = true, .hash_bytes = UINT64_MAX};

static struct ingest *opened(struct fixture *f, const struct ingest_how *how)
{
    struct ingest *in = NULL;

    assert_int_equal(ingest_open(f->s, how, &in, NULL), 0);
    return in;
}

static void append(struct ingest *in, struct slice bytes, size_t step)
{
    for (size_t at = 0; at < bytes.n; at += step) {
        size_t n = bytes.n - at < step ? bytes.n - at : step;
        assert_int_equal(ingest_append(in, slice_of(bytes.p + at, n), NULL), 0);
    }
}

static struct partial *save(struct ingest *in, uint64_t bytes)
{
    struct partial *p = partial_new(PARTIAL_SYNC, SLICE("repo\0path"));

    p->total_bytes = SIZE;
    p->source = SLICE("http://a.example/");
    p->validator = SLICE("\"e\"");
    p->summed = true;
    extents_add(&p->have, 0, bytes);
    assert_int_equal(ingest_save(in, p, NULL, COMMIT_LAZY, NULL), 0);
    return p;
}

static struct digest sealed(struct fixture *f, struct ingest **in)
{
    struct batch *b = batch_new();
    struct digest d;

    assert_int_equal(ingest_finish(*in, ingest_bytes(*in), &d, NULL), 0);
    assert_int_equal(ingest_state(*in), INGEST_WHOLE);
    assert_int_equal(ingest_seal(in, b, NULL, NULL), 0);
    assert_null(*in);
    assert_int_equal(store_commit(f->s, &b, COMMIT_LAZY, NULL), 0);
    return d;
}

static int count_row(void *arg, struct slice key, struct slice value)
{
    (void)key;
    (void)value;
    ++*(int *)arg;
    return 0;
}

static int rows(struct fixture *f)
{
    int n = 0;

    assert_int_equal(store_scan(f->s, TABLE_PARTIAL, SLICE_NONE, SLICE_NONE, count_row, &n, NULL),
                     0);
    return n;
}

/* --- states ----------------------------------------------------------------------------------- */

static void test_table(void **state)
{
    static const char *const drawn[] = {
        [INGEST_MEMORY] = ".x.xx", [INGEST_FILE] = "..xxx",  [INGEST_LOST] = "....x",
        [INGEST_WHOLE] = "....x",  [INGEST_ENDED] = ".....",
    };

    (void)state;
    assert_states(&ingest_states, ARRAY_LEN(drawn), drawn);
}

static void test_memory(void **state)
{
    struct fixture *f = *state;
    struct slice bytes = sample_bytes(1, SIZE);
    struct ingest *in = opened(f, &small);
    struct digest d;

    assert_int_equal(ingest_state(in), INGEST_MEMORY);
    assert_int_equal(ingest_fd(in), -1);
    append(in, slice_first(bytes, 1000), 7);
    assert_int_equal(ingest_state(in), INGEST_MEMORY);
    d = sealed(f, &in);
    assert_blob(f->s, &d, 1000);

    in = opened(f, &small); /* nothing at all */
    d = sealed(f, &in);
    assert_blob(f->s, &d, 0);

    in = opened(f, &small);
    append(in, bytes, 4099);
    assert_int_equal(ingest_state(in), INGEST_FILE);
    assert_int_equal(ingest_hashed(in), SIZE);
    d = sealed(f, &in);
    assert_blob(f->s, &d, SIZE);

    in = opened(f, &small);
    ingest_drop(&in);
    assert_null(in);
    ingest_drop(&in);
    free((char *)(uintptr_t)bytes.p);
}

static void test_park_and_resume(void **state)
{
    struct fixture *f = *state;
    struct slice bytes = sample_bytes(2, SIZE);
    struct ingest *in = opened(f, &named);
    struct digest d, half;
    struct partial *p;

    append(in, slice_first(bytes, HALF), 10007);
    p = save(in, HALF);
    assert_int_equal(rows(f), 1);
    ingest_park(&in);
    assert_null(in);
    partial_give(f->s, &p);
    fixture_reopen(f);
    assert_null(partial_take(f->s, PARTIAL_FETCH, SLICE("repo\0path")));
    assert_null(partial_take(f->s, PARTIAL_SYNC, SLICE("repo\0pat")));
    p = partial_take(f->s, PARTIAL_SYNC, SLICE("repo\0path"));
    assert_non_null(p);
    assert_null(partial_take(f->s, PARTIAL_SYNC, SLICE("repo\0path")));
    assert_true(slice_eqs(p->source, "http://a.example/"));
    assert_true(slice_eqs(p->validator, "\"e\""));
    assert_true(p->summed && !p->digest_known);
    digest_of(slice_first(bytes, HALF), &half);
    assert_true(digest_eq(&p->sum, &half));
    assert_int_equal(extents_until(&p->have, 0), HALF);

    assert_int_equal(ingest_resume(f->s, p, &named, &in, NULL), 0);
    assert_int_equal(ingest_state(in), INGEST_FILE);
    assert_int_equal(ingest_bytes(in), HALF);
    assert_int_equal(ingest_hashed(in), HALF); /* they were verified */
    append(in, slice_from(bytes, HALF), 10007);
    assert_int_equal(ingest_hashed(in), SIZE);
    d = sealed(f, &in);
    assert_blob(f->s, &d, SIZE);
    assert_int_equal(rows(f), 0);
    assert_int_equal(ingest_resume(f->s, p, &named, &in, NULL), E_NOTFOUND);
    assert_null(in);
    partial_free(&p);
    free((char *)(uintptr_t)bytes.p);
}

static void test_ends(void **state)
{
    struct fixture *f = *state;
    struct ingest *in = opened(f, &named);
    struct partial *p;
    struct digest d;

    ingest_park(&in); /* no row speaks of it: it goes */
    in = opened(f, &named);
    append(in, SLICE("abc"), 3);
    p = save(in, 3);
    assert_int_equal(ingest_finish(in, 3, &d, NULL), 0);
    ingest_park(&in); /* WHOLE, and not sealed */
    p->sum.b[0]++;
    assert_int_equal(ingest_resume(f->s, p, &named, &in, NULL), E_CORRUPT);
    assert_null(in);
    p->sum.b[0]--;
    assert_int_equal(ingest_resume(f->s, p, &named, &in, NULL), 0);
    ingest_drop(&in);
    assert_int_equal(rows(f), 0);
    assert_int_equal(ingest_resume(f->s, p, &named, &in, NULL), E_NOTFOUND);
    partial_free(&p);
}

/* A pipe cannot be synced: as a disk that fails. */
static void lose(struct ingest *in)
{
    struct partial *p = partial_new(PARTIAL_SYNC, SLICE("x"));
    int file = dup(ingest_fd(in));
    int ends[2];

    assert_true(file != -1);
    assert_int_equal(ingest_write(in, "x", 1, 0, NULL), 0);
    assert_int_equal(pipe(ends), 0);
    assert_true(dup2(ends[1], ingest_fd(in)) != -1);
    close(ends[0]);
    close(ends[1]);
    assert_int_not_equal(ingest_save(in, p, NULL, COMMIT_LAZY, NULL), 0);
    assert_true(dup2(file, ingest_fd(in)) != -1);
    close(file);
    partial_free(&p);
}

static void test_lost(void **state)
{
    struct fixture *f = *state;
    struct ingest *in = opened(f, &named);
    struct partial *p = partial_new(PARTIAL_SYNC, SLICE("x"));
    struct slice bytes = sample_bytes(5, SIZE);
    struct batch *b = batch_new();
    struct digest d, want;

    lose(in);
    assert_int_equal(ingest_state(in), INGEST_LOST);
    assert_int_equal(ingest_save(in, p, NULL, COMMIT_LAZY, NULL), E_IO);
    append(in, bytes, SIZE); /* who reads it gets all of it */
    assert_int_equal(ingest_finish(in, SIZE, &d, NULL), 0);
    digest_of(bytes, &want);
    assert_true(digest_eq(&d, &want));
    assert_int_equal(ingest_state(in), INGEST_LOST);
    assert_int_equal(ingest_seal(&in, b, NULL, NULL), E_IO);
    assert_null(in);
    assert_int_equal(rows(f), 0);

    in = opened(f, &named);
    lose(in);
    ingest_drop(&in);
    batch_free(&b);
    partial_free(&p);
    free((char *)(uintptr_t)bytes.p);
}

/* A disk that fails once, and two saves at a time: the kernel tells one of them alone. The first
 * waits for the other a while. */
enum { OTHER_MS = 500 };
static atomic_int syncs = -1; /* < 0: the disk is well */

int fdatasync(int fd)
{
    int n;

    if (atomic_load(&syncs) < 0) {
        return fsync(fd);
    }
    n = atomic_fetch_add(&syncs, 1);
    for (int ms = 0; n == 0 && ms < OTHER_MS && atomic_load(&syncs) < 2; ms++) {
        usleep(1000);
    }
    errno = EIO;
    return n == 0 ? -1 : 0;
}

static void *save_of(void *arg)
{
    struct partial *p = partial_new(PARTIAL_SYNC, SLICE("x"));
    int rc;

    extents_add(&p->have, 0, 1);
    rc = ingest_save(arg, p, NULL, COMMIT_LAZY, NULL);
    partial_free(&p);
    return (void *)(intptr_t)rc;
}

static void test_lost_by_another(void **state)
{
    struct fixture *f = *state;
    struct ingest *in = opened(f, &named);
    pthread_t thread[2];

    assert_int_equal(ingest_write(in, "x", 1, 0, NULL), 0);
    atomic_store(&syncs, 0);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(pthread_create(&thread[i], NULL, save_of, in), 0);
    }
    for (int i = 0; i < 2; i++) {
        void *rc;
        assert_int_equal(pthread_join(thread[i], &rc), 0);
        assert_int_equal((intptr_t)rc, E_IO);
    }
    atomic_store(&syncs, -1);
    assert_int_equal(ingest_state(in), INGEST_LOST);
    assert_int_equal(rows(f), 0);
    ingest_drop(&in);
}

/* --- what no state allows --------------------------------------------------------------------- */

enum misuse { APPEND, WRITE, SAVE, FINISH, SEAL, MISUSES };

static void misuse(struct ingest *in, enum misuse what)
{
    struct batch *b = batch_new();
    struct partial *p = partial_new(PARTIAL_SYNC, SLICE("x"));
    struct digest d;

    switch (what) {
    case APPEND:
        (void)!ingest_append(in, SLICE("a"), NULL);
        break;
    case WRITE:
        (void)!ingest_write(in, "a", 1, 0, NULL);
        break;
    case SAVE:
        (void)!ingest_save(in, p, NULL, COMMIT_LAZY, NULL);
        break;
    case FINISH:
        (void)!ingest_finish(in, 0, &d, NULL);
        break;
    case SEAL:
        (void)!ingest_seal(&in, b, NULL, NULL);
        break;
    case MISUSES:
        break;
    }
}

static bool aborts(struct ingest *in, enum misuse what)
{
    pid_t pid = fork();
    int status = 0;

    if (pid == 0) {
        int null = open("/dev/null", O_WRONLY);
        dup2(null, 2);
        signal(SIGABRT, SIG_DFL);
        misuse(in, what);
        _exit(0);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return !(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static void test_misuse(void **state)
{
    struct fixture *f = *state;
    struct ingest *in = opened(f, &small);
    struct digest d;

    assert_true(aborts(in, SEAL));
    assert_true(aborts(in, WRITE)); /* there is no file */
    assert_true(aborts(in, SAVE));
    assert_int_equal(ingest_finish(in, 0, &d, NULL), 0);
    for (int what = 0; what < MISUSES; what++) {
        assert_int_equal(aborts(in, what), what != SEAL);
    }
    ingest_drop(&in);
    in = opened(f, &named);
    assert_true(aborts(in, SEAL));
    assert_int_equal(ingest_finish(in, 0, &d, NULL), 0);
    for (int what = APPEND; what <= FINISH; what++) {
        assert_true(aborts(in, what));
    }
    ingest_drop(&in);
}

/* --- bytes ------------------------------------------------------------------------------------ */

static void test_blocks(void **state)
{
    struct fixture *f = *state;
    _Atomic uint64_t recent = 0;
    struct ingest_how how = {.length_bytes = SIZE,
                             .small = true,
                             .blocks = true,
                             .hash_bytes = 5000,
                             .recent_bytes = &recent};
    struct slice bytes = sample_bytes(3, SIZE);
    struct ingest *in = opened(f, &how);
    struct digest d, want;

    append(in, bytes, 1001);
    assert_int_equal(ingest_hashed(in), 4 * 1001);
    assert_int_equal(ingest_written(in), SIZE / SPARSE_BLOCK * SPARSE_BLOCK);
    assert_true(recent > 0);
    assert_int_equal(ingest_hash(in, 100000, NULL), 0);
    assert_int_equal(ingest_hashed(in), 100000);
    d = sealed(f, &in);
    digest_of(bytes, &want);
    assert_true(digest_eq(&d, &want));
    assert_blob(f->s, &d, SIZE);
    assert_int_equal(recent, 0);

    in = opened(f, &how);
    append(in, bytes, 65536);
    ingest_drop(&in);
    assert_int_equal(recent, 0);
    free((char *)(uintptr_t)bytes.p);
}

enum { BLOCKS = 10, RECENT_SIZE = BLOCKS * SPARSE_BLOCK + 17 };

static bool is_appended_whole(size_t block)
{
    return block < 2 || block == 5 || block == 8;
}

/* Whole blocks go straight to the file; what is gathered into one stays in memory. */
static void append_some_whole(struct ingest *in, struct slice bytes)
{
    for (size_t i = 0; i * SPARSE_BLOCK < bytes.n; i++) {
        struct slice block = slice_from(bytes, i * SPARSE_BLOCK);
        block = slice_first(block, block.n < SPARSE_BLOCK ? block.n : SPARSE_BLOCK);
        append(in, block, is_appended_whole(i) ? SPARSE_BLOCK : 1 + SPARSE_BLOCK / 2);
    }
}

/* Blocks in memory, blocks that are missing, a job that ends between two, a rest: the digest is
 * that of what was appended. A block in memory is not read from the file, unless a part of it was
 * hashed before. */
static void test_recent(void **state)
{
    struct fixture *f = *state;
    _Atomic uint64_t recent = 0;
    struct ingest_how how = {.length_bytes = RECENT_SIZE, .blocks = true, .recent_bytes = &recent};
    struct slice bytes = sample_bytes(7, RECENT_SIZE);
    struct ingest *in = opened(f, &how);
    struct digest d, want;

    append_some_whole(in, bytes);
    assert_int_equal(recent, 6 * SPARSE_BLOCK);
    assert_int_equal(ingest_hashed(in), 0);
    assert_int_equal(pwrite(ingest_fd(in), "other", 5, 3 * SPARSE_BLOCK), 5);
    assert_int_equal(ingest_hash(in, 4 * SPARSE_BLOCK + 1, NULL), 0);
    assert_int_equal(ingest_hashed(in), 4 * SPARSE_BLOCK + 1);
    assert_int_equal(recent, 4 * SPARSE_BLOCK);
    assert_int_equal(ingest_finish(in, RECENT_SIZE, &d, NULL), 0);
    assert_int_equal(recent, 0);
    digest_of(bytes, &want);
    assert_true(digest_eq(&d, &want));
    ingest_drop(&in);
    free((char *)(uintptr_t)bytes.p);
}

static void test_file_too_short(void **state)
{
    struct fixture *f = *state;
    _Atomic uint64_t recent = 0;
    struct ingest_how how = {.length_bytes = RECENT_SIZE, .blocks = true, .recent_bytes = &recent};
    struct slice bytes = sample_bytes(8, 2 * SPARSE_BLOCK);
    struct ingest *in = opened(f, &how);

    append(in, slice_first(bytes, SPARSE_BLOCK), SPARSE_BLOCK);
    append(in, slice_from(bytes, SPARSE_BLOCK), 1 + SPARSE_BLOCK / 2);
    assert_int_equal(recent, SPARSE_BLOCK);
    assert_int_equal(ftruncate(ingest_fd(in), 0), 0);
    assert_int_not_equal(ingest_hash(in, 2 * SPARSE_BLOCK, NULL), 0);
    assert_int_equal(recent, 0);
    ingest_drop(&in);
    free((char *)(uintptr_t)bytes.p);
}

/* In any order; hashed where the next ones come in order, the rest from the file. Some are void and
 * come again. */
static void test_places(void **state)
{
    struct fixture *f = *state;
    struct slice bytes = sample_bytes(4, SIZE);
    struct ingest *in = opened(f, &named);
    struct batch *b = batch_new();
    struct digest d, want;

    assert_int_equal(ingest_write(in, bytes.p + HALF, SIZE - HALF, HALF, NULL), 0);
    ingest_hash_along(in, slice_from(bytes, HALF), HALF);
    assert_int_equal(ingest_hashed(in), 0);
    assert_int_equal(ingest_write(in, "wrong", 5, 0, NULL), 0);
    ingest_hash_along(in, SLICE("wrong"), 0);
    assert_int_equal(ingest_hashed(in), 5);
    assert_int_equal(ingest_cut(in, 0, 5, NULL), 0);
    assert_int_equal(ingest_hashed(in), 0);
    assert_int_equal(ingest_write(in, bytes.p, HALF, 0, NULL), 0);
    ingest_hash_along(in, slice_first(bytes, HALF), 0);
    assert_int_equal(ingest_hashed(in), HALF);
    assert_int_equal(ingest_cut(in, HALF, 0, NULL), 0);
    assert_int_equal(ingest_hashed(in), HALF);
    assert_int_equal(ingest_finish(in, SIZE, &d, NULL), 0);
    digest_of(bytes, &want);
    assert_true(digest_eq(&d, &want));
    assert_int_equal(ingest_seal(&in, b, NULL, NULL), 0);
    assert_int_equal(store_commit(f->s, &b, COMMIT_LAZY, NULL), 0);
    assert_blob(f->s, &d, SIZE);
    free((char *)(uintptr_t)bytes.p);
}

/* Of two parts the second one is cut off: the first need not be hashed again, not by the next
 * ingest either. */
static void test_mark_and_hasher(void **state)
{
    struct fixture *f = *state;
    struct slice bytes = sample_bytes(6, SIZE);
    struct ingest *in = opened(f, &named);
    struct partial *p = partial_new(PARTIAL_UPLOAD, SLICE("id"));
    struct digest d, want;
    struct hasher *h;

    assert_int_equal(ingest_write(in, bytes.p, HALF, 0, NULL), 0);
    ingest_hash_along(in, slice_first(bytes, HALF), 0);
    ingest_mark(in);
    assert_int_equal(ingest_write(in, "wrong", 5, HALF, NULL), 0);
    ingest_hash_along(in, SLICE("wrong"), HALF);
    assert_int_equal(ingest_hashed(in), HALF + 5);
    assert_int_equal(ingest_cut(in, HALF, 5, NULL), 0);
    assert_int_equal(ingest_hashed(in), HALF);
    assert_int_equal(ingest_save(in, p, NULL, COMMIT_LAZY, NULL), 0);
    h = ingest_hasher_take(in);
    ingest_park(&in);
    assert_int_equal(ingest_resume(f->s, p, &named, &in, NULL), 0);
    assert_int_equal(ingest_hashed(in), 0);
    ingest_hasher_give(in, &h);
    assert_null(h);
    assert_int_equal(ingest_hashed(in), HALF);
    assert_int_equal(ingest_cut(in, 0, HALF, NULL), 0); /* before any mark: from the front */
    assert_int_equal(ingest_hashed(in), 0);
    assert_int_equal(ingest_write(in, bytes.p, SIZE, 0, NULL), 0);
    assert_int_equal(ingest_finish(in, SIZE, &d, NULL), 0);
    digest_of(bytes, &want);
    assert_true(digest_eq(&d, &want));
    assert_null(ingest_hasher_take(in)); /* it has come to its end */
    ingest_drop(&in);
    assert_int_equal(rows(f), 0);
    fixture_reopen(f); /* an upload's row is not in the table */
    partial_free(&p);
    free((char *)(uintptr_t)bytes.p);
}

static void test_when_to_save(void **state)
{
    struct fixture *f = *state;
    struct ingest *in = opened(f, &named);
    struct ingest *nameless = opened(f, &small);
    uint64_t now = (uint64_t)1 << 40;

    assert_false(ingest_save_is_due(nameless, 1, now));
    assert_false(ingest_save_is_due(in, 0, now));
    assert_true(ingest_save_is_due(in, 1, now));
    assert_false(ingest_save_is_due(in, 1, now + 100000));
    assert_false(ingest_save_is_due(in, 2, now + 4999));
    assert_true(ingest_save_is_due(in, 2, now + 5000));
    assert_true(ingest_save_is_due(in, 2 + (64 << 20), now + 5001));
    ingest_drop(&in);
    ingest_drop(&nameless);
}

/* --- partials --------------------------------------------------------------------------------- */

static uint64_t park(struct fixture *f, enum partial_kind kind, struct slice name, uint64_t bytes)
{
    struct ingest *in = opened(f, &named);
    struct partial *p = partial_new(kind, name);
    uint64_t id = ingest_id(in);

    assert_int_equal(ingest_write(in, "x", 1, 0, NULL), 0);
    p->total_bytes = SIZE;
    extents_add(&p->have, 0, bytes);
    assert_int_equal(ingest_save(in, p, NULL, COMMIT_LAZY, NULL), 0);
    ingest_park(&in);
    partial_give(f->s, &p);
    return id;
}

static bool begins(void *arg, const struct partial *p)
{
    return slice_starts(partial_name(p), slice_str(arg));
}

static void test_those_that_go(void **state)
{
    struct fixture *f = *state;
    struct partial *p;
    uint64_t fuller;

    park(f, PARTIAL_FETCH, SLICE("a/1"), 10);
    fuller = park(f, PARTIAL_FETCH, SLICE("a/1"), 30);
    park(f, PARTIAL_FETCH, SLICE("a/1"), 20);
    park(f, PARTIAL_FETCH, SLICE("b/1"), 5);
    park(f, PARTIAL_SYNC, SLICE("a/1"), 40);
    assert_int_equal(rows(f), 5);
    partials_drop_lost(f->s);
    assert_int_equal(rows(f), 3);
    fixture_reopen(f);
    partials_lose(f->s, PARTIAL_FETCH, begins, (void *)(uintptr_t) "b");
    partials_drop_lost(f->s);
    assert_int_equal(rows(f), 2);
    partials_lose_old(f->s, 0, 30);
    partials_drop_lost(f->s);
    assert_int_equal(rows(f), 2);
    p = partial_take_if(f->s, PARTIAL_FETCH, begins, (void *)(uintptr_t) "a");
    assert_int_equal(p->id, fuller);
    partial_give(f->s, &p);
    partials_lose_old(f->s, 0, 29); /* only fills have such a bound */
    partials_drop_lost(f->s);
    assert_int_equal(rows(f), 1);
    partials_lose_old(f->s, UINT64_MAX, UINT64_MAX);
    partials_drop_lost(f->s);
    assert_int_equal(rows(f), 0);
}

static char said[256];

static void note(enum log_level level, const char *line)
{
    (void)level;
    snprintf(said, sizeof said, "%s", line);
}

/* The log says what the disk has back, also of one that is known by its id alone. */
static void test_bytes_of_those_that_go(void **state)
{
    struct fixture *f = *state;
    uint64_t id = park(f, PARTIAL_SYNC, SLICE("a"), 1);
    struct partial *p = partial_take(f->s, PARTIAL_SYNC, SLICE("a"));
    uint64_t bytes = 0;

    partial_free(&p);
    partial_lose(f->s, id);
    log_divert(note);
    partials_drop_lost(f->s);
    log_divert(NULL);
    assert_int_equal(sscanf(said, "partial.dropped bytes=%" SCNu64, &bytes), 1);
    assert_true(bytes > 0);
}

/* The oldest go, however many there are. */
static void test_the_oldest_go(void **state)
{
    enum { COUNT = 100 };
    struct fixture *f = *state;
    char name[16];

    for (int i = 0; i < COUNT; i++) {
        struct partial *p;
        snprintf(name, sizeof name, "%d", i);
        p = partial_new(PARTIAL_FETCH, slice_str(name));
        p->id = (uint64_t)i + 1;
        p->saved_unix_s = (uint64_t)(i * 37 % COUNT); /* each once */
        extents_add(&p->have, 0, 10);
        partial_give(f->s, &p);
    }
    partials_lose_old(f->s, 0, 10 * 10);
    for (int i = 0; i < COUNT; i++) {
        struct partial *p;
        snprintf(name, sizeof name, "%d", i);
        p = partial_take(f->s, PARTIAL_FETCH, slice_str(name));
        assert_int_equal(p != NULL, i * 37 % COUNT >= COUNT - 10);
        partial_free(&p);
    }
}

/* Somebody has the stage open: neither row nor file goes. */
static void test_in_use(void **state)
{
    struct fixture *f = *state;
    uint64_t id = park(f, PARTIAL_SYNC, SLICE("a"), 1);
    struct partial *p = partial_take(f->s, PARTIAL_SYNC, SLICE("a"));
    struct ingest *in = NULL;

    assert_int_equal(ingest_resume(f->s, p, &named, &in, NULL), 0);
    partial_drop(f->s, &p);
    assert_int_equal(rows(f), 1);
    ingest_park(&in);
    partial_lose(f->s, id);
    partials_drop_lost(f->s);
    assert_int_equal(rows(f), 0);
}

/* --- a store of the version before ------------------------------------------------------------ */

static uint64_t old_row(struct fixture *f, struct slice row)
{
    struct batch *b = batch_new();
    struct stage *st = NULL;
    char key[STAGE_KEY_BYTES];
    uint64_t id;

    assert_int_equal(stage_open(f->s, 0, true, &st, NULL), 0);
    assert_int_equal(stage_write(st, "0123456789", 10, 0, NULL), 0);
    assert_int_equal(stage_sync(st, NULL), 0);
    id = stage_id(st);
    stage_key(id, key);
    stage_park(&st);
    batch_put(b, TABLE_PARTIAL, slice_of(key, sizeof key), row);
    assert_int_equal(store_commit(f->s, &b, COMMIT_LAZY, NULL), 0);
    return id;
}

static void old_fetch(struct buf *row, struct slice validator)
{
    buf_clear(row);
    buf_str(row, "fill3");
    buf_be(row, 8, 6);
    buf_str(row, "hf");
    buf_byte(row, 0);
    buf_str(row, "key");
    buf_be(row, 8, 1234);               /* saved */
    buf_be(row, 8, 1000);               /* total */
    buf_be(row, 8, 0x1122334455667788); /* origin */
    buf_be(row, 8, validator.p != NULL ? validator.n : UINT64_MAX);
    buf_adds(row, validator);
    buf_byte(row, 1);
    for (int i = 0; i < DIGEST_BYTES; i++) {
        buf_byte(row, 7);
    }
    buf_be(row, 8, 2); /* runs */
    buf_be(row, 8, 0);
    buf_be(row, 8, 4);
    buf_be(row, 8, 6);
    buf_be(row, 8, 10);
}

static void old_sync(struct buf *row)
{
    buf_clear(row);
    buf_str(row, "sync1");
    buf_counted(row, 2, SLICE("debian"));
    buf_counted(row, 2, SLICE("pool/x"));
    buf_counted(row, 2, SLICE("http://u/"));
    buf_byte(row, 0);
    for (int i = 0; i < DIGEST_BYTES; i++) {
        buf_byte(row, 0);
    }
    buf_byte(row, 1); /* version */
    buf_byte(row, 0);
    buf_be(row, 8, 100);  /* listed size, */
    buf_be(row, 8, 200);  /* time, */
    buf_be(row, 8, 1);    /* size's step */
    buf_be(row, 8, 5678); /* saved */
    buf_be(row, 8, 10);   /* bytes */
    buf_be(row, 8, 0);
    buf_be(row, 4, 60); /* time's step */
    for (int i = 0; i < DIGEST_BYTES; i++) {
        buf_byte(row, 9);
    }
    buf_str(row, "\"v\"");
}

static void test_store_of_before(void **state)
{
    static const char source[] = "http://u/"
                                 "\0\0\0\0\0\0\0\x64\0\0\0\0\0\0\0\xc8\0\0\0\0\0\0\0\1\0\0\0\x3c";
    struct fixture *f = *state;
    struct buf row = BUF_INIT(4096);
    struct ingest *in = NULL;
    uint64_t fill, sync;
    struct partial *p;
    char got[4];

    old_fetch(&row, SLICE("\"e\""));
    fill = old_row(f, buf_slice(&row));
    old_sync(&row);
    sync = old_row(f, buf_slice(&row));
    old_row(f, SLICE("fill2...")); /* older still */
    old_row(f, slice_first(buf_slice(&row), 40));
    old_row(f, SLICE("upload 0123456789abcdef0123456789abcdef"));
    fixture_reopen(f);
    assert_int_equal(stage_sweep(f->s, NULL), 0);
    partials_drop_lost(f->s);
    assert_int_equal(rows(f), 3);

    p = partial_take(f->s, PARTIAL_FETCH, SLICE("hf\0key"));
    assert_non_null(p);
    assert_int_equal(p->id, fill);
    assert_int_equal(p->saved_unix_s, 1234);
    assert_int_equal(p->total_bytes, 1000);
    assert_int_equal(be_get(p->source.p, 8), 0x1122334455667788);
    assert_true(slice_eqs(p->validator, "\"e\""));
    assert_true(p->digest_known && p->digest.b[31] == 7 && !p->summed);
    assert_int_equal(extents_bytes(&p->have), 8);
    assert_int_equal(ingest_resume(f->s, p, &named, &in, NULL), 0);
    assert_int_equal(pread(ingest_fd(in), got, 4, 6), 4);
    assert_memory_equal(got, "6789", 4);
    ingest_park(&in);
    partial_free(&p);

    p = partial_take(f->s, PARTIAL_SYNC, SLICE("debian\0pool/x"));
    assert_non_null(p);
    assert_int_equal(p->id, sync);
    assert_true(slice_eq(p->source, slice_of(source, sizeof source - 1)));
    assert_true(slice_eqs(p->validator, "\"v\""));
    assert_true(p->summed && p->sum.b[0] == 9 && !p->digest_known);
    assert_int_equal(extents_until(&p->have, 0), 10);
    partial_drop(f->s, &p);
    assert_int_equal(rows(f), 2);
    buf_free(&row);
}

int main(void)
{
#define TEST(fn) cmocka_unit_test_setup_teardown(fn, fixture_setup, fixture_teardown)
    const struct CMUnitTest tests[] = {
        TEST(test_table),
        TEST(test_memory),
        TEST(test_park_and_resume),
        TEST(test_ends),
        TEST(test_lost),
        TEST(test_bytes_of_those_that_go),
        TEST(test_the_oldest_go),
        TEST(test_lost_by_another),
        TEST(test_misuse),
        TEST(test_blocks),
        TEST(test_recent),
        TEST(test_file_too_short),
        TEST(test_places),
        TEST(test_when_to_save),
        TEST(test_mark_and_hasher),
        TEST(test_those_that_go),
        TEST(test_in_use),
        TEST(test_store_of_before),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
