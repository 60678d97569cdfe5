#include "server/upload/multipart_upload.h"

#include <stdlib.h>

#include "common/hash/digest.h"

enum {
    MULTIPART_UPLOADS_MAX = 64
}; /* without users: a hasher has 32 bytes for each 8 MiB that it has seen */

/* --- finding; under the lock ------------------------------------------------------------------ */

static struct multipart_upload *multipart_upload_find(struct uploads *u, const char *id,
                                                      const struct digest *d)
{
    LIST_EACH (&u->multipart_uploads, it) {
        struct multipart_upload *j = LIST_ITEM(it, struct multipart_upload, node);
        if (memcmp(j->id, id, UPLOAD_ID) == 0 && digest_eq(&j->digest, d)) {
            return j;
        }
    }
    return NULL;
}

static void multipart_upload_free(struct uploads *u, struct multipart_upload *j)
{
    CHECK(j->users == 0 && j->in == NULL);
    list_remove(&j->node);
    u->multipart_uploads_count--;
    hasher_free(&j->hasher);
    free(j);
}

/* The one that nobody has used for longest. */
static void drop_oldest(struct uploads *u)
{
    for (struct list *it = u->multipart_uploads.prev; it != &u->multipart_uploads; it = it->prev) {
        struct multipart_upload *j = LIST_ITEM(it, struct multipart_upload, node);
        if (j->users == 0) {
            multipart_upload_free(u, j);
            return;
        }
    }
}

struct hasher *multipart_upload_hasher_take(struct multipart_upload *j)
{
    struct hasher *h = j->hasher;

    j->hasher = NULL;
    return h;
}

void multipart_upload_hasher_put(struct multipart_upload *j, struct hasher *h)
{
    hasher_free(&j->hasher);
    j->hasher = h;
}

static struct multipart_upload *multipart_upload_new(struct uploads *u, const char *id,
                                                     const struct digest *d)
{
    struct multipart_upload *j = NEW(struct multipart_upload);

    if (u->multipart_uploads_count >= MULTIPART_UPLOADS_MAX) {
        drop_oldest(u);
    }
    memcpy(j->id, id, UPLOAD_ID);
    j->digest = *d;
    list_push_front(&u->multipart_uploads, &j->node);
    u->multipart_uploads_count++;
    return j;
}

/* --- users ------------------------------------------------------------------------------------ */

int multipart_upload_enter(struct uploads *u, const char *id, const struct digest *d, bool close,
                           struct multipart_upload **out, struct err *e)
{
    struct multipart_upload *j;
    bool busy;

    lock_take(&u->lock);
    j = multipart_upload_find(u, id, d);
    busy = j != NULL && (j->closing || j->dead || (close && j->users != 0));
    if (!busy) {
        j = j != NULL ? j : multipart_upload_new(u, id, d);
        j->users++;
        j->closing = close;
        list_remove(&j->node);
        list_push_front(&u->multipart_uploads, &j->node);
    }
    lock_drop(&u->lock);
    *out = busy ? NULL : j;
    return busy ? err_set(e, E_BUSY, "another request is still working on this object") : 0;
}

void multipart_upload_leave(struct uploads *u, struct multipart_upload **jp)
{
    struct multipart_upload *j = *jp;
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
            multipart_upload_hasher_put(j, ingest_hasher_take(in));
        }
        if (dead) {
            multipart_upload_free(u, j);
        }
    }
    lock_drop(&u->lock);
    if (in != NULL && dead) {
        ingest_drop(&in);
    } else if (in != NULL) {
        ingest_park(&in); /* until this is done, stage_resume() returns E_BUSY to others */
    }
}

void multipart_upload_dead(struct uploads *u, struct multipart_upload *j)
{
    lock_take(&u->lock);
    j->dead = true;
    lock_drop(&u->lock);
}

bool multipart_uploads_used(struct uploads *u, const char *id)
{
    bool used = false;

    lock_take(&u->lock);
    LIST_EACH (&u->multipart_uploads, it) {
        const struct multipart_upload *j = LIST_ITEM(it, struct multipart_upload, node);
        used = used || (j->users != 0 && memcmp(j->id, id, UPLOAD_ID) == 0);
    }
    lock_drop(&u->lock);
    return used;
}

bool multipart_upload_opens(struct uploads *u, struct multipart_upload *j, int *rc)
{
    bool mine;

    lock_take(&u->lock);
    mine = j->in == NULL && !j->opening;
    *rc = j->in == NULL && j->opening ? E_BUSY : 0;
    j->opening = j->opening || mine;
    lock_drop(&u->lock);
    return mine;
}

void multipart_upload_opened(struct uploads *u, struct multipart_upload *j, struct ingest *in)
{
    lock_take(&u->lock);
    j->in = in;
    j->opening = false;
    lock_drop(&u->lock);
}

void multipart_uploads_forget(struct uploads *u)
{
    while (!list_empty(&u->multipart_uploads)) {
        multipart_upload_free(u,
                              LIST_ITEM(u->multipart_uploads.next, struct multipart_upload, node));
    }
}
