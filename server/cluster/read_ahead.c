#include "server/cluster/read_ahead.h"

#include <stdlib.h>

#include "common/os/lock.h"
#include "server/cluster/log.h"

struct entry_read {
    struct buf bytes;
    uint64_t date_unix_s;
    int rc;
    bool is_over;
};

struct read_ahead {
    struct bucket *b;
    struct lock lock; /* of all that follows, but not of the entries that are not over */
    struct cond changed;
    uint64_t next;  /* to be requested */
    uint64_t taken; /* the first that was not taken yet */
    uint64_t last;
    bool stopping;
    struct entry_read entry[READ_AHEAD_MAX]; /* entry seq is at seq % READ_AHEAD_MAX */
    pthread_t thread[READ_AHEAD_MAX];
    unsigned threads;
};

static bool claim(struct read_ahead *r, uint64_t *seq)
{
    bool more;

    lock_take(&r->lock);
    while (!r->stopping && r->next <= r->last && r->next >= r->taken + READ_AHEAD_MAX) {
        cond_wait(&r->changed, &r->lock);
    }
    more = !r->stopping && r->next <= r->last;
    if (more) {
        *seq = r->next++;
    }
    lock_drop(&r->lock);
    return more;
}

static void *run_read_ahead(void *arg)
{
    struct read_ahead *r = arg;
    char key[LOG_KEY_ROOM];
    uint64_t seq;

    while (claim(r, &seq)) {
        struct entry_read *x = &r->entry[seq % READ_AHEAD_MAX];
        struct err e;

        log_key(seq, key);
        x->rc = bucket_get_dated(r->b, key, &x->bytes, &x->date_unix_s, &e);
        lock_take(&r->lock);
        x->is_over = true;
        cond_broadcast(&r->changed);
        lock_drop(&r->lock);
    }
    return NULL;
}

struct read_ahead *read_ahead_open(struct bucket *b, uint64_t first, uint64_t last)
{
    struct read_ahead *r = NEW(struct read_ahead);

    CHECK(first <= last);
    r->b = b;
    r->next = r->taken = first;
    r->last = last;
    r->threads = (unsigned)min_u64(last - first + 1, READ_AHEAD_MAX);
    lock_init(&r->lock, LOCK_LEAF);
    cond_init(&r->changed);
    for (unsigned i = 0; i < READ_AHEAD_MAX; i++) {
        r->entry[i].bytes = BUF_INIT(LOG_ENTRY_BYTES_MAX);
    }
    for (unsigned i = 0; i < r->threads; i++) {
        r->thread[i] = thread_start("read-ahead", run_read_ahead, r);
    }
    return r;
}

bool read_ahead_take(struct read_ahead *r, uint64_t seq, struct buf *out, uint64_t *date_unix_s)
{
    struct entry_read *x = &r->entry[seq % READ_AHEAD_MAX];
    bool ok = false;

    lock_take(&r->lock);
    if (seq == r->taken && seq <= r->last) {
        while (!x->is_over) {
            cond_wait(&r->changed, &r->lock);
        }
        ok = x->rc == 0;
        if (ok) {
            struct buf other = *out;
            *out = x->bytes;
            x->bytes = other;
            *date_unix_s = x->date_unix_s;
        }
        x->is_over = false;
        r->taken++;
        cond_broadcast(&r->changed);
    }
    lock_drop(&r->lock);
    return ok;
}

void read_ahead_close(struct read_ahead **rp)
{
    struct read_ahead *r = *rp;

    *rp = NULL;
    if (r == NULL) {
        return;
    }
    lock_take(&r->lock);
    r->stopping = true;
    cond_broadcast(&r->changed);
    lock_drop(&r->lock);
    for (unsigned i = 0; i < r->threads; i++) {
        pthread_join(r->thread[i], NULL);
    }
    for (unsigned i = 0; i < READ_AHEAD_MAX; i++) {
        buf_free(&r->entry[i].bytes);
    }
    cond_fini(&r->changed);
    lock_fini(&r->lock);
    free(r);
}
