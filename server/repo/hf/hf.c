/* hf.c - the Hugging Face Hub, pulled through: models, datasets, spaces, kernels.
 * docs/protocols/hf.md
 *
 * A commit never changes: its listing is read once into a manifest (manifest.h), which serves
 * trees, paths-info and every HEAD, and against which files are verified. Branches and tags are
 * aliases, which are requested again when they are stale.
 */
#include "server/repo/hf/hf.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>

#include "common/codec/form.h"
#include "common/codec/jread.h"
#include "common/codec/jwrite.h"
#include "common/codec/url.h"
#include "server/repo/hf/catalog.h"
#include "server/repo/hf/key.h"
#include "server/repo/hf/synced.h"

static void hf_say_next(struct hf_ask *k, struct slice next);

/* --- details ---
 *
 * What the Hub knows of entries beyond names and sizes (expand=true): which commit touched one
 * last, what scanners said. Scans go on after a commit, so the Hub is asked, part by part as the
 * client asks, and its answers are kept as briefly as other documents. While the Hub is silent
 * and nothing was kept, entries are listed without these details.
 */

enum { DETAILS_FOLDERS_MAX = 2 };
struct json_t;
struct details { /* of entries: what the Hub tells of the folders that they are in */
    struct slice folder[DETAILS_FOLDERS_MAX];
    struct json_t *entries[DETAILS_FOLDERS_MAX]; /* by path; NULL: nothing */
    size_t count;
};

enum { DOC_BYTES = 4 << 20 };

/* a query, or a form */
static bool details_wanted(struct slice form)
{
    while (form.n != 0) {
        struct slice value = slice_cut(&form, '&');
        if (slice_eqs(slice_cut(&value, '='), "expand")) {
            return slice_ieq(value, SLICE("true")) || slice_eqs(value, "1");
        }
    }
    return false;
}

/* By the commit: a branch may be held here at an older one. */
static struct slice listing_of(const struct hf_ask *k, struct slice folder)
{
    return arena_fmt(k->a, SLICE_FMT "%s" SLICE_FMT,
                     SLICE_ARG(key_tree(k->at.type, access_id(k), k->commit, k->a)),
                     folder.n != 0 ? "/" : "", SLICE_ARG(url_encoded_path(folder, k->a)));
}

/* True: the listing was asked for with details, and the plan says them, or what they take. */
static bool details_tree(struct hf_ask *k)
{
    const struct result *f;

    if (k->r->synced || !details_wanted(k->req->query)) {
        return false;
    }
    f = access_json(k, listing_of(k, k->at.path), k->req->query, false);
    if (f == NULL) {
        return true;
    }
    if (f->rc == E_NOTFOUND || f->rc == E_DENIED) {
        say_result(k, f);
        return true;
    }
    k->stale = f->stale || f->rc != 0;
    k->in_trouble = f->in_trouble || f->rc != 0;
    if (f->rc == 0) {
        say_json(k, f->bytes);
        hf_say_next(k, f->next);
    }
    return f->rc == 0;
}

/* --- of single paths: the Hub answers those by POST, its listing of their folders by GET ------ */

static struct slice folder_of_hf_path(struct slice path)
{
    size_t n = slice_behind(path, '/');

    return slice_first(path, n != 0 ? n - 1 : 0);
}

static bool has_folder(const struct details *d, struct slice folder)
{
    for (size_t i = 0; i < d->count; i++) {
        if (slice_eq(d->folder[i], folder)) {
            return true;
        }
    }
    return false;
}

/* Its entries by path: a request may name thousands of them. NULL: it is no list. */
static json_t *parse_files_by_path(struct slice doc)
{
    json_t *list = doc.n <= DOC_BYTES ? jread_parse(doc, 0, jread_values_of(doc.n)) : NULL;
    json_t *all = json_is_array(list) ? json_object() : NULL;
    json_t *one;
    size_t i;

    json_array_foreach(list, i, one)
    {
        const char *path = json_string_value(json_object_get(one, "path"));
        if (path != NULL && json_object_get(all, path) == NULL) {
            (void)json_object_set(all, path, one);
        }
    }
    json_decref(list);
    return all;
}

