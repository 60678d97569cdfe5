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

enum { KNOWN_MAX = 256 << 20 };

static bool path_of(const struct agent *ag, const struct artifact *a, char out[PATH_MAX])
{
    struct buf text = BUF_INIT(64 << 10);
    char hex[DIGEST_HEX + 1];
    struct digest key;
    bool fixed = a->hub != NULL && hf_is_commit(a->hub->rev);

    buf_addf(&text, SLICE_FMT "/%s", SLICE_ARG(ag->mirror), a->from);
    shelf_key_of_url(buf_slice(&text), &key);
    buf_free(&text);
    digest_format(&key, hex);
    snprintf(out, PATH_MAX, "%.4000s/known/%s", shelf_dir(ag->shelf), hex);
    return fixed;
}

/* False: not one of ours. */
static bool read_file(struct artifact *a, const json_t *o)
{
    struct artifact_file *f = &a->file[a->nfiles];
    struct slice name = jread_text(o, "name");
    struct slice etag = jread_text(o, "etag");

    if (name.p == NULL || !place_name_ok(name) || etag.p == NULL || !place_name_ok(etag) ||
        !digest_parse(jread_text(o, "sha256"), &f->digest) ||
        !jread_u64(o, "size", &f->size_bytes)) {
        return false;
    }
    if (artifact_wants(a, json_string_value(json_object_get(o, "name")))) {
        f->name = arena_copy(&a->arena, name);
        f->etag = arena_copy(&a->arena, etag);
        a->nfiles++;
    }
    return true;
}

bool known_read(const struct agent *ag, struct artifact *a)
{
    char path[PATH_MAX];
    json_t *o = path_of(ag, a, path) ? json_load_file(path, 0, NULL) : NULL;
    const json_t *files = json_object_get(o, "files");
    size_t n = json_array_size(files);
    bool ok = n > 0 && slice_eqs(jread_text(o, "from"), a->from);

    if (ok) {
        a->file = mem_array(n, sizeof a->file[0]);
        a->nfiles = 0;
    }
    for (size_t i = 0; ok && i < n; i++) {
        ok = read_file(a, json_array_get(files, i));
    }
    json_decref(o);
    if (!ok || a->nfiles == 0) {
        free(a->file);
        a->file = NULL;
        a->nfiles = 0;
        return false;
    }
    a->hub->commit = a->hub->rev;
    a->is_folder = a->known = true;
    (void)!utimensat(AT_FDCWD, path, NULL, 0);
    return true;
}

static void format(const struct artifact *a, struct buf *out)
{
    jwrite_open(out, NULL, '{');
    jwrite_str(out, "from", a->from);
    jwrite_open(out, "files", '[');
    for (size_t i = 0; i < a->nfiles; i++) {
        const struct artifact_file *f = &a->file[i];
        jwrite_open(out, NULL, '{');
        jwrite_text(out, "name", f->name);
        jwrite_hex(out, "sha256", f->digest.b, DIGEST_BYTES);
        jwrite_u64(out, "size", f->size_bytes);
        jwrite_text(out, "etag", f->etag);
        jwrite_close(out, '}');
    }
    jwrite_close(out, ']');
    jwrite_close(out, '}');
}

void known_write(const struct agent *ag, const struct artifact *a)
{
    struct buf text = BUF_INIT(KNOWN_MAX);
    struct newfile *f = NULL;
    char path[PATH_MAX];
    char *slash;

    if (!path_of(ag, a, path) || a->known || a->ninclude + a->nexclude != 0) {
        return;
    }
    format(a, &text);
    slash = strrchr(path, '/');
    *slash = '\0';
    (void)!mkdir(path, 0755);
    *slash = '/';
    if (text.rc == 0 && newfile_open(path, 0644, &f, NULL) == 0) {
        newfile_write(f, text.p, text.n);
        (void)!newfile_commit(&f, NULL);
    }
    buf_free(&text);
}
