/* staging.h - brings what a job asked for, in the detached worker: rights dropped, pulled, pinned, placed, told.
 *
 * becomes the node's user -> waits for an earlier worker of the same job -> record (agent/shelf/pins.h) -> for each wish: pull, pin, place
 * in jobs/<job>/ -> last word on the ticket. One that cannot be had holds up no other. When the ticket goes (the job has ended) it stops,
 * and takes away what it laid out; what it fetched stays on the shelf.
 *
 * Where a wish goes below the folder: its path as it was written, a Hub's repository as HF_HOME has it (hub/models--owner--name).
 *
 * The node's own list is fetched with the node's token; what a comment names without any, for anybody may write one.
 */
#ifndef AGENT_SLURM_STAGING_H
#define AGENT_SLURM_STAGING_H

#include "agent/node.h"
#include "agent/slurm/comment.h"
#include "agent/slurm/outcome.h"

struct shelf;

struct staging {
    const struct node *node;
    const char *conf_file; /* where it was read from; NULL: the usual one */
    const char *job;
    int ticket;
    struct wishes site;
    struct wishes comment;
    const struct err *why; /* of staging_refuse() */
};

/* Did this job ask for something that it cannot do without? The node's own list is no wish of the job's. */
bool staging_required(const struct staging *s);
/* What could not even begin: the last word on the ticket. */
void staging_give_up(const struct staging *s, enum outcome o, const struct err *why);
/* The same on the shelf (agent/shelf/pins.h), as the node's user, where there is no ticket; for detach(). */
void staging_refuse(void *staging);
/* For detach(): never fails, the ticket and the log say how it went. */
void staging_run(void *staging);
/* Sends the log to the journal, as lines of this job, from now on. */
void staging_log_to_journal(const char *job);
/* Takes away what jobs had that are gone: no ticket, and no news for an hour. Does nothing where the shelf is not the node's, or the folder of
 * tickets is not there to be asked. */
MUST_USE int staging_sweep(struct shelf *shelf, const struct node *n, size_t *dropped,
                           struct err *e);
/* Takes away what a job has, as the node's user; for detach(). */
void staging_clear(void *staging);

#endif
