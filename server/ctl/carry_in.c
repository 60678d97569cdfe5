/* carry_in.c - `mirrorctl hf import`: a bundle into a mirror. What is read here is checked here and
 * once more by the daemon, who publishes nothing before all of it has come. */
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "common/codec/progress.h"
#include "common/codec/units.h"
#include "common/os/clock.h"
#include "common/os/newfile.h"
#include "server/ctl/bundle_in.h"
#include "server/ctl/ctl.h"

struct sent { /* digests whose bytes the daemon has got from us */
    UT_hash_handle hh;
    struct digest d;
};

struct coming { /* a revision */
    struct buf info, tree;
    bool has_info, has_tree, begun;
    uint64_t import; /* the daemon's number */
    uint64_t missing;
    struct wanted *wanted;
    bool kept_later;
};

struct wanted { /* a path that the daemon does not have */
    UT_hash_handle hh;
    char *path;
};

struct importing {
    struct ctl *c;
    const char *into; /* a repo of ours; NULL: of the name that each comes from */
    bool deep;
    struct line *line;
    struct bundle_in *in;
    struct bundle b;
    struct coming *coming; /* as many as b has revisions */
    struct coming *now;
    bool begun;
    struct sent *sent;
    struct progress *bar;
    uint64_t done, total, files, files_here;
};

static void on_imported_bytes(void *arg, uint64_t n)
{
    struct importing *x = arg;

    x->done += n;
    progress_draw(x->bar, x->done, x->total, clock_now_ms());
}

static bool was_sent(const struct importing *x, const struct digest *d)
{
    struct sent *s;

    HASH_FIND(hh, x->sent, d->b, DIGEST_BYTES, s);
    return s != NULL;
}

static void note_sent(struct importing *x, const struct digest *d)
{
    if (!was_sent(x, d)) {
        struct sent *s = NEW(struct sent);
        s->d = *d;
        HASH_ADD(hh, x->sent, d.b, DIGEST_BYTES, s);
    }
}

/* --- words ------------------------------------------------------------------------------------ */

/* Each revision that an item belongs to. */
static int give_words(struct importing *x, const struct bundle_item *it, struct slice bytes)
{
    for (const struct bundle_item *at = it; at != NULL; at = at->next) {
        struct coming *to = &x->coming[at->revision];
        if (it->kind == ITEM_INFO) {
            buf_adds(&to->info, bytes);
            to->has_info = true;
        } else if (it->kind == ITEM_TREE) {
            buf_adds(&to->tree, bytes);
            to->has_tree = true;
        }
    }
    return 0;
}

/* Words whose bytes stood under another name before. */
static struct slice words_as(const struct importing *x, const struct bundle_item *as)
{
    const struct coming *from = &x->coming[as->revision];

    return as->kind == ITEM_INFO   ? buf_slice(&from->info)
           : as->kind == ITEM_TREE ? buf_slice(&from->tree)
                                   : SLICE_NONE;
}

static int take_words(struct importing *x, const struct bundle_item *it,
                      const struct bundle_item *as, struct err *e)
{
    struct buf b = BUF_INIT(BUNDLE_MANIFEST_BYTES);
    int rc = 0;

    if (as != NULL) {
        buf_adds(&b, words_as(x, as));
    } else {
        rc = bundle_in_bytes(x->in, it, &b, e);
    }
    rc = rc != 0 ? rc : give_words(x, it, buf_slice(&b));
    buf_free(&b);
    return rc;
}

/* --- beginning -------------------------------------------------------------------------------- */

static void on_missing(void *arg, const json_t *row)
{
    struct importing *x = arg;
    struct wanted *w = NEW(struct wanted);

    w->path = mem_strdup(get_str(row, "path"));
    HASH_ADD_KEYPTR(hh, x->now->wanted, w->path, strlen(w->path), w);
}

static bool is_wanted_import(const struct coming *r, const char *path)
{
    struct wanted *w;

    HASH_FIND(hh, r->wanted, path, strlen(path), w);
    return w != NULL;
}

/* Info, listing, and each file's digest. */
static int words_fd(const struct bundle_revision *r, const struct coming *c, int *out,
                    struct err *e)
{
    struct buf b = BUF_INIT(BUNDLE_MANIFEST_BYTES);
    char hex[DIGEST_HEX + 1];
    int rc;

