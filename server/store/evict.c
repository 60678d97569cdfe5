/* evict_run(): two pools by size; in each, the least recently used of 32 random blobs is evicted
 * first. Digests are uniform, so the first row after a random key is an unbiased sample (up to the
 * gaps between rows), and no list of all blobs is kept. When sampling finds nothing (the pool is a
 * few among many, or nearly all are held), one scan of the table finds the oldest, so E_NOSPACE is
 * exact. */
#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/log.h"
#include "common/os/clock.h"
#include "server/store/drop.h"
#include "server/store/pin.h"
#include "server/store/seal.h"
#include "server/store/state.h"

enum {
    SAMPLES = 32,
    TRIES = 4 * SAMPLES,
    LOOK_ROWS = 16, /* behind a random key, for one of the pool */
    ROUND = 4,      /* victims of a round of samples */
    SCANNED = 64,   /* victims of a scan */
    YOUNG_S = 60,
    FRUITLESS_MAX = 64,
    ASIDE_S = 30 * 86400, /* what no origin has stays in quarantine/ so long */
};

#define SMALL_SHARE 0.05

struct candidate {
    struct digest digest;
    uint32_t hour;
};

struct evictor {
    struct store *s;
    const struct evict_events *ev;
    struct pin_table pins;
    uint64_t now_unix_s;
    uint64_t goal_bytes; /* of `used`, */
    uint64_t held_bytes; /* ... with so much staged and parked beside it */
    uint64_t freed;
    bool small;                       /* the pool at work */
    struct candidate oldest[SCANNED]; /* sorted by hour */
    size_t count;
    size_t room;
    unsigned fruitless;         /* rounds whose victims were wanted again */
    unsigned young_s;           /* what came since then stays, as long as anything older can go */
    uint32_t unused_since_hour; /* what was used in that hour or later stays; 0: all may go */
    bool others;                /* a scan found such */
    struct err *e;
};

/* --- what may go --- */

static bool in_pool(const struct evictor *x, const struct blob_row *r)
{
    return (r->size_bytes <= BLOB_SMALL_BYTES) == x->small;
}

static bool young(const struct evictor *x, const struct blob_row *r)
{
    return r->created_unix_s + x->young_s > x->now_unix_s;
}

/* Reachable from pull-through objects alone, or from trees and elsewhere, too; none of them pinned,
 * and no seal under way. */
static bool may_go(struct evictor *x, const struct drop *d)
{
    struct slice repo, key;
    bool elsewhere;
    char kind;

    if (young(x, &d->row) || seal_entered(x->s, &d->digest)) {
        return false;
    }
    elsewhere = (d->objects == 0 || d->others != 0) && x->s->blob_source != NULL &&
                !x->s->blob_source->stay && blob_is_elsewhere(x->s, &d->digest, NULL);
    if (!elsewhere && (d->objects == 0 || d->others != 0)) {
        return false;
    }
    for (size_t at = 0; drop_holder(d, &at, &repo, &kind, &key);) {
        if (pins_cover(&x->pins, repo, key) || (kind != 'o' && kind != 't')) {
            return false;
        }
    }
    return true;
}

static bool evictable(struct evictor *x, const struct drop *d)
{
    return in_pool(x, &d->row) && may_go(x, d);
}

/* --- candidates, the oldest `room` of those offered --- */

static int upload_grant(struct evictor *x, const struct digest *d, const struct blob_row *r)
{
    uint32_t hour;
    size_t at;
    int rc = atime_hour(x->s, d, &hour, x->e);

    if (rc != 0) {
        return rc;
    }
    hour = hour != 0 ? hour : hour_of(r->created_unix_s);
    if (x->unused_since_hour != 0 && hour >= x->unused_since_hour) {
        x->others = true;
        return 0;
    }
    for (at = x->count; at > 0 && x->oldest[at - 1].hour > hour; at--) {
    }
    for (size_t i = 0; i < x->count; i++) {
        if (digest_eq(&x->oldest[i].digest, d)) {
            return 0; /* drawn twice */
        }
    }
    if (at == x->room) {
        return 0;
    }
    if (x->count == x->room) {
        x->count--;
    }
    memmove(&x->oldest[at + 1], &x->oldest[at], (x->count - at) * sizeof x->oldest[0]);
    x->oldest[at] = (struct candidate){*d, hour};
    x->count++;
    return 0;
}

struct draw {
    struct evictor *x;
    unsigned rows;
    bool found;
    int rc;
};

