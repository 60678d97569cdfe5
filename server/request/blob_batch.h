/* blob_batch.h - many small blobs in one answer, for other mirrords and agents
 * (common/codec/blob_batch.h, docs/protocols/sync.md).
 *
 * Each digest is judged as /-/blob/ judges it; limits count BLOB_BATCH_COUNT_AS_ONE of them as a
 * request. An answer is made in memory: it has at most BLOB_BATCH_ANSWER_MAX bytes, and no more
 * than BLOB_BATCH_CLIENT_SLOTS are made or sent at once, half of them for one client; the next is
 * told to come again.
 *
 * threads  the loop; rows are read on a pool
 */
#ifndef SERVER_REQUEST_BLOB_BATCH_H
#define SERVER_REQUEST_BLOB_BATCH_H

#include "server/request/request.h"

enum { BLOB_BATCH_CLIENT_SLOTS = 64 };

void blob_batch_answer(struct serve_loop *d, struct exchange *x, struct request_log *v);

#endif
