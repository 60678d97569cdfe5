/* strip.h - removes info.base_url from repodata.json: clients then look for the packages beside it.
 *
 * owns     strip_close() frees it
 * threads  one at a time; pure
 * errors   E_INVALID: not JSON; E_TOOBIG
 */
#ifndef SERVER_REPO_CONDA_STRIP_H
#define SERVER_REPO_CONDA_STRIP_H

#include "common/base/buf.h"

struct strip;
struct strip *strip_open(struct buf *out);
MUST_USE int strip_feed(struct strip *s, struct slice bytes, struct err *e);
MUST_USE int strip_finish(struct strip *s, struct err *e);
void strip_close(struct strip **sp); /* NULL is fine */

#endif