static int draw_row(void *arg, struct slice key, struct slice value)
{
    struct draw *w = arg;
    struct blob_row r;
    struct digest d;

    if (key.n == DIGEST_BYTES && blob_row_decode(value, &r, NULL) == 0 && in_pool(w->x, &r) &&
        !young(w->x, &r)) {
        memcpy(d.b, key.p, DIGEST_BYTES);
        w->found = true;
        w->rc = upload_grant(w->x, &d, &r);
        return 1;
    }
    return ++w->rows == LOOK_ROWS;
}

static int sample(struct evictor *x)
{
    unsigned found = 0;
    bool others = x->others;

    x->count = 0;
    x->room = SAMPLES;
    for (unsigned i = 0; i < TRIES && found < SAMPLES; i++) {
        struct draw w = {.x = x};
        struct digest from;
        int rc;

        if (getrandom(from.b, sizeof from.b, 0) != (ssize_t)sizeof from.b) {
            return err_sys(x->e, "getrandom");
        }
        rc = kv_scan(x->s->kv, NULL, TABLE_BLOB, digest_key(&from), SLICE_NONE, draw_row, &w, x->e);
        if (rc < 0 || w.rc != 0) {
            return rc < 0 ? rc : w.rc;
        }
        found += w.found;
    }
    x->others = others; /* some that were drawn are held, or pinned */
    return 0;
}

static int scan_row(void *arg, struct slice key, struct slice value)
{
    struct evictor *x = arg;
    struct blob_row r;
    struct drop d;
    struct digest digest;
    int rc;

    if (key.n != DIGEST_BYTES || blob_row_decode(value, &r, NULL) != 0 || !in_pool(x, &r)) {
        return 0;
    }
    memcpy(digest.b, key.p, DIGEST_BYTES);
    rc = drop_look(x->s, &digest, &d, x->e);
    if (rc == 0 && evictable(x, &d)) {
        rc = upload_grant(x, &digest, &r);
    }
    drop_free(&d);
    return rc == E_NOTFOUND || rc == E_CORRUPT ? 0 : rc;
}

static int scan(struct evictor *x)
{
    x->count = 0;
    x->room = SCANNED;
    return kv_scan_once(x->s->kv, NULL, TABLE_BLOB, SLICE_NONE, SLICE_NONE, scan_row, x, x->e);
}

/* --- the deed --- */

/* What is sealed meanwhile is no longer staged: it is not made room for twice. */
static uint64_t goal_now(const struct evictor *x, const struct store_space *sp)
{
    uint64_t held = sp->staged_bytes + sp->parked_bytes;

    return x->goal_bytes + x->held_bytes - min_u64(held, x->held_bytes);
}

static bool enough(struct evictor *x)
{
    struct store_space sp;

    store_space(x->s, &sp);
    return sp.used_bytes <= goal_now(x, &sp);
}

static void report_evicted_blob(struct evictor *x, const struct drop *d)
{
    struct slice repo, key;
    char kind;

    if (x->ev != NULL && x->ev->on_gone != NULL) {
        x->ev->on_gone(x->ev->arg, &d->digest);
    }
    if (x->ev == NULL || x->ev->on_forget == NULL) {
        return;
    }
    for (size_t at = 0; drop_holder(d, &at, &repo, &kind, &key);) {
        x->ev->on_forget(x->ev->arg, repo, key);
    }
}

/* 0: gone, or changed meanwhile. */
static int evict_drops(struct evictor *x, struct drop *d, size_t count)
{
    struct drops all = {d, count};
    struct batch *b = batch_new();
    int rc;

    batch_check(b, drops_check, &all);
    for (size_t i = 0; i < count; i++) {
        drop_put(&d[i], b, AFTER_UNLINK);
    }
    rc = store_commit(x->s, &b, COMMIT_SYNC, x->e);
    if (rc == 0) {
        space_freed(x->s);
    }
    for (size_t i = 0; rc == 0 && i < count; i++) {
        x->freed += d[i].row.size_bytes;
        report_evicted_blob(x, &d[i]);
    }
    return rc == E_CHANGED ? 0 : rc;
}

/* The oldest of the candidates that may go, up to `most` of them and as many as are needed; *gone:
 * how many. */
static int evict_oldest(struct evictor *x, size_t most, size_t *gone)
{
    struct drop d[SCANNED];
    struct store_space sp;
    uint64_t bytes = 0;
    size_t n = 0;
    int rc = 0;

    store_space(x->s, &sp);
    for (size_t i = 0; rc == 0 && i < x->count && n < most; i++) {
        if (sp.used_bytes - min_u64(sp.used_bytes, bytes) <= goal_now(x, &sp)) {
            break;
        }
        rc = drop_look(x->s, &x->oldest[i].digest, &d[n], x->e);
        if (rc == 0 && evictable(x, &d[n])) {
            bytes += d[n++].row.size_bytes;
            continue;
        }
        drop_free(&d[n]);
        rc = rc == E_NOTFOUND || rc == E_CORRUPT ? 0 : rc;
    }
    *gone = n;
    if (rc == 0 && n != 0) {
        rc = evict_drops(x, d, n);
    }
    for (size_t i = 0; i < n; i++) {
        drop_free(&d[i]);
    }
    return rc;
}

