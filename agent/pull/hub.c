#include "agent/pull/hub.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "agent/cache/place.h"
#include "common/codec/url.h"
#include "common/hash/git_oid.h"
#include "common/os/newfile.h"

enum { COMMIT_HEX = 40, FILES_MAX = 4 << 20 };

/* --- its name --------------------------------------------------------------------------------- */

static bool is_hub_file_name(struct slice s)
{
    for (size_t i = 0; i < s.n; i++) {
        char c = s.p[i];
        if (!((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
              c == '.' || c == '_' || c == '-')) {
            return false;
        }
    }
    return s.n > 0 && !slice_eqs(s, ".") && !slice_eqs(s, "..");
}

static void take_type(struct slice *rest, struct hub *out)
{
    static const struct {
        struct slice type, prefix;
    } types[] = {{{"models", 6}, {"", 0}},
                 {{"datasets", 8}, {"datasets/", 9}},
                 {{"spaces", 6}, {"spaces/", 7}}};
    struct slice behind = *rest;
    struct slice first = slice_cut(&behind, '/');

    out->type = types[0].type;
    out->prefix = types[0].prefix;
    for (size_t i = 0; i < ARRAY_LEN(types); i++) {
        if (slice_eq(first, types[i].type) && behind.n != 0) {
            out->type = types[i].type;
            out->prefix = types[i].prefix;
            *rest = behind;
        }
    }
}

bool hub_from(struct slice from, struct arena *a, struct hub *out)
{
    struct slice rest = slice_cut(&from, '#');
    struct slice owner;
    struct slice name;

    *out = (struct hub){.repo = slice_cut(&rest, '/')};
    if (!slice_eqs(out->repo, HUB_REPO) || from.n != 0) {
        return false;
    }
    take_type(&rest, out);
    out->rev = rest;
    out->id = slice_cut(&out->rev, '@');
    if (out->id.n == rest.n) {
        out->rev = SLICE("main");
    }
    name = out->id;
    owner = slice_cut(&name, '/');
    if (!is_hub_file_name(owner) || (owner.n != out->id.n && !is_hub_file_name(name)) ||
        out->rev.n == 0 || !local_cache_name_ok(out->rev)) {
        return false;
    }
    out->id = arena_copy(a, out->id);
    out->rev = arena_copy(a, out->rev);
    return true;
}

static struct slice escaped(struct slice raw, struct arena *a)
{
    struct buf b = BUF_INIT(64 << 10);
    struct slice out;

    url_encode(raw, &b);
    out = arena_copy(a, buf_slice(&b));
    buf_free(&b);
    return out;
}

struct slice hub_next_url(const struct hub *h, struct arena *a)
{
    bool known = h->commit.p != NULL;

    return arena_fmt(a, SLICE_FMT "/api/" SLICE_FMT "/" SLICE_FMT "/%s/" SLICE_FMT "%s",
                     SLICE_ARG(h->repo), SLICE_ARG(h->type), SLICE_ARG(h->id),
                     known ? "tree" : "revision", SLICE_ARG(known ? h->commit : escaped(h->rev, a)),
                     known ? "?recursive=true" : "");
}

struct slice hub_files_url(const struct hub *h, struct slice mirror, struct arena *a)
{
    return arena_fmt(a, SLICE_FMT "/" SLICE_FMT "/" SLICE_FMT SLICE_FMT "/resolve/" SLICE_FMT "/",
                     SLICE_ARG(mirror), SLICE_ARG(h->repo), SLICE_ARG(h->prefix), SLICE_ARG(h->id),
                     SLICE_ARG(h->commit));
}

/* --- what the mirror says of it --------------------------------------------------------------- */

int hub_read_info(struct hub *h, struct slice doc, struct arena *a, struct err *e)
{
    json_error_t where;
    json_t *v = json_loadb(doc.p != NULL ? doc.p : "", doc.n, 0, &where);
    const char *sha = json_string_value(json_object_get(v, "sha"));
    struct git_oid oid;
    int rc = 0;

    if (sha == NULL || !git_oid_parse(slice_str(sha), &oid)) {
        rc = err_set(e, E_PROTOCOL, "the mirror's response names no commit for this revision");
    } else {
        h->commit = arena_copy(a, slice_str(sha));
    }
    json_decref(v);
    return rc;
}

static int read_hub_file(const json_t *v, int (*each)(void *arg, const struct artifact_file *f),
                         void *arg, struct err *e)
{
    const json_t *lfs = json_object_get(v, "lfs");
    const json_t *size = json_object_get(v, "size");
    const char *type = json_string_value(json_object_get(v, "type"));
    const char *oid = json_string_value(json_object_get(json_is_object(lfs) ? lfs : v, "oid"));
    const char *name = json_string_value(json_object_get(v, "path"));
    struct artifact_file f = {0};
    struct git_oid git;

    if (type != NULL && strcmp(type, "directory") == 0) {
        return 0;
    }
    if (name == NULL || oid == NULL || !json_is_integer(size) || json_integer_value(size) < 0 ||
        !(json_is_object(lfs) ? digest_parse(slice_str(oid), &f.digest)
                              : git_oid_parse(slice_str(oid), &git))) {
        return err_set(e, E_PROTOCOL, "invalid folder listing from the mirror");
    }
    f.name = slice_str(name);
    f.etag = slice_str(oid);
    f.size_bytes = (uint64_t)json_integer_value(size);
    return each(arg, &f);
}

int hub_read_files(struct slice doc, int (*each)(void *arg, const struct artifact_file *f),
                   void *arg, struct err *e)
{
    json_error_t where;
    json_t *v = json_loadb(doc.p != NULL ? doc.p : "", doc.n, 0, &where);
    size_t n = json_array_size(v);
    int rc = 0;

    if (!json_is_array(v) || n > FILES_MAX) {
        rc = err_set(e, E_PROTOCOL, "invalid folder listing from the mirror");
    }
    for (size_t i = 0; rc == 0 && i < n; i++) {
        rc = read_hub_file(json_array_get(v, i), each, arg, e);
    }
    json_decref(v);
    return rc;
}

/* --- as the client keeps it ------------------------------------------------------------------- */

void hub_folder(const struct hub *h, const char *home, char out[PATH_MAX])
{
    struct slice name = h->id;
    struct slice owner = slice_cut(&name, '/');

    snprintf(out, PATH_MAX, "%.2000s/hub/" SLICE_FMT "--" SLICE_FMT "%s" SLICE_FMT, home,
             SLICE_ARG(h->type), SLICE_ARG(owner), name.n != 0 ? "--" : "", SLICE_ARG(name));
}

void hub_snapshot(const struct hub *h, const char *home, char out[PATH_MAX])
{
    char folder[PATH_MAX];

    hub_folder(h, home, folder);
    snprintf(out, PATH_MAX, "%.4000s/snapshots/" SLICE_FMT, folder, SLICE_ARG(h->commit));
}

/* What came is what the listing named: of LFS files the pull has seen to it. */
static int check_git(const struct agent *ag, const struct artifact_file *f, struct err *e)
{
    char path[PATH_MAX];
    struct git_oid want;
    struct git_oid got;
    int fd;
    int rc;

    if (!git_oid_parse(f->etag, &want)) {
        return 0;
    }
    local_cache_blob_path(ag->local_cache, &f->digest, path);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd == -1) {
        return err_sys(e, "%s", path);
    }
    rc = git_oid_of_fd(fd, f->size_bytes, &got, e);
    close(fd);
    if (rc == 0 && !git_oid_eq(&got, &want)) {
        rc = err_set(e, E_CORRUPT, SLICE_FMT ": the content does not match the hash in the listing",
                     SLICE_ARG(f->name));
    }
    return rc;
}

