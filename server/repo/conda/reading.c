#include "server/repo/conda/reading.h"

#include <stdlib.h>

#include "common/codec/url.h"
#include "server/repo/conda/path.h"
#include "server/repo/conda/repodata.h"
#include "server/repo/conda/shards.h"
#include "server/repo/conda/told.h"
#include "server/repo/unpack.h"

enum { URL_BYTES = 16 << 10, KEY_BYTES = 32 << 10, ROW_BYTES = 64 << 10, SHARD_BYTES = 16 << 20 };
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
    struct want_rows *rows; /* of the call that is under way */
    struct buf key, row, base;
};

/* --- rows --- */

static int put(struct reading *r, enum told_kind kind, struct slice name, struct err *e)
{
    told_key(&r->key, r->repo, r->folder, kind, name);
    if (r->key.rc == 0 && r->row.rc == 0) {
        batch_put(r->rows->batch, TABLE_ORIGIN, buf_slice(&r->key), buf_slice(&r->row));
    }
    buf_clear(&r->row);
    return r->rows->told(r->rows, e);
}

static int note_file(struct reading *r, struct slice name, const struct digest *d,
                     uint64_t size_bytes, struct err *e)
{
    struct told_file f = {.digest_known = d != NULL,
                          .size_bytes = size_bytes,
                          .modified_unix_s = r->modified_unix_s,
                          .source = r->source,
                          .place = r->place};

    if (d != NULL) {
        f.digest = *d;
    }
    told_file_encode(&f, &r->row);
    return put(r, TOLD_FILE, name, e);
}

static int on_file(void *arg, const struct repodata_file *f, struct err *e)
{
    struct digest d;

    return note_file(arg, f->name, sum_digest(&f->sum, &d) ? &d : NULL, f->size_bytes, e);
}

static int on_shard_file(void *arg, const struct shard_file *f, struct err *e)
{
    return note_file(arg, f->name, f->digest_known ? &f->digest : NULL, f->size_bytes, e);
}

/* --- where packages lie --- */

int reading_base(struct slice url, struct slice base_url, struct buf *out, struct err *e)
{
    struct buf folder = BUF_INIT(URL_BYTES);
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
    return rc == 0 ? 0 : err_set(e, E_INVALID, "its base_url leads nowhere");
}

static int on_base(void *arg, struct slice url, struct err *e)
{
    struct reading *r = arg;
    struct told_place p = {.index = r->url};
    int rc = reading_base(r->url, url, &r->base, e);

    if (rc != 0) {
        return rc;
    }
    r->said = true;
    /* Also where it is only another spelling of "beside": its absolute form would lead past us. */
    p.packages = buf_slice(&r->base);
    told_place_encode(&p, &r->row);
    rc = put(r, TOLD_REPODATA, SLICE(""), e);
    return rc != 0 || r->elsewhere
               ? rc
               : err_set(e, E_CHANGED, "its packages lie elsewhere: it is to be rewritten");
}

/* --- struct want_reader --- */

