#include "server/upload/live.h"

#include <inttypes.h>
#include <stdlib.h>
#include <uthash.h>

#include "common/base/log.h"
#include "server/store/blob.h"
#include "server/upload/multipart_upload.h"
#include "server/upload/session.h"
#include "server/upload/upload_reply.h"

enum {
    ROOM_BYTES = 2 << 20, /* with the step in which space is taken */
    CLIENT_PART = 4,      /* of the quota, unless a setting says how much */
};

struct client_use {
    UT_hash_handle hh;
    uint64_t client;
    uint32_t lives;    /* of its sessions */
    uint32_t sessions; /* of those, not finished */
    uint64_t bytes;    /* in them */
    uint64_t kept;     /* of which files have been made */
};

struct live {
    UT_hash_handle hh;
    char id[UPLOAD_ID + 1];
    struct client_use
        *use;       /* of the client that began it; NULL: not known, it is of before the start */
    uint64_t bytes; /* of its stages, and of its files that are whole */
    uint64_t kept;  /* of which files have been made; they stay for the upload grant's next ones */
    bool finished;  /* it lives for what it has kept alone, and is no session of its client's */
    struct digest *awaited; /* what finishes this upload grant; NULL: it has files */
    size_t awaited_count;
    size_t files;
    bool committing;
};

static struct live *live_find(struct uploads *u, const char *id)
{
    struct live *l = NULL;

    if (id[0] == '\0') {
        return NULL; /* a put that has no session */
    }
    HASH_FIND(hh, u->live, id, UPLOAD_ID, l);
    return l;
}

static struct client_use *use_find(struct uploads *u, uint64_t client)
{
    struct client_use *use;

    HASH_FIND(hh, u->clients, &client, sizeof client, use);
    return use;
}

static struct client_use *use_begin(struct uploads *u, uint64_t client)
{
    struct client_use *use = use_find(u, client);

    if (use == NULL) {
        use = NEW(struct client_use);
        use->client = client;
        HASH_ADD(hh, u->clients, client, sizeof use->client, use);
    }
    use->lives++;
    use->sessions++;
    return use;
}

static void use_end(struct uploads *u, struct live *l)
{
    struct client_use *use = l->use;

    if (use == NULL) {
        return;
    }
    use->bytes -= l->bytes;
    use->kept -= l->kept;
    use->sessions -= l->finished ? 0 : 1;
    if (--use->lives == 0) {
        HASH_DELETE(hh, u->clients, use);
        free(use);
    }
}

/* E_BUSY: there are SESSIONS_MAX already; E_AGAIN: so many of this client's. */
static int may_begin(struct uploads *u, const struct client_use *use)
{
    if (HASH_COUNT(u->live) - u->finished_count >= SESSIONS_MAX) {
        return E_BUSY;
    }
    return use != NULL && use->sessions >= atomic_load(&u->client_sessions) ? E_AGAIN : 0;
}

static void await(struct live *l, const struct digest *awaited, size_t count)
{
    free(l->awaited);
    l->awaited = NULL;
    if (count != 0) {
        l->awaited = mem_array(count, sizeof *l->awaited);
        memcpy(l->awaited, awaited, count * sizeof *l->awaited);
    }
    l->awaited_count = count;
}

static int live_add(struct uploads *u, const char *id, uint64_t client,
                    const struct digest *awaited, size_t count)
{
    int rc = may_begin(u, use_find(u, client));
    struct live *l;

    if (rc != 0) {
        return rc;
    }
    l = NEW(struct live);
    memcpy(l->id, id, UPLOAD_ID);
    l->use = client != 0 ? use_begin(u, client) : NULL;
    await(l, awaited, count);
    HASH_ADD(hh, u->live, id, UPLOAD_ID, l);
    return 0;
}

static int live_again(struct uploads *u, struct live *l, const struct digest *awaited, size_t count)
{
    int rc = may_begin(u, l->use);

    if (rc == 0) {
        l->finished = false;
        l->use->sessions++;
        u->finished_count--;
        await(l, awaited, count);
    }
    return rc;
}

enum live_admitted live_admit_again(struct uploads *u, const char *id, uint64_t client,
                                    const struct digest *awaited, size_t count,
                                    struct upload_reply *out)
{
    struct live *l;
    bool there;
    int rc = 0;

    lock_take(&u->lock);
    l = live_find(u, id);
    there = l != NULL && !l->finished;
    if (!there) {
        rc = l != NULL ? live_again(u, l, awaited, count) : live_add(u, id, client, awaited, count);
    }
    lock_drop(&u->lock);
    if (rc == E_BUSY) {
        upload_refuse(out, 503, "%d uploads are open, which is the maximum; try again later",
                      SESSIONS_MAX);
    } else if (rc != 0) {
        upload_refuse(out, 429,
                      "you have %u open uploads, which is the maximum; finish or abort some, or "
                      "wait until they expire after a day (storage.client_uploads)",
                      (unsigned)atomic_load(&u->client_sessions));
    }
    return rc != 0 ? LIVE_REFUSED : there ? LIVE_ALREADY : LIVE_ADMITTED;
}

