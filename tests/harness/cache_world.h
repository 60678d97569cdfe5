/* cache_world.h - a store, a cache, loops and the fake origin, without HTTP in front: for tests of
 * server/cache.
 *
 * world_open() starts tests/harness/origin.py as a child; world_restart() closes and opens the
 * daemon's side only. A client wants one key on a loop and reads its body to the end, hashing what
 * it gets.
 */
#ifndef TESTS_HARNESS_CACHE_WORLD_H
#define TESTS_HARNESS_CACHE_WORLD_H

#include <arpa/inet.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "common/base/log.h"
#include "common/os/clock.h"
#include "common/os/lock.h"
#include "common/os/newfile.h"
#include "server/cache/cache.h"

struct world {
    char dir[64];
    struct store *store;
    struct pool *disk;
    struct loops *loops;
    struct cache *cache;
    struct cache_settings set;
    uint64_t quota_bytes; /* 0: 512 MiB */
    pid_t origin_pid;
    int origin_in; /* closing it ends the origin */
    unsigned origin_port;
    struct origin *origin;
    struct origin_settings origin_set;
};

struct client {
    struct world *w;
    struct loop *loop;
    struct message message;
    struct lookup lookup;
    uint64_t first, end; /* window to read; 0, LENGTH_UNKNOWN: all */
    bool slow;           /* never reads more than a byte */
    struct cache_ask *ask;
    struct answer *answer;
    struct body *body;
    struct hasher *hasher;
    struct buf kept; /* the first 64 KiB of what came */
    struct lock lock;
    struct cond cond;
    bool done;
    bool answered;
    int status;
    enum cache_state state;
    int rc; /* of the body */
    uint64_t got;
    uint64_t total;
    char etag[128];
    char why[256];
    char sha256[DIGEST_HEX + 1];
    char url[512];
    char key[512];
};

/* --- the origin --- */

static inline void origin_spawn(struct world *w)
{
    int in[2];
    int out[2];
    char line[32] = "";
    const char *root;
    FILE *f;

    assert_int_equal(pipe(in), 0);
    assert_int_equal(pipe(out), 0);
    root = getenv("MIRROR_SOURCE"); /* tests run in folders of their own */
    w->origin_pid = fork();
    assert_true(w->origin_pid >= 0);
    if (w->origin_pid == 0) {
        dup2(in[0], 0);
        dup2(out[1], 1);
        for (int fd = 3; fd < 64; fd++) {
            close(fd);
        }
        if (root != NULL && chdir(root) != 0) {
            _exit(127);
        }
        execlp("python3", "python3", "tests/harness/origin.py", "--host", "0.0.0.0", (char *)NULL);
        _exit(127);
    }
    close(in[0]);
    close(out[1]);
    w->origin_in = in[1];
    f = fdopen(out[0], "r");
    assert_non_null(f);
    assert_non_null(fgets(line, sizeof line, f));
    w->origin_port = (unsigned)atoi(line);
    fclose(f);
}

/* A plain GET of the origin's own pages. */
static inline void origin_get(struct world *w, const char *target, struct buf *out)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons((uint16_t)w->origin_port)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    char req[2048];
    char *body;

    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    assert_int_equal(connect(fd, (struct sockaddr *)&a, sizeof a), 0);
    snprintf(req, sizeof req, "GET %s HTTP/1.1\r\nHost: o\r\nConnection: close\r\n\r\n", target);
    assert_int_equal(fd_write_all(fd, req, strlen(req), NULL), 0);
    buf_clear(out);
    for (;;) {
        char *p = buf_room(out, 65536);
        ssize_t n = read(fd, p, 65536);
        if (n <= 0) {
            break;
        }
        buf_grew(out, (size_t)n);
    }
    close(fd);
    body = strstr(buf_cstr(out), "\r\n\r\n");
    assert_non_null(body);
    assert_true(slice_starts(buf_slice(out), SLICE("HTTP/1.1 200")));
    buf_drop(out, (size_t)(body + 4 - out->p));
}

/* put(w, "/a?size=1000&etag=weak"): '?' becomes '&' of the query. */
static inline void put(struct world *w, const char *fmt, ...)
{
    struct buf out = BUF_INIT(1 << 20);
    char script[1024];
    char target[1200];
    va_list ap;
    char *q;

    va_start(ap, fmt);
    vsnprintf(script, sizeof script, fmt, ap);
    va_end(ap);
    q = strchr(script, '?');
    if (q != NULL) {
        *q = '&';
    }
    snprintf(target, sizeof target, "/_origin/put?path=%s", script);
    origin_get(w, target, &out);
    buf_free(&out);
}

/* What hold_at held back of it goes on. */
static inline void go_on(struct world *w, const char *path)
{
    struct buf out = BUF_INIT(1 << 20);
    char target[600];

    snprintf(target, sizeof target, "/_origin/go?path=%s", path);
    origin_get(w, target, &out);
    buf_free(&out);
}

