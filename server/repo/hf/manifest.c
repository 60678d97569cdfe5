#include "server/repo/hf/manifest.h"

#include <jansson.h>
#include <stdlib.h>

#include "common/codec/jread.h"
#include "common/codec/jwrite.h"
#include "server/repo/hf/path.h"

enum { ID_MAX = 200, ENTRY_JSON_MAX = 64 << 10, FOLDER = 1, LFS = 2, ENTRIES_MAX = 4 << 20 };

struct head { /* the first bytes */
    char magic[4];
    uint32_t count;
    uint64_t index_at; /* u64 offsets of the records, by path */
    uint32_t smallest; /* of the index, cards aside; count: no file */
    uint32_t id_n;
    char id[ID_MAX];
};

struct record { /* path and JSON follow */
    uint64_t size_bytes;
    uint32_t path_n;
    uint32_t json_n;
    uint32_t flags;
    struct git_oid oid;
    struct digest sha256;
};

static const char magic_made[4] = {'h', 'f', 'm', '1'};

/* --- the Hub's pages -------------------------------------------------------------------------- */

/* Some say "sha256:<hex>". */
static bool sha256_of(const json_t *lfs, struct digest *out)
{
    struct slice hex = jread_text(lfs, "oid");

    if (slice_starts(hex, SLICE("sha256:"))) {
        hex = slice_from(hex, 7);
    }
    return digest_parse(hex, out);
}

static bool read_lfs(const json_t *v, struct record *r)
{
    const json_t *lfs = json_object_get(v, "lfs");

    if (!json_is_object(lfs)) {
        return true;
    }
    r->flags |= LFS;
    return sha256_of(lfs, &r->sha256) && jread_u64(lfs, "size", &r->size_bytes);
}

static void write_lfs(const json_t *v, const struct record *r, struct buf *out)
{
    const json_t *size = json_object_get(json_object_get(v, "lfs"), "pointerSize");

    jwrite_open(out, "lfs", '{');
    jwrite_hex(out, "oid", r->sha256.b, DIGEST_BYTES);
    jwrite_u64(out, "size", r->size_bytes);
    jwrite_u64(out, "pointerSize",
               json_is_integer(size) && json_integer_value(size) > 0
                   ? (uint64_t)json_integer_value(size)
                   : 0);
    jwrite_close(out, '}');
}

static void write_entry(const json_t *v, struct slice path, const struct record *r, struct buf *out)
{
    jwrite_open(out, NULL, '{');
    jwrite_str(out, "type", (r->flags & FOLDER) != 0 ? "directory" : "file");
    jwrite_hex(out, "oid", r->oid.b, GIT_OID_BYTES);
    jwrite_u64(out, "size", r->size_bytes);
    if ((r->flags & LFS) != 0) {
        write_lfs(v, r, out);
    }
    jwrite_text(out, "path", path);
    jwrite_close(out, '}');
}

/* What cannot be a path in a repository, or is neither file nor folder, is left out: nobody could
 * ask for it. */
static int add_manifest_entry(const json_t *v, struct buf *out, struct err *e)
{
    struct slice type = jread_text(v, "type");
    struct slice path = jread_text(v, "path");
    struct buf json = BUF_INIT(ENTRY_JSON_MAX);
    struct record r = {.flags = slice_eqs(type, "directory") ? FOLDER : 0};

    if (path.n == 0 || !hf_is_path(path) || (r.flags == 0 && !slice_eqs(type, "file"))) {
        return 0;
    }
    if ((r.flags == 0 && !jread_u64(v, "size", &r.size_bytes)) ||
        !git_oid_parse(jread_text(v, "oid"), &r.oid) || !read_lfs(v, &r)) {
        return err_set(e, E_PROTOCOL, "the Hub's listing lacks fields of \"%.100s\"", path.p);
    }
    write_entry(v, path, &r, &json);
    r.path_n = (uint32_t)path.n;
    r.json_n = (uint32_t)json.n;
    if (json.rc == 0) {
        buf_add(out, &r, sizeof r);
        buf_adds(out, path);
        buf_adds(out, buf_slice(&json));
    }
    buf_free(&json);
    return out->rc;
}

/* ".../api/{T}/{id}/tree/..." */
static void note_id(struct slice url, struct head *h)
{
    static const char *const before[] = {"/api/models/", "/api/datasets/", "/api/spaces/",
                                         "/api/kernels/"};

    for (size_t i = 0; i < ARRAY_LEN(before); i++) {
        const char *at = memmem(url.p, url.n, before[i], strlen(before[i]));
        struct slice id;
        const char *end;
        if (at == NULL) {
            continue;
        }
        id = slice_from(url, (size_t)(at - url.p) + strlen(before[i]));
        end = memmem(id.p, id.n, "/tree/", 6);
        if (end != NULL) {
            id = slice_first(id, (size_t)(end - id.p));
            if (hf_is_id(id) && id.n <= ID_MAX) {
                memcpy(h->id, id.p, id.n);
                h->id_n = (uint32_t)id.n;
            }
        }
        return;
    }
}

