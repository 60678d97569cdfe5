/* hub_name.c - what changes names, in the Hub's words: branches and tags; moving and deleting a repository. */
#include "server/repo/hosted/hosted.h"
#include "server/repo/hosted/hub.h"

/* --- what names there may be -------------------------------------------------------------------------------------- */

bool hub_take_type(struct hub_ask *k, const json_t *o)
{
    const json_t *said = json_object_get(o, "type");
    struct slice singular = jread_text(o, "type");

    if (said == NULL || json_is_null(said) || slice_eqs(singular, "model")) {
        k->at.type = SLICE("models");
    } else if (slice_eqs(singular, "dataset")) {
        k->at.type = SLICE("datasets");
    } else if (slice_eqs(singular, "space")) {
        k->at.type = SLICE("spaces");
    } else {
        hub_say(k, 400, NULL,
                SLICE("this mirror's own repositories are models, datasets and spaces"));
        return false;
    }
    return true;
}

/* As owners these would be read as something else. */
static bool is_reserved(struct slice owner)
{
    return slice_eqs(owner, "api") || slice_eqs(owner, "datasets") || slice_eqs(owner, "spaces") ||
           slice_eqs(owner, "kernels") || slice_eqs(owner, "simple"); /* python.h */
}

bool hub_id_free(struct hub_ask *k, struct slice id)
{
    struct slice name = id;
    struct slice owner = slice_cut(&name, '/');

    if (hosted_segment_valid(owner) && hosted_segment_valid(name) && !is_reserved(owner)) {
        return true;
    }
    hub_say(k, 400, NULL,
            SLICE("a repository is called <owner>/<name>: letters, digits, '_', '.', '-'; and api, "
                  "datasets, spaces, kernels, simple own none"));
    return false;
}

static bool ref_good(struct hub_ask *k, struct slice name)
{
    if (ref_name_valid(name)) {
        return true;
    }
    hub_say(k, 400, NULL,
            arena_fmt(k->a,
                      "no name for a branch or tag: \"" SLICE_FMT
                      "\"; none begins with refs/, looks like a commit's id, or holds what git "
                      "forbids, and main is there",
                      SLICE_ARG(name)));
    return false;
}

/* --- branches and tags -------------------------------------------------------------------------------------------- */

static void put_ref(struct hub_ask *k, enum put_kind what, enum ref_kind kind, struct slice name)
{
    hub_put(k, what);
    k->p->put.ref = (struct ref){.kind = kind, .name = name, .message = SLICE("")};
}

static void create_branch(struct hub_ask *k, const json_t *o)
{
    struct slice name = k->at.rev;
    const struct snap *from;

    k->at.rev = jread_text(o, "startingPoint");
    if (k->at.rev.p != NULL) {
        k->at.rev = arena_copy(k->a, k->at.rev); /* a need outlives the body */
    }
    from = hub_version(k);
    if (from == NULL) {
        return;
    }
    if (slice_eqs(name, "main")) {
        hub_say(k, 409, NULL, SLICE("the branch main is always there"));
    } else if (ref_good(k, name)) {
        put_ref(k, PUT_REF_ADD, REF_BRANCH, name);
        k->p->put.ref.seq = from->seq;
    }
}

static void create_tag(struct hub_ask *k, const json_t *o)
{
    struct slice name = jread_text(o, "tag");
    struct slice message = jread_text(o, "message");
    const struct snap *of = hub_version(k);

    if (of == NULL || !ref_good(k, name)) {
        return;
    }
    if (message.n > REF_MESSAGE_MAX) {
        hub_say(k, 413, NULL, SLICE("the message of a tag has at most 2048 bytes"));
        return;
    }
    put_ref(k, PUT_REF_ADD, REF_TAG, arena_copy(k->a, name));
    k->p->put.ref.seq = of->seq;
    k->p->put.ref.message = arena_copy(k->a, message);
}

static void delete_ref(struct hub_ask *k, enum ref_kind kind)
{
    struct slice name = k->at.rev;

    k->at.rev = SLICE_NONE;
    if (hub_version(k) == NULL) {
        return;
    }
    if (slice_eqs(name, "main")) {
        hub_say(k, 403, NULL, SLICE("main cannot be deleted: it is what a repository begins with"));
    } else {
        put_ref(k, PUT_REF_DROP, kind, name);
    }
}

