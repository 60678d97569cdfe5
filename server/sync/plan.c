#include "server/sync/plan.h"

#include <stdlib.h>

#include "common/base/endian.h"
#include "common/os/clock.h"
#include "server/store/keep.h"
#include "server/store/seek.h"
#include "server/store/set64.h"
#include "server/sync/seen.h"

enum { ROWS_A_BATCH = 256, ROW_MAX = 64 << 10 };

enum seen_verdict {
    SEEN_SAME,
    SEEN_OTHER,
    /* the list does not say whether it changed: conditional request, if there is a validator */
    SEEN_ASK,
};

struct planner {
    struct sync_plan *p;
    struct seek base;
    struct seen_walk *seen, *staged;
    struct set64 asked; /* digests on the todo list */
    uint32_t *twin;     /* of one of them: behind all others */
    size_t twins, twin_room;
    struct batch *rows; /* of what is reused */
    size_t nrows;
    struct err *e;
};

static void push_plan_index(uint32_t **list, size_t *count, size_t *room, size_t i)
{
    if (*count == *room) {
        *room = *room != 0 ? 2 * *room : 256;
        *list = realloc(*list, *room * sizeof **list);
        CHECK(*list != NULL);
    }
    (*list)[(*count)++] = (uint32_t)i;
}

/* The same bytes under several names are fetched once. */
static void todo_add(struct planner *x, size_t i, const struct sync_entry *en)
{
    struct sync_plan *p = x->p;

    if (en->digest_known && !set64_add(&x->asked, be_get(en->digest.b, 8) | 1)) {
        push_plan_index(&x->twin, &x->twins, &x->twin_room, i);
        p->reused_bytes += en->size_bytes != SYNC_SIZE_UNKNOWN ? en->size_bytes : 0;
        return;
    }
    push_plan_index(&p->todo, &p->todo_count, &p->todo_room, i);
    if (en->size_bytes != SYNC_SIZE_UNKNOWN) {
        (void)!add_u64(p->fetch_bytes, en->size_bytes, &p->fetch_bytes);
    }
}

static int flush_planned_edits(struct planner *x)
{
    int rc = x->nrows != 0 ? store_commit(x->p->store, &x->rows, COMMIT_LAZY, x->e) : 0;

    batch_free(&x->rows);
    x->rows = batch_new();
    x->nrows = 0;
    return rc;
}

/* Bytes that some repo has already are not fetched again. */
static int reuse(struct planner *x, const struct sync_entry *en, bool *yes)
{
    struct seen s = {.listed_size = en->size_bytes,
                     .listed_mtime_ns = en->mtime_ns,
                     .mtime_step_s = en->mtime_step_s,
                     .size_step = en->size_step,
                     .taken_unix_s = clock_unix_s(),
                     .mtime_ns = en->mtime_ns,
                     .digest = en->digest,
                     .validator = en->validator};
    struct blob *b = NULL;
    int rc = blob_open(x->p->store, &en->digest, &b, NULL);

    *yes = rc == 0;
    if (rc != 0) {
        return rc == E_NOTFOUND || rc == E_CORRUPT
                   ? 0
                   : err_set(x->e, rc, "the row of a blob cannot be read");
    }
    s.size_bytes = blob_size_bytes(b);
    x->p->reused_bytes += s.size_bytes;
    stage_row_put(x->rows, x->p->repo, en->path, &s);
    x->nrows++;
    rc = x->nrows >= ROWS_A_BATCH ? flush_planned_edits(x) : 0;
    blob_release(&b);
    return rc;
}

/* The published entry's content is what is listed; does its entry say the same too? */
static bool entry_says(const struct entry *old, const struct sync_entry *en, const struct seen *s)
{
    int64_t mtime = s->mtime_ns;

    if (en->mtime_ns != SYNC_TIME_UNKNOWN && en->mtime_step_s == 0 && !seen_needs_row(s)) {
        mtime = en->mtime_ns;
    }
    return old->executable == en->executable && old->mtime_ns == mtime &&
           slice_eq(old->target, en->leader);
}

/* As if the list had said what the tree has. */
static void seen_of_entry(const struct entry *en, struct seen *out)
{
    *out = (struct seen){.listed_size = en->size_bytes,
                         .listed_mtime_ns = en->mtime_ns,
                         .size_bytes = en->size_bytes,
                         .mtime_ns = en->mtime_ns,
                         .digest = en->digest};
}

/* A rounded time that was young when the bytes were taken may hide a later change within the same
 * step. */
static bool too_young(const struct seen *s)
{
    return s->mtime_step_s != 0 && s->listed_mtime_ns / 1000000000 + 2 * (int64_t)s->mtime_step_s >=
                                       (int64_t)s->taken_unix_s;
}

