/* setup.h - a synced repo as the configuration has it: what a run needs of it, kept until the run has ended.
 *
 * owns     counted, under the lock of sync.c; holds the configuration that it was made from
 */
#ifndef SERVER_SYNC_SETUP_H
#define SERVER_SYNC_SETUP_H

#include "server/sync/cron.h"
#include "server/sync/sync.h"

struct setup {
    unsigned holds; /* under sync.lock */
    struct sync_repo_settings of;
    const struct sync_conf *conf;
    struct run_upstream *upstream; /* job.upstreams of them */
    struct run_job job;
    struct cron cron;
    bool scheduled;
};

/* Takes what r holds, also when it fails. */
MUST_USE int setup_new(const struct sync_repo_settings *r, struct setup **out, struct err *e);
void setup_release(struct setup **sp); /* NULL is fine */

#endif
