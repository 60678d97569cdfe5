/* hub_copy.c - what one repository takes from another without its bytes travelling: all of it (duplicate), or objects that a
 * commit is about to name (lfs-files/duplicate). The caller must be able to read the one and to publish to the other. */
#include <jansson.h>

#include "common/codec/jwrite.h"
#include "server/repo/hosted/hosted.h"
#include "server/repo/hosted/hub.h"

/* May the caller read the tree? False: the plan asks, or says no. Without a right it is as if it were not there. */
static bool may_read(struct hub_ask *k, struct slice tree)
{
    const struct fact *f;

    if (k->r->anonymous_read) {
        return true;
    }
    f = plan_right(k->facts, SLICE("read"),
                   arena_fmt(k->a, "%s/" SLICE_FMT "/", k->r->name, SLICE_ARG(tree)), k->p);
    if (f != NULL && f->rc != 0) {
        hub_say(k, 404, "RepoNotFound",
                arena_fmt(k->a, "no tree " SLICE_FMT " that this token may read in \"%s\"",
                          SLICE_ARG(tree), k->r->name));
    }
    return f != NULL && f->rc == 0;
}

/* The source is there, and readable. Its name in *tree: it may have been asked for by a former one. */
static bool source(struct hub_ask *k, struct slice *tree)
{
    if (!may_read(k, k->tree) || hub_version(k) == NULL) {
        return false;
    }
    *tree = k->tree;
    return may_read(k, k->tree);
}

/* From now on the plan is about the tree that is written to. */
static void become(struct hub_ask *k, struct slice id)
{
    k->at.id = arena_copy(k->a, id);
    hub_name(k);
    k->p->right = RIGHT_PUBLISH;
}

static bool has_token(struct hub_ask *k)
{
    if (k->who->token == NULL) {
        hub_say_token(k, "this");
    }
    return k->who->token != NULL;
}

/* --- a whole repository ------------------------------------------------------------------------------------------- */

static void duplicate(struct hub_ask *k, const json_t *o)
{
    struct slice to = jread_text(o, "repository");
    struct slice visibility = jread_text(o, "visibility");
    struct slice from;

    if (json_object_get(o, "hardware") != NULL || json_object_get(o, "secrets") != NULL ||
        json_object_get(o, "variables") != NULL || json_object_get(o, "volumes") != NULL) {
        hub_say(k, 400, NULL,
                SLICE("this mirror keeps the files of spaces and runs none: duplicate it without "
                      "hardware, secrets, variables and volumes"));
        return;
    }
    if (k->r->anonymous_read && slice_eqs(visibility, "private")) {
        hub_say(k, 400, NULL,
                SLICE("nothing is private here: all of this mirror's repo may be read without a "
                      "token (its configuration says so); duplicate it as public"));
        return;
    }
    if (!hub_id_free(k, to) || !source(k, &from)) {
        return;
    }
    become(k, to);
    to = k->tree;
    hub_put(k, PUT_TREE_COPY); /* p->text: the new tree's address */
    k->p->put.name = from;
    k->p->put.to = to;
}

/* --- objects ------------------------------------------------------------------------------------------------------ */

static bool read_files(struct hub_ask *k, const json_t *list)
{
    struct put_object *out;
    size_t i;
    const json_t *o;

    if (!json_is_array(list) || json_array_size(list) > SHARE_OBJECTS_MAX) {
        return false;
    }
    out = arena_alloc(k->a, (json_array_size(list) + 1) * sizeof *out);
    json_array_foreach(list, i, o)
    {
        out[i].size_bytes = LENGTH_UNKNOWN;
        if (!digest_parse(jread_text(o, "sha256"), &out[i].digest)) {
            return false;
        }
    }
    k->p->put.objects = out;
    k->p->put.objects_count = json_array_size(list);
    return true;
}

static void share(struct hub_ask *k, const json_t *o)
{
    const json_t *target = json_object_get(o, "target");
    struct slice to = jread_text(target, "name");
    struct slice from;

    if (!hub_id_free(k, to) || !source(k, &from)) {
        return;
    }
    if (hub_take_type(k, target)) {
        become(k, to);
        if (hub_version(k) == NULL) {
            return;
        }
        hub_put(k, PUT_OBJECTS_SHARE);
        k->p->put.to = from;
        if (!read_files(k, json_object_get(o, "files"))) {
            hub_say(k, 400, NULL, SLICE("files: a list of {sha256, filename}, of at most 1000"));
        }
    }
}

/* --- both --------------------------------------------------------------------------------------------------------- */

bool hub_copies(struct hub_ask *k)
{
    bool whole = slice_eqs(k->at.verb, "duplicate");
    json_t *o;

    if (!whole && !(slice_eqs(k->at.verb, "lfs-files") && slice_eqs(k->at.path, "duplicate"))) {
        return false;
    }
    k->at.path = SLICE("");
    if (k->req->method != METHOD_POST) {
        plan_method(k->p, SLICE("POST"), SLICE("this path takes POST\n"));
    } else if (has_token(k)) {
        k->p->right = RIGHT_KNOWN; /* what is written to, the body says */
        o = hub_body(k);
        if (o != NULL) {
            (whole ? duplicate : share)(k, o);
            json_decref(o);
        }
    }
    return true;
}

void hub_copies_answer(const struct plan *p, struct upload_reply *u, struct http_reply *reply)
{
    if (p->put.kind != PUT_TREE_COPY) {
        return;
    }
    if (u->status == 404) {
        reply_add(reply, SLICE("x-error-code"), SLICE("RepoNotFound"));
    }
    if (u->status != 200 && u->status != 409) {
        return;
    }
    buf_clear(&u->body);
    jwrite_open(&u->body, NULL, '{');
    if (u->status == 409) {
        jwrite_str(&u->body, "error", "You already created this repo");
    }
    jwrite_text(&u->body, "url", p->text); /* clients read it of a 409 too */
    jwrite_bool(&u->body, "filesCopyPending", false);
    jwrite_close(&u->body, '}');
}
