/* hub_modes.c - what a client is told before it sends files: how each is to come, and what the tree has under that name, so that
 * it leaves out what has not changed. LFS files are compared by SHA-256, the others by git's name for their bytes, which
 * the tree does not keep: it is made of those that have the announced size, within a bound. */
#include <jansson.h>

#include "common/codec/jread.h"
#include "common/hash/git_oid.h"
#include "server/repo/hosted/hub.h"
#include "server/store/blob.h"

enum { FILES_MAX = 4096, HASH_BYTES = 256 << 20 };

struct file {
    struct slice path;
    uint64_t size_bytes;
};

static bool read_file(const json_t *o, struct file *out)
{
    out->path = jread_text(o, "path");
    return out->path.p != NULL && jread_u64(o, "size", &out->size_bytes);
}

/* Before the commit: what is long, and, as on the Hub, the files that datasets writes: it throws its own away as soon as they
 * were brought, however small, and does not have them any more when it commits. */
static bool comes_before(const struct file *f)
{
    return f->size_bytes > HUB_REGULAR_BYTES ||
           (f->size_bytes != 0 &&
            (slice_ends(f->path, SLICE(".parquet")) || slice_ends(f->path, SLICE(".arrow"))));
}

bool hub_modes_large(struct slice body)
{
    json_t *o = jread_parse(body, JSON_REJECT_DUPLICATES, HUB_BODY_VALUES);
    const json_t *files = json_object_get(o, "files");
    bool large = false;
    size_t i;
    const json_t *one;
    struct file f;

    json_array_foreach(files, i, one)
    {
        large = large || (read_file(one, &f) && comes_before(&f));
    }
    json_decref(o);
    return large;
}

/* What git would call the file. */
static int git_name(struct store *s, const struct entry *en, char out[GIT_OID_HEX + 1],
                    struct err *e)
{
    struct blob *blob = NULL;
    struct git_oid oid;
    int rc = blob_open(s, &en->digest, &blob, e);

    if (rc == 0) {
        rc = blob_git_oid(blob, &oid, e);
    }
    if (rc == 0) {
        git_oid_format(&oid, out);
    }
    blob_release(&blob);
    return rc;
}

/* *left: bytes that may still be hashed for this answer. "" : it has changed, or is new, or nobody knows. */
static int name_of(struct store *s, const struct plan *p, const struct file *f, uint64_t *left,
                   char out[DIGEST_HEX + 1], struct err *e)
{
    struct arena a = {0};
    struct entry en;
    int rc =
        tree_path_valid(f->path) ? tree_get(s, &p->snap.root, f->path, &a, &en, e) : E_NOTFOUND;

    out[0] = '\0';
    if (rc == 0 && en.type == ENTRY_FILE && en.size_bytes == f->size_bytes) {
        if (comes_before(f)) {
            digest_format(&en.digest, out);
        } else if (en.size_bytes <= *left) {
            *left -= en.size_bytes;
            rc = git_name(s, &en, out, e);
        }
    }
    arena_fini(&a);
    return rc == E_NOTFOUND || rc == E_CORRUPT ? 0 : rc;
}

static int write_file(struct store *s, const struct plan *p, const struct file *f, uint64_t *left,
                      struct buf *out, struct err *e)
{
    char oid[DIGEST_HEX + 1];
    int rc = name_of(s, p, f, left, oid, e);

    jwrite_open(out, NULL, '{');
    jwrite_text(out, "path", f->path);
    jwrite_str(out, "uploadMode", comes_before(f) ? "lfs" : "regular");
    jwrite_bool(out, "shouldIgnore", false);
    if (oid[0] != '\0') {
        jwrite_str(out, "oid", oid);
    } else {
        jwrite_null(out, "oid");
    }
    jwrite_close(out, '}');
    return rc;
}

int hub_modes(struct store *s, const struct plan *p, struct buf *out, struct err *e)
{
    json_t *o = jread_parse(p->text, JSON_REJECT_DUPLICATES, HUB_BODY_VALUES);
    const json_t *files = json_object_get(o, "files");
    uint64_t left = HASH_BYTES;
    struct file f;
    size_t i;
    const json_t *one;
    int rc = json_is_array(files) && json_array_size(files) <= FILES_MAX ? 0 : E_INVALID;

    jwrite_open(out, NULL, '{');
    jwrite_open(out, "files", '[');
    json_array_foreach(files, i, one)
    {
        rc = rc == 0 && !read_file(one, &f) ? E_INVALID : rc;
        if (rc == 0) {
            rc = write_file(s, p, &f, &left, out, e);
        }
    }
    jwrite_close(out, ']');
    jwrite_close(out, '}');
    json_decref(o);
    return rc == E_INVALID ? err_set(e, rc, "files: a list of {path, size}, of at most 4096") : rc;
}