static inline uint64_t stat_of(struct world *w, const char *path, const char *name)
{
    struct buf out = BUF_INIT(1 << 20);
    char target[600];
    char lookup[64];
    char *p;
    uint64_t v;

    snprintf(target, sizeof target, "/_origin/stats?path=%s", path);
    origin_get(w, target, &out);
    snprintf(lookup, sizeof lookup, "%s=", name);
    p = strstr(buf_cstr(&out), lookup);
    assert_non_null(p);
    v = strtoull(p + strlen(lookup), NULL, 10);
    buf_free(&out);
    return v;
}

static inline void sha_of(struct world *w, const char *path, char sha[DIGEST_HEX + 1])
{
    struct buf out = BUF_INIT(1 << 20);
    char target[600];

    snprintf(target, sizeof target, "/_origin/sha256?path=%s", path);
    origin_get(w, target, &out);
    assert_int_equal(out.n, DIGEST_HEX);
    memcpy(sha, out.p, DIGEST_HEX);
    sha[DIGEST_HEX] = '\0';
    buf_free(&out);
}

static inline void sha_of_span(struct world *w, const char *path, uint64_t first, uint64_t end,
                               char sha[DIGEST_HEX + 1])
{
    struct buf out = BUF_INIT(64 << 20);
    struct digest d;
    char target[600];

    snprintf(target, sizeof target, "/_origin/bytes?path=%s&first=%llu&end=%llu", path,
             (unsigned long long)first, (unsigned long long)end);
    origin_get(w, target, &out);
    assert_int_equal(out.n, end - first);
    digest_of(buf_slice(&out), &d);
    digest_format(&d, sha);
    buf_free(&out);
}

/* --- the daemon's side --- */

/* w is zeroed but for origin_set, which may say more than the url, and quota_bytes. */

static inline void or_default(uint64_t *v, uint64_t otherwise)
{
    *v = *v != 0 ? *v : otherwise;
}

/* What w->set leaves 0 is as settings.def has it. */
static inline void world_start(struct world *w)
{
    struct store_settings set = {.state_dir = w->dir,
                                 .quota_bytes =
                                     w->quota_bytes != 0 ? w->quota_bytes : (uint64_t)512 << 20,
                                 .reserve_bytes = 1 << 20,
                                 .high_ratio = 0.9,
                                 .low_ratio = 0.85,
                                 .block_cache_bytes = 8 << 20};
    struct err e = {0};
    char url[64];

    if (store_open(&set, &w->store, &e) != 0) {
        fail_msg("store_open: %s", e.text);
    }
    w->disk = pool_open("disk", 4, 0);
    w->loops = loops_open(2);
    or_default(&w->set.segment_bytes, 64 << 20);
    or_default(&w->set.parallel_bytes, 256 << 20);
    or_default(&w->set.jump_bytes, 8 << 20);
    or_default(&w->set.document_bytes, 256 << 20);
    w->set.fillers = w->set.fillers != 0 ? w->set.fillers : 4;
    w->set.tries = w->set.tries != 0 ? w->set.tries : 10;
    w->set.grace_ms = w->set.grace_ms != 0 ? w->set.grace_ms : 30000;
    w->set.default_ttl_s = w->set.default_ttl_s != 0 ? w->set.default_ttl_s : 60;
    w->cache = cache_open(w->store, w->disk, &w->set);
    assert_int_equal(stage_sweep(w->store, &e), 0);
    snprintf(url, sizeof url, "http://127.0.0.1:%u/", w->origin_port);
    w->origin_set.url = url;
    assert_int_equal(origin_new("t", &w->origin_set, &w->origin, &e), 0);
}

static inline void world_stop(struct world *w)
{
    cache_close(&w->cache);
    loops_close(&w->loops);
    pool_close(&w->disk);
    store_close(&w->store);
    origin_free(&w->origin);
}

static inline void world_open(struct world *w, const struct cache_settings *set)
{
    snprintf(w->dir, sizeof w->dir, "/tmp/mrd-cache-XXXXXX");
    w->set = *set;
    log_set_level(getenv("CACHE_LOG") != NULL ? LOG_INFO : LOG_ERROR);
    signal(SIGPIPE, SIG_IGN);
    assert_non_null(mkdtemp(w->dir));
    origin_spawn(w);
    world_start(w);
}

static inline void world_close(struct world *w)
{
    world_stop(w);
    close(w->origin_in);
    waitpid(w->origin_pid, NULL, 0);
    assert_int_equal(dir_remove_tree(w->dir, NULL), 0);
}

/* --- clients --- */

static inline void client_end(struct client *c, int rc)
{
    struct digest d;

    if (c->body != NULL) {
        body_close(&c->body);
    }
    answer_release(&c->answer);
    hasher_final(c->hasher, &d);
    digest_format(&d, c->sha256);
    hasher_free(&c->hasher);
    lock_take(&c->lock);
    c->rc = rc;
    c->done = true;
    cond_broadcast(&c->cond);
    lock_drop(&c->lock);
}

