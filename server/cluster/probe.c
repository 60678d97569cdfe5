#include "server/cluster/probe.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/os/clock.h"
#include "common/os/lock.h"

enum {
    BODY_ROOM = 64,
    CLOCK_SKEW_S = 300,
    TRIES = 5,
    TRY_MS = 200,
    PAUSE_SLICE_MS = 50,
    RANGE_BYTES = 4096,
    RACES_AT_ONCE = 8,
    RACES_MORE = 4 * PROBE_ROUNDS, /* if some prove nothing */
    RACES_MAX = PROBE_ROUNDS_MANY + RACES_MORE,
};

struct probe {
    struct bucket *b;
    uint64_t nonce;
    unsigned rounds;         /* races that must prove something */
    bool wrote;              /* there are keys to remove */
    unsigned races;          /* that were made */
    bool remains[RACES_MAX]; /* the key of that race was not removed */
    struct err note;         /* what can be done without */
};

static const char *key_of(const struct probe *p, const char *what, unsigned n,
                          char key[BUCKET_KEY_ROOM])
{
    snprintf(key, BUCKET_KEY_ROOM, "probe/%016" PRIx64 "-%s-%u", p->nonce, what, n);
    return key;
}

/* Not longer than until the bucket is interrupted. */
static void pause_ms(const struct bucket *b, uint64_t ms)
{
    const struct timespec slice = {0, PAUSE_SLICE_MS * 1000000};

    for (uint64_t t = 0; t < ms && !bucket_is_interrupted(b); t += PAUSE_SLICE_MS) {
        nanosleep(&slice, NULL);
    }
}

/* A busy bucket is asked again: whether it is slow is not the question here. */
static int get(struct bucket *b, const char *key, struct buf *out, struct err *e)
{
    int rc = E_AGAIN;

    for (unsigned i = 0; i < TRIES && (rc == E_AGAIN || rc == E_TIMEOUT); i++) {
        if (i != 0) {
            pause_ms(b, TRY_MS << i);
        }
        rc = bucket_get(b, key, out, e);
    }
    return rc;
}

/* An earlier try may have created the key: one whose outcome was unknown, or libcurl's (bucket.h).
 * No other run writes this key, so the bytes tell. */
static int create(struct bucket *b, const char *key, struct slice body, struct err *e)
{
    struct buf got = BUF_INIT(RANGE_BYTES);
    int rc = E_AGAIN;

    for (unsigned i = 0; i < TRIES && (i == 0 || (bucket_is_undecided(rc) && rc != E_CANCELLED));
         i++) {
        if (i != 0) {
            pause_ms(b, TRY_MS << i);
        }
        rc = bucket_create(b, key, body, e);
    }
    if (rc == E_EXISTS) {
        rc = get(b, key, &got, e);
        rc = rc == 0 && !slice_eq(buf_slice(&got), body) ? err_set(e, E_EXISTS, "the key exists")
                                                         : rc;
    }
    buf_free(&got);
    return rc;
}

/* --- the steps --- */

static int check_reachable(struct probe *p, struct err *e)
{
    char key[BUCKET_KEY_ROOM];
    struct buf got = BUF_INIT(BODY_ROOM);
    int rc = get(p->b, key_of(p, "absent", 0, key), &got, e);

    buf_free(&got);
    return rc == E_NOTFOUND ? 0
           : rc == 0        ? err_set(e, E_UNSUPPORTED, "a key that nobody wrote has bytes")
                            : rc;
}

static int check_clock(struct probe *p, struct err *e)
{
    uint64_t theirs = bucket_date_unix_s(p->b), ours = clock_unix_s();
    uint64_t skew = theirs > ours ? theirs - ours : ours - theirs;

    if (theirs == 0) {
        return err_set(e, E_UNSUPPORTED, "its responses have no Date field");
    }
    return skew <= CLOCK_SKEW_S
               ? 0
               : err_set(e, E_UNSUPPORTED,
                         "its clock and this machine's differ by %" PRIu64
                         " seconds; at most %d are allowed: check this machine's clock",
                         skew, CLOCK_SKEW_S);
}

