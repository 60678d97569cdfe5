/* conda.c - conda channels: indexes that change, packages and shards that do not. A path below the
 * repo is that path below the origin, which is a channel, or a server of many. Where an index says
 * that its packages are elsewhere, they are fetched from there and still requested here. With a
 * sync section the repo is synced, as a generic one's tree is. docs/protocols/conda.md */
#include <stdlib.h>
#include <zstd.h>

#include "common/codec/url.h"
#include "server/cache/lookup.h"
#include "server/repo/conda/path.h"
#include "server/repo/conda/repodata.h"
#include "server/repo/conda/shards.h"
#include "server/repo/conda/strip.h"
#include "server/repo/conda/reported.h"
#include "server/repo/folder.h"
#include "server/repo/generic/synced.h"
#include "server/repo/plan.h"
#include "server/repo/unpack.h"

/* --- indexes, as they come in ---
 *
 * Indexes of a channel, read as they come in: what they tell becomes rows (reported.h).
 *
 * A repodata.json in whatever packing goes to clients as it is, while it still comes. That is right
 * as long as it names its packages beside itself. One that names another place must be rewritten
 * first: its reader notes the place and gives it up (E_CHANGED), before its last bytes have left,
 * and from then on the plan is another. The readers "elsewhere" are for those that are rewritten;
 * they give up one that needs it no more.
 *
 * threads  any, one at a time per index; pure
 */

enum {
    READING_URL_BYTES = 16 << 10,
    KEY_BYTES = 32 << 10,
    READING_ROW_BYTES = 64 << 10,
    SHARD_BYTES = 16 << 20
};

#define INDEX_BYTES ((uint64_t)8 << 30) /* unpacked */

struct reading {
    struct slice repo, folder, url; /* own copies */
    struct arena arena;
    uint64_t modified_unix_s, asked_unix_s;
    uint8_t source, place;
    bool elsewhere; /* it may say so */
    bool said;      /* ... and has */
    struct unpack *unpack;
    struct repodata *repodata; /* or NULL: a shard */
    struct buf shard;
    struct lookup_rows *rows; /* of the call that is under way */
    struct buf key, row, base;
};

/* --- rows --- */

static int put_reported_row(struct reading *r, enum reported_kind kind, struct slice name,
                            struct err *e)
{
    reported_key(&r->key, r->repo, r->folder, kind, name);
    if (r->key.rc == 0 && r->row.rc == 0) {
        batch_put(r->rows->batch, TABLE_ORIGIN, buf_slice(&r->key), buf_slice(&r->row));
    }
    buf_clear(&r->row);
    return r->rows->reported(r->rows, e);
}

static int note_file(struct reading *r, struct slice name, const struct digest *d,
                     uint64_t size_bytes, struct err *e)
{
    struct reported_row t = {.kind = REPORTED_FILE,
                             .file = {.digest_known = d != NULL,
                                      .size_bytes = size_bytes,
                                      .modified_unix_s = r->modified_unix_s,
                                      .source = r->source,
                                      .place = r->place}};

    if (d != NULL) {
        t.file.digest = *d;
    }
    reported_encode(&t, &r->row);
    return put_reported_row(r, REPORTED_FILE, name, e);
}

static int on_repodata_file(void *arg, const struct repodata_file *f, struct err *e)
{
    struct digest d;

    return note_file(arg, f->name, sum_digest(&f->sum, &d) ? &d : NULL, f->size_bytes, e);
}

static int on_shard_file(void *arg, const struct shard_file *f, struct err *e)
{
    return note_file(arg, f->name, f->digest_known ? &f->digest : NULL, f->size_bytes, e);
}

/* --- where packages lie --- */

/* Where an index's packages lie by its base_url, for whoever finds the index at `url`: made
 * absolute, ends in '/'. E_INVALID: nowhere. "" when that is beside it. */
