#include "agent/pull/artifact.h"

#include <event2/event.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "agent/ask.h"
#include "agent/pull/batch.h"
#include "agent/pull/hub.h"
#include "agent/cache/place.h"
#include "common/codec/glob.h"
#include "common/codec/hub_id.h"
#include "common/codec/jread.h"
#include "common/codec/url.h"
#include "common/codec/jwrite.h"
#include "common/codec/progress.h"
#include "common/os/clock.h"
#include "common/os/newfile.h"

enum {
    LISTING_MAX = 256 << 20,
    FILES_MAX = 4 << 20,
    KNOWN_MAX = 256 << 20,
    NAME_MAX_BYTES = 64 << 10,
    ETAG_MAX = 256
};

struct artifacts {
    struct pull_loop *loop;
    struct artifact *one;
    size_t count;
    const struct artifacts_params *want;
    struct progress *bar;
    int rc;
    struct err why;
};

struct waiting { /* one file under way */
    struct artifact *a;
    size_t index;
};

static void stop_artifact_pull(struct artifact *a, int rc, const struct err *why)
{
    if (a->run->rc == 0) {
        a->run->rc = rc;
        a->run->why = *why;
    }
    pull_loop_stop(a->run->loop);
}

/* "repo/a b" -> "repo/a%20b"; escapes that are there stay. */
static struct slice from_url(struct artifact *a, const struct agent *ag, struct slice from)
{
    struct buf out = BUF_INIT(64 << 10);
    struct slice url;

    while (from.n > 0 && from.p[0] == '/') {
        from = slice_from(from, 1);
    }
    buf_adds(&out, ag->mirror);
    buf_byte(&out, '/');
    for (size_t i = 0; i < from.n; i++) {
        char c = from.p[i];
        if ((uint8_t)c <= ' ' || (uint8_t)c >= 0x7f || strchr("\"<>\\^`{|}", c) != NULL) {
            buf_addf(&out, "%%%02X", (uint8_t)c);
        } else {
            buf_byte(&out, (uint8_t)c);
        }
    }
    url = arena_copy(&a->arena, buf_slice(&out));
    buf_free(&out);
    return url;
}

/* Ends in '/'. */
static struct slice folder_url(struct artifact *a, const struct agent *ag)
{
    struct slice from = slice_str(a->from);
    struct slice url = from_url(a, ag, slice_cut(&from, '#'));

    return slice_ends(url, SLICE("/")) ? url : arena_fmt(&a->arena, SLICE_FMT "/", SLICE_ARG(url));
}

static bool pattern_fits_name(const char *pattern, const char *name)
{
    return glob_match_how(slice_str(pattern), slice_str(name), GLOB_FLAT, NULL);
}

bool artifact_wants(const struct artifact *a, const char *name)
{
    bool in = a->ninclude == 0;

    for (size_t i = 0; i < a->ninclude && !in; i++) {
        in = pattern_fits_name(a->include[i], name);
    }
    for (size_t i = 0; i < a->nexclude && in; i++) {
        in = !pattern_fits_name(a->exclude[i], name);
    }
    return in;
}

static void on_artifact_file(void *arg, const struct pull_result *r)
{
    struct waiting *w = arg;
    struct artifact *a = w->a;
    struct artifact_file *f = &a->file[w->index];

    free(w);
    if (r->rc != 0) {
        stop_artifact_pull(a, r->rc, &r->why);
        return;
    }
    f->digest = r->digest;
    f->size_bytes = r->size_bytes;
    a->size_bytes += r->size_bytes;
    a->fetched_bytes += r->fetched_bytes;
    a->peer_bytes += r->peer_bytes;
    if (a->run->loop->peers != NULL) {
        a->peers = a->run->loop->peer_ops->givers(a->run->loop->peers);
    }
}

static void on_first_try(void *arg, const struct pull_result *r);