/* False: the plan asks. Always details_close(). */
static bool details_learn(struct hf_ask *k, struct slice path, struct details *d)
{
    struct slice folder = folder_of_hf_path(path);
    const struct result *f;

    if (has_folder(d, folder) || d->count == DETAILS_FOLDERS_MAX) {
        return true;
    }
    f = access_json(k, listing_of(k, folder), SLICE("expand=true"), false);
    if (f == NULL) {
        return false;
    }
    k->stale = k->stale || f->stale || f->rc != 0;
    k->in_trouble = k->in_trouble || f->in_trouble || f->rc != 0;
    d->folder[d->count] = folder;
    d->entries[d->count++] = f->rc == 0 ? parse_files_by_path(f->bytes) : NULL;
    return true;
}

/* False: nothing is known beyond the manifest. */
static bool details_say(const struct details *d, struct slice path, struct buf *out)
{
    size_t at = out->n;

    for (size_t i = 0; i < d->count; i++) {
        const json_t *one = json_object_getn(d->entries[i], path.p, path.n);
        if (one != NULL) {
            if (json_dump_callback(one, jwrite_dumped, out, JSON_COMPACT) == 0) {
                return true;
            }
            out->n = at;
            return false;
        }
    }
    return false;
}

static void details_close(struct details *d)
{
    for (size_t i = 0; i < d->count; i++) {
        json_decref(d->entries[i]);
    }
    d->count = 0;
}

/* --- about a repository ---
 *
 * What else a Hub tells of a repository: who likes it, what is discussed, of what tensors a sharded
 * model consists. Passed on as the Hub has it, as everybody sees it or else as this caller does,
 * and kept as briefly as other documents.
 */

static bool is_number(struct slice s)
{
    uint64_t n;

    return slice_u64(s, &n) && n != 0;
}

/* The Hub tells of `main` as it is now. */
static bool main_is_held(struct hf_ask *k)
{
    return held_find(k->r->state, k->at.type, k->at.id, SLICE("main")) != NULL;
}

/* Below the origin; p == NULL: the Hub has no such page, or none that fits what the mirror
 * serves. */
static struct slice page_of(struct hf_ask *k)
{
    struct slice words = key_words(k->at.type, k->at.id, k->a);
    struct slice verb = k->at.verb, path = k->at.path;

    if (slice_eqs(verb, "safetensors-metadata")) {
        return slice_ends(path, SLICE(".json")) && !main_is_held(k)
                   ? arena_fmt(k->a, SLICE_FMT "/" SLICE_FMT "/" SLICE_FMT, SLICE_ARG(words),
                               SLICE_ARG(verb), SLICE_ARG(url_encoded_path(path, k->a)))
                   : SLICE_NONE;
    }
    if (path.n == 0) {
        return arena_fmt(k->a, SLICE_FMT "/" SLICE_FMT, SLICE_ARG(words), SLICE_ARG(verb));
    }
    return is_number(path) ? arena_fmt(k->a, SLICE_FMT "/" SLICE_FMT "/" SLICE_FMT,
                                       SLICE_ARG(words), SLICE_ARG(verb), SLICE_ARG(path))
                           : SLICE_NONE;
}

/* whatever HF_ABOUT asks for */
static void about_plan(struct hf_ask *k)
{
    struct slice page = page_of(k);

    if (page.p == NULL) {
        say_error(k, 404, SLICE_NONE,
                  SLICE("this mirror does not have that page; read the metadata of safetensors "
                        "files from the files, with get_safetensors_metadata()"));
        return;
    }
    if (access_seen(k, page)) {
        hf_plan_json(k, page, false);
    }
}

enum {
    PAGE_BYTES = 64 << 20,
    LISTING_BYTES = 1 << 30,
    NAME_BYTES = 16384,
    WORDED_BYTES = 1 << 20, /* a larger manifest is worded by a maker */
};

static char *public_url(const struct repo_conf *conf)
{
    struct buf b = BUF_INIT(NAME_BYTES);
    char *out = NULL;

    if (conf->public_url != NULL) {
        buf_str(&b, conf->public_url);
        buf_addf(&b, "%s%s/", b.n != 0 && b.p[b.n - 1] == '/' ? "" : "/", conf->name);
        out = mem_strdup(buf_cstr(&b));
    }
    buf_free(&b);
    return out;
}

