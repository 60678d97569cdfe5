/* peers.h - fetching from and giving to other nodes, for one run of the agent (docs/protocols/peers.md).
 *
 * Off unless the node's file has `peers { }` or --peers was said, and the mirror has a door for it. Nothing of it makes a pull fail.
 *
 * owns     peers_close() ends the thread that gives; swarms that pulls hold must have been left
 * threads  the puller's loop
 */
#ifndef AGENT_PEERS_PEERS_H
#define AGENT_PEERS_PEERS_H

#include "agent/agent.h"
#include "agent/peers/swarm.h"

/* More would wait for each other's connections, and the mirror's answers with them. */
enum { PEERS_ASKING = 24 };

struct give;
struct peers {
    const struct agent *agent;
    struct xfer_loop *xfers;
    void (*changed)(void *arg); /* something may be fetched that could not be before */
    void *arg;
    struct gifts *gifts;
    struct give *give; /* NULL: takes only */
    struct list swarms;
    uint64_t dice;
    unsigned asking;    /* neighbours what they have */
    struct list givers; /* addresses that gave something right */
    unsigned ngivers;
    uint64_t linger_ms;  /* how long it stays for others */
    uint64_t ended_ms;   /* when all pulls had ended; 0: they have not */
    bool stays;          /* for others, and it was said */
    uint64_t parting_ms; /* since when it says goodbye; 0: it does not */
};

/* NULL: they are not asked for. */
struct peers *peers_open(const struct agent *a, struct xfer_loop *xfers, void (*changed)(void *arg),
                         void *arg);
void peers_tick(struct peers *ps, uint64_t now_ms);
/* All pulls have ended: may the run end, too? Not while others miss something, for as long as the node's file says; then the mirror is
 * told, which takes a moment. hurry: others do not count. */
bool peers_may_end(struct peers *ps, bool hurry, uint64_t now_ms);
void peers_close(struct peers **pp);

/* How many different nodes gave something. */
unsigned peers_givers(const struct peers *ps);
void peers_gave(struct peers *ps, const char *address);
uint16_t peers_port(const struct peers *ps); /* 0: takes only */
struct xfer_loop *peers_xfers(const struct peers *ps);

#endif
