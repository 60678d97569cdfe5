/* joint.h - an object that comes in parts, as its requests share it: the one open stage, and how far its digest has come.
 *
 * A joint is found by offer and digest. It has a stage while it has users; without any it is remembered for its hasher, the
 * last ones used, in bounds: forgotten, the digest begins at the front again.
 *
 * The hasher has one owner at a time, who took it with joint_hash_take() and gives it back moved on, or as it was. When bytes
 * that it may have seen turn out void (joint_hash_void), whatever its owner gives back is dropped.
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
    bool closing;        /* it has one user, and gets no other */
    bool dead;           /* its rows are gone: the stage goes with the last user */
    bool opening;        /* somebody opens the stage */
    struct stage *stage; /* NULL: not open */
    struct hasher *hasher;
    uint64_t hashed; /* bytes from the front that the hasher has seen */
    bool hashing;
    unsigned epoch;
};

/* E_BUSY: it is being closed, or (to close it) has users. */
MUST_USE int joint_enter(struct uploads *u, const char *id, const struct digest *d, bool close,
                         struct joint **out, struct err *e);
void joint_leave(struct uploads *u, struct joint **jp); /* NULL is fine */
void joint_dead(struct uploads *u, struct joint *j);    /* its rows are gone */
bool joints_used(struct uploads *u, const char *id);
/* True: opening the stage is up to the caller, who then calls joint_opened(), with NULL when it could not. False with E_BUSY in
 * *rc: somebody else is at it; with 0: it is open. */
MUST_USE bool joint_opens(struct uploads *u, struct joint *j, int *rc);
void joint_opened(struct uploads *u, struct joint *j, struct stage *st);

/* The hasher, when nobody has it and it stands at `at` (UINT64_MAX: anywhere); else NULL. */
struct hasher *joint_hash_take(struct uploads *u, struct joint *j, uint64_t at, unsigned *epoch);
void joint_hash_give(struct uploads *u, struct joint *j, struct hasher *h, unsigned epoch);
void joint_hash_void(struct uploads *u, struct joint *j);

void joints_forget(struct uploads *u); /* nobody uses any */

#endif
