/* clients.h - who is connected to one lane, and how much each has been sent: counted where the bytes leave, so that
 * connections that come and go still add up.
 *
 * An address that has no connection left is remembered for a while: the last CLIENTS_GONE of them.
 *
 * owns     a client lives while a connection holds it, or among those remembered
 * threads  one loop
 */
#ifndef SERVER_HTTP_CLIENTS_H
#define SERVER_HTTP_CLIENTS_H

#include <uthash.h>

#include "common/base/list.h"
#include "server/http/msg.h"

enum { CLIENTS_GONE = 1024 };

struct client {
    UT_hash_handle hh;
    struct list gone; /* among those without a connection, in the order they left */
    uint8_t address[ADDRESS_BYTES];
    uint64_t connections, bytes_out;
};

struct clients {
    struct client *all; /* uthash */
    struct list gone;
    unsigned ngone;
};

void clients_init(struct clients *cs);
void clients_fini(struct clients *cs); /* no connection is left */
struct client *client_enter(struct clients *cs, const struct sockaddr_storage *peer);
void client_leave(struct clients *cs, struct client *c);

#endif
