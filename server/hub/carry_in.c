/* carry_in.c - in this order: the session that holds what has arrived; the documents, checked; the
 * files; the beginning and the end of an import.
 *
 * Exactly the files of the commit's listing are expected. A large file is stored like an upload
 * (upload/upload.h). Small files are stored in rows, whose cost is the wait for their commit, so
 * they are gathered and written together. Those that still wait when the process dies are requested
 * again.
 */
#include "server/hub/carry_in.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/codec/units.h"
#include "common/os/clock.h"
#include "common/os/crash.h"
#include "server/repo/hosted/hosted.h"
#include "server/repo/hosted/hub.h"
#include "server/store/blob.h"
#include "server/store/ref.h"
#include "server/upload/live.h"

enum { NAME_MAX_BYTES = 250 };
enum { READ_BYTES = 1 << 20, HOLD_AT_ONCE = 128, GROUP_FILES = 256, GROUP_BYTES = 1 << 20 };

/* --- its session ------------------------------------------------------------------------------ */

static struct put put_of(const struct carry_in *c, enum put_kind kind)
{
    return (struct put){.kind = kind,
                        .repo = slice_str(c->is.repo->name),
                        .name = c->tree_name,
                        .upload_id = slice_of(c->id, c->id[0] != '\0' ? UPLOAD_ID : 0),
                        .total = UINT64_MAX};
}

static int session_ended(struct err *e)
{
    return err_set(e, E_CHANGED,
                   "this import was canceled because it took more than a day; start it again, it "
                   "continues with the files already received");
}

int carry_in_session(const struct carry_in *c, struct session *out, struct err *e)
{
    struct put p = put_of(c, PUT_UPLOAD_STATUS);
    int rc = session_load(c->is.hub->store, &p, out, e);

    return rc == E_NOTFOUND ? session_ended(e) : rc;
}

/* A put's answer that is none of those that were hoped for. */
static int refusal(const struct upload_reply *r, struct err *e)
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
    struct put p = put_of(c, PUT_UPLOAD_OPEN);
    int rc;

    p.location = SLICE("");
    rc = upload_run(c->is.hub->uploads, &p, clock_unix_s(), &reply, e);
    if (rc == 0 && reply.status != 201) {
        rc = refusal(&reply, e);
    }
    if (rc == 0) {
        CHECK(strlen(reply.location) == UPLOAD_ID + 1); /* "/" and the id */
        memcpy(c->id, reply.location + 1, UPLOAD_ID + 1);
    }
    upload_reply_free(&reply);
    return rc;
}

/* --- what is said of it ----------------------------------------------------------------------- */

static bool is_main(struct slice rev)
{
    return slice_eqs(rev, "main") || hf_is_commit(rev);
}

static int claim_names(struct carry_in *c, const struct carry_in_ask *ask, struct err *e)
{
    struct slice rest = ask->id;
    struct slice owner = slice_cut(&rest, '/');
    struct hf_spec spec;
    bool fine = hf_is_id(ask->id) && hf_is_commit(ask->commit) && hf_is_path(ask->rev);

    fine = fine && ask->rev.n != 0 &&
           hf_spec_parse(arena_fmt(&c->is.arena, SLICE_FMT "/" SLICE_FMT, SLICE_ARG(ask->type),
                                   SLICE_ARG(ask->id)),
                         &spec) &&
           slice_eq(spec.type, ask->type);
    for (size_t i = 0; fine && i < ask->names_count; i++) {
        fine = hf_is_id(ask->names[i]);
    }
    if (!fine || ask->type.n + ask->id.n + ask->rev.n > NAME_MAX_BYTES) {
        return err_set(e, E_INVALID, "invalid name of a repository or revision");
    }
    if (c->is.kind == INVENTORY_HOSTED &&
        (slice_eqs(ask->type, "kernels") || rest.n == 0 || !hosted_segment_valid(owner) ||
         !hosted_segment_valid(rest))) {
        return err_set(
            e, E_UNSUPPORTED,
            SLICE_FMT
            "/" SLICE_FMT
            " cannot be in a hosted repo; those have models, datasets and spaces named owner/name",
            SLICE_ARG(ask->type), SLICE_ARG(ask->id));
    }
    if (c->is.kind == INVENTORY_HOSTED && !is_main(ask->rev) && !ref_name_valid(ask->rev)) {
        return err_set(e, E_UNSUPPORTED,
                       "a branch of a hosted repo cannot be named \"" SLICE_FMT
                       "\"; export the revision by its commit",
                       SLICE_ARG(ask->rev));
    }
    return 0;
}

