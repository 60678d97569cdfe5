#include "agent/pull/listing.h"

#include <jansson.h>
#include <stdlib.h>

#include "agent/shelf/place.h"

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
        return err_set(e, E_PROTOCOL, "%s: a listing that is none", a->from);
    }
    if (!place_name_ok(slice_str(name))) {
        return err_set(e, E_INVALID, "%s: the listing holds a name that leads elsewhere", a->from);
    }
    if (artifact_wants(a, name)) {
        f->name = arena_copy(&a->arena, slice_str(name));
        f->size_bytes = (uint64_t)json_integer_value(size);
        a->nfiles++;
    }
    return 0;
}

int listing_read(struct artifact *a, struct slice text, struct err *e)
{
    json_error_t where;
    json_t *doc = json_loadb(text.p, text.n, 0, &where);
    const json_t *entries = json_object_get(doc, "entries");
    const char *root = json_string_value(json_object_get(doc, "root"));
    size_t n = json_array_size(entries);
    int rc = 0;

    if (!json_is_array(entries) || n > LISTING_FILES_MAX ||
        (root != NULL && !digest_parse(slice_str(root), &a->root))) {
        rc = err_set(e, E_PROTOCOL, "%s: neither a file nor a folder listing", a->from);
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
                     n == 0 ? "the folder is empty" : "no file there matches the patterns");
    }
    return rc;
}