static int hf_open(struct repo *r, const struct repo_conf *conf, struct err *e)
{
    bool ours = conf->origin.authorization != NULL;
    struct hf *state;

    if (r->origin == NULL) {
        return err_set(e, E_CONFIG, "protocol \"hf\" needs an origin = \"https://...\"");
    }
    ours = ours || conf->sync != NULL;
    if (conf->credentials != NULL) {
        bool service = strcmp(conf->credentials, "service") == 0;
        if (!service && ours) {
            return err_set(
                e, E_CONFIG,
                "authorization has no effect with credentials = caller; remove one of them");
        }
        ours = service;
    }
    state = NEW(struct hf);
    state->public_url = public_url(conf);
    state->service = ours;
    r->by_caller = !ours;
    r->xet_from_bytes = xet_from_bytes(conf->xet);
    r->state = state;
    return 0;
}

static void hf_close(struct repo *r)
{
    struct hf *state = r->state;

    if (state != NULL) {
        held_free_all(state);
        free(state->public_url);
        free(state);
    }
}

/* --- listings --------------------------------------------------------------------------------- */

static bool is_yes(struct slice v)
{
    return slice_ieq(v, SLICE("true")) || slice_eqs(v, "1");
}

/* What everybody sees is worded once, until what it is made of is another. */
static void keep_json(struct hf_ask *k, struct slice key, uint64_t until_unix_s)
{
    k->p->reuse = k->reader.n == 0 ? REUSE_KEPT : REUSE_USUAL;
    k->p->key = key;
    k->p->until_unix_s = k->stale ? 1 : until_unix_s;
}

/* plan.text is the manifest. */
static int word_tree(const struct repo *r, const struct plan *p, struct buf *out, struct err *e)
{
    struct manifest m;
    int rc = manifest_open(p->text, &m)
                 ? manifest_list(&m, p->folder, p->deep, r->xet_from_bytes, out)
                 : E_PROTOCOL;

    if (rc == E_PROTOCOL) {
        return err_set(e, rc, "the Hub's listing of this commit cannot be parsed");
    }
    if (rc == E_NOTFOUND) {
        return err_set(e, rc, "this commit does not have that folder");
    }
    return rc == 0 ? 0 : err_set(e, rc, "this listing is too large");
}

/* By a maker: wording takes the longer, the more files there are. */
static void plan_large_tree(struct hf_ask *k, const struct manifest *m, bool recursive)
{
    say_json(k, m->bytes);
    k->p->word = word_tree;
    k->p->folder = k->at.path;
    k->p->deep = recursive;
    /* All that the listing is made of: two callers, or two repositories that had the name, may have
     * received different ones. */
    k->p->variant = arena_fmt(k->a,
                              "tree %d %zu %" PRIu64 " " SLICE_FMT " " SLICE_FMT " " SLICE_FMT
                              " " SLICE_FMT " " SLICE_FMT,
                              recursive, m->bytes.n, k->since_unix_s, SLICE_ARG(k->reader),
                              SLICE_ARG(k->at.type), SLICE_ARG(access_id(k)), SLICE_ARG(k->commit),
                              SLICE_ARG(k->at.path));
    keep_json(k, SLICE(""), k->until_unix_s);
}

static void plan_tree(struct hf_ask *k)
{
    struct slice query = k->req->query;
    bool recursive = is_yes(form_find(&query, "recursive", NAME_BYTES, k->a));
    struct buf out = BUF_INIT(LISTING_BYTES);
    struct manifest m;
    int rc;

    if (!access_commit(k) || !access_manifest(k, &m) || details_tree(k)) {
        return;
    }
    if (m.bytes.n > WORDED_BYTES && manifest_has_folder(&m, k->at.path)) {
        plan_large_tree(k, &m, recursive);
        return;
    }
    rc = manifest_list(&m, k->at.path, recursive, k->r->xet_from_bytes, &out);
    if (rc == E_NOTFOUND) {
        say_no_file(k);
    } else if (rc != 0) {
        say_error(k, 507, SLICE_NONE, SLICE("this listing is too large"));
    } else {
        say_json(k, arena_copy(k->a, buf_slice(&out)));
        keep_json(k, SLICE(""), k->until_unix_s);
    }
    buf_free(&out);
}

