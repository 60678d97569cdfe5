/* sealing.h - small files onto the shelf, many with one sync.
 *
 * One batch at a time: the next one gathers meanwhile, and is the larger the slower the disk is. Those that are added in one turn of the
 * loop go together.
 *
 * owns     a sealing is its caller's, who keeps it until done() has run; sealer_close() needs all of them done
 * threads  the puller's loop; the work is done on its pool
 */
#ifndef AGENT_PULL_SEALING_H
#define AGENT_PULL_SEALING_H

#include "agent/pull/puller.h"

struct sealing {
    struct list node;
    struct shelf_sealing one;        /* rc and why tell how it went */
    void (*done)(struct sealing *s); /* never inside sealing_add() */
};

struct sealer *sealer_open(struct puller *pl);
void sealer_close(struct sealer **sp);
void sealing_add(struct sealer *s, struct sealing *x);
void sealer_feed(struct sealer *s); /* the puller's business */

#endif
