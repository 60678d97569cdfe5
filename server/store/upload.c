#include "server/store/upload.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>

#include "common/base/be.h"
#include "common/base/log.h"
#include "common/codec/jwrite.h"
#include "common/os/newfile.h"
#include "server/store/blob.h"
#include "server/store/publish.h"
#include "server/store/session.h"

#define UNKNOWN UINT64_MAX
/* A file of a session is made durable that often while it arrives: what a SIGKILL may cost. */
#define SAVE_BYTES ((uint64_t)64 << 20)
#define READ_BYTES ((size_t)1 << 20)

void upload_reply_free(struct upload_reply *r)
{
    buf_free(&r->body);
}

/* Full disks are the client's to know, all else is ours. */
static int trouble(struct upload_reply *out, int rc, struct err *e)
{
    if (rc != E_NOSPACE) {
        return rc;
    }
    upload_refuse(out, 507, "no space left on the mirror: %s", e != NULL ? e->text : "");
    return 0;
}

/* Loads the session of a put. False: answered, or *rc says why not. */
static bool begin(struct uploads *u, const struct put *p, struct session *s,
                  struct upload_reply *out, int *rc, struct err *e)
{
    *rc = session_load(u->store, p, s, e);
    if (*rc == E_NOTFOUND) {
        upload_refuse(out, 404, "no such upload: it was never begun here, or it has ended");
        *rc = 0;
        return false;
    }
    return *rc == 0;
}

/* --- puts without a body --- */

static int run_open(struct uploads *u, const struct put *p, uint64_t now_unix_s,
                    struct upload_reply *out, struct err *e)
{
    struct session s = {.row = BUF_INIT(4096), .begun_unix_s = now_unix_s};
    struct jwrite j = JWRITE_INTO(&out->body);
    struct batch *b = NULL;
    uint8_t raw[UPLOAD_ID / 2];
    int rc = 0;

    if (getrandom(raw, sizeof raw, 0) != (ssize_t)sizeof raw) {
        return err_sys(e, "getrandom");
    }
    for (size_t i = 0; i < sizeof raw; i++) {
        snprintf(s.id + 2 * i, 3, "%02x", raw[i]);
    }
    if (p->repo.n >= sizeof s.repo || p->name.n >= sizeof s.name ||
        p->location.n + UPLOAD_ID + 2 > sizeof out->location) {
        upload_refuse(out, 400, "the tree's name is too long");
        goto out;
    }
    memcpy(s.repo, p->repo.p, p->repo.n);
    memcpy(s.name, p->name.p, p->name.n);
    if (!live_add(u, s.id)) {
        upload_refuse(out, 503, "%d uploads are open: commit or abort some", SESSIONS_MAX);
        goto out;
    }
    b = batch_new();
    session_encode(&s, &s.row);
    batch_put(b, TABLE_UPLOAD, slice_of(s.id, UPLOAD_ID), buf_slice(&s.row));
    rc = store_commit(u->store, &b, COMMIT_SYNC, e);
    if (rc != 0) {
        live_remove(u, s.id);
        rc = trouble(out, rc, e);
        goto out;
    }
    out->status = 201;
    snprintf(out->location, sizeof out->location, SLICE_FMT "/%s", SLICE_ARG(p->location), s.id);
    jwrite_open(&j, '{');
    jwrite_key(&j, SLICE("upload"));
    jwrite_text(&j, slice_str(s.id));
    jwrite_key(&j, SLICE("expires"));
    jwrite_u64(&j, now_unix_s + UPLOAD_EXPIRE_S);
    jwrite_close(&j, '}');
    buf_byte(&out->body, '\n');
out:
    session_free(&s);
    return rc;
}

static void file_reply(struct upload_reply *out, int status, struct slice path,
                       const struct session_file *f)
{
    struct jwrite j = JWRITE_INTO(&out->body);
    char hex[DIGEST_HEX + 1];

    out->status = status;
    out->offset_known = true;
    out->complete = f->sealed;
    out->offset = f->bytes;
    buf_clear(&out->body);
    jwrite_open(&j, '{');
    jwrite_key(&j, SLICE("path"));
    jwrite_text(&j, path);
    jwrite_key(&j, f->sealed ? SLICE("size") : SLICE("offset"));
    jwrite_u64(&j, f->bytes);
    if (f->sealed) {
        digest_format(&f->digest, hex);
        jwrite_key(&j, SLICE("sha256"));
        jwrite_text(&j, slice_str(hex));
    }
    jwrite_close(&j, '}');
    buf_byte(&out->body, '\n');
}

