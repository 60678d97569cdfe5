/* sheaves.h - small files of known digest, many in an answer (common/codec/sheaf.h, docs/protocols/sync.md).
 *
 * Files wait their turn (small.h) and are asked for many at once (sheaf.h). A sheaf goes when it is full, or when nothing else is under way.
 * What an answer that broke off has not brought goes into the next; what it brought wrong, or says is to be had alone, is pulled by
 * itself. From a mirror that knows no sheaves, or whose answers are none, all else is.
 *
 * Memory: SMALLS_MAX files under way, without their bytes; SHEAVES_MAX answers of SHEAF_ANSWER_MAX.
 *
 * events   on_done exactly once for each file, in sheaves_reap() alone
 * threads  the puller's loop
 */
#ifndef AGENT_PULL_SHEAVES_H
#define AGENT_PULL_SHEAVES_H

#include "agent/pull/pull.h"

struct sheaves;

enum { SMALLS_MAX = 4096, SHEAVES_MAX = 8 };

struct sheaves *sheaves_open(struct puller *pl);
void sheaves_close(struct sheaves **sp);

/* Is it one for a sheaf? */
bool sheaves_fit(const struct sheaves *s, const struct pull_want *w);
bool sheaves_have_room(const struct sheaves *s);
void sheaves_add(struct sheaves *s, const struct pull_want *w,
                 void (*on_done)(void *arg, const struct pull_result *r), void *arg);

/* The puller's business. */
void sheaves_feed(struct sheaves *s);
void sheaves_tick(struct sheaves *s, uint64_t now_ms);
void sheaves_no_more(struct sheaves *s, bool yes); /* will come: a sheaf need not be full */
void sheaves_stop(struct sheaves *s);
bool sheaves_reap(struct sheaves *s); /* true: some have ended */
bool sheaves_idle(const struct sheaves *s);

#endif