bool live_admit(struct uploads *u, const char *id, uint64_t client, const struct digest *awaited,
                size_t count, struct upload_reply *out)
{
    return live_admit_again(u, id, client, awaited, count, out) != LIVE_REFUSED;
}

static void live_delete(struct uploads *u, struct live *l)
{
    u->finished_count -= l->finished ? 1 : 0;
    use_end(u, l);
    HASH_DELETE(hh, u->live, l);
    free(l->awaited);
    free(l);
}

void live_remove(struct uploads *u, const char *id)
{
    struct live *l;

    lock_take(&u->lock);
    l = live_find(u, id);
    if (l != NULL) {
        live_delete(u, l);
    }
    lock_drop(&u->lock);
}

bool live_is_counted(struct uploads *u, const char *id)
{
    const struct live *l;
    bool yes;

    lock_take(&u->lock);
    l = live_find(u, id);
    yes = l != NULL && l->use != NULL;
    lock_drop(&u->lock);
    return yes;
}

static void cross_off(struct live *l, const struct digest *d)
{
    for (size_t i = 0; i < l->awaited_count; i++) {
        if (digest_eq(&l->awaited[i], d)) {
            l->awaited[i] = l->awaited[--l->awaited_count];
            return;
        }
    }
}

static void came(struct uploads *u, struct live *l, const struct digest *d)
{
    if (l->awaited_count == 0) {
        return;
    }
    cross_off(l, d);
    if (l->awaited_count != 0) {
        return;
    }
    if (l->kept == 0) {
        live_delete(u, l);
        return;
    }
    l->finished = true;
    l->use->sessions--;
    u->finished_count++;
}

void live_came(struct uploads *u, const char *id, const struct digest *d)
{
    struct live *l;

    lock_take(&u->lock);
    l = live_find(u, id);
    if (l != NULL) {
        came(u, l, d);
    }
    lock_drop(&u->lock);
}

/* --- bytes of a client --- */

static uint64_t client_most_bytes(struct uploads *u)
{
    uint64_t most = atomic_load(&u->client_bytes);
    struct store_space space;

    if (most == 0) {
        store_space(u->store, &space);
        most = space.quota_bytes / CLIENT_PART;
    }
    return most;
}

bool live_may_keep(struct uploads *u, const char *id)
{
    uint64_t most = client_most_bytes(u);
    const struct live *l;
    bool yes;

    lock_take(&u->lock);
    l = live_find(u, id);
    yes = l == NULL || l->use == NULL ||
          (l->use->kept + l->bytes <= most && u->finished_count < SESSIONS_MAX);
    lock_drop(&u->lock);
    return yes;
}

void live_assembled(struct uploads *u, const char *id, bool keeps)
{
    struct live *l;

    lock_take(&u->lock);
    l = live_find(u, id);
    if (l != NULL && l->use != NULL && keeps) {
        l->kept += l->bytes;
        l->use->kept += l->bytes;
        l->use->bytes -= l->bytes;
        l->bytes = 0;
    }
    if (l != NULL && (keeps || l->bytes == 0)) {
        came(u, l, AWAITED_ANY);
    }
    lock_drop(&u->lock);
}

/* One object, if that is all of its client's uploads so far, is bounded as one that is sent in one
 * request: by the quota. */
static bool is_bounded(const struct live *l, const struct charge *c)
{
    return l->awaited_count != 1 || l->use->bytes != (c->part ? l->bytes : c->bytes);
}

void charge_begin(struct charge *c, struct uploads *u, const char *id, uint64_t row_bytes)
{
    *c = (struct charge){.u = u, .id = id, .bytes = row_bytes, .kept = row_bytes};
}

int charge_take(struct charge *c, uint64_t n, struct err *e)
{
    uint64_t most = client_most_bytes(c->u);
    struct live *l;
    int rc = 0;

    lock_take(&c->u->lock);
    l = live_find(c->u, c->id);
    if (l != NULL && l->use != NULL) {
        if (is_bounded(l, c) && l->use->bytes + n > most) {
            rc = err_set(e, E_NOSPACE,
                         "your unfinished uploads have %" PRIu64
                         " bytes, and one client may have %" PRIu64
                         "; finish or abort some, wait until they expire after a day, or raise "
                         "storage.client_upload_bytes",
                         l->use->bytes, most);
        } else {
            l->use->bytes += n;
            l->bytes += n;
        }
    }
    c->bytes += rc == 0 ? n : 0;
    lock_drop(&c->u->lock);
    return rc;
}