static int run_status(struct uploads *u, const struct put *p, struct upload_reply *out,
                      struct err *e)
{
    struct session s;
    struct session_file f;
    struct jwrite j = JWRITE_INTO(&out->body);
    int rc;

    if (!begin(u, p, &s, out, &rc, e)) {
        goto out;
    }
    if (p->path.n != 0) {
        rc = session_file_load(u->store, s.id, p->path, &f, e);
        if (rc == E_NOTFOUND) {
            upload_refuse(out, 404, "this upload has no such file");
            rc = 0;
        } else if (rc == 0) {
            file_reply(out, 200, p->path, &f);
        }
        goto out;
    }
    out->status = 200;
    jwrite_open(&j, '{');
    jwrite_key(&j, SLICE("upload"));
    jwrite_text(&j, slice_str(s.id));
    jwrite_key(&j, SLICE("files"));
    jwrite_u64(&j, live_files(u, s.id));
    jwrite_key(&j, SLICE("committed"));
    jwrite_word(&j, s.done.seq != 0 ? SLICE("true") : SLICE("false"));
    jwrite_key(&j, SLICE("expires"));
    jwrite_u64(&j, s.begun_unix_s + UPLOAD_EXPIRE_S);
    jwrite_close(&j, '}');
    buf_byte(&out->body, '\n');
out:
    session_free(&s);
    return rc;
}

static int run_abort(struct uploads *u, const struct put *p, struct upload_reply *out,
                     struct err *e)
{
    struct session s;
    int rc;

    if (!begin(u, p, &s, out, &rc, e)) {
        goto out;
    }
    if (s.done.seq != 0) {
        upload_refuse(out, 409, "this upload is committed: roll the tree back instead");
    } else if (!live_begin_commit(u, s.id)) {
        upload_refuse(out, 409, "a file of this upload is being written, or it is being committed");
    } else {
        rc = session_drop(u, s.id, e);
        live_end_commit(u, s.id);
        out->status = 204;
    }
out:
    session_free(&s);
    return rc;
}

/* --- commit --- */

struct gather {
    struct store *store;
    struct arena arena;
    struct tree_edit *edits;
    size_t count;
    size_t room;
    struct upload_reply *out;
    int rc;
    struct err *e;
};

static struct tree_edit *gather_add(struct gather *g, struct slice path)
{
    if (g->count == g->room) {
        g->room = g->room != 0 ? 2 * g->room : 64;
        g->edits = reallocarray(g->edits, g->room, sizeof *g->edits);
        CHECK(g->edits != NULL);
    }
    g->edits[g->count] = (struct tree_edit){.entry.path = arena_copy(&g->arena, path)};
    return &g->edits[g->count++];
}

static void gather_free(struct gather *g)
{
    arena_fini(&g->arena);
    free(g->edits);
}

static int gather_file(void *arg, struct slice path, const struct session_file *f)
{
    struct gather *g = arg;
    struct tree_edit *ed;
    bool there = false;

    if (!f->sealed) {
        upload_refuse(g->out, 409, "not whole yet: " SLICE_FMT, SLICE_ARG(path));
        return 1;
    }
    g->rc = blob_exists(g->store, &f->digest, &there, g->e);
    if (g->rc != 0) {
        return 1;
    }
    if (!there) {
        upload_refuse(g->out, 409, "send again, its bytes are gone: " SLICE_FMT, SLICE_ARG(path));
        return 1;
    }
    ed = gather_add(g, path);
    ed->entry.type = ENTRY_FILE;
    ed->entry.size_bytes = f->bytes;
    ed->entry.digest = f->digest;
    return 0;
}

/* The file rows of a committed session; its own row stays until it expires, to answer a commit that is asked twice. */
static int drop_file_rows(struct uploads *u, const struct gather *g, const struct session *s,
                          struct err *e)
{
    struct batch *b = batch_new();
    struct buf key = BUF_INIT(8192);

    for (size_t i = 0; i < g->count; i++) {
        session_key(&key, s->id, g->edits[i].entry.path);
        batch_del(b, TABLE_UPLOAD, buf_slice(&key));
        session_unhold(s, &g->edits[i].entry.digest, b);
    }
    buf_free(&key);
    return store_commit(u->store, &b, COMMIT_LAZY, e);
}