/* --- the index -------------------------------------------------------------------------------- */

static void record_at(struct slice bytes, uint64_t at, struct record *r, struct slice *path)
{
    memcpy(r, bytes.p + at, sizeof *r);
    *path = slice_of(bytes.p + at + sizeof *r, r->path_n);
}

static int compare_manifest_paths(const void *a, const void *b, void *arg)
{
    const struct buf *all = arg;
    struct slice left;
    struct slice right;
    struct record r;

    record_at(buf_slice(all), *(const uint64_t *)a, &r, &left);
    record_at(buf_slice(all), *(const uint64_t *)b, &r, &right);
    return slice_cmp(left, right);
}

/* Some Hub may show every folder's card to everybody. */
static bool may_be_card(struct slice path)
{
    return hf_is_card(slice_from(path, slice_behind(path, '/')));
}

static int finish_manifest_row(struct buf *out, struct err *e)
{
    struct buf index = BUF_INIT((size_t)ENTRIES_MAX * sizeof(uint64_t));
    uint64_t least = UINT64_MAX;
    struct slice last = SLICE_NONE;
    struct head h;
    struct record r;
    struct slice path;
    int rc;

    memcpy(&h, out->p, sizeof h);
    for (uint64_t at = sizeof h; at < out->n; at += sizeof r + r.path_n + r.json_n) {
        record_at(buf_slice(out), at, &r, &path);
        buf_add(&index, &at, sizeof at);
        h.count++;
    }
    if (index.n != 0) {
        qsort_r(index.p, h.count, sizeof(uint64_t), compare_manifest_paths, out);
    }
    h.smallest = h.count;
    rc = index.rc != 0 ? err_set(e, E_TOOBIG, "the Hub's listing has too many entries") : 0;
    for (uint32_t i = 0; rc == 0 && i < h.count; i++) {
        uint64_t at;
        memcpy(&at, index.p + i * sizeof at, sizeof at);
        record_at(buf_slice(out), at, &r, &path);
        if (last.p != NULL && slice_eq(last, path)) {
            rc = err_set(e, E_PROTOCOL, "the Hub's listing names a path twice");
        }
        last = path;
        if ((r.flags & FOLDER) == 0 && r.size_bytes < least && !may_be_card(path)) {
            least = r.size_bytes;
            h.smallest = i;
        }
    }
    h.index_at = out->n;
    memcpy(h.magic, magic_made, sizeof h.magic);
    buf_adds(out, buf_slice(&index)); /* may move: `last` and `path` are void */
    buf_free(&index);
    if (rc == 0 && out->rc == 0) {
        memcpy(out->p, &h, sizeof h);
    }
    return rc != 0 ? rc : out->rc;
}

int manifest_add(struct slice page, struct slice url, bool first, bool last, struct buf *out,
                 struct err *e)
{
    json_t *v = jread_parse(page, 0, jread_values_of(page.n));
    struct head h = {0};
    const json_t *item;
    size_t i;
    int rc = 0;

    if (!json_is_array(v)) {
        json_decref(v);
        return err_set(e, E_PROTOCOL, "the Hub's listing is not a JSON array");
    }
    if (first) {
        note_id(url, &h);
        buf_add(out, &h, sizeof h);
    }
    json_array_foreach(v, i, item)
    {
        rc = add_manifest_entry(item, out, e);
        if (rc != 0) {
            break;
        }
    }
    json_decref(v);
    if (rc == 0 && out->rc != 0) {
        rc = err_set(e, E_TOOBIG, "the Hub's listing is too large");
    }
    return rc == 0 && last ? finish_manifest_row(out, e) : rc;
}

/* --- looking ---------------------------------------------------------------------------------- */

bool manifest_open(struct slice bytes, struct manifest *out)
{
    struct head h;

    if (bytes.n < sizeof h) {
        return false;
    }
    memcpy(&h, bytes.p, sizeof h);
    if (memcmp(h.magic, magic_made, sizeof h.magic) != 0) {
        return false;
    }
    *out = (struct manifest){
        .bytes = bytes,
        .id = slice_of(bytes.p + offsetof(struct head, id), h.id_n),
        .count = h.count,
        .index = bytes.p + h.index_at,
    };
    return true;
}

void manifest_at(const struct manifest *m, size_t i, struct manifest_entry *out)
{
    struct record r;
    uint64_t at;

    CHECK(i < m->count);
    memcpy(&at, m->index + i * sizeof at, sizeof at);
    record_at(m->bytes, at, &r, &out->path);
    out->json = slice_of(out->path.p + r.path_n, r.json_n);
    out->folder = (r.flags & FOLDER) != 0;
    out->lfs = (r.flags & LFS) != 0;
    out->size_bytes = r.size_bytes;
    out->sha256 = r.sha256;
    out->oid = r.oid;
}

