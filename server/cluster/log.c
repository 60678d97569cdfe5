#include "server/cluster/log.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/base/dice.h"
#include "common/base/log.h"
#include "common/os/clock.h"
#include "common/os/lock.h"
#include "server/cluster/checkpoint.h"
#include "server/cluster/read_ahead.h"

enum {
    SETTLE_MS = 30000,
    PAUSE_MS = 20, /* the first between two tries; it doubles */
    PAUSE_MAX_MS = 1000,
    READS_OF_DAMAGE = 3,
    CHECKPOINTS_TRIED = 16,
    KEYS_LISTED = 1000, /* one page */
    VOID_BYTES = 2 * DIGEST_HEX + 1,
};

struct cluster_log {
    struct bucket *b;
    struct log_settings set;
    uint64_t applied;
    struct digest own; /* of that entry */
    uint64_t dice;
    struct err stopped; /* code 0: it runs */
    struct buf entry;   /* ours, for slot applied + 1 */
    struct digest ours; /* its own; zeros: none was written */
    bool open;          /* it was sent, and what became of it is unknown */
    struct buf theirs;  /* the last one read */
    /* No checkpoint covered slot applied + 1 then, by the bucket's clock. 0: one may have. */
    uint64_t untrimmed_unix_s;
    bool ours_restored;       /* our last commit is in the checkpoint that was restored last */
    struct read_ahead *ahead; /* of log_catch_up(); or NULL */
    struct lock lock;         /* of what follows */
    struct cond wake;
    bool interrupted;
};

void log_key(uint64_t seq, char key[LOG_KEY_ROOM])
{
    snprintf(key, LOG_KEY_ROOM, "log/0/%020" PRIu64, seq);
}

/* --- interruption --- */

static int check_interrupted(struct cluster_log *l, struct err *e)
{
    bool interrupted;

    lock_take(&l->lock);
    interrupted = l->interrupted;
    lock_drop(&l->lock);
    return interrupted ? err_set(e, E_CANCELLED, "this program is ending") : 0;
}

static void pause_for(struct cluster_log *l, unsigned tries)
{
    uint64_t ms = min_u64((uint64_t)PAUSE_MS << (tries < 8 ? tries : 8), PAUSE_MAX_MS);
    uint64_t until_ms = clock_now_ms() + ms / 2 + dice_below(&l->dice, ms), now_ms;

    lock_take(&l->lock);
    while (!l->interrupted && (now_ms = clock_now_ms()) < until_ms) {
        cond_wait_ms(&l->wake, &l->lock, until_ms - now_ms);
    }
    lock_drop(&l->lock);
}

/* --- applying --- */

static int stop(struct cluster_log *l, int rc, const struct err *why)
{
    l->stopped = *why;
    l->stopped.code = rc;
    log_error("cluster.stopped", "entry=%" PRIu64 " why=\"%s\"", l->applied + 1, why->text);
    return rc;
}

/* The entry was read from slot applied + 1. */
static int apply(struct cluster_log *l, const struct log_entry *en, struct err *e)
{
    struct err why = {0};
    int rc;

    if (en->seq != l->applied + 1 || !digest_eq(&en->before, &l->own)) {
        rc = err_set(&why, E_CORRUPT,
                     "entry %" PRIu64 " of the log does not follow the entry before it (it says "
                     "%" PRIu64 "): the bucket lost or replaced an entry",
                     l->applied + 1, en->seq);
    } else {
        rc = l->set.ops->apply(l->set.arg, en, digest_eq(&en->own, &l->ours), &why);
    }
    if (rc == E_CHANGED) {
        char text[sizeof why.text];
        memcpy(text, why.text, sizeof text);
        rc = err_set(&why, E_CORRUPT,
                     "entry %" PRIu64 " of the log requires what is not so (%.100s): the bucket "
                     "let two nodes write the same entry",
                     en->seq, text);
    }
    if (rc == 0) {
        l->applied = en->seq;
        l->own = en->own;
        return 0;
    }
    *e = why;
    if (rc == E_NOTFOUND) {
        l->untrimmed_unix_s = 0; /* before the next look at the slot, one at the checkpoints */
        return err_set(e, E_AGAIN, "entry %" PRIu64 ": %.180s", en->seq, why.text);
    }
    return rc == E_CORRUPT || rc == E_UNSUPPORTED ? stop(l, rc, &why) : rc;
}

