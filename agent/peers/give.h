/* give.h - the thread that listens for other nodes and gives them chunks (HTTP/1.1 over TLS with the key of what is asked for, psk.h), on a loop of its own: neither a slow disk nor
 * a slow guest holds up our own pulls.
 *
 * At most GIVE_GUESTS connections; one more is closed as it comes. `address` and `port` as the node's file says; port 0: any.
 *
 * owns     give_close() ends the thread and whoever is connected; the gifts outlive it
 * threads  all from one thread; the work is done on its own
 * errors   E_CONFIG: no such address; else the system's, a port that is taken among them
 */
#ifndef AGENT_PEERS_GIVE_H
#define AGENT_PEERS_GIVE_H

#include "common/hash/digest.h"
#include "common/xfer/psk.h"

struct gifts;
struct gift;

struct gifts *gifts_open(void);
void gifts_close(struct gifts **gp); /* all references have been dropped */

/* Nobody can ask for it before it has a key. */
MUST_USE int gifts_offer(struct gifts *g, const struct digest *d, uint64_t size_bytes, int fd,
                         struct gift **out, struct err *e);
void gift_key(struct gift *x, const uint8_t key[PSK_KEY_BYTES]);
void gift_chunk(struct gift *x, size_t i, bool there);
void gift_withdraw(struct gift *x);
void gift_drop(struct gift **xp); /* NULL is fine */

enum { GIVE_GUESTS = 256 };

struct give;

MUST_USE int give_open(struct gifts *gifts, const char *address, uint16_t port, unsigned uploads,
                       struct give **out, struct err *e);
uint16_t give_port(const struct give *g);
void give_close(struct give **gp); /* NULL is fine */

/* A request's head without its last empty line: what is asked for. False: it is none of ours. */
struct guest_request {
    struct slice digest_hex;
    bool have; /* the bitmap, and no chunk */
    uint64_t chunk;
    bool closes;
};
bool guest_read(struct slice head, struct guest_request *out);

#endif