static int learn_info(struct carry_in *c, const struct carry_in_ask *ask, struct err *e)
{
    struct buf made = BUF_INIT(CARRY_WORDS_BYTES);
    struct repo_info info;
    int rc = info_make(ask->info, &made, e);

    if (rc == 0 && (!info_read(buf_slice(&made), &info) || !slice_eq(info.commit, ask->commit) ||
                    !slice_eq(info.id, ask->id))) {
        rc = err_set(e, E_INVALID,
                     "the Hub's metadata in the archive is of another repository or commit than "
                     "the archive");
    }
    if (rc == 0) {
        c->is.closed = info.closed;
        buf_adds(&c->is.info, info.json);
    }
    buf_free(&made);
    return rc != 0 ? rc : c->is.info.rc;
}

/* Who may read it at the Hub nobody can be asked here. */
static int judge_rights(struct carry_in *c, struct err *e)
{
    bool hosted = c->is.kind == INVENTORY_HOSTED;

    if (!c->is.closed || c->open ||
        (hosted ? !c->is.repo->anonymous_read : !c->is.repo->by_caller)) {
        return 0;
    }
    if (hosted) {
        return err_set(e, E_DENIED,
                       "%.80s is not public at the Hub, and everybody may read repo %.40s; add "
                       "--open to show it to them, or use a repo with access { anonymous = none }",
                       arena_cstr(&c->is.arena, c->is.id), c->is.repo->name);
    }
    return err_set(
        e, E_DENIED,
        "%.80s is not public at the Hub, and repo %.40s asks the Hub for each caller's rights; add "
        "--open to show it to all readers of the repo, or use one with credentials = service",
        arena_cstr(&c->is.arena, c->is.id), c->is.repo->name);
}

/* "hex path NUL" for each file, in the order of the listing. */
static int learn_digests(struct carry_in *c, struct slice said, struct err *e)
{
    c->file = mem_array(c->is.files.count + 1, sizeof *c->file);
    for (size_t i = 0; i < c->is.files.count; i++) {
        struct carry_in_file *f = &c->file[c->files];
        struct manifest_entry en;
        struct slice path;
        manifest_at(&c->is.files, i, &en);
        if (en.folder) {
            continue;
        }
        path = slice_cut(&said, '\0');
        f->at = (uint32_t)i;
        if (path.n <= DIGEST_HEX + 1 || path.p[DIGEST_HEX] != ' ' ||
            !digest_parse(slice_first(path, DIGEST_HEX), &f->digest) ||
            !slice_eq(slice_from(path, DIGEST_HEX + 1), en.path) ||
            (en.lfs && !digest_eq(&en.sha256, &f->digest))) {
            return err_set(e, E_INVALID,
                           "the files of the archive differ from the commit's listing, starting at "
                           "\"" SLICE_FMT "\"",
                           SLICE_ARG(en.path));
        }
        if (!tree_path_valid(en.path)) {
            return err_set(e, E_INVALID, "\"" SLICE_FMT "\" is not a valid path here",
                           SLICE_ARG(en.path));
        }
        c->files++;
    }
    return said.n == 0
               ? 0
               : err_set(e, E_INVALID, "the archive has more files than the commit's listing");
}

static int claim_words(struct carry_in *c, const struct carry_in_ask *ask, struct err *e)
{
    int rc = learn_info(c, ask, e);

    rc = rc != 0 ? rc : judge_rights(c, e);
    rc = rc != 0 ? rc : json_join(ask->tree, true, &c->is.tree, e);
    rc = rc != 0 ? rc
                 : manifest_add(buf_slice(&c->is.tree), SLICE(""), true, true, &c->is.listing, e);
    if (rc == 0 && !manifest_open(buf_slice(&c->is.listing), &c->is.files)) {
        rc = err_set(e, E_INVALID, "the listing in the archive cannot be parsed");
    }
    return rc != 0 ? rc : learn_digests(c, ask->digests, e);
}

/* --- what is here already --------------------------------------------------------------------- */

/* Are the bytes in this store, and are they the file's by both its names? */
static bool is_here(struct carry_in *c, const struct carry_in_file *f)
{
    struct manifest_entry en;
    struct blob *b = NULL;
    struct git_oid oid;
    bool yes;

    manifest_at(&c->is.files, f->at, &en);
    if (blob_open(c->is.hub->store, &f->digest, &b, NULL) != 0) {
        return false;
    }
    yes = blob_size_bytes(b) == en.size_bytes;
    if (yes && !en.lfs) {
        yes = blob_git_oid(b, &oid, NULL) == 0 && git_oid_eq(&oid, &en.oid);
    }
    blob_release(&b);
    return yes;
}

