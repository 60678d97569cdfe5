#include "server/hub/carry_in.h"

#include <stdlib.h>

#include "common/codec/units.h"
#include "common/os/clock.h"
#include "common/os/crash.h"
#include "server/repo/hosted/hub.h"
#include "server/upload/live.h"
#include "server/store/ref.h"

/* --- its session -------------------------------------------------------------------------------------------------- */

struct put carry_in_put(const struct carry_in *c, enum put_kind kind)
{
    return (struct put){.kind = kind,
                        .repo = slice_str(c->is.repo->name),
                        .name = c->tree_name,
                        .upload_id = slice_of(c->id, c->id[0] != '\0' ? UPLOAD_ID : 0),
                        .total = UINT64_MAX};
}

int carry_in_ended(struct err *e)
{
    return err_set(e, E_CHANGED,
                   "this import was given up meanwhile, it took more than a day, begin it anew: "
                   "what has come is found again");
}

int carry_in_session(const struct carry_in *c, struct session *out, struct err *e)
{
    struct put p = carry_in_put(c, PUT_UPLOAD_STATUS);
    int rc = session_load(c->is.hub->store, &p, out, e);

    return rc == E_NOTFOUND ? carry_in_ended(e) : rc;
}

int carry_in_refusal(const struct upload_reply *r, struct err *e)
{
    int rc = r->status == 507                       ? E_NOSPACE
             : r->status == 422                     ? E_CORRUPT
             : r->status == 413                     ? E_TOOBIG
             : r->status == 409 || r->status == 412 ? E_CHANGED
             : r->status == 503                     ? E_BUSY
                                                    : E_INVALID;
    struct slice text = buf_slice(&r->body);
    const char *said = memmem(text.p, text.n, ":\"", 2);

    if (said != NULL) {
        text = slice_from(text, (size_t)(said - text.p) + 2);
        text.n = slice_find(text, '"') >= 0 ? (size_t)slice_find(text, '"') : text.n;
    }
    return err_set(e, rc, SLICE_FMT, SLICE_ARG(text));
}

static int open_session(struct carry_in *c, struct err *e)
{
    struct upload_reply reply = {.body = BUF_INIT(4096)};
    struct put p = carry_in_put(c, PUT_UPLOAD_OPEN);
    int rc;

    p.location = SLICE("");
    rc = upload_run(c->is.hub->uploads, &p, clock_unix_s(), &reply, e);
    if (rc == 0 && reply.status != 201) {
        rc = carry_in_refusal(&reply, e);
    }
    if (rc == 0) {
        CHECK(strlen(reply.location) == UPLOAD_ID + 1); /* "/" and the id */
        memcpy(c->id, reply.location + 1, UPLOAD_ID + 1);
    }
    upload_reply_free(&reply);
    return rc;
}

static void copy_names(struct carry_in *c, const struct carry_in_ask *ask)
{
    struct arena *a = &c->is.arena;

    c->is.type = arena_copy(a, ask->type);
    c->is.id = arena_copy(a, ask->id);
    c->is.rev = arena_copy(a, ask->rev);
    c->is.commit = arena_copy(a, ask->commit);
    c->is.seen_unix_s = min_u64(ask->seen_unix_s, clock_unix_s());
    c->names = mem_array(ask->names_count + 1, sizeof *c->names);
    c->names[c->names_count++] = c->is.id;
    for (size_t i = 0; i < ask->names_count; i++) {
        if (!slice_eq(ask->names[i], c->is.id)) {
            c->names[c->names_count++] = arena_copy(a, ask->names[i]);
        }
    }
    c->tree_name = c->is.kind == STOCK_HOSTED
                       ? hub_tree(c->is.type, c->is.id, a)
                       : arena_fmt(a, SLICE_FMT "/" SLICE_FMT "@" SLICE_FMT, SLICE_ARG(c->is.type),
                                   SLICE_ARG(c->is.id), SLICE_ARG(c->is.rev));
}

