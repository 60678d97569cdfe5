#include "server/repo/conda/shards.h"

#include "common/codec/msgpack.h"
#include "server/store/tree.h"

enum { SAID_MAX = 8 }; /* places in one list: twice the same is strange, and more is a game */

struct slice shards_folder(struct slice folder, enum conda_kind kind)
{
    static const struct slice below = {"shards/", 7};

    if (kind == CONDA_SHARD && slice_ends(folder, below) &&
        (folder.n == below.n || folder.p[folder.n - below.n - 1] == '/')) {
        folder.n -= below.n;
    }
    return folder;
}

static int map(struct slice *rest, uint64_t *pairs, struct err *e)
{
    struct mp_item it;
    int rc = mp_next(rest, &it, e);

    *pairs = it.u;
    return rc != 0 ? rc
           : it.kind == MP_MAP
               ? 0
               : err_set(e, E_INVALID,
                         "the list of shards has a value of another type in place of a map");
}

static int read_shard_key(struct slice *rest, struct slice *out, struct err *e)
{
    struct mp_item it;
    int rc = mp_next(rest, &it, e);

    *out = it.bytes;
    return rc != 0 ? rc
           : it.kind == MP_STR
               ? 0
               : err_set(e, E_INVALID, "the list of shards has a key that is not a string");
}

static int only(struct slice rest, struct err *e)
{
    return rest.n == 0 ? 0 : err_set(e, E_INVALID, "the list of shards is followed by more data");
}

/* --- a shard --- */

/* 32 bytes, or 64 hex digits. */
static bool digest_in(const struct mp_item *it, struct digest *out)
{
    if ((it->kind == MP_BIN || it->kind == MP_STR) && it->bytes.n == DIGEST_BYTES) {
        memcpy(out->b, it->bytes.p, DIGEST_BYTES);
        return true;
    }
    return it->kind == MP_STR && digest_parse(it->bytes, out);
}

static int field(struct slice *rest, struct shard_file *f, struct err *e)
{
    struct slice name, value;
    struct mp_item it;
    int rc = read_shard_key(rest, &name, e);

    if (rc == 0) {
        value = *rest;
        rc = mp_skip(rest, e);
    }
    if (rc == 0 && slice_eqs(name, "sha256")) {
        rc = mp_next(&value, &it, e);
        f->digest_known = rc == 0 && digest_in(&it, &f->digest);
    } else if (rc == 0 && slice_eqs(name, "size")) {
        rc = mp_next(&value, &it, e);
        f->size_bytes = rc == 0 && it.kind == MP_UINT ? it.u : UINT64_MAX;
    }
    return rc;
}

static int package(struct slice *rest,
                   int (*on_file)(void *arg, const struct shard_file *f, struct err *e), void *arg,
                   struct err *e)
{
    struct shard_file f = {.size_bytes = UINT64_MAX};
    uint64_t fields = 0;
    int rc = read_shard_key(rest, &f.name, e);

    rc = rc != 0 ? rc : map(rest, &fields, e);
    for (uint64_t i = 0; rc == 0 && i < fields; i++) {
        rc = field(rest, &f, e);
    }
    if (rc == 0 && slice_find(f.name, '/') < 0 && tree_path_valid(f.name)) {
        rc = on_file(arg, &f, e);
    }
    return rc;
}

int shard_read(struct slice doc,
               int (*on_file)(void *arg, const struct shard_file *f, struct err *e), void *arg,
               struct err *e)
{
    struct slice rest = doc, name;
    uint64_t pairs;
    int rc = map(&rest, &pairs, e);

    for (uint64_t i = 0; rc == 0 && i < pairs; i++) {
        uint64_t packages = 0;
        rc = read_shard_key(&rest, &name, e);
        if (rc == 0 && !slice_eqs(name, "packages") && !slice_eqs(name, "packages.conda")) {
            rc = mp_skip(&rest, e);
        } else if (rc == 0) {
            rc = map(&rest, &packages, e);
        }
        for (uint64_t k = 0; rc == 0 && k < packages; k++) {
            rc = package(&rest, on_file, arg, e);
        }
    }
    return rc != 0 ? rc : only(rest, e);
}

/* --- the list --- */

struct said { /* a place, as it stands in the list */
    struct slice item;
    const char *ours;
};

static int info(struct slice *rest, struct shards_places *was, struct said *said, size_t *count,
                struct err *e)
{
    uint64_t pairs;
    int rc = map(rest, &pairs, e);

    for (uint64_t i = 0; rc == 0 && i < pairs; i++) {
        struct slice name, value;
        struct mp_item it;
        bool packages, shards;
        rc = read_shard_key(rest, &name, e);
        value = *rest;
        rc = rc != 0 ? rc : mp_skip(rest, e);
        packages = rc == 0 && slice_eqs(name, "base_url");
        shards = rc == 0 && slice_eqs(name, "shards_base_url");
        if (!packages && !shards) {
            continue;
        }
        if (*count == SAID_MAX) {
            return err_set(e, E_INVALID, "the list of shards has too many base URLs");
        }
        said[*count].item = slice_first(value, value.n - rest->n);
        said[(*count)++].ours = packages ? "./" : "./shards/";
        rc = mp_next(&value, &it, e);
        if (rc == 0 && it.kind != MP_STR && it.kind != MP_NIL) {
            rc = err_set(e, E_INVALID, "the list of shards has a base URL that is not a string");
        }
        *(packages ? &was->packages : &was->shards) = it.kind == MP_STR ? it.bytes : SLICE_NONE;
    }
    return rc;
}

int shards_rewrite(struct slice doc, struct shards_places *was, struct buf *out, struct err *e)
{
    struct said said[SAID_MAX];
    struct slice rest = doc, name;
    size_t count = 0;
    uint64_t pairs;
    bool any = false;
    int rc = map(&rest, &pairs, e);

    *was = (struct shards_places){SLICE_NONE, SLICE_NONE};
    for (uint64_t i = 0; rc == 0 && i < pairs; i++) {
        rc = read_shard_key(&rest, &name, e);
        any = any || (rc == 0 && slice_eqs(name, "shards"));
        if (rc == 0) {
            rc = slice_eqs(name, "info") ? info(&rest, was, said, &count, e) : mp_skip(&rest, e);
        }
    }
    rc = rc != 0 ? rc : only(rest, e);
    if (rc != 0 || !any) {
        return rc != 0 ? rc : err_set(e, E_INVALID, "the list of shards has no shards");
    }
    rest = doc;
    for (size_t i = 0; i < count; i++) {
        buf_adds(out, slice_first(rest, (size_t)(said[i].item.p - rest.p)));
        mp_put_str(out, slice_str(said[i].ours));
        rest = slice_from(rest, (size_t)(said[i].item.p - rest.p) + said[i].item.n);
    }
    buf_adds(out, rest);
    return out->rc == 0
               ? 0
               : err_set(e, E_TOOBIG, "the list of shards is larger than %zu bytes", out->max);
}