    buf_adds(&b, buf_slice(&c->info));
    buf_adds(&b, buf_slice(&c->tree));
    for (size_t i = 0; i < r->files; i++) {
        digest_format(&r->file[i].sha256, hex);
        buf_addf(&b, "%s %s", hex, r->file[i].path);
        buf_byte(&b, 0);
    }
    *out = -1;
    rc = b.rc != 0 ? err_set(e, E_TOOBIG, "the metadata of %s is too long", r->id) : 0;
    if (rc == 0) {
        *out = memfd_create("words", MFD_CLOEXEC);
        rc = *out == -1 ? err_sys(e, "memfd_create") : fd_pwrite_all(*out, b.p, b.n, 0, e);
    }
    buf_free(&b);
    return rc;
}

static json_t *begin_request(const struct importing *x, const struct bundle_revision *r,
                             const struct coming *c)
{
    json_t *req = request("hf.import"), *names = json_array();

    for (size_t i = 0; i < r->names_count; i++) {
        json_array_append_new(names, json_string(r->names[i]));
    }
    json_object_set_new(req, "repo", json_string(x->into != NULL ? x->into : r->repo));
    json_object_set_new(req, "type", json_string(r->type));
    json_object_set_new(req, "id", json_string(r->id));
    json_object_set_new(req, "names", names);
    json_object_set_new(req, "revision", json_string(r->revision));
    json_object_set_new(req, "commit", json_string(r->commit));
    json_object_set_new(req, "seen_unix_s", json_integer((json_int_t)r->seen_unix_s));
    json_object_set_new(req, "info_bytes", json_integer((json_int_t)c->info.n));
    json_object_set_new(req, "tree_bytes", json_integer((json_int_t)c->tree.n));
    json_object_set_new(req, "open", json_boolean(option_given(x->c, "--open")));
    json_object_set_new(req, "pin", json_boolean(!option_given(x->c, "--no-pin")));
    return req;
}

static int begin_one(struct importing *x, size_t i, struct err *e)
{
    const struct bundle_revision *r = &x->b.revision[i];
    struct coming *c = &x->coming[i];
    json_t *ok = NULL;
    int fd, rc = words_fd(r, c, &fd, e);

    x->now = c;
    rc = rc != 0 ? rc : line_say(x->line, begin_request(x, r, c), fd, e);
    rc = rc != 0 ? rc : line_hear(x->line, on_missing, NULL, x, &ok, NULL, e);
    if (fd != -1) {
        close(fd);
    }
    if (rc == 0) {
        c->begun = true;
        c->import = get_u64(ok, "import");
        c->missing = get_u64(ok, "missing");
        x->files += r->files;
        x->files_here += r->files - c->missing;
    } else if (rc == E_NOTFOUND && x->into == NULL) {
        rc = err_set(e, rc,
                     "%.100s comes from a repo named %.40s, which this mirror does not have; "
                     "name a repo of this mirror with --into",
                     r->id, r->repo);
    }
    json_decref(ok);
    return rc;
}

/* What the other side is said to have, and has not. */
static int check_left_out(struct importing *x, struct err *e)
{
    uint64_t files = 0, bytes = 0;
    char text[UNITS_TEXT];

    for (size_t i = 0; i < x->b.revisions; i++) {
        const struct bundle_revision *r = &x->b.revision[i];
        for (size_t k = 0; k < r->files; k++) {
            if (r->file[k].left_out && is_wanted_import(&x->coming[i], r->file[k].path)) {
                files++;
                bytes += r->file[k].size_bytes;
            }
        }
    }
    size_format(bytes, text);
    return files == 0 ? 0
                      : err_set(e, E_NOTFOUND,
                                "the bundle leaves out %" PRIu64 " %s (%s) that this mirror "
                                "does not have; import the earlier bundle first, or export "
                                "without --since",
                                files, plural(files, "file", "files"), text);
}

static void sum_up_import(struct importing *x)
{
    for (const struct bundle_item *it = x->b.items; it != NULL; it = it->hh.next) {
        for (const struct bundle_item *at = it; at != NULL && it->kind == ITEM_FILE;
             at = at->next) {
            if (x->deep || is_wanted_import(&x->coming[at->revision], at->file)) {
                x->total += it->size_bytes;
                break;
            }
        }
    }
}

static int begin_all(struct importing *x, struct err *e)
{
    int rc = 0;

    x->begun = true;
    for (size_t i = 0; rc == 0 && i < x->b.revisions; i++) {
        if (!x->coming[i].has_info || !x->coming[i].has_tree) {
            return err_set(e, E_INVALID,
                           "the metadata of %s does not come before the files, so another "
                           "program packed this tar; unpack it and import the folder",
                           x->b.revision[i].id);
        }
        rc = begin_one(x, i, e);
    }
    rc = rc != 0 ? rc : check_left_out(x, e);
    sum_up_import(x);
    return rc;
}

/* --- files ------------------------------------------------------------------------------------ */

