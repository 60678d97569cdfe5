#include "server/ctl/bundle.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>

#include "common/codec/hub_id.h"
#include "common/codec/jread.h"
#include "common/codec/jwrite.h"

enum { PATH_BYTES = 3072, FILES_MAX = 4 << 20 };

static const char format_name[] = "mirrord-carry";

/* --- names that may become paths -------------------------------------------------------------- */

static bool is_type(struct slice s)
{
    static const char *const types[] = {"models", "datasets", "spaces", "kernels"};

    for (size_t i = 0; i < ARRAY_LEN(types); i++) {
        if (slice_eqs(s, types[i])) {
            return true;
        }
    }
    return false;
}

static bool is_path(struct slice path)
{
    struct slice rest = path;

    for (size_t i = 0; i < path.n; i++) {
        if ((uint8_t)path.p[i] < ' ' || path.p[i] == 0x7f) {
            return false;
        }
    }
    while (rest.n != 0) {
        struct slice s = slice_cut(&rest, '/');
        if (s.n == 0 || s.n > 255 || slice_eqs(s, ".") || slice_eqs(s, "..")) {
            return false;
        }
    }
    return path.n != 0 && path.n <= PATH_BYTES && path.p[path.n - 1] != '/';
}

/* --- reading ---------------------------------------------------------------------------------- */

static int no_manifest(const char *why, struct err *e)
{
    return err_set(e, E_INVALID,
                   BUNDLE_MANIFEST " is damaged, or not the manifest of a bundle: "
                                   "%s",
                   why);
}

static int read_bundle_file(const json_t *v, struct arena *a, bool named, struct bundle_file *out,
                            struct err *e)
{
    struct slice path = jread_text(v, "path");

    if (!json_is_object(v) || !jread_u64(v, "size", &out->size_bytes) ||
        !digest_parse(jread_text(v, "sha256"), &out->sha256)) {
        return no_manifest("a file has no size or no SHA-256", e);
    }
    if (named && !is_path(path)) {
        return no_manifest("invalid path of a file", e);
    }
    out->path = named ? arena_cstr(a, path) : NULL;
    out->left_out = json_is_true(json_object_get(v, "left_out"));
    return 0;
}

static int read_names(const json_t *v, struct arena *a, struct bundle_revision *r, struct err *e)
{
    const json_t *list = json_object_get(v, "names"), *one;
    size_t i;

    json_array_foreach(list, i, one)
    {
        struct slice s = jread_slice(one);
        if (!json_is_string(one) || !hf_is_id(s) || r->names_count == BUNDLE_NAMES) {
            return no_manifest("invalid or too many other names of a repository", e);
        }
        r->names[r->names_count++] = arena_cstr(a, s);
    }
    return 0;
}

static int read_files(const json_t *v, struct arena *a, struct bundle_revision *r, struct err *e)
{
    const json_t *list = json_object_get(v, "files"), *one;
    size_t i;
    int rc = 0;

    if (!json_is_array(list) || json_array_size(list) > FILES_MAX) {
        return no_manifest("a revision has no list of files, or too many files", e);
    }
    r->file = mem_array(json_array_size(list) + 1, sizeof *r->file);
    json_array_foreach(list, i, one)
    {
        rc = read_bundle_file(one, a, true, &r->file[r->files], e);
        if (rc != 0) {
            return rc;
        }
        r->files++;
    }
    return 0;
}

static int read_revision(const json_t *v, struct arena *a, struct bundle_revision *r, struct err *e)
{
    struct slice type = jread_text(v, "type"), id = jread_text(v, "id"),
                 rev = jread_text(v, "revision"), commit = jread_text(v, "commit"),
                 repo = jread_text(v, "repo");
    int rc;

    if (!is_type(type) || !hf_is_id(id) || !is_path(rev) || rev.n > 200 || !hf_is_commit(commit) ||
        !hf_is_name(repo)) {
        return no_manifest("a revision has an invalid type, id, revision, commit or repo", e);
    }
    r->type = arena_cstr(a, type);
    r->id = arena_cstr(a, id);
    r->revision = arena_cstr(a, rev);
    r->commit = arena_cstr(a, commit);
    r->repo = arena_cstr(a, repo);
    r->closed = json_is_true(json_object_get(v, "closed"));
    (void)jread_u64(v, "seen_unix_s", &r->seen_unix_s);
    rc = read_names(v, a, r, e);
    rc = rc != 0 ? rc : read_bundle_file(json_object_get(v, "info"), a, false, &r->info, e);
    rc = rc != 0 ? rc : read_bundle_file(json_object_get(v, "tree"), a, false, &r->tree, e);
    return rc != 0 ? rc : read_files(v, a, r, e);
}