static void plan_ref(struct hub_ask *k, enum ref_kind kind)
{
    json_t *o;

    k->p->right = RIGHT_PUBLISH;
    if (k->req->method == METHOD_DELETE) {
        delete_ref(k, kind);
    } else if (k->req->method != METHOD_POST) {
        plan_method(k->p, SLICE("POST, DELETE"), SLICE("this path takes POST and DELETE\n"));
    } else if ((o = hub_body(k)) != NULL) {
        (kind == REF_BRANCH ? create_branch : create_tag)(k, o);
        json_decref(o);
    }
}

static void squash(struct hub_ask *k, const json_t *o)
{
    struct slice message = jread_text(o, "message");

    if (!hub_branch(k)) {
        return;
    }
    hub_put(k, PUT_SQUASH);
    k->p->put.note.title =
        message.p != NULL ? arena_copy(k->a, message) : SLICE("Super-squash branch");
    if (!note_fits(&k->p->put.note)) {
        hub_say(k, 413, NULL, SLICE("a commit's summary has at most 4096 bytes"));
    }
}

static void plan_squash(struct hub_ask *k)
{
    json_t *o;

    k->p->right = RIGHT_PUBLISH;
    if (k->req->method != METHOD_POST) {
        plan_method(k->p, SLICE("POST"), SLICE("this path takes POST\n"));
    } else if ((o = hub_body(k)) != NULL) {
        squash(k, o);
        json_decref(o);
    }
}

/* --- moving and deleting ------------------------------------------------------------------------------------------ */

static void delete_named(struct hub_ask *k, const json_t *o)
{
    struct slice owner = jread_text(o, "organization");

    if (!hub_take_type(k, o)) {
        return;
    }
    owner = owner.p != NULL ? owner : k->who->name;
    k->at.id = arena_fmt(k->a, SLICE_FMT "/" SLICE_FMT, SLICE_ARG(owner),
                         SLICE_ARG(jread_text(o, "name")));
    k->p->right = RIGHT_PUBLISH;
    hub_name(k);
    if (hub_version(k) != NULL) {
        hub_put(k, PUT_TREE_DROP);
    }
}

static void move_named(struct hub_ask *k, const json_t *o)
{
    struct slice from = jread_text(o, "fromRepo");
    struct slice to = jread_text(o, "toRepo");

    if (!hub_take_type(k, o) || !hub_id_free(k, to)) {
        return;
    }
    k->p->right = RIGHT_PUBLISH;
    k->at.id = arena_copy(k->a, to);
    hub_name(k);
    k->p->also = k->p->subject;
    to = k->tree;
    k->at.id = arena_copy(k->a, from);
    hub_name(k);
    if (hub_version(k) != NULL) {
        hub_put(k, PUT_TREE_MOVE);
        k->p->put.to = to;
    }
}

/* The name, and so the right, is in the body. An old name is none here: what it leads to was not meant. */
static void plan_repo(struct hub_ask *k, enum method method,
                      void (*with)(struct hub_ask *k, const json_t *o))
{
    json_t *o;

    if (k->req->method != method) {
        plan_method(k->p, method == METHOD_POST ? SLICE("POST") : SLICE("DELETE"),
                    SLICE("repositories are moved by POST, deleted by DELETE\n"));
        return;
    }
    if (k->who->token == NULL) {
        hub_say_token(k, "this");
        return;
    }
    k->p->right = RIGHT_KNOWN;
    k->strict = true;
    o = hub_body(k);
    if (o != NULL) {
        with(k, o);
        json_decref(o);
    }
}

bool hub_names(struct hub_ask *k)
{
    struct slice verb = k->at.verb;

    if (slice_eqs(verb, "branch")) {
        plan_ref(k, REF_BRANCH);
    } else if (slice_eqs(verb, "tag")) {
        plan_ref(k, REF_TAG);
    } else if (slice_eqs(verb, "super-squash")) {
        plan_squash(k);
    } else if (slice_eqs(verb, "repos/delete")) {
        plan_repo(k, METHOD_DELETE, delete_named);
    } else if (slice_eqs(verb, "repos/move")) {
        plan_repo(k, METHOD_POST, move_named);
    } else {
        return false;
    }
    return true;
}

void hub_names_answer(const struct plan *p, struct upload_reply *u, struct http_reply *reply)
{
    bool ref = p->put.kind != PUT_TREE_MOVE && p->put.kind != PUT_TREE_DROP;

    if (u->status == 404) {
        reply_add(reply, SLICE("x-error-code"),
                  ref ? SLICE("RevisionNotFound") : SLICE("RepoNotFound"));
    }
}