static int reading_base(struct slice url, struct slice base_url, struct buf *out, struct err *e)
{
    struct buf folder = BUF_INIT(READING_URL_BYTES);
    int rc = url_resolve(url, SLICE("."), &folder, e);

    buf_clear(out);
    if (rc == 0 && base_url.n != 0) {
        rc = url_resolve(url, base_url, out, e);
    }
    if (rc == 0 && out->n != 0 && out->p[out->n - 1] != '/') {
        buf_byte(out, '/');
    }
    rc = rc != 0 ? rc : out->rc;
    if (rc == 0 && slice_eq(buf_slice(out), buf_slice(&folder))) {
        buf_clear(out);
    }
    buf_free(&folder);
    return rc == 0 ? 0 : err_set(e, E_INVALID, "the base_url in repodata cannot be resolved");
}

static int on_base(void *arg, struct slice url, struct err *e)
{
    struct reading *r = arg;
    struct reported_row t = {.kind = REPORTED_REPODATA, .place = {.index = r->url}};
    int rc = reading_base(r->url, url, &r->base, e);

    if (rc != 0) {
        return rc;
    }
    r->said = true;
    /* Also where it is only another spelling of "beside": its absolute form would lead past us. */
    t.place.packages = buf_slice(&r->base);
    reported_encode(&t, &r->row);
    rc = put_reported_row(r, REPORTED_REPODATA, SLICE(""), e);
    return rc != 0 || r->elsewhere ? rc
                                   : err_set(e, E_CHANGED,
                                             "the packages are not in this channel's folder, so "
                                             "its index must be rewritten");
}

/* --- struct lookup_reader --- */

static struct reading *reading_new(const struct lookup *w, struct slice url,
                                   uint64_t modified_unix_s, uint64_t asked_unix_s)
{
    struct reading *r = NEW(struct reading);
    struct slice key = w->key;
    struct conda_path p = conda_path_of(slice_cut(&key, '?'));

    r->repo = arena_copy(&r->arena, w->repo);
    r->folder = arena_copy(&r->arena, shards_folder(p.folder, p.kind));
    r->url = arena_copy(&r->arena, url);
    r->modified_unix_s = modified_unix_s;
    r->asked_unix_s = asked_unix_s;
    r->source = p.kind == CONDA_SHARD ? 0 : reported_source(p.name);
    r->key = BUF_INIT(KEY_BYTES);
    r->row = BUF_INIT(READING_ROW_BYTES);
    r->base = BUF_INIT(READING_URL_BYTES);
    r->shard = BUF_INIT(SHARD_BYTES);
    return r;
}

static void close_it(void *state)
{
    struct reading *r = state;

    unpack_close(&r->unpack);
    repodata_close(&r->repodata);
    buf_free(&r->key);
    buf_free(&r->row);
    buf_free(&r->base);
    buf_free(&r->shard);
    arena_fini(&r->arena);
    free(r);
}

static int feed_it(void *state, struct slice bytes, struct lookup_rows *rows, struct err *e)
{
    struct reading *r = state;

    r->rows = rows;
    return unpack_feed(r->unpack, bytes, e);
}

/* --- repodata --- */

static int to_repodata(void *arg, struct slice bytes, struct err *e)
{
    struct reading *r = arg;

    return repodata_feed(r->repodata, bytes, e);
}

static void *open_repodata(const struct lookup *w, struct slice url, uint64_t modified_unix_s,
                           uint64_t asked_unix_s, bool elsewhere)
{
    struct reading *r = reading_new(w, url, modified_unix_s, asked_unix_s);
    struct repodata_events ev = {
        .on_file = on_repodata_file, .arg = r, .on_base = on_base, .lenient = true};
    struct slice key = w->key;

    r->elsewhere = elsewhere;
    r->place = elsewhere ? REPORTED_REPODATA : 0;
    r->repodata = repodata_open(&ev);
    r->unpack = unpack_open(packing_of(slice_cut(&key, '?'), NULL), to_repodata, r, INDEX_BYTES);
    return r;
}

