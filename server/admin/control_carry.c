/* hf.export, hf.import and what belongs to them: repositories of a Hub, carried away and in
 * (carry.h). */
#include <errno.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/log.h"
#include "common/codec/jread.h"
#include "common/os/newfile.h"
#include "server/hub/carry_in.h"
#include "server/admin/talk.h"
#include "server/store/blob.h"

enum { QUIET_MS = 3600 * 1000, LOOK_MS = 1000, IMPORTS_MAX = 256, NAMES_MAX = 16 };

/* --- export ----------------------------------------------------------------------------------- */

/* A file without a name that has these bytes. */
static int give_bytes(struct talk *t, struct slice a, struct slice b, struct err *e)
{
    int fd = memfd_create("words", MFD_CLOEXEC);
    int rc = fd == -1 ? err_sys(e, "memfd_create") : fd_pwrite_all(fd, a.p, a.n, 0, e);

    rc = rc != 0 ? rc : fd_pwrite_all(fd, b.p, b.n, a.n, e);
    if (rc == 0) {
        talk_give_fd(t, fd);
    } else if (fd != -1) {
        close(fd);
    }
    return rc;
}

static int send_carry_row(struct talk *t, const struct carry *c, const struct manifest_entry *f,
                          uint64_t *missing, uint64_t *missing_bytes, struct err *e)
{
    struct digest d;
    bool here = false;
    int rc = carry_digest(c, f, &d, &here, e);
    struct buf *row;

    if (rc != 0 && rc != E_NOTFOUND) {
        return rc;
    }
    row = talk_row(t);
    jwrite_text(row, "path", f->path);
    jwrite_u64(row, "size", f->size_bytes);
    if (rc == 0) {
        jwrite_hex(row, "sha256", d.b, DIGEST_BYTES);
    }
    jwrite_bool(row, "here", here);
    *missing += here ? 0 : 1;
    *missing_bytes += here ? 0 : f->size_bytes;
    return talk_row_end(t) != 0 ? E_CANCELLED : 0;
}

static int say_revision(struct talk *t, const struct carry *c, struct err *e)
{
    uint64_t missing = 0, missing_bytes = 0;
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < c->files.count; i++) {
        struct manifest_entry f;
        manifest_at(&c->files, i, &f);
        rc = f.folder ? 0 : send_carry_row(t, c, &f, &missing, &missing_bytes, e);
    }
    jwrite_str(t->result, "repo", c->repo->name);
    jwrite_text(t->result, "type", c->type);
    jwrite_text(t->result, "asked", c->asked);
    jwrite_text(t->result, "id", c->id);
    jwrite_text(t->result, "revision", c->rev);
    jwrite_text(t->result, "commit", c->commit);
    jwrite_bool(t->result, "closed", c->closed);
    jwrite_u64(t->result, "seen_unix_s", c->seen_unix_s);
    jwrite_u64(t->result, "info_bytes", c->info.n);
    jwrite_u64(t->result, "tree_bytes", c->tree.n);
    jwrite_u64(t->result, "missing", missing);
    jwrite_u64(t->result, "missing_bytes", missing_bytes);
    return rc != 0 ? rc : give_bytes(t, buf_slice(&c->info), buf_slice(&c->tree), e);
}

int verb_hf_export(struct talk *t, struct err *e)
{
    struct repo_set *rs = repo_set_hold(t->deps->repos);
    struct inventory_name n;
    struct carry c;
    struct slice id;
    int rc = talk_need(t, "id", &id, e);

    rc = rc != 0 ? rc : inventory_name_read(rs, talk_text(t, "repo"), id, &n, e);
    if (rc == 0) {
        rc = carry_find(t->deps->hub, &n, &c, e);
        rc = rc != 0 ? rc : say_revision(t, &c, e);
        carry_free(&c);
    }
    repo_set_release(&rs);
    return rc;
}

