/* client_slots.h - so many of something costly at once, and no more than a part of them for one
 * client: who takes them and lets go slowly leaves the others theirs.
 *
 * A client is what principal.client says: a token, or an address, of IPv6 a /64.
 *
 * owns     its table; client_slots_fini()
 * threads  any; nothing waits. Two who come at the same instant may have one more than their part
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
/* 1 to count, for client_slots_leave(); 0: all are taken, or this client's part. */
unsigned client_slots_take(struct client_slots *s, uint64_t client);
/* The slot is this client's from now on; false: its part is taken, and the slot stays whose it
 * was. */
bool client_slots_move(struct client_slots *s, unsigned slot, uint64_t client);
void client_slots_leave(struct client_slots *s,
                        unsigned *slot); /* 0 is fine, and what it is then */

#endif