/* --- restoring a checkpoint --- */

struct restore {
    struct cluster_log *l;
    bool begun;
    bool has_ours;
    uint64_t seq;
    struct digest own;
};

static bool is_ours(const struct cluster_log *l, const struct log_entry_author *a)
{
    const struct log_entry_author *our = &l->set.author;

    return memcmp(a->node, our->node, LOG_ENTRY_NODE_BYTES) == 0 && a->boot == our->boot &&
           a->counter == our->counter;
}

static int on_restore_head(void *arg, const struct checkpoint_head *h, struct err *e)
{
    struct restore *r = arg;
    const struct log_settings *set = &r->l->set;
    struct slice rest = h->commits;
    struct log_entry_author a;
    int rc = set->ops->restore_begin(set->arg, e);

    r->begun = rc == 0;
    r->seq = h->seq;
    r->own = h->own;
    while (rc == 0 && checkpoint_commit_next(&rest, &a)) {
        r->has_ours = r->has_ours || is_ours(r->l, &a);
        rc = set->ops->restore_commit(set->arg, &a, e);
    }
    return rc;
}

static int on_restore_row(void *arg, const struct checkpoint_row *row, struct err *e)
{
    struct restore *r = arg;
    const struct log_settings *set = &r->l->set;

    return set->ops->restore_row(set->arg, row->table, row->key, row->value, e);
}

static int restore(struct cluster_log *l, const struct checkpoint_found *c, struct err *e)
{
    static const struct checkpoint_events events = {on_restore_head, on_restore_row};
    const struct log_settings *set = &l->set;
    struct restore r = {.l = l};
    int rc = checkpoint_read(l->b, c, &events, &r, e);

    if (rc == 0) {
        rc = set->ops->restore_end(set->arg, r.seq, &r.own, e);
    } else if (r.begun) {
        set->ops->restore_cancel(set->arg);
    }
    if (rc == 0) {
        log_info("cluster.restored", "checkpoint=%s from=%" PRIu64, c->key, l->applied);
        l->applied = r.seq;
        l->own = r.own;
        l->ours_restored = r.has_ours;
    }
    return rc;
}

struct newest {
    struct checkpoint_found c[CHECKPOINTS_TRIED];
    size_t n;
};

static int on_newest(void *arg, const struct checkpoint_found *c)
{
    struct newest *list = arg;

    list->c[list->n++] = *c;
    return 0;
}

/* --- what a slot says, and whether it is to be believed --- */

static bool is_believed(const struct cluster_log *l, uint64_t date_unix_s)
{
    return l->untrimmed_unix_s != 0 && date_unix_s != 0 &&
           (date_unix_s <= l->untrimmed_unix_s ||
            date_unix_s - l->untrimmed_unix_s <= l->set.gate_s);
}

/* The slot after the last entry that is applied was empty. */
static void note_end(struct cluster_log *l, uint64_t date_unix_s)
{
    if (l->untrimmed_unix_s != 0 && date_unix_s > l->untrimmed_unix_s) {
        l->untrimmed_unix_s = date_unix_s;
    }
}

/* Looks for a checkpoint that covers slot applied + 1, after a response of that time. 0: there is
 * none, and what the slot says is true. E_CHANGED: there is, and it was restored. E_CORRUPT: nobody
 * can say; the log has stopped. */
static int look_for_checkpoint(struct cluster_log *l, bool has_entry, uint64_t date_unix_s,
                               struct err *e)
{
    struct newest list = {.n = 0};
    struct err why = {0};
    unsigned damaged = 0;
    int rc = checkpoint_list(l->b, CHECKPOINTS_TRIED, on_newest, &list, e);

