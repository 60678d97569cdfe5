#include "server/cluster/member.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/base/log.h"
#include "common/os/clock.h"
#include "common/os/lock.h"
#include "server/cluster/member_document.h"

#define PREFIX "node/"

enum {
    LISTED_MAX = 10000,
    LOST_S = 24 * 3600,
    CLONE_CHANGES = 2,
    NEWS_MS = 1000, /* between looks for what should be announced before the next beat */
    BEATS_MS = 100, /* at least, between beats: others ask for them */
    PAUSE_MAX_S = 3600,
    ADDRESS_BEATS = 6, /* a mirror that ended before this one began is silent for longer */
    HEARD_MAX = 4 * MEMBERS_MAX, /* of more, those that are silent longest are forgotten */
};

/* What the object of this node says, if another boot wrote it. */
struct foreign {
    char boot[MEMBER_BOOT_ROOM]; /* "": none has */
    uint64_t beat;
    uint64_t since_ms; /* so it has been, for us */
    unsigned changes;
    char address[MEMBER_ADDRESS_ROOM];
};

struct heard { /* a node, alive or not */
    char node[MEMBER_ID_ROOM];
    uint64_t unix_s; /* when it was last heard of, by the bucket's clock */
};

struct members {
    struct members_settings set;
    pthread_t thread;
    bool started, has_left;
    /* The thread's own: */
    uint64_t beat;
    bool written;                /* the object is there, and ours */
    uint64_t pauses_until_ms;    /* of the latest pause that was announced */
    enum member_state announced; /* the others know of it */
    uint64_t begun_ms;           /* the last beat */
    struct foreign foreign;
    struct lock lock; /* LOCK_MEMBERS; guards what follows */
    struct cond wake;
    bool closing, changed;      /* changed: the state, and it is to be announced */
    uint64_t begun, read, done; /* beats: that began, that have read of the others, that ended */
    struct cond progress;
    bool rests;
    enum member_state state;
    char cloned[MEMBER_ADDRESS_ROOM + 1]; /* "@" and the other one's address; "": it is not */
    struct member other[MEMBERS_MAX];
    size_t count;
    bool complete;  /* the list was read, and other[] has all that it had */
    struct recent { /* all that were heard of within MEMBER_AWAY_MS */
        struct member member;
        uint64_t seen_ms; /* its latest announcement, by our clock */
    } recent[2 * MEMBERS_MAX];
    size_t recent_count;
    struct heard heard[HEARD_MAX];
    uint64_t listed_unix_s; /* when the list was last read, by the bucket's clock; 0: never */
    struct member_pause pause[MEMBER_PAUSES_MAX]; /* left_ms: at read_ms */
    size_t pauses;
    uint64_t read_ms; /* 0: never */
};

static void key_of_node(const char *node, char key[BUCKET_KEY_ROOM])
{
    snprintf(key, BUCKET_KEY_ROOM, PREFIX "%s", node);
}

/* --- states --- */

static const char *const states[] = {[MEMBER_JOINING] = "joining",
                                     [MEMBER_READY] = "ready",
                                     [MEMBER_LEAVING] = "leaving",
                                     [MEMBER_LEFT] = "left"};

const char *member_state_name(enum member_state state)
{
    return states[state];
}

enum member_state members_state(struct members *m)
{
    enum member_state state;

    lock_take(&m->lock);
    state = m->state;
    lock_drop(&m->lock);
    return state;
}

/* --- whose object is it? --- */

static void boot_text(const struct members *m, char out[MEMBER_BOOT_ROOM])
{
    snprintf(out, MEMBER_BOOT_ROOM, "%016" PRIx64, m->set.boot);
}

static void note_clone(struct members *m)
{
    lock_take(&m->lock);
    snprintf(m->cloned, sizeof m->cloned, "@%s", m->foreign.address);
    lock_drop(&m->lock);
}

