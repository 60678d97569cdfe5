/* store_load - works on a store until it is killed, then says whether it is whole. Driven by
 * tests/crash/test_store_*.py.
 *
 *   write DIR SEED   publishes, fetches, evicts, collects; a line "kept <digest> <size>" once a
 *                    blob must never be lost
 *   check DIR        reads such lines; deep verify, every kept blob read and hashed; exit 1 when
 *                    something is wrong
 *   fill DIR         fills the file system below DIR to its last byte, and lives on; exit 1 when
 *                    something is lost
 */
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/os/clock.h"
#include "common/os/lock.h"
#include "common/os/newfile.h"
#include "server/store/keep.h"
#include "server/store/row.h"
#include "server/store/tree.h"

#define REPO SLICE("models")
#define TREE SLICE("me/out")

static void must(bool ok, const char *what, const struct err *e)
{
    if (!ok) {
        fprintf(stderr, "store_load: %s: %s\n", what, e != NULL ? e->text : "");
        exit(1);
    }
}

static struct store *open_store(const char *dir, uint64_t quota_bytes)
{
    struct store_settings set = {
        .state_dir = dir,
        .quota_bytes = quota_bytes,
        .reserve_bytes = 1,
        .high_ratio = 0.8,
        .low_ratio = 0.7,
        .block_cache_bytes = 8 << 20,
    };
    struct store *s = NULL;
    struct err e = {0};

    must(store_open(&set, &s, &e) == 0, "open", &e);
    must(stage_sweep(s, &e) == 0, "sweep", &e);
    return s;
}

struct worker {
    struct store *s;
    uint64_t x; /* random state */
    char bytes[200 << 10];
};

static uint64_t rnd(struct worker *w)
{
    w->x ^= w->x << 13;
    w->x ^= w->x >> 7;
    w->x ^= w->x << 17;
    return w->x;
}

static struct slice random_bytes(struct worker *w)
{
    size_t n = rnd(w) % 3 == 0 ? rnd(w) % 2000 : 30000 + rnd(w) % (sizeof w->bytes - 30000);

    for (size_t i = 0; i + 8 <= n; i += 8) {
        uint64_t v = rnd(w);
        memcpy(w->bytes + i, &v, 8);
    }
    return slice_of(w->bytes, n);
}

static void hold(struct batch *b, const struct digest *d, struct slice repo, char kind,
                 struct slice key)
{
    struct buf row = BUF_INIT(4096);

    holder_key(&row, d, repo, kind, key);
    batch_put(b, TABLE_HOLDER, buf_slice(&row), SLICE_NONE);
    buf_free(&row);
}

/* Adds the file to the tree and publishes; false: somebody was faster. */
static bool publish(struct worker *w, const struct digest *d, uint64_t size, struct batch *b)
{
    char path[40];
    int n = snprintf(path, sizeof path, "d%u/%u", (unsigned)(rnd(w) % 8), (unsigned)(rnd(w) % 999));
    struct tree_edit t = {.entry = {.path = slice_of(path, (size_t)n),
                                    .type = ENTRY_FILE,
                                    .size_bytes = size,
                                    .digest = *d}};
    struct digest root;
    struct snap live, sn;
    uint64_t entries, bytes;
    struct err e = {0};
    bool first = head_get(w->s, REPO, TREE, &live, NULL) != 0;
    int rc;

    if (first) {
        tree_empty_root(&live.root);
    }
    must(tree_edit(w->s, &live.root, &t, 1, b, &root, &entries, &bytes, &e) == 0, "edit", &e);
    rc = head_publish(w->s, REPO, TREE, &root, entries, bytes, first ? NULL : &live.root, false,
                      clock_unix_s(), b, &sn, &e);
    hold(b, d, REPO, 't', TREE);
    must(rc == 0 || rc == E_CHANGED, "publish", &e);
    return rc == 0;
}

