/* sheaf.h - many small blobs in one answer, for other mirrords and agents (common/codec/sheaf.h, docs/protocols/sync.md).
 *
 * Each digest is judged as /-/blob/ judges it; limits count SHEAF_COUNT_AS_ONE of them as a request. An answer is made in memory:
 * it has at most SHEAF_ANSWER_MAX bytes, and no more than SHEAF_SEATS are made or sent at once, half of them for one client; the next is told to come again.
 *
 * threads  the loop; rows are read on a pool
 */
#ifndef SERVER_SERVE_SHEAF_H
#define SERVER_SERVE_SHEAF_H

#include "server/serve/call.h"

enum { SHEAF_SEATS = 64 };

void sheaf_answer(struct desk *d, struct exchange *x, struct visit *v);

#endif
