/* sink.h - how a body comes in whose kind of put has a way of its own: sink.c calls it in place of
 * its own steps.
 *
 * threads  pool threads: the calls of one body in order
 * errors   as upload.h
 */
#ifndef SERVER_UPLOAD_SINK_H
#define SERVER_UPLOAD_SINK_H

#include "server/upload/upload.h"

struct sink_ops {
    /* *out is NULL when it is answered already, or failed. */
    int (*open)(struct uploads *u, const struct put *p, const struct upload_body *body, void **out,
                struct upload_reply *reply, struct err *e);
    int (*write)(void *arg, struct slice bytes, struct upload_reply *reply, struct err *e);
    /* The body is whole. It is to be closed, here as ever. */
    int (*finish)(void *arg, uint64_t now_unix_s, struct upload_reply *reply, struct err *e);
    void (*close)(void *arg);
};

extern const struct sink_ops append_sink; /* PUT_APPEND (append.h) */
extern const struct sink_ops part_sink;   /* PUT_PART (parts.h) */

#endif