/* The digest of a folder's file has an address of its own: the head may move while we fetch. */
static void pull_next(struct artifact *a)
{
    const struct agent *ag = a->run->loop->agent;
    struct artifact_file *f = &a->file[a->next];
    struct waiting *w = NEW(struct waiting);
    struct pull_params want = {.digest = f->digest, .size_bytes = SIZE_UNKNOWN};
    struct buf url = BUF_INIT(64 << 10);
    struct buf other = BUF_INIT(64 << 10);
    char hex[DIGEST_HEX + 1];

    *w = (struct waiting){a, a->next++};
    buf_adds(&url, a->url);
    if (a->hub != NULL) {
        url_encode_path(f->name, &url);
        want.size_bytes = f->size_bytes;
    } else if (a->is_folder) {
        url_encode_path(f->name, &url);
        digest_format(&f->digest, hex);
        buf_addf(&other, SLICE_FMT "/-/blob/%s", SLICE_ARG(ag->mirror), hex);
        want.size_bytes = f->size_bytes;
    }
    want.url = buf_slice(&url);
    want.other_url = buf_slice(&other);
    if (!a->is_folder || !batch_add(a->run->loop, &want, on_artifact_file, w)) {
        pull_add(a->run->loop, &want, a->is_folder ? on_artifact_file : on_first_try, w);
    }
    buf_free(&url);
    buf_free(&other);
}

/* --- what a folder of the mirror consists of: {"root", "entries": [{"path", "size", "sha256"}]}
 * (docs/protocols/hosted.md) --- */

static int read_entry(struct artifact *a, const json_t *j, struct err *e)
{
    struct artifact_file *f = &a->file[a->nfiles];
    const char *name = json_string_value(json_object_get(j, "path"));
    const char *hex = json_string_value(json_object_get(j, "sha256"));
    const json_t *size = json_object_get(j, "size");

    if (name != NULL && json_is_null(json_object_get(j, "sha256"))) {
        return 0; /* a folder or a link: what is in it has entries of its own */
    }
    if (name == NULL || hex == NULL || !json_is_integer(size) || json_integer_value(size) < 0 ||
        !digest_parse(slice_str(hex), &f->digest)) {
        return err_set(e, E_PROTOCOL, "%s: invalid folder listing from the mirror", a->from);
    }
    if (!local_cache_name_ok(slice_str(name))) {
        return err_set(e, E_INVALID, "%s: the listing has a name that points outside the folder",
                       a->from);
    }
    if (artifact_wants(a, name)) {
        f->name = arena_copy(&a->arena, slice_str(name));
        f->size_bytes = (uint64_t)json_integer_value(size);
        a->nfiles++;
    }
    return 0;
}

static int read_listing(struct artifact *a, struct slice text, struct err *e)
{
    json_error_t where;
    json_t *doc = json_loadb(text.p, text.n, 0, &where);
    const json_t *entries = json_object_get(doc, "entries");
    const char *root = json_string_value(json_object_get(doc, "root"));
    size_t n = json_array_size(entries);
    int rc = 0;

    if (!json_is_array(entries) || n > FILES_MAX ||
        (root != NULL && !digest_parse(slice_str(root), &a->root))) {
        rc = err_set(e, E_PROTOCOL,
                     "%s: the mirror's response is neither a file nor a folder listing", a->from);
    }
    free(a->file);
    a->file = mem_array(n + 1, sizeof a->file[0]);
    a->nfiles = 0;
    for (size_t i = 0; rc == 0 && i < n; i++) {
        rc = read_entry(a, json_array_get(entries, i), e);
    }
    json_decref(doc);
    if (rc == 0 && a->nfiles == 0) {
        rc = err_set(e, E_NOTFOUND, "%s: %s", a->from,
                     n == 0 ? "the folder is empty" : "no file in the folder matches the patterns");
    }
    return rc;
}

/* --- what was found before: not asked again where it cannot change, and not sent again where it
 * has not --------------------
 *
 *   known/<key>   {"from", "etag", "root", "files": [{"name", "sha256", "size", "etag"}]}; key: of
 *                 the mirror, the FROM, and whether a token was shown
 *
 * A repository of a Hub at a commit, and a folder of a hosted tree at a root (`models/me/gpt@<64
 * hex digits>/`), are fixed: nobody is asked. Of a branch its commit is asked for, and then the
 * commit's list is this one. Any other folder is asked for with the ETag of its last listing. The
 * list is of a pull that ended well, whole, each file checked against what the mirror calls it. It
 * is a hint: one that is lost or torn costs a question. Its mtime is its last use, and that of all
 * files in it (gc); those that nobody used for 90 days are removed by gc. */