static bool try_keep(struct worker *w, struct slice bytes)
{
    struct batch *b = batch_new();
    struct blob *blob = NULL;
    struct err e = {0};
    char line[128], hex[DIGEST_HEX + 1];
    int n, rc = blob_put_bytes(w->s, bytes, b, &blob, &e);

    if (rc != 0 || !publish(w, blob_digest(blob), bytes.n, b)) {
        must(rc == 0 || rc == E_NOSPACE, "put", &e);
        blob_release(&blob);
        batch_free(&b);
        return rc != 0;
    }
    digest_format(blob_digest(blob), hex);
    blob_release(&blob);
    rc = store_commit(w->s, &b, COMMIT_SYNC, &e);
    must(rc == 0 || rc == E_CHANGED, "commit", &e);
    if (rc == 0) {
        n = snprintf(line, sizeof line, "kept %s %zu\n", hex, bytes.n);
        must(write(1, line, (size_t)n) == n, "pipe", NULL);
    }
    return rc == 0;
}

/* A pull-through object; made two hours old so that eviction takes it. */
static void cache_one(struct worker *w, struct stage *st, struct slice bytes, uint64_t id)
{
    struct batch *b = batch_new();
    struct digest d;
    struct err e = {0};
    char row[BLOB_ROW_BYTES], key[24], object[32];
    struct blob_row r = {bytes.n <= BLOB_INLINE_BYTES ? BLOB_INLINE : BLOB_FILE, bytes.n,
                         clock_unix_s() - 7200, 0};
    int n = snprintf(key, sizeof key, "k%016" PRIx64, rnd(w)); /* of one object, once */
    int m = snprintf(object, sizeof object, "hf%c%s", 0, key);

    digest_of(bytes, &d);
    if (id != 0) {
        char partial[STAGE_KEY_BYTES];
        stage_key(id, partial);
        batch_del(b, TABLE_PARTIAL, slice_of(partial, sizeof partial));
    }
    must(stage_seal(&st, &d, bytes.n, NULL, 0, b, NULL, &e) == 0, "seal", &e);
    blob_row_encode(&r, row);
    batch_put(b, TABLE_BLOB, slice_of(d.b, DIGEST_BYTES), slice_of(row, sizeof row));
    hold(b, &d, SLICE("hf"), 'o', slice_of(key, (size_t)n));
    batch_put(b, TABLE_OBJECT, slice_of(object, (size_t)m), SLICE("object"));
    must(store_commit(w->s, &b, COMMIT_LAZY, &e) == 0, "commit", &e);
}

/* In two halves, with a row for the first and sometimes a pause in between. */
static void fill_one(struct worker *w)
{
    struct slice bytes = random_bytes(w);
    struct stage *st = NULL;
    bool named = rnd(w) % 2 == 0;
    uint64_t id = 0;
    struct err e = {0};
    int rc = stage_open(w->s, bytes.n, named, &st, &e);

    if (rc == E_NOSPACE) {
        return;
    }
    must(rc == 0, "stage", &e);
    must(stage_write(st, bytes.p, bytes.n / 2, 0, &e) == 0, "write", &e);
    if (named) {
        struct batch *b = batch_new();
        char key[STAGE_KEY_BYTES];
        id = stage_id(st);
        must(stage_sync(st, &e) == 0, "sync", &e);
        stage_key(id, key);
        batch_put(b, TABLE_PARTIAL, slice_of(key, sizeof key), SLICE("half"));
        must(store_commit(w->s, &b, COMMIT_LAZY, &e) == 0, "commit", &e);
        if (rnd(w) % 2 == 0) {
            stage_park(&st);
            rc = stage_resume(w->s, id, bytes.n, &st, &e);
            must(rc == 0 || rc == E_NOSPACE, "resume", &e);
            if (rc != 0) {
                return;
            }
        }
    }
    rc = stage_write(st, bytes.p + bytes.n / 2, bytes.n - bytes.n / 2, bytes.n / 2, &e);
    must(rc == 0 || rc == E_NOSPACE, "write", &e); /* a parked stage gives its reservation back */
    if (rc != 0) {
        stage_abort(&st);
        return;
    }
    cache_one(w, st, bytes, id);
}

