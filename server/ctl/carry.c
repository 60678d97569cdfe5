/* carry.c - `mirrorctl hf export`: repositories of a Hub into a bundle (bundle.h). */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/codec/progress.h"
#include "common/codec/units.h"
#include "common/os/clock.h"
#include "common/os/newfile.h"
#include "server/ctl/bundle_out.h"
#include "server/ctl/ctl.h"

struct exporting {
    struct ctl *c;
    const char *to, *since; /* where to; an earlier bundle, or NULL */
    struct line *line;
    struct bundle b;
    struct buf *words;           /* of each revision: info, then tree */
    size_t revisions;            /* of ours; behind them those that the folder had before */
    struct bundle_revision *now; /* whose rows come in */
    uint64_t missing, missing_bytes;
    uint64_t left_out, left_out_bytes;
    struct bundle had; /* what is to be left out; or nothing */
    struct digest_set *known;
    struct bundle_out *out;
    struct progress *bar;
    uint64_t done, total;
};

struct digest_set { /* digests that are in a bundle */
    UT_hash_handle hh;
    struct digest d;
    const struct bundle_item *item;
};

static const struct digest_set *set_find(const struct digest_set *set, const struct digest *d)
{
    struct digest_set *at;

    HASH_FIND(hh, set, d->b, DIGEST_BYTES, at);
    return at;
}

static void set_add(struct digest_set **set, const struct digest *d, const struct bundle_item *it)
{
    if (set_find(*set, d) == NULL) {
        struct digest_set *at = NEW(struct digest_set);
        at->d = *d;
        at->item = it;
        HASH_ADD(hh, *set, d.b, DIGEST_BYTES, at);
    }
}

static void set_free(struct digest_set **set)
{
    struct digest_set *at, *tmp;

    HASH_ITER(hh, *set, at, tmp)
    {
        HASH_DEL(*set, at);
        free(at);
    }
}

static void on_exported_bytes(void *arg, uint64_t n)
{
    struct exporting *x = arg;

    x->done += n;
    progress_draw(x->bar, x->done, x->total, clock_now_ms());
}

/* --- what is to be carried -------------------------------------------------------------------- */

static void on_export_row(void *arg, const json_t *row)
{
    struct exporting *x = arg;
    struct bundle_revision *r = x->now;
    struct bundle_file *f;

    if (!get_bool(row, "here")) {
        x->missing++;
        x->missing_bytes += get_u64(row, "size");
        return;
    }
    r->file = reallocarray(r->file, r->files + 1, sizeof *r->file);
    CHECK(r->file != NULL);
    f = &r->file[r->files++];
    *f = (struct bundle_file){.path = arena_cstr(&x->b.arena, slice_str(get_str(row, "path"))),
                              .size_bytes = get_u64(row, "size")};
    if (!digest_parse(slice_str(get_str(row, "sha256")), &f->sha256)) {
        r->files--;
        x->missing++;
        return;
    }
    f->left_out = set_find(x->known, &f->sha256) != NULL;
    x->left_out += f->left_out;
    x->left_out_bytes += f->left_out ? f->size_bytes : 0;
}

static char *copy_json_text(struct exporting *x, const json_t *o, const char *key)
{
    return arena_cstr(&x->b.arena, slice_str(get_str(o, key)));
}

/* The Hub's words, out of the descriptor. */
static int take_words(struct exporting *x, struct bundle_revision *r, const json_t *ok, int fd,
                      struct buf *words, struct err *e)
{
    uint64_t info = get_u64(ok, "info_bytes"), tree = get_u64(ok, "tree_bytes");
    char *p = info + tree < words->max ? buf_room(words, (size_t)(info + tree) + 1) : NULL;
    int rc = fd == -1 || p == NULL ? err_set(e, E_PROTOCOL,
                                             "the daemon sent no metadata of %s; it may be of "
                                             "another version: compare `mirrord --version` with "
                                             "`mirrorctl --version`",
                                             r->id)
                                   : fd_pread_all(fd, p, (size_t)(info + tree), 0, e);

    (void)x;
    if (rc == 0) {
        buf_grew(words, (size_t)(info + tree));
        r->info.size_bytes = info;
        r->tree.size_bytes = tree;
        digest_of(slice_of(p, (size_t)info), &r->info.sha256);
        digest_of(slice_of(p + info, (size_t)tree), &r->tree.sha256);
    }
    return rc;
}

