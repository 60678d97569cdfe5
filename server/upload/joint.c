#include "server/upload/joint.h"

#include <stdlib.h>

#include "common/hash/digest.h"

enum { JOINTS_MAX = 64 }; /* without users: a hasher has 32 bytes for each 8 MiB that it has seen */

/* --- finding; under the lock -------------------------------------------------------------------------------------- */

static struct joint *joint_find(struct uploads *u, const char *id, const struct digest *d)
{
    LIST_EACH (&u->joints, it) {
        struct joint *j = LIST_ITEM(it, struct joint, node);
        if (memcmp(j->id, id, UPLOAD_ID) == 0 && digest_eq(&j->digest, d)) {
            return j;
        }
    }
    return NULL;
}

static void joint_free(struct uploads *u, struct joint *j)
{
    CHECK(j->users == 0 && j->in == NULL);
    list_remove(&j->node);
    u->joints_count--;
    hasher_free(&j->hasher);
    free(j);
}

/* The one that nobody has used for longest. */
static void drop_oldest(struct uploads *u)
{
    for (struct list *it = u->joints.prev; it != &u->joints; it = it->prev) {
        struct joint *j = LIST_ITEM(it, struct joint, node);
        if (j->users == 0) {
            joint_free(u, j);
            return;
        }
    }
}

struct hasher *joint_hasher_take(struct joint *j)
{
    struct hasher *h = j->hasher;

    j->hasher = NULL;
    return h;
}

void joint_hasher_put(struct joint *j, struct hasher *h)
{
    hasher_free(&j->hasher);
    j->hasher = h;
}

static struct joint *joint_new(struct uploads *u, const char *id, const struct digest *d)
{
    struct joint *j = NEW(struct joint);

    if (u->joints_count >= JOINTS_MAX) {
        drop_oldest(u);
    }
    memcpy(j->id, id, UPLOAD_ID);
    j->digest = *d;
    list_push_front(&u->joints, &j->node);
    u->joints_count++;
    return j;
}

/* --- users -------------------------------------------------------------------------------------------------------- */

int joint_enter(struct uploads *u, const char *id, const struct digest *d, bool close,
                struct joint **out, struct err *e)
{
    struct joint *j;
    bool busy;

    lock_take(&u->lock);
    j = joint_find(u, id, d);
    busy = j != NULL && (j->closing || j->dead || (close && j->users != 0));
    if (!busy) {
        j = j != NULL ? j : joint_new(u, id, d);
        j->users++;
        j->closing = close;
        list_remove(&j->node);
        list_push_front(&u->joints, &j->node);
    }
    lock_drop(&u->lock);
    *out = busy ? NULL : j;
    return busy ? err_set(e, E_BUSY, "another request is at this object") : 0;
}

void joint_leave(struct uploads *u, struct joint **jp)
{
    struct joint *j = *jp;
    struct ingest *in = NULL;
    bool dead;

    *jp = NULL;
    if (j == NULL) {
        return;
    }
    lock_take(&u->lock);
    dead = j->dead;
    if (--j->users == 0) {
        in = j->in;
        j->in = NULL;
        j->closing = false;
        if (in != NULL) {
            joint_hasher_put(j, ingest_hasher_take(in));
        }
        if (dead) {
            joint_free(u, j);
        }
    }
    lock_drop(&u->lock);
    if (in != NULL && dead) {
        ingest_drop(&in);
    } else if (in != NULL) {
        ingest_park(&in); /* who comes before this is done is told E_BUSY by stage_resume() */
    }
}

void joint_dead(struct uploads *u, struct joint *j)
{
    lock_take(&u->lock);
    j->dead = true;
    lock_drop(&u->lock);
}

bool joints_used(struct uploads *u, const char *id)
{
    bool used = false;

    lock_take(&u->lock);
    LIST_EACH (&u->joints, it) {
        const struct joint *j = LIST_ITEM(it, struct joint, node);
        used = used || (j->users != 0 && memcmp(j->id, id, UPLOAD_ID) == 0);
    }
    lock_drop(&u->lock);
    return used;
}

bool joint_opens(struct uploads *u, struct joint *j, int *rc)
{
    bool mine;

    lock_take(&u->lock);
    mine = j->in == NULL && !j->opening;
    *rc = j->in == NULL && j->opening ? E_BUSY : 0;
    j->opening = j->opening || mine;
    lock_drop(&u->lock);
    return mine;
}

void joint_opened(struct uploads *u, struct joint *j, struct ingest *in)
{
    lock_take(&u->lock);
    j->in = in;
    j->opening = false;
    lock_drop(&u->lock);
}

void joints_forget(struct uploads *u)
{
    while (!list_empty(&u->joints)) {
        joint_free(u, LIST_ITEM(u->joints.next, struct joint, node));
    }
}