static json_t *file_request(const struct importing *x, const struct bundle_item *at)
{
    json_t *req = request("hf.import.file");

    json_object_set_new(req, "import", json_integer((json_int_t)x->coming[at->revision].import));
    json_object_set_new(req, "path", json_string(at->file));
    return req;
}

static int wait_for_import_reply(struct importing *x, struct err *e)
{
    json_t *ok = NULL;
    int rc = line_hear(x->line, NULL, NULL, NULL, &ok, NULL, e);

    json_decref(ok);
    return rc;
}

/* A tar's bytes go through a pipe: who reads at its other end tells what it thinks of them. */
static int send_piped(struct importing *x, const struct bundle_item *it,
                      const struct bundle_item *at, struct err *e)
{
    struct err said = {0};
    int ends[2], rc, heard;
    bool left;

    if (pipe2(ends, O_CLOEXEC) != 0) {
        return err_sys(e, "pipe");
    }
    (void)fcntl(ends[1], F_SETPIPE_SZ, 1 << 20);
    rc = line_say(x->line, file_request(x, at), ends[0], e);
    close(ends[0]);
    if (rc != 0) {
        close(ends[1]);
        return rc;
    }
    rc = bundle_in_pump(x->in, it, ends[1], &left, on_imported_bytes, x, e);
    close(ends[1]);
    heard = wait_for_import_reply(x, &said);
    if (rc == 0 && heard != 0 && e != NULL) {
        *e = said;
    }
    return rc != 0 ? rc : heard;
}

static int send_import_file(struct importing *x, const struct bundle_item *it,
                            const struct bundle_item *at, struct err *e)
{
    int fd, rc = bundle_in_fd(x->in, it, &fd, e);

    if (rc == 0 && fd == -1) {
        return send_piped(x, it, at, e);
    }
    rc = rc != 0 ? rc : line_say(x->line, file_request(x, at), fd, e);
    rc = rc != 0 ? rc : wait_for_import_reply(x, e);
    if (fd != -1) {
        close(fd);
    }
    on_imported_bytes(x, it->size_bytes);
    return rc;
}

/* The same bytes once more: the daemon finds them. */
static int send_name(struct importing *x, const struct bundle_item *at, struct err *e)
{
    int rc = line_say(x->line, file_request(x, at), -1, e);

    return rc != 0 ? rc : wait_for_import_reply(x, e);
}

/* as: whose bytes these are, they came before. */
static int take_file(struct importing *x, const struct bundle_item *it,
                     const struct bundle_item *as, struct err *e)
{
    bool read = as != NULL;
    int rc = 0;

    for (const struct bundle_item *at = it; rc == 0 && at != NULL; at = at->next) {
        if (!is_wanted_import(&x->coming[at->revision], at->file)) {
            continue;
        }
        if (was_sent(x, &it->sha256)) {
            rc = send_name(x, at, e);
        } else {
            rc = send_import_file(x, it, at, e);
            read = true;
        }
        if (rc == 0) {
            note_sent(x, &it->sha256);
        }
    }
    return rc == 0 && !read && x->deep ? bundle_in_check(x->in, it, on_imported_bytes, x, e) : rc;
}

static int take_all(struct importing *x, struct err *e)
{
    struct bundle_item *it, *as;
    int rc;

    while ((rc = bundle_in_next(x->in, &it, &as, e)) == 0 && it != NULL) {
        if (it->kind == ITEM_REF) {
            continue; /* for others that read the folder; the manifest says the same */
        }
        if (it->kind != ITEM_FILE && !x->begun) {
            rc = take_words(x, it, as, e);
        } else if (it->kind == ITEM_FILE) {
            rc = x->begun ? 0 : begin_all(x, e);
            rc = rc != 0 ? rc : take_file(x, it, as, e);
        }
        if (rc != 0) {
            return rc;
        }
    }
    return rc == 0 && !x->begun ? begin_all(x, e) : rc;
}

/* --- its end ---------------------------------------------------------------------------------- */

static json_t *end_request(const struct coming *c, const char *verb)
{
    json_t *req = request(verb);

    json_object_set_new(req, "import", json_integer((json_int_t)c->import));
    return req;
}

static int commit_all(struct importing *x, struct err *e)
{
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < x->b.revisions; i++) {
        json_t *ok = NULL;
        rc = line_say(x->line, end_request(&x->coming[i], "hf.import.commit"), -1, e);
        rc = rc != 0 ? rc : line_hear(x->line, NULL, NULL, NULL, &ok, NULL, e);
        if (rc == 0) {
            x->coming[i].begun = false;
            x->coming[i].kept_later = get_bool(ok, "kept_later");
        }
        json_decref(ok);
    }
    return rc;
}

/* What came of a bundle that is no good is let go; a daemon that is gone lets go of it by
 * itself. */