struct bundle_revision *bundle_add(struct bundle *b)
{
    b->revision = reallocarray(b->revision, b->revisions + 1, sizeof *b->revision);
    CHECK(b->revision != NULL);
    b->revision[b->revisions] = (struct bundle_revision){0};
    return &b->revision[b->revisions++];
}

static int read_bundle_json(const json_t *v, struct bundle *out, struct err *e)
{
    const json_t *list = json_object_get(v, "revisions"), *one;
    uint64_t version;
    size_t i;
    int rc = 0;

    if (!slice_eqs(jread_text(v, "format"), format_name) || !jread_u64(v, "version", &version)) {
        return no_manifest("it has no format and version", e);
    }
    if (version != BUNDLE_VERSION) {
        return err_set(e, E_UNSUPPORTED,
                       "the bundle has version %" PRIu64 ", but this mirrorctl reads version "
                       "%d; use another mirrorctl",
                       version, BUNDLE_VERSION);
    }
    if (!json_is_array(list) || json_array_size(list) == 0 ||
        json_array_size(list) > BUNDLE_REVISIONS) {
        return no_manifest("it has no revisions, or too many", e);
    }
    (void)jread_u64(v, "made_unix_s", &out->made_unix_s);
    json_array_foreach(list, i, one)
    {
        rc = read_revision(one, &out->arena, bundle_add(out), e);
        if (rc != 0) {
            return rc;
        }
    }
    return bundle_index(out, e);
}

int bundle_read(struct slice json, struct bundle *out, struct err *e)
{
    json_t *v = json_loadb(json.p != NULL ? json.p : "", json.n, JSON_REJECT_DUPLICATES, NULL);
    int rc;

    *out = (struct bundle){0};
    rc =
        json_is_object(v) ? read_bundle_json(v, out, e) : no_manifest("it is not a JSON object", e);
    json_decref(v);
    if (rc != 0) {
        bundle_free(out);
    }
    return rc;
}

/* --- writing ---------------------------------------------------------------------------------- */

static void write_bundle_json(struct buf *out, const char *key, const struct bundle_file *f)
{
    jwrite_open(out, key, '{');
    if (f->path != NULL) {
        jwrite_str(out, "path", f->path);
    }
    jwrite_u64(out, "size", f->size_bytes);
    jwrite_hex(out, "sha256", f->sha256.b, DIGEST_BYTES);
    if (f->left_out) {
        jwrite_bool(out, "left_out", true);
    }
    jwrite_close(out, '}');
}

static void write_revision(struct buf *out, const struct bundle_revision *r)
{
    jwrite_open(out, NULL, '{');
    jwrite_str(out, "repo", r->repo);
    jwrite_str(out, "type", r->type);
    jwrite_str(out, "id", r->id);
    jwrite_open(out, "names", '[');
    for (size_t i = 0; i < r->names_count; i++) {
        jwrite_str(out, NULL, r->names[i]);
    }
    jwrite_close(out, ']');
    jwrite_str(out, "revision", r->revision);
    jwrite_str(out, "commit", r->commit);
    jwrite_bool(out, "closed", r->closed);
    jwrite_u64(out, "seen_unix_s", r->seen_unix_s);
    write_bundle_json(out, "info", &r->info);
    write_bundle_json(out, "tree", &r->tree);
    jwrite_open(out, "files", '[');
    for (size_t i = 0; i < r->files; i++) {
        buf_str(out, i != 0 ? ",\n" : "\n"); /* a file a line, for people */
        write_bundle_json(out, NULL, &r->file[i]);
    }
    jwrite_close(out, ']');
    jwrite_close(out, '}');
}

void bundle_write(const struct bundle *b, struct buf *out)
{

    jwrite_open(out, NULL, '{');
    jwrite_str(out, "format", format_name);
    jwrite_u64(out, "version", BUNDLE_VERSION);
    jwrite_str(out, "made_by", "mirrorctl " MIRROR_VERSION);
    jwrite_u64(out, "made_unix_s", b->made_unix_s);
    jwrite_open(out, "revisions", '[');
    for (size_t i = 0; i < b->revisions; i++) {
        write_revision(out, &b->revision[i]);
    }
    jwrite_close(out, ']');
    jwrite_close(out, '}');
    buf_byte(out, '\n');
}

/* --- items ------------------------------------------------------------------------------------ */

