/* lfs.c - an LFS batch: git-lfs asks where objects are, and gets the addresses of the files of a
 * commit here that have them. The Hub's own answer is not used, because it would lead past the
 * mirror.
 *
 * An object is looked for in the revision that the batch names (git-lfs sends the branch that is
 * checked out, or a commit), or in `main` when the Hub has no such revision.
 */
#include "server/repo/hf/hf.h"

#include <jansson.h>

#include "common/codec/jread.h"
#include "common/codec/jwrite.h"
#include "server/repo/hf/key.h"

enum { OBJECTS_MAX = 256, VALUES_MAX = 8192, REV_MAX = 256, ANSWER_BYTES = 8 << 20 };

static struct slice revision_of(struct hf_ask *k, const json_t *o)
{
    struct slice name = jread_text(json_object_get(o, "ref"), "name");
    struct slice heads = SLICE("refs/heads/"), tags = SLICE("refs/tags/");

    name = slice_starts(name, heads)  ? slice_from(name, heads.n)
           : slice_starts(name, tags) ? slice_from(name, tags.n)
                                      : name;
    return name.n != 0 && name.n <= REV_MAX && hf_is_path(name) ? arena_copy(k->a, name)
                                                                : SLICE("main");
}

/* Settles the commit. False: the plan asks, or says no. */
static bool find_commit(struct hf_ask *k, struct slice rev)
{
    struct hf_ask before = *k;
    struct plan plan = *k->p;

    k->at.rev = rev;
    hf_hold(k);
    if (access_commit(k)) {
        return true;
    }
    if (k->p->kind != PLAN_REPLY || k->p->status != 404 || slice_eqs(rev, "main")) {
        return false;
    }
    *k = before; /* a branch that was never pushed, perhaps */
    *k->p = plan;
    k->at.rev = SLICE("main");
    hf_hold(k);
    return access_commit(k);
}

/* What a download needs beside its address: LFS clients send no token of theirs to it. */
static struct slice credential_of(const struct hf_ask *k)
{
    if (!k->closed && k->r->anonymous_read) {
        return SLICE("");
    }
    return k->token.p != NULL ? k->token : http_req_field(k->req, "authorization");
}

static void say_download(struct hf_ask *k, const struct manifest_entry *f, struct buf *out)
{
    struct slice credential = credential_of(k);
    struct slice at = key_resolve(k->at.prefix, k->at.id, k->commit, f->path, k->a);

    jwrite_bool(out, "authenticated", true);
    jwrite_open(out, "actions", '{');
    jwrite_open(out, "download", '{');
    jwrite_text(out, "href",
                arena_fmt(k->a, SLICE_FMT "/" SLICE_FMT,
                          SLICE_ARG(plan_home(k->r, k->req, k->raw, k->a)), SLICE_ARG(at)));
    if (credential.n != 0) {
        jwrite_open(out, "header", '{');
        jwrite_text(out, "Authorization", credential);
        jwrite_close(out, '}');
    }
    jwrite_close(out, '}');
    jwrite_close(out, '}');
}

static void write_lfs_missing(struct hf_ask *k, struct buf *out)
{
    jwrite_open(out, "error", '{');
    jwrite_u64(out, "code", 404);
    jwrite_text(out, "message",
                arena_fmt(k->a,
                          "no file of " SLICE_FMT " at " SLICE_FMT
                          " is that object; check out the revision that has it, and fetch again",
                          SLICE_ARG(k->at.id), SLICE_ARG(k->commit)));
    jwrite_close(out, '}');
}

/* False: the list is none of objects. */
static bool read_objects(const json_t *list, struct manifest_wanted *wanted)
{
    const json_t *o;
    size_t i;

    json_array_foreach(list, i, o)
    {
        wanted[i].found = false;
        if (!digest_parse(jread_text(o, "oid"), &wanted[i].sha256) ||
            !jread_u64(o, "size", &wanted[i].file.size_bytes)) {
            return false;
        }
    }
    return true;
}

static void say_object(struct hf_ask *k, const struct manifest_wanted *w, struct buf *out)
{
    jwrite_open(out, NULL, '{');
    jwrite_hex(out, "oid", w->sha256.b, DIGEST_BYTES);
    jwrite_u64(out, "size", w->file.size_bytes);
    if (w->found) {
        say_download(k, &w->file, out);
    } else {
        write_lfs_missing(k, out);
    }
    jwrite_close(out, '}');
}

/* A commit may have very many files: they are walked through once, whatever the batch asks for.
 * False: as read_objects(). */
static bool write_objects(struct hf_ask *k, const struct manifest *m, const json_t *list,
                          struct buf *out)
{
    size_t n = json_array_size(list);
    struct manifest_wanted *wanted = arena_alloc(k->a, (n + 1) * sizeof *wanted);
    struct manifest_wanted **sorted = arena_alloc(k->a, (n + 1) * sizeof(struct manifest_wanted *));

    if (!read_objects(list, wanted)) {
        return false;
    }
    for (size_t i = 0; i < n; i++) {
        sorted[i] = &wanted[i];
    }
    manifest_find_all_lfs(m, sorted, n);
    for (size_t i = 0; i < n; i++) {
        say_object(k, &wanted[i], out);
    }
    return true;
}

static void download(struct hf_ask *k, const json_t *o)
{
    const json_t *list = json_object_get(o, "objects");
    struct buf out = BUF_INIT(ANSWER_BYTES);
    struct manifest m;
    bool good;

    if (!find_commit(k, revision_of(k, o)) || !access_manifest(k, &m) || !access_try(k)) {
        return;
    }
    jwrite_open(&out, NULL, '{');
    jwrite_str(&out, "transfer", "basic");
    jwrite_str(&out, "hash_algo", "sha256");
    jwrite_open(&out, "objects", '[');
    good = json_is_array(list) && json_array_size(list) <= OBJECTS_MAX &&
           write_objects(k, &m, list, &out);
    jwrite_close(&out, ']');
    jwrite_close(&out, '}');
    if (!good || out.rc != 0) {
        say_error(k, 422, SLICE_NONE,
                  SLICE("invalid body: objects must be a list of at most 256 {oid: sha256, size}"));
    } else {
        say_json(k, arena_copy(k->a, buf_slice(&out)));
    }
    buf_free(&out);
}

void lfs_plan(struct hf_ask *k)
{
    const struct result *body = plan_request_body(k->results, k->p);
    json_t *o;

    if (body == NULL) {
        return;
    }
    o = body->rc == 0 ? jread_parse(body->bytes, JSON_REJECT_DUPLICATES, VALUES_MAX) : NULL;
    if (!json_is_object(o)) {
        say_error(k, 422, SLICE_NONE,
                  SLICE("invalid body: a batch must be a JSON object of at most 1 MiB"));
    } else if (slice_eqs(jread_text(o, "operation"), "download")) {
        download(k, o);
    } else {
        hf_refuse_write(k);
    }
    json_decref(o);
}
