/* hub_write.c - requests that change a repository, in the Hub's format: create, preupload, LFS
 * batch, commit. */
#include <jansson.h>
#include <stdio.h>

#include "common/codec/jread.h"
#include "common/codec/jwrite.h"
#include "common/hash/git_oid.h"
#include "server/repo/hf/xet.h"
#include "server/repo/hosted/hosted.h"
#include "server/repo/hosted/hub.h"
#include "server/store/blob.h"
#include "server/store/rename.h"

static bool hub_id_free(struct hub_ask *k, struct slice id);
static bool hub_take_type(struct hub_ask *k, const json_t *o);
static bool hub_branch(struct hub_ask *k);

/* --- from one repository to another ---
 *
 * What one repository takes from another without its bytes travelling: all of it (duplicate), or
 * objects that a commit is about to name (lfs-files/duplicate). The caller must be able to read the
 * one and to publish to the other.
 */

/* May the caller read the tree? False: the plan asks, or says no. Without a right it is as if it
 * were not there. */
static bool may_read_tree(struct hub_ask *k, struct slice tree)
{
    const struct result *f;

    if (k->r->anonymous_read) {
        return true;
    }
    f = plan_right(k->results, SLICE("read"),
                   arena_fmt(k->a, "%s/" SLICE_FMT "/", k->r->name, SLICE_ARG(tree)), k->p);
    if (f != NULL && f->rc != 0) {
        hub_say(k, 404, "RepoNotFound",
                arena_fmt(k->a, "no tree " SLICE_FMT " that this token may read in \"%s\"",
                          SLICE_ARG(tree), k->r->name));
    }
    return f != NULL && f->rc == 0;
}

/* The source is there, and readable. Its name in *tree: it may have been asked for by a former
 * one. */
static bool source(struct hub_ask *k, struct slice *tree)
{
    if (!may_read_tree(k, k->tree) || hub_version(k) == NULL) {
        return false;
    }
    *tree = k->tree;
    return may_read_tree(k, k->tree);
}

/* From now on the plan is about the tree that is written to. */
static void set_commit_target(struct hub_ask *k, struct slice id)
{
    k->at.id = arena_copy(k->a, id);
    hub_name(k);
    k->p->right = RIGHT_PUBLISH;
}

static void say_token(struct hub_ask *k, const char *what)
{
    hub_say(k, 401, NULL,
            arena_fmt(k->a,
                      "%s requires a token; ask this mirror's operator for one with scope "
                      "publish:%s/OWNER/* (`mirrorctl token create`)",
                      what, k->r->name));
}

static bool has_token(struct hub_ask *k)
{
    if (k->who->token == NULL) {
        say_token(k, "this");
    }
    return k->who->token != NULL;
}

/* --- a whole repository ----------------------------------------------------------------------- */

static void duplicate(struct hub_ask *k, const json_t *o)
{
    struct slice to = jread_text(o, "repository");
    struct slice visibility = jread_text(o, "visibility");
    struct slice from;

    if (json_object_get(o, "hardware") != NULL || json_object_get(o, "secrets") != NULL ||
        json_object_get(o, "variables") != NULL || json_object_get(o, "volumes") != NULL) {
        hub_say(k, 400, NULL,
                SLICE("this mirror stores the files of spaces and does not run them; duplicate it "
                      "without hardware, secrets, variables and volumes"));
        return;
    }
    if (k->r->anonymous_read && slice_eqs(visibility, "private")) {
        hub_say(k, 400, NULL,
                SLICE("private repositories are not possible here: the configuration lets "
                      "everybody read this repo without a token; duplicate it as public"));
        return;
    }
    if (!hub_id_free(k, to) || !source(k, &from)) {
        return;
    }
    set_commit_target(k, to);
    to = k->tree;
    hub_put(k, PUT_TREE_COPY); /* p->text: the new tree's address */
    k->p->put.name = from;
    k->p->put.to = to;
}

/* --- objects ---------------------------------------------------------------------------------- */

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

