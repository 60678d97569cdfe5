/* hub_write.c - what changes a repository, in the Hub's words: create, preupload, LFS batch, commit. */
#include <stdio.h>

#include <jansson.h>

#include "common/codec/jwrite.h"
#include "server/repo/hosted/hosted.h"
#include "server/repo/hosted/hub.h"
#include "server/store/rename.h"

enum { KEY_BYTES = 8192 };

json_t *hub_body(struct hub_ask *k)
{
    const struct fact *f = plan_request_body(k->facts, k->p);
    json_t *o;

    if (f == NULL) {
        return NULL;
    }
    if (f->rc != 0) {
        hub_say(k, 413, NULL, SLICE("a request of more than 1 MiB: ask in parts"));
        return NULL;
    }
    o = jread_parse(f->bytes, JSON_REJECT_DUPLICATES, HUB_BODY_VALUES);
    if (!json_is_object(o)) {
        json_decref(o);
        hub_say(k, 400, NULL, SLICE("the body is no JSON object"));
        return NULL;
    }
    return o;
}

void hub_put(struct hub_ask *k, enum put_kind kind)
{
    plan_become(k->p, PLAN_PUT);
    k->p->put = (struct put){.kind = kind,
                             .repo = slice_str(k->r->name),
                             .name = k->tree,
                             .branch = k->branch,
                             .note.author = k->who->name,
                             .path = SLICE(""),
                             .total = LENGTH_UNKNOWN};
    k->p->text = arena_fmt(k->a, SLICE_FMT "/" SLICE_FMT,
                           SLICE_ARG(plan_home(k->r, k->req, k->path, k->a)), SLICE_ARG(k->tree));
}

/* --- create ------------------------------------------------------------------------------------------------------- */

/* What cannot be kept is refused, not forgotten. */
static const char *create_refusal(const struct hub_ask *k, const json_t *o)
{
    struct slice visibility = jread_text(o, "visibility");

    if (k->r->anonymous_read &&
        (json_is_true(json_object_get(o, "private")) || slice_eqs(visibility, "private"))) {
        return "nothing is private here: all of this mirror's repo may be read without a token "
               "(its configuration says so); create it as public, or ask for a repo with access "
               "{ anonymous = none }";
    }
    return NULL;
}

/* `hf upload` asks for a new repository each time, and goes on with the url of a 409. A name that a tree had means that tree;
 * made anew, it would cut the old name off, and the files would go where nobody looks for them. */
static bool is_moved(struct hub_ask *k)
{
    struct buf key = BUF_INIT(KEY_BYTES), body = BUF_INIT(3 * KEY_BYTES);
    const struct fact *f;

    rename_key(&key, slice_str(k->r->name), k->tree);
    f = plan_row(k->facts, TABLE_MOVED, arena_copy(k->a, buf_slice(&key)), k->p);
    buf_free(&key);
    if (f == NULL || f->rc != 0) {
        return f == NULL; /* it is being looked up */
    }
    jwrite_open(&body, NULL, '{');
    jwrite_text(&body, "error",
                arena_fmt(k->a,
                          SLICE_FMT
                          " is called " SLICE_FMT
                          " now: use that name; to have the old one for another repository, "
                          "create that by any name and move it there",
                          SLICE_ARG(k->tree), SLICE_ARG(f->bytes)));
    jwrite_text(&body, "url",
                arena_fmt(k->a, SLICE_FMT "/" SLICE_FMT,
                          SLICE_ARG(plan_home(k->r, k->req, k->path, k->a)), SLICE_ARG(f->bytes)));
    jwrite_close(&body, '}');
    hub_say_json(k, arena_copy(k->a, buf_slice(&body)));
    k->p->status = 409;
    buf_free(&body);
    return true;
}

static void create_named(struct hub_ask *k, const json_t *o)
{
    struct slice owner = jread_text(o, "organization");
    struct slice name = jread_text(o, "name");
    const char *no = create_refusal(k, o);

    owner = owner.p != NULL ? owner : k->who->name;
    if (!hub_take_type(k, o)) {
        return;
    }
    if (no != NULL) {
        hub_say(k, 400, NULL, slice_str(no));
        return;
    }
    k->at.id = arena_fmt(k->a, SLICE_FMT "/" SLICE_FMT, SLICE_ARG(owner), SLICE_ARG(name));
    if (!hub_id_free(k, k->at.id)) {
        return;
    }
    k->p->right = RIGHT_PUBLISH;
    hub_name(k);
    if (!is_moved(k)) {
        hub_put(k, PUT_CREATE);
        k->p->put.note.title = SLICE("initial commit");
    }
}

static void plan_create(struct hub_ask *k)
{
    json_t *o;

    if (k->who->token == NULL) {
        hub_say_token(k, "creating");
        return;
    }
    k->p->right = RIGHT_KNOWN; /* the name, and so the right, is in the body */
    o = hub_body(k);
    if (o != NULL) {
        create_named(k, o);
        json_decref(o);
    }
}