static void put_carried_file(struct carry_in *c, const struct session *s,
                             const struct carry_in_file *f, struct batch *b)
{
    struct manifest_entry en;
    struct session_file sf = {.sealed = true, .digest = f->digest};

    manifest_at(&c->is.files, f->at, &en);
    sf.bytes = en.size_bytes;
    session_file_put(s, en.path, &sf, b);
    session_hold(s, en.path, &f->digest, b);
}

/* Those of [first, end) that are here become the session's; E_CHANGED: one was evicted this very
 * moment. */
static int hold_some(struct carry_in *c, const struct session *s, size_t first, size_t end,
                     struct err *e)
{
    struct batch *b = batch_new();
    int rc;

    session_require(s, b);
    for (size_t i = first; i < end; i++) {
        c->file[i].here = is_here(c, &c->file[i]);
        if (c->file[i].here) {
            put_carried_file(c, s, &c->file[i], b);
        }
    }
    rc = store_commit(c->is.hub->store, &b, COMMIT_LAZY, e);
    for (size_t i = first; rc != 0 && i < end; i++) {
        c->file[i].here = false;
    }
    return rc;
}

static int hold_files(struct carry_in *c, struct err *e)
{
    struct session s;
    struct manifest_entry en;
    int rc = carry_in_session(c, &s, e);

    for (size_t i = 0; rc == 0 && i < c->files; i += HOLD_AT_ONCE) {
        size_t end = i + HOLD_AT_ONCE < c->files ? i + HOLD_AT_ONCE : c->files;
        rc = hold_some(c, &s, i, end, e);
        rc = rc == E_CHANGED ? 0 : rc; /* then all of these are asked for */
    }
    session_free(&s);
    for (size_t i = 0; rc == 0 && i < c->files; i++) {
        if (!c->file[i].here) {
            manifest_at(&c->is.files, c->file[i].at, &en);
            c->missing++;
            c->missing_bytes += en.size_bytes;
        }
    }
    return rc;
}

int carry_in_find(const struct carry_in *c, struct slice path, struct carry_in_file **out,
                  struct manifest_entry *entry, struct err *e)
{
    size_t low = 0, high = c->files;

    while (low < high) {
        size_t mid = low + (high - low) / 2;
        int cmp;
        manifest_at(&c->is.files, c->file[mid].at, entry);
        cmp = slice_cmp(entry->path, path);
        if (cmp == 0) {
            *out = &c->file[mid];
            return 0;
        }
        low = cmp < 0 ? mid + 1 : low;
        high = cmp < 0 ? high : mid;
    }
    return err_set(e, E_NOTFOUND, "\"" SLICE_FMT "\" is not a file of this commit",
                   SLICE_ARG(path));
}

static int judge_fd(int fd, uint64_t size_bytes, struct err *e)
{
    struct stat st;

    if (fstat(fd, &st) != 0) {
        return err_sys(e, "fstat");
    }
    if (!S_ISREG(st.st_mode) && !S_ISFIFO(st.st_mode)) {
        return err_set(e, E_USAGE, "the descriptor is neither a file nor a pipe");
    }
    return S_ISREG(st.st_mode) && (uint64_t)st.st_size != size_bytes
               ? err_set(e, E_INVALID, "the file has %lld bytes, but its announced size is %llu",
                         (long long)st.st_size, (unsigned long long)size_bytes)
               : 0;
}

/* --- one that comes --------------------------------------------------------------------------- */

struct file_import {
    struct upload_sink *sink; /* NULL: small, into bytes */
    struct buf bytes;
    struct git_hasher *git; /* NULL: LFS */
    struct upload_reply reply;
};

static int add_import_bytes(struct file_import *t, struct slice bytes, struct err *e)
{
    if (t->git != NULL) {
        git_hasher_add(t->git, bytes);
    }
    if (t->sink != NULL) {
        return upload_sink_write(t->sink, bytes, &t->reply, e);
    }
    buf_adds(&t->bytes, bytes);
    return t->bytes.rc;
}

