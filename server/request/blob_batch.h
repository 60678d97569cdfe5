/* blob_batch.h - answers a request for many small blobs at once, for other mirrords and agents
 * (common/codec/blob_batch.h, docs/protocols/sync.md).
 *
 * Each digest is checked as /-/blob/ checks it. For rate limits, BLOB_BATCH_COUNT_AS_ONE digests
 * count as one request. An answer is built in memory and has at most BLOB_BATCH_ANSWER_MAX bytes.
 * At most BLOB_BATCH_CLIENT_SLOTS answers are built or sent at a time, half of them for one client;
 * further requests are asked to come again.
 *
 * owns     nothing: an answer's memory belongs to its body
 * threads  the loop; rows are read on a pool
 */
#ifndef SERVER_REQUEST_BLOB_BATCH_H
#define SERVER_REQUEST_BLOB_BATCH_H

#include "server/request/request.h"

enum { BLOB_BATCH_CLIENT_SLOTS = 64 };

void blob_batch_answer(struct serve_loop *d, struct exchange *x, struct request_log *v);

#endif