/* --- preupload ---------------------------------------------------------------------------------------------------- */

/* How each file is to come, and whether it has changed: made of the tree (hub_modes.c). */
static void plan_preupload(struct hub_ask *k)
{
    const struct snap *sn = hub_version(k);
    const struct fact *body = sn != NULL ? plan_request_body(k->facts, k->p) : NULL;

    if (body == NULL) {
        return;
    }
    if (body->rc != 0) {
        hub_say(k, 413, NULL, SLICE("a request of more than 1 MiB: ask in parts"));
        return;
    }
    plan_become(k->p, PLAN_LIST);
    k->p->form = LIST_HUB_MODES;
    k->p->posted = true;
    k->p->snap = *sn;
    k->p->name = k->at.id;
    k->p->entry.path = SLICE("");
    k->p->text = body->bytes;
    k->p->cache_control = SLICE("no-store");
    if (k->r->xet_from_bytes == UINT64_MAX && hub_modes_large(body->bytes)) {
        /* clients print it; of our answer to Xet they show the status alone */
        plan_field(k->p, SLICE("x-hf-warning"),
                   SLICE("upload; this mirror takes files of more than 8 MiB by LFS, not by Xet: "
                         "where hf_xet is installed, set HF_HUB_DISABLE_XET=1"));
    }
}

/* --- LFS batch ---------------------------------------------------------------------------------------------------- */

static bool read_objects(struct hub_ask *k, const json_t *list)
{
    struct put_object *out;
    size_t i;
    const json_t *o;

    if (!json_is_array(list) || json_array_size(list) > OFFER_OBJECTS_MAX) {
        return false;
    }
    out = arena_alloc(k->a, (json_array_size(list) + 1) * sizeof *out);
    json_array_foreach(list, i, o)
    {
        if (!digest_parse(jread_text(o, "oid"), &out[i].digest) ||
            !jread_u64(o, "size", &out[i].size_bytes)) {
            return false;
        }
    }
    k->p->put.objects = out;
    k->p->put.objects_count = json_array_size(list);
    return true;
}

/* What leads to them carries the caller's own credential: LFS clients send none by themselves. Those who may publish also see what
 * was brought, and no commit names yet. */
static void batch_out(struct hub_ask *k)
{
    const struct fact *publisher =
        k->who->token != NULL ? plan_right(k->facts, SLICE("publish"), k->p->subject, k->p) : NULL;

    if (k->who->token != NULL && publisher == NULL) {
        return;
    }
    plan_become(k->p, PLAN_LIST);
    k->p->expand = publisher != NULL && publisher->rc == 0;
    k->p->form = LIST_HUB_OBJECTS;
    k->p->posted = true;
    /* It tells what uploads have brought that no version has yet, and carries the caller's credential. */
    k->p->alone = true;
    k->p->name = k->tree;
    k->p->entry.path = SLICE("");
    k->p->text = plan_request_body(k->facts, k->p)->bytes;
    k->p->location = arena_fmt(
        k->a, SLICE_FMT "/" SLICE_FMT " " SLICE_FMT,
        SLICE_ARG(plan_home(k->r, k->req, k->path, k->a)), SLICE_ARG(k->tree),
        SLICE_ARG(k->r->anonymous_read && !k->p->expand ? SLICE("")
                                                        : http_req_field(k->req, "authorization")));
    k->p->cache_control = SLICE("no-store");
}

static void batch(struct hub_ask *k, const json_t *o)
{
    if (slice_eqs(jread_text(o, "operation"), "download")) {
        k->p->right = RIGHT_READ;
        if (hub_version(k) != NULL) {
            batch_out(k);
        }
        return;
    }
    k->p->right = RIGHT_PUBLISH;
    if (!slice_eqs(jread_text(o, "operation"), "upload")) {
        hub_say(k, 422, NULL, SLICE("operation: \"upload\" or \"download\""));
        return;
    }
    if (!hub_branch(k)) {
        return;
    }
    hub_put(k, PUT_OFFER);
    if (!read_objects(k, json_object_get(o, "objects"))) {
        hub_say(k, 422, NULL, SLICE("objects: a list of {oid: sha256, size}, of at most 256"));
    }
}

/* --- commit ------------------------------------------------------------------------------------------------------- */

static void plan_commit(struct hub_ask *k)
{
    hub_put(k, PUT_CHANGES);
    k->p->reader = &hub_commit_reader;
}

/* --- all of them -------------------------------------------------------------------------------------------------- */