/* The socket is its operator's, who may read all that the store has. */
int verb_hf_export_file(struct talk *t, struct err *e)
{
    struct blob *b = NULL;
    struct slice hex;
    struct digest d, empty;
    int rc = talk_need(t, "sha256", &hex, e), fd;

    if (rc == 0 && !digest_parse(hex, &d)) {
        rc = err_set(e, E_USAGE, "\"sha256\" is not a SHA-256: it has 64 hex digits");
    }
    if (rc == 0) {
        digest_of(SLICE(""), &empty);
        if (digest_eq(&d, &empty)) {
            jwrite_u64(t->result, "size", 0);
            return give_bytes(t, SLICE(""), SLICE(""), e);
        }
        rc = blob_open(t->deps->store, &d, &b, e);
        rc = rc == E_NOTFOUND ? err_set(e, rc, "its bytes are no longer in the store; export again")
                              : rc;
    }
    if (rc == 0 && blob_fd(b) == -1) {
        rc = give_bytes(t, blob_bytes(b), SLICE(""), e);
    } else if (rc == 0) {
        fd = dup(blob_fd(b));
        rc = fd == -1 ? err_sys(e, "dup") : 0;
        talk_give_fd(t, fd);
    }
    if (rc == 0) {
        jwrite_u64(t->result, "size", blob_size_bytes(b));
    }
    blob_release(&b);
    return rc;
}

/* --- import ----------------------------------------------------------------------------------- */

static void drop_imports(void *kept)
{
    struct carry_in *next;

    for (struct carry_in *c = kept; c != NULL; c = next) {
        next = c->next;
        carry_in_free(&c);
    }
}

static int keep_import(struct talk *t, struct carry_in *c, struct err *e)
{
    struct carry_in *all = t->kept;

    c->number = all != NULL ? all->number + 1 : 0;
    if (c->number >= IMPORTS_MAX) {
        return err_set(e, E_TOOBIG, "more than %d revisions in one import; import them in parts",
                       IMPORTS_MAX);
    }
    c->next = all;
    t->kept = NULL; /* it goes on in the new list */
    talk_keep(t, c, drop_imports);
    return 0;
}

static int need_import(struct talk *t, struct carry_in **out, struct err *e)
{
    uint64_t n = talk_number(t, "import", UINT64_MAX);

    for (struct carry_in *c = t->drop == drop_imports ? t->kept : NULL; c != NULL; c = c->next) {
        if (c->number == n && c->id[0] != '\0') {
            *out = c;
            return 0;
        }
    }
    return err_set(e, E_NOTFOUND, "this connection has no such import; begin it again");
}

/* What came along: the Hub's words, its listing, the digests. */
static int read_words(struct talk *t, struct buf *out, struct carry_in_ask *ask, struct err *e)
{
    uint64_t info = talk_number(t, "info_bytes", 0), tree = talk_number(t, "tree_bytes", 0);
    struct stat st;
    char *p;
    int fd, rc = talk_take_fd(t, &fd, e);

    if (rc != 0) {
        return rc;
    }
    if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode)) {
        rc = err_set(e, E_USAGE, "the metadata of a revision must come as a regular file");
    } else if ((uint64_t)st.st_size > CARRY_WORDS_BYTES || info > (uint64_t)st.st_size ||
               tree > (uint64_t)st.st_size - info) {
        rc = err_set(e, E_TOOBIG,
                     "the metadata of this revision is too long, or shorter than "
                     "the request says");
    } else {
        p = buf_room(out, (size_t)st.st_size + 1);
        rc = p == NULL ? out->rc : fd_pread_all(fd, p, (size_t)st.st_size, 0, e);
    }
    close(fd);
    if (rc == 0) {
        buf_grew(out, (size_t)st.st_size);
        ask->info = slice_first(buf_slice(out), (size_t)info);
        ask->tree = slice_first(slice_from(buf_slice(out), (size_t)info), (size_t)tree);
        ask->digests = slice_from(buf_slice(out), (size_t)(info + tree));
    }
    return rc;
}

static int send_missing_rows(struct talk *t, const struct carry_in *c)
{
    struct manifest_entry en;
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < c->files; i++) {
        if (!c->file[i].here) {
            struct buf *row = talk_row(t);
            manifest_at(&c->is.files, c->file[i].at, &en);
            jwrite_text(row, "path", en.path);
            rc = talk_row_end(t) != 0 ? E_CANCELLED : 0;
        }
    }
    jwrite_u64(t->result, "import", c->number);
    jwrite_u64(t->result, "files", c->files);
    jwrite_u64(t->result, "missing", c->missing);
    jwrite_u64(t->result, "missing_bytes", c->missing_bytes);
    return rc;
}

