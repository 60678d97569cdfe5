#include "server/upload/upload.h"

#include <stdio.h>
#include <stdlib.h>

#include "common/codec/jwrite.h"
#include "server/upload/append.h"
#include "server/store/blob.h"
#include "server/upload/live.h"
#include "server/upload/naming.h"
#include "server/upload/upload_grant.h"
#include "server/upload/parts.h"
#include "server/upload/publish.h"
#include "server/upload/upload_reply.h"

static int run_open(struct uploads *u, const struct put *p, uint64_t now_unix_s,
                    struct upload_reply *out, struct err *e)
{
    struct session s;
    struct batch *b = NULL;
    int rc;

    if (!session_new(p, false, now_unix_s, &s, out, &rc, e)) {
        goto out;
    }
    /* A missing branch, or a tree that was renamed: better reported before the files come than
     * after. */
    rc = publish_check(&(struct publish){.store = u->store, .put = p}, out, e);
    if (rc != 0 || out->status != 0) {
        goto out;
    }
    if (!live_admit(u, s.id, p->client, NULL, 0, out)) {
        goto out;
    }
    b = batch_new();
    session_put(&s, b);
    rc = store_commit(u->store, &b, COMMIT_SYNC, e);
    if (rc != 0) {
        live_remove(u, s.id);
        rc = upload_trouble(out, rc, e);
        goto out;
    }
    out->status = 201;
    session_locate(&s, p, out);
    jwrite_open(&out->body, NULL, '{');
    jwrite_str(&out->body, "upload", s.id);
    jwrite_u64(&out->body, "expires", now_unix_s + UPLOAD_EXPIRE_S);
    jwrite_close(&out->body, '}');
    buf_byte(&out->body, '\n');
out:
    session_free(&s);
    return rc;
}

static int answer_upload_status(struct uploads *u, const struct put *p, struct upload_reply *out,
                                struct err *e)
{
    struct session s;
    struct session_file f;
    int rc;

    if (!session_begin(u->store, p, &s, out, &rc, e)) {
        goto out;
    }
    if (p->take_over && live_disturb(u, s.id, p->path)) {
        rc = err_set(e, E_BUSY, "another request is still writing this file");
        goto out;
    }
    if (p->path.n != 0) {
        rc = session_file_load(u->store, s.id, p->path, &f, e);
        if (rc == E_NOTFOUND) {
            upload_refuse(out, 404, "this upload does not have that file");
            rc = 0;
        } else if (rc == 0) {
            upload_reply_file(out, 200, p->path, &f);
        }
        goto out;
    }
    out->status = 200;
    jwrite_open(&out->body, NULL, '{');
    jwrite_str(&out->body, "upload", s.id);
    jwrite_u64(&out->body, "files", live_files(u, s.id));
    jwrite_bool(&out->body, "committed", s.done.seq != 0);
    jwrite_u64(&out->body, "expires", s.begun_unix_s + UPLOAD_EXPIRE_S);
    jwrite_close(&out->body, '}');
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

    if (!session_begin(u->store, p, &s, out, &rc, e)) {
        goto out;
    }
    if (s.done.seq != 0) {
        upload_refuse(out, 409, "this upload is already committed; roll the tree back instead");
    } else if (!live_begin_commit(u, s.id)) {
        upload_refuse(out, 409,
                      "a file of this upload is being written, or the upload is being committed");
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
        upload_refuse(g->out, 409, "incomplete file: " SLICE_FMT, SLICE_ARG(path));
        return 1;
    }
    g->rc = blob_exists(g->store, &f->digest, &there, g->e);
    if (g->rc != 0) {
        return 1;
    }
    if (!there) {
        upload_refuse(g->out, 409, "the bytes of this file were deleted; send it again: " SLICE_FMT,
                      SLICE_ARG(path));
        return 1;
    }
    ed = gather_add(g, path);
    ed->entry.type = ENTRY_FILE;
    ed->entry.size_bytes = f->bytes;
    ed->entry.digest = f->digest;
    return 0;
}

/* The file rows of a committed session; its own row stays until it expires, to answer a commit that
 * is asked twice. */
static int drop_file_rows(struct uploads *u, const struct gather *g, const struct session *s,
                          struct err *e)
{
    struct batch *b = batch_new();

    for (size_t i = 0; i < g->count; i++) {
        session_file_del(s, g->edits[i].entry.path, b);
        session_unhold(s, g->edits[i].entry.path, &g->edits[i].entry.digest, b);
    }
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
    return upload_trouble(out, rc, e);
}

static int run_commit(struct uploads *u, const struct put *p, uint64_t now_unix_s,
                      struct upload_reply *out, struct err *e)
{
    struct session s;
    int rc;

