/* batch.h - downloads small files of known digest, many in one response
 * (common/codec/blob_batch.h, docs/protocols/sync.md).
 *
 *   waiting ─▶ claimed, in a request ─▶ came, staged ─▶ sealing ─▶ ended
 *      │  ▲          └─ has not come: to the front of those that wait
 *      │  └─ busy: another process fetches it, looked for again at the next tick
 *      └─▶ staged by an earlier run, or in the cache ─▶ sealing, ended
 *
 * A request is sent when it is full, or when nothing else is in progress. Each file is checked
 * against its digest, then staged (agent/cache/stage.h). Files that a broken response has not
 * brought go into the next request. Files that arrived wrong, or that the mirror sends only
 * separately, are pulled by themselves (pull.h). From a mirror that does not know such requests,
 * or whose responses are invalid, every file is. The same bytes under another name are a twin,
 * which ends with the first.
 *
 * Memory: SMALLS_MAX files in progress, without their bytes; BLOB_BATCHES_MAX responses of
 * BLOB_BATCH_ANSWER_MAX.
 *
 * owns     the loop closes it; the first batch_add() opens it
 * events   on_done exactly once for each file, never inside batch_add()
 * threads  the loop's
 */
#ifndef AGENT_PULL_BATCH_H
#define AGENT_PULL_BATCH_H

#include "agent/pull/pull.h"

/* False: not suitable for a batch, pull it by itself. The loop must have room for it. */
MUST_USE bool batch_add(struct pull_loop *l, const struct pull_params *w,
                        void (*on_done)(void *arg, const struct pull_result *r), void *arg);
#endif
