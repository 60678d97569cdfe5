#include "server/upload/joint.h"

#include <stdlib.h>

#include "common/hash/digest.h"
#include "server/store/blob.h"

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
    CHECK(j->users == 0 && j->stage == NULL);
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

static struct joint *joint_new(struct uploads *u, const char *id, const struct digest *d)
{
    struct joint *j = NEW(struct joint);

    if (u->joints_count >= JOINTS_MAX) {
        drop_oldest(u);
    }
    memcpy(j->id, id, UPLOAD_ID);
    j->digest = *d;
    j->hasher = hasher_new();
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
    struct stage *st = NULL;
    bool dead;

    *jp = NULL;
    if (j == NULL) {
        return;
    }
    lock_take(&u->lock);
    dead = j->dead;
    if (--j->users == 0) {
        st = j->stage;
        j->stage = NULL;
        j->closing = false;
        if (dead) {
            joint_free(u, j);
        }
    }
    lock_drop(&u->lock);
    if (st != NULL && dead) {
        stage_abort(&st);
    } else if (st != NULL) {
        stage_park(&st); /* who comes before this is done is told E_BUSY by stage_resume() */
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
    mine = j->stage == NULL && !j->opening;
    *rc = j->stage == NULL && j->opening ? E_BUSY : 0;
    j->opening = j->opening || mine;
    lock_drop(&u->lock);
    return mine;
}

void joint_opened(struct uploads *u, struct joint *j, struct stage *st)
{
    lock_take(&u->lock);
    j->stage = st;
    j->opening = false;
    lock_drop(&u->lock);
}

/* --- the digest --------------------------------------------------------------------------------------------------- */

struct hasher *joint_hash_take(struct uploads *u, struct joint *j, uint64_t at, unsigned *epoch)
{
    struct hasher *h = NULL;

    lock_take(&u->lock);
    if (!j->hashing && (at == UINT64_MAX || at == j->hashed)) {
        j->hashing = true;
        *epoch = j->epoch;
        h = j->hasher;
    }
    lock_drop(&u->lock);
    return h;
}

static void start_anew(struct joint *j)
{
    hasher_free(&j->hasher);
    j->hasher = hasher_new();
    j->hashed = 0;
}

void joint_hash_give(struct uploads *u, struct joint *j, struct hasher *h, unsigned epoch)
{
    lock_take(&u->lock);
    if (h != j->hasher) {
        hasher_free(&j->hasher);
        j->hasher = h;
    }
    j->hashed = hasher_count(h);
    j->hashing = false;
    if (epoch != j->epoch) {
        start_anew(j);
    }
    lock_drop(&u->lock);
}

void joint_hash_void(struct uploads *u, struct joint *j)
{
    lock_take(&u->lock);
    j->epoch++;
    if (!j->hashing) {
        start_anew(j);
    }
    lock_drop(&u->lock);
}

void joints_forget(struct uploads *u)
{
    while (!list_empty(&u->joints)) {
        joint_free(u, LIST_ITEM(u->joints.next, struct joint, node));
    }
}
