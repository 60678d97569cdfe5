#include "server/store/live.h"

#include <stdlib.h>
#include <uthash.h>

#include "common/base/log.h"
#include "server/store/blob.h"
#include "server/store/joint.h"
#include "server/store/session.h"

struct live {
    UT_hash_handle hh;
    char id[UPLOAD_ID + 1];
    size_t files;
    bool committing;
};

static struct live *live_find(struct uploads *u, const char *id)
{
    struct live *l;

    HASH_FIND(hh, u->live, id, UPLOAD_ID, l);
    return l;
}

bool live_add(struct uploads *u, const char *id)
{
    struct live *l = NEW(struct live);
    bool room;

    memcpy(l->id, id, UPLOAD_ID);
    lock_take(&u->lock);
    room = HASH_COUNT(u->live) < SESSIONS_MAX;
    if (room) {
        HASH_ADD(hh, u->live, id, UPLOAD_ID, l);
    }
    lock_drop(&u->lock);
    if (!room) {
        free(l);
    }
    return room;
}

void live_remove(struct uploads *u, const char *id)
{
    struct live *l;

    lock_take(&u->lock);
    l = live_find(u, id);
    if (l != NULL) {
        HASH_DELETE(hh, u->live, l);
    }
    lock_drop(&u->lock);
    free(l);
}

/* path.p == NULL: any */
static struct writer *writer_of(struct uploads *u, const char *id, struct slice path)
{
    LIST_EACH (&u->writers, it) {
        struct writer *w = LIST_ITEM(it, struct writer, node);
        if (memcmp(w->id, id, UPLOAD_ID) == 0 && (path.p == NULL || slice_eq(w->path, path))) {
            return w;
        }
    }
    return NULL;
}

static bool disturb(struct uploads *u, const char *id, struct slice path)
{
    struct writer *w = writer_of(u, id, path);

    if (w != NULL && w->yield != NULL && !w->yielding) {
        w->yielding = true;
        w->yield(w->yield_arg);
    }
    return w != NULL;
}

bool live_disturb(struct uploads *u, const char *id, struct slice path)
{
    bool there;

    lock_take(&u->lock);
    there = disturb(u, id, path);
    lock_drop(&u->lock);
    return there;
}

int live_enter(struct uploads *u, struct writer *w, const char **why)
{
    struct live *l;
    int rc = E_CHANGED;

    lock_take(&u->lock);
    l = live_find(u, w->id);
    if (l == NULL && !w->loose) {
        *why = "this upload has ended";
    } else if (l != NULL && l->committing) {
        *why = "this upload is being committed";
    } else if (disturb(u, w->id, w->path)) {
        rc = E_BUSY;
    } else {
        list_push_back(&u->writers, &w->node);
        rc = 0;
    }
    lock_drop(&u->lock);
    return rc;
}

bool live_count(struct uploads *u, struct writer *w)
{
    struct live *l;
    bool room;

    lock_take(&u->lock);
    l = live_find(u, w->id);
    room = l == NULL || l->files < UPLOAD_FILES_MAX;
    if (l != NULL && room) {
        l->files++;
        w->fresh = true;
    }
    lock_drop(&u->lock);
    return room;
}

void live_leave(struct uploads *u, struct writer *w)
{
    struct live *l;

    lock_take(&u->lock);
    if (list_linked(&w->node)) {
        list_remove(&w->node);
        l = live_find(u, w->id);
        if (l != NULL && w->fresh) {
            l->files--;
        }
    }
    lock_drop(&u->lock);
}

bool live_begin_commit(struct uploads *u, const char *id)
{
    struct live *l;
    bool ok;

    lock_take(&u->lock);
    l = live_find(u, id);
    ok = l != NULL && !l->committing && writer_of(u, id, SLICE_NONE) == NULL;
    if (ok) {
        l->committing = true;
    }
    lock_drop(&u->lock);
    return ok;
}

void live_end_commit(struct uploads *u, const char *id)
{
    struct live *l;

    lock_take(&u->lock);
    l = live_find(u, id);
    if (l != NULL) {
        l->committing = false;
    }
    lock_drop(&u->lock);
}

size_t live_files(struct uploads *u, const char *id)
{
    struct live *l;
    size_t n;

    lock_take(&u->lock);
    l = live_find(u, id);
    n = l != NULL ? l->files : 0;
    lock_drop(&u->lock);
    return n;
}

static int on_old_row(void *arg, struct slice key, struct slice value)
{
    struct uploads *u = arg;
    char id[UPLOAD_ID + 1] = "";
    struct live *l;

    if (key.n < UPLOAD_ID || key.p[0] == '\0' ||
        (key.n == UPLOAD_ID && session_row_is_offer(value))) {
        return 0;
    }
    memcpy(id, key.p, UPLOAD_ID);
    if (key.n == UPLOAD_ID) {
        (void)live_add(u, id); /* past the limit they wait for upload_expire() */
        return 0;
    }
    l = live_find(u, id);
    if (l != NULL) {
        l->files++;
    }
    return 0;
}

struct uploads *uploads_open(struct store *s)
{
    struct uploads *u = NEW(struct uploads);
    struct err e = {0};

    u->store = s;
    lock_init(&u->lock, LOCK_UPLOAD);
    list_init(&u->writers);
    list_init(&u->joints);
    if (store_scan(s, TABLE_UPLOAD, SLICE(""), SLICE_NONE, on_old_row, u, &e) != 0) {
        /* What could not be read is answered as ended; its rows wait for upload_expire(). */
        log_warn("upload.load", "why=\"%s\"", e.text);
    }
    return u;
}

void uploads_on_full(struct uploads *u, int (*make_room)(void *arg, uint64_t need_bytes), void *arg)
{
    u->make_room = make_room;
    u->make_room_arg = arg;
}

int uploads_stage(struct uploads *u, uint64_t expect_bytes, bool named, struct stage **out,
                  struct err *e)
{
    int rc = stage_open(u->store, expect_bytes, named, out, e);

    if (rc == E_NOSPACE && u->make_room != NULL &&
        u->make_room(u->make_room_arg, expect_bytes) == 0) {
        rc = stage_open(u->store, expect_bytes, named, out, e);
    }
    return rc;
}

void uploads_close(struct uploads **up)
{
    struct uploads *u = *up;
    struct live *l;
    struct live *next;

    *up = NULL;
    if (u == NULL) {
        return;
    }
    CHECK(list_empty(&u->writers));
    joints_forget(u);
    HASH_ITER(hh, u->live, l, next)
    {
        HASH_DELETE(hh, u->live, l);
        free(l);
    }
    lock_fini(&u->lock);
    free(u);
}
