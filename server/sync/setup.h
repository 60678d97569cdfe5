/* setup.h - the settings of a synced repo, copied out of the configuration: a run keeps those it began with.
 *
 * owns     counted, under the lock of sync.c
 */
#ifndef SERVER_SYNC_SETUP_H
#define SERVER_SYNC_SETUP_H

#include "common/base/arena.h"
#include "server/sync/cron.h"
#include "server/sync/sync.h"

struct setup {      /* the settings of a repo, counted: a run keeps those it began with */
    unsigned holds; /* under sync.lock */
    struct arena arena;
    struct sync_conf conf;
    struct run_job job;
    struct cron cron;
    bool scheduled;
};

MUST_USE int setup_new(const struct sync_repo_settings *r, struct setup **out, struct err *e);
void setup_release(struct setup **sp); /* NULL is fine */

#endif
