/* body_memory.h - limits the memory of requests: bodies that wait to be used, and what is made for
 * requests. There is one bound for all, and the client that holds most gives way first.
 *
 * Memory that is not in use (BODY_SPARE) is freed first, whichever client needs the room: that of
 * the client that holds most, the least recently used first.
 *
 * A use that does not fit is refused if its client holds most. For any other client it is granted,
 * and the largest use of the client that holds most is ended instead, by a message to its loop.
 * Until that has ended, up to twice the bound may be held. No more uses are ended than the bytes in
 * question require.
 *
 * owns     a use is embedded in an exchange, or in a paged fetch (plan/paged_fetch.h); call
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
    BODY_IN_USE,  /* until its request has ended */
    BODY_MAY_END, /* it can be ended to make room */
    /* its sender can be paused: a quarter of the bound is reserved for those that cannot */
    BODY_CAN_WAIT,
    BODY_SPARE, /* not in use: ended first, also for its own client */
};

struct body_use {
    struct list node;  /* of its holder, under the lock; in no list: it holds nothing */
    struct list local; /* of its port, on its loop */
    struct list spare; /* of its holder, under the lock */
    struct body_holder *holder;
    struct body_port *port;
    size_t bytes;                 /* counted, in steps */
    _Atomic(enum body_kind) kind; /* written by its loop, read by any that looks for room */
    _Atomic bool ends;            /* it was asked to end; written under the lock */
    bool leaves;                  /* the same, as a spare one; under the lock */
};

struct body_port { /* one for each loop */
    struct list uses;
    struct message message;
    _Atomic bool posted;
    struct message_queue *mail;
    void (*end)(struct body_use *u); /* on the loop: drops or spares it */
};

struct body_memory *body_memory_open(uint64_t bytes_max);
void body_memory_close(struct body_memory **mp); /* there are no uses left */
void body_port_init(struct body_port *p, struct message_queue *mail,
                    void (*end)(struct body_use *u));
/* Sets the bytes that this use of the client holds. False: it may not hold more than before. */
bool body_memory_hold(struct body_memory *m, struct body_port *p, struct body_use *u,
                      uint64_t client, enum body_kind kind, size_t bytes);
void body_memory_drop(struct body_memory *m,
                      struct body_use *u); /* no effect when it holds nothing */
/* Called by the port's end() instead of a drop: the use is needed again, and stays. */
void body_memory_spare(struct body_memory *m, struct body_use *u);
struct body_memory_stats {
    uint64_t bytes, refused, ended;
};
void body_memory_stats(struct body_memory *m, struct body_memory_stats *out);

#endif
