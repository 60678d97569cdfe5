/* carry_files.c - the files of what is carried in: those that are here already, and those that come, each checked by both its names.
 *
 * A large one goes the way of an upload (upload/upload.h). Small ones lie in rows, and what a row costs is the wait for its commit:
 * they are gathered and written together. Those that still wait when the process dies are asked for again. */
#include "server/hub/carry_in.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/os/clock.h"
#include "common/os/crash.h"
#include "server/store/blob.h"

enum { READ_BYTES = 1 << 20, HOLD_AT_ONCE = 128, GROUP_FILES = 256, GROUP_BYTES = 1 << 20 };

/* --- what is here already ----------------------------------------------------------------------------------------- */

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

static void put_file(struct carry_in *c, const struct session *s, const struct carry_in_file *f,
                     struct batch *b)
{
    struct manifest_entry en;
    struct session_file sf = {.sealed = true, .digest = f->digest};

    manifest_at(&c->is.files, f->at, &en);
    sf.bytes = en.size_bytes;
    session_file_put(s, en.path, &sf, b);
    session_hold(s, en.path, &f->digest, b);
}

/* Those of [first, end) that are here become the session's; E_CHANGED: one was evicted this very moment. */
static int hold_some(struct carry_in *c, const struct session *s, size_t first, size_t end,
                     struct err *e)
{
    struct batch *b = batch_new();
    int rc;

    session_require(s, b);
    for (size_t i = first; i < end; i++) {
        c->file[i].here = is_here(c, &c->file[i]);
        if (c->file[i].here) {
            put_file(c, s, &c->file[i], b);
        }
    }
    rc = store_commit(c->is.hub->store, &b, COMMIT_LAZY, e);
    for (size_t i = first; rc != 0 && i < end; i++) {
        c->file[i].here = false;
    }
    return rc;
}

int carry_files_hold(struct carry_in *c, struct err *e)
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
    return err_set(e, E_NOTFOUND, "\"" SLICE_FMT "\" is no file of this commit", SLICE_ARG(path));
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
               ? err_set(e, E_INVALID, "it has %lld bytes, its size is said to be %llu",
                         (long long)st.st_size, (unsigned long long)size_bytes)
               : 0;
}

/* --- one that comes ----------------------------------------------------------------------------------------------- */

struct taking {
    struct upload_sink *sink; /* NULL: small, into bytes */
    struct buf bytes;
    struct git_hasher *git; /* NULL: LFS */
    struct upload_reply reply;
};

static int take_in(struct taking *t, struct slice bytes, struct err *e)
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

static int pour(struct taking *t, int fd, uint64_t size_bytes, bool (*over)(void *arg, int fd),
                void *arg, struct err *e)
{
    char *room = mem_new((size_t)min_u64(READ_BYTES, size_bytes) + 1);
    uint64_t at = 0;
    int rc = 0;

    while (rc == 0 && t->reply.status == 0 && at < size_bytes) {
        size_t want = (size_t)min_u64(READ_BYTES, size_bytes - at);
        ssize_t n;
        if (over(arg, fd)) {
            rc = err_set(e, E_CANCELLED, "its sender has left, or sends nothing");
            break;
        }
        n = read(fd, room, want);
        if (n > 0) {
            rc = take_in(t, slice_of(room, (size_t)n), e);
            at += (uint64_t)n;
        } else if (n == 0) {
            rc = err_set(e, E_INVALID, "it ends after %llu of %llu bytes", (unsigned long long)at,
                         (unsigned long long)size_bytes);
        } else if (errno != EINTR && errno != EAGAIN) {
            rc = err_sys(e, "reading it");
        }
    }
    free(room);
    return rc == 0 && t->reply.status != 0 ? carry_in_refusal(&t->reply, e) : rc;
}

