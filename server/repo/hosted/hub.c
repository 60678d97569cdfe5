#include "server/repo/hosted/hub.h"

#include <stdio.h>

#include "common/codec/url.h"
#include "common/os/clock.h"
#include "server/repo/hf/xet.h"
#include "server/repo/hf/xorb.h"
#include "server/repo/hosted/assemble.h"
#include "server/repo/hosted/python.h"
#include "server/store/keep.h"
#include "server/store/rename.h"
#include "server/store/row.h"

/* --- files by Xet's protocol ---
 *
 * Files of hosted trees by Xet's protocol: out (repo/hf/xet.h), the blobs themselves, framed as
 * they leave; and in (repo/hosted/assemble.h), xorbs and shards that belong to one offer.
 *
 * The address of the store that a client brings its xorbs to is the offer's own, so what it
 * remembers of chunks that it has brought before, by address, never reaches beyond what is still
 * here. A tree has the same one for half a day: an upload that is broken off and begun again, or
 * changed a little, brings the rest.
 */

static struct xet_place xet_place_of_commit(const struct hub_ask *k, struct slice commit)
{
    return (struct xet_place){.home = plan_home(k->r, k->req, k->path, k->a),
                              .type = k->at.type,
                              .id = k->at.id,
                              .commit = commit};
}

static void hub_announce(struct hub_ask *k, const struct entry *en)
{
    if (en->size_bytes >= k->r->xet_from_bytes) {
        struct xet_place at = xet_place_of_commit(k, slice_str(k->commit));
        xet_announce(&at, &en->digest, k->a, k->p);
    }
}

static void hub_token(struct hub_ask *k)
{
    if (k->r->xet_from_bytes == UINT64_MAX) {
        hub_say(k, 404, NULL,
                SLICE("the Xet store of this mirror is disabled; fetch files over HTTP"));
    } else if (hub_version(k) != NULL) {
        struct xet_place at = xet_place_of_commit(k, slice_str(k->commit));
        xet_token(&at, http_req_field(k->req, "authorization"), clock_unix_s(), k->a, k->p);
    }
}

/* A right to the tree is one to what any kept version of it holds. False: the plan says what is
 * missing. */
bool hub_held(struct hub_ask *k, const struct digest *d, struct slice upload, struct entry *out)
{
    struct buf key = BUF_INIT(4096);
    const struct result *held;
    const struct result *row;
    struct blob_row b;
    struct err e;

    holder_key(&key, d, slice_str(k->r->name), upload.n != 0 ? 'u' : 't',
               upload.n != 0 ? upload : k->tree);
    held = plan_row(k->results, TABLE_HOLDER, arena_copy(k->a, buf_slice(&key)), k->p);
    buf_free(&key);
    row = held == NULL || held->rc != 0
              ? held
              : plan_row(k->results, TABLE_BLOB,
                         arena_copy(k->a, slice_of((const char *)d->b, DIGEST_BYTES)), k->p);
    if (row == NULL) {
        return false;
    }
    if (row->rc != 0 || blob_row_decode(row->bytes, &b, &e) != 0) {
        hub_say(k, 404, "EntryNotFound",
                arena_fmt(k->a, "no such file in " SLICE_FMT, SLICE_ARG(k->at.id)));
        return false;
    }
    *out = (struct entry){
        .path = SLICE(""), .type = ENTRY_FILE, .digest = *d, .size_bytes = b.size_bytes};
    return true;
}

static bool use_key(struct hub_ask *k, const struct digest *d)
{
    struct xet_place at = xet_place_of_commit(k, k->at.rev);
    struct slice credential;
    enum xet_key key = xet_key_open(k->r, &at, d, k->req->query, clock_unix_s(), k->a, &credential);

    if (key == XET_KEY_BAD) {
        hub_say(k, 403, NULL, SLICE("this address is no longer valid; request a new one"));
    }
    if (key != XET_KEY_GOOD) {
        return key == XET_KEY_NONE;
    }
    k->p->right = RIGHT_KNOWN;
    return true;
}

