/* client_slots.h - limits how many of a costly resource are in use at the same time, and how many
 * of them by one client. So a client that holds its slots for long leaves the rest to others.
 *
 * A client is principal.client: a token, or an address, of IPv6 a /64.
 *
 * owns     its table; client_slots_fini()
 * threads  any; nothing waits. Two simultaneous calls of one client may get one more than its
 *          share
 */
#ifndef SERVER_GATE_CLIENT_SLOTS_H
#define SERVER_GATE_CLIENT_SLOTS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct client_slots {
    _Atomic uint64_t *at; /* the client of each; 0: free */
    unsigned count, of_one;
};

void client_slots_init(struct client_slots *s, unsigned count, unsigned of_one);
void client_slots_fini(struct client_slots *s);
/* A slot from 1 up, for client_slots_leave(); 0: all are taken, or this client's share is. */
unsigned client_slots_take(struct client_slots *s, uint64_t client);
/* Gives the slot to this client; false: its share is taken, and the slot keeps its owner. */
bool client_slots_move(struct client_slots *s, unsigned slot, uint64_t client);
void client_slots_leave(struct client_slots *s, unsigned *slot); /* 0 is fine; sets it to 0 */

#endif
