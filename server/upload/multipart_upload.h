/* multipart_upload.h - an object that comes in parts, as its requests share it: the one open
 * ingest, and how far its digest has come.
 *
 * A multipart upload is found by upload grant and digest. It has an ingest while it has users;
 * without any it is remembered for its hasher, the last ones used, in bounds: forgotten, the digest
 * begins at the front again.
 *
 * owns     users are counted: multipart_upload_enter/leave
 * threads  any; locks as live.h
 */
#ifndef SERVER_UPLOAD_MULTIPART_UPLOAD_H
#define SERVER_UPLOAD_MULTIPART_UPLOAD_H

#include "server/upload/live.h"
#include "server/upload/session.h"

struct multipart_upload {
    struct list node;
    char id[UPLOAD_ID + 1];
    struct digest digest;
    unsigned users;
    bool closing;          /* it has one user, and gets no other */
    bool dead;             /* its rows are gone: the stage goes with the last user */
    bool opening;          /* somebody opens the ingest */
    struct ingest *in;     /* NULL: not open */
    struct hasher *hasher; /* its, while it is not; NULL: none */
};

/* E_BUSY: it is being closed, or (to close it) has users. */
MUST_USE int multipart_upload_enter(struct uploads *u, const char *id, const struct digest *d,
                                    bool close, struct multipart_upload **out, struct err *e);
void multipart_upload_leave(struct uploads *u, struct multipart_upload **jp); /* NULL is fine */
void multipart_upload_dead(struct uploads *u, struct multipart_upload *j); /* its rows are gone */
bool multipart_uploads_used(struct uploads *u, const char *id);
/* True: opening the ingest is up to the caller, who then calls multipart_upload_opened(), with NULL
 * when it could not. False with E_BUSY in *rc: somebody else is at it; with 0: it is open. */
MUST_USE bool multipart_upload_opens(struct uploads *u, struct multipart_upload *j, int *rc);
void multipart_upload_opened(struct uploads *u, struct multipart_upload *j, struct ingest *in);

/* For who opens it, or is its only user. */
struct hasher *multipart_upload_hasher_take(struct multipart_upload *j); /* NULL: none */
void multipart_upload_hasher_put(struct multipart_upload *j, struct hasher *h);

void multipart_uploads_forget(struct uploads *u); /* nobody uses any */

#endif
