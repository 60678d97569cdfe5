/* exec_engine.h - the inside of the engine that runs the installed rsync program.
 *
 * The program keeps a working tree below state_dir, because only then does it fetch only
 * differences. When it has ended, the list is made by walking that tree, and a download reads a
 * file of it. An rsync that outlived a killed mirrord still holds the tree's lock, by the file
 * that is its stdin, so two never write to one tree.
 *
 * layout   <state_dir>/exec/<repo>/lock  tree/  tmp/
 * threads  the run's; walks and reads are jobs on the disk pool
 */
#ifndef SERVER_SYNC_EXEC_EXEC_ENGINE_H
#define SERVER_SYNC_EXEC_EXEC_ENGINE_H

#include <stdatomic.h>

#include "common/base/arena.h"
#include "common/base/list.h"
#include "common/os/child.h"
#include "server/sync/engine.h"
#include "server/sync/exec/said.h"
#include "server/sync/rsync/list.h"

struct reading; /* the walk in progress */

struct exec_engine {
    const struct engine_ops *ops;
    const struct engine_site *site;
    struct engine_events ev;
    void *arg;
    struct arena arena;
    char *home; /* <state_dir>/exec/<repo> */
    char *program;
    int lock, top; /* or -1 */
    struct event *soon;
    void (*news)(struct exec_engine *g);
    struct child *child;
    struct said said;
    uint64_t reported_ms;
    unsigned waits; /* for the lock */
    unsigned lines; /* of stderr */
    bool partial;
    struct list downloads;
    unsigned jobs;      /* on the disk pool */
    _Atomic bool close; /* the jobs may stop */
};

#endif
