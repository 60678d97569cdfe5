/* batch.h - small files of known digest, many in an answer (common/codec/blob_batch.h,
 * docs/protocols/sync.md).
 *
 *   waiting ─▶ claimed, in a request ─▶ came, staged ─▶ sealing ─▶ ended
 *      │  ▲          └─ has not come: to the front of those that wait
 *      │  └─ busy: another process fetches it, looked for again at the next tick
 *      └─▶ staged by an earlier run, or in the cache ─▶ sealing, ended
 *
 * A request goes when it is full, or when nothing else is under way. Each file is checked against
 * its digest, then staged (agent/cache/stage.h). What an answer that broke off has not brought goes
 * into the next; what it brought wrong, or says is to be had alone, is pulled by itself (pull.h).
 * From a mirror that knows no such requests, or whose answers are none, all else is. The same bytes
 * under another name are a twin: it ends with the first.
 *
 * Memory: SMALLS_MAX files under way, without their bytes; BLOB_BATCHES_MAX answers of
 * BLOB_BATCH_ANSWER_MAX.
 *
 * owns     the loop closes it; it is opened by the first batch_add()
 * events   on_done exactly once for each file, never inside batch_add()
 * threads  the loop's
 */
#ifndef AGENT_PULL_BATCH_H
#define AGENT_PULL_BATCH_H

#include "agent/pull/pull.h"

/* False: it is none for a batch, pull it by itself. There is room for it. */
MUST_USE bool batch_add(struct pull_loop *l, const struct pull_params *w,
                        void (*on_done)(void *arg, const struct pull_result *r), void *arg);
#endif