/* "models--owner--name" */
static char *folder_of_revision(struct arena *a, const struct bundle_revision *r)
{
    struct slice rest = slice_str(r->id);
    struct slice owner = slice_cut(&rest, '/');

    return arena_cstr(a, rest.n == 0 ? arena_fmt(a, "%s--%s", r->type, r->id)
                                     : arena_fmt(a, "%s--" SLICE_FMT "--" SLICE_FMT, r->type,
                                                 SLICE_ARG(owner), SLICE_ARG(rest)));
}

static int add_item(struct bundle *b, struct slice path, const struct bundle_item *is,
                    struct err *e)
{
    struct bundle_item *it = ARENA_NEW(&b->arena, struct bundle_item), *old;

    *it = *is;
    it->path = arena_cstr(&b->arena, path);
    HASH_FIND(hh, b->items, it->path, path.n, old);
    if (old == NULL) {
        HASH_ADD_KEYPTR(hh, b->items, it->path, path.n, it);
        return 0;
    }
    if (old->kind == it->kind && old->size_bytes == it->size_bytes &&
        digest_eq(&old->sha256, &it->sha256) && old->left_out == it->left_out &&
        old->revision != it->revision) {
        it->next = old->next;
        old->next = it;
        return 0;
    }
    return err_set(e, E_INVALID, "the bundle's manifest names \"%.160s\" twice", it->path);
}

static struct bundle_item item_of(const struct bundle_file *f, enum item_kind kind, size_t rev)
{
    return (struct bundle_item){.kind = kind,
                                .size_bytes = f->size_bytes,
                                .sha256 = f->sha256,
                                .left_out = f->left_out,
                                .revision = (unsigned)rev,
                                .file = f->path};
}

static int index_revision(struct bundle *b, size_t i, struct err *e)
{
    const struct bundle_revision *r = &b->revision[i];
    struct arena *a = &b->arena;
    const char *folder = folder_of_revision(a, r);
    struct bundle_item info = item_of(&r->info, ITEM_INFO, i),
                       tree = item_of(&r->tree, ITEM_TREE, i);
    struct bundle_item ref = {.kind = ITEM_REF, .size_bytes = 40, .revision = (unsigned)i};
    int rc = add_item(b, arena_fmt(a, "words/%s/%s/info.json", folder, r->revision), &info, e);

    rc = rc != 0
             ? rc
             : add_item(b, arena_fmt(a, "words/%s/%s/tree.json", folder, r->revision), &tree, e);
    if (rc == 0 && strcmp(r->revision, r->commit) != 0) {
        digest_of(slice_str(r->commit), &ref.sha256);
        rc = add_item(b, arena_fmt(a, "hub/%s/refs/%s", folder, r->revision), &ref, e);
    }
    for (size_t k = 0; rc == 0 && k < r->files; k++) {
        struct bundle_item it = item_of(&r->file[k], ITEM_FILE, i);
        rc = add_item(b, arena_fmt(a, "hub/%s/snapshots/%s/%s", folder, r->commit, r->file[k].path),
                      &it, e);
    }
    return rc;
}

int bundle_index(struct bundle *b, struct err *e)
{
    int rc = 0;

    HASH_CLEAR(hh, b->items);
    for (size_t i = 0; rc == 0 && i < b->revisions; i++) {
        rc = index_revision(b, i, e);
    }
    return rc;
}

struct bundle_item *bundle_find(const struct bundle *b, struct slice path)
{
    struct bundle_item *it;

    HASH_FIND(hh, b->items, path.p, path.n, it);
    return it;
}

/* --- sums ------------------------------------------------------------------------------------- */

static void sum_line(struct buf *out, const struct digest *d, const char *path)
{
    char hex[DIGEST_HEX + 1];

    digest_format(d, hex);
    buf_addf(out, "%s  %s\n", hex, path);
}

void bundle_sums(const struct bundle *b, const struct digest *manifest, struct buf *out)
{
    sum_line(out, manifest, BUNDLE_MANIFEST);
    for (const struct bundle_item *it = b->items; it != NULL; it = it->hh.next) {
        if (!it->left_out) {
            sum_line(out, &it->sha256, it->path);
        }
    }
}

bool bundle_sums_read(struct slice text, struct digest *manifest)
{
    struct slice line = slice_cut(&text, '\n');

    return line.n == DIGEST_HEX + 2 + strlen(BUNDLE_MANIFEST) &&
           slice_eqs(slice_from(line, DIGEST_HEX), "  " BUNDLE_MANIFEST) &&
           digest_parse(slice_first(line, DIGEST_HEX), manifest);
}

void bundle_free(struct bundle *b)
{
    HASH_CLEAR(hh, b->items);
    for (size_t i = 0; i < b->revisions; i++) {
        free(b->revision[i].file);
    }
    free(b->revision);
    arena_fini(&b->arena);
    *b = (struct bundle){0};
}