static void share_hub_objects(struct hub_ask *k, const json_t *o)
{
    const json_t *target = json_object_get(o, "target");
    struct slice to = jread_text(target, "name");
    struct slice from;

    if (!hub_id_free(k, to) || !source(k, &from)) {
        return;
    }
    if (hub_take_type(k, target)) {
        set_commit_target(k, to);
        if (hub_version(k) == NULL) {
            return;
        }
        hub_put(k, PUT_OBJECTS_SHARE);
        k->p->put.to = from;
        if (!read_files(k, json_object_get(o, "files"))) {
            hub_say(k, 400, NULL,
                    SLICE("invalid body: files must be a list of at most 1000 {sha256, filename}"));
        }
    }
}

/* --- both ------------------------------------------------------------------------------------- */

/* the same */
static bool hub_copies(struct hub_ask *k)
{
    bool whole = slice_eqs(k->at.verb, "duplicate");
    json_t *o;

    if (!whole && !(slice_eqs(k->at.verb, "lfs-files") && slice_eqs(k->at.path, "duplicate"))) {
        return false;
    }
    k->at.path = SLICE("");
    if (k->req->method != METHOD_POST) {
        plan_method(k->p, SLICE("POST"), SLICE("this path accepts POST only\n"));
    } else if (has_token(k)) {
        k->p->right = RIGHT_KNOWN; /* what is written to, the body says */
        o = hub_body(k);
        if (o != NULL) {
            (whole ? duplicate : share_hub_objects)(k, o);
            json_decref(o);
        }
    }
    return true;
}

static void hub_copies_answer(const struct plan *p, struct upload_reply *u,
                              struct http_reply *reply)
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

/* --- preupload ---
 *
 * The answer that a client gets before it sends files: how to send each, and what the tree has
 * under that name, so that it omits files that have not changed. LFS files are compared by SHA-256,
 * the others by git's name for their bytes, which the tree does not keep: it is made of those that
 * have the announced size, within a bound.
 */

enum { FILES_MAX = 4096, HASH_BYTES = 256 << 20 };

struct file {
    struct slice path;
    uint64_t size_bytes;
};

static bool read_pushed_file(const json_t *o, struct file *out)
{
    out->path = jread_text(o, "path");
    return out->path.p != NULL && jread_u64(o, "size", &out->size_bytes);
}

/* Before the commit: what is long, and, as on the Hub, the files that datasets writes: it throws
 * its own away as soon as they were brought, however small, and does not have them any more when it
 * commits. */
static bool comes_before(const struct file *f)
{
    return f->size_bytes > HUB_REGULAR_BYTES ||
           (f->size_bytes != 0 &&
            (slice_ends(f->path, SLICE(".parquet")) || slice_ends(f->path, SLICE(".arrow"))));
}

/* one of them comes before the commit */
static bool hub_modes_large(struct slice body)
{
    json_t *o = jread_parse(body, JSON_REJECT_DUPLICATES, HUB_BODY_VALUES);
    const json_t *files = json_object_get(o, "files");
    bool large = false;
    size_t i;
    const json_t *one;
    struct file f;

    json_array_foreach(files, i, one)
    {
        large = large || (read_pushed_file(one, &f) && comes_before(&f));
    }
    json_decref(o);
    return large;
}

/* What git would call the file. */
static int git_name(struct store *s, const struct entry *en, char out[GIT_OID_HEX + 1],
                    struct err *e)
{
    struct blob *blob = NULL;
    struct git_oid oid;
    int rc = blob_open(s, &en->digest, &blob, e);

    rc = rc != 0 ? rc : blob_git_oid(blob, &oid, e);
    if (rc == 0) {
        git_oid_format(&oid, out);
    }
    blob_release(&blob);
    return rc;
}

/* *left: bytes that may still be hashed for this answer. "" : it has changed, or is new, or nobody
 * knows. */
static int name_of_pushed_file(struct store *s, const struct plan *p, const struct file *f,
                               uint64_t *left, char out[DIGEST_HEX + 1], struct err *e)
{
    struct arena a = {0};
    struct entry en;
    int rc =
        tree_path_valid(f->path) ? tree_get(s, &p->snap.root, f->path, &a, &en, e) : E_NOTFOUND;

    out[0] = '\0';
    if (rc == 0 && en.type == ENTRY_FILE && en.size_bytes == f->size_bytes) {
        if (comes_before(f)) {
            digest_format(&en.digest, out);
        } else if (en.size_bytes <= *left) {
            *left -= en.size_bytes;
            rc = git_name(s, &en, out, e);
        }
    }
    arena_fini(&a);
    return rc == E_NOTFOUND || rc == E_CORRUPT ? 0 : rc;
}

