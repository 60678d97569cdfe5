/* body_memory.h - memory that requests hold, in bodies that wait to be used and in what was made
 * for them: one bound for all, and the client that holds most gives first.
 *
 * What nobody uses at the moment (BODY_SPARE) goes first, whoever needs the room; of that, too, the
 * client's that holds most, what was used longest ago.
 *
 * What does not fit is refused to the client that holds most. Another client is given it, and the
 * largest use of the client that holds most is ended instead, by a message to its loop; until it
 * has ended, up to twice the bound may be held. No more uses are ended than the bytes in question
 * need.
 *
 * owns     a use is embedded in an exchange, or in a gathering (plan/paged_fetch.h);
 *          body_memory_drop() before that is freed
 * threads  hold and drop: the loop of the use's port; a short lock when a use grows by a step
 */
#ifndef SERVER_HTTP_BODY_MEMORY_H
#define SERVER_HTTP_BODY_MEMORY_H

#include <stdatomic.h>

#include "common/base/list.h"
#include "common/os/message_queue.h"

struct body_memory;
struct body_holder;

enum body_kind {
    BODY_IN_USE,   /* until its request has ended */
    BODY_MAY_END,  /* it can be ended to make room */
    BODY_CAN_WAIT, /* its sender can be paused: a quarter of the bound stays for those that cannot */
    BODY_SPARE,    /* nobody uses it now: it ends first, also for its own client */
};

struct body_use {
    struct list node;  /* of its holder, under the lock; in no list: it holds nothing */
    struct list local; /* of its port, on its loop */
    struct list spare; /* of its holder, under the lock */
    struct body_holder *holder;
    struct body_port *port;
    size_t bytes;                 /* counted, in steps */
    _Atomic(enum body_kind) kind; /* its loop writes it, whoever looks for room reads it */
    _Atomic bool ends;            /* told to; written under the lock */
    bool leaves;                  /* ... as a spare one, under the lock */
};

struct body_port { /* one a loop */
    struct list uses;
    struct message message;
    _Atomic bool posted;
    struct message_queue *mail;
    void (*end)(struct body_use *u); /* on the loop: drops or spares it */
};

struct body_memory *body_memory_open(uint64_t bytes_max);
void body_memory_close(struct body_memory **mp); /* no use is left */
void body_port_init(struct body_port *p, struct message_queue *mail,
                    void (*end)(struct body_use *u));
/* The use of this client holds so many bytes now. False: it may not hold more than before. */
bool body_memory_hold(struct body_memory *m, struct body_port *p, struct body_use *u,
                      uint64_t client, enum body_kind kind, size_t bytes);
void body_memory_drop(struct body_memory *m,
                      struct body_use *u); /* harmless when it holds nothing */
/* Called by the port's end() instead of a drop: the use is needed by now, and stays. */
void body_memory_spare(struct body_memory *m, struct body_use *u);
struct body_memory_stats {
    uint64_t bytes, refused, ended;
};
void body_memory_stats(struct body_memory *m, struct body_memory_stats *out);

#endif
