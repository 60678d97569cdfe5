/* multipart_upload.h - the state that the requests for one object in parts share: the one open
 * ingest, and how far its digest is.
 *
 * It is found by upload grant and digest. It has an ingest while it has users. Without users it is
 * remembered for its hasher, within bounds and the most recently used first; once it is forgotten,
 * the digest starts at the front again.
 *
 * owns     users are counted: multipart_upload_enter(), multipart_upload_leave()
 * threads  any; locks as live.h
 * errors   E_BUSY
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
    bool closing;          /* it has one user and accepts no other */
    bool dead;             /* its rows are gone: the stage is removed with the last user */
    bool opening;          /* a user is opening the ingest */
    struct ingest *in;     /* NULL: not open */
    struct hasher *hasher; /* while no user has it; NULL: there is none */
};

/* E_BUSY: it is being closed, or (to close it) has users. */
MUST_USE int multipart_upload_enter(struct uploads *u, const char *id, const struct digest *d,
                                    bool close, struct multipart_upload **out, struct err *e);
void multipart_upload_leave(struct uploads *u, struct multipart_upload **jp); /* NULL is fine */
void multipart_upload_dead(struct uploads *u, struct multipart_upload *j); /* its rows are gone */
bool multipart_uploads_used(struct uploads *u, const char *id);
/* True: the caller has to open the ingest and then calls multipart_upload_opened(), with NULL if
 * that failed. False with E_BUSY in *rc: another user is opening it; with 0: it is open. */
MUST_USE bool multipart_upload_opens(struct uploads *u, struct multipart_upload *j, int *rc);
void multipart_upload_opened(struct uploads *u, struct multipart_upload *j, struct ingest *in);

/* Only for the user that opens it, or is the only one. */
struct hasher *multipart_upload_hasher_take(struct multipart_upload *j); /* NULL: none */
void multipart_upload_hasher_put(struct multipart_upload *j, struct hasher *h);

void multipart_uploads_forget(struct uploads *u); /* at the end: there are no users */

#endif