static enum seen_verdict seen_judge(const struct seen *s, const struct sync_entry *listed)
{
    if (listed->digest_known) {
        return digest_eq(&s->digest, &listed->digest) ? SEEN_SAME : SEEN_OTHER;
    }
    if (listed->validator.n != 0 && s->validator.n != 0 && !s->doubtful) {
        return slice_eq(listed->validator, s->validator) ? SEEN_SAME : SEEN_OTHER;
    }
    if (listed->size_bytes != s->listed_size || listed->size_step != s->size_step ||
        listed->mtime_ns != s->listed_mtime_ns || listed->mtime_step_s != s->mtime_step_s) {
        /* Another way of listing is no news about the file. */
        return listed->size_step != s->size_step || listed->mtime_step_s != s->mtime_step_s ||
                       (listed->mtime_ns == SYNC_TIME_UNKNOWN &&
                        listed->size_bytes == SYNC_SIZE_UNKNOWN)
                   ? SEEN_ASK
                   : SEEN_OTHER;
    }
    return s->doubtful || listed->mtime_ns == SYNC_TIME_UNKNOWN || too_young(s) ? SEEN_ASK
                                                                                : SEEN_SAME;
}

static int judge_file(struct planner *x, size_t i, const struct sync_entry *en,
                      const struct entry *old)
{
    enum seen_verdict v = SEEN_OTHER;
    enum action f = ACTION_FETCH;
    struct seen s;
    bool here = false;
    int rc = seen_walk_to(x->staged, en->path, &s, x->e);

    if (rc == 0 && seen_judge(&s, en) == SEEN_SAME) {
        f = ACTION_STAGED;
        goto out;
    }
    if (rc != 0 && rc != E_NOTFOUND) {
        return rc;
    }
    if (old != NULL && old->type == ENTRY_FILE) {
        rc = seen_walk_to(x->seen, en->path, &s, x->e);
        if (rc != 0 && rc != E_NOTFOUND) {
            return rc;
        }
        if (rc == E_NOTFOUND || !digest_eq(&s.digest, &old->digest)) {
            seen_of_entry(old, &s);
        }
        v = seen_judge(&s, en);
    }
    if (v == SEEN_SAME) {
        f = entry_says(old, en, &s) ? ACTION_SAME : ACTION_WRITE;
        goto out;
    }
    if (en->digest_known) {
        rc = reuse(x, en, &here);
        if (rc != 0) {
            return rc;
        }
        if (here) {
            f = ACTION_STAGED;
            x->p->reused++;
        }
    }
out:
    x->p->action[i] = (uint8_t)f;
    if (f == ACTION_FETCH) {
        todo_add(x, i, en);
    }
    return 0;
}

struct slice plan_link_leader(struct entry_list *r, const struct sync_entry *link)
{
    struct sync_entry first;
    ptrdiff_t i = link->leader.n != 0 ? entry_list_find(r, link->leader) : -1;

    if (i < 0) {
        return SLICE_NONE;
    }
    entry_list_get(r, (size_t)i, &first);
    return first.type == SYNC_LINK && first.leader.n == 0 && slice_eq(first.target, link->target)
               ? link->leader
               : SLICE_NONE;
}

/* True: nothing but the entry itself is to be looked at. */
static bool same_link(struct entry_list *r, const struct sync_entry *en, const struct entry *old)
{
    return old != NULL && old->type == ENTRY_LINK && slice_eq(old->target, en->target) &&
           slice_eq(old->leader, plan_link_leader(r, en)) &&
           (en->mtime_ns == SYNC_TIME_UNKNOWN || old->mtime_ns == en->mtime_ns);
}

static bool same_dir(const struct sync_entry *en, const struct entry *old)
{
    return old != NULL && old->type == ENTRY_DIR &&
           (en->mtime_ns == SYNC_TIME_UNKNOWN || old->mtime_ns == en->mtime_ns);
}

static int judge_entry(struct planner *x, size_t i, const struct sync_entry *en,
                       const struct entry *old)
{
    uint8_t *f = &x->p->action[i];

    switch (en->type) {
    case SYNC_LINK:
        *f = same_link(x->p->entry_list, en, old) ? ACTION_SAME : ACTION_WRITE;
        return 0;
    case SYNC_DIR:
        *f = same_dir(en, old) ? ACTION_SAME : ACTION_WRITE;
        return 0;
    case SYNC_FILE:
        break;
    }
    if (en->leader.n != 0 && !en->digest_known) {
        *f = ACTION_FOLLOW;
        return 0;
    }
    return judge_file(x, i, en, old);
}

/* Leaders have been judged, wherever they stand. A follower is the same when its leader is and its
 * entry says so. */
