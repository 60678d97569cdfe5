#include "server/sync/entry_list.h"

#include <stdlib.h>
#include <uthash.h>

#include "server/store/tree.h"

/* A record: flags, folder, name, then what the flags announce. Its place is 12 bits of block, 20
 * bits within. */
enum {
    BLOCK_BITS = 20,
    BLOCK_BYTES = 1 << BLOCK_BITS,
    BLOCKS_MAX = 1 << (32 - BLOCK_BITS),
    RECORD_MAX = 20 << 10, /* a path, a target or leader, a validator, a dozen numbers */
    TEXT_MAX = 4095,
    VALIDATOR_MAX = 1024,
};

enum {
    HAS_TYPE = 3, /* two bits: enum sync_type */
    HAS_EXECUTABLE = 4,
    HAS_DIGEST = 8,
    HAS_TARGET = 16, /* a link's target and leader, a file's leader */
    HAS_VALIDATOR = 32,
    HAS_STEPS = 64,
    HAS_NANOS = 128,
};

struct folder {
    UT_hash_handle hh;
    uint32_t index;
    uint32_t n;
    char path[]; /* with its '/'; the top is empty */
};

struct entry_list {
    uint64_t entries_max, bytes_max;
    struct folder *by_path;
    struct folder **folder; /* by index */
    size_t folders, folders_room;
    struct folder *last; /* entries of a folder mostly come together */
    char **block;
    size_t blocks;
    size_t used; /* of the last block */
    uint32_t *at;
    size_t count, room;
    uint64_t folder_bytes;
    struct buf path, other; /* of the entry that was got; of what is compared */
};

struct entry_list *entry_list_new(uint64_t entries_max, uint64_t bytes_max)
{
    struct entry_list *r = NEW(struct entry_list);

    r->entries_max = entries_max;
    r->bytes_max = bytes_max;
    r->used = BLOCK_BYTES;
    r->path = BUF_INIT(2 * TEXT_MAX);
    r->other = BUF_INIT(2 * TEXT_MAX);
    return r;
}

void entry_list_free(struct entry_list **rp)
{
    struct entry_list *r = *rp;
    struct folder *f, *next;

    *rp = NULL;
    if (r == NULL) {
        return;
    }
    HASH_ITER(hh, r->by_path, f, next)
    {
        HASH_DELETE(hh, r->by_path, f);
        free(f);
    }
    for (size_t i = 0; i < r->blocks; i++) {
        free(r->block[i]);
    }
    free(r->folder);
    free(r->block);
    free(r->at);
    buf_free(&r->path);
    buf_free(&r->other);
    free(r);
}

/* --- writing records --- */

static char *put_entry_number(char *p, uint64_t v)
{
    while (v >= 0x80) {
        *p++ = (char)(v | 0x80);
        v >>= 7;
    }
    *p++ = (char)v;
    return p;
}

static char *put_entry_list_text(char *p, struct slice s)
{
    p = put_entry_number(p, s.n);
    if (s.n != 0) {
        memcpy(p, s.p, s.n);
    }
    return p + s.n;
}

static uint64_t zigzag(int64_t v)
{
    return ((uint64_t)v << 1) ^ (uint64_t)(v >> 63);
}

static uint32_t folder_of_listed_path(struct entry_list *r, struct slice path)
{
    struct folder *f;

    if (r->last != NULL && r->last->n == path.n &&
        (path.n == 0 || memcmp(r->last->path, path.p, path.n) == 0)) {
        return r->last->index;
    }
    HASH_FIND(hh, r->by_path, path.p, path.n, f);
    if (f == NULL) {
        f = mem_new(sizeof *f + path.n);
        f->index = (uint32_t)r->folders;
        f->n = (uint32_t)path.n;
        memcpy(f->path, path.p, path.n);
        HASH_ADD(hh, r->by_path, path, path.n, f);
        if (r->folders == r->folders_room) {
            r->folders_room = r->folders_room != 0 ? 2 * r->folders_room : 64;
            r->folder = realloc(r->folder, r->folders_room * sizeof r->folder[0]);
            CHECK(r->folder != NULL);
        }
        r->folder[r->folders++] = f;
        r->folder_bytes += sizeof *f + path.n + sizeof f;
    }
    r->last = f;
    return f->index;
}