static void *open_beside(const struct lookup *w, struct slice url, uint64_t modified_unix_s,
                         uint64_t asked_unix_s)
{
    return open_repodata(w, url, modified_unix_s, asked_unix_s, false);
}

static void *open_elsewhere(const struct lookup *w, struct slice url, uint64_t modified_unix_s,
                            uint64_t asked_unix_s)
{
    return open_repodata(w, url, modified_unix_s, asked_unix_s, true);
}

static int finish_repodata(void *state, struct lookup_rows *rows, struct err *e)
{
    struct reading *r = state;
    struct reported_row t = {.kind = REPORTED_GROUP,
                             .group = {r->modified_unix_s, r->asked_unix_s}};
    int rc = unpack_finish(r->unpack, e);

    r->rows = rows;
    rc = rc != 0 ? rc : repodata_finish(r->repodata, e);
    if (rc != 0) {
        return rc;
    }
    reported_encode(&t, &r->row);
    rc = put_reported_row(r, REPORTED_GROUP, SLICE(""), e);
    if (rc == 0 && r->elsewhere && !r->said) {
        reported_key(&r->key, r->repo, r->folder, REPORTED_REPODATA, SLICE(""));
        batch_del(rows->batch, TABLE_ORIGIN, buf_slice(&r->key));
        return err_set(
            e, E_CHANGED,
            "the packages are in the channel's folder again, so its index must be read again");
    }
    return rc;
}

/* --- shards --- */

static int to_shard(void *arg, struct slice bytes, struct err *e)
{
    struct reading *r = arg;

    buf_adds(&r->shard, bytes);
    return r->shard.rc == 0 ? 0 : err_set(e, E_TOOBIG, "a shard is too large when unpacked");
}

static void *open_shard(const struct lookup *w, struct slice url, uint64_t modified_unix_s,
                        uint64_t asked_unix_s, uint8_t place)
{
    struct reading *r = reading_new(w, url, modified_unix_s, asked_unix_s);

    r->place = place;
    r->unpack = unpack_open(PACKING_ZSTD, to_shard, r, SHARD_BYTES);
    return r;
}

static void *open_shard_beside(const struct lookup *w, struct slice url, uint64_t modified_unix_s,
                               uint64_t asked_unix_s)
{
    return open_shard(w, url, modified_unix_s, asked_unix_s, 0);
}

static void *open_shard_elsewhere(const struct lookup *w, struct slice url,
                                  uint64_t modified_unix_s, uint64_t asked_unix_s)
{
    return open_shard(w, url, modified_unix_s, asked_unix_s, REPORTED_SHARDS);
}

static int finish_shard(void *state, struct lookup_rows *rows, struct err *e)
{
    struct reading *r = state;
    int rc = unpack_finish(r->unpack, e);

    r->rows = rows;
    return rc != 0 ? rc : shard_read(buf_slice(&r->shard), on_shard_file, r, e);
}

/* --- which --- */

static bool tells_of_files(struct slice name)
{
    struct slice bare;

    packing_of(name, &bare);
    return slice_ends(bare, SLICE("repodata.json")) ||
           slice_eqs(bare, "repodata_from_packages.json");
}

static const struct lookup_reader beside = {"beside",        open_beside,       feed_it,
                                            finish_repodata, reported_replaces, close_it};
static const struct lookup_reader elsewhere_too = {"elsewhere",     open_elsewhere,    feed_it,
                                                   finish_repodata, reported_replaces, close_it};
static const struct lookup_reader shard_beside = {"shard",      open_shard_beside, feed_it,
                                                  finish_shard, reported_replaces, close_it};
static const struct lookup_reader shard_elsewhere = {
    "shard elsewhere", open_shard_elsewhere, feed_it, finish_shard, reported_replaces, close_it};

