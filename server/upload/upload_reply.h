/* upload_reply.h - words the answers to puts: refusals, the state of a file, the resulting tree.
 *
 * owns     nothing: it fills the caller's struct upload_reply
 * threads  any
 */
#ifndef SERVER_UPLOAD_UPLOAD_REPLY_H
#define SERVER_UPLOAD_UPLOAD_REPLY_H

#include "server/upload/session.h"

/* A status with {"error": "..."}. */
void upload_refuse(struct upload_reply *out, int status, const char *fmt, ...) PRINTF_LIKE(3, 4);
/* 404: it was never begun here, or it has ended. */
void upload_refuse_gone(struct upload_reply *out);
/* A full disk is reported to the client: 507, and 0 is returned. Any other error is ours and is
 * returned as rc. */
int upload_trouble(struct upload_reply *out, int rc, struct err *e);
/* How much of a file is present, in the body and as offset. */
void upload_reply_file(struct upload_reply *out, int status, struct slice path,
                       const struct session_file *f);
/* {"root", "version", "entries"} with that status. */
void upload_reply_tree(struct upload_reply *out, int status, const struct snap *sn);

#endif