static size_t encode_list_entry(struct entry_list *r, const struct sync_entry *en, char *to)
{
    struct slice target = en->type == SYNC_LINK ? en->target : en->leader;
    size_t name = slice_behind(en->path, '/');
    int64_t s = en->mtime_ns / 1000000000, ns = en->mtime_ns % 1000000000;
    bool timed = en->mtime_ns != SYNC_TIME_UNKNOWN;
    char *p = to + 1;
    unsigned flags = (unsigned)en->type | (en->executable ? HAS_EXECUTABLE : 0) |
                     (en->digest_known ? HAS_DIGEST : 0) | (target.n != 0 ? HAS_TARGET : 0) |
                     (en->validator.n != 0 ? HAS_VALIDATOR : 0);

    if (timed && ns < 0) {
        s--;
        ns += 1000000000;
    }
    flags |= (timed && ns != 0 ? HAS_NANOS : 0) |
             (en->mtime_step_s != 0 || en->size_step > 1 ? HAS_STEPS : 0);
    to[0] = (char)flags;
    p = put_entry_number(p, folder_of_listed_path(r, slice_first(en->path, name)));
    p = put_entry_list_text(p, slice_from(en->path, name));
    p = put_entry_number(p, en->size_bytes + 1);        /* unknown becomes 0 */
    p = put_entry_number(p, timed ? zigzag(s) + 1 : 0); /* the same */
    p = put_entry_number(p, en->ref);
    p = (flags & HAS_NANOS) != 0 ? put_entry_number(p, (uint64_t)ns) : p;
    if ((flags & HAS_STEPS) != 0) {
        p = put_entry_number(p, en->mtime_step_s);
        p = put_entry_number(p, en->size_step);
    }
    if (en->digest_known) {
        memcpy(p, en->digest.b, DIGEST_BYTES);
        p += DIGEST_BYTES;
    }
    p = target.n != 0 ? put_entry_list_text(p, target) : p;
    p = en->type == SYNC_LINK ? put_entry_list_text(p, en->leader) : p;
    p = en->validator.n != 0 ? put_entry_list_text(p, en->validator) : p;
    return (size_t)(p - to);
}

static int check_listed_entry(const struct entry_list *r, const struct sync_entry *en,
                              struct err *e)
{
    struct slice target = en->type == SYNC_LINK ? en->target : en->leader;

    if (r->count >= r->entries_max || r->count == UINT32_MAX) {
        return err_set(e, E_TOOBIG, "the list has more than %zu entries; raise max_entries",
                       r->count);
    }
    if (entry_list_memory(r) > r->bytes_max) {
        return err_set(e, E_TOOBIG,
                       "the list takes more than %llu MiB of memory; mirror less with filter",
                       (unsigned long long)(r->bytes_max >> 20));
    }
    if (!tree_path_valid(en->path) || target.n > TEXT_MAX || slice_find(target, '\0') >= 0 ||
        (en->type == SYNC_LINK && target.n == 0) || en->validator.n > VALIDATOR_MAX ||
        (en->leader.n != 0 && !tree_path_valid(en->leader))) {
        return err_set(e, E_INVALID, "the list has an invalid name");
    }
    return 0;
}

