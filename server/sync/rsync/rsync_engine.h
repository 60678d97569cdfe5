/* rsync_engine.h - the inside of the engine for rsync daemons: a link carries the bytes of a pull
 * machine, and downloads wait for their turn.
 *
 * threads  the run's
 */
#ifndef SERVER_SYNC_RSYNC_RSYNC_ENGINE_H
#define SERVER_SYNC_RSYNC_RSYNC_ENGINE_H

#include "common/base/list.h"
#include "server/sync/engine.h"
#include "server/sync/rsync/delta.h"
#include "server/sync/rsync/link.h"
#include "server/sync/rsync/pull.h"
#include "server/sync/rsync/rsyncurl.h"

enum { RSYNC_USER_MAX = 512 };

struct engine {
    const struct engine_ops *ops;
    struct engine_site site;
    struct engine_events ev;
    void *arg;
    struct rsync_url url;
    struct proxy proxy; /* on the way there, if there is one */
    bool proxied;
    struct slice password;
    char user[RSYNC_USER_MAX];
    struct pull *pull;
    struct link *link;
    struct list waiting;
    struct list in_flight;
    struct delta delta;
    struct event *kick; /* for events of ours that may not run inside a call */
    char *block;        /* of a basis */
    unsigned busy;
    bool closed; /* the caller closed the engine, and an event noticed it */
    bool listed, broken;
    enum {
        ENGINE_OPEN,
        ENGINE_FINISHING, /* no more downloads will come */
        ENGINE_FINISHED,  /* and the caller knows that all have been answered */
    } end;
    uint64_t copied_bytes; /* copied from bases since the loop last ran */
    bool resting;          /* until the loop has run */
    bool probing;
    struct buf cursor; /* compared by the probe */
    enum probe_answer probed;
    uint64_t left_out;
    struct err early; /* of list(), reported by kick */
};

#endif