static void answer_hub_terms(struct hub_ask *k, const struct entry *en)
{
    struct xet_place at = xet_place_of_commit(k, k->at.rev);
    struct slice key = SLICE_NONE;

    if (!k->r->anonymous_read) {
        key = xet_key_seal(k->r, &at, &en->digest, SLICE(""), clock_unix_s(), k->a);
    }
    xet_terms(&at, k->req, &en->digest, en->size_bytes, key, k->a, k->p);
}

static void answer_hub_data(struct hub_ask *k, const struct entry *en)
{
    char hex[DIGEST_HEX + 1];

    digest_format(&en->digest, hex);
    plan_become(k->p, PLAN_BLOB);
    k->p->entry = *en;
    k->p->framing = &xorb_framing;
    k->p->etag = arena_fmt(k->a, "\"xorb-%s\"", hex);
    k->p->cache_control = k->r->anonymous_read ? SLICE("no-cache") : SLICE("private, no-cache");
}

/* whatever HF_XET_STORE asks for */
static void hub_store(struct hub_ask *k)
{
    struct entry en;
    struct digest d;
    enum xet_ask ask = xet_path_parse(k->at.path, &d);

    if (ask == XET_ASK_NONE || !hf_is_commit(k->at.rev)) {
        hub_say(k, 404, NULL,
                SLICE("no such path in this Xet store; it has reconstructions (v1) and data"));
    } else if ((ask == XET_ASK_DATA && !use_key(k, &d)) || !hub_held(k, &d, SLICE(""), &en)) {
        return;
    } else if (ask == XET_ASK_TERMS) {
        answer_hub_terms(k, &en);
    } else {
        answer_hub_data(k, &en);
    }
}

/* --- in --------------------------------------------------------------------------------------- */

void hub_write_token(struct hub_ask *k)
{
    struct xet_place at = xet_place_of_commit(k, SLICE(""));
    struct slice credential = xet_credential(http_req_field(k->req, "authorization"));

    if (k->r->xet_from_bytes == UINT64_MAX) {
        hub_say(
            k, 404, NULL,
            SLICE("the Xet store of this mirror is disabled; set HF_HUB_DISABLE_XET=1 to upload"));
        return;
    }
    hub_put(k, PUT_UPLOAD_GRANT);
    k->p->put.again = true;
    k->p->text =
        arena_fmt(k->a, SLICE_FMT "/api/" SLICE_FMT "/" SLICE_FMT "/xet-put/ " SLICE_FMT,
                  SLICE_ARG(at.home), SLICE_ARG(at.type), SLICE_ARG(at.id), SLICE_ARG(credential));
}

static bool is_hash(struct slice s)
{
    struct digest d;
    return digest_parse(s, &d);
}

/* "<what>/default/<hash>": the hash; p == NULL: it is another path. */
static struct slice hash_behind(struct slice path, struct slice what)
{
    struct slice hash = slice_starts(path, what) ? slice_from(path, what.n) : SLICE_NONE;

    return is_hash(hash) ? hash : SLICE_NONE;
}

/* hf_xet before 1.5 says no "v1", 1.0 "xorb" and "shard". */
static enum put_kind kind_of(struct slice path, struct slice *xorb)
{
    path = slice_starts(path, SLICE("v1/")) ? slice_from(path, 3) : path;
    *xorb = hash_behind(path, SLICE("xorbs/default/"));
    *xorb = xorb->p != NULL ? *xorb : hash_behind(path, SLICE("xorb/default/"));
    if (xorb->p != NULL) {
        return PUT_PIECE;
    }
    *xorb = hash_behind(path, SLICE("xorb-grants/default/"));
    if (xorb->p != NULL) {
        return PUT_PIECE_KNOWN;
    }
    return slice_eqs(path, "shards") || hash_behind(path, SLICE("shard/default/")).p != NULL
               ? PUT_ASSEMBLE
               : PUT_FILE; /* none of these */
}

