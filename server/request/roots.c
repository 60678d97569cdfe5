#include "server/request/roots.h"

#include <stdlib.h>

#include "common/codec/url.h"
#include "common/codec/jwrite.h"
#include "server/http/status.h"
#include "server/request/refusal.h"
#include "server/request/reply.h"
#include "server/store/seek.h"
#include "server/sync/mirrord/protocol.h"

enum { HEAD_ROOM = 8192 };

struct roots_step {
    struct step step;
    struct slice repo, tree, version; /* in the call's arena */
    bool is_head, packed;
    struct digest id, root;
    unsigned way[NODE_LEVELS]; /* which child, from the root down */
    size_t depth;
    struct snap snap;
    struct buf bytes;
};

/* --- what is asked for --- */

/* "3.17": the numbers of children from the root down. */
static bool read_way(struct slice text, struct roots_step *rs)
{
    while (text.n != 0) {
        uint64_t i;
        if (rs->depth == NODE_LEVELS || !slice_u64(slice_cut(&text, '.'), &i) ||
            i >= NODE_COUNT_MAX) {
            return false;
        }
        rs->way[rs->depth++] = (unsigned)i;
    }
    return true;
}

static bool read_query(struct slice query, struct roots_step *rs)
{
    while (query.n != 0) {
        struct slice value = slice_cut(&query, '&');
        struct slice name = slice_cut(&value, '=');
        if ((slice_eqs(name, "root") && !digest_parse(value, &rs->root)) ||
            (slice_eqs(name, "way") && !read_way(value, rs))) {
            return false;
        }
    }
    return true;
}

/* Takes the last segment off. */
static struct slice cut_last_root(struct slice *path)
{
    size_t n = slice_behind(*path, '/');
    struct slice last = slice_from(*path, n);

    *path = slice_first(*path, n > 0 ? n - 1 : 0);
    return last;
}

/* "<repo>[/<tree>][@version]/head", or ".../node/<id>". The tree's name may hold anything, so it is
 * read from the end. */
static bool read_path(struct slice path, struct slice query, struct roots_step *rs)
{
    struct slice last = cut_last_root(&path);

    rs->is_head = slice_eqs(last, "head");
    if (!rs->is_head) {
        if (!digest_parse(last, &rs->id) || !slice_eq(cut_last_root(&path), SLICE("node"))) {
            return false;
        }
        rs->root = rs->id;
        if (!read_query(query, rs)) {
            return false;
        }
    }
    rs->version = path;
    path = slice_cut(&rs->version, '@');
    rs->tree = path;
    rs->repo = slice_cut(&rs->tree, '/');
    return rs->repo.n != 0;
}

/* --- on the pool --- */

static void write_head(struct roots_step *rs)
{
    struct buf *out = &rs->bytes;

    jwrite_open(out, NULL, '{');
    jwrite_u64(out, "version", SYNC_WIRE_VERSION);
    jwrite_text(out, "repo", rs->repo);
    jwrite_text(out, "tree", slice_eqs(rs->tree, SYNC_TREE) ? SLICE("") : rs->tree);
    jwrite_u64(out, "seq", rs->snap.seq);
    jwrite_hex(out, "root", rs->snap.root.b, DIGEST_BYTES);
    jwrite_u64(out, "time", rs->snap.created_unix_s);
    jwrite_u64(out, "entries", rs->snap.entries);
    jwrite_u64(out, "bytes", rs->snap.bytes);
    jwrite_close(out, '}');
    buf_byte(out, '\n');
}

/* Down the path in the request; the node at its end must be the requested one. */
static int walk_down(struct roots_step *rs, struct store *s, struct err *e)
{
    struct tree_node at, next;
    struct digest id = rs->root;
    int rc = node_load(s, &id, &at, e);

    if (rc != 0) {
        return rc;
    }
    for (size_t i = 0; rc == 0 && i < rs->depth; i++) {
        if (at.level == 0 || rs->way[i] >= at.count) {
            rc = err_set(e, E_NOTFOUND, "no such node in the tree");
            break;
        }
        id = at.child[rs->way[i]].id;
        rc = seek_load(s, &at.child[rs->way[i]], at.level - 1, &next, e);
        if (rc == 0) {
            node_free(&at);
            at = next;
        }
    }
    if (rc == 0 && !digest_eq(&id, &rs->id)) {
        rc = err_set(e, E_NOTFOUND, "another node is at that place");
    }
    if (rc == 0 && rs->packed) {
        sync_node_pack(node_encoding(&at), &rs->bytes);
    } else if (rc == 0) {
        buf_adds(&rs->bytes, node_encoding(&at));
    }
    node_free(&at);
    return rc;
}