/* The reader of the index `name`, or NULL: it tells nothing of files. */
static const struct lookup_reader *reading_of(struct slice name, bool elsewhere)
{
    return !tells_of_files(name) ? NULL : elsewhere ? &elsewhere_too : &beside;
}

/* Of a shard, whose index says that its packages lie elsewhere, or not. */
static const struct lookup_reader *reading_of_shard(bool elsewhere)
{
    return elsewhere ? &shard_elsewhere : &shard_beside;
}

static const struct lookup_reader *reader_named(struct slice name)
{
    static const struct lookup_reader *const all[] = {&beside, &elsewhere_too, &shard_beside,
                                                      &shard_elsewhere};

    for (size_t i = 0; i < ARRAY_LEN(all); i++) {
        if (slice_eqs(name, all[i]->name)) {
            return all[i];
        }
    }
    return NULL;
}

enum {
    INDEX_TTL_S = 300,
    PACK_LEVEL = 3,
    URL_BYTES = 16 << 10,
    ROW_BYTES = 64 << 10,
    LIST_BYTES = 64 << 20, /* of shards: forty times the largest there is */
};

/* Object stores answer 403 for missing objects. For a form that clients can do without it becomes a
 * 404; for repodata.json clients get the origin's answer. */
static const struct status_map forbidden_is_absent[] = {{403, 404}};

static int conda_open(struct repo *r, const struct repo_conf *conf, struct err *e)
{
    if (r->origin == NULL && conf->sync == NULL) {
        return err_set(e, E_CONFIG, "protocol \"conda\" needs an origin = \"https://...\"");
    }
    return 0;
}

/* --- what indexes have reported --- */

static const struct result *report_missing(const struct repo *r, const struct results *results,
                                           struct slice folder, enum reported_kind kind,
                                           struct slice name, struct arena *a, struct plan *p)
{
    struct buf key = BUF_INIT(256 + folder.n + name.n);
    const struct result *f;

    reported_key(&key, slice_str(r->name), folder, kind, name);
    f = plan_row(results, TABLE_ORIGIN, arena_copy(a, buf_slice(&key)), p);
    buf_free(&key);
    return f;
}

/* False: the plan asks for it first. Nothing in *out: all lies beside the index. */
static bool reported_place_of(const struct repo *r, const struct results *results,
                              struct slice folder, enum reported_kind kind, struct arena *a,
                              struct plan *p, bool *elsewhere, struct reported_place *out)
{
    const struct result *f = report_missing(r, results, folder, kind, SLICE(""), a, p);
    struct reported_row t;

    *elsewhere =
        f != NULL && f->rc == 0 && reported_decode(f->bytes, &t) && t.kind == REPORTED_REPODATA;
    *out = *elsewhere ? t.place : (struct reported_place){SLICE_NONE, SLICE_NONE, SLICE_NONE};
    return f != NULL;
}

/* False: no repo may be led there; answered. */
static bool lies_at(const struct repo *r, struct slice base, struct slice index, struct slice name,
                    struct arena *a, struct plan *p)
{
    struct err why;

    if (base.p == NULL) {
        return true;
    }
    p->lookup.url = plan_url(arena_cstr(a, base), name, SLICE_NONE, a);
    p->lookup.via = index;
    if (origin_admits(r->origin, p->lookup.url, index, &why) != 0) {
        plan_reply(p, 403,
                   arena_fmt(a,
                             "the package is on another host, according to the index: %s. If that "
                             "is correct, add the host to hosts = {...} of this repo\n",
                             why.text));
        return false;
    }
    return true;
}

/* --- indexes --- */

/* Packed in other ways it could be made, too; nobody asks for those where there is a better one. */
static bool is_rewritten(struct slice name)
{
    enum packing how = packing_of(name, NULL);

    return how == PACKING_NONE || how == PACKING_ZSTD;
}

static bool is_shards_list(struct slice name)
{
    return slice_eqs(name, "repodata_shards.msgpack.zst");
}

