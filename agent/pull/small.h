/* small.h - the small files of known digest that are under way, and where each of them stands.
 *
 *   waiting ─▶ claimed, to be fetched ─▶ came, staged ─▶ sealing ─▶ ended
 *      │  ▲          └─ has not come: to the front of those that wait
 *      │  └─ busy: another process fetches it, looked for again at the next tick
 *      └─▶ staged by an earlier run, or on the shelf ─▶ sealing, ended
 *
 * What cannot go this way is pulled by itself (pull.h). The same bytes under another name are a twin: it ends with the first.
 * Who fetches is told of a file by smalls_next(), and says once what became of it.
 *
 * events   on_done exactly once for each file, in smalls_reap() alone
 * threads  the puller's loop
 */
#ifndef AGENT_PULL_SMALL_H
#define AGENT_PULL_SMALL_H

#include "agent/pull/pull.h"

struct small;
struct stage;

struct smalls {
    struct puller *pl;
    struct stage *stage; /* NULL: not opened yet */
    struct small *all;   /* uthash, by digest; without twins */
    struct list waiting, busy, alone, ended;
    size_t n, nwaiting;
    uint64_t waiting_bytes;
    uint64_t busy_since_ms; /* 0: nobody is in our way; UINT64_MAX: and it was said */
};

void smalls_init(struct smalls *ss, struct puller *pl);
void smalls_fini(struct smalls *ss); /* with none left */

void smalls_add(struct smalls *ss, const struct pull_want *w,
                void (*on_done)(void *arg, const struct pull_result *r), void *arg);

/* The next one that is to be fetched, claimed; NULL: none waits any more. What is here already is taken up on the way. */
struct small *smalls_next(struct smalls *ss);
const struct pull_want *small_want(const struct small *x);

/* What became of it: one of the four. */
void small_came(struct small *x);  /* it is staged */
void small_again(struct small *x); /* it has not come, and waits in front of all others */
void small_alone(struct small *x); /* pulled by itself, when there is a seat */
void small_failed(struct small *x, const struct err *why);

void smalls_all_alone(struct smalls *ss); /* those that wait */
void smalls_feed(struct smalls *ss);      /* seats to those that go alone */
void smalls_tick(struct smalls *ss, uint64_t now_ms);
void smalls_stop(struct smalls *ss); /* all but those that are being fetched or sealed */
bool smalls_reap(struct smalls *ss); /* true: some have ended */

#endif