static struct reading *reading_new(const struct want *w, struct slice url, uint64_t modified_unix_s,
                                   uint64_t asked_unix_s)
{
    struct reading *r = NEW(struct reading);
    struct slice key = w->key;
    struct conda_path p = conda_path_of(slice_cut(&key, '?'));

    r->repo = arena_copy(&r->arena, w->repo);
    r->folder = arena_copy(&r->arena, shards_folder(p.folder, p.kind));
    r->url = arena_copy(&r->arena, url);
    r->modified_unix_s = modified_unix_s;
    r->asked_unix_s = asked_unix_s;
    r->source = p.kind == CONDA_SHARD ? 0 : told_source(p.name);
    r->key = BUF_INIT(KEY_BYTES);
    r->row = BUF_INIT(ROW_BYTES);
    r->base = BUF_INIT(URL_BYTES);
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

static int feed_it(void *state, struct slice bytes, struct want_rows *rows, struct err *e)
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

static void *open_repodata(const struct want *w, struct slice url, uint64_t modified_unix_s,
                           uint64_t asked_unix_s, bool elsewhere)
{
    struct reading *r = reading_new(w, url, modified_unix_s, asked_unix_s);
    struct repodata_events ev = {.on_file = on_file, .arg = r, .on_base = on_base, .lenient = true};
    struct slice key = w->key;

    r->elsewhere = elsewhere;
    r->place = elsewhere ? TOLD_REPODATA : 0;
    r->repodata = repodata_open(&ev);
    r->unpack = unpack_open(packing_of(slice_cut(&key, '?'), NULL), to_repodata, r, INDEX_BYTES);
    return r;
}

static void *open_beside(const struct want *w, struct slice url, uint64_t modified_unix_s,
                         uint64_t asked_unix_s)
{
    return open_repodata(w, url, modified_unix_s, asked_unix_s, false);
}

static void *open_elsewhere(const struct want *w, struct slice url, uint64_t modified_unix_s,
                            uint64_t asked_unix_s)
{
    return open_repodata(w, url, modified_unix_s, asked_unix_s, true);
}

static int finish_repodata(void *state, struct want_rows *rows, struct err *e)
{
    struct reading *r = state;
    struct told_group g = {r->modified_unix_s, r->asked_unix_s};
    int rc = unpack_finish(r->unpack, e);

    r->rows = rows;
    if (rc == 0) {
        rc = repodata_finish(r->repodata, e);
    }
    if (rc != 0) {
        return rc;
    }
    told_group_encode(&g, &r->row);
    rc = put(r, TOLD_GROUP, SLICE(""), e);
    if (rc == 0 && r->elsewhere && !r->said) {
        told_key(&r->key, r->repo, r->folder, TOLD_REPODATA, SLICE(""));
        batch_del(rows->batch, TABLE_ORIGIN, buf_slice(&r->key));
        return err_set(e, E_CHANGED, "its packages are beside it by now");
    }
    return rc;
}

/* --- shards --- */

static int to_shard(void *arg, struct slice bytes, struct err *e)
{
    struct reading *r = arg;

    buf_adds(&r->shard, bytes);
    return r->shard.rc == 0 ? 0 : err_set(e, E_TOOBIG, "a shard unpacks to too much");
}

static void *open_shard(const struct want *w, struct slice url, uint64_t modified_unix_s,
                        uint64_t asked_unix_s, uint8_t place)
{
    struct reading *r = reading_new(w, url, modified_unix_s, asked_unix_s);

    r->place = place;
    r->unpack = unpack_open(PACKING_ZSTD, to_shard, r, SHARD_BYTES);
    return r;
}

static void *open_shard_beside(const struct want *w, struct slice url, uint64_t modified_unix_s,
                               uint64_t asked_unix_s)
{
    return open_shard(w, url, modified_unix_s, asked_unix_s, 0);
}

static void *open_shard_elsewhere(const struct want *w, struct slice url, uint64_t modified_unix_s,
                                  uint64_t asked_unix_s)
{
    return open_shard(w, url, modified_unix_s, asked_unix_s, TOLD_SHARDS);
}

static int finish_shard(void *state, struct want_rows *rows, struct err *e)
{
    struct reading *r = state;
    int rc = unpack_finish(r->unpack, e);

    r->rows = rows;
    return rc == 0 ? shard_read(buf_slice(&r->shard), on_shard_file, r, e) : rc;
}

/* --- which --- */

static bool tells_of_files(struct slice name)
{
    struct slice bare;

    packing_of(name, &bare);
    return slice_ends(bare, SLICE("repodata.json")) ||
           slice_eqs(bare, "repodata_from_packages.json");
}

const struct want_reader *reading_of(struct slice name, bool elsewhere)
{
    static const struct want_reader beside = {open_beside, feed_it, finish_repodata, told_replaces,
                                              close_it};
    static const struct want_reader other = {open_elsewhere, feed_it, finish_repodata,
                                             told_replaces, close_it};

    return !tells_of_files(name) ? NULL : elsewhere ? &other : &beside;
}

const struct want_reader *reading_of_shard(bool elsewhere)
{
    static const struct want_reader beside = {open_shard_beside, feed_it, finish_shard,
                                              told_replaces, close_it};
    static const struct want_reader other = {open_shard_elsewhere, feed_it, finish_shard,
                                             told_replaces, close_it};

    return elsewhere ? &other : &beside;
}
