/* ticket.h - one small file for each job whose files are brought: what its tasks go by. /run/trainagent/<job>
 *
 * The prolog makes it, as root, before anything else; whoever brings the files holds a lock on it as long as he lives, and writes into it
 * at the end, through the descriptor that he was given, how it went. So a reader knows three things without asking anybody: there is
 * none (nothing was asked for), somebody still holds it, or nobody does and it says what became of it. One that nobody holds and that does not
 * say is of somebody who was killed. The epilog removes it, which its holder sees; a boot does as well.
 *
 *   {"job": "42", "state": "staging"}
 *   {"job": "42", "state": "done", "staged": "/var/cache/trainagent/jobs/42", "run": true, "say": ["..."], "artifacts": [...]}
 *
 * threads  any; blocks as long as its file system does
 * errors   E_INVALID: no job's number
 */
#ifndef AGENT_SLURM_TICKET_H
#define AGENT_SLURM_TICKET_H

#include "common/base/buf.h"

/* A new one, which no descriptor from before knows; locked by *fd and its copies in children. */
MUST_USE int ticket_new(const char *dir, const char *job, int *fd, struct err *e);
/* The last word. It lies in memory (tmpfs), so a full disk does not matter. */
MUST_USE int ticket_say(int fd, struct slice text, struct err *e);
/* It was removed, or another has its name. */
bool ticket_gone(int fd);
void ticket_remove(const char *dir, const char *job);
bool ticket_exists(const char *dir, const char *job);

/* 0: *text is what it says, which may be half of it while it is *held; E_NOTFOUND: there is none. Held by whom cannot be known, for all may read
 * it: a last word (verdict_is_done()) counts whatever *held says. */
MUST_USE int ticket_look(const char *dir, const char *job, bool *held, struct buf *text,
                         struct err *e);

#endif