/* True: it may be overwritten. */
static bool judge_foreign(struct members *m, const struct foreign *now)
{
    struct foreign *was = &m->foreign;
    uint64_t now_ms = clock_now_ms(), beats;

    if (strcmp(was->boot, now->boot) == 0 && was->beat == now->beat) {
        beats = now->address[0] != '\0' && strcmp(now->address, m->set.self.address) == 0 ? 1 : 2;
        return now_ms - was->since_ms > beats * m->set.beat_ms + m->set.beat_ms / 5;
    }
    was->changes = was->boot[0] != '\0' ? was->changes + 1 : 0;
    memcpy(was->boot, now->boot, sizeof was->boot);
    memcpy(was->address, now->address, sizeof was->address);
    was->beat = now->beat;
    was->since_ms = now_ms;
    if (was->changes == CLONE_CHANGES) {
        note_clone(m);
    }
    return false;
}

/* One that cannot be read is of another version, and says nothing. */
static bool may_overwrite(struct members *m, struct slice bytes)
{
    struct foreign now = {0};
    struct member_document d;
    char mine[MEMBER_BOOT_ROOM];

    boot_text(m, mine);
    if (!member_document_read(bytes, &d) || d.boot[0] == '\0' || strcmp(d.boot, mine) == 0) {
        return true;
    }
    memcpy(now.boot, d.boot, sizeof now.boot);
    memcpy(now.address, d.member.address, sizeof now.address);
    now.beat = d.beat;
    return judge_foreign(m, &now);
}

static int look_at_own(struct members *m, bool *ours, struct err *e)
{
    struct buf doc = BUF_INIT(MEMBER_DOCUMENT_BYTES);
    char key[BUCKET_KEY_ROOM];
    int rc;

    key_of_node(m->set.self.node, key);
    rc = bucket_get(m->set.bucket, key, &doc, e);
    *ours = rc == E_NOTFOUND || (rc == 0 && may_overwrite(m, buf_slice(&doc)));
    buf_free(&doc);
    return rc == E_NOTFOUND ? 0 : rc;
}

/* --- this node --- */

static int withdraw(struct members *m, struct err *e)
{
    char key[BUCKET_KEY_ROOM];
    int rc;

    key_of_node(m->set.self.node, key);
    rc = bucket_delete(m->set.bucket, key, e);
    m->written = m->written && rc != 0;
    return rc;
}

/* When the last of these pauses ends. */
static uint64_t pauses_until_ms(const struct member_pause *pause, size_t n)
{
    uint64_t longest_ms = 0;

    for (size_t i = 0; i < n; i++) {
        longest_ms = max_u64(longest_ms, pause[i].left_ms);
    }
    return n != 0 ? clock_now_ms() + longest_ms : 0;
}

static size_t own_pauses(struct members *m, struct member_pause out[MEMBER_PAUSES_MAX])
{
    return m->set.pauses != NULL ? m->set.pauses(m->set.arg, out, MEMBER_PAUSES_MAX) : 0;
}

static void note_pauses(struct members *m, struct member_document *d)
{
    struct member_pause pause[MEMBER_PAUSES_MAX];
    size_t n = own_pauses(m, pause);
    uint64_t now_unix_s = bucket_date_unix_s(m->set.bucket);

    m->pauses_until_ms = pauses_until_ms(pause, n);
    d->pauses = now_unix_s != 0 ? n : 0;
    for (size_t i = 0; i < d->pauses; i++) {
        d->pause[i].origin = pause[i].origin;
        d->pause[i].until_unix_s = now_unix_s + (pause[i].left_ms + 999) / 1000;
    }
}

/* An origin has asked for a longer pause than what was announced: the others should hear of it
 * now. */
static bool has_news(struct members *m)
{
    struct member_pause pause[MEMBER_PAUSES_MAX];
    size_t n = own_pauses(m, pause);

    return pauses_until_ms(pause, n) > m->pauses_until_ms + NEWS_MS;
}

