#include "server/http/clients.h"

#include <stdlib.h>

void clients_init(struct clients *cs)
{
    *cs = (struct clients){.all = NULL};
    list_init(&cs->gone);
}

static void forget(struct clients *cs, struct client *c)
{
    CHECK(c->connections == 0);
    HASH_DEL(cs->all, c);
    list_remove(&c->gone);
    cs->ngone--;
    free(c);
}

void clients_fini(struct clients *cs)
{
    while (!list_empty(&cs->gone)) {
        forget(cs, LIST_ITEM(cs->gone.next, struct client, gone));
    }
    CHECK(cs->all == NULL);
}

struct client *client_enter(struct clients *cs, const struct sockaddr_storage *peer)
{
    uint8_t address[ADDRESS_BYTES];
    struct client *c = NULL;

    address_of(peer, address);
    HASH_FIND(hh, cs->all, address, ADDRESS_BYTES, c);
    if (c == NULL) {
        c = NEW(struct client);
        memcpy(c->address, address, ADDRESS_BYTES);
        HASH_ADD(hh, cs->all, address, ADDRESS_BYTES, c);
    } else if (c->connections == 0) {
        list_remove(&c->gone);
        cs->ngone--;
    }
    c->connections++;
    return c;
}

void client_leave(struct clients *cs, struct client *c)
{
    CHECK(c->connections > 0);
    if (--c->connections > 0) {
        return;
    }
    list_push_back(&cs->gone, &c->gone);
    if (++cs->ngone > CLIENTS_GONE) {
        forget(cs, LIST_ITEM(cs->gone.next, struct client, gone));
    }
}
