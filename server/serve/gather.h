/* gather.h - facts that an adapter makes of a document and those that it leads to (repo.h: NEED_GATHER): a listing in pages,
 * say, made into a table that a plan can look into.
 *
 * The parts are objects of the cache like any other; what is made of them is kept in memory, bounded, one table a loop, for as
 * long as they are fresh. Calls that need the same wait for the same gathering; when the last of them has left, it ends.
 *
 * owns     a gathering is counted: by the table, and by every call that was given it, since facts point into it
 * threads  one loop; ops->gather runs on a reader thread
 */
#ifndef SERVER_SERVE_GATHER_H
#define SERVER_SERVE_GATHER_H

#include "server/serve/call.h"

struct gathers;
struct gathers *gathers_open(struct desk *k);
void gathers_close(struct gathers **gp); /* nothing is under way */
/* repo.p == NULL: all; key.p == NULL: the whole repo. Takes effect for whoever needs it from now on. g may be NULL. */
void gathers_forget(struct gathers *g, struct slice repo, struct slice key);

/* Gives c the fact of c->plan.need, now or later, by need_learn(). */
void gather_need(struct call *c);
void gather_leave(struct call *c); /* the client is gone: it waits no more */
void gather_drop(struct call *c);  /* the call ends: its facts are void */

#endif