/* Each path in its turn, with what is known of it. False: the plan asks. */
static bool write_paths(struct hf_ask *k, const struct manifest *m, struct slice form,
                        struct details *d, struct buf *out)
{
    bool more = !k->r->synced && details_wanted(form);
    struct slice path;

    while ((path = form_find(&form, "paths", NAME_BYTES, k->a)).p != NULL) {
        struct manifest_entry f;
        while (path.n != 0 && path.p[path.n - 1] == '/') {
            path.n--;
        }
        if (!manifest_find(m, path, &f)) {
            continue;
        }
        if (more && !details_learn(k, path, d)) {
            return false;
        }
        if (out->n > 1) {
            buf_byte(out, ',');
        }
        if (!more || !details_say(d, path, out)) {
            manifest_say(&f, k->r->xet_from_bytes, out);
        }
    }
    return true;
}

static void plan_hf_paths(struct hf_ask *k)
{
    const struct result *body = plan_request_body(k->results, k->p);
    struct buf out = BUF_INIT(PAGE_BYTES); /* a path may be named more than once */
    struct details details = {0};
    struct manifest m;
    struct slice why;

    if (body == NULL) {
        return;
    }
    if (!plan_form_fits(body, k->a, &why)) {
        say_error(k, 413, SLICE_NONE, why);
        return;
    }
    if (!access_commit(k) || !access_manifest(k, &m)) {
        return;
    }
    buf_byte(&out, '[');
    if (!write_paths(k, &m, body->bytes, &details, &out)) {
        goto out;
    }
    buf_byte(&out, ']');
    if (out.rc != 0) {
        say_error(k, 507, SLICE_NONE,
                  SLICE("the response for these paths is too large; request fewer"));
    } else {
        say_json(k, arena_copy(k->a, buf_slice(&out)));
    }
out:
    details_close(&details);
    buf_free(&out);
}

/* --- documents -------------------------------------------------------------------------------- */

/* Fields of a list's answer: its next part leads here. */
/* Clients follow the link to a list's next part as it stands, so it is absolute, and leads here. */
static void hf_say_next(struct hf_ask *k, struct slice next)
{
    const struct hf *state = k->r->state;
    struct slice home = slice_str(origin_url(k->r->origin));
    struct slice above = slice_first(k->req->path, k->req->path.n - k->raw.n);

    if (next.p == NULL || !slice_starts(next, home)) {
        return;
    }
    next = slice_from(next, home.n);
    plan_field(
        k->p, SLICE("link"),
        state->public_url != NULL
            ? arena_fmt(k->a, "<%s" SLICE_FMT ">; rel=\"next\"", state->public_url, SLICE_ARG(next))
            : arena_fmt(k->a, "<http%s://" SLICE_FMT SLICE_FMT SLICE_FMT ">; rel=\"next\"",
                        k->req->tls ? "s" : "", SLICE_ARG(k->req->host), SLICE_ARG(above),
                        SLICE_ARG(next)));
}

static void give_json(struct hf_ask *k, const struct result *f)
{
    struct buf refs = BUF_INIT(LISTING_BYTES);

    k->stale = f->stale;
    k->in_trouble = f->in_trouble;
    if (f->rc != 0) {
        say_result(k, f);
    } else {
        bool held =
            k->at.route == HF_REFS && held_refs(k->r->state, k->at.type, k->at.id, f->bytes, &refs);
        say_json(k, held ? arena_copy(k->a, buf_slice(&refs)) : f->bytes);
        hf_say_next(k, f->next);
        if (k->at.route != HF_OTHER && k->at.route != HF_WHOAMI) {
            keep_json(k, f->dependency.lookup.key, min_u64(f->until_unix_s, k->open_until_unix_s));
        }
    }
    buf_free(&refs);
}