static int write_own(struct members *m, enum member_state state, struct err *e)
{
    struct member_document d = {.member = m->set.self, .beat = ++m->beat};
    struct buf bytes = BUF_INIT(MEMBER_DOCUMENT_BYTES);
    char key[BUCKET_KEY_ROOM];
    int rc;

    d.member.state = state;
    d.member.applied = m->set.applied(m->set.arg);
    d.member.stopped = m->set.stopped(m->set.arg);
    boot_text(m, d.boot);
    note_pauses(m, &d);
    member_document_write(&d, &bytes);
    key_of_node(m->set.self.node, key);
    rc = bucket_put(m->set.bucket, key, buf_slice(&bytes), e);
    m->written = m->written || rc == 0;
    buf_free(&bytes);
    return rc;
}

static int announce(struct members *m, enum member_state state, struct err *e)
{
    bool ours;
    int rc;

    if (state == MEMBER_LEFT && !m->written) {
        return 0;
    }
    rc = look_at_own(m, &ours, e);
    if (rc != 0 || !ours) {
        m->written = m->written && rc != 0;
        return rc;
    }
    return state == MEMBER_LEFT ? withdraw(m, e) : write_own(m, state, e);
}

/* --- the others --- */

struct roll { /* one reading of the list */
    struct members *m;
    uint64_t now_unix_s;        /* by the bucket's clock */
    char lost[BUCKET_KEY_ROOM]; /* a node that has been silent for a day; "": none */
    struct member seen[MEMBERS_MAX];
    size_t count;
    struct member_pause pause[MEMBER_PAUSES_MAX];
    size_t pauses;
};

/* Under the lock: the node's place, or the place of the one that has been silent for longest. */
static struct heard *place_of(struct members *m, const char *node)
{
    struct heard *oldest = &m->heard[0];

    for (size_t i = 0; i < HEARD_MAX; i++) {
        struct heard *h = &m->heard[i];
        if (strcmp(h->node, node) == 0) {
            return h;
        }
        oldest = h->unix_s < oldest->unix_s ? h : oldest;
    }
    return oldest;
}

static void note_heard(struct members *m, const char *node, uint64_t unix_s)
{
    struct heard *h;

    lock_take(&m->lock);
    h = place_of(m, node);
    if (strcmp(h->node, node) != 0 || h->unix_s < unix_s) {
        snprintf(h->node, sizeof h->node, "%s", node);
        h->unix_s = unix_s;
    }
    lock_drop(&m->lock);
}

static uint64_t dead_s(const struct members *m)
{
    return max_u64(m->set.beat_ms * MEMBER_DEAD_BEATS / 1000, MEMBER_DEAD_MIN_S);
}

static int on_listed_node(void *arg, const struct bucket_key *k)
{
    struct roll *r = arg;
    const char *node = k->key + strlen(PREFIX);

    if (strlen(node) < MEMBER_ID_ROOM) {
        note_heard(r->m, node, k->modified_unix_s);
    }
    if (k->modified_unix_s + LOST_S < r->now_unix_s) {
        snprintf(r->lost, sizeof r->lost, "%s", k->key);
    }
    if (r->count < MEMBERS_MAX && strlen(node) < MEMBER_ID_ROOM &&
        strcmp(node, r->m->set.self.node) != 0) {
        struct member *x = &r->seen[r->count++];
        *x = (struct member){.written_unix_s = k->modified_unix_s};
        x->silent_s = r->now_unix_s - min_u64(r->now_unix_s, k->modified_unix_s);
        x->alive = x->silent_s <= dead_s(r->m);
        snprintf(x->node, sizeof x->node, "%s", node);
    }
    return 0;
}

/* What the same origin has asked of two nodes is noted twice: the longer pause counts. */
static void add_pauses(struct roll *r, const struct member_document *d)
{
    for (size_t i = 0; i < d->pauses && r->pauses < MEMBER_PAUSES_MAX; i++) {
        const struct announced_pause *p = &d->pause[i];
        if (p->until_unix_s > r->now_unix_s) {
            r->pause[r->pauses++] = (struct member_pause){
                p->origin, min_u64(p->until_unix_s - r->now_unix_s, PAUSE_MAX_S) * 1000};
        }
    }
}

