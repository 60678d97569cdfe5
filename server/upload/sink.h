/* sink.h - the interface for kinds of puts that read their body in their own way: sink.c calls it
 * in place of its own steps.
 *
 * owns     *out of open() belongs to the sink until close()
 * threads  pool threads: the calls of one body in order
 * errors   as upload.h
 */
#ifndef SERVER_UPLOAD_SINK_H
#define SERVER_UPLOAD_SINK_H

#include "server/upload/upload.h"

struct sink_ops {
    /* *out is NULL when the put is answered already, or failed. */
    int (*open)(struct uploads *u, const struct put *p, const struct upload_body *body, void **out,
                struct upload_reply *reply, struct err *e);
    int (*write)(void *arg, struct slice bytes, struct upload_reply *reply, struct err *e);
    /* The body is complete. close() follows, as always. */
    int (*finish)(void *arg, uint64_t now_unix_s, struct upload_reply *reply, struct err *e);
    void (*close)(void *arg);
};

extern const struct sink_ops append_sink; /* PUT_APPEND (append.h) */
extern const struct sink_ops part_sink;   /* PUT_PART (parts.h) */

#endif