    if (rc != 0) {
        return rc;
    }
    for (size_t i = 0; i < list.n && list.c[i].seq > l->applied; i++) {
        rc = restore(l, &list.c[i], &why);
        if (rc == 0) {
            l->untrimmed_unix_s = damaged == 0 ? date_unix_s : 0;
            return err_set(e, E_CHANGED, "a checkpoint was restored");
        }
        if (rc != E_CORRUPT && rc != E_NOTFOUND) {
            *e = why;
            return rc == E_UNSUPPORTED ? stop(l, rc, e) : rc;
        }
        damaged++;
    }
    l->untrimmed_unix_s = damaged == 0 ? date_unix_s : 0;
    /* Nothing is trimmed that only the newest checkpoint covers. */
    if (damaged == 0 || (damaged == 1 && has_entry)) {
        return 0;
    }
    err_set(e, E_CORRUPT,
            "entry %" PRIu64 " may have been trimmed, and what covers it cannot be read (%.120s); "
            "let a node that has applied it write a checkpoint",
            l->applied + 1, why.text);
    return stop(l, E_CORRUPT, e);
}

/* E_NOTFOUND: nothing is there. A damaged entry is read again: the damage may be on the way. */
static int read_slot(struct cluster_log *l, struct log_entry *out, uint64_t *date_unix_s,
                     struct err *e)
{
    char key[LOG_KEY_ROOM];
    int rc = 0;

    log_key(l->applied + 1, key);
    for (unsigned i = 0; i < READS_OF_DAMAGE; i++) {
        if (l->ahead == NULL ||
            !read_ahead_take(l->ahead, l->applied + 1, &l->theirs, date_unix_s)) {
            rc = bucket_get_dated(l->b, key, &l->theirs, date_unix_s, e);
        }
        rc = rc != 0 ? rc : log_entry_read(buf_slice(&l->theirs), out, e);
        rc = rc == E_TOOBIG ? err_set(e, E_CORRUPT, "it is too big for an entry") : rc;
        if (rc != E_CORRUPT) {
            break;
        }
        log_warn("cluster.damaged", "entry=%" PRIu64 " why=\"%s\"", l->applied + 1, e->text);
    }
    if (rc == E_CORRUPT || rc == E_UNSUPPORTED) {
        struct err why = {0};
        err_set(&why, rc, "%s: %.180s", key, e->text);
        *e = why;
    }
    return rc;
}

/* The bytes of slot applied + 1, in l->theirs, are no entry. 0: an operator has declared this entry
 * void, and *out stands in its place. */
static int pass_over(struct cluster_log *l, struct log_entry *out, struct err *e)
{
    struct buf word = BUF_INIT(VOID_BYTES + 1);
    char key[LOG_KEY_ROOM];
    struct digest damaged, named, own;
    struct err why = {0};
    struct slice text, first;
    int rc;

    snprintf(key, sizeof key, "void/0/%020" PRIu64, l->applied + 1);
    rc = bucket_get(l->b, key, &word, &why);
    text = slice_first(buf_slice(&word), min_u64(word.n, VOID_BYTES));
    first = slice_cut(&text, ' ');
    digest_of(buf_slice(&l->theirs), &damaged);
    if (rc == 0 && digest_parse(first, &named) && digest_parse(text, &own) &&
        digest_eq(&named, &damaged)) {
        log_warn("cluster.void", "entry=%" PRIu64, l->applied + 1);
        *out = (struct log_entry){.seq = l->applied + 1, .before = l->own, .own = own};
    } else if (rc == 0 || rc == E_TOOBIG) {
        rc = err_set(e, E_CORRUPT, "%s does not name the bytes of the damaged entry", key);
        stop(l, rc, e);
    } else if (rc == E_NOTFOUND) {
        rc = stop(l, E_CORRUPT, e);
    } else {
        *e = why;
    }
    buf_free(&word);
    return rc;
}

/* 0: *out is the next entry. E_NOTFOUND: the slot is empty. E_CHANGED: a checkpoint was restored
 * instead. */
static int examine_slot(struct cluster_log *l, struct log_entry *out, struct err *e)
{
    struct err why = {0};
    uint64_t date_unix_s = 0;
    int rc = read_slot(l, out, &date_unix_s, e), gate = 0;

    if (rc == E_UNSUPPORTED) {
        return stop(l, rc, e);
    }
    if (rc != 0 && rc != E_NOTFOUND && rc != E_CORRUPT) {
        return rc;
    }
    if (rc == E_CORRUPT || !is_believed(l, date_unix_s)) {
        gate = look_for_checkpoint(l, rc != E_NOTFOUND, date_unix_s, &why);
    }
    if (gate != 0) {
        *e = why;
        return gate;
    }
    if (rc == E_NOTFOUND) {
        note_end(l, date_unix_s);
    }
    return rc == E_CORRUPT ? pass_over(l, out, e) : rc;
}