/* Newer clients ask for leave before they bring a xorb: a yes says that it is here already, after a
 * 404 they bring it. They ask for more ("v1/chunks/", "v2/shards"), and do without. */
static void hub_chunks_put(struct hub_ask *k)
{
    struct slice xorb;
    enum put_kind kind = kind_of(k->at.path, &xorb);

    k->p->right = RIGHT_PUBLISH;
    if (kind == PUT_FILE) {
        hub_say(k, 404, NULL,
                SLICE("no such path in this Xet store; it accepts v1/xorbs and v1/shards"));
    } else if (k->req->method != METHOD_POST) {
        plan_method(k->p, SLICE("POST"), SLICE("this path accepts POST only\n"));
    } else {
        hub_put(k, kind);
        k->p->put.assembler = &xet_assembler;
        k->p->put.upload_id = k->at.rev;
        k->p->put.path =
            xorb.p != NULL ? arena_fmt(k->a, XORB_PATH SLICE_FMT, SLICE_ARG(xorb)) : SLICE("");
    }
}

enum { SAY_BYTES = 4096 };

/* --- saying ----------------------------------------------------------------------------------- */

void hub_say_json(struct hub_ask *k, struct slice json)
{
    plan_reply(k->p, 200, json);
    k->p->content_type = SLICE("application/json; charset=utf-8");
    plan_field(k->p, SLICE("cache-control"), SLICE("no-store"));
}

/* X-Error-Code beats the status in clients, and over plain http they need it. */
void hub_say(struct hub_ask *k, int status, const char *code, struct slice message)
{
    struct buf body = BUF_INIT(2 * SAY_BYTES);

    message = plan_line(message, k->a);
    jwrite_open(&body, NULL, '{');
    jwrite_text(&body, "error", message);
    if (slice_eqs(k->at.verb, "lfs-batch")) { /* git-lfs prints this one */
        jwrite_text(&body, "message", message);
    }
    jwrite_close(&body, '}');
    hub_say_json(k, arena_copy(k->a, buf_slice(&body)));
    buf_free(&body);
    k->p->status = status;
    if (code != NULL) {
        plan_field(k->p, SLICE("x-error-code"), slice_str(code));
    }
    plan_field(k->p, SLICE("x-error-message"), message);
}

void hub_failed(const struct repo *r, const struct plan *p, int status, struct slice why,
                struct arena *a, struct http_reply *reply)
{
    (void)r;
    if (!slice_eqs(p->variant, "hub")) {
        return;
    }
    if (status == 404) {
        reply_add(reply, SLICE("x-error-code"), SLICE("EntryNotFound"));
    } else if ((status == 401 || status == 403) && p->right == RIGHT_READ) {
        /* Of a HEAD without a code clients believe that the network is down. */
        reply_add(reply, SLICE("x-error-code"), SLICE("GatedRepo"));
    }
    reply_add(reply, SLICE("x-error-message"), plan_line(why, a));
}

bool hub_query(struct slice query, const char *name, struct slice wanted)
{
    while (query.n != 0) {
        struct slice value = slice_cut(&query, '&');
        if (slice_eqs(slice_cut(&value, '='), name) && slice_ieq(value, wanted)) {
            return true;
        }
    }
    return false;
}

/* --- versions --------------------------------------------------------------------------------- */

void hub_commit_id(const struct digest *root, char out[HUB_COMMIT_HEX + 1])
{
    char hex[DIGEST_HEX + 1];

    digest_format(root, hex);
    memcpy(out, hex, HUB_COMMIT_HEX);
    out[HUB_COMMIT_HEX] = '\0';
}

