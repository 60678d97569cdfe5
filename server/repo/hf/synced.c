#include "server/repo/hf/synced.h"

#include <inttypes.h>

#include "common/codec/jwrite.h"

enum { FOLDER_BYTES = 2048, SAY_BYTES = 8192 };

/* --- names ------------------------------------------------------------------------------------ */

static bool rev_valid(struct slice rev)
{
    return rev.n > 0 && rev.n <= 200 && hf_is_path(rev);
}

bool hf_spec_parse(struct slice text, struct hf_spec *out)
{
    static const struct {
        struct slice type, prefix;
    } types[] = {
        {{"datasets", 8}, {"datasets/", 9}},
        {{"spaces", 6}, {"spaces/", 7}},
        {{"kernels", 7}, {"kernels/", 8}},
        {{"models", 6}, {"models/", 7}},
    };
    struct slice rest = text;

    *out = (struct hf_spec){.type = SLICE("models"), .prefix = SLICE("")};
    for (size_t i = 0; i < ARRAY_LEN(types); i++) {
        if (slice_starts(text, types[i].prefix)) {
            rest = slice_from(text, types[i].prefix.n);
            out->type = types[i].type;
            out->prefix = slice_eqs(out->type, "models") ? SLICE("") : types[i].prefix;
            break;
        }
    }
    out->id = slice_cut(&rest, '@');
    out->rev = out->id.p + out->id.n != rest.p ? rest : SLICE("main");
    return hf_is_id(out->id) && rev_valid(out->rev);
}

void hf_folder(struct slice type, struct slice id, struct slice rev, struct buf *out)
{
    buf_adds(out, type);
    buf_byte(out, '/');
    buf_adds(out, id);
    buf_byte(out, '@');
    for (size_t i = 0; i < rev.n; i++) {
        if (rev.p[i] == '/' || rev.p[i] == '%') {
            buf_str(out, rev.p[i] == '/' ? "%2F" : "%25");
        } else {
            buf_byte(out, (uint8_t)rev.p[i]);
        }
    }
}

static struct slice path_of_synced_file(struct hf_ask *k, struct slice rev, const char *below)
{
    struct buf b = BUF_INIT(FOLDER_BYTES);
    struct slice out;

    hf_folder(k->at.type, k->at.id, rev, &b);
    buf_str(&b, below);
    CHECK(b.rc == 0); /* path.h has bounds below */
    out = arena_copy(k->a, buf_slice(&b));
    buf_free(&b);
    return out;
}

/* --- the commit ------------------------------------------------------------------------------- */

/* Its info in this snapshot; NULL: the plan asks. */
static const struct result *look_up_synced_rev(struct hf_ask *k, const struct snap *sn,
                                               struct slice rev)
{
    return plan_resolve(k->results, &sn->root, path_of_synced_file(k, rev, "/info.json"), k->p);
}

/* A client that received a commit just before another was published continues with it: it is in
 * the previous snapshot. */
static const struct result *look_before(struct hf_ask *k, const struct snap **sn, struct slice rev)
{
    struct slice version = arena_fmt(k->a, "v%" PRIu64, (*sn)->seq - 1);
    const struct result *head = plan_head(k->results, SLICE(SYNC_TREE), version, k->p);

    if (head == NULL || head->rc != 0) {
        return head;
    }
    *sn = &head->snap;
    return look_up_synced_rev(k, *sn, rev);
}

static bool say_absent(struct hf_ask *k, const struct snap *live, struct slice rev)
{
    const struct result *other =
        slice_eqs(rev, "main")
            ? NULL
            : plan_entry(k->results, &live->root,
                         path_of_synced_file(k, SLICE("main"), "/info.json"), k->p);
    bool known = other != NULL && other->rc == 0;

    if (other == NULL && !slice_eqs(rev, "main")) {
        return false;
    }
    say_error(
        k, 404, known ? SLICE("RevisionNotFound") : SLICE("RepoNotFound"),
        known
            ? SLICE(
                  "this mirror does not keep that revision; its settings list those that it keeps")
            : SLICE("this mirror does not keep that repository; its settings list those that it "
                    "keeps"));
    return false;
}

bool synced_commit(struct hf_ask *k)
{
    struct slice rev = k->at.rev.p != NULL ? k->at.rev : SLICE("main");
    const struct result *live = plan_head(k->results, SLICE(SYNC_TREE), SLICE(""), k->p);
    const struct result *info;
    const struct snap *sn;

    if (live == NULL) {
        return false;
    }
    if (live->rc != 0) {
        say_error(k, 503, SLICE_NONE,
                  SLICE("the first synchronization of this repo is not finished; try again later"));
        return false;
    }
    sn = &live->snap;
    info = look_up_synced_rev(k, sn, rev);
    if (info != NULL && info->rc != 0 && hf_is_commit(rev) && sn->seq > 1) {
        info = look_before(k, &sn, rev);
    }
    if (info == NULL) {
        return false;
    }
    if (info->rc != 0 || info->entry.type != ENTRY_FILE) {
        return say_absent(k, &live->snap, rev);
    }
    k->snap = sn;
    k->folder = slice_first(info->entry.path, info->entry.path.n - strlen("info.json"));
    info = plan_paged_blob(k->results, SLICE(HF_MAKE_INFO), &info->entry, k->a, k->p);
    return info != NULL && access_learn(k, info);
}