static NORETURN void *run_writer(void *arg)
{
    struct worker *w = arg;

    for (;;) {
        if (rnd(w) % 8 == 0) {
            try_keep(w, random_bytes(w));
        } else {
            fill_one(w);
        }
    }
}

static NORETURN void *run_keeper(void *arg)
{
    struct worker *w = arg;

    for (;;) {
        struct gc_report g;
        uint64_t freed, damaged;
        struct err e = {0};
        int rc = evict_needed(w->s) ? evict_run(w->s, 0, NULL, &freed, &e) : 0;
        must(rc == 0 || rc == E_NOSPACE || rc == E_AGAIN, "evict", &e);
        rc = gc_run(w->s, 2, false, &g, &e);
        must(rc == 0, "gc", &e);
        must(scrub_step(w->s, 1 << 20, UINT64_MAX, &freed, &damaged, &e) == 0 && damaged == 0,
             "scrub", &e);
        usleep(1000);
    }
}

static int do_write(const char *dir, uint64_t seed)
{
    static struct worker w[4];
    struct store *s = open_store(dir, 24 << 20);
    pthread_t t = 0;

    for (size_t i = 0; i < ARRAY_LEN(w); i++) {
        w[i].s = s;
        w[i].x = (seed + 1) * 0x9e3779b97f4a7c15u + i * 77 + 1;
        t = thread_start("load", i == 0 ? run_keeper : run_writer, &w[i]);
    }
    pthread_join(t, NULL);
    return 1;
}

/* --- check --- */

static void print_finding(void *arg, const char *what)
{
    (void)arg;
    printf("%s\n", what);
}

static uint64_t verify(struct store *s, uint64_t *orphans)
{
    struct verify_report r;
    struct err e = {0};

    must(verify_run(s, true, false, NULL, print_finding, NULL, &r, &e) == 0, "verify", &e);
    *orphans = r.orphans;
    return r.damaged + r.missing + r.bad_rows;
}

static void check_kept(struct store *s, const struct digest *d, uint64_t size)
{
    struct blob *b = NULL;
    struct digest got;
    struct err e = {0};
    char *p = mem_new((size_t)size + 1);

    must(blob_open(s, d, &b, &e) == 0, "a kept blob", &e);
    must(blob_size_bytes(b) == size && blob_read(b, 0, p, (size_t)size, &e) == 0, "its bytes", &e);
    digest_of(slice_of(p, (size_t)size), &got);
    must(digest_eq(&got, d), "its digest", NULL);
    blob_release(&b);
    free(p);
}

static int do_check(const char *dir)
{
    struct store *s = open_store(dir, 24 << 20);
    uint64_t orphans, again, bad, kept = 0, size;
    char hex[DIGEST_HEX + 2];
    struct digest d;

    bad = verify(s, &orphans);
    bad += verify(s, &again) + again;
    must(bad == 0, "verify found more than orphans", NULL);
    while (scanf("kept %65s %" SCNu64 "\n", hex, &size) == 2) {
        must(digest_parse(slice_str(hex), &d), "a line", NULL);
        check_kept(s, &d, size);
        kept++;
    }
    store_close(&s);
    printf("whole: kept %" PRIu64 " orphans %" PRIu64 "\n", kept, orphans);
    return 0;
}

/* --- fill --- */

struct full {
    struct worker w;
    struct digest kept[4096];
    uint64_t size[4096];
    size_t count;
};

/* Puts blobs until one fails; the code of the failure. Inline ones are for RocksDB to fail on, not
 * the stage. */
