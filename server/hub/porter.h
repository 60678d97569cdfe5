/* porter.h - one object of the cache brought whole for a thread: what a client's GET would do, without a client.
 *
 * The cache answers on loops, and a body is followed on its loop: a porter does both there, and tells the thread that waits.
 * So whoever else asks for the object meanwhile joins the same fill.
 *
 * owns     porter_end() waits until nothing is under way on the loop, and frees it; the want's slices must live until then
 * threads  all by one thread, which blocks; never a loop
 * errors   of the object: porter_rc() and its sentence
 */
#ifndef SERVER_HUB_PORTER_H
#define SERVER_HUB_PORTER_H

#include "common/os/lock.h"
#include "server/cache/cache.h"
#include "server/net/loop.h"

struct porters { /* who waits, for any of several */
    struct lock lock;
    struct cond news;
    uint64_t finished; /* so many are over */
};
void porters_init(struct porters *ps);
void porters_fini(struct porters *ps);
/* Until another one is over than *seen says, or the time has run out. */
void porters_wait(struct porters *ps, uint64_t *seen, uint64_t ms);

struct porter;
struct porter *porter_start(struct porters *ps, struct cache *c, struct loop *l,
                            const struct want *w);
bool porter_over(struct porter *p);                 /* it came whole, or never will */
uint64_t porter_done_bytes(const struct porter *p); /* in order, from the first on */
/* --- once it is over --- */
int porter_rc(const struct porter *p, struct err *why);
const struct answer *porter_answer(const struct porter *p); /* NULL: there was none */
MUST_USE int porter_read(const struct porter *p, struct buf *out, struct err *e); /* of an rc 0 */
/* Also before that: it is given up. NULL is fine. */
void porter_end(struct porter **pp);

#endif
