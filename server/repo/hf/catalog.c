#include "server/repo/hf/catalog.h"

#include <jansson.h>
#include <stdlib.h>

#include "common/codec/isotime.h"
#include "common/codec/jread.h"
#include "common/codec/jwrite.h"
#include "server/repo/hf/info.h"
#include "server/repo/hf/path.h"

enum { FILES_MAX = 4 << 20, SECOND_NS = 1000000000 };

struct record { /* the path follows, and the Hub's words */
    uint64_t size_bytes;
    uint64_t uploaded_unix_s;
    struct digest hash;
    uint32_t path_n;
    uint32_t words_n;
    uint64_t named;
};

struct tail { /* the last bytes; u64 offsets of the records stand before it */
    uint64_t index_at;
    uint64_t count;
    uint64_t in_order;        /* as the Hub listed them */
    uint64_t uploaded_unix_s; /* the last of them */
};

static void read_record(const char *bytes, uint64_t at, struct catalog_file *out)
{
    struct record r;

    memcpy(&r, bytes + at, sizeof r);
    *out = (struct catalog_file){.path = slice_of(bytes + at + sizeof r, r.path_n),
                                 .words = slice_of(bytes + at + sizeof r + r.path_n, r.words_n),
                                 .size_bytes = r.size_bytes,
                                 .named = r.named != 0,
                                 .hash = r.hash};
}

static uint64_t upload_of(const json_t *file)
{
    int64_t ns;

    return isotime_parse(jread_text(file, "uploadedAt"), &ns) ? (uint64_t)ns / SECOND_NS : 0;
}

/* --- making ----------------------------------------------------------------------------------- */

/* In the form that clients get. */
static void add_words(json_t *v, bool hashes, size_t at, struct record *r, struct buf *out)
{
    size_t from = out->n;

    json_bucket_file(v, hashes);
    (void)json_dump_callback(v, jwrite_dumped, out, JSON_COMPACT);
    if (out->rc == 0) {
        r->words_n = (uint32_t)(out->n - from);
        memcpy(out->p + at, r, sizeof *r);
    }
}

static int add_catalog_file(json_t *v, enum catalog_order order, struct buf *out, struct err *e)
{
    size_t at = out->n;
    struct slice path = jread_text(v, "path");
    struct record r = {0};

    if (!slice_eqs(jread_text(v, "type"), "file") || path.n == 0 || !hf_is_path(path)) {
        return 0;
    }
    if (!jread_u64(v, "size", &r.size_bytes)) {
        return err_set(e, E_PROTOCOL, "the Hub's listing has no size of \"%.100s\"", path.p);
    }
    r.uploaded_unix_s = upload_of(v);
    r.named = digest_parse(jread_text(v, "xetHash"), &r.hash);
    if (!r.named) {
        memset(&r.hash, 0, sizeof r.hash);
    }
    r.path_n = (uint32_t)path.n;
    buf_add(out, &r, sizeof r);
    buf_adds(out, path);
    if (order == CATALOG_OF_WORDS || order == CATALOG_OF_WORDS_WITHOUT_HASHES) {
        add_words(v, order == CATALOG_OF_WORDS, at, &r, out);
    }
    return out->rc;
}

static int compare_catalog_paths(const void *a, const void *b, void *bytes)
{
    struct catalog_file left, right;

    read_record(bytes, *(const uint64_t *)a, &left);
    read_record(bytes, *(const uint64_t *)b, &right);
    return slice_cmp(left.path, right.path);
}

static int by_hash(const void *a, const void *b, void *bytes)
{
    struct catalog_file left, right;

    read_record(bytes, *(const uint64_t *)a, &left);
    read_record(bytes, *(const uint64_t *)b, &right);
    return memcmp(left.hash.b, right.hash.b, DIGEST_BYTES);
}

static int finish_catalog_row(enum catalog_order order, struct buf *out, struct err *e)
{
    struct buf index = BUF_INIT((size_t)FILES_MAX * sizeof(uint64_t));
    struct tail t = {.index_at = out->n, .in_order = true};
    struct slice former = SLICE("");
    struct record r;
    int rc;

    for (uint64_t at = 0; at < out->n; at += sizeof r + r.path_n + r.words_n) {
        memcpy(&r, out->p + at, sizeof r);
        struct slice path = slice_of(out->p + at + sizeof r, r.path_n);
        t.in_order = t.in_order && slice_cmp(former, path) <= 0;
        t.uploaded_unix_s = max_u64(t.uploaded_unix_s, r.uploaded_unix_s);
        former = path;
        buf_add(&index, &at, sizeof at);
        t.count++;
    }
    if (index.rc == 0 && index.n != 0) {
        qsort_r(index.p, t.count, sizeof(uint64_t),
                order == CATALOG_BY_HASH ? by_hash : compare_catalog_paths, out->p);
    }
    buf_adds(out, buf_slice(&index));
    buf_add(out, &t, sizeof t);
    rc = index.rc != 0 ? err_set(e, E_TOOBIG, "the Hub's listing has too many files") : out->rc;
    buf_free(&index);
    return rc;
}

