#include "server/repo/part.h"

#include "common/base/check.h"
#include "common/codec/url.h"
#include "common/codec/weblink.h"
#include "server/store/tree.h"

enum { URL_BYTES = 16384, MESSAGE_BYTES = 512, ROWS_BYTES = 64 << 10 };

struct scan {
    const struct need *need;
    struct buf *out;
};

static int add_row(void *arg, struct slice key, struct slice value)
{
    const struct scan *x = arg;

    if (!slice_starts(key, x->need->key) || x->out->n + value.n > ROWS_BYTES) {
        return 1;
    }
    buf_adds(x->out, value);
    return 0;
}

static int rows_read(struct store *s, const struct need *n, struct buf *out, struct err *e)
{
    struct scan x = {n, out};
    int rc = store_scan(s, n->table, n->key, SLICE_NONE, add_row, &x, e);

    return rc < 0 ? rc : out->n == 0 ? E_NOTFOUND : 0;
}

static int row_put(struct store *s, const struct need *n, struct err *e)
{
    struct batch *b = batch_new();

    if (n->name.p != NULL) {
        batch_require_value(b, n->table, n->key, n->name);
    } else {
        batch_require_absent(b, n->table, n->key);
    }
    batch_put(b, n->table, n->key, n->path);
    return store_commit(s, &b, COMMIT_SYNC, e);
}

bool need_is_stored(enum need_kind k)
{
    return k == NEED_ROW || k == NEED_ROWS || k == NEED_HEAD || k == NEED_ENTRY || k == NEED_PUT;
}

static int entry_read(struct store *s, struct fact *f, struct arena *a, struct err *e)
{
    const struct need *n = &f->need;
    int rc = n->follow ? tree_resolve(s, &n->root, n->path, a, &f->entry, e)
                       : tree_get(s, &n->root, n->path, a, &f->entry, e);

    return rc == E_INVALID ? E_NOTFOUND : rc; /* links that lead nowhere */
}

int need_read(struct store *s, struct slice repo, struct fact *f, struct buf *bytes,
              struct arena *a, struct err *e)
{
    const struct need *n = &f->need;

    switch (n->kind) {
    case NEED_ROW:
        f->rc = store_get(s, n->table, n->key, bytes, e);
        break;
    case NEED_ROWS:
        f->rc = rows_read(s, n, bytes, e);
        break;
    case NEED_HEAD:
        f->rc = snap_find(s, repo, n->name, n->version, &f->snap, e);
        break;
    case NEED_ENTRY:
        f->rc = entry_read(s, f, a, e);
        break;
    case NEED_PUT:
        f->rc = row_put(s, n, e);
        break;
    case NEED_DOCUMENT:
    case NEED_GATHER:
    case NEED_BODY:
    case NEED_RIGHT:
        CHECK(need_is_stored(n->kind));
    }
    f->bytes = buf_slice(bytes);
    return f->rc == E_NOTFOUND || f->rc == E_CHANGED ? 0 : f->rc;
}

/* A client may end its query in "+1": then that would be a part of the question without it. No query has a blank. */
static struct slice mark_of(struct slice key)
{
    return slice_find(key, '?') >= 0 ? SLICE(" +") : SLICE("+");
}

struct slice part_key(struct slice key, unsigned part, struct arena *a)
{
    return part == 0 ? key
                     : arena_fmt(a, SLICE_FMT SLICE_FMT "%u", SLICE_ARG(key),
                                 SLICE_ARG(mark_of(key)), part);
}

bool part_is_of(struct slice part, struct slice key)
{
    return slice_eq(part, key) ||
           (slice_starts(part, key) && slice_starts(slice_from(part, key.n), mark_of(key)));
}

int part_next(const struct answer *a, unsigned part, struct arena *arena, struct slice *next,
              struct err *e)
{
    struct buf url = BUF_INIT(URL_BYTES);
    struct slice to = SLICE_NONE;
    int rc;

    *next = SLICE_NONE;
    for (size_t i = 0; i < a->nfields && to.p == NULL; i++) {
        if (slice_eqs(a->fields[i].name, "link")) { /* there may be several */
            to = weblink_next(a->fields[i].value);
        }
    }
    if (to.p == NULL) {
        return 0;
    }
    rc = part + 1 == GATHER_PARTS_MAX
             ? err_set(e, E_TOOBIG, "the origin's listing has more than %d parts", GATHER_PARTS_MAX)
             : url_resolve(a->url, to, &url, e);
    if (rc == 0) {
        *next = arena_copy(arena, buf_slice(&url));
    }
    buf_free(&url);
    return rc;
}

void part_note(const struct answer *a, struct fact *f)
{
    f->until_unix_s = min_u64(f->until_unix_s, a->fresh_until_unix_s);
    f->stale = f->stale || cache_state_is_stale(a->state);
    f->in_trouble = f->in_trouble || a->state == CACHE_STALE;
    f->spoken_unix_s =
        f->spoken_unix_s == 0 ? a->stored_unix_s : min_u64(f->spoken_unix_s, a->stored_unix_s);
}

int part_of_head(const struct answer *a, const struct want *w, uint64_t now_unix_s, struct fact *f,
                 struct err *e)
{
    part_note(a, f);
    f->until_unix_s = now_unix_s + w->ttl_s;
    return a->total_bytes == w->size_bytes
               ? 0
               : err_set(e, E_PROTOCOL, "what the origin has at this path is of another size");
}

void part_refused(const struct answer *a, struct arena *arena, struct fact *f)
{
    struct slice code = answer_field(a, "x-error-code");
    struct slice message = answer_field(a, "x-error-message");

    message = message.p != NULL ? message : slice_str(a->why.text);
    f->rc = answer_rc(a);
    f->status = a->status;
    f->code = code.p != NULL ? arena_copy(arena, code) : SLICE_NONE;
    f->message = arena_copy(arena, slice_first(message, min_u64(message.n, MESSAGE_BYTES)));
}
