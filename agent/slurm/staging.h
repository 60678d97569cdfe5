/* staging.h - brings what a job asked for, in the detached worker: rights dropped, pulled, pinned,
 * placed, told.
 *
 * becomes the node's user -> waits for an earlier worker of the same job -> record
 * (agent/cache/pins.h) -> for each wish: pull, pin, place in jobs/<job>/ -> last word on the
 * ticket. One that cannot be had holds up no other. When the ticket goes (the job has ended) it
 * stops, and takes away what it laid out; what it fetched stays on the local cache.
 *
 * Where a wish goes below the folder: its path as it was written, a Hub's repository as HF_HOME has
 * it (hub/models--owner--name).
 *
 * The node's own list is fetched with the node's token; what a comment names without any, for
 * anybody may write one.
 */
#ifndef AGENT_SLURM_STAGING_H
#define AGENT_SLURM_STAGING_H

#include "agent/node_conf.h"
#include "agent/slurm/comment.h"
#include "agent/slurm/outcome.h"
#include "common/base/buf.h"

struct local_cache;

struct staging {
    const struct node_conf *node;
    const char *conf_file; /* where it was read from; NULL: the usual one */
    const char *job;
    int ticket;
    struct wishes site;
    struct wishes comment;
    const struct err *why; /* of staging_refuse() */
};

/* Did this job ask for something that it cannot do without? The node's own list is no wish of the
 * job's. */
bool staging_required(const struct staging *s);
/* What could not even begin: the last word on the ticket. */
void staging_give_up(const struct staging *s, enum outcome o, const struct err *why);
/* The same on the local cache (agent/cache/pins.h), as the node's user, where there is no ticket;
 * for detach(). */
void staging_refuse(void *staging);
/* For detach(): never fails, the ticket and the log say how it went. */
void staging_run(void *staging);
/* Sends the log to the journal, as lines of this job, from now on. */
void staging_log_to_journal(const char *job);
/* Takes away what jobs had that are gone: no ticket, and no news for an hour. Does nothing where
 * the local cache is not the node's, or the folder of tickets is not there to be asked. */
MUST_USE int staging_sweep(struct local_cache *local_cache, const struct node_conf *n,
                           size_t *dropped, struct err *e);
/* Takes away what a job has, as the node's user; for detach(). */
void staging_clear(void *staging);

/* --- the ticket: one small file for each job whose files are brought: what its tasks go by.
 * /run/trainagent/<job>
 *
 * The prolog makes it, as root, before anything else; whoever brings the files holds a lock on it
 * as long as he lives, and writes into it at the end, through the descriptor that he was given, how
 * it went. So a reader knows three things without asking anybody: there is none (nothing was asked
 * for), somebody still holds it, or nobody does and it says what became of it. One that nobody
 * holds and that does not say is of somebody who was killed. The epilog removes it, which its
 * holder sees; a boot does as well.
 *
 *   {"job": "42", "state": "staging"}
 *   {"job": "42", "state": "done", "staged": "/var/cache/trainagent/jobs/42", "run": true, "say": ["..."], "artifacts": [...]}
 *
 * threads  any; blocks as long as its file system does
 * errors   E_INVALID: no job's number */

/* A new one, which no descriptor from before knows; locked by *fd and its copies in children. */
MUST_USE int ticket_new(const char *dir, const char *job, int *fd, struct err *e);
/* The last word. It lies in memory (tmpfs), so a full disk does not matter. */
MUST_USE int ticket_say(int fd, struct slice text, struct err *e);
/* It was removed, or another has its name. */
bool ticket_gone(int fd);
void ticket_remove(const char *dir, const char *job);
bool ticket_exists(const char *dir, const char *job);

/* 0: *text is what it says, which may be half of it while it is *held; E_NOTFOUND: there is none.
 * Held by whom cannot be known, for all may read it: a last word (verdict_is_done()) counts
 * whatever *held says. */
MUST_USE int ticket_look(const char *dir, const char *job, bool *held, struct buf *text,
                         struct err *e);

/* --- the verdict: how it went with all that a job asked for: may its tasks start, and what are
 * they told?
 *
 * The worker makes one and writes it on the ticket; each task's prolog reads it there. Texts of
 * strangers (a comment, a mirror) become lines of printable bytes: nothing in them can be a line of
 * its own, for Slurm takes "export NAME=value" of a task's prolog.
 *
 * owns     verdict_fini(); the policy outlives it
 * threads  one at a time */

struct verdict {
    const struct node_slurm *policy;
    bool fails;     /* the tasks do not start */
    struct buf say; /* JSON texts */
    struct buf artifacts;
};

void verdict_init(struct verdict *v, const struct node_slurm *policy);
/* from NULL: all of them. */
void verdict_add(struct verdict *v, const char *from, enum outcome o, bool optional,
                 uint64_t size_bytes, uint64_t fetched_bytes, const char *why);
MUST_USE int verdict_say(const struct verdict *v, int ticket, const char *job, const char *staged,
                         struct err *e);
void verdict_fini(struct verdict *v);

/* As a task's prolog reads it. */
struct verdict_read {
    struct arena arena;
    const char *staged; /* NULL: no folder */
    const char *const *say;
    size_t nsay;
    bool done; /* false: whoever was to bring it was killed */
    bool run;
};
void verdict_read(struct slice text, struct verdict_read *out);
void verdict_read_fini(struct verdict_read *v);
/* Is it the last word? Half of one is none. */
bool verdict_is_done(struct slice text);
/* Printable, on one line. */
void verdict_tame(char *text);

#endif
