/* memo.h - which upload a publish is at, so that one that was killed goes on instead of sending everything again.
 *
 * One small file in the state folder, named by where to and by what is sent (names, sizes, digests): other content never
 * meets an old upload. It is locked while open; a second publish of the same at the same time gets none, and opens an
 * upload of its own. A memo is a convenience: lost or torn, the publish begins anew, so nothing is synced.
 *
 * owns     memo_close() frees; NULL is fine for every call, and remembers nothing
 * threads  one at a time; blocks
 */
#ifndef AGENT_PUBLISH_MEMO_H
#define AGENT_PUBLISH_MEMO_H

#include "agent/publish/files.h"

struct memo;

/* NULL when there can be none. */
struct memo *memo_open(const char *state_dir, struct slice to, const struct publish_files *files);
struct slice memo_location(const struct memo *m); /* n == 0: no upload is known */
void memo_keep(struct memo *m, struct slice location);
void memo_forget(struct memo *m); /* it is committed, or the mirror knows it no more */
void memo_close(struct memo **mp);

#endif
