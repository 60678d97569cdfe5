/* append.h - uploads of a loose object whose bytes come in order, in any number of requests, and
 * whose digest is only named at the end. Layers of container images are pushed this way.
 *
 * Each append is an upload grant (upload_grant.h) with one file row: the stage and its durable
 * bytes, then the digest. So it survives a restart and ends with the upload grant when that
 * expires. SHA-256 is computed in memory as bytes come (multipart_upload.h). What it has missed,
 * for example after a restart, is read from the file at the end; so is a SHA-512, if the client
 * names the object by one. Once the object is complete, the tree remembers which upload grant has
 * it (upload_grant.h), so that a client that may publish there finds it before a commit names it. A
 * wrong digest ends the upload.
 *
 * owns     an append is among the writers (live.h) until its sink is closed
 * threads  pool threads: the calls of one upload in order
 * errors   as upload.h. 416: the bytes do not continue at the present offset, which the reply has;
 *          422: the digest does not match; 404: it was never begun here, or has ended; E_BUSY:
 *          another request writes it and was asked to yield
 */
#ifndef SERVER_UPLOAD_APPEND_H
#define SERVER_UPLOAD_APPEND_H

#include "server/upload/live.h"
#include "server/upload/session.h"

/* The kinds without a body: begin (PUT_APPEND_OPEN), which may find that the object is here; get
 * the offset (PUT_APPEND_STATUS); give up (PUT_APPEND_DROP). The bytes come by append_sink
 * (sink.h). */
MUST_USE int append_run(struct uploads *u, const struct put *p, uint64_t now_unix_s,
                        struct upload_reply *out, struct err *e);

#endif