/* So few that all can be weighed: then the oldest go for sure. */
static bool few(struct evictor *x)
{
    struct store_space sp;

    store_space(x->s, &sp);
    return sp.blobs <= SCANNED;
}

static int evict_round(struct evictor *x, size_t *gone)
{
    int rc = 0;

    *gone = 0;
    if (!few(x)) {
        rc = sample(x);
    } else {
        x->count = 0;
    }
    rc = rc != 0 ? rc : evict_oldest(x, ROUND, gone);
    if (rc == 0 && *gone == 0) {
        rc = scan(x);
        rc = rc != 0 ? rc : evict_oldest(x, SCANNED, gone);
    }
    return rc;
}

/* Small blobs, where nearly all hits are, keep their share of what stays; beyond it they go
 * first. */
static bool small_pool_first(struct evictor *x)
{
    struct store_space sp;

    store_space(x->s, &sp);
    return (double)sp.small_bytes > SMALL_SHARE * (double)x->goal_bytes;
}

static int nothing_left(struct evictor *x)
{
    struct store_space space;
    char advice[SPACE_ADVICE];

    store_space(x->s, &space);
    return err_set(x->e, E_NOSPACE,
                   "nothing is left to evict, because the rest is pinned, hosted or synced; %s",
                   store_space_advice(&space, advice));
}

static int evict_to_goal(struct evictor *x)
{
    int rc = 0;

    while (rc == 0 && !enough(x)) {
        uint64_t before = x->freed;
        size_t gone = 0;
        x->small = small_pool_first(x);
        rc = evict_round(x, &gone);
        if (rc == 0 && gone == 0) {
            x->small = !x->small;
            rc = evict_round(x, &gone);
        }
        if (rc == 0 && gone == 0 && x->young_s != 0) {
            x->young_s = 0;
            continue;
        }
        if (rc == 0 && gone == 0) {
            return nothing_left(x);
        }
        if (x->freed == before && ++x->fruitless > FRUITLESS_MAX) {
            return err_set(x->e, E_AGAIN,
                           "nothing was evicted: the objects change too fast; try again later");
        }
    }
    return rc;
}

/* The last copy of something, and nobody has brought it again so far? */
static bool kept_aside(struct evictor *x, const char *name)
{
    struct slice rest = slice_str(name);
    struct buf row = BUF_INIT(4096);
    struct digest d;
    struct stat st;
    bool kept;

    if (!slice_ends(rest, SLICE(SET_ASIDE)) ||
        !digest_parse(slice_first(rest, rest.n - SLICE(SET_ASIDE).n), &d) ||
        fstatat(x->s->quarantine_fd, name, &st, AT_SYMLINK_NOFOLLOW) == -1) {
        return false;
    }
    kept = (uint64_t)st.st_mtim.tv_sec + ASIDE_S > x->now_unix_s &&
           kv_get(x->s->kv, TABLE_BLOB, digest_key(&d), &row, NULL) != 0;
    buf_free(&row);
    return kept;
}