struct slice hub_tree(struct slice type, struct slice id, struct arena *a)
{
    return slice_eqs(type, "models")
               ? arena_copy(a, id)
               : arena_fmt(a, SLICE_FMT "/" SLICE_FMT, SLICE_ARG(type), SLICE_ARG(id));
}

void hub_name(struct hub_ask *k)
{
    k->tree = hub_tree(k->at.type, k->at.id, k->a);
    k->p->subject = arena_fmt(k->a, "%s/" SLICE_FMT "/", k->r->name, SLICE_ARG(k->tree));
}

struct slice hub_cut_type(struct slice *tree)
{
    struct slice kind = hosted_cut_kind(tree);

    return kind.n == 0 ? SLICE("models") : slice_first(kind, kind.n - 1);
}

static bool is_live(struct slice rev)
{
    return rev.p == NULL || slice_eqs(rev, "main") || slice_eqs(rev, "HEAD") ||
           slice_eqs(rev, "refs/heads/main");
}

static const struct result *no_tree(struct hub_ask *k)
{
    hub_say(k, 404, "RepoNotFound",
            arena_fmt(k->a, "no tree " SLICE_FMT " in this mirror's \"%s\"", SLICE_ARG(k->tree),
                      k->r->name));
    return NULL;
}

/* As a Hub does it: relative, with all of the path. The id stands in the raw path as it is. */
static void lead_to(struct hub_ask *k, struct slice id)
{
    struct slice path = k->req->path;
    size_t before = path.n - k->path.n + (size_t)(k->at.id.p - k->path.p);

    plan_redirect(k->p, arena_fmt(k->a, SLICE_FMT SLICE_FMT SLICE_FMT "%s" SLICE_FMT,
                                  SLICE_ARG(slice_first(path, before)), SLICE_ARG(id),
                                  SLICE_ARG(slice_from(path, before + k->at.id.n)),
                                  k->req->query.n != 0 ? "?" : "", SLICE_ARG(k->req->query)));
    k->p->status = 307;
}

/* The tree's head. It may have had another name: readers are led to the new one, writers, whose
 * bodies cannot be sent twice, write there. NULL: the plan has become something else. */
static const struct result *head_of(struct hub_ask *k)
{
    const struct result *live = plan_head(k->results, k->tree, SLICE(""), k->p);
    const struct result *moved;
    struct buf key = BUF_INIT(8192);
    struct slice now;

    if (python_owns(k->tree)) { /* its name says what it is: none of a Hub's moves or drops it */
        return no_tree(k);
    }
    if (live == NULL || live->rc == 0 || k->strict) {
        return live == NULL || live->rc == 0 ? live : no_tree(k);
    }
    rename_key(&key, slice_str(k->r->name), k->tree);
    moved = plan_row(k->results, TABLE_MOVED, arena_copy(k->a, buf_slice(&key)), k->p);
    buf_free(&key);
    if (moved == NULL || moved->rc != 0) {
        return moved == NULL ? NULL : no_tree(k);
    }
    now = moved->bytes;
    (void)hub_cut_type(&now);
    if (k->req->method == METHOD_GET || k->req->method == METHOD_HEAD) {
        lead_to(k, now);
        return NULL;
    }
    k->at.id = now;
    hub_name(k);
    live = plan_head(k->results, k->tree, SLICE(""), k->p);
    return live == NULL || live->rc == 0 ? live : no_tree(k);
}

static bool is_number(struct slice rev)
{
    uint64_t seq;

    return rev.n > 1 && rev.p[0] == 'v' && slice_u64(slice_from(rev, 1), &seq);
}

/* A tag called "v1" is what people give: here it goes before the version of that number. NULL: the
 * plan asks. */
static const struct result *revision(struct hub_ask *k)
{
    struct slice rev = k->at.rev;

    if (is_number(rev)) {
        const struct result *f = plan_head(
            k->results, k->tree, arena_fmt(k->a, "refs/" SLICE_FMT, SLICE_ARG(rev)), k->p);
        if (f == NULL || f->rc == 0) {
            return f;
        }
    }
    return plan_head(k->results, k->tree, rev, k->p);
}