/* One name for all the ways in which the same thing may be written. */
static bool known_name(const struct artifact *a, struct buf *out)
{
    struct slice path = slice_str(a->from);

    if (a->hub != NULL) {
        buf_addf(out, SLICE_FMT "/" SLICE_FMT "/" SLICE_FMT "@" SLICE_FMT, SLICE_ARG(a->hub->repo),
                 SLICE_ARG(a->hub->type), SLICE_ARG(a->hub->id), SLICE_ARG(a->hub->commit));
        return a->hub->commit.p != NULL && out->rc == 0;
    }
    path = slice_cut(&path, '#');
    while (path.n > 0 && path.p[0] == '/') {
        path = slice_from(path, 1);
    }
    while (path.n > 0 && path.p[path.n - 1] == '/') {
        path.n--;
    }
    buf_adds(out, path);
    return path.n > 0 && out->rc == 0;
}

static void known_path(const struct agent *ag, struct slice name, char out[PATH_MAX])
{
    struct buf text = BUF_INIT(NAME_MAX_BYTES);
    char hex[DIGEST_HEX + 1];
    struct digest key;

    /* What a token brought answers nobody who has none: it is for the mirror to say who may
     * read. */
    buf_addf(&text, SLICE_FMT "/" SLICE_FMT "%s", SLICE_ARG(ag->mirror), SLICE_ARG(name),
             ag->auth_line.n != 0 ? " by token" : "");
    local_cache_key_of_url(buf_slice(&text), &key);
    buf_free(&text);
    digest_format(&key, hex);
    snprintf(out, PATH_MAX, "%.4000s/known/%s", local_cache_dir(ag->local_cache), hex);
}

/* `models/me/gpt@<64 hex digits>/...`: of a hosted tree, a root. */
static bool root_in(const char *from, struct digest *out)
{
    struct slice rest = slice_str(from);
    struct slice part;

    while (rest.n > 0) {
        ptrdiff_t at;
        part = slice_cut(&rest, '/');
        at = slice_find(part, '@');
        if (at >= 0 && digest_parse(slice_from(part, (size_t)at + 1), out)) {
            return true;
        }
    }
    return false;
}

static bool known_is_fixed(struct artifact *a)
{
    struct digest root;

    if (a->hub == NULL) {
        return root_in(a->from, &root);
    }
    if (hf_is_commit(a->hub->rev)) {
        a->hub->commit = a->hub->rev;
        return true;
    }
    return false;
}

/* False: not one of ours. */
static bool read_known_file(struct artifact *a, const json_t *o, struct artifact_file *f)
{
    struct slice name = jread_text(o, "name");
    struct slice etag = jread_text(o, "etag");

    if (name.p == NULL || !local_cache_name_ok(name) ||
        (a->hub != NULL && (etag.p == NULL || !local_cache_name_ok(etag))) ||
        !digest_parse(jread_text(o, "sha256"), &f->digest) ||
        !jread_u64(o, "size", &f->size_bytes)) {
        return false;
    }
    f->name = name;
    f->etag = etag;
    return true;
}

/* The files that the patterns let in. */
static struct artifact_file *read_known_files(struct artifact *a, const json_t *files, size_t *n)
{
    size_t all = json_array_size(files);
    struct artifact_file *out = mem_array(all + 1, sizeof out[0]);

    *n = 0;
    for (size_t i = 0; i < all; i++) {
        const json_t *o = json_array_get(files, i);
        struct artifact_file f;
        if (!read_known_file(a, o, &f)) {
            free(out);
            return NULL;
        }
        if (artifact_wants(a, json_string_value(json_object_get(o, "name")))) {
            f.name = arena_copy(&a->arena, f.name);
            f.etag = arena_copy(&a->arena, f.etag);
            out[(*n)++] = f;
        }
    }
    if (*n == 0) {
        free(out);
        return NULL;
    }
    return out;
}

/* Does the list say of itself that it is this one? Goes into a line of a request: */
static bool etag_ok(struct slice etag)
{
    for (size_t i = 0; i < etag.n; i++) {
        if ((uint8_t)etag.p[i] <= ' ' || (uint8_t)etag.p[i] >= 0x7f) {
            return false;
        }
    }
    return etag.n > 0 && etag.n < ETAG_MAX;
}

