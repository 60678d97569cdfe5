#include "server/cluster/poke.h"

#include <event2/event.h>
#include <inttypes.h>
#include <openssl/crypto.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/base/arena.h"
#include "common/os/clock.h"
#include "common/os/lock.h"
#include "common/os/message_queue.h"
#include "common/xfer/xfer.h"
#include "server/cluster/rests.h"
#include "server/cluster/signature.h"

struct poker {
    char *secret;
    struct event_base *base;
    struct message_queue *mail;
    struct xfer_loop *transfers;
    struct message stop;
    pthread_t thread;
    struct lock lock; /* LOCK_POKE; guards the pokes of all rounds, and rests */
    struct cond one_over;
    struct rests rests;
};

/* One request of a round. */
struct poke {
    struct message start, cancel;
    struct poker *p;
    struct xfer *transfer;
    struct slice url, field;
    const char *node;
    int status;
    bool over, cancelling;
};

/* --- on the loop's thread --- */

static void end_poke(struct poke *k)
{
    lock_take(&k->p->lock);
    k->over = true;
    cond_broadcast(&k->p->one_over);
    lock_drop(&k->p->lock);
}

static int on_poke_head(void *arg, const struct xfer_head *h)
{
    struct poke *k = arg;

    k->status = h->status;
    return 0;
}

static int on_poke_body(void *arg, struct slice bytes)
{
    (void)arg;
    (void)bytes;
    return 0;
}

static void on_poke_done(void *arg, int rc, const struct err *why, uint64_t body_bytes)
{
    struct poke *k = arg;

    (void)why;
    (void)body_bytes;
    k->transfer = NULL;
    k->status = rc == 0 ? k->status : 0;
    end_poke(k);
}

static void on_poke_start(struct message *m)
{
    static const struct xfer_events events = {on_poke_head, on_poke_body, on_poke_done};
    struct poke *k = CONTAINER_OF(m, struct poke, start);
    const struct xfer_params params = {.method = XFER_POST,
                                       .url = k->url,
                                       .fields = &k->field,
                                       .nfields = 1,
                                       .connect_timeout_ms = POKE_WAIT_MS,
                                       .idle_timeout_s = 2};

    k->transfer = xfer_start(k->p->transfers, &params, &events, k);
}

/* The last word about it, whether or not it has ended. */
static void on_poke_cancel(struct message *m)
{
    struct poke *k = CONTAINER_OF(m, struct poke, cancel);

    xfer_cancel(&k->transfer);
    lock_take(&k->p->lock);
    k->cancelling = false;
    cond_broadcast(&k->p->one_over);
    lock_drop(&k->p->lock);
}

static void on_poker_stop(struct message *m)
{
    event_base_loopbreak(CONTAINER_OF(m, struct poker, stop)->base);
}

static void *run_poker(void *arg)
{
    struct poker *p = arg;

    event_base_loop(p->base, EVLOOP_NO_EXIT_ON_EMPTY);
    xfer_loop_close(&p->transfers);
    message_queue_close(&p->mail);
    return NULL;
}

/* --- the signature --- */

static void sign(const struct poker *p, uint64_t seq, char hex[SIGNATURE_ROOM])
{
    char digits[U64_DIGITS];

    signature_make(p->secret, "poke", slice_of_u64(digits, seq), hex);
}

bool poke_is_ours(const struct poker *p, uint64_t seq, struct slice signature)
{
    char digits[U64_DIGITS];

    return signature_is(p->secret, "poke", slice_of_u64(digits, seq), signature);
}

bool poke_hello_is_ours(const struct poker *p, struct slice node, struct slice signature)
{
    return signature_is(p->secret, "hello", node, signature);
}

/* --- a round --- */

/* Under the lock. */
static bool all_over(const struct poke *k, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (!k[i].over) {
            return false;
        }
    }
    return true;
}

static void wait_for_pokes(struct poker *p, struct poke *k, size_t n, uint64_t wait_ms)
{
    uint64_t end_ms = clock_now_ms() + wait_ms, now;

    lock_take(&p->lock);
    while (!all_over(k, n) && (now = clock_now_ms()) < end_ms) {
        cond_wait_ms(&p->one_over, &p->lock, end_ms - now);
    }
    for (size_t i = 0; i < n; i++) {
        if (!k[i].over) {
            k[i].cancelling = true;
            k[i].cancel.deliver = on_poke_cancel;
            message_queue_post(p->mail, &k[i].cancel);
        }
    }
    for (size_t i = 0; i < n; i++) {
        while (k[i].cancelling) {
            cond_wait(&p->one_over, &p->lock);
        }
    }
    lock_drop(&p->lock);
}

