/* publisher.h - one publish under way: what publish.c (the upload, from begin to commit) and send.c (its files) share.
 *
 * threads  one; its loop runs in turns: while questions are asked, then while files are sent
 */
#ifndef AGENT_PUBLISH_PUBLISHER_H
#define AGENT_PUBLISH_PUBLISHER_H

#include <event2/event.h>

#include "agent/publish/files.h"
#include "agent/publish/memo.h"
#include "agent/publish/publish.h"
#include "agent/pull/ask.h"
#include "common/codec/progress.h"

struct lane;

struct publisher {
    const struct agent *agent;
    struct event_base *base;
    struct xfer_loop *xfers;
    struct event *tick;
    struct event *stop[2];
    struct arena arena;
    struct publish_files files;
    struct slice to;       /* URL of the tree */
    struct slice location; /* of the upload */
    struct memo *memo;     /* outlives this process */
    bool resumed;          /* files may be there already, whole or in part */
    struct digest head;    /* the tree's root, of head_read() */
    bool
        over_head; /* it has nothing but files of these names: the commit lays the others over it */
    bool same;     /* it is these files */
    bool committed; /* by an earlier process that did not hear the answer */
    size_t next;
    unsigned running;
    struct lane *lanes;
    struct progress *bar;
    uint64_t done_bytes;
    struct ask *ask;
    int rc;
    struct err why;
};

/* The first failure stands, and ends whatever the loop runs. */
void publisher_fail(struct publisher *p, int rc, const struct err *why);

/* What the listing of the tree says that need not be sent; when that is all, *out is what is published. */
void head_read(struct publisher *p, struct slice listing, struct publish_result *out);
/* All is to be sent, and to be the whole tree. */
void head_forget(struct publisher *p);

/* Sends every file that the mirror does not have whole; goes on in files of which it has a part. */
MUST_USE int send_files(struct publisher *p);
uint64_t send_done_bytes(const struct publisher *p); /* for the progress bar */

#endif