const struct snap *hub_version(struct hub_ask *k)
{
    const struct result *f = head_of(k);
    bool possible = is_live(k->at.rev) || hosted_version_valid(k->at.rev);

    if (f == NULL) {
        return NULL;
    }
    if (!is_live(k->at.rev) && possible) {
        f = revision(k);
        if (f == NULL) {
            return NULL;
        }
    }
    if (!possible || f->rc != 0) {
        hub_say(k, 404, "RevisionNotFound",
                arena_fmt(k->a,
                          "no revision \"" SLICE_FMT "\" of " SLICE_FMT
                          "; a revision is a branch, a tag or a commit",
                          SLICE_ARG(k->at.rev), SLICE_ARG(k->at.id)));
        return NULL;
    }
    hub_commit_id(&f->snap.root, k->commit);
    return &f->snap;
}

/* --- reading ---------------------------------------------------------------------------------- */

static void say_commit(struct hub_ask *k)
{
    plan_field(k->p, SLICE("x-repo-commit"), arena_copy(k->a, slice_str(k->commit)));
}

static void plan_listing(struct hub_ask *k, enum hosted_list form)
{
    const struct snap *sn = hub_version(k);

    if (sn == NULL) {
        return;
    }
    plan_become(k->p, PLAN_LIST);
    k->p->form = (int)form;
    k->p->snap = *sn;
    k->p->name = k->tree;
    k->p->entry.path =
        k->at.path.n == 0 ? SLICE("") : arena_fmt(k->a, SLICE_FMT "/", SLICE_ARG(k->at.path));
    k->p->recursive = hub_query(k->req->query, "recursive", SLICE("true")) ||
                      hub_query(k->req->query, "recursive", SLICE("1")) ||
                      (form == LIST_HUB_INFO && hub_query(k->req->query, "blobs", SLICE("true")));
    k->p->expand = hub_query(k->req->query, "expand", SLICE("true")) ||
                   hub_query(k->req->query, "expand", SLICE("1"));
    k->p->cache_control = SLICE("no-cache");
}

static void plan_hub_paths(struct hub_ask *k)
{
    const struct result *body;
    struct slice why;

    if (k->req->method != METHOD_POST) {
        plan_method(k->p, SLICE("POST"), SLICE("paths-info accepts POST only\n"));
        return;
    }
    if (hub_version(k) == NULL) {
        return;
    }
    body = plan_request_body(k->results, k->p);
    if (body == NULL) {
        return;
    }
    if (!plan_form_fits(body, k->a, &why)) {
        hub_say(k, 413, NULL, why);
        return;
    }
    plan_listing(k, LIST_HUB_PATHS);
    k->p->posted = true;
    k->p->text = body->bytes;
    k->p->expand = k->p->expand || hub_query(body->bytes, "expand", SLICE("true"));
}

static void plan_hub_file(struct hub_ask *k)
{
    const struct snap *sn = hub_version(k);
    const struct result *f;
    char hex[DIGEST_HEX + 1];

    if (sn == NULL) {
        return;
    }
    f = plan_entry(k->results, &sn->root, k->at.path, k->p);
    if (f == NULL) {
        return;
    }
    if (f->rc != 0 || f->entry.type != ENTRY_FILE) {
        hub_say(k, 404, "EntryNotFound",
                arena_fmt(k->a, "no \"" SLICE_FMT "\" in " SLICE_FMT " at %s",
                          SLICE_ARG(k->at.path), SLICE_ARG(k->at.id), k->commit));
        say_commit(k);
        return;
    }
    digest_format(&f->entry.digest, hex);
    plan_become(k->p, PLAN_BLOB);
    k->p->entry = f->entry;
    k->p->snap = *sn;
    k->p->etag = arena_fmt(k->a, "\"%s\"", hex);
    k->p->content_type = hosted_type_of(k->at.path);
    k->p->cache_control = k->r->anonymous_read ? SLICE("no-cache") : SLICE("private, no-cache");
    say_commit(k);
    plan_field(k->p, SLICE("x-linked-etag"), k->p->etag);
    plan_field(k->p, SLICE("x-linked-size"), arena_u64(k->a, f->entry.size_bytes));
    hub_announce(k, &f->entry);
}

