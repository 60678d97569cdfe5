#include "server/cluster/log.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/base/dice.h"
#include "common/base/log.h"
#include "common/os/clock.h"
#include "common/os/lock.h"

enum {
    SETTLE_MS = 30000,
    PAUSE_MS = 20, /* the first between two tries; it doubles */
    PAUSE_MAX_MS = 1000,
    READS_OF_DAMAGE = 3,
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
    struct lock lock;   /* of what follows */
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
    return rc == E_CORRUPT || rc == E_UNSUPPORTED ? stop(l, rc, &why) : rc;
}

/* --- reading a slot --- */

/* E_NOTFOUND: nothing is there. A damaged entry is read again: the damage may be on the way. */
static int read_slot(struct cluster_log *l, struct log_entry *out, struct err *e)
{
    char key[LOG_KEY_ROOM];
    int rc = 0;

    log_key(l->applied + 1, key);
    for (unsigned i = 0; i < READS_OF_DAMAGE; i++) {
        rc = bucket_get(l->b, key, &l->theirs, e);
        rc = rc != 0 ? rc : log_entry_read(buf_slice(&l->theirs), out, e);
        if (rc != E_CORRUPT) {
            break;
        }
        log_warn("cluster.damaged", "entry=%" PRIu64 " why=\"%s\"", l->applied + 1,
                 e != NULL ? e->text : "");
    }
    if (rc == E_CORRUPT || rc == E_UNSUPPORTED) {
        struct err why = {0};
        err_set(&why, rc, "%s: %.180s", key, e->text);
        *e = why;
        return stop(l, rc, &why);
    }
    return rc;
}

/* --- writing a slot --- */

/* 0: our entry is in the slot, and applied. E_CHANGED: another is, and is applied. E_NOTFOUND:
 * nothing is there. */
static int look_into_slot(struct cluster_log *l, struct err *e)
{
    struct log_entry en;
    bool mine;
    int rc = read_slot(l, &en, e);

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

/* As look_into_slot(), and never E_NOTFOUND. E_AGAIN: the slot is open. */
static int settle(struct cluster_log *l, bool create_first, struct err *e)
{
    uint64_t limit_ms = clock_now_ms() + l->set.settle_ms;
    char key[LOG_KEY_ROOM];
    bool create = create_first;

    log_key(l->applied + 1, key);
    for (unsigned tries = 0;; tries++) {
        struct err why = {0};
        int rc = check_interrupted(l, e);

        if (rc != 0) {
            return rc;
        }
        rc = E_EXISTS;
        if (create) {
            rc = bucket_create(l->b, key, buf_slice(&l->entry), &why);
        }
        if (rc != 0 && rc != E_EXISTS && !bucket_is_undecided(rc) && !l->open) {
            *e = why; /* refused, and never sent before */
            return rc;
        }
        l->open = true;
        if (rc == 0) {
            struct log_entry en;
            rc = log_entry_read(buf_slice(&l->entry), &en, e);
            CHECK(rc == 0);
            rc = apply(l, &en, e);
            l->open = rc != 0;
            return rc;
        }
        rc = look_into_slot(l, &why);
        if (rc == 0 || rc == E_CHANGED || rc == E_CANCELLED || l->stopped.code != 0) {
            *e = why;
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

int log_poll(struct cluster_log *l, struct err *e)
{
    struct log_entry en;
    int rc = settle_open_slot(l, e);

    while (rc == 0) {
        rc = check_interrupted(l, e);
        rc = rc != 0 ? rc : read_slot(l, &en, e);
        rc = rc != 0 ? rc : apply(l, &en, e);
    }
    return rc == E_NOTFOUND ? 0 : rc;
}

/* --- the log itself --- */

struct cluster_log *log_open(struct bucket *b, const struct log_settings *set)
{
    struct cluster_log *l = NEW(struct cluster_log);

    l->b = b;
    l->set = *set;
    l->set.settle_ms = set->settle_ms != 0 ? set->settle_ms : SETTLE_MS;
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