static int ask_revision(struct exporting *x, const char *repo, const char *id, struct err *e)
{
    struct bundle_revision *r = bundle_add(&x->b);
    struct buf *words;
    json_t *req = request("hf.export"), *ok = NULL;
    int fd = -1, rc;

    x->words = reallocarray(x->words, x->b.revisions, sizeof *x->words);
    CHECK(x->words != NULL);
    words = &x->words[x->b.revisions - 1];
    *words = BUF_INIT(BUNDLE_MANIFEST_BYTES);
    x->revisions = x->b.revisions;
    x->now = r;
    if (repo != NULL) {
        json_object_set_new(req, "repo", json_string(repo));
    }
    json_object_set_new(req, "id", json_string(id));
    rc = line_say(x->line, req, -1, e);
    rc = rc != 0 ? rc : line_hear(x->line, on_export_row, NULL, x, &ok, &fd, e);
    if (rc == 0) {
        r->type = copy_json_text(x, ok, "type");
        r->id = copy_json_text(x, ok, "id");
        r->revision = copy_json_text(x, ok, "revision");
        r->commit = copy_json_text(x, ok, "commit");
        r->repo = copy_json_text(x, ok, "repo");
        r->closed = get_bool(ok, "closed");
        r->seen_unix_s = get_u64(ok, "seen_unix_s");
        if (strcmp(get_str(ok, "asked"), r->id) != 0) {
            r->names[r->names_count++] = copy_json_text(x, ok, "asked");
        }
        rc = take_words(x, r, ok, fd, words, e);
    }
    if (fd != -1) {
        close(fd);
    }
    json_decref(ok);
    return rc;
}

static void on_fetch(void *arg, const json_t *row)
{
    struct exporting *x = arg;

    progress_draw(x->bar, get_u64(row, "bytes_done"),
                  get_u64(row, "files") != 0 ? get_u64(row, "bytes") : UINT64_MAX, clock_now_ms());
}

/* As `hf prefetch --wait` does. */
static int fetch(struct exporting *x, const char *repo, const char *id, struct err *e)
{
    json_t *req = request("hf.prefetch"), *ok = NULL;
    int rc;

    json_object_set_new(
        req, "id", json_sprintf("%s%s%s", repo != NULL ? repo : "", repo != NULL ? "/" : "", id));
    json_object_set_new(req, "wait", json_true());
    x->bar = x->c->json || x->c->quiet ? NULL : progress_open("fetch");
    rc = ask(x->c, req, on_fetch, NULL, x, &ok, e);
    progress_close(&x->bar);
    if (rc == 0 && strcmp(get_str(ok, "state"), "done") != 0) {
        rc = err_set(e, E_NETWORK, "%.80s could not be fetched: %s, %.120s", id,
                     get_str(ok, "state"), get_str(ok, "why"));
    }
    json_decref(ok);
    return rc;
}

static int ask_all(struct exporting *x, struct err *e)
{
    const struct ctl *c = x->c;
    bool has_repo = c->args > 1 && strchr(c->arg[0], '/') == NULL;
    bool fetches = option_given(c, "--fetch");
    char bytes[UNITS_TEXT];
    int rc = 0;

    for (size_t i = has_repo ? 1 : 0; fetches && rc == 0 && i < c->args; i++) {
        rc = fetch(x, has_repo ? c->arg[0] : NULL, c->arg[i], e);
    }
    for (size_t i = has_repo ? 1 : 0; rc == 0 && i < c->args; i++) {
        rc = ask_revision(x, has_repo ? c->arg[0] : NULL, c->arg[i], e);
    }
    if (rc == 0 && x->missing != 0) {
        size_format(x->missing_bytes, bytes);
        rc = err_set(e, E_NOTFOUND,
                     "%" PRIu64 " %s (%s) %s not in this mirror yet, so nothing was exported; "
                     "add --fetch, or see `mirrorctl hf show`",
                     x->missing, plural(x->missing, "file", "files"), bytes,
                     plural(x->missing, "is", "are"));
    }
    return rc;
}

/* --- what is there already -------------------------------------------------------------------- */

/* A folder's, or a file's that was kept. */
static int read_manifest(const char *path, bool absent_is_fine, struct bundle *out, struct err *e)
{
    struct buf text = BUF_INIT(BUNDLE_MANIFEST_BYTES);
    char file[8192];
    struct stat st;
    int rc;

    *out = (struct bundle){0};
    snprintf(file, sizeof file, "%s", path);
    if (stat(path, &st) == 0 && S_ISDIR(st.st_mode)) {
        snprintf(file, sizeof file, "%s/" BUNDLE_MANIFEST, path);
    }
    if (absent_is_fine && access(file, F_OK) != 0 && errno == ENOENT) {
        return 0;
    }
    rc = buf_read_file(&text, file, e);
    rc = rc != 0 ? rc : bundle_read(buf_slice(&text), out, e);
    buf_free(&text);
    return rc == 0 ? 0 : err_prefix(e, "%.100s", file);
}

static int read_since(struct exporting *x, struct err *e)
{
    int rc = x->since != NULL ? read_manifest(x->since, false, &x->had, e) : 0;

    for (const struct bundle_item *it = x->had.items; rc == 0 && it != NULL; it = it->hh.next) {
        set_add(&x->known, &it->sha256, it);
    }
    return rc;
}