static int commit_session(struct uploads *u, const struct put *p, const struct session *s,
                          uint64_t now_unix_s, struct upload_reply *out, struct err *e)
{
    struct gather g = {.store = u->store, .out = out, .e = e};
    struct publish pub = {
        .store = u->store, .put = p, .replace = p->replace, .session = s, .now_unix_s = now_unix_s};
    int rc = session_each_file(u->store, s->id, gather_file, &g, e);

    rc = rc > 0 ? g.rc : rc;
    if (rc == 0 && out->status == 0) {
        pub.edits = g.edits;
        pub.count = g.count;
        rc = publish_run(&pub, out, e);
    }
    if (rc == 0 && (out->status == 200 || out->status == 201)) {
        out->status = 201;
        rc = drop_file_rows(u, &g, s, e);
        live_remove(u, s->id);
    }
    gather_free(&g);
    return trouble(out, rc, e);
}

static int run_commit(struct uploads *u, const struct put *p, uint64_t now_unix_s,
                      struct upload_reply *out, struct err *e)
{
    struct session s;
    int rc;

    if (!begin(u, p, &s, out, &rc, e)) {
        goto out;
    }
    if (s.done.seq != 0) {
        publish_reply(out, 201, &s.done); /* asked twice: the same answer */
    } else if (!live_begin_commit(u, s.id)) {
        upload_refuse(out, 409, "a file of this upload is being written, or it is being committed");
    } else {
        rc = commit_session(u, p, &s, now_unix_s, out, e);
        live_end_commit(u, s.id);
    }
out:
    session_free(&s);
    return rc;
}

/* --- delete --- */

static int gather_removal(void *arg, const struct entry *en)
{
    gather_add(arg, en->path)->remove = true;
    return 0;
}

static int run_delete(struct uploads *u, const struct put *p, uint64_t now_unix_s,
                      struct upload_reply *out, struct err *e)
{
    bool folder = p->path.n == 0 || p->path.p[p->path.n - 1] == '/';
    struct gather g = {.store = u->store};
    struct publish pub = {.store = u->store, .put = p, .file = !folder, .now_unix_s = now_unix_s};
    struct entry en;
    struct snap head;
    int rc = head_get(u->store, p->repo, p->name, &head, e);

    if (rc == 0 && folder) {
        rc = tree_walk(u->store, &head.root, p->path, SLICE_NONE, gather_removal, &g, e);
    } else if (rc == 0) {
        rc = tree_get(u->store, &head.root, p->path, &g.arena, &en, e);
        if (rc == 0) {
            gather_removal(&g, &en);
        }
    }
    if (rc == E_NOTFOUND || (rc == 0 && g.count == 0)) {
        upload_refuse(out, p->if_match_set || p->if_match_any || p->if_match_file ? 412 : 404,
                      "there is nothing to delete");
        rc = 0;
    } else if (rc == 0) {
        pub.edits = g.edits;
        pub.count = g.count;
        rc = publish_run(&pub, out, e);
        out->status = out->status == 201 ? 200 : out->status;
    }
    gather_free(&g);
    return trouble(out, rc, e);
}

int upload_run(struct uploads *u, const struct put *p, uint64_t now_unix_s,
               struct upload_reply *out, struct err *e)
{
    switch (p->kind) {
    case PUT_UPLOAD_OPEN:
        return run_open(u, p, now_unix_s, out, e);
    case PUT_UPLOAD_STATUS:
        return run_status(u, p, out, e);
    case PUT_UPLOAD_COMMIT:
        return run_commit(u, p, now_unix_s, out, e);
    case PUT_UPLOAD_ABORT:
        return run_abort(u, p, out, e);
    case PUT_DELETE:
        return run_delete(u, p, now_unix_s, out, e);
    case PUT_FILE:
    case PUT_UPLOAD_FILE:
        break;
    }
    return err_set(e, E_INTERNAL, "this put has a body");
}

/* --- bodies --- */

struct upload_sink {
    struct uploads *u;
    struct arena arena; /* strings of put */
    struct put put;
    struct session session; /* of PUT_UPLOAD_FILE */
    struct writer writer;
    uint64_t length;     /* of this body; UNKNOWN */
    uint64_t total;      /* of the whole file; UNKNOWN */
    uint64_t offset;     /* bytes of the file that are here */
    uint64_t saved;      /* of those, described by a row */
    struct stage *stage; /* NULL: small */
    struct buf small;
    struct hasher *hasher;
};

static void sink_free(struct upload_sink **kp)
{
    struct upload_sink *k = *kp;

    *kp = NULL;
    if (k == NULL) {
        return;
    }
    live_leave(k->u, &k->writer);
    stage_abort(&k->stage);
    hasher_free(&k->hasher);
    buf_free(&k->small);
    session_free(&k->session);
    arena_fini(&k->arena);
    free(k);
}