bool synced_manifest(struct hf_ask *k, struct manifest *m)
{
    struct slice path = arena_fmt(k->a, SLICE_FMT "tree.json", SLICE_ARG(k->folder));
    const struct result *f = plan_entry(k->results, &k->snap->root, path, k->p);

    if (f == NULL) {
        return false;
    }
    if (f->rc == 0) {
        f = plan_paged_blob(k->results, SLICE(HF_MAKE_TREE), &f->entry, k->a, k->p);
    }
    if (f == NULL) {
        return false;
    }
    if (f->rc != 0 || !manifest_open(f->bytes, m)) {
        say_error(k, 502, SLICE_NONE,
                  SLICE("this mirror's listing of the commit cannot be parsed"));
        return false;
    }
    return true;
}

bool synced_file(struct hf_ask *k, struct slice path)
{
    const struct result *f = plan_entry(
        k->results, &k->snap->root,
        arena_fmt(k->a, SLICE_FMT "files/" SLICE_FMT, SLICE_ARG(k->folder), SLICE_ARG(path)), k->p);

    if (f == NULL) {
        return false;
    }
    if (f->rc != 0 || f->entry.type != ENTRY_FILE) {
        say_no_file(k);
        return false;
    }
    plan_become(k->p, PLAN_BLOB);
    k->p->entry = f->entry;
    k->p->snap = *k->snap;
    k->p->name = slice_str(k->r->name);
    return true;
}

/* --- documents -------------------------------------------------------------------------------- */

static void say_written(struct hf_ask *k, struct buf *body)
{
    CHECK(body->rc == 0);
    say_json(k, arena_copy(k->a, buf_slice(body)));
}

/* Only what is asked for is known to be here: a branch, by the name that everybody asks for. */
static void plan_refs(struct hf_ask *k)
{
    struct buf body = BUF_INIT(SAY_BYTES);

    k->at.rev = SLICE_NONE;
    if (!synced_commit(k)) {
        return;
    }
    jwrite_open(&body, NULL, '{');
    jwrite_open(&body, "branches", '[');
    jwrite_open(&body, NULL, '{');
    jwrite_str(&body, "name", "main");
    jwrite_str(&body, "ref", "refs/heads/main");
    jwrite_str(&body, "targetCommit", arena_cstr(k->a, k->commit));
    jwrite_close(&body, '}');
    jwrite_close(&body, ']');
    jwrite_word(&body, "converts", SLICE("[]"));
    jwrite_word(&body, "tags", SLICE("[]"));
    jwrite_close(&body, '}');
    say_written(k, &body);
    buf_free(&body);
}

static void plan_commits(struct hf_ask *k)
{
    struct buf body = BUF_INIT(SAY_BYTES);

    if (!synced_commit(k)) {
        return;
    }
    jwrite_open(&body, NULL, '[');
    jwrite_open(&body, NULL, '{');
    jwrite_str(&body, "id", arena_cstr(k->a, k->commit));
    jwrite_str(&body, "title", "");
    jwrite_str(&body, "message", "");
    jwrite_str(&body, "date", "1970-01-01T00:00:00.000Z");
    jwrite_word(&body, "authors", SLICE("[]"));
    jwrite_close(&body, '}');
    jwrite_close(&body, ']');
    say_written(k, &body);
    buf_free(&body);
}

bool synced_route(struct hf_ask *k)
{
    struct repo_info info;

    switch (k->at.route) {
    case HF_INFO:
        if (synced_commit(k) && info_read(k->info->bytes, &info)) {
            say_json(k, info.json);
        }
        return true;
    case HF_REFS:
        plan_refs(k);
        return true;
    case HF_COMMITS:
        plan_commits(k);
        return true;
    case HF_ABOUT:
    case HF_BUCKET:
    case HF_OTHER:
        say_error(
            k, 404, SLICE_NONE,
            SLICE("this mirror keeps the listed repositories only, and no other pages of the Hub"));
        return true;
    case HF_FILE:
    case HF_TREE:
    case HF_PATHS:
    case HF_AUTH_CHECK:
    case HF_WHOAMI:
    case HF_TELEMETRY:
    case HF_XET:
    case HF_XET_STORE:
    case HF_XET_PUT:
    case HF_WRITE:
    case HF_NONE:
        return false;
    }
    return false;
}
