#include "agent/peers/peers.h"

#include <stdlib.h>
#include <sys/random.h>
#include <unistd.h>

#include "agent/peers/give.h"
#include "common/base/log.h"
#include "common/os/clock.h"

enum { GOODBYE_MS = 1000, GOODBYE_HURRY_MS = 300, GIVERS_MAX = 4096 };

struct giver_name {
    struct list node;
    char address[ADDRESS_ROOM];
};

struct peers *peers_open(const struct agent *a, struct xfer_loop *xfers, void (*changed)(void *arg),
                         void *arg)
{
    const struct node_peers *want = &a->node.peers;
    struct peers *ps;
    struct err why;

    if (!a->peers) {
        return NULL;
    }
    ps = NEW(struct peers);
    ps->agent = a;
    ps->xfers = xfers;
    ps->changed = changed;
    ps->arg = arg;
    ps->linger_ms = a->lingers ? want->linger : 0;
    list_init(&ps->swarms);
    list_init(&ps->givers);
    ps->gifts = gifts_open();
    if (getrandom(&ps->dice, sizeof ps->dice, GRND_NONBLOCK) != (ssize_t)sizeof ps->dice) {
        ps->dice = clock_now_ns() ^ (uint64_t)getpid();
    }
    ps->dice |= 1;
    if (give_open(ps->gifts, want->address, (uint16_t)want->port, (unsigned)want->uploads,
                  &ps->give, &why) != 0) {
        log_warn("peers.give", "takes from other nodes and gives nothing: %s", why.text);
    }
    return ps;
}

static bool all_gone(struct peers *ps)
{
    LIST_EACH (&ps->swarms, n) {
        struct swarm *s = LIST_ITEM(n, struct swarm, node);
        if (s->leaving && s->ask == NULL) {
            swarm_free(s);
        }
    }
    return list_empty(&ps->swarms);
}

void peers_tick(struct peers *ps, uint64_t now_ms)
{
    if (ps != NULL) {
        (void)all_gone(ps);
        LIST_EACH (&ps->swarms, n) {
            swarm_tick(LIST_ITEM(n, struct swarm, node), now_ms);
        }
    }
}

static bool somebody_waits(const struct peers *ps, uint64_t now_ms)
{
    LIST_EACH (&ps->swarms, n) {
        if (swarm_is_wanted(LIST_ITEM(n, struct swarm, node), now_ms)) {
            return true;
        }
    }
    return false;
}

bool peers_may_end(struct peers *ps, bool hurry, uint64_t now_ms)
{
    if (ps == NULL) {
        return true;
    }
    if (ps->ended_ms == 0) {
        ps->ended_ms = now_ms;
    }
    if (ps->parting_ms == 0) {
        if (!hurry && now_ms - ps->ended_ms < ps->linger_ms && somebody_waits(ps, now_ms)) {
            if (!ps->stays) {
                ps->stays = true;
                log_debug("peers.stays", "for others that miss something");
            }
            return false;
        }
        ps->parting_ms = now_ms;
        LIST_EACH (&ps->swarms, n) {
            swarm_part(LIST_ITEM(n, struct swarm, node));
        }
    }
    return all_gone(ps) || now_ms - ps->parting_ms >= (hurry ? GOODBYE_HURRY_MS : GOODBYE_MS);
}

void peers_close(struct peers **pp)
{
    struct peers *ps = *pp;
    struct list *n;

    if (ps == NULL) {
        return;
    }
    *pp = NULL;
    give_close(&ps->give);
    LIST_EACH (&ps->swarms, it) {
        swarm_free(LIST_ITEM(it, struct swarm, node));
    }
    while ((n = list_pop_front(&ps->givers)) != NULL) {
        free(LIST_ITEM(n, struct giver_name, node));
    }
    gifts_close(&ps->gifts);
    free(ps);
}

unsigned peers_givers(const struct peers *ps)
{
    return ps != NULL ? ps->ngivers : 0;
}

void peers_gave(struct peers *ps, const char *address)
{
    struct giver_name *one;

    LIST_EACH (&ps->givers, n) {
        if (strcmp(LIST_ITEM(n, struct giver_name, node)->address, address) == 0) {
            return;
        }
    }
    if (ps->ngivers < GIVERS_MAX) {
        one = NEW(struct giver_name);
        memcpy(one->address, address, sizeof one->address);
        list_push_back(&ps->givers, &one->node);
        ps->ngivers++;
    }
}

uint16_t peers_port(const struct peers *ps)
{
    return ps->give != NULL ? give_port(ps->give) : 0;
}

struct xfer_loop *peers_xfers(const struct peers *ps)
{
    return ps->xfers;
}