int catalog_add(struct slice page, enum catalog_order order, bool first, bool last, struct buf *out,
                struct err *e)
{
    json_t *v = jread_parse(page, 0, jread_values_of(page.n));
    json_t *one;
    size_t i;
    int rc = 0;

    if (!json_is_array(v)) {
        json_decref(v);
        return err_set(e, E_PROTOCOL, "the Hub's listing is not a JSON array");
    }
    if (first) {
        buf_clear(out);
    }
    json_array_foreach(v, i, one)
    {
        rc = add_catalog_file(one, order, out, e);
        if (rc != 0) {
            break;
        }
    }
    json_decref(v);
    if (rc == 0 && out->rc != 0) {
        rc = err_set(e, E_TOOBIG, "the Hub's listing is too large");
    }
    return rc == 0 && last ? finish_catalog_row(order, out, e) : rc;
}

int uploads_add(struct slice page, bool first, struct buf *out, struct err *e)
{
    uint64_t last = first ? 0 : uploads_unix_s(buf_slice(out));
    json_t *v = jread_parse(page, 0, jread_values_of(page.n));
    const json_t *one;
    size_t i;

    if (v == NULL) {
        return err_set(e, E_PROTOCOL, "the Hub's listing is not JSON");
    }
    json_array_foreach(v, i, one)
    {
        last = max_u64(last, upload_of(one));
    }
    json_decref(v);
    buf_clear(out);
    buf_add(out, &last, sizeof last);
    return out->rc;
}

/* --- looking ---------------------------------------------------------------------------------- */

/* The first file that is not less than the one that is looked for. False: none is. */
static bool find_catalog_file(struct slice catalog,
                              int (*compare)(const struct catalog_file *f, const void *key),
                              const void *key, struct catalog_file *out)
{
    struct tail t;
    uint64_t low = 0, high;

    if (catalog.n < sizeof t) {
        return false;
    }
    memcpy(&t, catalog.p + catalog.n - sizeof t, sizeof t);
    high = t.count;
    while (low < high) {
        uint64_t middle = low + (high - low) / 2, at;
        memcpy(&at, catalog.p + t.index_at + middle * sizeof at, sizeof at);
        read_record(catalog.p, at, out);
        if (compare(out, key) < 0) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    if (low < t.count) {
        uint64_t at;
        memcpy(&at, catalog.p + t.index_at + low * sizeof at, sizeof at);
        read_record(catalog.p, at, out);
    }
    return low < t.count && compare(out, key) == 0;
}

static int compare_path(const struct catalog_file *f, const void *key)
{
    return slice_cmp(f->path, *(const struct slice *)key);
}

/* Files without a hash have zeros. */
static int compare_hash(const struct catalog_file *f, const void *key)
{
    return memcmp(f->hash.b, ((const struct digest *)key)->b, DIGEST_BYTES);
}

bool catalog_find(struct slice catalog, struct slice path, struct catalog_file *out)
{
    return find_catalog_file(catalog, compare_path, &path, out);
}

bool catalog_find_hash(struct slice catalog, const struct digest *hash, struct catalog_file *out)
{
    return find_catalog_file(catalog, compare_hash, hash, out) && out->named;
}

static struct tail tail_of(struct slice catalog)
{
    struct tail t = {0};

    if (catalog.n >= sizeof t) {
        memcpy(&t, catalog.p + catalog.n - sizeof t, sizeof t);
    }
    return t;
}

bool catalog_in_order(struct slice catalog)
{
    return tail_of(catalog).in_order != 0;
}

bool catalog_reaches(struct slice catalog, struct slice path)
{
    struct tail t = tail_of(catalog);
    struct catalog_file last;
    uint64_t at;

    if (t.in_order == 0 || t.count == 0) {
        return false;
    }
    memcpy(&at, catalog.p + t.index_at + (t.count - 1) * sizeof at, sizeof at);
    read_record(catalog.p, at, &last);
    return slice_cmp(path, last.path) <= 0;
}

uint64_t catalog_uploaded_unix_s(struct slice catalog)
{
    return tail_of(catalog).uploaded_unix_s;
}

uint64_t uploads_unix_s(struct slice uploads)
{
    uint64_t last = 0;

    if (uploads.n == sizeof last) {
        memcpy(&last, uploads.p, sizeof last);
    }
    return last;
}