/* Rows of this file: what they say now, NULL: gone. stage: one that is not wanted any more, or 0. */
static void put_rows(struct upload_sink *k, const struct session_file *f, uint64_t old_stage,
                     struct batch *b)
{
    struct buf key = BUF_INIT(8192);
    struct buf row = BUF_INIT(256);
    char stage[8];

    session_require(&k->session, b);
    session_key(&key, k->session.id, k->put.path);
    if (f != NULL) {
        session_file_encode(f, &row);
        batch_put(b, TABLE_UPLOAD, buf_slice(&key), buf_slice(&row));
    } else {
        batch_del(b, TABLE_UPLOAD, buf_slice(&key));
    }
    if (old_stage != 0) {
        be_put(stage, sizeof stage, old_stage);
        batch_del(b, TABLE_PARTIAL, slice_of(stage, sizeof stage));
    }
    if (f != NULL &&
        !f->sealed) { /* the sweep at a start leaves stages alone that a row describes */
        be_put(stage, sizeof stage, f->stage);
        buf_clear(&row);
        buf_addf(&row, "upload %s", k->session.id);
        batch_put(b, TABLE_PARTIAL, slice_of(stage, sizeof stage), buf_slice(&row));
    }
    buf_free(&key);
    buf_free(&row);
}

/* What is here becomes durable: data, then the row that speaks of it. */
static int save(struct upload_sink *k, struct err *e)
{
    struct session_file f = {.stage = stage_id(k->stage), .bytes = k->offset, .total = k->total};
    struct batch *b;
    int rc = stage_sync(k->stage, e);

    if (rc != 0) {
        return rc;
    }
    b = batch_new();
    put_rows(k, &f, 0, b);
    rc = store_commit(k->u->store, &b, COMMIT_LAZY, e);
    if (rc == 0) {
        k->saved = k->offset;
    }
    return rc;
}

/* Hashes what an earlier request brought. */
static int rehash(struct upload_sink *k, uint64_t upto, struct err *e)
{
    char *room = mem_new(READ_BYTES);
    uint64_t off = 0;
    int rc = 0;

    while (off < upto && rc == 0) {
        size_t n = (size_t)min_u64(READ_BYTES, upto - off);
        rc = fd_pread_all(stage_fd(k->stage), room, n, off, e);
        if (rc == 0) {
            hasher_add(k->hasher, room, n);
            off += n;
        }
    }
    free(room);
    return rc;
}

/* A body that says where it begins: behind, or within, what is here. Sets reply when it does not fit. */
static int resume(struct upload_sink *k, const struct session_file *old, struct upload_reply *reply,
                  struct err *e)
{
    int rc;

    if (old->sealed || k->put.first > old->bytes ||
        (old->total != UNKNOWN && old->total != k->total)) {
        file_reply(reply, 409, k->put.path, old);
        return 0;
    }
    rc = stage_resume(k->u->store, old->stage, k->total, &k->stage, e);
    if (rc == E_NOTFOUND) {
        file_reply(reply, 409, k->put.path, &(struct session_file){.total = k->total});
        return 0;
    }
    if (rc == 0) {
        rc = rehash(k, k->put.first, e);
    }
    k->offset = k->saved = k->put.first;
    return rc;
}

static int open_stage(struct upload_sink *k, bool named, struct err *e)
{
    uint64_t expect = k->total != UNKNOWN ? k->total : 0;
    int rc = stage_open(k->u->store, expect, named, &k->stage, e);

    if (rc == E_NOSPACE && k->u->make_room != NULL &&
        k->u->make_room(k->u->make_room_arg, expect) == 0) {
        rc = stage_open(k->u->store, expect, named, &k->stage, e);
    }
    return rc;
}

/* A file from its first byte; what an earlier try left goes. */
static int start_over(struct upload_sink *k, const struct session_file *old, struct err *e)
{
    struct session_file f = {.total = k->total};
    struct batch *b = batch_new();
    uint64_t old_stage = old != NULL && !old->sealed ? old->stage : 0;
    struct stage *gone = NULL;
    int rc = open_stage(k, true, e);

    if (rc == 0) {
        f.stage = stage_id(k->stage);
        put_rows(k, &f, old_stage, b);
        if (old != NULL && old->sealed) {
            session_unhold(&k->session, &old->digest, b);
        }
        rc = store_commit(k->u->store, &b, COMMIT_LAZY, e);
        k->writer.fresh = k->writer.fresh && rc != 0;
    }
    if (rc == 0 && old_stage != 0 && stage_resume(k->u->store, old_stage, 0, &gone, NULL) == 0) {
        stage_abort(&gone);
    }
    batch_free(&b);
    return rc;
}

