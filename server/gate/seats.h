/* seats.h - so many of something costly at once, and no more than half of them for one client: who takes them and lets go slowly
 * leaves the others theirs.
 *
 * A client is an address, of IPv6 a /64, as for limits.
 *
 * threads  any; nothing waits. Two who come at the same instant may have one more than half
 */
#ifndef SERVER_GATE_SEATS_H
#define SERVER_GATE_SEATS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

enum { SEATS = 64, SEATS_OF_ONE = SEATS / 2 };

struct seats { /* all zero: free */
    _Atomic uint64_t at[SEATS];
};

/* 1 to SEATS, for seats_leave(); 0: all are taken, or this client's half. */
unsigned seats_take(struct seats *s, const struct sockaddr_storage *peer);
void seats_leave(struct seats *s, unsigned *seat); /* 0 is fine, and what it is then */

#endif
