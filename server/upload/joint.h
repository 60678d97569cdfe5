/* joint.h - an object that comes in parts, as its requests share it: the one open ingest, and how far its digest has come.
 *
 * A joint is found by offer and digest. It has an ingest while it has users; without any it is remembered for its hasher, the
 * last ones used, in bounds: forgotten, the digest begins at the front again.
 *
 * owns     users are counted: joint_enter/leave
 * threads  any; locks as live.h
 */
#ifndef SERVER_UPLOAD_JOINT_H
#define SERVER_UPLOAD_JOINT_H

#include "server/upload/live.h"
#include "server/upload/session.h"

struct joint {
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
MUST_USE int joint_enter(struct uploads *u, const char *id, const struct digest *d, bool close,
                         struct joint **out, struct err *e);
void joint_leave(struct uploads *u, struct joint **jp); /* NULL is fine */
void joint_dead(struct uploads *u, struct joint *j);    /* its rows are gone */
bool joints_used(struct uploads *u, const char *id);
/* True: opening the ingest is up to the caller, who then calls joint_opened(), with NULL when it could not. False with E_BUSY in
 * *rc: somebody else is at it; with 0: it is open. */
MUST_USE bool joint_opens(struct uploads *u, struct joint *j, int *rc);
void joint_opened(struct uploads *u, struct joint *j, struct ingest *in);

/* For who opens it, or is its only user. */
struct hasher *joint_hasher_take(struct joint *j); /* NULL: none */
void joint_hasher_put(struct joint *j, struct hasher *h);

void joints_forget(struct uploads *u); /* nobody uses any */

#endif
