/* loop_pool.h - event loops for requests that a thread waits for. A loop is kept for the next
 * request, with its open connections: the next question to the same mirror needs no new one.
 *
 *   take     a loop that nobody uses; the caller runs it
 *   put      gives it back, when no transfer of it is under way
 *   tidy     closes loops that nobody has used for LOOP_POOL_IDLE_MS; to be called now and then
 *
 * A kept connection that the other side has closed meanwhile does not fail a request: libcurl
 * notices it and opens another one.
 *
 * owns     its loops; all are given back before loop_pool_close()
 * threads  any; a loop belongs to the thread that has taken it
 */
#ifndef SERVER_CLUSTER_LOOP_POOL_H
#define SERVER_CLUSTER_LOOP_POOL_H

#include <stdint.h>

#include "common/base/list.h"

/* A mirror closes a connection that is idle for 75 s (`idle` of docs/configuration.md). */
enum { LOOP_POOL_MAX = 8, LOOP_POOL_IDLE_MS = 30000 };

struct event_base;
struct loop_pool;
struct xfer_loop;

struct pool_loop {
    struct event_base *base;
    struct xfer_loop *transfers;
    struct list node; /* of the pool, as is idle_since_ms */
    uint64_t idle_since_ms;
};

struct loop_pool *loop_pool_open(void);
void loop_pool_close(struct loop_pool **pp); /* NULL is fine */
struct pool_loop *loop_pool_take(struct loop_pool *p);
void loop_pool_put(struct loop_pool *p, struct pool_loop *l);
void loop_pool_tidy(struct loop_pool *p, uint64_t now_ms);

#endif
