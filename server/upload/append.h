/* append.h - a loose object whose bytes come one behind the other, in as many requests as it takes,
 * and whose digest is told at its end: layers of container images are pushed so.
 *
 * Each is an upload grant (upload_grant.h) with one file row: the stage and what is durable of it,
 * then the digest. So it outlives a restart, and goes with the upload grant when that expires.
 * SHA-256 runs along in memory (multipart_upload.h); what it has missed, after a restart say, is
 * taken from the file at the end, as is a SHA-512 where the client names it by that. Once it is
 * whole the tree remembers which upload grant has it (upload_grant.h), so that whoever may publish
 * there finds it before a commit names it. A wrong digest ends the upload.
 *
 * owns     an append takes its place among the writers (live.h) until its sink is closed
 * threads  pool threads: the calls of one upload in order
 * errors   as upload.h. 416: what comes does not go on where it stands, the reply has the offset;
 *          422: not the digest's bytes; 404: it was never begun here, or it has ended; E_BUSY:
 *          another request writes it, and was asked to yield
 */
#ifndef SERVER_UPLOAD_APPEND_H
#define SERVER_UPLOAD_APPEND_H

#include "server/upload/live.h"
#include "server/upload/session.h"

/* What needs no body: its beginning (PUT_APPEND_OPEN), which may find that it is here; how far it
 * is (PUT_APPEND_STATUS); and that no more will come (PUT_APPEND_DROP). The bytes come by
 * append_sink (sink.h). */
MUST_USE int append_run(struct uploads *u, const struct put *p, uint64_t now_unix_s,
                        struct upload_reply *out, struct err *e);

#endif