int carry_in_begin(const struct hub_parts *hub, struct repo_set *set, struct repo *r,
                   const struct carry_in_ask *ask, struct carry_in **out, struct err *e)
{
    struct carry_in *c = NEW(struct carry_in);
    int rc;

    *out = NULL;
    c->set = repo_set_share(set);
    c->open = ask->open;
    c->pin = ask->pin;
    c->is = (struct carry){.hub = hub,
                           .repo = r,
                           .info = BUF_INIT(CARRY_WORDS_BYTES),
                           .tree = BUF_INIT(CARRY_WORDS_BYTES),
                           .listing = BUF_INIT(CARRY_WORDS_BYTES)};
    rc = carry_kind_of(r, &c->is.kind, e);
    if (rc == 0 && c->is.kind == STOCK_SYNCED) {
        rc = err_set(e, E_USAGE,
                     "repo %s is kept as its sync says, the next run would take an import away, "
                     "name a repo without a sync section, or a hosted one",
                     r->name);
    }
    if (rc == 0) {
        rc = carry_claim_names(c, ask, e);
    }
    if (rc == 0) {
        copy_names(c, ask);
        rc = carry_claim_words(c, ask, e);
    }
    if (rc == 0) {
        rc = open_session(c, e);
    }
    if (rc == 0) {
        rc = carry_files_hold(c, e);
        if (rc != 0) {
            (void)!carry_in_abort(c, NULL);
        }
    }
    if (rc != 0) {
        carry_in_free(&c);
    }
    *out = c;
    return rc;
}

/* --- its end ------------------------------------------------------------------------------------------------------ */

/* Another revision than main is a branch. One that is new begins at main, which is there: *first is false. */
static int need_branch(struct carry_in *c, bool *first, struct err *e)
{
    struct ref r = {.kind = REF_BRANCH,
                    .name = c->is.rev,
                    .created_unix_s = clock_unix_s(),
                    .message = SLICE("")};
    struct slice repo = slice_str(c->is.repo->name);
    struct snap sn;
    int rc = head_get(c->is.hub->store, repo, c->tree_name, &sn, e);

    *first = rc == E_NOTFOUND;
    if (rc != 0) {
        return *first ? 0 : rc;
    }
    r.seq = sn.seq;
    rc = ref_get(c->is.hub->store, repo, c->tree_name, REF_BRANCH, c->is.rev, &sn, e);
    return rc == E_NOTFOUND ? ref_create(c->is.hub->store, repo, c->tree_name, &r, e) : rc;
}

static int end_hosted(struct carry_in *c, struct err *e)
{
    struct upload_reply reply = {.body = BUF_INIT(64 << 10)};
    struct put p = carry_in_put(c, PUT_UPLOAD_COMMIT);
    bool first = true, other = !carry_is_main(c->is.rev);
    int rc = other ? need_branch(c, &first, e) : 0;

    p.replace = true;
    p.branch = first ? SLICE("") : c->is.rev;
    rc = rc == 0 ? upload_run(c->is.hub->uploads, &p, clock_unix_s(), &reply, e) : rc;
    if (rc == 0 && reply.status != 201) {
        rc = carry_in_refusal(&reply, e);
    }
    if (rc == 0 && other && first) {
        rc = need_branch(c, &first, e);
    }
    upload_reply_free(&reply);
    return rc;
}

int carry_in_commit(struct carry_in *c, struct err *e)
{
    int rc;

    if (c->missing != 0) {
        return err_set(e, E_INVALID, "nothing of " SLICE_FMT " shows yet, %zu %s not come",
                       SLICE_ARG(c->is.id), c->missing,
                       plural(c->missing, "file has", "files have"));
    }
    rc = carry_in_flush(c, e);
    crash_point("carry.commit");
    if (rc == 0) {
        rc = c->is.kind == STOCK_HOSTED ? end_hosted(c, e) : carry_rows_commit(c, e);
    }
    if (rc == 0) {
        c->id[0] = '\0';
        repos_changed(c->is.hub->repos, slice_str(c->is.repo->name));
        crash_point("carry.committed");
    }
    return rc;
}

int carry_in_abort(struct carry_in *c, struct err *e)
{
    struct upload_reply reply = {.body = BUF_INIT(4096)};
    struct put p = carry_in_put(c, PUT_UPLOAD_ABORT);
    int rc = c->id[0] != '\0' ? upload_run(c->is.hub->uploads, &p, clock_unix_s(), &reply, e) : 0;

    carry_files_drop(c);
    c->id[0] = '\0';
    upload_reply_free(&reply);
    return rc;
}

void carry_in_free(struct carry_in **cp)
{
    struct carry_in *c = *cp;

    *cp = NULL;
    if (c != NULL) {
        carry_files_drop(c);
        repo_set_release(&c->set);
        carry_free(&c->is);
        free(c->names);
        free(c->file);
        free(c);
    }
}