/* --- writing a slot --- */

/* The slot of our entry is covered by a checkpoint, which was restored. */
static int settled_by_restore(struct cluster_log *l, struct err *e)
{
    l->open = false;
    return l->ours_restored ? 0 : err_set(e, E_CHANGED, "a checkpoint was restored");
}

/* 0: our entry is in the slot, and applied. E_CHANGED: another is, and is applied. E_NOTFOUND:
 * nothing is there. */
static int look_into_slot(struct cluster_log *l, struct err *e)
{
    struct log_entry en;
    bool mine;
    int rc = examine_slot(l, &en, e);

    if (rc == E_CHANGED) {
        return settled_by_restore(l, e);
    }
    if (rc != 0) {
        return rc;
    }
    mine = digest_eq(&en.own, &l->ours);
    rc = apply(l, &en, e);
    if (rc == 0) {
        l->open = false;
    }
    return rc != 0 ? rc : mine ? 0 : err_set(e, E_CHANGED, "another node was first");
}

/* 0: our entry is in the slot, and applied. E_CHANGED: a checkpoint was restored. Another code:
 * *created says whether our entry is in the slot, but could not be applied; !l->open: it was
 * refused. */
static int create_in_slot(struct cluster_log *l, const char *key, bool *created, struct err *e)
{
    struct log_entry en;
    uint64_t date_unix_s;
    int rc = bucket_create_dated(l->b, key, buf_slice(&l->entry), &date_unix_s, e);

    l->open = l->open || rc == 0 || rc == E_EXISTS || bucket_is_undecided(rc);
    if (rc != 0) {
        return rc;
    }
    if (!is_believed(l, date_unix_s)) {
        rc = look_for_checkpoint(l, false, date_unix_s, e);
    }
    if (rc != 0) {
        return rc == E_CHANGED ? settled_by_restore(l, e) : rc;
    }
    *created = true;
    note_end(l, date_unix_s);
    if (l->set.ops->created != NULL) {
        l->set.ops->created(l->set.arg, l->applied + 1);
    }
    rc = log_entry_read(buf_slice(&l->entry), &en, e);
    CHECK(rc == 0);
    rc = apply(l, &en, e);
    l->open = rc != 0;
    return rc;
}

/* As look_into_slot(), and never E_NOTFOUND. E_AGAIN: the slot is open. */
static int settle(struct cluster_log *l, bool create_first, struct err *e)
{
    uint64_t limit_ms = clock_now_ms() + l->set.settle_ms;
    char key[LOG_KEY_ROOM];
    bool create = create_first, created = false;

    log_key(l->applied + 1, key);
    for (unsigned tries = 0;; tries++) {
        struct err why = {0};
        int rc = check_interrupted(l, &why);

        if (rc == 0 && create) {
            rc = create_in_slot(l, key, &created, &why);
            if (rc != 0 && !created && l->open && l->stopped.code == 0) {
                rc = look_into_slot(l, &why);
            }
        } else if (rc == 0) {
            rc = look_into_slot(l, &why);
        }
        if (rc == 0 || rc == E_CHANGED || rc == E_CANCELLED || created || !l->open ||
            l->stopped.code != 0) {
            *e = why; /* !l->open: refused, and never sent before */
            return rc;
        }
        create = rc == E_NOTFOUND;
        if (clock_now_ms() >= limit_ms) {
            return err_set(e, E_AGAIN,
                           "the cluster's bucket does not say what became of a commit: "
                           "%.120s",
                           why.text);
        }
        pause_for(l, tries);
    }
}

/* An open slot comes before anything else. */
static int settle_open_slot(struct cluster_log *l, struct err *e)
{
    int rc;

    if (l->stopped.code != 0) {
        *e = l->stopped;
        return l->stopped.code;
    }
    if (!l->open) {
        return 0;
    }
    rc = settle(l, false, e);
    return rc == E_CHANGED ? 0 : rc;
}

/* --- committing --- */

/* Which batches go into the entry; the others have failed for good. */
static size_t admit_group(struct cluster_log *l, struct log_batch *batch, size_t n,
                          struct slice *steps)
{
    size_t admitted = 0;

