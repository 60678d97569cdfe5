#include "server/repo/hf/openness.h"

#include "common/base/endian.h"
#include "server/cache/object.h"
#include "server/repo/hf/key.h"
#include "server/repo/hf/path.h"

/* version, openness, said, since, length of id; then id and number. */
enum { VERSION = 1, HEAD_BYTES = 19, ROW_MAX = 1024 };

struct slice openness_key(const char *repo, struct slice type, struct slice id, struct arena *a)
{
    struct buf b = BUF_INIT(OBJECT_KEY_MAX);
    struct slice key;

    buf_str(&b, repo);
    buf_byte(&b, 0);
    buf_adds(&b, type);
    buf_byte(&b, '/');
    for (size_t i = 0; i < id.n; i++) {
        char c = id.p[i];
        buf_byte(&b, (uint8_t)(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c));
    }
    CHECK(b.rc == 0); /* path.h has bounds below */
    key = arena_copy(a, buf_slice(&b));
    buf_free(&b);
    return key;
}

void openness_read(struct slice row, struct openness_note *out)
{
    size_t id_n;

    *out = (struct openness_note){.row = row};
    if (row.p == NULL || row.n < HEAD_BYTES || row.p[0] != VERSION ||
        (uint8_t)row.p[1] > HUB_HIDDEN) {
        return;
    }
    id_n = (uint8_t)row.p[HEAD_BYTES - 1];
    if (row.n < HEAD_BYTES + id_n) {
        return;
    }
    out->here = true;
    out->openness = (enum openness)row.p[1];
    out->said_unix_s = be_get(row.p + 2, 8);
    out->since_unix_s = be_get(row.p + 10, 8);
    out->id = slice_of(row.p + HEAD_BYTES, id_n);
    out->number = slice_from(row, HEAD_BYTES + id_n);
}

struct slice openness_write(const struct openness_note *n, struct arena *a)
{
    char *p = arena_alloc(a, HEAD_BYTES + n->id.n + n->number.n);

    CHECK(n->id.n <= UINT8_MAX);
    p[0] = VERSION;
    p[1] = (char)n->openness;
    be_put(p + 2, 8, n->said_unix_s);
    be_put(p + 10, 8, n->since_unix_s);
    p[HEAD_BYTES - 1] = (char)n->id.n;
    memcpy(p + HEAD_BYTES, n->id.p, n->id.n);
    if (n->number.n != 0) {
        memcpy(p + HEAD_BYTES + n->id.n, n->number.p, n->number.n);
    }
    return slice_of(p, HEAD_BYTES + n->id.n + n->number.n);
}

bool openness_is_of(const struct openness_note *n, struct slice id, struct slice number)
{
    return slice_eq(n->id, id) &&
           (n->number.n == 0 || number.n == 0 || slice_eq(n->number, number));
}

/* --- by key ----------------------------------------------------------------------------------- */

static void read_openness_row(struct store *s, const char *repo, struct slice type, struct slice id,
                              struct arena *a, struct openness_note *out)
{
    struct buf row = BUF_INIT(ROW_MAX);
    bool here = store_get(s, TABLE_LAST_WORD, openness_key(repo, type, id, a), &row, NULL) == 0;

    openness_read(here ? arena_copy(a, buf_slice(&row)) : SLICE_NONE, out);
    buf_free(&row);
}

bool openness_hides(struct store *s, const char *repo, struct slice type, struct slice id)
{
    struct openness_note n;
    struct arena a = {0};
    bool yes;

    read_openness_row(s, repo, type, id, &a, &n);
    yes = n.here && n.openness == HUB_HIDDEN && slice_ieq(n.id, id);
    arena_fini(&a);
    return yes;
}

/* When the object came here; 0: it is gone. */
static uint64_t stored_unix_s(struct store *s, const char *repo, struct slice key, struct arena *a)
{
    struct buf row_key = BUF_INIT(OBJECT_KEY_MAX), row = BUF_INIT(OBJECT_ROW_MAX);
    struct object o;
    uint64_t at = 0;

    object_key(&row_key, slice_str(repo), key, SLICE(""));
    if (row_key.rc == 0 && store_get(s, TABLE_OBJECT, buf_slice(&row_key), &row, NULL) == 0 &&
        object_decode(buf_slice(&row), a, &o)) {
        at = o.stored_unix_s;
    }
    buf_free(&row_key);
    buf_free(&row);
    return at;
}

bool openness_holds(struct store *s, const char *repo, struct slice key)
{
    struct slice type, id, etag;
    struct arena a = {0};
    struct hf_path at;
    struct openness_note n;
    bool yes;

    if (slice_starts(key, SLICE("api/"))) {
        struct slice path = key;
        path = slice_cut(&path, '?');
        if (hf_path_parse(path, &a, &at, NULL) != 0 || at.id.n == 0) { /* a list of repositories */
            arena_fini(&a);
            return true;
        }
        type = at.type;
        id = at.id;
    } else if (!key_read_file(key, &type, &id, &etag)) {
        return false;
    }
    read_openness_row(s, repo, type, id, &a, &n);
    if (n.here && !slice_ieq(n.id, id)) {
        read_openness_row(s, repo, type, n.id, &a, &n);
    }
    yes = n.here && n.openness == HUB_OPEN &&
          (n.since_unix_s == 0 || stored_unix_s(s, repo, key, &a) >= n.since_unix_s);
    arena_fini(&a);
    return yes;
}
