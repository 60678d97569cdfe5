#include "server/sync/part.h"

#include <inttypes.h>
#include <stdlib.h>

#include "common/base/endian.h"
#include "common/base/log.h"

enum { ROW_MAX = 64 << 10 };
#define ROW_MAGIC SLICE("sync1") /* the table is shared */

/* --- rows: magic | repo | path | upstream | digest known, digest | seen --- */

void part_put(struct batch *b, const struct part *p)
{
    struct buf row = BUF_INIT(ROW_MAX);
    char key[STAGE_KEY_BYTES];

    buf_adds(&row, ROW_MAGIC);
    buf_counted(&row, 2, p->repo);
    buf_counted(&row, 2, p->path);
    buf_counted(&row, 2, p->upstream);
    buf_byte(&row, p->digest_known);
    buf_add(&row, p->digest.b, DIGEST_BYTES);
    seen_encode(&p->seen, &row);
    CHECK(row.rc == 0); /* names, paths and validators have their bounds */
    stage_key(p->stage_id, key);
    batch_put(b, TABLE_PARTIAL, slice_of(key, sizeof key), buf_slice(&row));
    buf_free(&row);
}

void part_del(struct batch *b, uint64_t stage_id)
{
    char key[STAGE_KEY_BYTES];

    stage_key(stage_id, key);
    batch_del(b, TABLE_PARTIAL, slice_of(key, sizeof key));
}

static bool decode(struct part *p)
{
    struct slice row = slice_from(buf_slice(&p->row), ROW_MAGIC.n);

    if (!slice_counted(&row, 2, &p->repo) || !slice_counted(&row, 2, &p->path) ||
        !slice_counted(&row, 2, &p->upstream) || row.n < 1 + DIGEST_BYTES) {
        return false;
    }
    p->digest_known = row.p[0] != 0;
    memcpy(p->digest.b, row.p + 1, DIGEST_BYTES);
    return seen_decode(slice_from(row, 1 + DIGEST_BYTES), &p->seen, NULL) == 0;
}

/* --- the parts of a repo --- */

struct loading {
    struct slice repo;
    struct list *out;
};

static int on_row(void *arg, struct slice key, struct slice value)
{
    struct loading *l = arg;
    struct part *p;

    if (!slice_starts(value, ROW_MAGIC) || key.n != STAGE_KEY_BYTES) {
        return 0;
    }
    p = NEW(struct part);
    p->stage_id = be_get(key.p, STAGE_KEY_BYTES);
    p->row = BUF_INIT(ROW_MAX);
    buf_adds(&p->row, value);
    if (!decode(p)) {
        p->repo = p->path = SLICE_NONE; /* nobody's: swept */
        p->seen = (struct seen){0};
    }
    if (l->repo.n != 0 && !slice_eq(l->repo, p->repo)) {
        part_free(&p);
        return 0;
    }
    list_push_back(l->out, &p->node);
    return 0;
}

int parts_load(struct store *s, struct slice repo, struct list *out, struct err *e)
{
    struct loading l = {repo, out};

    return store_scan(s, TABLE_PARTIAL, SLICE_NONE, SLICE_NONE, on_row, &l, e);
}

/* A file has one part, but a crash may leave an older one beside it: the longer is taken, the other one swept. */
struct part *parts_take(struct list *parts, struct slice path)
{
    struct part *best = NULL;

    LIST_EACH (parts, it) {
        struct part *p = LIST_ITEM(it, struct part, node);
        if (slice_eq(p->path, path) &&
            (best == NULL || p->seen.size_bytes > best->seen.size_bytes)) {
            best = p;
        }
    }
    if (best != NULL) {
        list_remove(&best->node);
    }
    return best;
}

bool part_fits(const struct part *p, const struct sync_entry *listed, struct slice upstream)
{
    const struct seen *s = &p->seen;

    if (listed->digest_known) {
        return p->digest_known && digest_eq(&p->digest, &listed->digest);
    }
    return !p->digest_known && slice_eq(p->upstream, upstream) &&
           s->listed_size == listed->size_bytes && s->size_step == listed->size_step &&
           s->listed_mtime_ns == listed->mtime_ns && s->mtime_step_s == listed->mtime_step_s;
}

void part_free(struct part **pp)
{
    struct part *p = *pp;

    *pp = NULL;
    if (p != NULL) {
        list_remove_if(&p->node);
        buf_free(&p->row);
        free(p);
    }
}

void part_drop(struct store *s, struct part **pp)
{
    struct batch *b = batch_new();
    struct stage *st = NULL;
    struct err e = {0};
    int rc = stage_resume(s, (*pp)->stage_id, 0, &st, &e);

    if (rc == E_BUSY) { /* somebody goes on with it */
        batch_free(&b);
        part_free(pp);
        return;
    }
    stage_abort(&st);
    part_del(b, (*pp)->stage_id);
    if (store_commit(s, &b, COMMIT_LAZY, &e) != 0) {
        log_warn("sync.part", "why=\"%s\"",
                 e.text); /* a row without a file is swept at the next start */
    }
    part_free(pp);
}

void parts_free(struct list *parts)
{
    LIST_EACH (parts, it) {
        struct part *p = LIST_ITEM(it, struct part, node);
        part_free(&p);
    }
}

void parts_drop(struct store *s, struct slice repo)
{
    struct list all;
    struct err e = {0};

    list_init(&all);
    if (parts_load(s, repo, &all, &e) != 0) {
        log_warn("sync.part", "why=\"%s\"", e.text);
    }
    LIST_EACH (&all, it) {
        struct part *p = LIST_ITEM(it, struct part, node);
        part_drop(s, &p);
    }
}

void parts_sweep(struct store *s, bool (*stays)(void *arg, struct slice repo), void *arg,
                 uint64_t now_unix_s)
{
    struct list all;
    struct err e = {0};

    list_init(&all);
    if (parts_load(s, SLICE_NONE, &all, &e) != 0) {
        log_warn("sync.part", "why=\"%s\"", e.text);
    }
    LIST_EACH (&all, it) {
        struct part *p = LIST_ITEM(it, struct part, node);
        if (p->seen.taken_unix_s + PART_KEEP_S < now_unix_s || !stays(arg, p->repo)) {
            log_info("sync.part_dropped", "repo=" SLICE_FMT " bytes=%" PRIu64, SLICE_ARG(p->repo),
                     p->seen.size_bytes);
            part_drop(s, &p);
        }
    }
    parts_free(&all);
}