static bool is_exported_revision(const struct exporting *x, const struct bundle_revision *r)
{
    for (size_t i = 0; i < x->revisions; i++) {
        const struct bundle_revision *o = &x->b.revision[i];
        if (strcmp(o->type, r->type) == 0 && strcmp(o->id, r->id) == 0 &&
            strcmp(o->revision, r->revision) == 0) {
            return true;
        }
    }
    return false;
}

/* A folder gathers: what it carried before it carries on. Its strings stay in `old`. */
static int take_over_old_bundle(struct exporting *x, struct bundle *old, struct err *e)
{
    int rc = bundle_is_tar(x->to) ? 0 : read_manifest(x->to, true, old, e);

    for (size_t i = 0; rc == 0 && i < old->revisions; i++) {
        if (!is_exported_revision(x, &old->revision[i])) {
            struct bundle_revision *r = bundle_add(&x->b);
            *r = old->revision[i];
            old->revision[i].file = NULL;
            old->revision[i].files = 0;
        }
    }
    return rc;
}

/* --- carrying --------------------------------------------------------------------------------- */

static int bytes_fd(struct slice bytes, int *out, struct err *e)
{
    *out = memfd_create("words", MFD_CLOEXEC);
    return *out == -1 ? err_sys(e, "memfd_create") : fd_pwrite_all(*out, bytes.p, bytes.n, 0, e);
}

/* A file's bytes, from the daemon. */
static int stored_fd(struct exporting *x, const struct bundle_item *it, int *out, struct err *e)
{
    json_t *req = request("hf.export.file"), *ok = NULL;
    char hex[DIGEST_HEX + 1];
    int rc;

    digest_format(&it->sha256, hex);
    json_object_set_new(req, "sha256", json_string(hex));
    rc = line_say(x->line, req, -1, e);
    rc = rc != 0 ? rc : line_hear(x->line, NULL, NULL, NULL, &ok, out, e);
    if (rc == 0 && (*out == -1 || get_u64(ok, "size") != it->size_bytes)) {
        rc = err_set(e, E_CORRUPT,
                     "its size in the store differs from the metadata; run "
                     "`mirrorctl verify --deep`");
    }
    json_decref(ok);
    return rc == 0 ? 0 : err_prefix(e, "%.100s", it->path);
}

static int item_fd(struct exporting *x, const struct bundle_item *it, int *out, struct err *e)
{
    const struct bundle_revision *r = &x->b.revision[it->revision];
    struct slice words =
        it->revision < x->revisions ? buf_slice(&x->words[it->revision]) : SLICE_NONE;

    *out = -1;
    switch (it->kind) {
    case ITEM_INFO:
        return bytes_fd(slice_first(words, (size_t)r->info.size_bytes), out, e);
    case ITEM_TREE:
        return bytes_fd(slice_from(words, (size_t)r->info.size_bytes), out, e);
    case ITEM_REF:
        return bytes_fd(slice_str(r->commit), out, e);
    case ITEM_FILE:
        return stored_fd(x, it, out, e);
    }
    return 0;
}

static int carry_item(struct exporting *x, const struct bundle_item *it, struct digest_set **done,
                      struct err *e)
{
    const struct digest_set *as = set_find(*done, &it->sha256);
    int fd = -1, rc = 0;

    if (it->left_out) {
        return 0;
    }
    if (x->out->ops->has(x->out, it)) {
        on_exported_bytes(x, it->size_bytes);
    } else if (it->revision >= x->revisions) {
        rc = err_set(e, E_INVALID,
                     "%.120s, from an earlier export into this folder, is no longer complete; "
                     "repeat that export, or use another folder",
                     it->path);
    } else if (as != NULL && it->size_bytes != 0) {
        rc = x->out->ops->again(x->out, it, as->item, e);
    } else {
        rc = item_fd(x, it, &fd, e);
        rc = rc != 0 ? rc : x->out->ops->file(x->out, it, fd, e);
    }
    if (fd != -1) {
        close(fd);
    }
    if (rc == 0) {
        set_add(done, &it->sha256, it);
    }
    return rc;
}