void hf_plan_json(struct hf_ask *k, struct slice path, bool for_ever)
{
    const struct result *f = access_json(k, path, k->req->query, for_ever);

    if (f != NULL) {
        give_json(k, f);
    }
}

static struct slice info_at(const struct hf_ask *k, struct slice rev)
{
    return key_info(k->at.type, k->at.id, rev, k->a);
}

/* A branch that is rolled back is the commit that it is held at, as if that had been asked for: the
 * Hub is not asked what it is now. */
void hf_hold(struct hf_ask *k)
{
    const struct held_branch *b;

    if (k->at.rev.p != NULL && hf_is_commit(k->at.rev)) {
        return;
    }
    k->branch = k->at.rev.p != NULL ? k->at.rev : SLICE(HF_MAIN);
    b = k->r->synced ? NULL : held_find(k->r->state, k->at.type, k->at.id, k->branch);
    if (b != NULL) {
        k->at.rev = b->commit;
    }
}

static bool is_of_revision(const struct hf_ask *k)
{
    return k->at.route == HF_FILE || k->at.route == HF_INFO || k->at.route == HF_TREE ||
           k->at.route == HF_PATHS || k->at.route == HF_COMMITS || k->at.route == HF_XET ||
           k->at.route == HF_AUTH_CHECK;
}

/* The document that the request is about, where the Hub has it: made of what was understood, for
 * the Hub would understand more of what a client wrote than we do. */
static struct slice document_path(const struct hf_ask *k)
{
    struct slice words;

    switch (k->at.route) {
    case HF_INFO:
        return info_at(k, k->at.rev.p != NULL ? k->at.rev : SLICE(HF_MAIN));
    case HF_REFS:
    case HF_COMMITS:
        words = key_words(k->at.type, k->at.id, k->a);
        return k->at.route == HF_REFS
                   ? arena_fmt(k->a, SLICE_FMT "/refs", SLICE_ARG(words))
                   : arena_fmt(k->a, SLICE_FMT "/commits/" SLICE_FMT, SLICE_ARG(words),
                               SLICE_ARG(url_encoded(k->at.rev, k->a)));
    case HF_OTHER:
    case HF_WHOAMI:
        return k->at.other;
    case HF_NONE:
    case HF_TREE:
    case HF_PATHS:
    case HF_AUTH_CHECK:
    case HF_XET:
    case HF_XET_STORE:
    case HF_XET_PUT:
    case HF_FILE:
    case HF_ABOUT:
    case HF_BUCKET:
    case HF_WRITE:
    case HF_TELEMETRY:
        break;
    }
    return SLICE("");
}

/* The request asks for more or fewer properties than usual. As in access.c: without a revision it
 * is `main`, if there is one. */
static void plan_info_asked(struct hf_ask *k, struct slice path)
{
    const struct result *f = access_json(k, path, k->req->query, false);

    if (f != NULL && k->at.rev.p == NULL && access_lacks_revision(f)) {
        f = access_json(k, info_at(k, SLICE_NONE), k->req->query, false);
    }
    if (f != NULL) {
        give_json(k, f);
    }
}

/* The same document tells us what a revision stands for: asked for once. With a query it is
 * another. */
static void plan_info(struct hf_ask *k, struct slice path)
{
    struct repo_info info;

    if (k->at.rev.p != NULL && hf_is_commit(k->at.rev)) {
        if (access_commit(k)) {
            hf_plan_json(k, path, true);
        }
    } else if (k->req->query.n != 0) {
        if (access_seen(k, path)) {
            plan_info_asked(k, path);
        }
    } else if (access_commit(k) && info_read(k->info->bytes, &info)) {
        if (!slice_eq(info.commit, k->commit)) { /* held under its other name */
            hf_plan_json(k, info_at(k, k->commit), true);
            return;
        }
        say_json(k, info.json);
        keep_json(k, k->info->dependency.lookup.key, k->until_unix_s);
    }
}