static int write_pushed_file(struct store *s, const struct plan *p, const struct file *f,
                             uint64_t *left, struct buf *out, struct err *e)
{
    char oid[DIGEST_HEX + 1];
    int rc = name_of_pushed_file(s, p, f, left, oid, e);

    jwrite_open(out, NULL, '{');
    jwrite_text(out, "path", f->path);
    jwrite_str(out, "uploadMode", comes_before(f) ? "lfs" : "regular");
    jwrite_bool(out, "shouldIgnore", false);
    if (oid[0] != '\0') {
        jwrite_str(out, "oid", oid);
    } else {
        jwrite_null(out, "oid");
    }
    jwrite_close(out, '}');
    return rc;
}

int hub_modes(struct store *s, const struct plan *p, struct buf *out, struct err *e)
{
    json_t *o = jread_parse(p->text, JSON_REJECT_DUPLICATES, HUB_BODY_VALUES);
    const json_t *files = json_object_get(o, "files");
    uint64_t left = HASH_BYTES;
    struct file f;
    size_t i;
    const json_t *one;
    int rc = json_is_array(files) && json_array_size(files) <= FILES_MAX ? 0 : E_INVALID;

    jwrite_open(out, NULL, '{');
    jwrite_open(out, "files", '[');
    json_array_foreach(files, i, one)
    {
        rc = rc == 0 && !read_pushed_file(one, &f) ? E_INVALID : rc;
        rc = rc != 0 ? rc : write_pushed_file(s, p, &f, &left, out, e);
    }
    jwrite_close(out, ']');
    jwrite_close(out, '}');
    json_decref(o);
    return rc == E_INVALID
               ? err_set(e, rc, "invalid body: files must be a list of at most 4096 {path, size}")
               : rc;
}

/* --- branches, tags; moving and deleting ---
 *
 * What changes names, in the Hub's words: branches and tags; moving and deleting a repository.
 */

/* --- what names there may be ------------------------------------------------------------------ */

/* o's "type": model (or none), dataset, space. Sets at.type. False: another, the plan says so. */
static bool hub_take_type(struct hub_ask *k, const json_t *o)
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
        hub_say(k, 400, NULL, SLICE("hosted repositories are models, datasets and spaces"));
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

/* A repository may be called so; else the plan says what may. */
static bool hub_id_free(struct hub_ask *k, struct slice id)
{
    struct slice name = id;
    struct slice owner = slice_cut(&name, '/');

    if (hosted_segment_valid(owner) && hosted_segment_valid(name) && !is_reserved(owner)) {
        return true;
    }
    hub_say(
        k, 400, NULL,
        SLICE("invalid name of a repository: it is <owner>/<name>, with letters, digits, '_', '.' "
              "and '-', and the owners api, datasets, spaces, kernels and simple are reserved"));
    return false;
}

static bool ref_good(struct hub_ask *k, struct slice name)
{
    if (ref_name_valid(name)) {
        return true;
    }
    hub_say(k, 400, NULL,
            arena_fmt(k->a,
                      "invalid name of a branch or tag: \"" SLICE_FMT
                      "\"; it must not begin with refs/, look like a commit's id, or have "
                      "characters that git forbids, and main always exists",
                      SLICE_ARG(name)));
    return false;
}

/* --- branches and tags ------------------------------------------------------------------------ */

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
        hub_say(k, 409, NULL, SLICE("the branch main always exists"));
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
        hub_say(k, 403, NULL, SLICE("the branch main cannot be deleted: every repository has it"));
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
        plan_method(k->p, SLICE("POST, DELETE"), SLICE("this path accepts POST and DELETE only\n"));
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
        plan_method(k->p, SLICE("POST"), SLICE("this path accepts POST only\n"));
    } else if ((o = hub_body(k)) != NULL) {
        squash(k, o);
        json_decref(o);
    }
}

/* --- moving and deleting ---------------------------------------------------------------------- */

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

/* The name, and so the right, is in the body. An old name is none here: what it leads to was not
 * meant. */