static int judge_followers(struct planner *x)
{
    struct sync_plan *p = x->p;
    struct buf path = BUF_INIT(8192);
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < entry_list_count(p->entry_list); i++) {
        struct sync_entry en, first;
        const struct entry *old;
        ptrdiff_t leader;
        if (p->action[i] != ACTION_FOLLOW) {
            continue;
        }
        entry_list_get(p->entry_list, i, &en);
        buf_clear(&path);
        buf_adds(&path, en.path);
        leader = entry_list_find(p->entry_list, en.leader);
        first = en;
        if (leader >= 0) {
            entry_list_get(p->entry_list, (size_t)leader, &first);
        }
        if (leader < 0 || first.type != SYNC_FILE || first.leader.n != 0) {
            rc = err_set(x->e, E_PROTOCOL,
                         "the list has a hard link to a file that it does not list");
            break;
        }
        rc = seek_get(&x->base, buf_slice(&path), &old, x->e);
        if (rc == 0 && p->action[leader] == ACTION_SAME && old->type == ENTRY_FILE &&
            slice_eq(old->target, first.path)) {
            p->action[i] = ACTION_SAME;
            p->same++;
        } else if (rc == 0) {
            p->changed++;
        } else if (rc == E_NOTFOUND) {
            p->fresh++;
        }
        rc = rc == E_NOTFOUND ? 0 : rc;
    }
    buf_free(&path);
    return rc;
}

static int judge_all(struct planner *x)
{
    struct sync_plan *p = x->p;
    uint64_t there = 0; /* published ones that are still listed */
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < entry_list_count(p->entry_list); i++) {
        struct sync_entry en;
        const struct entry *old = NULL;
        entry_list_get(p->entry_list, i, &en);
        rc = seek_get(&x->base, en.path, &old, x->e);
        if (rc != 0 && rc != E_NOTFOUND) {
            break;
        }
        old = rc == 0 ? old : NULL;
        there += old != NULL;
        rc = judge_entry(x, i, &en, old);
        if (p->action[i] == ACTION_SAME) {
            p->same++;
        } else if (p->action[i] != ACTION_FOLLOW) {
            *(old != NULL ? &p->changed : &p->fresh) += 1;
        }
    }
    p->gone = p->base_entries - min_u64(p->base_entries, there);
    return rc != 0 ? rc : judge_followers(x);
}

/* Puts the todo list into the profile's ranks, each in its order. */
static void order_todo(struct sync_plan *p)
{
    uint32_t *sorted = mem_array(p->todo_count + 1, sizeof sorted[0]);
    size_t first = p->todo_count - p->twins, n = 0;

    for (unsigned rank = 0; rank < PROFILE_RANKS; rank++) {
        for (size_t i = 0; i < first; i++) {
            struct sync_entry en;
            entry_list_get(p->entry_list, p->todo[i], &en);
            if ((p->profile != NULL ? p->profile->rank(en.path) : 0) == rank) {
                sorted[n++] = p->todo[i];
            }
        }
        p->rank_end[rank] = n;
    }
    CHECK(n == first);
    for (; n < p->todo_count; n++) {
        sorted[n] = p->todo[n];
    }
    p->rank_end[PROFILE_RANKS] = n;
    free(p->todo);
    p->todo = sorted;
    p->todo_room = n + 1;
}

int sync_plan_make(struct sync_plan *p, struct err *e)
{
    struct planner x = {.p = p, .rows = batch_new(), .e = e};
    int rc;

    p->action = mem_array(entry_list_count(p->entry_list) + 1, sizeof p->action[0]);
    if (!p->has_base) {
        tree_empty_root(&p->base);
        p->base_entries = 0;
    }
    seek_open(&x.base, p->store, &p->base);
    x.seen = seen_walk_open(p->store, TABLE_SEEN, p->repo);
    x.staged = seen_walk_open(p->store, TABLE_STAGE, p->repo);
    rc = judge_all(&x);
    rc = rc != 0 ? rc : flush_planned_edits(&x);
    for (size_t i = 0; i < x.twins; i++) {
        push_plan_index(&p->todo, &p->todo_count, &p->todo_room, x.twin[i]);
    }
    p->twins = x.twins;
    if (rc == 0) {
        order_todo(p);
    }
    free(x.twin);
    set64_free(&x.asked);
    seek_close(&x.base);
    seen_walk_close(&x.seen);
    seen_walk_close(&x.staged);
    batch_free(&x.rows);
    return rc;
}

void sync_plan_free(struct sync_plan *p)
{
    free(p->action);
    free(p->todo);
    p->action = NULL;
    p->todo = NULL;
    p->todo_count = p->todo_room = 0;
}

int plan_seen(const struct sync_plan *p, struct slice path, struct buf *row, struct seen *out,
              struct err *e)
{
    struct buf key = BUF_INIT(8192);
    int rc;

    seen_key(&key, p->repo, path);
    rc = store_get(p->store, TABLE_SEEN, buf_slice(&key), row, e);
    buf_free(&key);
    return rc != 0 ? rc : seen_decode(buf_slice(row), out, e);
}