void hf_refuse_write(struct hf_ask *k)
{
    struct slice verb = k->at.verb;
    bool uploads = verb.p == NULL || slice_eqs(verb, "lfs-batch") || slice_eqs(verb, "preupload") ||
                   slice_eqs(verb, "commit") || slice_eqs(verb, "repos/create") ||
                   slice_eqs(verb, "xet-write-token") || slice_eqs(verb, "batch");

    say_error(k, 403, SLICE_NONE,
              uploads
                  ? SLICE("this repo is a mirror of a Hub and does not accept uploads; ask the "
                          "operator for a hosted repo")
                  : SLICE("this repo is a mirror of a Hub and does not accept changes to "
                          "repositories, discussions and settings; make them at the Hub itself"));
}

static void plan_auth_check(struct hf_ask *k)
{
    if (k->at.verb.p != NULL) {
        hf_refuse_write(k);
    } else if (access_commit(k) && access_try(k)) {
        say_json(k, SLICE("{}"));
    }
}

static void plan_whoami(struct hf_ask *k, struct slice path)
{
    if (((const struct hf *)k->r->state)->service) {
        say_json(
            k,
            SLICE(
                "{\"type\":\"user\",\"id\":\"mirror\",\"name\":\"mirror\",\"fullname\":\"mirror\","
                "\"isPro\":false,\"orgs\":[],\"auth\":{\"type\":\"access_token\","
                "\"accessToken\":{\"displayName\":\"mirror\",\"role\":\"read\"}}}"));
    } else if (k->token.p == NULL) {
        say_error(k, 401, SLICE_NONE, SLICE("Invalid username or password."));
    } else {
        hf_plan_json(k, path, false);
    }
}

static void plan_route(struct hf_ask *k, struct slice path)
{
    if (k->r->synced && synced_route(k)) {
        return;
    }
    switch (k->at.route) {
    case HF_FILE:
        file_plan(k);
        return;
    case HF_TREE:
        plan_tree(k);
        return;
    case HF_PATHS:
        plan_hf_paths(k);
        return;
    case HF_INFO:
        plan_info(k, path);
        return;
    case HF_REFS:
    case HF_COMMITS:
        if (access_seen(k, path)) {
            hf_plan_json(k, path, false);
        }
        return;
    case HF_OTHER:
        hf_plan_json(k, path, false);
        return;
    case HF_AUTH_CHECK:
        plan_auth_check(k);
        return;
    case HF_WHOAMI:
        plan_whoami(k, path);
        return;
    case HF_TELEMETRY:
        plan_reply(k->p, 200, SLICE(""));
        return;
    case HF_XET:
        chunks_token(k);
        return;
    case HF_XET_STORE:
        chunks_answer(k);
        return;
    case HF_ABOUT:
        about_plan(k);
        return;
    case HF_BUCKET:
        bucket_plan(k);
        return;
    case HF_WRITE:
        if (slice_eqs(k->at.verb, "lfs-batch") && k->req->method == METHOD_POST) {
            lfs_plan(k);
        } else {
            hf_refuse_write(k);
        }
        return;
    case HF_XET_PUT:
        hf_refuse_write(k);
        return;
    case HF_NONE:
        say_error(k, 404, SLICE_NONE, SLICE("this mirror does not have that path"));
        return;
    }
}

static bool takes_post(const struct hf_ask *k)
{
    return k->at.route == HF_PATHS ||
           (k->at.route == HF_BUCKET && slice_eqs(k->at.verb, "paths-info"));
}

static bool takes_method(const struct hf_ask *k)
{
    enum method m = k->req->method;

    return k->at.route == HF_WRITE || k->at.route == HF_TELEMETRY ||
           (takes_post(k) ? m == METHOD_POST : m == METHOD_GET || m == METHOD_HEAD);
}

static int hf_plan(const struct repo *r, const struct http_req *req, struct slice path,
                   const struct principal *who, const struct results *results, struct arena *arena,
                   struct plan *out, struct err *e)
{
    struct hf_ask k = {.r = r,
                       .req = req,
                       .results = results,
                       .a = arena,
                       .p = out,
                       .raw = path,
                       .open_until_unix_s = UINT64_MAX};
    struct err why;