static void roots_work(struct step *s)
{
    struct roots_step *rs = (struct roots_step *)s;
    struct store *st = s->request->serve_loop->deps->store;
    char hex[DIGEST_HEX + 1];

    if (!rs->is_head) {
        digest_format(&rs->root, hex);
        rs->version = slice_of(hex, DIGEST_HEX);
    }
    s->rc = snap_find(st, rs->repo, rs->tree, rs->version, &rs->snap, &s->why);
    rs->version = SLICE_NONE;
    if (s->rc != 0) {
        return;
    }
    if (rs->is_head) {
        write_head(rs);
    } else if (!digest_eq(&rs->snap.root, &rs->root)) { /* a label may look like a root */
        s->rc = err_set(&s->why, E_NOTFOUND, "no such root");
    } else {
        s->rc = walk_down(rs, st, &s->why);
    }
}

/* --- the answer --- */

static void roots_done(struct step *s)
{
    struct roots_step *rs = (struct roots_step *)s;
    struct request *c = s->request;
    char hex[DIGEST_HEX + 1];
    struct cached_response *h;

    if (s->rc != 0) {
        refuse(c->x, s->rc == E_INVALID ? 404 : status_of_error(s->rc, STATUS_REQUEST), "%s: %s\n",
               err_plain(s->rc),
               rs->is_head
                   ? "no such tree, or nothing is published in it yet"
                   : "that snapshot is not on this mirror, or the node is at another place");
        return;
    }
    h = cached_response_new(c->set, c->repo, SLICE(""), SLICE(""));
    h->bytes = rs->bytes;
    rs->bytes = BUF_INIT(0);
    h->reply.status = 200;
    h->valid.total_bytes = h->bytes.n;
    digest_format(rs->is_head ? &rs->snap.root : &rs->id, hex);
    h->valid.etag = arena_fmt(&h->arena, "\"%s%s\"", hex, rs->packed ? "-zstd" : "");
    reply_add(&h->reply, SLICE("etag"), h->valid.etag);
    reply_add(&h->reply, SLICE("content-type"),
              rs->is_head  ? SLICE("application/json")
              : rs->packed ? SLICE(SYNC_WIRE_NODE_ZSTD)
                           : SLICE(SYNC_WIRE_NODE));
    reply_add(&h->reply, SLICE("cache-control"),
              rs->is_head ? SLICE("no-cache") : SLICE("private, max-age=31536000, immutable"));
    if (!rs->is_head) {
        reply_add(&h->reply, SLICE("vary"), SLICE("accept"));
    }
    c->request_log->cached_response = h;
    reply_send(c->x, c->request_log, h);
}

static void roots_free(struct step *s)
{
    buf_free(&((struct roots_step *)s)->bytes);
}

/* Trees that are listed to whoever may read them: those of a sync, those that were uploaded. */
static bool shows_trees(const struct repo *r, struct slice tree)
{
    return r->synced ? tree.n == 0 : strcmp(r->ops->name, "hosted") == 0 && tree.n != 0;
}

static bool decode_root_path(struct arena *a, struct slice raw, struct slice *out)
{
    struct buf b = BUF_INIT(raw.n + 1);
    bool good = url_decode(raw, &b) && b.rc == 0;

    *out = arena_copy(a, buf_slice(&b));
    buf_free(&b);
    return good;
}

void roots_answer(struct serve_loop *d, struct exchange *x, struct request_log *v,
                  struct slice path)
{
    struct roots_step *rs = NEW(struct roots_step);
    const struct http_req *req = exchange_req(x);
    struct repo *r = NULL;
    struct request *c;

    if (decode_root_path(exchange_arena(x), path, &path) && read_path(path, req->query, rs)) {
        r = repo_set_find(d->set, rs->repo);
    }
    if (r == NULL || !shows_trees(r, rs->tree)) {
        free(rs);
        refuse(x, 404,
               "no such tree: for a synced repo give its name only, for a hosted one also the "
               "tree; see docs/protocols/sync.md\n");
        return;
    }
    v->repo = r;
    c = request_new(d, x, v, r, slice_first(req->path, 0));
    if (c == NULL) {
        free(rs);
        return;
    }
    c->plan = (struct plan){.kind = PLAN_BLOB,
                            .right = RIGHT_READ,
                            .subject = arena_fmt(&c->arena, SLICE_FMT "/" SLICE_FMT "%s",
                                                 SLICE_ARG(rs->repo), SLICE_ARG(rs->tree),
                                                 rs->tree.n != 0 ? "/" : "")};
    if (!request_allowed(c)) {
        free(rs);
        return;
    }
    rs->repo = slice_str(r->name);
    rs->tree = rs->tree.n != 0 ? arena_copy(&c->arena, rs->tree) : SLICE(SYNC_TREE);
    rs->version = arena_copy(&c->arena, rs->version);
    rs->packed =
        !rs->is_head && slice_eqs(slice_trim(http_req_field(req, "accept")), SYNC_WIRE_NODE_ZSTD);
    rs->bytes = BUF_INIT(2 * NODE_BYTES_MAX + HEAD_ROOM);
    rs->step.work = roots_work;
    rs->step.done = roots_done;
    rs->step.free = roots_free;
    request_step(c, d->deps->readers, &rs->step);
}