static int open_session_file(struct upload_sink *k, struct upload_reply *reply, struct err *e)
{
    struct session_file old;
    const char *why;
    bool there;
    bool full;
    int rc;

    if (!begin(k->u, &k->put, &k->session, reply, &rc, e)) {
        return rc;
    }
    rc = session_file_load(k->u->store, k->session.id, k->put.path, &old, e);
    if (rc != 0 && rc != E_NOTFOUND) {
        return rc;
    }
    there = rc == 0;
    k->writer.id = k->session.id;
    k->writer.path = k->put.path;
    why = live_enter(k->u, &k->writer, !there, &full);
    if (why != NULL) {
        upload_refuse(reply, full ? 413 : 409, "%s", why);
        return 0;
    }
    if (k->put.first != 0) {
        return resume(k, there ? &old : &(struct session_file){.total = k->total}, reply, e);
    }
    if (k->length <= BLOB_INLINE_BYTES && k->length == k->total && !there) {
        return 0; /* small: gathered in memory */
    }
    return start_over(k, there ? &old : NULL, e);
}

static int open_file(struct upload_sink *k, struct upload_reply *reply, struct err *e)
{
    struct publish pub = {.store = k->u->store, .put = &k->put, .file = true};
    int rc = publish_check(&pub, reply, e);

    if (rc == 0 && reply->status == 0 && k->total > BLOB_INLINE_BYTES) {
        rc = open_stage(k, false, e);
    }
    return rc;
}

static struct put put_copy(const struct put *p, struct arena *a)
{
    struct put c = *p;

    c.repo = arena_copy(a, p->repo);
    c.name = arena_copy(a, p->name);
    c.path = arena_copy(a, p->path);
    c.upload_id = arena_copy(a, p->upload_id);
    c.location = SLICE_NONE;
    return c;
}

int upload_sink_open(struct uploads *u, const struct put *p, uint64_t content_length,
                     uint64_t now_unix_s, struct upload_sink **out, struct upload_reply *reply,
                     struct err *e)
{
    struct upload_sink *k = NEW(struct upload_sink);
    int rc = 0;

    (void)now_unix_s;
    *out = NULL;
    k->u = u;
    k->put = put_copy(p, &k->arena);
    k->length = content_length;
    k->total = p->total != UNKNOWN ? p->total : p->first == 0 ? content_length : UNKNOWN;
    k->small = BUF_INIT(BLOB_INLINE_BYTES);
    k->hasher = hasher_new();
    if (p->kind == PUT_UPLOAD_FILE) {
        rc = open_session_file(k, reply, e);
    } else {
        rc = open_file(k, reply, e);
    }
    if (rc == 0 && reply->status == 0) {
        *out = k;
        return 0;
    }
    if (p->kind == PUT_UPLOAD_FILE && k->stage != NULL) {
        stage_park(&k->stage); /* as it was found */
    }
    sink_free(&k);
    return trouble(reply, rc, e);
}

int upload_sink_write(struct upload_sink *k, struct slice bytes, struct upload_reply *reply,
                      struct err *e)
{
    int rc = 0;

    if (bytes.n > k->total - k->offset) {
        upload_refuse(reply, 400, "more bytes than the %" PRIu64 " that were announced", k->total);
        return 0;
    }
    if (k->stage == NULL) {
        buf_adds(&k->small, bytes);
        CHECK(k->small.rc == 0); /* total is at most its maximum */
    } else {
        rc = stage_write(k->stage, bytes.p, bytes.n, k->offset, e);
    }
    if (rc == 0) {
        hasher_add(k->hasher, bytes.p, bytes.n);
        k->offset += bytes.n;
    }
    if (rc == 0 && k->stage != NULL && stage_id(k->stage) != 0 &&
        k->offset - k->saved >= SAVE_BYTES) {
        rc = save(k, e);
    }
    return trouble(reply, rc, e);
}

/* The bytes become a blob, its rows in b. */
static int seal(struct upload_sink *k, const struct digest *d, struct batch *b, struct blob **out,
                struct err *e)
{
    size_t count;
    const struct digest *chunk;