static void plan_whoami(struct hub_ask *k)
{
    struct buf body = BUF_INIT(SAY_BYTES);

    if (k->who->token == NULL) {
        hub_say(k, 401, NULL, SLICE("Invalid credentials in Authorization header"));
        return;
    }
    jwrite_open(&body, NULL, '{');
    jwrite_str(&body, "type", "user");
    jwrite_text(&body, "name", k->who->name);
    jwrite_text(&body, "fullname", k->who->name);
    jwrite_word(&body, "orgs", SLICE("[]"));
    jwrite_open(&body, "auth", '{');
    jwrite_str(&body, "type", "access_token");
    jwrite_open(&body, "accessToken", '{');
    jwrite_text(&body, "displayName", k->who->name);
    jwrite_str(&body, "role", "write");
    jwrite_close(&body, '}');
    jwrite_close(&body, '}');
    jwrite_close(&body, '}');
    hub_say_json(k, arena_copy(k->a, buf_slice(&body)));
    buf_free(&body);
}

static void plan_auth_check(struct hub_ask *k)
{
    if (k->at.verb.p != NULL) {
        k->p->right = RIGHT_PUBLISH;
    }
    if (hub_version(k) != NULL) {
        hub_say_json(k, SLICE("{}"));
    }
}

/* Nobody discusses or likes a repository here. What a sharded model consists of is in its files. */
static void plan_about(struct hub_ask *k)
{
    const struct snap *sn = hub_version(k);

    if (sn == NULL) {
        return;
    }
    if (slice_eqs(k->at.verb, "likers")) {
        hub_say_json(k, SLICE("[]"));
    } else if (slice_eqs(k->at.verb, "safetensors-metadata") && k->at.path.n != 0) {
        plan_listing(k, LIST_HUB_TENSORS);
        k->p->text = k->at.path;
        k->p->entry.path = SLICE("");
    } else if (slice_eqs(k->at.verb, "discussions") && k->at.path.n == 0) {
        hub_say_json(k, SLICE("{\"discussions\":[],\"count\":0,\"start\":0}"));
    } else {
        hub_say(k, 404, NULL,
                SLICE("hosted repositories have no discussions and no pull requests"));
    }
}

/* Of a closed repo each sees what their token's scopes name. */
static void plan_trees(struct hub_ask *k)
{
    if (slice_eqs(k->at.type, "kernels") || k->at.type.p == NULL) {
        hub_say(k, 404, NULL,
                SLICE("this page of a Hub's API does not exist for hosted repositories"));
        return;
    }
    k->p->subject = arena_fmt(k->a, "%s/", k->r->name);
    plan_become(k->p, PLAN_LIST);
    k->p->sift = !k->r->anonymous_read && k->who->token != NULL;
    k->p->right = k->p->sift ? RIGHT_KNOWN : RIGHT_READ;
    k->p->form = LIST_HUB_TREES;
    k->p->reuse = REUSE_NONE; /* its links name the host that was asked */
    k->p->entry.path = k->at.type;
    k->p->text = k->req->query;
    k->p->location =
        arena_fmt(k->a, SLICE_FMT "/api/" SLICE_FMT,
                  SLICE_ARG(plan_home(k->r, k->req, k->path, k->a)), SLICE_ARG(k->at.type));
    k->p->cache_control = k->r->anonymous_read ? SLICE("no-cache") : SLICE("private, no-cache");
}

