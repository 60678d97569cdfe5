#include "agent/pull/known.h"

#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/pull/hub.h"
#include "agent/shelf/place.h"
#include "common/codec/hub_id.h"
#include "common/codec/jread.h"
#include "common/codec/jwrite.h"
#include "common/os/newfile.h"

enum { KNOWN_MAX = 256 << 20, NAME_MAX_BYTES = 64 << 10, ETAG_MAX = 256 };

/* One name for all the ways in which the same thing may be written. */
static bool name_of(const struct artifact *a, struct buf *out)
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

static void path_of(const struct agent *ag, struct slice name, char out[PATH_MAX])
{
    struct buf text = BUF_INIT(NAME_MAX_BYTES);
    char hex[DIGEST_HEX + 1];
    struct digest key;

    /* What a token brought answers nobody who has none: it is for the mirror to say who may read. */
    buf_addf(&text, SLICE_FMT "/" SLICE_FMT "%s", SLICE_ARG(ag->mirror), SLICE_ARG(name),
             ag->auth_line.n != 0 ? " by token" : "");
    shelf_key_of_url(buf_slice(&text), &key);
    buf_free(&text);
    digest_format(&key, hex);
    snprintf(out, PATH_MAX, "%.4000s/known/%s", shelf_dir(ag->shelf), hex);
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

bool known_is_fixed(struct artifact *a)
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
static bool read_file(struct artifact *a, const json_t *o, struct artifact_file *f)
{
    struct slice name = jread_text(o, "name");
    struct slice etag = jread_text(o, "etag");

    if (name.p == NULL || !place_name_ok(name) ||
        (a->hub != NULL && (etag.p == NULL || !place_name_ok(etag))) ||
        !digest_parse(jread_text(o, "sha256"), &f->digest) ||
        !jread_u64(o, "size", &f->size_bytes)) {
        return false;
    }
    f->name = name;
    f->etag = etag;
    return true;
}

/* The files that the patterns let in. */
static struct artifact_file *read_files(struct artifact *a, const json_t *files, size_t *n)
{
    size_t all = json_array_size(files);
    struct artifact_file *out = mem_array(all + 1, sizeof out[0]);

    *n = 0;
    for (size_t i = 0; i < all; i++) {
        const json_t *o = json_array_get(files, i);
        struct artifact_file f;
        if (!read_file(a, o, &f)) {
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

static bool read_doc(struct artifact *a, struct slice name, const json_t *o)
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
    file = read_files(a, json_object_get(o, "files"), &n);
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

bool known_read(const struct agent *ag, struct artifact *a)
{
    struct buf name = BUF_INIT(NAME_MAX_BYTES);
    char path[PATH_MAX];
    json_t *o = NULL;
    bool ok = name_of(a, &name);

    if (ok) {
        path_of(ag, buf_slice(&name), path);
        o = json_load_file(path, 0, NULL);
        ok = o != NULL && read_doc(a, buf_slice(&name), o);
    }
    if (ok) {
        (void)!utimensat(AT_FDCWD, path, NULL, 0);
    }
    json_decref(o);
    buf_free(&name);
    return ok;
}

static void format(const struct artifact *a, struct slice name, struct buf *out)
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

void known_write(const struct agent *ag, const struct artifact *a)
{
    struct buf text = BUF_INIT(KNOWN_MAX);
    struct buf name = BUF_INIT(NAME_MAX_BYTES);
    struct newfile *f = NULL;
    char path[PATH_MAX];
    char *slash;

    if (a->is_folder && !a->known && a->ninclude + a->nexclude == 0 && name_of(a, &name)) {
        path_of(ag, buf_slice(&name), path);
        format(a, buf_slice(&name), &text);
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