void charge_give(struct charge *c, uint64_t n)
{
    struct live *l;

    CHECK(n <= c->bytes);
    c->bytes -= n;
    lock_take(&c->u->lock);
    l = live_find(c->u, c->id);
    if (l != NULL && l->use != NULL) {
        uint64_t open = min_u64(n, l->bytes), kept = min_u64(n - open, l->kept);
        l->bytes -= open;
        l->use->bytes -= open;
        l->kept -= kept; /* files have been made of it since it was counted */
        l->use->kept -= kept;
    }
    lock_drop(&c->u->lock);
}

void charge_keep(struct charge *c, uint64_t row_bytes)
{
    c->kept = row_bytes;
}

void charge_settle(struct charge *c)
{
    if (c->u != NULL && c->bytes > c->kept) {
        charge_give(c, c->bytes - c->kept);
    }
}

/* --- who writes --- */

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
        (key.n == UPLOAD_ID && session_row_is_upload_grant(value))) {
        return 0;
    }
    memcpy(id, key.p, UPLOAD_ID);
    if (key.n == UPLOAD_ID) {
        if (live_add(u, id, 0, NULL, 0) != 0) {
            log_warn("upload.load", "why=\"%d uploads are already open\"", SESSIONS_MAX);
        }
        return 0; /* past the limit they wait for upload_expire() */
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
    list_init(&u->multipart_uploads);
    atomic_init(&u->client_sessions, CLIENT_SESSIONS);
    if (store_scan(s, TABLE_UPLOAD, SLICE(""), SLICE_NONE, on_old_row, u, &e) != 0) {
        /* What could not be read is answered as ended; its rows wait for upload_expire(). */
        log_warn("upload.load", "why=\"%s\"", e.text);
    }
    return u;
}

size_t uploads_under_way(struct uploads *u)
{
    size_t sessions;

    lock_take(&u->lock);
    sessions = HASH_COUNT(u->live) - u->finished_count;
    lock_drop(&u->lock);
    return max_u64(sessions, atomic_load(&u->bodies));
}

void uploads_limit(struct uploads *u, uint32_t client_sessions, uint64_t client_bytes)
{
    atomic_store(&u->client_sessions, client_sessions);
    atomic_store(&u->client_bytes, client_bytes);
}

void uploads_on_full(struct uploads *u, int (*make_room)(void *arg, uint64_t need_bytes), void *arg)
{
    u->make_room = make_room;
    u->make_room_arg = arg;
}

static int fits_quota(struct uploads *u, uint64_t bytes, struct err *e)
{
    struct store_space space;
    char advice[SPACE_ADVICE];

    store_space(u->store, &space);
    return bytes <= space.quota_bytes
               ? 0
               : err_set(e, E_NOSPACE,
                         "%" PRIu64 " bytes do not fit into the quota of %" PRIu64 " bytes; %s",
                         bytes, space.quota_bytes, store_space_advice(&space, advice));
}

static int room_for(void *arg, uint64_t n)
{
    struct uploads *u = arg;

    return u->make_room != NULL ? u->make_room(u->make_room_arg, n != 0 ? ROOM_BYTES + n : 0)
                                : E_NOSPACE;
}

static struct ingest_how how_of(struct uploads *u, uint64_t expect_bytes)
{
    return (struct ingest_how){.length_bytes = expect_bytes != UINT64_MAX ? expect_bytes : 0,
                               .hash_bytes = UINT64_MAX,
                               .make_room = room_for,
                               .make_room_arg = u};
}

int uploads_open_ingest(struct uploads *u, uint64_t expect_bytes, bool named, struct ingest **out,
                        struct err *e)
{
    struct ingest_how how = how_of(u, expect_bytes);
    int rc = fits_quota(u, how.length_bytes, e);

    *out = NULL;
    how.named = named;
    how.small = !named && expect_bytes <= BLOB_INLINE_BYTES;
    return rc != 0 ? rc : ingest_open(u->store, &how, out, e);
}

int uploads_resume(struct uploads *u, uint64_t id, uint64_t at, uint64_t expect_bytes,
                   struct ingest **out, struct err *e)
{
    struct partial *p = partial_new(PARTIAL_UPLOAD, SLICE_NONE);
    struct ingest_how how = how_of(u, expect_bytes);
    int rc;

    how.named = true;
    p->id = id;
    if (at != 0) {
        extents_add(&p->have, 0, at);
    }
    rc = ingest_resume(u->store, p, &how, out, e);
    partial_free(&p);
    return rc;
}

int uploads_append(struct charge *c, struct ingest *in, struct slice bytes, struct err *e)
{
    int rc = c != NULL ? charge_take(c, bytes.n, e) : 0;

    if (rc == 0) {
        rc = ingest_append(in, bytes, e);
        if (rc != 0 && c != NULL) {
            charge_give(c, bytes.n);
        }
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
    multipart_uploads_forget(u);
    HASH_ITER(hh, u->live, l, next)
    {
        live_delete(u, l);
    }
    lock_fini(&u->lock);
    free(u);
}