int entry_list_add(struct entry_list *r, const struct sync_entry *en, struct err *e)
{
    char record[RECORD_MAX];
    size_t n;
    int rc = check_listed_entry(r, en, e);

    if (rc != 0) {
        return rc;
    }
    n = encode_list_entry(r, en, record);
    CHECK(n <= sizeof record);
    if (r->used + n > BLOCK_BYTES) {
        if (r->blocks == BLOCKS_MAX) {
            return err_set(e, E_TOOBIG,
                           "the list takes more than 4 GiB of memory; mirror less with filter");
        }
        r->block = realloc(r->block, (r->blocks + 1) * sizeof r->block[0]);
        CHECK(r->block != NULL);
        r->block[r->blocks++] = mem_new(BLOCK_BYTES);
        r->used = 0;
    }
    if (r->count == r->room) {
        r->room = r->room != 0 ? 2 * r->room : 1024;
        r->at = realloc(r->at, r->room * sizeof r->at[0]);
        CHECK(r->at != NULL);
    }
    memcpy(r->block[r->blocks - 1] + r->used, record, n);
    r->at[r->count++] = (uint32_t)((r->blocks - 1) << BLOCK_BITS | r->used);
    r->used += n;
    return 0;
}

/* --- reading them: they are ours, so they are believed --- */

static uint64_t get_number(const char **p)
{
    uint64_t v = 0;
    unsigned shift = 0;

    do {
        v |= (uint64_t)(**p & 0x7f) << shift;
        shift += 7;
    } while ((*(*p)++ & 0x80) != 0);
    return v;
}

static struct slice get_text(const char **p)
{
    size_t n = (size_t)get_number(p);
    struct slice s = slice_of(*p, n);

    *p += n;
    return s;
}

static const char *record_at(const struct entry_list *r, uint32_t at)
{
    return r->block[at >> BLOCK_BITS] + (at & (BLOCK_BYTES - 1));
}

struct two { /* a path in its two parts */
    struct slice part[2];
};

static struct two path_at(const struct entry_list *r, uint32_t at)
{
    const char *p = record_at(r, at) + 1;
    const struct folder *f = r->folder[get_number(&p)];

    return (struct two){{slice_of(f->path, f->n), get_text(&p)}};
}

/* Bytes of a from i on, as long as they lie together. */
static struct slice run_at(const struct two *a, size_t i)
{
    return i < a->part[0].n ? slice_from(a->part[0], i) : slice_from(a->part[1], i - a->part[0].n);
}

static int compare_two(const struct two *a, const struct two *b)
{
    size_t na = a->part[0].n + a->part[1].n, nb = b->part[0].n + b->part[1].n, i = 0;

    if (a->part[0].p == b->part[0].p) {
        i = a->part[0].n; /* one folder */
    }
    while (i < na && i < nb) {
        struct slice x = run_at(a, i), y = run_at(b, i);
        size_t n = x.n < y.n ? x.n : y.n;
        int c = memcmp(x.p, y.p, n);
        if (c != 0) {
            return c;
        }
        i += n;
    }
    return na < nb ? -1 : na > nb;
}

static int compare_entry_paths(const void *a, const void *b, void *arg)
{
    const struct entry_list *r = arg;
    uint32_t i = *(const uint32_t *)a, k = *(const uint32_t *)b;
    struct two x = path_at(r, i), y = path_at(r, k);
    int c = compare_two(&x, &y);

    return c != 0 ? c : i < k ? -1 : i > k; /* what came first stays first */
}