static bool read_known(struct artifact *a, struct slice name, const json_t *o)
{
    struct artifact_file *file;
    struct digest root = {0};
    struct digest want;
    size_t n;
    bool rooted = digest_parse(jread_text(o, "root"), &root);

    if (!slice_eq(jread_text(o, "from"), name) ||
        (a->hub == NULL && root_in(a->from, &want) && (!rooted || !digest_eq(&root, &want)))) {
        return false;
    }
    file = read_known_files(a, json_object_get(o, "files"), &n);
    if (file == NULL) {
        return false;
    }
    free(a->file);
    a->file = file;
    a->nfiles = n;
    a->root = root;
    a->etag = arena_copy(&a->arena, jread_text(o, "etag"));
    a->etag = etag_ok(a->etag) ? a->etag : SLICE_NONE;
    a->is_folder = a->known = true;
    return true;
}

static bool known_read(const struct agent *ag, struct artifact *a)
{
    struct buf name = BUF_INIT(NAME_MAX_BYTES);
    char path[PATH_MAX];
    json_t *o = NULL;
    bool ok = known_name(a, &name);

    if (ok) {
        known_path(ag, buf_slice(&name), path);
        o = json_load_file(path, 0, NULL);
        ok = o != NULL && read_known(a, buf_slice(&name), o);
    }
    if (ok) {
        (void)!utimensat(AT_FDCWD, path, NULL, 0);
    }
    json_decref(o);
    buf_free(&name);
    return ok;
}

static void format_known(const struct artifact *a, struct slice name, struct buf *out)
{
    jwrite_open(out, NULL, '{');
    jwrite_text(out, "from", name);
    if (a->hub == NULL) {
        jwrite_text(out, "etag", a->etag);
        jwrite_hex(out, "root", a->root.b, DIGEST_BYTES);
    }
    jwrite_open(out, "files", '[');
    for (size_t i = 0; i < a->nfiles; i++) {
        const struct artifact_file *f = &a->file[i];
        jwrite_open(out, NULL, '{');
        jwrite_text(out, "name", f->name);
        jwrite_hex(out, "sha256", f->digest.b, DIGEST_BYTES);
        jwrite_u64(out, "size", f->size_bytes);
        if (a->hub != NULL) {
            jwrite_text(out, "etag", f->etag);
        }
        jwrite_close(out, '}');
    }
    jwrite_close(out, ']');
    jwrite_close(out, '}');
}

static void known_write(const struct agent *ag, const struct artifact *a)
{
    struct buf text = BUF_INIT(KNOWN_MAX);
    struct buf name = BUF_INIT(NAME_MAX_BYTES);
    struct newfile *f = NULL;
    char path[PATH_MAX];
    char *slash;

    if (a->is_folder && !a->known && a->ninclude + a->nexclude == 0 && known_name(a, &name)) {
        known_path(ag, buf_slice(&name), path);
        format_known(a, buf_slice(&name), &text);
        slash = strrchr(path, '/');
        *slash = '\0';
        (void)!mkdir(path, 0755);
        *slash = '/';
        if (text.rc == 0 && newfile_open(path, 0644, &f, NULL) == 0) {
            newfile_write(f, text.p, text.n);
            (void)!newfile_commit_unsynced(&f, NULL);
        }
    }
    buf_free(&name);
    buf_free(&text);
}

/* --- folders ---------------------------------------------------------------------------------- */

/* Has the caller a folder of just these files? */
static bool is_laid(struct artifact *a)
{
    bool named = a->is_folder &&
                 a->lay != NULL; /* by digests, all of them: of a Hub's, git's names do not do */

    for (size_t i = 0; named && i < a->nfiles; i++) {
        named = !digest_is_zero(&a->file[i].digest);
    }
    a->laid = named && a->lay(a->lay_arg, a);
    for (size_t i = 0; a->laid && i < a->nfiles; i++) {
        a->size_bytes += a->file[i].size_bytes;
    }
    return a->laid;
}

/* Their names are there. */
static void begin_files(struct artifact *a)
{
    if (a->hub != NULL) {
        a->url = hub_files_url(a->hub, a->run->loop->agent->mirror, &a->arena);
    }
    a->next = 0;
    if (is_laid(a)) {
        a->next = a->nfiles;
        return;
    }
    for (size_t i = 0; i < a->nfiles; i++) {
        a->run->loop->known_bytes += a->file[i].size_bytes;
    }
}

static void start_listing(struct artifact *a);
static int read_hub(struct artifact *a, struct slice doc, struct err *e);

static void list_again(evutil_socket_t fd, short what, void *arg)
{
    struct artifact *a = arg;

    (void)fd;
    (void)what;
    if (!a->run->loop->stopping) {
        start_listing(a);
    }
}