static int check_create(struct probe *p, struct err *e)
{
    struct buf got = BUF_INIT(BODY_ROOM);
    char key[BUCKET_KEY_ROOM];
    int rc = create(p->b, key_of(p, "create", 0, key), SLICE("first"), e);

    if (rc != 0) {
        return rc == E_EXISTS
                   ? err_set(e, E_UNSUPPORTED, "a key that nobody wrote is said to exist already")
                   : rc;
    }
    rc = bucket_create(p->b, key, SLICE("second"), e);
    if (rc == 0) {
        rc = err_set(e, E_UNSUPPORTED,
                     "it ignores \"If-None-Match: *\" (an existing key was overwritten), so it "
                     "cannot be shared by several writers");
    } else if (rc == E_EXISTS || rc == E_AGAIN) {
        rc = get(p->b, key, &got, e);
        if (rc == 0 && !slice_eqs(buf_slice(&got), "first")) {
            rc = err_set(e, E_UNSUPPORTED, "it refused to overwrite a key and then overwrote it");
        }
    }
    buf_free(&got);
    return rc;
}

/* --- the race --- */

struct racer {
    struct race *race;
    pthread_t thread;
    char body[BODY_ROOM];
    int rc;
    struct err why;
};

struct race {
    struct bucket *b;
    char key[BUCKET_KEY_ROOM];
    pthread_t thread;
    pthread_barrier_t start;
    struct racer racer[PROBE_RACERS];
    int rc;
    struct err why;
};

static void *run_racer(void *arg)
{
    struct racer *r = arg;

    pthread_barrier_wait(&r->race->start);
    r->rc = bucket_create(r->race->b, r->race->key, slice_str(r->body), &r->why);
    return NULL;
}

static void run_racers(struct race *r)
{
    pthread_barrier_init(&r->start, NULL, PROBE_RACERS);
    for (unsigned i = 0; i < PROBE_RACERS; i++) {
        r->racer[i] = (struct racer){.race = r};
        snprintf(r->racer[i].body, BODY_ROOM, "racer %u", i);
        r->racer[i].thread = thread_start("probe", run_racer, &r->racer[i]);
    }
    for (unsigned i = 0; i < PROBE_RACERS; i++) {
        pthread_join(r->racer[i].thread, NULL);
    }
    pthread_barrier_destroy(&r->start);
}

static bool is_a_racers(const struct race *r, struct slice bytes)
{
    for (unsigned i = 0; i < PROBE_RACERS; i++) {
        if (slice_eqs(bytes, r->racer[i].body)) {
            return true;
        }
    }
    return false;
}

/* E_AGAIN: nobody won, or some response does not say who did: the round proves nothing. (The winner
 * may have been refused, if libcurl sent its request twice.) */
static int judge_race(struct race *r, struct err *e)
{
    struct buf got = BUF_INIT(BODY_ROOM);
    const struct racer *winner = NULL;
    unsigned winners = 0, unknown = 0;
    int rc;

    for (unsigned i = 0; i < PROBE_RACERS; i++) {
        const struct racer *x = &r->racer[i];
        if (x->rc == 0) {
            winner = x;
            winners++;
        } else if (bucket_is_undecided(x->rc)) {
            unknown++;
        } else if (x->rc != E_EXISTS) {
            *e = x->why;
            return x->rc;
        }
    }
    if (winners > 1) {
        return err_set(e, E_UNSUPPORTED,
                       "%u of %d requests that created the same key at the same time succeeded "
                       "(\"If-None-Match: *\" is not atomic)",
                       winners, PROBE_RACERS);
    }
    rc = get(r->b, r->key, &got, e);
    if (winners == 0 && ((unknown != 0 && (rc == 0 || rc == E_NOTFOUND)) ||
                         (rc == 0 && is_a_racers(r, buf_slice(&got))))) {
        rc = err_set(e, E_AGAIN, "the bucket is too busy: no response of %d says who created a key",
                     PROBE_RACERS);
    } else if (winners == 0 && (rc == 0 || rc == E_NOTFOUND)) {
        rc = err_set(e, E_UNSUPPORTED, "none of %d requests could create a key that did not exist",
                     PROBE_RACERS);
    } else if (rc == E_NOTFOUND) {
        rc = err_set(e, E_UNSUPPORTED, "a key that was created cannot be read afterwards");
    } else if (rc == 0 && winner != NULL && !slice_eqs(buf_slice(&got), winner->body)) {
        rc = err_set(e, E_UNSUPPORTED,
                     "a key has other bytes than those of the request that created it");
    }
    buf_free(&got);
    return rc;
}

