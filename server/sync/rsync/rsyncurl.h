/* rsyncurl.h - parses "rsync://[user@]host[:port]/module/path/" and rsyncs:// into parts. */
#ifndef SERVER_SYNC_RSYNC_RSYNCURL_H
#define SERVER_SYNC_RSYNC_RSYNCURL_H

#include "common/base/err.h"
#include "common/base/slice.h"

enum { RSYNC_PORT = 873, RSYNCS_PORT = 874 };

struct rsync_url {
    bool tls;
    struct slice user; /* empty: none */
    struct slice host; /* an IPv6 address without its brackets */
    uint16_t port;
    struct slice module;
    struct slice path; /* below the module: empty, or ends in '/' */
};

/* The parts borrow from url, which must end in '/'. */
MUST_USE int rsync_url_parse(struct slice url, struct rsync_url *out, struct err *e);

#endif