static bool fetch_member(struct roll *r, struct member *x)
{
    struct buf bytes = BUF_INIT(MEMBER_DOCUMENT_BYTES);
    struct member_document d;
    char key[BUCKET_KEY_ROOM];
    bool ok;

    key_of_node(x->node, key);
    ok = bucket_get(r->m->set.bucket, key, &bytes, NULL) == 0 &&
         member_document_read(buf_slice(&bytes), &d);
    buf_free(&bytes);
    if (ok) {
        memcpy(d.member.node, x->node, sizeof x->node);
        d.member.alive = x->alive;
        d.member.written_unix_s = x->written_unix_s;
        d.member.silent_s = x->silent_s;
        *x = d.member;
    }
    if (ok && x->alive) {
        add_pauses(r, &d);
    }
    return ok;
}

/* Under the lock. */
static void remember(struct members *m, const struct member *x, uint64_t now_ms)
{
    uint64_t silent_ms = x->silent_s * 1000;
    size_t i = 0;

    while (i < m->recent_count && strcmp(m->recent[i].member.node, x->node) != 0) {
        i++;
    }
    if (i == ARRAY_LEN(m->recent)) {
        return;
    }
    if (i == m->recent_count) {
        m->recent[i].seen_ms = now_ms - min_u64(now_ms, silent_ms);
    } else if (m->recent[i].member.written_unix_s != x->written_unix_s) {
        m->recent[i].seen_ms = now_ms;
    }
    m->recent[i].member = *x;
    m->recent_count += i == m->recent_count;
}

/* Under the lock. */
static void note_recent(struct members *m, const struct member *x, size_t n)
{
    uint64_t now_ms = clock_now_ms();
    size_t kept = 0;

    for (size_t i = 0; i < m->recent_count; i++) {
        if (m->recent[i].seen_ms + MEMBER_AWAY_MS > now_ms) {
            m->recent[kept++] = m->recent[i];
        }
    }
    m->recent_count = kept;
    for (size_t i = 0; i < n; i++) {
        if (x[i].silent_s * 1000 < MEMBER_AWAY_MS) {
            remember(m, &x[i], now_ms);
        }
    }
}

/* A mirror that has taken the place of a lost one has its address; the lost one, which counts as
 * alive for a while, has none any more. */
static bool has_newer_at_address(const struct roll *r, const struct member *x)
{
    if (strcmp(x->address, r->m->set.self.address) == 0) {
        return true;
    }
    for (size_t i = 0; i < r->count; i++) {
        const struct member *y = &r->seen[i];
        if (y != x && y->silent_s < x->silent_s && strcmp(y->address, x->address) == 0) {
            return true;
        }
    }
    return false;
}

/* An address that was copied with the configuration. */
static void warn_of_address(struct members *m, const struct member *x)
{
    if (m->beat == ADDRESS_BEATS && strcmp(x->address, m->set.self.address) == 0 &&
        x->silent_s * 1000 < ADDRESS_BEATS * m->set.beat_ms) {
        log_warn("cluster.address_twice",
                 "address=%s node=%s: that mirror announces the address of this one; give each "
                 "its own",
                 x->address, x->node);
    }
}

static void judge_addresses(struct roll *r)
{
    for (size_t i = 0; i < r->count; i++) {
        struct member *x = &r->seen[i];
        if (x->address[0] != '\0' && has_newer_at_address(r, x)) {
            warn_of_address(r->m, x);
            x->address[0] = '\0';
        }
    }
}