static void plan_elsewhere(const struct conda_path *cp, struct slice path, struct arena *a,
                           struct plan *p)
{
    if (!is_rewritten(cp->name)) {
        plan_reply(p, 404,
                   SLICE("the packages of this channel are elsewhere, so its index is rewritten; "
                         "request it as .json or .json.zst\n"));
        return;
    }
    /* Not the object that goes out as it is: no client's path has a query. */
    p->lookup.key = plan_key(path, SLICE("elsewhere"), a);
    p->delivery = DELIVERY_REWRITTEN;
    p->variant = SLICE("repodata");
}

static void plan_index(const struct repo *r, const struct conda_path *cp, const struct rule *rule,
                       struct slice path, const struct results *results, struct arena *a,
                       struct plan *p)
{
    const struct result *group =
        report_missing(r, results, cp->folder, REPORTED_GROUP, SLICE(""), a, p);
    bool reads = reading_of(cp->name, false) != NULL;
    struct reported_place place;
    struct reported_row t;
    bool elsewhere = false;

    if (group == NULL || (reads && !reported_place_of(r, results, cp->folder, REPORTED_REPODATA, a,
                                                      p, &elsewhere, &place))) {
        return;
    }
    if (rule->built_in) {
        p->lookup.ttl_s = INDEX_TTL_S;
        p->lookup.status_map = cp->optional ? forbidden_is_absent : NULL;
        p->lookup.status_maps = cp->optional ? ARRAY_LEN(forbidden_is_absent) : 0;
    }
    if (group->rc == 0 && reported_decode(group->bytes, &t) && t.kind == REPORTED_GROUP) {
        p->lookup.since_unix_s = t.group.since_unix_s;
    }
    p->lookup.reader = reading_of(cp->name, elsewhere);
    /* Clients give up at a 502 of a form that they would do without. */
    if (cp->optional && (group->rc == 0 || !(reads || is_shards_list(cp->name)))) {
        p->lookup.errors |= TROUBLE_IS_ABSENCE;
    }
    p->lookup.no_html = !slice_ends(cp->name, SLICE(".html")) && cp->name.n != 0;
    if (is_shards_list(cp->name)) {
        p->delivery = DELIVERY_REWRITTEN;
        p->variant = SLICE("shards");
    } else if (elsewhere) {
        plan_elsewhere(cp, path, a, p);
    }
}

/* --- files --- */

static void plan_package(const struct repo *r, const struct conda_path *cp,
                         const struct results *results, struct arena *a, struct plan *p)
{
    const struct result *f = report_missing(r, results, cp->folder, REPORTED_FILE, cp->name, a, p);
    struct reported_place place;
    struct reported_row t;
    bool elsewhere;

    if (f == NULL || f->rc != 0 || !reported_decode(f->bytes, &t) || t.kind != REPORTED_FILE) {
        return;
    }
    if (t.file.place != 0) {
        if (!reported_place_of(r, results, cp->folder, (enum reported_kind)t.file.place, a, p,
                               &elsewhere, &place)) {
            return;
        }
        if (!lies_at(r, place.packages, place.index, cp->name, a, p)) {
            return;
        }
    }
    if (t.file.digest_known) {
        p->lookup.digest_known = true;
        p->lookup.digest = t.file.digest;
        p->lookup.size_bytes = t.file.size_bytes;
    }
}

static void plan_shard(const struct repo *r, const struct conda_path *cp,
                       const struct results *results, struct arena *a, struct plan *p)
{
    struct slice folder = shards_folder(cp->folder, cp->kind);
    struct reported_place place;
    bool elsewhere;

    if (!reported_place_of(r, results, folder, REPORTED_SHARDS, a, p, &elsewhere, &place)) {
        return;
    }
    if (folder.n != cp->folder.n && !lies_at(r, place.shards, place.index, cp->name, a, p)) {
        return;
    }
    p->lookup.reader = reading_of_shard(place.packages.p != NULL);
    p->lookup.digest_known = digest_parse(slice_first(cp->name, DIGEST_HEX), &p->lookup.digest);
}