/* What was moved aside for a look is the first to go. */
static void empty_quarantine(struct evictor *x)
{
    int fd = openat(x->s->quarantine_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *d = fd != -1 ? fdopendir(fd) : NULL;
    struct dirent *ent;

    if (d == NULL) {
        if (fd != -1) {
            close(fd);
        }
        return;
    }
    while ((ent = readdir(d)) != NULL) {
        if (ent->d_name[0] != '.' && !kept_aside(x, ent->d_name)) {
            unlinkat(x->s->quarantine_fd, ent->d_name, 0);
        }
    }
    closedir(d);
}

static int say_nothing_to_evict(const struct store_space *sp, uint64_t need_bytes, struct err *e)
{
    uint64_t held = sp->staged_bytes + sp->parked_bytes;
    char advice[SPACE_ADVICE];

    store_space_advice(sp, advice);
    if (need_bytes == 0) {
        return err_set(e, E_NOSPACE,
                       "unfinished transfers hold %" PRIu64
                       " bytes, more than the quota of %" PRIu64 " bytes; %s",
                       held, sp->quota_bytes, advice);
    }
    return err_set(e, E_NOSPACE,
                   "%" PRIu64 " bytes do not fit into the quota of %" PRIu64 " bytes; %s",
                   need_bytes, sp->quota_bytes, advice);
}

int evict_run(struct store *s, uint64_t need_bytes, const struct evict_events *ev, uint64_t *freed,
              struct err *e)
{
    struct evictor x = {.s = s, .ev = ev, .now_unix_s = clock_unix_s(), .young_s = YOUNG_S, .e = e};
    struct store_space sp;
    uint64_t held;
    int rc;

    empty_quarantine(&x);
    store_space(s, &sp);
    x.goal_bytes = sp.low_bytes;
    held = x.held_bytes = sp.staged_bytes + sp.parked_bytes;
    x.goal_bytes -= min_u64(x.goal_bytes, held);
    held += min_u64(need_bytes, UINT64_MAX - held);
    if (held > sp.quota_bytes) {
        return say_nothing_to_evict(&sp, need_bytes, e);
    }
    x.goal_bytes = min_u64(x.goal_bytes, sp.quota_bytes - held);
    rc = pins_load(s, &x.pins, e);
    rc = rc != 0 ? rc : evict_to_goal(&x);
    pins_free(&x.pins);
    *freed = x.freed;
    if (x.freed != 0) {
        log_info("store.evicted", "bytes=%" PRIu64 " used_bytes=%" PRIu64, x.freed,
                 sp.used_bytes - min_u64(sp.used_bytes, x.freed));
    }
    return rc;
}

/* --- within bounds ---------------------------------------------------------------------------- */

/* Of these, in order, what may go, until it is enough. */
static int evict_own(struct evictor *x, const struct digest *own, size_t count)
{
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < count && !enough(x); i++) {
        struct drop d;
        rc = drop_look(x->s, &own[i], &d, x->e);
        if (rc == 0 && may_go(x, &d)) {
            rc = evict_drops(x, &d, 1);
        }
        drop_free(&d);
        rc = rc == E_NOTFOUND || rc == E_CORRUPT ? 0 : rc;
    }
    return rc;
}

int evict_bounded(struct store *s, uint64_t need_bytes, const struct evict_bounds *bounds,
                  const struct evict_events *ev, uint64_t *freed, bool *others, struct err *e)
{
    struct evictor x = {.s = s,
                        .ev = ev,
                        .now_unix_s = clock_unix_s(),
                        .unused_since_hour = bounds->unused_since_hour,
                        .e = e};
    struct store_space sp;
    int rc;

    space_freed(s); /* by what was evicted before, and is closed only now */
    store_space(s, &sp);
    x.held_bytes = sp.staged_bytes + sp.parked_bytes;
    x.goal_bytes = sp.low_bytes - min_u64(sp.low_bytes, x.held_bytes);
    x.goal_bytes -= min_u64(x.goal_bytes, need_bytes);
    rc = pins_load(s, &x.pins, e);
    rc = rc != 0 ? rc : evict_own(&x, bounds->own, bounds->count);
    if (rc == 0 && bounds->unused_since_hour != 0) {
        rc = evict_to_goal(&x);
    } else if (rc == 0 && !enough(&x)) {
        rc = E_NOSPACE;
    }
    pins_free(&x.pins);
    *freed = x.freed;
    *others = x.others;
    return rc;
}

struct measure {
    struct evictor x;
    uint64_t bytes, enough_bytes;
};

static int measure_row(void *arg, struct slice key, struct slice value)
{
    struct measure *m = arg;
    struct blob_row r;

    m->x.count = 0;
    m->x.small = blob_row_decode(value, &r, NULL) == 0 && r.size_bytes <= BLOB_SMALL_BYTES;
    (void)!scan_row(&m->x, key, value);
    m->bytes += m->x.count != 0 ? r.size_bytes : 0;
    return m->bytes >= m->enough_bytes;
}

int evict_measure(struct store *s, uint32_t unused_since_hour, uint64_t enough_bytes,
                  uint64_t *bytes, struct err *e)
{
    struct measure m = {.x = {.s = s,
                              .now_unix_s = clock_unix_s(),
                              .unused_since_hour = unused_since_hour,
                              .room = 1,
                              .e = e},
                        .enough_bytes = enough_bytes};
    int rc = pins_load(s, &m.x.pins, e);

    if (rc == 0) {
        rc = kv_scan_once(s->kv, NULL, TABLE_BLOB, SLICE_NONE, SLICE_NONE, measure_row, &m, e);
    }
    pins_free(&m.x.pins);
    *bytes = m.bytes;
    return rc < 0 ? rc : 0;
}

bool evict_needed(struct store *s)
{
    struct store_space sp;

    store_space(s, &sp);
    return sp.used_bytes + sp.staged_bytes + sp.parked_bytes > sp.high_bytes;
}