static int read_others(struct members *m, struct err *e)
{
    struct roll *r = NEW(struct roll);
    size_t kept = 0;
    bool complete;
    int rc;

    r->m = m;
    r->now_unix_s = bucket_date_unix_s(m->set.bucket); /* of our own announcement */
    rc = bucket_list(m->set.bucket, PREFIX, "", LISTED_MAX, on_listed_node, r, e);
    for (size_t i = 0; rc == 0 && i < r->count; i++) {
        if (fetch_member(r, &r->seen[i])) {
            r->seen[kept++] = r->seen[i];
        }
    }
    complete = kept == r->count && r->count < MEMBERS_MAX;
    r->count = kept;
    if (rc == 0) {
        judge_addresses(r);
    }
    if (rc == 0 && r->lost[0] != '\0') { /* one at a time: there is no hurry */
        (void)!bucket_delete(m->set.bucket, r->lost, NULL);
    }
    if (rc == 0) {
        lock_take(&m->lock);
        memcpy(m->other, r->seen, kept * sizeof m->other[0]);
        m->count = m->rests ? 0 : kept;
        m->complete = !m->rests && complete;
        note_recent(m, r->seen, kept);
        m->listed_unix_s = r->now_unix_s;
        memcpy(m->pause, r->pause, r->pauses * sizeof m->pause[0]);
        m->pauses = r->pauses;
        m->read_ms = clock_now_ms();
        lock_drop(&m->lock);
        if (m->set.read != NULL) {
            m->set.read(m->set.arg, m);
        }
    }
    free(r);
    return rc;
}

/* --- the thread --- */

static bool is_resting(struct members *m)
{
    bool yes;

    lock_take(&m->lock);
    yes = m->rests;
    lock_drop(&m->lock);
    return yes;
}

/* True: it is time to end. */
static bool wait_for_beat(struct members *m)
{
    uint64_t due_ms = clock_now_ms() + m->set.beat_ms, now_ms;
    bool closing, wait = true;

    lock_take(&m->lock);
    while (!m->closing && (now_ms = clock_now_ms()) < m->begun_ms + BEATS_MS) {
        cond_wait_ms(&m->wake, &m->lock, m->begun_ms + BEATS_MS - now_ms);
    }
    lock_drop(&m->lock);
    while (wait && (now_ms = clock_now_ms()) < due_ms) {
        lock_take(&m->lock);
        if (!m->closing && !m->changed) {
            cond_wait_ms(&m->wake, &m->lock, min_u64(due_ms - now_ms, NEWS_MS));
        }
        wait = !m->closing && !m->changed;
        lock_drop(&m->lock);
        wait = wait && !has_news(m);
    }
    lock_take(&m->lock);
    closing = m->closing;
    lock_drop(&m->lock);
    return closing;
}

static void note_progress(struct members *m, uint64_t *count)
{
    lock_take(&m->lock);
    *count = m->begun;
    cond_broadcast(&m->progress);
    lock_drop(&m->lock);
}

/* Of a state that has been announced. */
static void tell_others(struct members *m, enum member_state state)
{
    struct member other[MEMBERS_MAX];
    size_t n = state != m->announced ? members_others(m, other, MEMBERS_MAX) : 0;

    m->announced = state;
    if (n != 0 && m->set.tell != NULL) {
        m->set.tell(m->set.arg, other, n);
    }
}

static void run_beat(struct members *m)
{
    enum member_state state;
    struct err e = {0};
    int rc;

    lock_take(&m->lock);
    m->changed = false;
    m->begun++;
    state = m->state;
    lock_drop(&m->lock);
    m->begun_ms = clock_now_ms();
    rc = announce(m, state, &e);
    rc = rc != 0 || is_resting(m) ? rc : read_others(m, &e);
    if (rc != 0 && rc != E_CANCELLED) {
        log_debug("cluster.members", "why=\"%s\"", e.text);
    }
    note_progress(m, &m->read);
    if (rc == 0) {
        tell_others(m, state);
    }
    note_progress(m, &m->done);
}

static void *run_members(void *arg)
{
    struct members *m = arg;
    bool closing = false;

    while (!closing) {
        run_beat(m);
        closing = wait_for_beat(m);
    }
    return NULL;
}

/* Until that beat has come to *reached. Under the lock. */
static bool wait_for_progress(struct members *m, const uint64_t *reached, uint64_t beat,
                              uint64_t wait_ms)
{
    uint64_t end_ms = clock_now_ms() + wait_ms, now_ms;

    while (*reached < beat && !m->closing && (now_ms = clock_now_ms()) < end_ms) {
        cond_wait_ms(&m->progress, &m->lock, end_ms - now_ms);
    }
    return *reached >= beat;
}