static int open_sink(struct carry_in *c, const struct carry_in_file *f,
                     const struct manifest_entry *entry, struct taking *t, struct err *e)
{
    struct upload_body body = {.length = entry->size_bytes};
    struct put p = carry_in_put(c, PUT_UPLOAD_FILE);
    int rc;

    p.path = entry->path;
    p.digest_known = true;
    p.digest = f->digest;
    p.total = entry->size_bytes;
    rc = upload_sink_open(c->is.hub->uploads, &p, &body, &t->sink, &t->reply, e);
    return rc == 0 && t->sink == NULL ? carry_in_refusal(&t->reply, e) : rc;
}

static int other_bytes(struct err *e)
{
    return err_set(e, E_CORRUPT, "its bytes are not those of its SHA-256");
}

static int judge_git(struct taking *t, const struct manifest_entry *entry, struct err *e)
{
    struct git_oid oid;

    if (t->git == NULL) {
        return 0;
    }
    git_hasher_final(t->git, &oid);
    return git_oid_eq(&oid, &entry->oid)
               ? 0
               : err_set(e, E_CORRUPT,
                         "its bytes are not those that git's id in the listing names");
}

static int finish(struct taking *t, struct err *e)
{
    int rc = upload_sink_finish(&t->sink, clock_unix_s(), &t->reply, e);

    return rc == 0 && t->reply.status == 422   ? other_bytes(e)
           : rc == 0 && t->reply.status != 201 ? carry_in_refusal(&t->reply, e)
                                               : rc;
}

/* --- small ones --------------------------------------------------------------------------------------------------- */

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

static int gather(struct carry_in *c, const struct carry_in_file *f, struct slice bytes,
                  struct err *e)
{
    struct carry_group *g = &c->group;
    struct digest d;
    int rc;

    digest_of(bytes, &d);
    if (!digest_eq(&d, &f->digest)) {
        return other_bytes(e);
    }
    rc = begin_group(c, e);
    if (rc == 0) {
        rc = blob_put_bytes(c->is.hub->store, bytes, g->batch, NULL, e);
    }
    if (rc == 0) {
        put_file(c, &g->session, f, g->batch);
        g->files++;
        g->bytes += bytes.n;
    }
    return rc == 0 && (g->files >= GROUP_FILES || g->bytes >= GROUP_BYTES) ? carry_in_flush(c, e)
                                                                           : rc;
}

int carry_in_flush(struct carry_in *c, struct err *e)
{
    struct carry_group *g = &c->group;
    int rc = g->batch != NULL ? store_commit(c->is.hub->store, &g->batch, COMMIT_LAZY, e) : 0;

    carry_files_drop(c);
    return rc == E_CHANGED ? carry_in_ended(e) : rc;
}

void carry_files_drop(struct carry_in *c)
{
    batch_free(&c->group.batch);
    session_free(&c->group.session);
    c->group = (struct carry_group){0};
}

/* ------------------------------------------------------------------------------------------------------------------ */

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
    rc = rc == 0 ? hold_some(c, &s, i, i + 1, e) : rc;
    session_free(&s);
    if (rc == 0 && !f->here) {
        rc = err_set(e, E_CORRUPT,
                     SLICE_FMT ": the bytes that came are not those of its size and "
                               "git's id in the listing",
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
    struct taking t = {.reply = {.body = BUF_INIT(64 << 10)},
                       .bytes = BUF_INIT(BLOB_INLINE_BYTES),
                       .git = entry->lfs ? NULL : git_hasher_new(entry->size_bytes)};
    int rc = judge_fd(fd, entry->size_bytes, e);

    if (rc == 0 && !small) {
        rc = open_sink(c, f, entry, &t, e);
    }
    if (rc == 0) {
        rc = pour(&t, fd, entry->size_bytes, over, arg, e);
    }
    if (rc == 0) {
        rc = judge_git(&t, entry, e);
    }
    if (rc == 0) {
        rc = small ? gather(c, f, buf_slice(&t.bytes), e) : finish(&t, e);
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