int hub_check(const struct agent *ag, const struct artifact_file *f, size_t n, struct err *e)
{
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < n; i++) {
        rc = check_git(ag, &f[i], e);
    }
    return rc;
}

/* snapshots/<commit>/a/b -> ../../../blobs/<etag>, made beside and renamed over what is there. */
static int link_file(const struct agent *ag, const char *snapshot, const struct artifact_file *f,
                     struct err *e)
{
    struct buf to = BUF_INIT(PATH_MAX);
    char at[PATH_MAX];
    char temp[PATH_MAX];
    char *slash;
    int rc;

    buf_str(&to, "../../");
    for (size_t i = 0; i < f->name.n; i++) {
        if (f->name.p[i] == '/') {
            buf_str(&to, "../");
        }
    }
    buf_str(&to, "blobs/");
    buf_adds(&to, f->etag);
    if ((size_t)snprintf(at, sizeof at, "%s/" SLICE_FMT, snapshot, SLICE_ARG(f->name)) + 8 >=
        sizeof at) {
        rc = err_set(e, E_TOOBIG, "%s: the path is too long", snapshot);
        goto out;
    }
    if (symlink(buf_cstr(&to), at) == 0) { /* as it is, but for the first of a folder */
        rc = 0;
        goto out;
    }
    slash = strrchr(at, '/');
    *slash = '\0';
    rc = place_folder(at, ag->fleeting, e);
    *slash = '/';
    if (rc != 0) {
        goto out;
    }
    snprintf(temp, sizeof temp, "%.4080s.new~", at);
    unlink(temp);
    if (symlink(buf_cstr(&to), temp) == -1 || rename(temp, at) == -1) {
        rc = err_sys(e, "%s", at);
    }
out:
    buf_free(&to);
    return rc;
}

static int write_ref(const struct agent *ag, const struct hub *h, const char *folder, struct err *e)
{
    struct newfile *f = NULL;
    char path[PATH_MAX];
    char *slash;
    int rc;

    if ((size_t)snprintf(path, sizeof path, "%s/refs/" SLICE_FMT, folder, SLICE_ARG(h->rev)) >=
        sizeof path) {
        return err_set(e, E_TOOBIG, "%s: the path is too long", folder);
    }
    slash = strrchr(path, '/');
    *slash = '\0';
    rc = place_folder(path, ag->fleeting, e);
    *slash = '/';
    rc = rc != 0 ? rc : newfile_open(path, 0644, &f, e);
    if (rc == 0) {
        newfile_write(f, h->commit.p, h->commit.n);
        rc = ag->fleeting ? newfile_commit_unsynced(&f, e) : newfile_commit(&f, e);
    }
    return rc;
}

int hub_place(const struct agent *ag, const struct hub *h, const struct artifact_file *f, size_t n,
              const char *home, struct err *e)
{
    char folder[PATH_MAX];
    char blobs[PATH_MAX];
    char snapshot[PATH_MAX];
    struct placer *p;
    int rc;

    hub_folder(h, home, folder);
    snprintf(blobs, sizeof blobs, "%.4000s/blobs", folder);
    hub_snapshot(h, home, snapshot);
    rc = place_folder(blobs, ag->fleeting, e);
    p = placer_open(ag->local_cache, blobs, ag->copy, ag->fleeting);
    for (size_t i = 0; rc == 0 && i < n; i++) {
        rc = placer_put(p, &f[i].digest, f[i].etag, e);
        rc = rc != 0 ? rc : link_file(ag, snapshot, &f[i], e);
    }
    placer_close(&p);
    /* The name last: whoever finds it finds all that it leads to. */
    if (rc == 0 && !slice_eq(h->rev, h->commit)) {
        rc = write_ref(ag, h, folder, e);
    }
    return rc;
}