/* Has a beat begin now. */
static bool wait_for_next(struct members *m, const uint64_t *reached, uint64_t wait_ms)
{
    bool yes;

    lock_take(&m->lock);
    m->changed = true;
    cond_signal(&m->wake);
    yes = wait_for_progress(m, reached, m->begun + 1, wait_ms);
    lock_drop(&m->lock);
    return yes;
}

bool members_beat_now(struct members *m, uint64_t wait_ms)
{
    return wait_for_next(m, &m->done, wait_ms);
}

bool members_read_now(struct members *m, uint64_t wait_ms)
{
    return wait_for_next(m, &m->read, wait_ms);
}

struct members *members_open(const struct members_settings *set)
{
    struct members *m = NEW(struct members);

    m->set = *set;
    m->set.beat_ms = set->beat_ms != 0 ? set->beat_ms : MEMBER_BEAT_MS;
    m->set.self.weight = (uint32_t)max_u64(set->self.weight, 1);
    m->set.gone_s = set->gone_s != 0 ? set->gone_s : MEMBER_GONE_S;
    lock_init(&m->lock, LOCK_MEMBERS);
    cond_init(&m->wake);
    cond_init(&m->progress);
    return m;
}

void members_start(struct members *m)
{
    CHECK(!m->has_left);
    lock_take(&m->lock);
    m->rests = false;
    m->changed = true;
    cond_signal(&m->wake);
    lock_drop(&m->lock);
    if (m->started) {
        return;
    }
    m->thread = thread_start("members", run_members, m);
    m->started = true;
}

void members_await_first(struct members *m, uint64_t ms)
{
    lock_take(&m->lock);
    (void)!wait_for_progress(m, &m->read, 1, ms);
    lock_drop(&m->lock);
}

void members_set_state(struct members *m, enum member_state state)
{
    lock_take(&m->lock);
    m->changed = m->changed || m->state != state;
    m->state = state;
    cond_signal(&m->wake);
    lock_drop(&m->lock);
}

void members_rest(struct members *m)
{
    lock_take(&m->lock);
    m->rests = m->changed = true;
    m->state = MEMBER_LEFT;
    m->count = 0;
    m->complete = false;
    cond_signal(&m->wake);
    lock_drop(&m->lock);
}

bool members_is_cloned(struct members *m, char address[MEMBER_ADDRESS_ROOM])
{
    bool yes;

    lock_take(&m->lock);
    yes = m->cloned[0] != '\0';
    snprintf(address, MEMBER_ADDRESS_ROOM, "%s", yes ? m->cloned + 1 : "");
    lock_drop(&m->lock);
    return yes;
}

void members_leave(struct members *m)
{
    struct err e = {0};

    if (m == NULL || m->has_left) {
        return;
    }
    m->has_left = true;
    lock_take(&m->lock);
    m->closing = true;
    cond_signal(&m->wake);
    cond_broadcast(&m->progress);
    lock_drop(&m->lock);
    if (m->started) {
        pthread_join(m->thread, NULL);
    }
    if (!m->written) {
        return;
    }
    if (withdraw(m, &e) == 0) {
        tell_others(m, MEMBER_LEAVING); /* there may have been no beat since it began to leave */
    } else {
        log_debug("cluster.members", "why=\"%s\"", e.text);
    }
}

void members_close(struct members **mp)
{
    struct members *m = *mp;

    *mp = NULL;
    if (m != NULL) {
        cond_fini(&m->wake);
        cond_fini(&m->progress);
        lock_fini(&m->lock);
        free(m);
    }
}

size_t members_others(struct members *m, struct member *out, size_t room)
{
    size_t n = 0;

    lock_take(&m->lock);
    for (size_t i = 0; i < m->count && n < room; i++) {
        if (m->other[i].alive) {
            out[n++] = m->other[i];
        }
    }
    lock_drop(&m->lock);
    return n;
}

