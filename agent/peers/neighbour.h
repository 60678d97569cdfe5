/* neighbour.h - another node that has some of a file: what it says it has, how it behaved.
 *
 * It is asked for its bitmap now and then. One that fails, is slow, has not what it said or answers nonsense is left alone for 10 s, then 20, ...; one whose
 * chunk was not what it should be is not asked again in this run. Connections are told apart by the file (psk.h), HTTP/1.1, no proxy.
 *
 * owns     neighbour_free() ends its question; lanes and blocks must have been released
 * threads  the puller's loop
 */
#ifndef AGENT_PEERS_NEIGHBOUR_H
#define AGENT_PEERS_NEIGHBOUR_H

#include "agent/peers/announcement.h"
#include "common/base/list.h"
#include "common/xfer/xfer.h"

enum { NEIGHBOUR_LANES = 2 };

struct swarm;
struct neighbour {
    struct list node;
    struct swarm *swarm;
    char address[ADDRESS_ROOM];
    uint8_t *have; /* NULL: not known yet */
    size_t nhave;  /* chunks in it */
    bool active;   /* one of those that are asked */
    bool liar;
    unsigned lanes;
    unsigned blocks;   /* that came and are being checked and written */
    unsigned failures; /* in a row */
    uint64_t rests_until_ms;
    uint64_t asked_ms; /* for its bitmap */
    struct xfer *x;
    struct buf answer;
    bool gave; /* a chunk that was right */
};

struct neighbour *neighbour_new(struct swarm *s, const char *address);
void neighbour_free(struct neighbour *n);

bool neighbour_usable(const struct neighbour *n, uint64_t now_ms);
/* For its bitmap; false: so many are asked already that it must wait. */
MUST_USE bool neighbour_ask(struct neighbour *n);

void neighbour_give_up(struct neighbour *n, uint64_t now_ms); /* on that question */

/* A chunk's transfer; the want's texts live in `room`, of NEIGHBOUR_URL. */
enum { NEIGHBOUR_URL = 320 };
struct xfer_want neighbour_want(const struct neighbour *n, const char *what,
                                char room[NEIGHBOUR_URL]);

/* How a chunk's transfer went: 0; E_BUSY it has no place; E_NOTFOUND it has it no more; else it failed. */
void neighbour_judge(struct neighbour *n, size_t chunk, int rc, uint64_t now_ms);
void neighbour_lied(struct neighbour *n, size_t chunk); /* its chunk did not verify */

#endif