    if (k->stage == NULL) {
        return blob_put_bytes(k->u->store, buf_slice(&k->small), b, out, e);
    }
    chunk = hasher_chunks(k->hasher, &count);
    return stage_seal(&k->stage, d, k->offset, chunk, count, b, out, e);
}

static int finish_session_file(struct upload_sink *k, const struct digest *d,
                               struct upload_reply *reply, struct err *e)
{
    struct session_file f = {.sealed = true, .bytes = k->offset, .digest = *d};
    uint64_t stage = k->stage != NULL ? stage_id(k->stage) : 0;
    struct batch *b = batch_new();
    struct blob *blob = NULL;
    int rc = seal(k, d, b, &blob, e);

    if (rc == 0) {
        put_rows(k, &f, stage, b);
        session_hold(&k->session, d, b);
        rc = store_commit(k->u->store, &b, COMMIT_SYNC, e);
    }
    if (rc == E_CHANGED) {
        upload_refuse(reply, 409, "this upload has ended meanwhile");
        rc = 0;
    } else if (rc == 0) {
        k->writer.fresh = false;
        file_reply(reply, 201, k->put.path, &f);
    }
    blob_release(&blob);
    batch_free(&b);
    return rc;
}

/* Upload of one and commit at once. The blob's rows first: a publish that has to begin anew cannot seal twice. */
static int finish_file(struct upload_sink *k, const struct digest *d, uint64_t now_unix_s,
                       struct upload_reply *reply, struct err *e)
{
    struct tree_edit ed = {
        .entry = {.path = k->put.path, .type = ENTRY_FILE, .size_bytes = k->offset, .digest = *d}};
    struct publish pub = {.store = k->u->store,
                          .put = &k->put,
                          .edits = &ed,
                          .count = 1,
                          .file = true,
                          .now_unix_s = now_unix_s};
    struct batch *b = batch_new();
    struct blob *blob = NULL;
    int rc = seal(k, d, b, &blob, e);

    if (rc == 0) {
        publish_hold(&k->put, d, b);
        rc = store_commit(k->u->store, &b, COMMIT_LAZY, e);
    }
    if (rc == 0) {
        rc = publish_run(&pub, reply, e);
    }
    blob_release(&blob);
    batch_free(&b);
    return rc;
}

/* Not what was announced: the bytes go, the next try begins anew. */
static int discard(struct upload_sink *k, struct upload_reply *reply, struct err *e)
{
    struct batch *b;

    upload_refuse(reply, 422, "the bytes are not those of Repr-Digest: send them again");
    if (k->put.kind != PUT_UPLOAD_FILE || k->stage == NULL) {
        return 0;
    }
    b = batch_new();
    put_rows(k, NULL, stage_id(k->stage), b);
    return store_commit(k->u->store, &b, COMMIT_LAZY, e);
}

int upload_sink_finish(struct upload_sink **kp, uint64_t now_unix_s, struct upload_reply *reply,
                       struct err *e)
{
    struct upload_sink *k = *kp;
    struct digest d;
    int rc;

    *kp = NULL;
    if (k->put.kind == PUT_UPLOAD_FILE && k->total != UNKNOWN && k->offset < k->total) {
        struct session_file f = {.bytes = k->offset};
        rc = k->stage != NULL ? save(k, e) : 0;
        if (rc == 0) {
            file_reply(reply, 308, k->put.path, &f);
        }
        upload_sink_close(&k);
        return trouble(reply, rc, e);
    }
    if (k->total != UNKNOWN && k->offset != k->total) {
        upload_refuse(reply, 400, "fewer bytes than were announced");
        sink_free(&k);
        return 0;
    }
    hasher_final(k->hasher, &d);
    if (k->put.digest_known && !digest_eq(&d, &k->put.digest)) {
        rc = discard(k, reply, e);
    } else if (k->put.kind == PUT_UPLOAD_FILE) {
        rc = finish_session_file(k, &d, reply, e);
    } else {
        rc = finish_file(k, &d, now_unix_s, reply, e);
    }
    sink_free(&k);
    return trouble(reply, rc, e);
}

void upload_sink_close(struct upload_sink **kp)
{
    struct upload_sink *k = *kp;
    struct err e = {0};

    if (k != NULL && k->put.kind == PUT_UPLOAD_FILE && k->stage != NULL) {
        if (k->offset > k->saved && save(k, &e) != 0) {
            log_warn("upload.save", "why=\"%s\"", e.text); /* less is there to resume from */
        }
        stage_park(&k->stage);
    }
    sink_free(kp);
}