static size_t take_carry_names(struct talk *t, struct slice names[NAMES_MAX])
{
    const json_t *list = json_object_get(t->request, "names"), *one;
    size_t i, n = 0;

    json_array_foreach(list, i, one)
    {
        if (json_is_string(one) && n < NAMES_MAX) {
            names[n++] = jread_slice(one);
        }
    }
    return n;
}

int verb_hf_import(struct talk *t, struct err *e)
{
    struct buf words = BUF_INIT(CARRY_WORDS_BYTES + 1);
    struct slice names[NAMES_MAX];
    struct carry_in_ask ask = {.open = talk_flag(t, "open"),
                               .pin = talk_flag(t, "pin"),
                               .seen_unix_s = talk_number(t, "seen_unix_s", 0),
                               .names = names};
    struct carry_in *c = NULL;
    struct repo_set *rs;
    struct repo *r;
    int rc = talk_need_repo(t, &rs, &r, e);

    ask.names_count = take_carry_names(t, names);
    rc = rc != 0 ? rc : talk_need(t, "type", &ask.type, e);
    rc = rc != 0 ? rc : talk_need(t, "id", &ask.id, e);
    rc = rc != 0 ? rc : talk_need(t, "revision", &ask.rev, e);
    rc = rc != 0 ? rc : talk_need(t, "commit", &ask.commit, e);
    rc = rc != 0 ? rc : read_words(t, &words, &ask, e);
    rc = rc != 0 ? rc : carry_in_begin(t->deps->hub, rs, r, &ask, &c, e);
    if (rc == 0) {
        rc = keep_import(t, c, e);
        if (rc != 0) {
            (void)!carry_in_abort(c, NULL);
            carry_in_free(&c);
        }
    }
    if (rc == 0) {
        log_info("import.begin", "repo=%s id=" SLICE_FMT " commit=" SLICE_FMT " missing=%zu",
                 r->name, SLICE_ARG(ask.id), SLICE_ARG(ask.commit), c->missing);
        rc = send_missing_rows(t, c);
    }
    buf_free(&words);
    repo_set_release(&rs);
    return rc;
}

/* Waits until fd has something. True: the client has left, or nothing comes. */
static bool wait_for_carry_input(void *arg, int fd)
{
    const struct talk *t = arg;
    struct pollfd p[2] = {{.fd = fd, .events = POLLIN}, {.fd = t->fd, .events = POLLRDHUP}};
    int n = poll(p, 2, QUIET_MS);

    return n == 0 || (n > 0 && p[1].revents != 0) || (n < 0 && errno != EINTR);
}

/* The same bytes came under another name, of this revision or another of this connection's. */
static int take_name(struct talk *t, struct carry_in *c, struct carry_in_file *f, struct err *e)
{
    int rc = 0;

    for (struct carry_in *one = t->kept; rc == 0 && one != NULL; one = one->next) {
        rc = carry_in_flush(one, e);
    }
    return rc != 0 ? rc : carry_in_again(c, f, e);
}

int verb_hf_import_file(struct talk *t, struct err *e)
{
    struct carry_in_file *f;
    struct manifest_entry en;
    struct carry_in *c;
    struct slice path;
    int fd, rc = need_import(t, &c, e);

    rc = rc != 0 ? rc : talk_need(t, "path", &path, e);
    rc = rc != 0 ? rc : carry_in_find(c, path, &f, &en, e);
    if (rc == 0 && !f->here && t->came == -1) {
        return take_name(t, c, f, e);
    }
    rc = rc != 0 || f->here ? rc : talk_take_fd(t, &fd, e);
    if (rc != 0 || f->here) {
        return rc;
    }
    rc = carry_in_take(c, f, &en, fd, wait_for_carry_input, t, e);
    close(fd);
    return rc;
}

int verb_hf_import_commit(struct talk *t, struct err *e)
{
    struct carry_in *c;
    int rc = need_import(t, &c, e);

    rc = rc != 0 ? rc : carry_in_commit(c, e);
    if (rc == 0) {
        log_info("import.done", "repo=%s id=" SLICE_FMT " commit=" SLICE_FMT " files=%zu",
                 c->is.repo->name, SLICE_ARG(c->is.id), SLICE_ARG(c->is.commit), c->files);
        jwrite_bool(t->result, "kept_later", c->kept_later);
    }
    return rc;
}

int verb_hf_import_abort(struct talk *t, struct err *e)
{
    struct carry_in *c;
    int rc = need_import(t, &c, e);

    return rc != 0 ? rc : carry_in_abort(c, e);
}