static void plan_hub_read(struct hub_ask *k)
{
    if (k->req->method != METHOD_GET && k->req->method != METHOD_HEAD) {
        plan_method(k->p, SLICE("GET, HEAD"), SLICE("this path accepts GET and HEAD only\n"));
        return;
    }
    switch (k->at.route) {
    case HF_INFO:
        plan_listing(k, LIST_HUB_INFO);
        break;
    case HF_TREE:
        plan_listing(k, LIST_HUB_TREE);
        break;
    case HF_REFS:
        plan_listing(k, LIST_HUB_REFS);
        break;
    case HF_COMMITS:
        plan_listing(k, LIST_HUB_COMMITS);
        break;
    case HF_FILE:
        plan_hub_file(k);
        break;
    case HF_AUTH_CHECK:
        plan_auth_check(k);
        break;
    case HF_XET:
        hub_token(k);
        break;
    case HF_XET_STORE:
        hub_store(k);
        break;
    case HF_WHOAMI:
        plan_whoami(k);
        break;
    case HF_TELEMETRY:
        hub_say_json(k, SLICE("{}"));
        break;
    case HF_ABOUT:
        plan_about(k);
        break;
    case HF_XET_PUT:
    case HF_PATHS:
    case HF_WRITE:
    case HF_OTHER:
        plan_trees(k);
        break;
    case HF_BUCKET:
    case HF_NONE:
        hub_say(k, 404, NULL,
                SLICE("this page of a Hub's API does not exist for hosted repositories"));
        break;
    }
}

/* --- which requests --------------------------------------------------------------------------- */

static bool is_tree(struct slice id)
{
    struct slice name = id;
    struct slice owner = slice_cut(&name, '/');

    return owner.n != id.n && hosted_segment_valid(owner) && hosted_segment_valid(name);
}

static bool is_hub_repo(const struct hub_ask *k)
{
    return is_tree(k->at.id) && !(slice_eqs(k->at.type, "models") && python_owns(k->at.id));
}

/* Below api/ all is ours; elsewhere what no file of a tree can be called. */
static bool speaks(struct hub_ask *k, int rc)
{
    if (slice_starts(k->path, SLICE("api/"))) {
        return true;
    }
    if (rc != 0 || slice_eqs(k->at.type, "kernels") || !is_hub_repo(k)) {
        return false;
    }
    return k->at.route == HF_FILE
               ? !k->at.raw && (k->req->method == METHOD_GET || k->req->method == METHOD_HEAD)
               : k->at.route == HF_WRITE && slice_eqs(k->at.verb, "lfs-batch");
}

bool hub_plan(struct hub_ask *k, int *rc, struct err *e)
{
    *rc = hf_path_parse(k->path, k->a, &k->at, e);
    if (!speaks(k, *rc)) {
        *rc = 0;
        return false;
    }
    if (*rc != 0) {
        return true;
    }
    k->p->variant = SLICE("hub");
    k->p->right = RIGHT_READ;
    k->branch = SLICE("");
    hub_name(k);
    if (k->at.id.n != 0 && slice_eqs(k->at.type, "kernels")) {
        hub_say(k, 404, "RepoNotFound",
                SLICE("hosted repositories are models, datasets and spaces"));
    } else if (k->at.id.n != 0 && !is_hub_repo(k)) {
        hub_say(k, 404, "RepoNotFound",
                SLICE("hosted repositories are named <owner>/<name>; those of the owner \"simple\" "
                      "are Python projects"));
    } else if (k->at.route == HF_WRITE ||
               (k->at.route == HF_ABOUT && k->req->method != METHOD_GET &&
                k->req->method != METHOD_HEAD)) {
        hub_write(k);
    } else if (k->at.route == HF_XET_PUT) {
        hub_chunks_put(k);
    } else if (k->at.route == HF_PATHS) {
        plan_hub_paths(k);
    } else {
        plan_hub_read(k);
    }
    return true;
}