static inline void client_pump(void *arg)
{
    struct client *c = arg;
    struct body *b = c->body;
    char p[65536];

    for (;;) {
        uint64_t upto = b->end;
        int rc = b->ops->poll != NULL ? b->ops->poll(b, &upto) : 0;
        if (rc != 0) {
            client_end(c, rc);
            return;
        }
        if (b->off == b->end) {
            client_end(c, 0);
            return;
        }
        if (upto == b->off) {
            return;
        }
        while (b->off < upto) {
            size_t n = (size_t)min_u64(sizeof p, upto - b->off);
            if (b->fd == -1) {
                memcpy(p, b->bytes + b->off, n);
            } else {
                assert_int_equal(fd_pread_all(b->fd, p, n, b->off, NULL), 0);
            }
            hasher_add(c->hasher, p, n);
            if (c->kept.n + n <= 65536) {
                buf_add(&c->kept, p, n);
            }
            lock_take(&c->lock);
            c->got += n;
            cond_signal(&c->cond);
            lock_drop(&c->lock);
            b->off += n;
        }
    }
}

static inline void client_answered(void *arg, struct answer *a)
{
    struct client *c = arg;

    c->ask = NULL;
    c->answer = a;
    c->status = a->status;
    c->state = a->state;
    c->total = a->total_bytes;
    snprintf(c->etag, sizeof c->etag, SLICE_FMT, SLICE_ARG(a->etag));
    snprintf(c->why, sizeof c->why, "%s", a->why.text);
    if (a->status != 200 || c->lookup.head_only) {
        client_end(c, 0);
        return;
    }
    c->body = answer_body(c->w->cache, a, c->loop, c->first, c->end);
    c->body->wake = client_pump;
    c->body->wake_arg = c;
    client_pump(c);
}

static inline void client_begin(struct message *l)
{
    struct client *c = CONTAINER_OF(l, struct client, message);

    c->ask = cache_lookup(c->w->cache, c->loop, &c->lookup, client_answered, c);
}

static inline void client_init(struct client *c, struct world *w, const char *path)
{
    *c = (struct client){.w = w, .end = LENGTH_UNKNOWN, .kept = BUF_INIT(1 << 17)};
    snprintf(c->key, sizeof c->key, "%s", path);
    snprintf(c->url, sizeof c->url, "http://127.0.0.1:%u%s", w->origin_port, path);
    c->lookup = (struct lookup){.repo = SLICE("t"),
                                .key = slice_str(c->key),
                                .class = LOOKUP_IMMUTABLE,
                                .origin = w->origin,
                                .url = slice_str(c->url),
                                .size_bytes = LENGTH_UNKNOWN,
                                .ttl_s = TTL_ORIGIN,
                                .neg_ttl_s = 60,
                                .hint_end = LENGTH_UNKNOWN,
                                .principal = SLICE("")};
    lock_init(&c->lock, LOCK_LEAF);
    cond_init(&c->cond);
}

static inline void client_go(struct client *c, unsigned loop)
{
    c->hasher = hasher_new();
    c->loop = loops_at(c->w->loops, loop % loops_count(c->w->loops));
    c->message.deliver = client_begin;
    message_queue_post(c->loop->mail, &c->message);
}

/* Until it has so many bytes, or its end. */
static inline void client_has(struct client *c, uint64_t bytes)
{
    uint64_t until = clock_now_ms() + 120000;

    lock_take(&c->lock);
    while (!c->done && c->got < bytes) {
        if (!cond_wait_ms(&c->cond, &c->lock, 1000) && clock_now_ms() > until) {
            uint64_t got = c->got;
            lock_drop(&c->lock);
            fail_msg("%s: no end after 120 s (%llu bytes)", c->key, (unsigned long long)got);
        }
    }
    lock_drop(&c->lock);
}

static inline void client_wait(struct client *c)
{
    client_has(c, UINT64_MAX);
}

static inline void assert_got(struct client *c, const char *path)
{
    char sha[DIGEST_HEX + 1];

    sha_of(c->w, path, sha);
    if (c->status != 200 || c->rc != 0) {
        fail_msg("%s: status %d, body %s: %s", path, c->status, err_name(c->rc), c->why);
    }
    assert_string_equal(c->sha256, sha);
}

static inline void client_fini(struct client *c)
{
    buf_free(&c->kept);
    cond_fini(&c->cond);
    lock_fini(&c->lock);
}

static inline void client_run(struct client *c)
{
    client_go(c, 0);
    client_wait(c);
}

/* One GET of an immutable key, whole and right. */
static inline void get_and_check(struct world *w, const char *path, enum cache_state state)
{
    struct client c;

    client_init(&c, w, path);
    client_run(&c);
    assert_got(&c, path);
    assert_int_equal(c.state, state);
    client_fini(&c);
}

static inline bool is_fetching(struct world *w, const char *key)
{
    struct fetch_info info[32];
    size_t n = cache_fetches(w->cache, info, ARRAY_LEN(info));

    for (size_t i = 0; i < n; i++) {
        if (strcmp(info[i].key, key) == 0) {
            return true;
        }
    }
    return false;
}

/* Until the key is not being filled any more: what was complete is sealed and committed. */
static inline void world_quiet(struct world *w, const char *key)
{
    uint64_t until = clock_now_ms() + 120000;

    while (is_fetching(w, key)) {
        assert_true(clock_now_ms() < until);
        usleep(1000);
    }
}

#endif