/* The first entry whose path is not before this one. */
static size_t lower_bound(const struct manifest *m, struct slice path)
{
    struct manifest_entry e;
    size_t low = 0;
    size_t high = m->count;

    while (low < high) {
        size_t mid = low + (high - low) / 2;
        manifest_at(m, mid, &e);
        if (slice_cmp(e.path, path) < 0) {
            low = mid + 1;
        } else {
            high = mid;
        }
    }
    return low;
}

bool manifest_find(const struct manifest *m, struct slice path, struct manifest_entry *out)
{
    size_t i = lower_bound(m, path);

    if (i == m->count) {
        return false;
    }
    manifest_at(m, i, out);
    return slice_eq(out->path, path);
}

bool manifest_smallest(const struct manifest *m, struct manifest_entry *out)
{
    struct head h;

    memcpy(&h, m->bytes.p, sizeof h);
    if (h.smallest >= m->count) {
        return false;
    }
    manifest_at(m, h.smallest, out);
    return true;
}

bool manifest_find_lfs(const struct manifest *m, const struct digest *d, struct manifest_entry *out)
{
    for (size_t i = 0; i < m->count; i++) {
        manifest_at(m, i, out);
        if (out->lfs && digest_eq(&out->sha256, d)) {
            return true;
        }
    }
    return false;
}

static int compare_wanted_digests(const void *a, const void *b)
{
    const struct manifest_wanted *const *x = a, *const *y = b;

    return memcmp(&(*x)->sha256, &(*y)->sha256, sizeof(*x)->sha256);
}

/* The first that wants this one, or NULL. */
static struct manifest_wanted **first_wanted_of(struct manifest_wanted **wanted, size_t n,
                                                const struct digest *d)
{
    size_t low = 0, high = n;

    while (low < high) {
        size_t mid = low + (high - low) / 2;
        if (memcmp(&wanted[mid]->sha256, d, sizeof *d) < 0) {
            low = mid + 1;
        } else {
            high = mid;
        }
    }
    return low < n && digest_eq(&wanted[low]->sha256, d) ? &wanted[low] : NULL;
}

void manifest_find_all_lfs(const struct manifest *m, struct manifest_wanted **wanted, size_t n)
{
    struct manifest_wanted **end = wanted + n;

    qsort(wanted, n, sizeof *wanted, compare_wanted_digests);
    for (size_t i = 0; i < m->count; i++) {
        struct manifest_entry e;
        manifest_at(m, i, &e);
        struct manifest_wanted **w = e.lfs ? first_wanted_of(wanted, n, &e.sha256) : NULL;
        for (; w != NULL && w < end && !(*w)->found && digest_eq(&(*w)->sha256, &e.sha256); w++) {
            (*w)->found = true;
            (*w)->file = e;
        }
    }
}

void manifest_say(const struct manifest_entry *e, uint64_t xet_from, struct buf *out)
{
    char hex[DIGEST_HEX + 1];

    if (!e->lfs || e->size_bytes < xet_from) {
        buf_adds(out, e->json);
        return;
    }
    digest_format(&e->sha256, hex);
    buf_adds(out, slice_first(e->json, e->json.n - 1));
    buf_addf(out, ",\"xetHash\":\"%s\"}", hex);
}

bool manifest_has_folder(const struct manifest *m, struct slice folder)
{
    struct buf prefix = BUF_INIT(SIZE_MAX / 4);
    struct manifest_entry e;
    size_t i;
    bool yes;

    buf_adds(&prefix, folder);
    buf_byte(&prefix, '/');
    i = lower_bound(m, buf_slice(&prefix));
    yes = folder.n == 0;
    if (!yes && i < m->count) {
        manifest_at(m, i, &e);
        yes = slice_starts(e.path, buf_slice(&prefix));
    }
    buf_free(&prefix);
    return yes;
}

int manifest_list(const struct manifest *m, struct slice folder, bool recursive, uint64_t xet_from,
                  struct buf *out)
{
    struct manifest_entry e;
    struct buf prefix = BUF_INIT(SIZE_MAX / 4);
    bool some = false;
    bool there = folder.n == 0;

    buf_adds(&prefix, folder);
    if (folder.n != 0) {
        buf_byte(&prefix, '/');
    }
    buf_byte(out, '[');
    for (size_t i = lower_bound(m, buf_slice(&prefix)); i < m->count; i++) {
        manifest_at(m, i, &e);
        if (!slice_starts(e.path, buf_slice(&prefix))) {
            break;
        }
        there = true;
        if (!recursive && slice_find(slice_from(e.path, prefix.n), '/') >= 0) {
            continue;
        }
        if (some) {
            buf_byte(out, ',');
        }
        some = true;
        manifest_say(&e, xet_from, out);
    }
    buf_byte(out, ']');
    buf_free(&prefix);
    return there ? out->rc : E_NOTFOUND;
}
