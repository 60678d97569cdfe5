/* deps.h - what server/admin uses of a running mirrord: the parts that it shows and controls, and
 * the calls that it makes upwards.
 *
 * threads  filled in before the first request, and not changed after
 */
#ifndef SERVER_ADMIN_DEPS_H
#define SERVER_ADMIN_DEPS_H

#include "server/cluster/cluster.h"
#include "server/gate/gate.h"
#include "server/hub/deps.h"
#include "server/http/server.h"
#include "server/request/serve.h"
#include "server/request/traffic.h"

struct modules;
struct prefetches;
struct sync;

struct control_ops { /* needs the whole daemon; any thread but a loop */
    /* The old settings stay if it fails. */
    int (*reload)(void *arg, struct reload_news *news, struct err *e);
    /* Would a reload with this configuration be refused? Changes nothing. */
    int (*try)(void *arg, const struct conf *c, struct err *e);
    void *arg;
};

struct admin_deps {
    const char *conf_path;
    struct store *store;
    struct cluster *cluster; /* NULL: this mirror stands alone */
    struct cache *cache;
    struct pool *disk, *readers;
    struct gate *gate;
    struct access_log *access;
    struct http_server *http;
    struct serve *serve;
    struct traffic *traffic;
    struct peers *peers;
    struct repos *repos;
    struct lifecycle *lifecycle;
    struct modules *modules;
    struct sync *sync;
    struct prefetches *prefetches;
    const struct hub_deps *hub;
    _Atomic bool *collecting; /* one gc_run() at a time */
    struct control_ops ops;
};

#endif