static int carry_all(struct exporting *x, struct digest *digest, struct err *e)
{
    struct buf manifest = BUF_INIT(BUNDLE_MANIFEST_BYTES), sums = BUF_INIT(BUNDLE_MANIFEST_BYTES);
    struct digest_set *done = NULL;
    int rc;

    bundle_write(&x->b, &manifest);
    digest_of(buf_slice(&manifest), digest);
    bundle_sums(&x->b, digest, &sums);
    rc = manifest.rc != 0 || sums.rc != 0
             ? err_set(e, E_TOOBIG, "too many files for one bundle; export in parts")
             : x->out->ops->begin(x->out, buf_slice(&manifest), buf_slice(&sums), e);
    for (int words = 1; words >= 0; words--) { /* words before files */
        for (const struct bundle_item *it = x->b.items; rc == 0 && it != NULL; it = it->hh.next) {
            if ((it->kind != ITEM_FILE) == (words == 1)) {
                rc = carry_item(x, it, &done, e);
            }
        }
    }
    rc = rc != 0 ? rc : x->out->ops->finish(x->out, buf_slice(&manifest), buf_slice(&sums), e);
    set_free(&done);
    buf_free(&manifest);
    buf_free(&sums);
    return rc;
}

/* --- the verb --------------------------------------------------------------------------------- */

static void print_export_report(const struct exporting *x, const struct digest *digest)
{
    FILE *to = strcmp(x->to, "-") == 0 ? stderr : stdout;
    char hex[DIGEST_HEX + 1], bytes[UNITS_TEXT];
    json_t *all = json_array();
    size_t files = 0;

    digest_format(digest, hex);
    for (size_t i = 0; i < x->revisions; i++) {
        const struct bundle_revision *r = &x->b.revision[i];
        files += r->files;
        json_array_append_new(all, json_pack("{s:s, s:s, s:s, s:s, s:s, s:I, s:b}", "repo", r->repo,
                                             "type", r->type, "id", r->id, "revision", r->revision,
                                             "commit", r->commit, "files", (json_int_t)r->files,
                                             "closed", r->closed));
        if (r->closed && !x->c->quiet) {
            fprintf(stderr,
                    "mirrorctl: warning: %s is private or gated at the Hub; pass its files on "
                    "only as its licence and its owner allow\n",
                    r->id);
        }
    }
    if (x->c->json && to == stdout) {
        json_t *o = json_pack("{s:o, s:s, s:I, s:I, s:I, s:I}", "revisions", json_incref(all),
                              "manifest_sha256", hex, "bytes", (json_int_t)x->total, "files",
                              (json_int_t)files, "left_out", (json_int_t)x->left_out,
                              "left_out_bytes", (json_int_t)x->left_out_bytes);
        print_json(o);
        json_decref(o);
    } else if (!x->c->quiet) {
        size_format(x->total, bytes);
        fprintf(to, "exported %zu %s, %zu %s, %s to %s\n", x->revisions,
                plural(x->revisions, "revision", "revisions"), files,
                plural(files, "file", "files"), bytes, x->to);
        if (x->left_out != 0) {
            size_format(x->left_out_bytes, bytes);
            fprintf(to, "left out %" PRIu64 " %s, %s, because %s has them\n", x->left_out,
                    plural(x->left_out, "file", "files"), bytes, x->since);
        }
        fprintf(to, "SHA-256 of MANIFEST.json: %s\n", hex);
    }
    json_decref(all);
}

static void sum_up_export(struct exporting *x)
{
    for (const struct bundle_item *it = x->b.items; it != NULL; it = it->hh.next) {
        x->total += it->left_out ? 0 : it->size_bytes;
    }
}

int ctl_hf_export(struct ctl *c, struct err *e)
{
    struct exporting x = {.c = c,
                          .to = option_text(c, "--to"),
                          .since = option_text(c, "--since"),
                          .b.made_unix_s = clock_unix_s()};
    struct bundle old = {0};
    struct digest digest;
    int rc = x.to != NULL ? line_open(c, &x.line, e)
                          : err_set(e, E_USAGE,
                                    "--to is missing; give a folder, FILE.tar, or - for a tar "
                                    "on standard output");

    rc = rc != 0 ? rc : read_since(&x, e);
    rc = rc != 0 ? rc : ask_all(&x, e);
    rc = rc != 0 ? rc : take_over_old_bundle(&x, &old, e);
    rc = rc != 0 ? rc : bundle_index(&x.b, e);
    rc = rc != 0 ? rc : bundle_out_open(x.to, option_given(c, "--force"), &x.out, e);
    if (rc == 0) {
        x.out->deep = option_given(c, "--deep");
        x.out->on_bytes = on_exported_bytes;
        x.out->arg = &x;
        x.bar = c->json || c->quiet ? NULL : progress_open("export");
        sum_up_export(&x);
        rc = carry_all(&x, &digest, e);
        progress_close(&x.bar);
    }
    if (rc == 0) {
        print_export_report(&x, &digest);
    }
    bundle_out_close(&x.out);
    line_close(&x.line);
    for (size_t i = 0; i < x.revisions; i++) {
        buf_free(&x.words[i]);
    }
    free(x.words);
    set_free(&x.known);
    bundle_free(&x.b);
    bundle_free(&x.had);
    bundle_free(&old);
    return rc;
}