static int pour(struct file_import *t, int fd, uint64_t size_bytes, bool (*over)(void *arg, int fd),
                void *arg, struct err *e)
{
    char *room = mem_new((size_t)min_u64(READ_BYTES, size_bytes) + 1);
    uint64_t at = 0;
    int rc = 0;

    while (rc == 0 && t->reply.status == 0 && at < size_bytes) {
        size_t lookup = (size_t)min_u64(READ_BYTES, size_bytes - at);
        ssize_t n;
        if (over(arg, fd)) {
            rc = err_set(e, E_CANCELLED, "the sender closed the connection, or sends nothing");
            break;
        }
        n = read(fd, room, lookup);
        if (n > 0) {
            rc = add_import_bytes(t, slice_of(room, (size_t)n), e);
            at += (uint64_t)n;
        } else if (n == 0) {
            rc = err_set(e, E_INVALID, "the file ends after %llu of %llu bytes",
                         (unsigned long long)at, (unsigned long long)size_bytes);
        } else if (errno != EINTR && errno != EAGAIN) {
            rc = err_sys(e, "read the file");
        }
    }
    free(room);
    return rc == 0 && t->reply.status != 0 ? refusal(&t->reply, e) : rc;
}

static int open_sink(struct carry_in *c, const struct carry_in_file *f,
                     const struct manifest_entry *entry, struct file_import *t, struct err *e)
{
    struct upload_body body = {.length = entry->size_bytes};
    struct put p = put_of(c, PUT_UPLOAD_FILE);
    int rc;

    p.path = entry->path;
    p.digest_known = true;
    p.digest = f->digest;
    p.total = entry->size_bytes;
    rc = upload_sink_open(c->is.hub->uploads, &p, &body, &t->sink, &t->reply, e);
    return rc == 0 && t->sink == NULL ? refusal(&t->reply, e) : rc;
}

static int other_bytes(struct err *e)
{
    return err_set(e, E_CORRUPT, "the bytes do not match the announced SHA-256");
}

static int judge_git(struct file_import *t, const struct manifest_entry *entry, struct err *e)
{
    struct git_oid oid;

    if (t->git == NULL) {
        return 0;
    }
    git_hasher_final(t->git, &oid);
    return git_oid_eq(&oid, &entry->oid)
               ? 0
               : err_set(e, E_CORRUPT, "the bytes do not match the git id in the listing");
}

static int finish_file_import(struct file_import *t, struct err *e)
{
    int rc = upload_sink_finish(&t->sink, clock_unix_s(), &t->reply, e);

    return rc == 0 && t->reply.status == 422   ? other_bytes(e)
           : rc == 0 && t->reply.status != 201 ? refusal(&t->reply, e)
                                               : rc;
}

/* --- small ones ------------------------------------------------------------------------------- */

static int begin_group(struct carry_in *c, struct err *e)
{
    struct carry_group *g = &c->group;
    int rc = g->batch == NULL ? carry_in_session(c, &g->session, e) : 0;

    if (rc != 0) {
        session_free(&g->session);
    } else if (g->batch == NULL) {
        g->batch = batch_new();
        session_require(&g->session, g->batch);
    }
    return rc;
}

static int gather_carried_bytes(struct carry_in *c, const struct carry_in_file *f,
                                struct slice bytes, struct err *e)
{
    struct carry_group *g = &c->group;
    struct digest d;
    int rc;

    digest_of(bytes, &d);
    if (!digest_eq(&d, &f->digest)) {
        return other_bytes(e);
    }
    rc = begin_group(c, e);
    rc = rc != 0 ? rc : blob_put_bytes(c->is.hub->store, bytes, g->batch, NULL, e);
    if (rc == 0) {
        put_carried_file(c, &g->session, f, g->batch);
        g->files++;
        g->bytes += bytes.n;
    }
    return rc == 0 && (g->files >= GROUP_FILES || g->bytes >= GROUP_BYTES) ? carry_in_flush(c, e)
                                                                           : rc;
}

static void drop_group(struct carry_in *c)
{
    batch_free(&c->group.batch);
    session_free(&c->group.session);
    c->group = (struct carry_group){0};
}

int carry_in_flush(struct carry_in *c, struct err *e)
{
    struct carry_group *g = &c->group;
    int rc = g->batch != NULL ? store_commit(c->is.hub->store, &g->batch, COMMIT_LAZY, e) : 0;

    drop_group(c);
    return rc == E_CHANGED ? session_ended(e) : rc;
}

/* --- a file has come -------------------------------------------------------------------------- */

static void has_come(struct carry_in *c, struct carry_in_file *f,
                     const struct manifest_entry *entry)
{
    f->here = true;
    c->missing--;
    c->missing_bytes -= entry->size_bytes;
}

int carry_in_again(struct carry_in *c, struct carry_in_file *f, struct err *e)
{
    size_t i = (size_t)(f - c->file);
    struct manifest_entry en;
    struct session s;
    int rc = carry_in_session(c, &s, e);

    manifest_at(&c->is.files, f->at, &en);
    rc = rc != 0 ? rc : hold_some(c, &s, i, i + 1, e);
    session_free(&s);
    if (rc == 0 && !f->here) {
        rc = err_set(e, E_CORRUPT,
                     SLICE_FMT ": the bytes do not match the size and git id in the listing",
                     SLICE_ARG(en.path));
    } else if (rc == 0) {
        has_come(c, f, &en);
    }
    return rc;
}