/* A key of which some request may still be written is removed at the end. */
static void *run_race(void *arg)
{
    struct race *r = arg;

    run_racers(r);
    r->rc = judge_race(r, &r->why);
    if (r->rc == 0) {
        (void)!bucket_delete(r->b, r->key, NULL);
    }
    return NULL;
}

static void run_races(struct probe *p, struct race *race, unsigned n)
{
    for (unsigned i = 0; i < n; i++) {
        race[i] = (struct race){.b = p->b};
        key_of(p, "race", p->races + i, race[i].key);
        race[i].thread = thread_start("probe", run_race, &race[i]);
    }
    for (unsigned i = 0; i < n; i++) {
        pthread_join(race[i].thread, NULL);
        p->remains[p->races + i] = race[i].rc != 0;
    }
    p->races += n;
}

/* The result of several: a broken promise before everything else, and E_AGAIN if nothing is worse.
 */
static int worst_race(const struct race *race, unsigned n, struct err *e)
{
    const struct race *worst = &race[0];

    for (unsigned i = 1; i < n; i++) {
        bool worse = race[i].rc == E_UNSUPPORTED || worst->rc == 0 ||
                     (worst->rc == E_AGAIN && race[i].rc != 0);
        worst = worse && worst->rc != E_UNSUPPORTED ? &race[i] : worst;
    }
    return worst->rc != 0 ? err_set(e, worst->rc, "%s", worst->why.text) : 0;
}

/* Rounds that prove nothing are repeated, under other keys. */
static int check_race(struct probe *p, struct err *e)
{
    struct race *race = mem_array(RACES_AT_ONCE, sizeof race[0]);
    unsigned good = 0, n;
    int rc = 0;

    while (rc == 0 && good < p->rounds) {
        if (p->races + RACES_AT_ONCE > p->rounds + RACES_MORE) {
            rc = err_set(e, E_AGAIN, "the bucket is too busy: few responses say who created a key");
            break;
        }
        n = (unsigned)min_u64(RACES_AT_ONCE, p->rounds - good);
        run_races(p, race, n);
        rc = worst_race(race, n, e);
        for (unsigned i = 0; i < n; i++) {
            good += race[i].rc == 0;
        }
        if (rc == E_AGAIN && p->races + RACES_AT_ONCE <= p->rounds + RACES_MORE) {
            pause_ms(p->b, TRY_MS);
            rc = 0;
        }
    }
    free(race);
    return rc;
}

/* --- bytes --- */

/* Can be done without: then uploads are read back. */
static int check_checksum(struct probe *p, struct err *e)
{
    static const char wrong[] = "00000000000000000000000000000000"
                                "00000000000000000000000000000000";
    char key[BUCKET_KEY_ROOM];
    int rc = bucket_create_as(p->b, key_of(p, "checksum", 0, key), SLICE("other bytes"), wrong, e);

    if (rc == 0) {
        err_set(&p->note, E_UNSUPPORTED,
                "it stores bytes that do not match their announced SHA-256: uploads are read back");
    } else if (rc != E_DENIED && rc != E_PROTOCOL) { /* a status of 4xx that S3 explains */
        err_set(&p->note, rc, "unknown, so uploads are read back: %.160s", e->text);
    }
    err_clear(e);
    return 0;
}