static int read_answer(struct artifact *a, const struct ask_answer *ans, struct err *e)
{
    if (a->hub != NULL) {
        return read_hub(a, ans->body, e);
    }
    a->etag = arena_copy(&a->arena, ans->etag);
    return read_listing(a, ans->body, e);
}

static void on_listing(void *arg, int rc, const struct err *why, const struct ask_answer *ans)
{
    struct artifact *a = arg;
    struct err e = *why;
    struct slice folder = ans->url;

    a->ask = NULL;
    if (rc == 0 && !(ans->status == 304 && a->known)) { /* else it is as it was */
        a->known = false;
        rc = ask_judge(ans->status, &ans->reason, &e);
        err_prefix(&e, "%s", a->from);
        rc = rc != 0 ? rc : read_answer(a, ans, &e);
        if (rc == 0 && a->ask != NULL) {
            return; /* the second document is on its way */
        }
    }
    if ((rc == E_AGAIN || rc == E_NETWORK || rc == E_TIMEOUT) &&
        ++a->tries < a->run->loop->agent->tries) {
        const struct timeval wait =
            clock_timeval(pull_loop_pause_ms(a->run->loop, a->tries, ans->retry_after_s));
        event_base_once(a->run->loop->base, -1, EV_TIMEOUT, list_again, a, &wait);
        return;
    }
    a->listing = false;
    if (rc != 0) {
        stop_artifact_pull(a, rc, &e);
        return;
    }
    a->url = arena_copy(&a->arena, slice_cut(&folder, '?'));
    begin_files(a);
}

static void start_listing(struct artifact *a)
{
    const struct pull_loop *l = a->run->loop;
    struct slice fields[2] = {SLICE("Accept: application/json")};
    struct ask_params w = {.fields = fields, .nfields = 1, .body_max = LISTING_MAX};

    a->is_folder = a->listing = true;
    if (a->hub == NULL && known_read(l->agent, a) && a->etag.n != 0) {
        fields[w.nfields++] = arena_fmt(&a->arena, "If-None-Match: " SLICE_FMT, SLICE_ARG(a->etag));
    }
    w.url =
        a->hub != NULL
            ? arena_fmt(&a->arena, SLICE_FMT "/" SLICE_FMT, SLICE_ARG(l->agent->mirror),
                        SLICE_ARG(hub_next_url(a->hub, &a->arena)))
            : arena_fmt(&a->arena, SLICE_FMT "?recursive=1", SLICE_ARG(folder_url(a, l->agent)));
    a->ask = ask_start(l->xfers, l->agent, &w, on_listing, a);
}

/* --- a Hub's repository: two documents, then its files ---------------------------------------- */

static int add_hub_file(void *arg, const struct artifact_file *f)
{
    struct artifact *a = arg;

    if (!local_cache_name_ok(f->name)) {
        return E_INVALID;
    }
    if (artifact_wants(a, f->name.p)) {
        if ((a->nfiles & (a->nfiles - 1)) == 0) { /* full at 1, 2, 4, ... */
            a->file = reallocarray(a->file, max_u64(1, 2 * a->nfiles), sizeof a->file[0]);
            CHECK(a->file != NULL);
        }
        a->file[a->nfiles++] = (struct artifact_file){.name = arena_copy(&a->arena, f->name),
                                                      .digest = f->digest,
                                                      .size_bytes = f->size_bytes,
                                                      .etag = arena_copy(&a->arena, f->etag)};
    }
    return 0;
}

static int read_hub(struct artifact *a, struct slice doc, struct err *e)
{
    int rc;

    if (a->hub->commit.p == NULL) {
        rc = hub_read_info(a->hub, doc, &a->arena, e);
        if (rc == 0 && !known_read(a->run->loop->agent, a)) {
            a->tries = 0;
            start_listing(a);
        }
        return rc;
    }
    a->nfiles = 0;
    rc = hub_read_files(doc, add_hub_file, a, e);
    if (rc == E_INVALID) {
        err_set(e, rc, "%s: the listing has a name that points outside the folder", a->from);
    } else if (rc == 0 && a->nfiles == 0) {
        rc = err_set(e, E_NOTFOUND, "%s: no file in the repository matches the patterns", a->from);
    }
    return rc;
}

/* --- one file, or perhaps a folder after all -------------------------------------------------- */