    l->set.ops->begin(l->set.arg);
    for (size_t i = 0; i < n; i++) {
        struct log_batch *b = &batch[i];
        if (b->rc != 0) {
            continue;
        }
        b->rc = l->set.ops->admit(l->set.arg, b->steps, &b->why);
        if (b->rc == 0) {
            steps[admitted++] = b->steps;
        }
    }
    return admitted;
}

static int fail_group(struct log_batch *batch, size_t n, int rc, const struct err *why)
{
    for (size_t i = 0; i < n; i++) {
        if (batch[i].rc == 0) {
            batch[i].rc = rc;
            batch[i].why = *why;
        }
    }
    return rc;
}

static int write_group(struct cluster_log *l, struct log_batch *batch, size_t n, struct err *e)
{
    struct slice steps[LOG_ENTRY_BATCHES_MAX];
    size_t admitted = admit_group(l, batch, n, steps);
    int rc;

    if (admitted == 0) {
        return 0;
    }
    l->set.author.counter++;
    rc = log_entry_write(l->applied + 1, &l->own, &l->set.author, steps, admitted, &l->entry,
                         &l->ours, e);
    return rc != 0 ? rc : settle(l, true, e);
}

int log_commit(struct cluster_log *l, struct log_batch *batch, size_t n, bool *open, struct err *e)
{
    struct err why = {0};
    int rc;

    CHECK(n <= LOG_ENTRY_BATCHES_MAX);
    for (size_t i = 0; i < n; i++) {
        batch[i].rc = 0;
        err_clear(&batch[i].why);
    }
    *open = false;
    rc = settle_open_slot(l, &why);
    if (rc == 0) {
        do { /* another node was first: check against what it wrote */
            rc = write_group(l, batch, n, &why);
        } while (rc == E_CHANGED);
        *open = l->open;
    }
    if (rc != 0) {
        fail_group(batch, n, rc, &why);
        *e = why;
    }
    return rc;
}

/* --- reading --- */

static int apply_next(struct cluster_log *l, struct err *e)
{
    struct log_entry en;
    int rc = check_interrupted(l, e);

    rc = rc != 0 ? rc : examine_slot(l, &en, e);
    rc = rc != 0 ? rc : apply(l, &en, e);
    if (rc == E_AGAIN && l->untrimmed_unix_s == 0) { /* what it needs was deleted */
        rc = examine_slot(l, &en, e);
        rc = rc != 0 ? rc : apply(l, &en, e);
    }
    return rc == E_CHANGED ? 0 : rc;
}

int log_poll(struct cluster_log *l, struct err *e)
{
    int rc = settle_open_slot(l, e);

    while (rc == 0) {
        rc = apply_next(l, e);
    }
    return rc == E_NOTFOUND ? 0 : rc;
}

/* --- the start --- */

static int refuse_bucket(struct cluster_log *l, const char *what, struct err *e)
{
    err_set(e, E_CORRUPT,
            "%.100s %s entry %" PRIu64 ", which was applied here: the bucket is another one, or "
            "its log was replaced; correct the bucket's address, or start with an empty state",
            bucket_place(l->b), what, l->applied);
    return stop(l, E_CORRUPT, e);
}

static int compare_head(void *arg, const struct checkpoint_head *h, struct err *e)
{
    const struct cluster_log *l = arg;

    return digest_eq(&h->own, &l->own) ? E_EXISTS : err_set(e, E_NOTFOUND, "another log");
}

/* The entry that was applied last is not in the bucket, and no checkpoint is ahead of it: only a
 * checkpoint of the same entry explains that. */
static int look_for_applied(struct cluster_log *l, struct err *e)
{
    static const struct checkpoint_events events = {compare_head, NULL};
    struct newest list = {.n = 0};
    int rc = checkpoint_list(l->b, CHECKPOINTS_TRIED, on_newest, &list, e);

    for (size_t i = 0; rc == 0 && i < list.n && list.c[i].seq >= l->applied; i++) {
        rc = checkpoint_read(l->b, &list.c[i], &events, l, e);
        if (rc == E_EXISTS) {
            return 0;
        }
        rc = rc == E_NOTFOUND || rc == E_CORRUPT ? 0 : rc;
    }
    return rc != 0 ? rc : refuse_bucket(l, "does not have", e);
}