static void give_up(struct importing *x)
{
    for (size_t i = 0; i < x->b.revisions && x->coming != NULL; i++) {
        if (x->coming[i].begun &&
            line_say(x->line, end_request(&x->coming[i], "hf.import.abort"), -1, NULL) == 0) {
            (void)!wait_for_import_reply(x, NULL);
        }
    }
}

static void print_import_report(const struct importing *x, const struct digest *digest)
{
    char hex[DIGEST_HEX + 1], bytes[UNITS_TEXT];
    json_t *all = json_array();

    digest_format(digest, hex);
    for (size_t i = 0; i < x->b.revisions; i++) {
        const struct bundle_revision *r = &x->b.revision[i];
        const char *into = x->into != NULL ? x->into : r->repo;
        json_array_append_new(
            all, json_pack("{s:s, s:s, s:s, s:s, s:s, s:I, s:I, s:b}", "repo", into, "type",
                           r->type, "id", r->id, "revision", r->revision, "commit", r->commit,
                           "files", (json_int_t)r->files, "new", (json_int_t)x->coming[i].missing,
                           "kept_later", x->coming[i].kept_later));
        if (!x->c->json) {
            say(x->c, "imported %s%s%s@%s into %s: commit %s, %zu %s\n",
                strcmp(r->type, "models") == 0 ? "" : r->type,
                strcmp(r->type, "models") == 0 ? "" : "/", r->id, r->revision, into, r->commit,
                r->files, plural(r->files, "file", "files"));
        }
        if (x->coming[i].kept_later) {
            fprintf(
                stderr,
                "mirrorctl: warning: %s of %s was not moved, because its commit was seen "
                "later than the imported one; the imported one can be requested by its commit\n",
                r->revision, r->id);
        }
    }
    size_format(x->done, bytes);
    say(x->c, "read %s; %" PRIu64 " of %" PRIu64 " %s in this mirror already\n", bytes,
        x->files_here, x->files, plural(x->files, "file was", "files were"));
    if (x->c->json) {
        json_t *o = json_pack("{s:o, s:s, s:I, s:I, s:I}", "revisions", json_incref(all),
                              "manifest_sha256", hex, "files", (json_int_t)x->files, "files_here",
                              (json_int_t)x->files_here, "bytes", (json_int_t)x->done);
        print_json(o);
        json_decref(o);
    }
    json_decref(all);
}

static void free_import(struct importing *x)
{
    struct sent *s, *tmp;
    struct wanted *w, *next;

    for (size_t i = 0; i < x->b.revisions && x->coming != NULL; i++) {
        buf_free(&x->coming[i].info);
        buf_free(&x->coming[i].tree);
        HASH_ITER(hh, x->coming[i].wanted, w, next)
        {
            HASH_DEL(x->coming[i].wanted, w);
            free(w->path);
            free(w);
        }
    }
    HASH_ITER(hh, x->sent, s, tmp)
    {
        HASH_DEL(x->sent, s);
        free(s);
    }
    free(x->coming);
    bundle_in_close(&x->in);
    bundle_free(&x->b);
    line_close(&x->line);
}

int ctl_hf_import(struct ctl *c, struct err *e)
{
    struct importing x = {
        .c = c,
        .into = option_text(c, "--into"),
        .deep = option_given(c, "--deep"),
    };
    const char *hex = option_text(c, "--digest");
    struct digest want, digest;
    int rc;

    if (hex != NULL && !digest_parse(slice_str(hex), &want)) {
        return err_set(e, E_USAGE, "--digest \"%.80s\" is not a SHA-256, which has 64 hex digits",
                       hex);
    }
    signal(SIGPIPE, SIG_IGN); /* the daemon may stop reading; it says why */
    rc = line_open(c, &x.line, e);
    rc = rc != 0 ? rc : bundle_in_open(c->arg[0], &x.in, e);
    rc = rc != 0 ? rc : bundle_in_manifest(x.in, hex != NULL ? &want : NULL, &x.b, &digest, e);
    if (rc == 0) {
        x.coming = mem_array(x.b.revisions, sizeof *x.coming);
        for (size_t i = 0; i < x.b.revisions; i++) {
            x.coming[i].info = x.coming[i].tree = BUF_INIT(BUNDLE_MANIFEST_BYTES);
        }
        x.bar = c->json || c->quiet ? NULL : progress_open("import");
        rc = take_all(&x, e);
        rc = rc != 0 ? rc : commit_all(&x, e);
        progress_close(&x.bar);
        if (rc != 0) {
            give_up(&x);
        } else {
            print_import_report(&x, &digest);
        }
    }
    free_import(&x);
    return rc;
}