static void on_first_try(void *arg, const struct pull_result *r)
{
    struct waiting *w = arg;
    struct artifact *a = w->a;

    if (r->rc == E_NOTFOUND && digest_is_zero(&a->file[0].digest) && !a->run->loop->stopping) {
        free(w);
        start_listing(a);
    } else {
        on_artifact_file(w, r);
    }
}

/* What kind of thing FROM names: a Hub's repository, a folder, or a file with its name. */
static int read_from(const struct agent *ag, struct artifact *a, struct err *e)
{
    struct slice rest = slice_str(a->from);
    struct slice path = slice_cut(&rest, '#');
    struct slice name = path;
    struct hub hub;
    ptrdiff_t slash;

    if (slice_starts(path, SLICE(HUB_REPO "/")) && hub_from(slice_str(a->from), &a->arena, &hub)) {
        a->hub = ARENA_NEW(&a->arena, struct hub);
        *a->hub = hub;
        return 0;
    }
    if (rest.n > 0 &&
        (!slice_starts(rest, SLICE("sha256=")) || !digest_parse(slice_from(rest, 7), &a->digest) ||
         digest_is_zero(&a->digest))) { /* zero is our "none" */
        return err_set(e, E_USAGE, "%s: only sha256=<64 hex digits> may follow '#'", a->from);
    }
    if (path.n == 0) {
        return err_set(e, E_USAGE, "FROM has no path; write <repo>/<path>");
    }
    a->is_folder = path.p[path.n - 1] == '/';
    if (a->is_folder) {
        return 0;
    }
    name = slice_cut(&name, '?');
    while ((slash = slice_find(name, '/')) >= 0) {
        name = slice_from(name, (size_t)slash + 1);
    }
    if (!local_cache_name_ok(name)) {
        return err_set(e, E_USAGE, "%s: the last part is not a valid file name", a->from);
    }
    a->file = mem_array(1, sizeof a->file[0]);
    a->nfiles = 1;
    a->file[0] = (struct artifact_file){.name = arena_copy(&a->arena, name), .digest = a->digest};
    a->url = from_url(a, ag, path);
    return 0;
}

static int start_one(struct artifact *a, struct err *e)
{
    const struct agent *ag = a->run->loop->agent;
    int rc = read_from(ag, a, e);

    if (rc == 0 && known_is_fixed(a) && known_read(ag, a)) {
        a->url = folder_url(a, ag);
        begin_files(a);
    } else if (rc == 0 && (a->hub != NULL || a->is_folder)) {
        start_listing(a);
    }
    return rc;
}

/* The next file of the first artifact that has one. */
static enum pull_more more(void *arg)
{
    struct artifacts *r = arg;
    bool listing = false;

    for (size_t i = 0; i < r->count; i++) {
        struct artifact *a = &r->one[i];
        if (a->listing) {
            listing = true;
        } else if (a->next < a->nfiles) {
            pull_next(a);
            return MORE_ADDED;
        }
    }
    return listing ? MORE_LATER : MORE_NONE;
}

/* --- the run ---------------------------------------------------------------------------------- */

static void begin_artifact_pulls(void *arg, struct pull_loop *l)
{
    struct artifacts *r = arg;
    struct err why;
    int rc = 0;

    r->loop = l;
    for (size_t i = 0; rc == 0 && i < r->count; i++) {
        r->one[i].run = r;
        rc = start_one(&r->one[i], &why);
        if (rc != 0) {
            stop_artifact_pull(&r->one[i], rc, &why);
        }
    }
}

static void on_artifact_tick(void *arg)
{
    const struct artifacts *r = arg;

    progress_draw(r->bar, r->loop->done_bytes,
                  r->loop->known_bytes != 0 ? r->loop->known_bytes : UINT64_MAX, clock_now_ms());
    if (r->want->is_gone != NULL && r->want->is_gone(r->want->arg)) {
        pull_loop_stop(r->loop);
    }
}

static void cancel_artifact_pulls(void *arg)
{
    struct artifacts *r = arg;

    for (size_t i = 0; i < r->count; i++) {
        ask_cancel(&r->one[i].ask);
        r->one[i].run = NULL;
    }
    r->loop = NULL;
}

/* What came is held against what it was called, and noted for the next run. */
static int verify_pulled_artifact(const struct agent *ag, struct artifact *a, struct err *e)
{
    int rc = a->hub != NULL && !a->known && !a->laid ? hub_check(ag, a->file, a->nfiles, e) : 0;

    if (rc == 0) {
        known_write(ag, a);
    }
    return rc;
}