static int compare_bucket(struct cluster_log *l, struct err *e)
{
    char key[LOG_KEY_ROOM];
    uint64_t date_unix_s;
    struct log_entry en;
    bool is_absent;
    int rc;

    log_key(l->applied, key); /* 0: there is none, but its response has a Date */
    rc = bucket_get_dated(l->b, key, &l->theirs, &date_unix_s, e);
    is_absent = rc == E_NOTFOUND;
    if (rc == 0 && log_entry_read(buf_slice(&l->theirs), &en, e) == 0 &&
        !digest_eq(&en.own, &l->own)) {
        return refuse_bucket(l, "has another", e);
    }
    if (rc != 0 && !is_absent) {
        return rc;
    }
    rc = look_for_checkpoint(l, true, date_unix_s, e);
    if (rc == 0 && is_absent && l->applied != 0) {
        rc = look_for_applied(l, e);
    }
    return rc == E_CHANGED ? 0 : rc;
}

struct log_listing {
    uint64_t last; /* all entries from applied + 1 to this one are in the list */
};

static int on_log_key(void *arg, const struct bucket_key *k)
{
    struct log_listing *list = arg;
    char key[LOG_KEY_ROOM];

    log_key(list->last + 1, key);
    if (strcmp(key, k->key) != 0) {
        return E_CHANGED;
    }
    list->last++;
    return 0;
}

/* The last entry that may be read ahead. The list is only a hint, and so is its failure. */
static uint64_t list_ahead(struct cluster_log *l)
{
    struct log_listing list = {l->applied};
    char key[LOG_KEY_ROOM];
    struct err e;

    log_key(l->applied, key);
    if (bucket_list(l->b, "log/0/", key, KEYS_LISTED, on_log_key, &list, &e) != 0) {
        log_debug("cluster.list", "last=%" PRIu64, list.last);
    }
    return list.last;
}

int log_catch_up(struct cluster_log *l, struct err *e)
{
    int rc = settle_open_slot(l, e);
    uint64_t last = 0;

    rc = rc != 0 ? rc : compare_bucket(l, e);
    while (rc == 0 && (last = list_ahead(l)) > l->applied) {
        l->ahead = read_ahead_open(l->b, l->applied + 1, last);
        while (rc == 0 && l->applied < last) {
            rc = apply_next(l, e);
        }
        read_ahead_close(&l->ahead);
    }
    return rc == 0 || rc == E_NOTFOUND ? log_poll(l, e) : rc;
}

/* --- the log itself --- */

struct cluster_log *log_open(struct bucket *b, const struct log_settings *set)
{
    struct cluster_log *l = NEW(struct cluster_log);

    l->b = b;
    l->set = *set;
    l->set.settle_ms = set->settle_ms != 0 ? set->settle_ms : SETTLE_MS;
    l->set.gate_s = set->gate_s != 0 ? set->gate_s : LOG_GATE_S;
    l->applied = set->applied;
    l->own = set->applied_own;
    l->dice = set->author.boot | 1;
    l->entry = BUF_INIT(LOG_ENTRY_BYTES_MAX);
    l->theirs = BUF_INIT(LOG_ENTRY_BYTES_MAX);
    lock_init(&l->lock, LOCK_LEAF);
    cond_init(&l->wake);
    return l;
}

void log_close(struct cluster_log **lp)
{
    struct cluster_log *l = *lp;

    *lp = NULL;
    if (l == NULL) {
        return;
    }
    buf_free(&l->entry);
    buf_free(&l->theirs);
    cond_fini(&l->wake);
    lock_fini(&l->lock);
    free(l);
}

void log_interrupt(struct cluster_log *l)
{
    lock_take(&l->lock);
    l->interrupted = true;
    cond_broadcast(&l->wake);
    lock_drop(&l->lock);
}

uint64_t log_applied(const struct cluster_log *l)
{
    return l->applied;
}

bool log_has_stopped(const struct cluster_log *l, struct err *why)
{
    if (l->stopped.code != 0 && why != NULL) {
        *why = l->stopped;
    }
    return l->stopped.code != 0;
}
