/* staging.h - downloads what a job requested, in the detached worker: drops rights, pulls, pins,
 * places, reports.
 *
 *   becomes the node's user -> waits for an earlier worker of the same job -> record
 *   (agent/cache/pins.h) -> for each wish: pull, pin, place in jobs/<job>/ -> result on the ticket
 *
 * A wish that fails does not stop the others. When the ticket is removed (the job has ended), the
 * worker stops and removes what it placed; fetched files stay in the local cache.
 *
 * The place of a wish below the folder is its path as written, for a Hub repository the place in
 * HF_HOME (hub/models--owner--name).
 *
 * The node's own list is fetched with the node's token; what a comment names is fetched without a
 * token, because anybody may write a comment.
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
    const char *conf_file; /* the node's file; NULL: the default one */
    const char *job;
    int ticket;
    struct wishes site;
    struct wishes comment;
    const struct err *why; /* of staging_refuse() */
};

/* Did this job request something that it cannot run without? The node's own list does not count. */
bool staging_required(const struct staging *s);
/* Nothing could begin: writes the result on the ticket. */
void staging_give_up(const struct staging *s, enum outcome o, const struct err *why);
/* The same in the local cache (agent/cache/pins.h), as the node's user, if there is no ticket;
 * for detach(). */
void staging_refuse(void *staging);
/* For detach(): never fails; the ticket and the log have the result. */
void staging_run(void *staging);
/* Sends the log to the journal, as lines of this job, from now on. */
void staging_log_to_journal(const char *job);
/* Removes what ended jobs had: those without a ticket, and with no change for an hour. Does
 * nothing if the local cache is not the node's, or if the folder of tickets does not exist. */
MUST_USE int staging_sweep(struct local_cache *local_cache, const struct node_conf *n,
                           size_t *dropped, struct err *e);
/* Removes what a job has, as the node's user; for detach(). */
void staging_clear(void *staging);

/* --- the ticket: a small file for each job that requested files, by which its tasks learn the
 * result. /run/trainagent/<job>
 *
 * The prolog creates it first, as root. The worker holds a lock on it as long as it lives, and
 * writes the result into it at the end, through the descriptor that it was given. So a reader can
 * distinguish without any request: there is no ticket (nothing was requested), it is locked (in
 * progress), or it is not locked and has the result. An unlocked one without a result belongs to
 * a worker that was killed. The epilog removes it, which the worker sees; a boot removes it as
 * well.
 *
 *   {"job": "42", "state": "staging"}
 *   {"job": "42", "state": "done", "staged": "/var/cache/trainagent/jobs/42", "run": true,
 *    "say": ["..."], "artifacts": [...]}
 *
 * threads  any; blocks as long as its file system does
 * errors   E_INVALID: not a job's number */

/* A new one, which no earlier descriptor refers to; locked by *fd and its copies in children. */
MUST_USE int ticket_new(const char *dir, const char *job, int *fd, struct err *e);
/* Writes the result. The file is in memory (tmpfs), so a full disk does not matter. */
MUST_USE int ticket_say(int fd, struct slice text, struct err *e);
/* It was removed, or its name is another file's. */
bool ticket_gone(int fd);
void ticket_remove(const char *dir, const char *job);
bool ticket_exists(const char *dir, const char *job);

/* 0: *text is its content, which may be incomplete while it is *held; E_NOTFOUND: none. The lock
 * proves little, because everybody may read the file and so lock it: a complete result
 * (verdict_is_done()) counts whatever *held says. */
MUST_USE int ticket_look(const char *dir, const char *job, bool *held, struct buf *text,
                         struct err *e);

/* --- the verdict: the result of all that a job requested: may its tasks start, and what do they
 * get to read?
 *
 * The worker makes one and writes it on the ticket; each task's prolog reads it there. Texts from
 * strangers (a comment, a mirror) become single lines of printable bytes: nothing in them can
 * start a line, because Slurm interprets "export NAME=value" in the output of a task's prolog.
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
    bool done; /* false: the worker was killed */
    bool run;
};
void verdict_read(struct slice text, struct verdict_read *out);
void verdict_read_fini(struct verdict_read *v);
/* Is it a complete result? */
bool verdict_is_done(struct slice text);
/* Makes it printable, on one line. */
void verdict_tame(char *text);

#endif
