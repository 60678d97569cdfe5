/* seats.h - so many of something costly at once, and no more than a part of them for one client: who takes them and lets go slowly
 * leaves the others theirs.
 *
 * A client is what principal.client says: a token, or an address, of IPv6 a /64.
 *
 * owns     its table; seats_fini()
 * threads  any; nothing waits. Two who come at the same instant may have one more than their part
 */
#ifndef SERVER_GATE_SEATS_H
#define SERVER_GATE_SEATS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct seats {
    _Atomic uint64_t *at; /* the client of each; 0: free */
    unsigned count, of_one;
};

void seats_init(struct seats *s, unsigned count, unsigned of_one);
void seats_fini(struct seats *s);
/* 1 to count, for seats_leave(); 0: all are taken, or this client's part. */
unsigned seats_take(struct seats *s, uint64_t client);
/* The seat is this client's from now on; false: its part is taken, and the seat stays whose it was. */
bool seats_move(struct seats *s, unsigned seat, uint64_t client);
void seats_leave(struct seats *s, unsigned *seat); /* 0 is fine, and what it is then */

#endif