    (void)e;
    if (hf_path_parse(path, arena, &k.at, &why) != 0) {
        say_error(&k, 400, SLICE_NONE, arena_copy(arena, slice_str(why.text)));
        return 0;
    }
    out->right = RIGHT_READ;
    out->subject = k.at.id.n != 0 ? arena_fmt(arena, "%s/" SLICE_FMT "/" SLICE_FMT, r->name,
                                              SLICE_ARG(k.at.type), SLICE_ARG(k.at.id))
                                  : arena_fmt(arena, "%s/api", r->name);
    if (!takes_method(&k)) {
        if (req->method == METHOD_GET || req->method == METHOD_HEAD) {
            say_error(&k, 405, SLICE_NONE, SLICE("this path accepts POST only"));
        } else {
            k.at.verb = SLICE("");
            hf_refuse_write(&k);
        }
        return 0;
    }
    access_init(&k, who);
    if (is_of_revision(&k)) {
        hf_hold(&k);
    }
    plan_route(&k, document_path(&k));
    return 0;
}

static bool hf_is_open(const struct repo *r, struct slice key, struct store *st)
{
    return openness_holds(st, r->name, key);
}

/* Listings and files are for ever; what else is kept are words on what may change. */
static bool hf_kept(const struct repo *r, struct slice key, struct arena *arena, struct lookup *out)
{
    struct slice type, id, etag;
    bool file = !slice_starts(key, SLICE("api/")) &&
                (key_read_file(key, &type, &id, &etag) || key_is_bucket_file(key));
    bool listing = memmem(key.p, key.n, "/tree/", 6) != NULL && slice_starts(key, SLICE("api/"));
    struct slice path = slice_cut(&key, '?');
    struct plan p;

    plan_lookup(r, plan_rule(r, path, arena), path, arena, &p);
    *out = p.lookup;
    out->class = file || listing ? LOOKUP_IMMUTABLE : LOOKUP_MUTABLE;
    return true;
}

static int hf_paged_fetch(const struct repo *r, const struct paged_fetch_part *part,
                          struct buf *out, struct err *e)
{
    struct slice what = part->dependency->key;

    if (part->doc.n > PAGE_BYTES && !slice_eqs(what, HF_MAKE_PROBE)) {
        return err_set(e, E_TOOBIG, "the Hub's response is too large: %zu bytes", part->doc.n);
    }
    if (slice_eqs(what, HF_MAKE_TREE)) {
        return manifest_add(part->doc, part->url, part->first, part->last, out, e);
    }
    if (slice_eqs(what, HF_MAKE_INFO) || slice_eqs(what, HF_MAKE_OPEN) ||
        slice_eqs(what, HF_MAKE_ANEW)) {
        return info_make(part->doc, out, e);
    }
    if (slice_eqs(what, HF_MAKE_RIGHT)) {
        return right_read(part->doc, e);
    }
    return slice_eqs(what, HF_MAKE_ABOUT)  ? info_about(part->doc, out, e)
           : slice_eqs(what, HF_MAKE_JSON) ? json_join(part->doc, part->first, out, e)
           : slice_eqs(what, HF_MAKE_BUCKET)
               ? json_bucket(part->doc, r->xet_from_bytes != UINT64_MAX, part->first, out, e)
           : slice_eqs(what, HF_MAKE_PATHS)
               ? catalog_add(part->doc, CATALOG_BY_PATH, part->first, part->last, out, e)
           : slice_eqs(what, HF_MAKE_FILES)
               ? catalog_add(part->doc,
                             r->xet_from_bytes != UINT64_MAX ? CATALOG_OF_WORDS
                                                             : CATALOG_OF_WORDS_WITHOUT_HASHES,
                             part->first, part->last, out, e)
           : slice_eqs(what, HF_MAKE_HASHES)
               ? catalog_add(part->doc, CATALOG_BY_HASH, part->first, part->last, out, e)
           : slice_eqs(what, HF_MAKE_UPLOADS) ? uploads_add(part->doc, part->first, out, e)
                                              : 0;
}

const struct repo_ops repo_hf = {
    .name = "hf",
    .stale_first = true,
    .by_host = true,
    .open = hf_open,
    .close = hf_close,
    .plan = hf_plan,
    .paged_fetch = hf_paged_fetch,
    .is_open = hf_is_open,
    .kept = hf_kept,
    .failed = say_failed,
};