size_t members_all(struct members *m, struct member *out, size_t room)
{
    size_t n;

    CHECK(room != 0);
    out[0] = m->set.self;
    out[0].alive = true;
    out[0].applied = m->set.applied(m->set.arg);
    out[0].stopped = m->set.stopped(m->set.arg);
    lock_take(&m->lock);
    out[0].state = m->state;
    out[0].alive = m->state != MEMBER_LEFT;
    n = min_u64(m->count, room - 1);
    memcpy(out + 1, m->other, n * sizeof out[0]);
    lock_drop(&m->lock);
    return n + 1;
}

uint64_t members_format(struct members *m)
{
    uint64_t newest = m->set.self.format, now_ms = clock_now_ms();
    bool complete;

    lock_take(&m->lock);
    complete = m->complete;
    for (size_t i = 0; i < m->count; i++) {
        newest = min_u64(newest, m->other[i].format);
    }
    for (size_t i = 0; i < m->recent_count; i++) {
        if (m->recent[i].seen_ms + MEMBER_AWAY_MS > now_ms) {
            newest = min_u64(newest, m->recent[i].member.format);
        }
    }
    lock_drop(&m->lock);
    return complete ? newest : 0;
}

/* Under the lock. */
static bool are_known(const struct members *m)
{
    return !m->started || m->rests || m->read_ms != 0;
}

bool members_are_known(struct members *m)
{
    bool known;

    lock_take(&m->lock);
    known = are_known(m);
    lock_drop(&m->lock);
    return known;
}

size_t members_recent(struct members *m, struct member *out, size_t room)
{
    uint64_t now_ms = clock_now_ms();
    size_t n = 0;

    lock_take(&m->lock);
    for (size_t i = 0; i < m->recent_count && n < room; i++) {
        if (m->recent[i].member.address[0] != '\0' &&
            m->recent[i].seen_ms + MEMBER_AWAY_MS > now_ms) {
            out[n++] = m->recent[i].member;
        }
    }
    lock_drop(&m->lock);
    return n;
}

static bool has_digits(const struct member *x, struct slice digits)
{
    return slice_starts(slice_str(x->node), digits);
}

bool members_is_alive(struct members *m, const char *node)
{
    bool alive = false;

    lock_take(&m->lock);
    for (size_t i = 0; i < m->count && !alive; i++) {
        alive = m->other[i].alive && strcmp(m->other[i].node, node) == 0;
    }
    lock_drop(&m->lock);
    return alive;
}

enum member_presence members_find(struct members *m, struct slice digits, struct member *out)
{
    enum member_presence found;
    uint64_t now_ms = clock_now_ms();

    lock_take(&m->lock);
    found = are_known(m) ? MEMBER_UNKNOWN : MEMBER_AWAY;
    for (size_t i = 0; i < m->recent_count; i++) {
        if (has_digits(&m->recent[i].member, digits) &&
            m->recent[i].seen_ms + MEMBER_AWAY_MS > now_ms) {
            *out = m->recent[i].member;
            found = MEMBER_AWAY;
        }
    }
    for (size_t i = 0; i < m->count; i++) {
        if (m->other[i].alive && has_digits(&m->other[i], digits)) {
            *out = m->other[i];
            found = MEMBER_ALIVE;
        }
    }
    lock_drop(&m->lock);
    return found;
}

size_t members_pauses(struct members *m, struct member_pause *out, size_t room)
{
    uint64_t passed_ms;
    size_t n = 0;

    lock_take(&m->lock);
    passed_ms = clock_now_ms() - m->read_ms;
    for (size_t i = 0; i < m->pauses && n < room; i++) {
        if (m->pause[i].left_ms > passed_ms) {
            out[n] = m->pause[i];
            out[n++].left_ms -= passed_ms;
        }
    }
    lock_drop(&m->lock);
    return n;
}

bool members_is_gone(struct members *m, const char *node)
{
    struct heard *h;
    bool gone = false;

    lock_take(&m->lock);
    h = place_of(m, node);
    if (strcmp(h->node, node) == 0) {
        gone = m->listed_unix_s >= h->unix_s + m->set.gone_s;
    } else if (m->listed_unix_s != 0) {
        snprintf(h->node, sizeof h->node, "%s", node);
        h->unix_s = m->listed_unix_s;
    }
    lock_drop(&m->lock);
    return gone;
}
