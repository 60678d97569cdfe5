#include "agent/peers/neighbour.h"

#include <stdio.h>
#include <stdlib.h>

#include "agent/peers/bits.h"
#include "agent/peers/peers.h"
#include "common/base/log.h"
#include "common/os/clock.h"

enum {
    REST_MS = 10000,
    REST_DOUBLINGS = 4,
    BUSY_MS = 1000,
    CONNECT_MS = 3000,
    IDLE_S = 5,
    SLOW_BYTES_PER_S = 64 << 10,
};

struct neighbour *neighbour_new(struct swarm *s, const char *address)
{
    struct neighbour *n = NEW(struct neighbour);

    n->swarm = s;
    n->answer = BUF_INIT(BITS_BYTES(s->count));
    snprintf(n->address, sizeof n->address, "%s", address);
    return n;
}

bool neighbour_usable(const struct neighbour *n, uint64_t now_ms)
{
    return !n->liar && now_ms >= n->rests_until_ms;
}

struct xfer_want neighbour_want(const struct neighbour *n, const char *what,
                                char room[NEIGHBOUR_URL])
{
    const char *hex = n->swarm->psk.identity;
    int len = snprintf(room, NEIGHBOUR_URL, "https://%.32s.%.32s.peer/%.64s/%.20s", hex, hex + 32,
                       hex, what);

    return (struct xfer_want){
        .method = XFER_GET,
        .url = slice_of(room, (size_t)len),
        .connect_to = n->address,
        .psk = &n->swarm->psk,
        .connect_timeout_ms = CONNECT_MS,
        .idle_timeout_s = IDLE_S,
        .idle_bytes_per_s = SLOW_BYTES_PER_S,
    };
}

static void rest(struct neighbour *n, uint64_t now_ms)
{
    unsigned times = n->failures < REST_DOUBLINGS ? n->failures : REST_DOUBLINGS;

    n->failures++;
    n->rests_until_ms = now_ms + ((uint64_t)REST_MS << times);
    n->active = false;
}

void neighbour_judge(struct neighbour *n, size_t chunk, int rc, uint64_t now_ms)
{
    if (rc == 0) {
        n->failures = 0;
    } else if (rc == E_BUSY) {
        n->rests_until_ms = now_ms + BUSY_MS;
    } else {
        if (rc == E_NOTFOUND && n->have != NULL) { /* it began anew, or it lies */
            bits_set(n->have, chunk, false);
        }
        rest(n, now_ms);
        log_debug("peers.rest", "peer=%s failures=%u", n->address, n->failures);
    }
}

void neighbour_lied(struct neighbour *n, size_t chunk)
{
    if (!n->liar) {
        log_warn("peers.liar", "peer=%s chunk=%zu is not what it should be; it is not asked again",
                 n->address, chunk);
    }
    n->liar = true;
    n->active = false;
}

/* --- what it has ---------------------------------------------------------------------------------------------------- */

static int on_head(void *arg, const struct xfer_head *h)
{
    struct neighbour *n = arg;

    return h->status == 200 && h->content_length == BITS_BYTES(n->swarm->count) ? 0 : E_PROTOCOL;
}

static int on_body(void *arg, struct slice bytes)
{
    struct neighbour *n = arg;

    buf_adds(&n->answer, bytes);
    return n->answer.rc;
}

static void on_done(void *arg, int rc, const struct err *why, uint64_t body_bytes)
{
    struct neighbour *n = arg;
    uint64_t now_ms = clock_now_ms();

    (void)body_bytes;
    n->x = NULL;
    n->swarm->peers->asking--;
    if (rc != 0) {
        log_debug("peers.have", "peer=%s why=\"%s\"", n->address, why->text);
        rest(n, now_ms);
        return;
    }
    free(n->have);
    n->have = mem_array(n->answer.n, 1);
    memcpy(n->have, n->answer.p, n->answer.n);
    n->nhave = 0;
    for (size_t i = 0; i < n->swarm->count; i++) {
        n->nhave += bits_get(n->have, i);
    }
    swarm_news(n->swarm);
}

bool neighbour_ask(struct neighbour *n)
{
    static const struct xfer_events events = {on_head, on_body, on_done};
    struct peers *ps = n->swarm->peers;
    char room[NEIGHBOUR_URL];
    struct xfer_want w;

    CHECK(n->x == NULL);
    if (ps->asking >= PEERS_ASKING) {
        return false;
    }
    w = neighbour_want(n, "have", room);
    w.idle_bytes_per_s = 1;
    buf_clear(&n->answer);
    n->x = xfer_start(peers_xfers(ps), &w, &events, n);
    ps->asking++;
    return true;
}

static void stop_asking(struct neighbour *n)
{
    if (n->x != NULL) {
        xfer_cancel(&n->x);
        n->swarm->peers->asking--;
    }
}

void neighbour_give_up(struct neighbour *n, uint64_t now_ms)
{
    stop_asking(n);
    rest(n, now_ms);
}

void neighbour_free(struct neighbour *n)
{
    CHECK(n->lanes == 0 && n->blocks == 0);
    stop_asking(n);
    buf_free(&n->answer);
    free(n->have);
    free(n);
}