/* No client of channels has a query, and an origin's files do not depend on one: it would only make
 * copies. */
static void plan_path_of(const struct repo *r, struct slice path, const struct results *results,
                         struct arena *a, struct plan *p)
{
    struct conda_path cp = conda_path_of(path);
    const struct rule *rule = plan_rule(r, path, a);

    plan_lookup(r, rule, path, a, p);
    p->lookup.key = plan_key(path, SLICE_NONE, a);
    p->lookup.url = plan_url(origin_url(r->origin), path, SLICE_NONE, a);
    if (cp.kind == CONDA_INDEX) {
        plan_index(r, &cp, rule, path, results, a, p);
        return;
    }
    p->lookup.class = rule->built_in ? LOOKUP_IMMUTABLE : p->lookup.class;
    p->lookup.no_html = true;
    if (cp.kind == CONDA_SHARD) {
        plan_shard(r, &cp, results, a, p);
    } else {
        plan_package(r, &cp, results, a, p);
    }
}

static int conda_plan(const struct repo *r, const struct http_req *req, struct slice path,
                      const struct principal *who, const struct results *results,
                      struct arena *arena, struct plan *out, struct err *e)
{
    struct slice clean;
    int rc;

    (void)who;
    if (!plan_enter(req, path, arena, &clean, out, &rc, e)) {
        return rc;
    }
    if (plan_rule(r, clean, arena)->class == RULE_DENY) {
        plan_reply(out, 403, SLICE("a rule of this repo denies this path\n"));
    } else if (r->synced) {
        synced_plan(r, req, clean, results, arena, out);
    } else if (conda_path_of(clean).kind == CONDA_JLAP) {
        plan_reply(out, 404,
                   SLICE("this mirror has no patches of repodata; request repodata.json.zst or "
                         "repodata.json\n"));
    } else {
        plan_path_of(r, clean, results, arena, out);
    }
    return 0;
}

/* --- indexes that lead elsewhere, made to lead here --- */

static int pack_zstd(struct slice plain, struct buf *out, struct err *e)
{
    size_t room = ZSTD_compressBound(plain.n), n;
    char *to = buf_room(out, room);

    if (to == NULL) {
        return err_set(e, E_TOOBIG, "the rewritten index is larger than %zu bytes", out->max);
    }
    n = ZSTD_compress(to, room, plain.p, plain.n, PACK_LEVEL);
    CHECK(!ZSTD_isError(n)); /* there is room, and memory */
    buf_grew(out, n);
    return 0;
}

static int to_buf(void *arg, struct slice bytes, struct err *e)
{
    struct buf *b = arg;

    buf_adds(b, bytes);
    return b->rc == 0 ? 0
                      : err_set(e, E_TOOBIG, "the unpacked index is larger than %zu bytes", b->max);
}

static int to_strip(void *arg, struct slice bytes, struct err *e)
{
    return strip_feed(arg, bytes, e);
}

static int unpack_whole(enum packing how, struct slice doc, uint64_t max_bytes,
                        int (*fn)(void *arg, struct slice bytes, struct err *e), void *arg,
                        struct err *e)
{
    struct unpack *u = unpack_open(how, fn, arg, max_bytes);
    int rc = unpack_feed(u, doc, e);

    rc = rc != 0 ? rc : unpack_finish(u, e);
    unpack_close(&u);
    return rc;
}