static int put_until_it_fails(struct full *f, size_t most, bool inline_ones)
{
    for (size_t i = 0; i < most && f->count < ARRAY_LEN(f->kept); i++) {
        struct slice bytes = random_bytes(&f->w);
        char object[64];
        int n = snprintf(object, sizeof object, "hf%c%zu", 0, f->count);
        struct batch *b = batch_new();
        struct err e = {0};
        struct digest d;
        int rc;

        bytes.n = inline_ones ? min_u64(bytes.n, BLOB_INLINE_BYTES) : bytes.n;
        rc = blob_put_bytes(f->w.s, bytes, b, NULL, &e);
        digest_of(bytes, &d);
        hold(b, &d, SLICE("hf"), 'o', slice_of(object + 3, (size_t)n - 3));
        batch_put(b, TABLE_OBJECT, slice_of(object, (size_t)n), SLICE("object"));
        if (rc == 0) {
            rc = store_commit(f->w.s, &b, COMMIT_SYNC, &e);
        }
        batch_free(&b);
        if (rc != 0) {
            fprintf(stderr, "after %zu blobs: %s\n", f->count, e.text);
            return rc;
        }
        f->kept[f->count] = d;
        f->size[f->count++] = bytes.n;
    }
    return 0;
}

static void check_all(struct full *f)
{
    for (size_t i = 0; i < f->count; i++) {
        check_kept(f->w.s, &f->kept[i], f->size[i]);
    }
}

/* Somebody else takes what is left of the disk. */
static void write_junk(const char *path)
{
    static char block[4096];
    int fd = open(path, O_CREAT | O_WRONLY | O_TRUNC, 0600);

    while (fd != -1 && write(fd, block, sizeof block) == (ssize_t)sizeof block) {
    }
    close(fd);
}

static int do_fill(const char *dir)
{
    static struct full f;
    char junk[512], state[512];
    struct store_space sp;
    uint64_t orphans = 0;
    int rc;

    snprintf(junk, sizeof junk, "%s/junk", dir);
    snprintf(state, sizeof state, "%s/state", dir);
    f.w.s = open_store(state, 0);
    f.w.x = 4711;
    must(put_until_it_fails(&f, 40, false) == 0 && f.count == 40, "the first blobs", NULL);
    write_junk(junk);
    must(put_until_it_fails(&f, 100, false) == E_NOSPACE, "a full disk should say so", NULL);
    rc = put_until_it_fails(&f, 3900, true);
    must(rc == E_NOSPACE || f.count == 3940, "a full disk should say so", NULL);
    check_all(&f); /* reads go on */
    store_space(f.w.s, &sp);
    printf("full: kept %zu rc=%d full=%d healthy=%d\n", f.count, rc, sp.full,
           store_healthy(f.w.s, NULL));
    write_junk(junk); /* also what the ballast gave */
    (void)put_until_it_fails(&f, 10, true);
    check_all(&f);
    must(unlink(junk) == 0, "junk", NULL);
    rc = E_NOSPACE;
    for (int i = 0; i < 300 && rc != 0; i++) { /* RocksDB looks for room every five seconds */
        usleep(100000);
        rc = put_until_it_fails(&f, 5, false);
    }
    must(rc == 0, "writes come back", NULL);
    check_all(&f);
    must(verify(f.w.s, &orphans) == 0 && orphans == 0, "verify", NULL);
    store_close(&f.w.s);
    f.w.s = open_store(state, 0);
    check_all(&f);
    must(verify(f.w.s, &orphans) == 0 && orphans == 0, "verify after a restart", NULL);
    store_close(&f.w.s);
    printf("whole: kept %zu orphans %" PRIu64 "\n", f.count, orphans);
    return 0;
}

int main(int argc, char **argv)
{
    if (argc == 4 && strcmp(argv[1], "write") == 0) {
        return do_write(argv[2], strtoull(argv[3], NULL, 10));
    }
    if (argc == 3 && strcmp(argv[1], "check") == 0) {
        return do_check(argv[2]);
    }
    if (argc == 3 && strcmp(argv[1], "fill") == 0) {
        return do_fill(argv[2]);
    }
    fprintf(stderr, "usage: store_load write DIR SEED | check DIR | fill DIR\n");
    return 64;
}