static void plan_repo(struct hub_ask *k, enum method method,
                      void (*with)(struct hub_ask *k, const json_t *o))
{
    json_t *o;

    if (k->req->method != method) {
        plan_method(
            k->p, method == METHOD_POST ? SLICE("POST") : SLICE("DELETE"),
            SLICE("method not allowed: move repositories with POST, delete them with DELETE\n"));
        return;
    }
    if (k->who->token == NULL) {
        say_token(k, "this");
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

/* hub_write() of its own verbs; false: another's */
static bool hub_names(struct hub_ask *k)
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

static void hub_names_answer(const struct plan *p, struct upload_reply *u, struct http_reply *reply)
{
    bool ref = p->put.kind != PUT_TREE_MOVE && p->put.kind != PUT_TREE_DROP;

    if (u->status == 404) {
        reply_add(reply, SLICE("x-error-code"),
                  ref ? SLICE("RevisionNotFound") : SLICE("RepoNotFound"));
    }
}

enum { KEY_BYTES = 8192 };

json_t *hub_body(struct hub_ask *k)
{
    const struct result *f = plan_request_body(k->results, k->p);
    json_t *o;

    if (f == NULL) {
        return NULL;
    }
    if (f->rc != 0) {
        hub_say(k, 413, NULL, SLICE("the request is larger than 1 MiB; split it"));
        return NULL;
    }
    o = jread_parse(f->bytes, JSON_REJECT_DUPLICATES, HUB_BODY_VALUES);
    if (!json_is_object(o)) {
        json_decref(o);
        hub_say(k, 400, NULL, SLICE("the body is not a JSON object"));
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

/* --- create ----------------------------------------------------------------------------------- */

/* What cannot be kept is refused, not forgotten. */
static const char *create_refusal(const struct hub_ask *k, const json_t *o)
{
    struct slice visibility = jread_text(o, "visibility");

    if (k->r->anonymous_read &&
        (json_is_true(json_object_get(o, "private")) || slice_eqs(visibility, "private"))) {
        return "private repositories are not possible here: the configuration lets everybody read "
               "this repo without a token; create it as public, or ask for a repo with access { "
               "anonymous = none }";
    }
    return NULL;
}

/* `hf upload` asks for a new repository each time, and goes on with the url of a 409. A name that a
 * tree had means that tree; made anew, it would cut the old name off, and the files would go where
 * nobody looks for them. */
static bool is_moved(struct hub_ask *k)
{
    struct buf key = BUF_INIT(KEY_BYTES), body = BUF_INIT(3 * KEY_BYTES);
    const struct result *f;

    rename_key(&key, slice_str(k->r->name), k->tree);
    f = plan_row(k->results, TABLE_MOVED, arena_copy(k->a, buf_slice(&key)), k->p);
    buf_free(&key);
    if (f == NULL || f->rc != 0) {
        return f == NULL; /* it is being looked up */
    }
    jwrite_open(&body, NULL, '{');
    jwrite_text(&body, "error",
                arena_fmt(k->a,
                          SLICE_FMT " was renamed to " SLICE_FMT
                                    "; use that name. To reuse the old name, create a repository "
                                    "under another name and move it there",
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
        say_token(k, "creating");
        return;
    }
    k->p->right = RIGHT_KNOWN; /* the name, and so the right, is in the body */
    o = hub_body(k);
    if (o != NULL) {
        create_named(k, o);
        json_decref(o);
    }
}

/* --- preupload -------------------------------------------------------------------------------- */

/* How each file is to come, and whether it has changed: made of the tree. */
static void plan_preupload(struct hub_ask *k)
{
    const struct snap *sn = hub_version(k);
    const struct result *body = sn != NULL ? plan_request_body(k->results, k->p) : NULL;

    if (body == NULL) {
        return;
    }
    if (body->rc != 0) {
        hub_say(k, 413, NULL, SLICE("the request is larger than 1 MiB; split it"));
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
                   SLICE("upload; this mirror accepts files of more than 8 MiB by LFS, not by Xet: "
                         "if hf_xet is installed, set HF_HUB_DISABLE_XET=1"));
    }
}

/* --- LFS batch -------------------------------------------------------------------------------- */

static bool read_objects(struct hub_ask *k, const json_t *list)
{
    struct put_object *out;
    size_t i;
    const json_t *o;

    if (!json_is_array(list) || json_array_size(list) > UPLOAD_GRANT_OBJECTS_MAX) {
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

/* What leads to them carries the caller's own credential: LFS clients send none by themselves.
 * Those who may publish also see what was brought, and no commit names yet. */
static void batch_out(struct hub_ask *k)
{
    const struct result *publisher =
        k->who->token != NULL ? plan_right(k->results, SLICE("publish"), k->p->subject, k->p)
                              : NULL;

    if (k->who->token != NULL && publisher == NULL) {
        return;
    }
    plan_become(k->p, PLAN_LIST);
    k->p->expand = publisher != NULL && publisher->rc == 0;
    k->p->uploads_tree = k->p->expand ? k->tree : SLICE_NONE;
    k->p->form = LIST_HUB_OBJECTS;
    k->p->posted = true;
    /* It tells what uploads have brought that no version has yet, and carries the caller's
     * credential. */
    k->p->reuse = REUSE_ALONE;
    k->p->name = k->tree;
    k->p->entry.path = SLICE("");
    k->p->text = plan_request_body(k->results, k->p)->bytes;
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
        hub_say(k, 422, NULL, SLICE("invalid operation: it must be \"upload\" or \"download\""));
        return;
    }
    if (!hub_branch(k)) {
        return;
    }
    hub_put(k, PUT_UPLOAD_GRANT);
    if (!read_objects(k, json_object_get(o, "objects"))) {
        hub_say(k, 422, NULL,
                SLICE("invalid body: objects must be a list of at most 256 {oid: sha256, size}"));
    }
}

/* --- commit ----------------------------------------------------------------------------------- */

static void plan_commit(struct hub_ask *k)
{
    hub_put(k, PUT_CHANGES);
    k->p->reader = &hub_commit_reader;
}

/* --- all of them ------------------------------------------------------------------------------ */

/* The branch that a revision names, for a put; false: it is none, or not yet known. */
static bool hub_branch(struct hub_ask *k)
{
    struct slice rev = k->at.rev;
    const struct result *f;

    if (hub_query(k->req->query, "create_pr", SLICE("1"))) {
        hub_say(k, 400, NULL, SLICE("pull requests are not supported here; commit to a branch"));
        return false;
    }
    if (hub_version(k) == NULL) {
        return false;
    }
    if (rev.p == NULL || slice_eqs(rev, "main")) {
        return true;
    }
    f = plan_head(k->results, k->tree, arena_fmt(k->a, "refs/heads/" SLICE_FMT, SLICE_ARG(rev)),
                  k->p);
    if (f != NULL && f->rc != 0) {
        hub_say(k, 404, "RevisionNotFound",
                arena_fmt(k->a,
                          "commits must go to a branch, and \"" SLICE_FMT "\" is not a branch",
                          SLICE_ARG(rev)));
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
        plan_method(k->p, SLICE("POST"), SLICE("this path accepts POST only\n"));
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
                SLICE("not supported here: hosted repositories have files, branches and tags, but "
                      "no pull requests and no settings"));
    }
}

/* --- answers ---------------------------------------------------------------------------------- */

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

/* The answer to what comes by Xet's protocol. */
static void chunks_answer(const struct plan *p, struct upload_reply *u)
{
    struct slice credential = p->text;
    struct slice store = slice_cut(&credential, ' ');
    char at[4096];

    if (u->status != 200) {
        return;
    }
    buf_clear(&u->body);
    if (p->put.kind == PUT_PIECE_KNOWN) {
        buf_str(&u->body, "{}");
    } else if (p->put.kind == PUT_PIECE) {
        buf_str(&u->body, "{\"was_inserted\":true}");
    } else if (p->put.kind == PUT_ASSEMBLE) {
        buf_str(&u->body, "{\"result\":1}");
    } else {
        int n = snprintf(at, sizeof at, SLICE_FMT "%s", SLICE_ARG(store), u->upload);
        xet_token_json(slice_of(at, (size_t)min_u64((uint64_t)n, sizeof at - 1)), credential,
                       u->until_unix_s, &u->body);
    }
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
    } else if ((p->put.kind == PUT_UPLOAD_GRANT && p->put.objects == NULL) ||
               p->put.kind == PUT_PIECE || p->put.kind == PUT_PIECE_KNOWN ||
               p->put.kind == PUT_ASSEMBLE) {
        chunks_answer(p, u);
    } else if (p->put.kind == PUT_UPLOAD_GRANT && good) {
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
