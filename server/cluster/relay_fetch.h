/* relay_fetch.h - asks the other mirrors of a cluster for what only one of them has: an object that
 * uploads have brought and no version names yet, a row about links of a Python index.
 *
 *   GET /-/cluster/uploaded?repo=<repo>&tree=<tree>&sha256=<hex>     its bytes
 *   GET /-/cluster/row?key=<key>                                     the row's value
 *
 * The requests are signed as those that are passed on (relay.h). The mirrors that are alive are
 * asked one after the other, on connections that are kept (loop_pool.h). The answers are believed:
 * the mirrors of a cluster trust each other.
 *
 * An object may lie on a mirror that is being restarted: that one is waited for, up to
 * RELAY_RESTART_MS.
 *
 * owns     nothing
 * threads  any that may block: pool threads
 * errors   E_NOTFOUND: no mirror has it; E_AGAIN: no mirror that could be reached has it, and
 *          another one may come back
 */
#ifndef SERVER_CLUSTER_RELAY_FETCH_H
#define SERVER_CLUSTER_RELAY_FETCH_H

#include "common/hash/digest.h"
#include "server/cluster/relay.h"

#define RELAY_UPLOADED_PATH "/-/cluster/uploaded"
#define RELAY_ROW_PATH      "/-/cluster/row"
enum { RELAY_RESTART_MS = 20000 };
enum { RELAY_ROW_BYTES = 256 << 10, RELAY_NAME_MAX = 1024, RELAY_KEY_MAX = 32 << 10 };

/* Gives the bytes to sink(), in order. A mirror that breaks off is E_NETWORK. */
MUST_USE int relay_fetch_uploaded(struct relay *r, struct slice repo, struct slice tree,
                                  const struct digest *d,
                                  int (*sink)(void *arg, struct slice bytes), void *arg,
                                  struct err *e);
/* A key that no mirror had is not asked for again for RELAY_ABSENT_MS. */
enum { RELAY_ABSENT_MS = 30000 };
MUST_USE int relay_fetch_row(struct relay *r, struct slice key, struct buf *out, struct err *e);

#endif