static int rewrite_repodata(struct slice key, struct slice doc, struct buf *out, struct err *e)
{
    enum packing how = packing_of(slice_cut(&key, '?'), NULL);
    struct buf plain = BUF_INIT(out->max);
    struct strip *s = strip_open(how == PACKING_NONE ? out : &plain);
    int rc = unpack_whole(how, doc, out->max, to_strip, s, e);

    rc = rc != 0 ? rc : strip_finish(s, e);
    strip_close(&s);
    if (rc == 0 && how == PACKING_ZSTD) {
        rc = pack_zstd(buf_slice(&plain), out, e);
    }
    buf_free(&plain);
    return rc;
}

static int note_places(const struct repo *r, struct slice key, struct slice url,
                       const struct shards_places *was, struct batch *rows, struct err *e)
{
    struct buf packages = BUF_INIT(URL_BYTES), shards = BUF_INIT(URL_BYTES);
    struct buf row_key = BUF_INIT(ROW_BYTES), row = BUF_INIT(ROW_BYTES);
    int rc = was->packages.p != NULL ? reading_base(url, was->packages, &packages, e) : 0;

    if (rc == 0 && was->shards.p != NULL) {
        rc = url_resolve(url, was->shards, &shards, e);
    }
    if (rc == 0 && shards.n != 0 && shards.p[shards.n - 1] != '/') {
        buf_byte(&shards, '/'); /* their names are joined to it */
    }
    if (rc == 0) {
        reported_key(&row_key, slice_str(r->name), conda_path_of(key).folder, REPORTED_SHARDS,
                     SLICE(""));
        reported_encode(
            &(struct reported_row){.kind = REPORTED_REPODATA,
                                   .place = {buf_slice(&packages), buf_slice(&shards), url}},
            &row);
        rc = row_key.rc != 0 ? row_key.rc : row.rc;
    }
    if (rc == 0) {
        batch_put(rows, TABLE_ORIGIN, buf_slice(&row_key), buf_slice(&row));
    }
    buf_free(&packages);
    buf_free(&shards);
    buf_free(&row_key);
    buf_free(&row);
    return rc == 0 ? 0
                   : err_set(e, E_INVALID, "a base URL in the list of shards cannot be resolved");
}

static int rewrite_shards(const struct repo *r, struct slice key, struct slice doc,
                          struct slice url, struct rewrite_out *out, struct err *e)
{
    struct buf plain = BUF_INIT(LIST_BYTES), ours = BUF_INIT(LIST_BYTES + 4096);
    struct shards_places was;
    int rc = unpack_whole(PACKING_ZSTD, doc, LIST_BYTES, to_buf, &plain, e);

    rc = rc != 0 ? rc : shards_rewrite(buf_slice(&plain), &was, &ours, e);
    rc = rc != 0 ? rc : note_places(r, key, url, &was, out->rows, e);
    rc = rc != 0 ? rc : pack_zstd(buf_slice(&ours), &out->body, e);
    buf_free(&plain);
    buf_free(&ours);
    return rc;
}

static int conda_rewrite(const struct repo *r, const struct plan *p, struct slice doc,
                         struct slice content_type, struct slice url, struct rewrite_out *out,
                         struct err *e)
{
    int rc;

    (void)content_type;
    out->rows = batch_new();
    if (slice_eqs(p->variant, "shards")) {
        out->content_type = SLICE("application/octet-stream");
        rc = rewrite_shards(r, p->lookup.key, doc, url, out, e);
    } else {
        out->content_type = slice_ends(p->lookup.key, SLICE(".zst?elsewhere"))
                                ? SLICE("application/zstd")
                                : SLICE("application/json");
        rc = rewrite_repodata(p->lookup.key, doc, &out->body, e);
    }
    if (rc == E_INVALID && e != NULL) {
        e->code = E_PROTOCOL; /* the origin's fault, not the client's */
    }
    return rc == E_INVALID ? E_PROTOCOL : rc;
}

const struct repo_ops repo_conda = {
    .name = "conda",
    .stale_first = true,
    .path_tokens = true,
    .open = conda_open,
    .plan = conda_plan,
    .list = folder_list,
    .rewrite = conda_rewrite,
    .reader = reader_named,
};