int artifacts_pull(const struct agent *ag, struct artifact *a, size_t count,
                   const struct artifacts_params *w, struct err *e)
{
    struct artifacts run = {.one = a, .count = count, .want = w};
    const struct pull_loop_params lw = {.peer_ops = w->peer_ops,
                                        .begin = begin_artifact_pulls,
                                        .more = more,
                                        .on_tick = on_artifact_tick,
                                        .end = cancel_artifact_pulls,
                                        .arg = &run};
    int rc;

    run.bar = ag->quiet || ag->json ? NULL : progress_open(count == 1 ? a->from : "artifacts");
    rc = pull_loop_run(ag, &lw, e);
    if (run.rc != 0) { /* why it was stopped */
        *e = run.why;
        rc = run.rc;
    }
    for (size_t i = 0; rc == 0 && i < count; i++) {
        rc = verify_pulled_artifact(ag, &a[i], e);
    }
    progress_close(&run.bar);
    return rc;
}

/* --- without asking anybody ------------------------------------------------------------------- */

static bool all_here(const struct agent *ag, struct artifact *a)
{
    uint64_t size;

    for (size_t i = 0; i < a->nfiles; i++) {
        struct artifact_file *f = &a->file[i];
        if (local_cache_find(ag->local_cache, &f->digest, &size, NULL) != 0 ||
            (a->is_folder && size != f->size_bytes)) {
            return false;
        }
        f->size_bytes = size;
        a->size_bytes += size;
        /* The list of a known one has just been looked at, which gc takes as a use of all files. */
        if (!a->known) {
            local_cache_note(ag->local_cache, &f->digest, size, SLICE_NONE, SLICE_NONE);
        }
    }
    return true;
}

bool artifact_at_hand(const struct agent *ag, struct artifact *a)
{
    struct artifact blank = *a;
    bool all = read_from(ag, a, NULL) == 0;

    if (all && !digest_is_zero(&a->digest)) {
        all = !a->is_folder && all_here(ag, a);
    } else {
        all = all && known_is_fixed(a) && known_read(ag, a) && (is_laid(a) || all_here(ag, a));
    }
    if (!all) {
        artifact_fini(a);
        *a = blank;
    }
    return all;
}

void artifact_key(const struct artifact *a, struct digest *out)
{
    struct hasher *h;

    if (!a->is_folder) {
        *out = a->file[0].digest;
        return;
    }
    h = hasher_new_whole();
    for (size_t i = 0; i < a->nfiles; i++) {
        hasher_add(h, a->file[i].name.p, a->file[i].name.n);
        hasher_add(h, "", 1);
        hasher_add(h, a->file[i].digest.b, DIGEST_BYTES);
    }
    if (a->hub != NULL) {
        hasher_add(h, a->hub->rev.p, a->hub->rev.n);
        hasher_add(h, a->hub->commit.p, a->hub->commit.n);
    }
    hasher_final(h, out);
    hasher_free(&h);
}

int artifact_place(const struct agent *ag, const struct artifact *a, const char *dir, struct err *e)
{
    int rc = place_folder(dir, ag->fleeting, e);
    struct placer *p;

    if (rc != 0 || a->hub != NULL) {
        return rc != 0 ? rc : hub_place(ag, a->hub, a->file, a->nfiles, dir, e);
    }
    p = placer_open(ag->local_cache, dir, ag->copy, ag->fleeting);
    for (size_t i = 0; rc == 0 && i < a->nfiles; i++) {
        rc = placer_put(p, &a->file[i].digest, a->file[i].name, e);
    }
    placer_close(&p);
    return rc;
}

void artifact_path(const struct artifact *a, const char *dir, char out[PATH_MAX])
{
    if (a->hub != NULL) {
        hub_snapshot(a->hub, dir, out);
    } else {
        snprintf(out, PATH_MAX, "%.3900s%s" SLICE_FMT, dir, a->is_folder ? "" : "/",
                 SLICE_ARG(a->is_folder ? SLICE_NONE : a->file[0].name));
    }
}

void artifact_home(const struct artifact *a, const char *dir, char out[PATH_MAX])
{
    if (a->hub != NULL) {
        hub_folder(a->hub, dir, out);
    } else {
        snprintf(out, PATH_MAX, "%s", dir);
    }
}

void artifact_fini(struct artifact *a)
{
    free(a->file);
    a->file = NULL;
    arena_fini(&a->arena);
}