int carry_in_take(struct carry_in *c, struct carry_in_file *f, const struct manifest_entry *entry,
                  int fd, bool (*over)(void *arg, int fd), void *arg, struct err *e)
{
    bool small = entry->size_bytes <= BLOB_INLINE_BYTES;
    struct file_import t = {.reply = {.body = BUF_INIT(64 << 10)},
                            .bytes = BUF_INIT(BLOB_INLINE_BYTES),
                            .git = entry->lfs ? NULL : git_hasher_new(entry->size_bytes)};
    int rc = judge_fd(fd, entry->size_bytes, e);

    if (rc == 0 && !small) {
        rc = open_sink(c, f, entry, &t, e);
    }
    rc = rc != 0 ? rc : pour(&t, fd, entry->size_bytes, over, arg, e);
    rc = rc != 0 ? rc : judge_git(&t, entry, e);
    if (rc == 0) {
        rc = small ? gather_carried_bytes(c, f, buf_slice(&t.bytes), e) : finish_file_import(&t, e);
    }
    upload_sink_close(&t.sink);
    git_hasher_free(&t.git);
    upload_reply_free(&t.reply);
    buf_free(&t.bytes);
    if (rc != 0) {
        err_prefix(e, SLICE_FMT, SLICE_ARG(entry->path));
        return rc;
    }
    has_come(c, f, entry);
    crash_point("carry.file");
    return 0;
}

/* --- its beginning ---------------------------------------------------------------------------- */

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
    c->tree_name = c->is.kind == INVENTORY_HOSTED
                       ? hub_tree(c->is.type, c->is.id, a)
                       : arena_fmt(a, SLICE_FMT "/" SLICE_FMT "@" SLICE_FMT, SLICE_ARG(c->is.type),
                                   SLICE_ARG(c->is.id), SLICE_ARG(c->is.rev));
}

int carry_in_begin(const struct hub_deps *hub, struct repo_set *set, struct repo *r,
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
    if (rc == 0 && c->is.kind == INVENTORY_SYNCED) {
        rc = err_set(e, E_USAGE,
                     "repo %s is synced, and its next run would remove an import; name a repo "
                     "without a sync section, or a hosted one",
                     r->name);
    }
    rc = rc != 0 ? rc : claim_names(c, ask, e);
    if (rc == 0) {
        copy_names(c, ask);
        rc = claim_words(c, ask, e);
    }
    rc = rc != 0 ? rc : open_session(c, e);
    if (rc == 0) {
        rc = hold_files(c, e);
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

/* --- its end ---------------------------------------------------------------------------------- */

/* Another revision than main is a branch. One that is new begins at main, which is there: *first is
 * false. */
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
    struct put p = put_of(c, PUT_UPLOAD_COMMIT);
    bool first = true, other = !is_main(c->is.rev);
    int rc = other ? need_branch(c, &first, e) : 0;

    p.replace = true;
    p.branch = first ? SLICE("") : c->is.rev;
    rc = rc != 0 ? rc : upload_run(c->is.hub->uploads, &p, clock_unix_s(), &reply, e);
    if (rc == 0 && reply.status != 201) {
        rc = refusal(&reply, e);
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
        return err_set(e, E_INVALID,
                       SLICE_FMT " is not published yet: %zu %s missing; send them first",
                       SLICE_ARG(c->is.id), c->missing, plural(c->missing, "file is", "files are"));
    }
    rc = carry_in_flush(c, e);
    crash_point("carry.commit");
    if (rc == 0) {
        rc = c->is.kind == INVENTORY_HOSTED ? end_hosted(c, e) : carry_rows_commit(c, e);
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
    struct put p = put_of(c, PUT_UPLOAD_ABORT);
    int rc = c->id[0] != '\0' ? upload_run(c->is.hub->uploads, &p, clock_unix_s(), &reply, e) : 0;

    drop_group(c);
    c->id[0] = '\0';
    upload_reply_free(&reply);
    return rc;
}

void carry_in_free(struct carry_in **cp)
{
    struct carry_in *c = *cp;

    *cp = NULL;
    if (c != NULL) {
        drop_group(c);
        repo_set_release(&c->set);
        carry_free(&c->is);
        free(c->names);
        free(c->file);
        free(c);
    }
}