static bool may_poke(struct poker *p, const struct member *to, uint64_t now_ms)
{
    bool rests;

    lock_take(&p->lock);
    rests = rests_has(&p->rests, to->node, now_ms);
    lock_drop(&p->lock);
    return to->address[0] != '\0' && !rests;
}

/* what: path and query. k has room for n. The number of those that were started. */
static size_t start_pokes(struct poker *p, const struct member *to, size_t n, struct slice what,
                          const char *signature, struct arena *a, struct poke *k)
{
    uint64_t now_ms = clock_now_ms();
    size_t started = 0;

    for (size_t i = 0; i < n; i++) {
        struct poke *x = &k[started];
        if (!may_poke(p, &to[i], now_ms)) {
            continue;
        }
        started++;
        x->p = p;
        x->node = to[i].node;
        x->url = arena_fmt(a, "%s" SLICE_FMT, to[i].address, SLICE_ARG(what));
        x->field = arena_fmt(a, POKE_FIELD ": %s", signature);
        x->start.deliver = on_poke_start;
        message_queue_post(p->mail, &x->start);
    }
    return started;
}

/* The number of 204s. */
static size_t run_round(struct poker *p, const struct member *to, size_t n, struct slice what,
                        const char *signature, uint64_t wait_ms, struct arena *a)
{
    struct poke *k = mem_array(n + 1, sizeof k[0]);
    size_t started, done = 0;

    memset(k, 0, (n + 1) * sizeof k[0]);
    started = start_pokes(p, to, n, what, signature, a, k);
    wait_for_pokes(p, k, started, wait_ms);
    lock_take(&p->lock);
    for (size_t i = 0; i < started; i++) {
        done += k[i].status == 204;
        if (k[i].status == 0) {
            rests_add(&p->rests, k[i].node, clock_now_ms(), POKE_REST_MS);
        }
    }
    lock_drop(&p->lock);
    free(k);
    return done;
}

size_t poke_all(struct poker *p, const struct member *to, size_t n, uint64_t seq)
{
    struct arena a = {0};
    char signature[SIGNATURE_ROOM];
    size_t applied;

    sign(p, seq, signature);
    applied = run_round(p, to, n, arena_fmt(&a, "/-/cluster/poke?seq=%" PRIu64, seq), signature,
                        POKE_WAIT_MS, &a);
    arena_fini(&a);
    return applied;
}

void poke_hello(struct poker *p, const struct member *to, size_t n, const char *node)
{
    struct arena a = {0};
    char signature[SIGNATURE_ROOM];

    signature_make(p->secret, "hello", slice_str(node), signature);
    (void)run_round(p, to, n, arena_fmt(&a, "/-/cluster/hello?node=%s", node), signature,
                    HELLO_WAIT_MS, &a);
    arena_fini(&a);
}

void poke_heard(struct poker *p, const char *node)
{
    lock_take(&p->lock);
    rests_end(&p->rests, node);
    lock_drop(&p->lock);
}

/* --- open and close --- */

struct poker *poker_open(const char *secret)
{
    struct xfer_limits limits = {.connections = MEMBERS_MAX, .host_connections = 2};
    struct event_config *config = event_config_new();
    struct poker *p = NEW(struct poker);

    CHECK(config != NULL);
    CHECK(event_config_set_flag(config, EVENT_BASE_FLAG_NOLOCK | EVENT_BASE_FLAG_IGNORE_ENV) == 0);
    p->secret = mem_strdup(secret);
    lock_init(&p->lock, LOCK_POKE);
    cond_init(&p->one_over);
    p->base = event_base_new_with_config(config);
    CHECK(p->base != NULL);
    event_config_free(config);
    p->mail = message_queue_open(p->base);
    p->transfers = xfer_loop_open(p->base, &limits);
    p->thread = thread_start("poke", run_poker, p);
    return p;
}

void poker_close(struct poker **pp)
{
    struct poker *p = *pp;

    *pp = NULL;
    if (p == NULL) {
        return;
    }
    p->stop.deliver = on_poker_stop;
    message_queue_post(p->mail, &p->stop);
    pthread_join(p->thread, NULL);
    event_base_free(p->base);
    cond_fini(&p->one_over);
    lock_fini(&p->lock);
    OPENSSL_cleanse(p->secret, strlen(p->secret));
    free(p->secret);
    free(p);
}