static int check_range(struct probe *p, struct err *e)
{
    struct buf body = BUF_INIT(RANGE_BYTES), got = BUF_INIT(RANGE_BYTES);
    char key[BUCKET_KEY_ROOM];
    int rc;

    for (unsigned i = 0; i < RANGE_BYTES; i++) {
        buf_byte(&body, (uint8_t)(i * 7 + i / 256));
    }
    rc = create(p->b, key_of(p, "range", 0, key), buf_slice(&body), e);
    rc = rc != 0 ? rc : bucket_get_range(p->b, key, 1000, 300, &got, e);
    if (rc == 0 && !slice_eq(buf_slice(&got), slice_of(body.p + 1000, 300))) {
        rc = err_set(e, E_UNSUPPORTED, "a range of an object has other bytes than the object");
    } else if (rc == E_PROTOCOL) {
        rc = e->code = E_UNSUPPORTED;
    }
    buf_free(&body);
    buf_free(&got);
    return rc;
}

static int check_versions(struct probe *p, struct err *e)
{
    bool yes;
    int rc = bucket_is_versioned(p->b, &yes, e);

    if (rc == 0 && yes) {
        return err_set(e, E_UNSUPPORTED,
                       "it keeps old versions of objects, and nothing would ever be freed; "
                       "suspend versioning, or use another bucket");
    }
    if (rc != 0) { /* not every key may ask, and not every store has versions */
        err_set(&p->note, rc, "whether it keeps old versions of objects is unknown: %.160s",
                e->text);
        err_clear(e);
    }
    return 0;
}

static void remove_keys(struct probe *p)
{
    static const char *const once[] = {"create", "checksum", "range"};
    char key[BUCKET_KEY_ROOM];

    for (size_t i = 0; i < sizeof once / sizeof once[0]; i++) {
        (void)!bucket_delete(p->b, key_of(p, once[i], 0, key), NULL);
    }
    for (unsigned i = 0; i < p->races; i++) {
        if (p->remains[i]) {
            (void)!bucket_delete(p->b, key_of(p, "race", i, key), NULL);
        }
    }
}

int probe_run(struct bucket *b, unsigned rounds, uint64_t nonce,
              void (*step)(void *arg, const struct probe_step *s), void *arg, struct err *e)
{
    static const struct {
        const char *what;
        int (*check)(struct probe *p, struct err *e);
    } steps[] = {
        [PROBE_READ] = {"it can be read", check_reachable},
        [PROBE_CLOCK] = {"its clock is right", check_clock},
        [PROBE_CREATE] = {"a key is created once", check_create},
        [PROBE_RACE] = {"of simultaneous creations one succeeds", check_race},
        [PROBE_BODIES] = {"bytes are checked when they arrive", check_checksum},
        [PROBE_RANGE] = {"a range is that range", check_range},
        [PROBE_VERSIONS] = {"it keeps no old versions", check_versions},
    };
    struct probe p = {.b = b, .nonce = nonce, .rounds = rounds};
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < sizeof steps / sizeof steps[0]; i++) {
        uint64_t began_ms = clock_now_ms();
        struct err why = {0};

        err_clear(&p.note);
        rc = steps[i].check(&p, &why);
        p.wrote = p.wrote || i == PROBE_CREATE;
        if (step != NULL) {
            step(arg, &(struct probe_step){(enum probe_check)i, steps[i].what, rc,
                                           rc != 0 ? &why : &p.note, clock_now_ms() - began_ms});
        }
        if (rc != 0) {
            rc = err_set(e, rc, "%s: %s: %s", bucket_place(b), steps[i].what, why.text);
        }
    }
    if (p.wrote) {
        remove_keys(&p);
    }
    return rc;
}
