/* give.h - the thread that gives chunks to other nodes (HTTP/1.1 over TLS with the key of the
 * requested file, psk.h), on its own loop, so that neither a slow disk nor a slow inbound peer
 * delays our own pulls.
 *
 * At most GIVE_INBOUND_PEERS connections are open; another one is closed immediately. `address`
 * and `port` are from the node's file; port 0: any.
 *
 * owns     give_close() ends the thread and all connections; the shared files outlive it
 * threads  all from one thread; the work is done on its own
 * errors   E_CONFIG: not an address of this machine; else the system's, for example a port that is
 *          in use
 */
#ifndef AGENT_PEERS_GIVE_H
#define AGENT_PEERS_GIVE_H

#include "common/hash/digest.h"
#include "common/xfer/psk.h"

struct shared_files;
struct shared_file;

struct shared_files *shared_files_open(void);
void shared_files_close(struct shared_files **gp); /* all references have been dropped */

/* It cannot be requested before it has a key. */
MUST_USE int shared_files_offer(struct shared_files *g, const struct digest *d, uint64_t size_bytes,
                                int fd, struct shared_file **out, struct err *e);
void shared_file_key(struct shared_file *x, const uint8_t key[PSK_KEY_BYTES]);
void shared_file_chunk(struct shared_file *x, size_t i, bool there);
void shared_file_withdraw(struct shared_file *x);
void shared_file_drop(struct shared_file **xp); /* NULL is fine */

enum { GIVE_INBOUND_PEERS = 256 };

struct give;

MUST_USE int give_open(struct shared_files *shared_files, const char *address, uint16_t port,
                       unsigned uploads, struct give **out, struct err *e);
uint16_t give_port(const struct give *g);
void give_close(struct give **gp); /* NULL is fine */

/* Parses a request's header section without its final empty line. False: not such a request. */
struct inbound_peer_request {
    struct slice digest_hex;
    bool have; /* the bitmap, and no chunk */
    uint64_t chunk;
    bool closes;
};
bool inbound_peer_read(struct slice head, struct inbound_peer_request *out);

#endif