bool hub_branch(struct hub_ask *k)
{
    struct slice rev = k->at.rev;
    const struct fact *f;

    if (hub_query(k->req->query, "create_pr", SLICE("1"))) {
        hub_say(k, 400, NULL, SLICE("there are no pull requests here: commit to a branch"));
        return false;
    }
    if (hub_version(k) == NULL) {
        return false;
    }
    if (rev.p == NULL || slice_eqs(rev, "main")) {
        return true;
    }
    f = plan_head(k->facts, k->tree, arena_fmt(k->a, "refs/heads/" SLICE_FMT, SLICE_ARG(rev)),
                  k->p);
    if (f != NULL && f->rc != 0) {
        hub_say(
            k, 404, "RevisionNotFound",
            arena_fmt(k->a, "commits go to branches, \"" SLICE_FMT "\" is none", SLICE_ARG(rev)));
    }
    k->branch = rev;
    return f != NULL && f->rc == 0;
}

/* To read needs another right than to write, and the body says which of the two it is. */
static void plan_batch(struct hub_ask *k)
{
    json_t *o;

    k->p->right = k->who->token != NULL ? RIGHT_KNOWN : RIGHT_READ;
    o = hub_body(k);
    if (o != NULL) {
        batch(k, o);
        json_decref(o);
    }
}

static void write_to(struct hub_ask *k, void (*with)(struct hub_ask *k))
{
    k->p->right = RIGHT_PUBLISH;
    if (hub_branch(k)) {
        with(k);
    }
}

static bool is_post(struct hub_ask *k)
{
    if (k->req->method != METHOD_POST) {
        plan_method(k->p, SLICE("POST"), SLICE("this path takes POST\n"));
        return false;
    }
    return true;
}

void hub_write(struct hub_ask *k)
{
    struct slice verb = k->at.verb;

    if (slice_eqs(verb, "xet-write-token")) {
        write_to(k, hub_write_token);
    } else if (slice_eqs(verb, "validate-yaml")) {
        hub_say_json(k, SLICE("{\"errors\":[],\"warnings\":[]}"));
    } else if (slice_eqs(verb, "repos/create")) {
        if (is_post(k)) {
            plan_create(k);
        }
    } else if (slice_eqs(verb, "lfs-batch")) {
        if (is_post(k)) {
            plan_batch(k);
        }
    } else if (slice_eqs(verb, "preupload") || slice_eqs(verb, "commit")) {
        if (is_post(k)) {
            write_to(k, slice_eqs(verb, "preupload") ? plan_preupload : plan_commit);
        }
    } else if (!hub_names(k) && !hub_copies(k)) {
        hub_say(k, 403, NULL,
                SLICE("not offered here: this mirror's own repositories have files, branches and "
                      "tags; no pull requests, no settings"));
    }
}

/* --- answers ------------------------------------------------------------------------------------------------------ */

static void answer_created(const struct plan *p, struct upload_reply *u)
{
    bool there = u->status == 412;

    u->status = there ? 409 : 200;
    buf_clear(&u->body);
    jwrite_open(&u->body, NULL, '{');
    if (there) {
        jwrite_str(&u->body, "error", "You already created this repo");
    }
    jwrite_text(&u->body, "url", p->text); /* clients read it of a 409 too */
    jwrite_close(&u->body, '}');
}

static void answer_commit(const struct plan *p, struct upload_reply *u, struct arena *a)
{
    struct slice id = slice_of(u->etag + 1, HUB_COMMIT_HEX);

    u->status = 200;
    buf_clear(&u->body);
    jwrite_open(&u->body, NULL, '{');
    jwrite_bool(&u->body, "success", true);
    jwrite_text(&u->body, "commitOid", id);
    jwrite_text(&u->body, "commitUrl",
                arena_fmt(a, SLICE_FMT "/commit/" SLICE_FMT, SLICE_ARG(p->text), SLICE_ARG(id)));
    jwrite_close(&u->body, '}');
}

void hub_put_answer(const struct repo *r, const struct plan *p, struct upload_reply *u,
                    struct arena *a, struct http_reply *reply)
{
    bool good = u->status == 200 || u->status == 201;

    (void)r;
    if (!slice_eqs(p->variant, "hub")) {
        return;
    }
    if (p->put.kind == PUT_CREATE && (good || u->status == 412)) {
        answer_created(p, u);
    } else if ((p->put.kind == PUT_OFFER && p->put.objects == NULL) || p->put.kind == PUT_PIECE ||
               p->put.kind == PUT_PIECE_KNOWN || p->put.kind == PUT_ASSEMBLE) {
        hub_chunks_answer(p, u);
    } else if (p->put.kind == PUT_OFFER && good) {
        hub_objects_answer(p, u);
    } else if (p->put.kind == PUT_REF_ADD || p->put.kind == PUT_REF_DROP ||
               p->put.kind == PUT_SQUASH || p->put.kind == PUT_TREE_MOVE ||
               p->put.kind == PUT_TREE_DROP) {
        hub_names_answer(p, u, reply);
    } else if (p->put.kind == PUT_TREE_COPY) {
        hub_copies_answer(p, u, reply);
    } else if (p->put.kind == PUT_CHANGES && good) {
        answer_commit(p, u, a);
    } else if (p->put.kind == PUT_CHANGES && u->status == 404) {
        reply_add(reply, SLICE("x-error-code"), SLICE("EntryNotFound"));
    }
}