void entry_list_get(struct entry_list *r, size_t i, struct sync_entry *out)
{
    const char *p = record_at(r, r->at[i]);
    unsigned flags = (uint8_t)*p++;
    const struct folder *f = r->folder[get_number(&p)];
    struct slice text = get_text(&p);
    uint64_t time;

    *out = (struct sync_entry){.type = flags & HAS_TYPE,
                               .executable = (flags & HAS_EXECUTABLE) != 0,
                               .digest_known = (flags & HAS_DIGEST) != 0,
                               .mtime_ns = SYNC_TIME_UNKNOWN};
    buf_clear(&r->path);
    buf_add(&r->path, f->path, f->n);
    buf_adds(&r->path, text);
    out->path = buf_slice(&r->path);
    out->size_bytes = get_number(&p) - 1;
    time = get_number(&p);
    if (time != 0) {
        time--;
        out->mtime_ns = (int64_t)(time >> 1 ^ (0 - (time & 1))) * 1000000000;
    }
    out->ref = get_number(&p);
    out->mtime_ns += (flags & HAS_NANOS) != 0 ? (int64_t)get_number(&p) : 0;
    if ((flags & HAS_STEPS) != 0) {
        out->mtime_step_s = (uint32_t)get_number(&p);
        out->size_step = get_number(&p);
    }
    if (out->digest_known) {
        memcpy(out->digest.b, p, DIGEST_BYTES);
        p += DIGEST_BYTES;
    }
    if ((flags & HAS_TARGET) != 0) {
        text = get_text(&p);
        *(out->type == SYNC_LINK ? &out->target : &out->leader) = text;
    }
    if (out->type == SYNC_LINK) {
        out->leader = get_text(&p);
    }
    if ((flags & HAS_VALIDATOR) != 0) {
        out->validator = get_text(&p);
    }
}

ptrdiff_t entry_list_find(struct entry_list *r, struct slice path)
{
    size_t low = 0, high = r->count;
    struct two wanted = {{SLICE(""), path}};

    while (low < high) {
        size_t mid = low + (high - low) / 2;
        struct two x = path_at(r, r->at[mid]);
        int c = compare_two(&x, &wanted);
        if (c == 0) {
            return (ptrdiff_t)mid;
        }
        if (c < 0) {
            low = mid + 1;
        } else {
            high = mid;
        }
    }
    return -1;
}

/* --- sorting --- */

static bool is_dir(const struct entry_list *r, size_t i)
{
    return (*record_at(r, r->at[i]) & HAS_TYPE) == SYNC_DIR;
}

/* Any folder of path that the list has as something else: then the path cannot be. */
static bool blocked(struct entry_list *r, struct slice path)
{
    for (size_t n = 1; n < path.n; n++) {
        ptrdiff_t i;
        if (path.p[n] != '/') {
            continue;
        }
        i = entry_list_find(r, slice_first(path, n));
        if (i >= 0 && !is_dir(r, (size_t)i)) {
            return true;
        }
    }
    return false;
}

static size_t drop_doubles(struct entry_list *r)
{
    size_t kept = 0;

    for (size_t i = 0; i < r->count; i++) {
        struct two x, y;
        if (kept > 0) {
            x = path_at(r, r->at[kept - 1]);
            y = path_at(r, r->at[i]);
            if (compare_two(&x, &y) == 0) {
                continue;
            }
        }
        r->at[kept++] = r->at[i];
    }
    return kept;
}

/* Folders are asked about once each: all entries of one are blocked or none is. */
static size_t drop_blocked(struct entry_list *r)
{
    bool *bad = mem_array(r->folders + 1, sizeof *bad);
    size_t kept = 0;
    bool any = false;

    for (size_t f = 0; f < r->folders; f++) {
        bad[f] = blocked(r, slice_of(r->folder[f]->path, r->folder[f]->n));
        any = any || bad[f];
    }
    for (size_t i = 0; any && i < r->count; i++) {
        const char *p = record_at(r, r->at[i]) + 1;
        if (!bad[get_number(&p)]) {
            r->at[kept++] = r->at[i];
        }
    }
    free(bad);
    return any ? kept : r->count;
}

void entry_list_sort(struct entry_list *r, uint64_t *left_out)
{
    size_t once;

    if (r->count > 1) {
        qsort_r(r->at, r->count, sizeof r->at[0], compare_entry_paths, r);
    }
    r->count = once = drop_doubles(r);
    r->count = drop_blocked(r);
    *left_out = once - r->count;
}

size_t entry_list_count(const struct entry_list *r)
{
    return r->count;
}

uint64_t entry_list_memory(const struct entry_list *r)
{
    return (uint64_t)r->blocks * BLOCK_BYTES + r->room * sizeof r->at[0] + r->folder_bytes;
}