    if (!session_begin(u->store, p, &s, out, &rc, e)) {
        goto out;
    }
    if (s.done.seq != 0) {
        upload_reply_tree(out, 201, &s.done); /* asked twice: the same answer */
    } else if (!live_begin_commit(u, s.id)) {
        upload_refuse(out, 409,
                      "a file of this upload is being written, or the upload is being committed");
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
    int rc = publish_base(u->store, p, &head, e);

    if (rc == 0 && folder) {
        rc = tree_walk(u->store, &head.root, p->path, SLICE_NONE, gather_removal, &g, e);
    } else if (rc == 0) {
        rc = tree_get(u->store, &head.root, p->path, &g.arena, &en, e);
        if (rc == 0) {
            gather_removal(&g, &en);
        }
        if (rc == 0 && p->beside) {
            rc = tree_walk(u->store, &head.root,
                           arena_fmt(&g.arena, SLICE_FMT ".", SLICE_ARG(p->path)), SLICE_NONE,
                           gather_removal, &g, e);
        }
    }
    if (rc == E_NOTFOUND || (rc == 0 && g.count == 0)) {
        upload_refuse(out, p->match != MATCH_NOTHING ? 412 : 404,
                      "no file matches; nothing was deleted");
        rc = 0;
    } else if (rc == 0) {
        pub.edits = g.edits;
        pub.count = g.count;
        rc = publish_run(&pub, out, e);
        out->status = out->status == 201 ? 200 : out->status;
    }
    gather_free(&g);
    return upload_trouble(out, rc, e);
}

/* --- create --- */

static int run_create(struct uploads *u, const struct put *p, uint64_t now_unix_s,
                      struct upload_reply *out, struct err *e)
{
    struct put empty = *p;
    struct publish pub = {.store = u->store, .put = &empty, .now_unix_s = now_unix_s};

    empty.if_none_match_any = true;
    return upload_trouble(out, publish_run(&pub, out, e), e);
}

int upload_run(struct uploads *u, const struct put *p, uint64_t now_unix_s,
               struct upload_reply *out, struct err *e)
{
    switch (p->kind) {
    case PUT_UPLOAD_OPEN:
        return run_open(u, p, now_unix_s, out, e);
    case PUT_UPLOAD_STATUS:
        return answer_upload_status(u, p, out, e);
    case PUT_UPLOAD_COMMIT:
        return run_commit(u, p, now_unix_s, out, e);
    case PUT_UPLOAD_ABORT:
        return run_abort(u, p, out, e);
    case PUT_DELETE:
        return run_delete(u, p, now_unix_s, out, e);
    case PUT_CREATE:
        return run_create(u, p, now_unix_s, out, e);
    case PUT_UPLOAD_GRANT:
    case PUT_OBJECTS_SHARE:
    case PUT_PIECE_KNOWN:
    case PUT_OBJECT_KNOWN:
        return upload_grant_run(u, p, now_unix_s, out, e);
    case PUT_PARTS_END:
        return upload_trouble(out, parts_end(u, p, out, e), e);
    case PUT_APPEND_OPEN:
    case PUT_APPEND_STATUS:
    case PUT_APPEND_DROP:
        return append_run(u, p, now_unix_s, out, e);
    case PUT_REF_ADD:
    case PUT_REF_DROP:
    case PUT_SQUASH:
    case PUT_TREE_MOVE:
    case PUT_TREE_COPY:
    case PUT_TREE_DROP:
        return naming_run(u->store, p, now_unix_s, out, e);
    case PUT_PART:
    case PUT_FILE:
    case PUT_UPLOAD_FILE:
    case PUT_OBJECT:
    case PUT_APPEND:
    case PUT_PIECE:
    case PUT_ASSEMBLE:
    case PUT_CHANGES:
    case PUT_FORM:
        break;
    }
    return err_set(e, E_INTERNAL, "internal error: this put needs a body");
}

void uploads_set_source(struct uploads *u, const struct upload_source *s)
{
    u->source = *s;
}

struct put put_copy(const struct put *p, struct arena *a)
{
    struct put c = *p;
    struct slice *texts[] = {&c.repo,        &c.name,       &c.path,     &c.upload_id,
                             &c.node,        &c.branch,     &c.to,       &c.location,
                             &c.note.author, &c.note.title, &c.ref.name, &c.ref.message,
                             &c.note.message};

    for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
        *texts[i] = arena_copy(a, *texts[i]);
    }
    c.objects = NULL;
    c.objects_count = 0;
    return c;
}

bool put_has_body(enum put_kind k)
{
    return k == PUT_FILE || k == PUT_UPLOAD_FILE || k == PUT_OBJECT || k == PUT_PART ||
           k == PUT_APPEND || k == PUT_PIECE || k == PUT_ASSEMBLE || k == PUT_CHANGES ||
           k == PUT_FORM;
}
