/* cluster_node.c - a node of a cluster without a mirror around it: it publishes versions of trees
 * through the log, and writes down what it asked and what it was told, for
 * tests/harness/history.py.
 *
 * cluster_node ENDPOINT URL KEYS probe
 *     Probes the bucket: prints each step, exits 0 or with the error's sysexits code.
 * cluster_node ENDPOINT URL KEYS publish HISTORY NODE TREES COUNT SETTLE_MS [OPTION...]
 *     Publishes COUNT versions of trees that it draws among TREES, in groups of 1 to 4, and reads
 *     after each. SIGTERM interrupts the log and the bucket: the node then ends soon. Options:
 *     lost-is-no     is a mistake for the checker to find: an outcome that is unknown is reported
 *                    as a failure
 *     gate=S         log_settings.gate_s. Without an end (gate=never) it is a mistake, too
 *     state=FILE     keeps rows and position in FILE; without, a start begins with nothing
 *     checkpoint=N   writes a checkpoint after each N groups
 *     trim=S         and trims then what is older than S seconds
 *     wait=FILE      publishes nothing more while FILE exists, and does not look at the log
 * cluster_node ENDPOINT URL KEYS checkpoint HISTORY NODE TREES PART_BYTES
 *     Catches up, then writes a checkpoint in parts of at most PART_BYTES, and prints its key.
 * cluster_node ENDPOINT URL KEYS trim AGE_S
 *     Trims, and prints what was deleted.
 *
 * cluster_node ENDPOINT URL KEYS store HISTORY NODE TREES COUNT SETTLE_MS STATE_DIR [used]
 *     The same through a store with a sequencer, by four clients at the same time. Trees are rows
 *     of TABLE_PIN, because those are shared and nothing else writes them here. Each publish also
 *     writes a row of TABLE_META, which is not shared: the start reports what it has. used: the
 *     store has a shared row before.
 *
 * A tree is a row of table 1: its key is the tree's number, its value "VERSION NAME", where NAME is
 * the value that this version added. Each publish requires the row that it read.
 */
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "common/base/dice.h"
#include "common/os/clock.h"
#include "common/os/lock.h"
#include "server/cluster/checkpoint.h"
#include "server/cluster/log.h"
#include "server/cluster/log_trim.h"
#include "server/cluster/probe.h"
#include "server/cluster/sequencer.h"

enum { TREES_MAX = 64, NODES_MAX = 64, GROUP = 4, NAME_ROOM = 64, ROW_ROOM = 96, TRIES = 3 };
enum { KEY_ROOM = 16, WAIT_MS = 10 };

struct tree {
    uint64_t version;
    char name[NAME_ROOM]; /* of the value that was added last */
};

/* What a restore replaces in one step, and what state=FILE keeps. */
struct restored {
    struct tree tree[TREES_MAX];
    struct log_entry_author last[NODES_MAX]; /* counter 0: none */
    uint64_t seq;
    struct digest own;
};

struct node {
    struct bucket *bucket;
    struct cluster_log *log;
    struct tree tree[TREES_MAX], pending[TREES_MAX];
    struct log_entry_author last[NODES_MAX];
    struct digest own; /* of the last entry that is applied */
    struct restored restored;
    const char *state, *wait;
    uint64_t checkpoint_groups, trim_s;
    bool trims;
    unsigned trees;
    unsigned number, client;
    uint64_t boot, counter, dice;
    uint64_t confirmed_ns;  /* clock_now_ns(): the log had no further entry then */
    uint64_t boot_ahead_ns; /* clock_boot_ms() is at most that much ahead */
    bool lost_is_no;
    int history;
};

/* --- the history --- */

static void say(struct node *n, const char *fmt, ...) PRINTF_LIKE(2, 3);
static void say(struct node *n, const char *fmt, ...)
{
    struct buf line = BUF_INIT(1024);
    va_list ap;

    buf_addf(&line,
             "{\"node\": %u, \"boot\": \"%016" PRIx64 "\", \"client\": %u, \"at\": %" PRIu64 ", ",
             n->number, n->boot, n->client, clock_now_ns());
    va_start(ap, fmt);
    buf_vaddf(&line, fmt, ap);
    va_end(ap);
    buf_str(&line, "}\n");
    CHECK(line.rc == 0);
    CHECK(write(n->history, line.p, line.n) == (ssize_t)line.n); /* O_APPEND: a line stays whole */
    buf_free(&line);
}

/* --- rows --- */

static void row_write(const struct tree *t, struct buf *out)
{
    buf_clear(out);
    buf_addf(out, "%" PRIu64 " %s", t->version, t->name);
}

static void row_read(struct slice row, struct tree *t)
{
    struct slice version = slice_cut(&row, ' ');

    CHECK(slice_u64(version, &t->version) && row.n < NAME_ROOM);
    snprintf(t->name, NAME_ROOM, SLICE_FMT, SLICE_ARG(row));
}

static struct tree *tree_of(struct node *n, struct tree *in, const struct log_entry_step *st)
{
    uint64_t number;

    CHECK(st->table == 1 && slice_u64(st->key, &number) && number < n->trees);
    return &in[number];
}

static int take(struct node *n, struct slice batch, struct tree *in, struct err *e)
{
    struct buf row = BUF_INIT(ROW_ROOM);
    struct slice rest = batch;
    struct log_entry_step st;
    int rc = 0;

    while (rc == 0 && log_entry_step_next(&rest, &st)) {
        struct tree *t = tree_of(n, in, &st);
        row_write(t, &row);
        if (st.op == LOG_ENTRY_REQUIRE_ABSENT && t->version != 0) {
            rc = err_set(e, E_CHANGED, "the tree exists");
        } else if (st.op == LOG_ENTRY_REQUIRE_VALUE && !slice_eq(buf_slice(&row), st.value)) {
            rc = err_set(e, E_CHANGED, "the tree was changed in the meantime");
        }
    }
    for (rest = batch; rc == 0 && log_entry_step_next(&rest, &st);) {
        if (st.op == LOG_ENTRY_PUT) {
            row_read(st.value, tree_of(n, in, &st));
        }
    }
    buf_free(&row);
    return rc;
}

static void on_begin(void *arg)
{
    struct node *n = arg;

    memcpy(n->pending, n->tree, sizeof n->pending);
}

static int on_admit(void *arg, struct slice batch, struct err *e)
{
    struct node *n = arg;

    return take(n, batch, n->pending, e);
}

/* --- the state as a whole --- */

static void keep_state(struct node *n, uint64_t seq)
{
    struct restored *r = &n->restored;
    struct buf temporary = BUF_INIT(4096);
    FILE *f;

    if (n->state == NULL) {
        return;
    }
    memcpy(r->tree, n->tree, sizeof r->tree);
    memcpy(r->last, n->last, sizeof r->last);
    r->seq = seq;
    r->own = n->own;
    buf_addf(&temporary, "%s.new", n->state);
    f = fopen(buf_cstr(&temporary), "w");
    CHECK(f != NULL && fwrite(r, sizeof *r, 1, f) == 1 && fclose(f) == 0);
    CHECK(rename(buf_cstr(&temporary), n->state) == 0);
    buf_free(&temporary);
}

static void use_restored(struct node *n)
{
    memcpy(n->tree, n->restored.tree, sizeof n->tree);
    memcpy(n->last, n->restored.last, sizeof n->last);
    n->own = n->restored.own;
}

static uint64_t load_state(struct node *n)
{
    FILE *f = n->state != NULL ? fopen(n->state, "r") : NULL;

    if (f == NULL) {
        return 0;
    }
    CHECK(fread(&n->restored, sizeof n->restored, 1, f) == 1 && fclose(f) == 0);
    use_restored(n);
    return n->restored.seq;
}

static int on_restore_begin(void *arg, struct err *e)
{
    struct node *n = arg;

    (void)e;
    n->restored = (struct restored){0};
    return 0;
}

static int on_restore_commit(void *arg, const struct log_entry_author *last, struct err *e)
{
    struct node *n = arg;

    if (last->node[0] >= NODES_MAX) {
        return err_set(e, E_CORRUPT, "there is no node %u", last->node[0]);
    }
    n->restored.last[last->node[0]] = *last;
    return 0;
}

static int on_restore_row(void *arg, uint8_t table, struct slice key, struct slice value,
                          struct err *e)
{
    struct node *n = arg;
    struct log_entry_step st = {LOG_ENTRY_PUT, table, key, value};

    (void)e;
    row_read(value, tree_of(n, n->restored.tree, &st));
    return 0;
}

static int on_restore_end(void *arg, uint64_t seq, const struct digest *own, struct err *e)
{
    struct node *n = arg;

    (void)e;
    n->restored.own = *own;
    use_restored(n);
    keep_state(n, seq);
    say(n, "\"t\": \"restored\", \"seq\": %" PRIu64, seq);
    return 0;
}

static void on_restore_cancel(void *arg)
{
    struct node *n = arg;

    n->restored = (struct restored){0};
}

static int by_key(const void *a, const void *b)
{
    return strcmp(a, b);
}

static int write_checkpoint(struct node *n, size_t part_bytes, char key[CHECKPOINT_KEY_ROOM],
                            struct err *e)
{
    struct checkpoint_writer *w = checkpoint_writer_open(n->bucket, log_applied(n->log), &n->own,
                                                         dice_throw(&n->dice), part_bytes);
    struct buf row = BUF_INIT(ROW_ROOM);
    char keys[TREES_MAX][KEY_ROOM];
    int rc = 0;

    for (unsigned i = 0; i < NODES_MAX; i++) {
        if (n->last[i].counter != 0) {
            checkpoint_writer_commit(w, &n->last[i]);
        }
    }
    for (unsigned i = 0; i < n->trees; i++) {
        snprintf(keys[i], KEY_ROOM, "%u", i);
    }
    qsort(keys, n->trees, KEY_ROOM, by_key);
    for (unsigned i = 0; rc == 0 && i < n->trees; i++) {
        const struct tree *t = &n->tree[strtoul(keys[i], NULL, 10)];
        row_write(t, &row);
        if (t->version != 0) {
            rc = checkpoint_writer_row(
                w, &(struct checkpoint_row){1, slice_str(keys[i]), buf_slice(&row)}, e);
        }
    }
    rc = rc != 0 ? rc : checkpoint_writer_finish(w, key, e);
    checkpoint_writer_close(&w);
    buf_free(&row);
    return rc;
}

static void checkpoint_and_trim(struct node *n)
{
    char key[CHECKPOINT_KEY_ROOM];
    struct log_trimmed trimmed = {0};
    struct err e = {0};
    int rc = write_checkpoint(n, 0, key, &e);

    if (rc == 0 && n->trims) {
        rc = log_trim(n->bucket, n->trim_s, &trimmed, &e);
    }
    say(n, "\"t\": \"checkpoint\", \"ok\": %d, \"trimmed\": %" PRIu64, rc == 0, trimmed.entries);
    if (rc != 0) {
        fprintf(stderr, "checkpoint: %s\n", e.text);
    }
}

static int on_apply(void *arg, const struct log_entry *en, bool mine, struct err *e)
{
    struct node *n = arg;
    struct slice rest = en->steps, batch;
    int rc = 0;

    CHECK(mine == (en->author.boot == n->boot));
    on_begin(n);
    while (rc == 0 && log_entry_batch_next(&rest, &batch)) {
        rc = take(n, batch, n->pending, e);
    }
    if (rc == 0) {
        memcpy(n->tree, n->pending, sizeof n->tree);
        CHECK(en->author.node[0] < NODES_MAX);
        if (en->author.counter != 0) { /* it is not void */
            n->last[en->author.node[0]] = en->author;
        }
        n->own = en->own;
        keep_state(n, en->seq);
    }
    return rc;
}

/* --- publishing --- */

struct publish {
    unsigned tree;
    char name[NAME_ROOM];
    struct buf steps;
};

static void prepare(struct node *n, unsigned tree, struct publish *p)
{
    struct tree next = {.version = n->tree[tree].version + 1};
    struct buf old = BUF_INIT(ROW_ROOM), row = BUF_INIT(ROW_ROOM);
    char key[16];
    bool is_new = n->tree[tree].version == 0;

    p->tree = tree;
    p->steps = BUF_INIT(4096);
    snprintf(key, sizeof key, "%u", tree);
    snprintf(p->name, NAME_ROOM, "%u-%016" PRIx64 "-%" PRIu64, n->number, n->boot, ++n->counter);
    snprintf(next.name, NAME_ROOM, "%s", p->name);
    row_write(&n->tree[tree], &old);
    row_write(&next, &row);
    log_entry_step_write(
        &(struct log_entry_step){is_new ? LOG_ENTRY_REQUIRE_ABSENT : LOG_ENTRY_REQUIRE_VALUE, 1,
                                 slice_str(key), is_new ? SLICE("") : buf_slice(&old)},
        &p->steps);
    log_entry_step_write(
        &(struct log_entry_step){LOG_ENTRY_PUT, 1, slice_str(key), buf_slice(&row)}, &p->steps);
    buf_free(&old);
    buf_free(&row);
    say(n, "\"t\": \"inv\", \"v\": \"%s\", \"tree\": %u", p->name, tree);
}

static const char *outcome(const struct node *n, int rc, bool open)
{
    return rc == 0 ? "ok" : rc == E_CHANGED || !open || n->lost_is_no ? "no" : "unknown";
}

static void read_tree(struct node *n, unsigned tree)
{
    say(n,
        "\"t\": \"read\", \"tree\": %u, \"n\": %" PRIu64 ", \"last\": \"%s\", \"seq\": %" PRIu64
        ", \"confirmed\": %" PRIu64,
        tree, n->tree[tree].version, n->tree[tree].name, log_applied(n->log), n->confirmed_ns);
}

/* The trees of a group differ, so each batch stands or falls by itself. */
static void publish_group(struct node *n, unsigned count)
{
    struct log_batch batch[GROUP];
    struct publish p[GROUP];
    unsigned first = (unsigned)dice_below(&n->dice, n->trees);
    struct err e = {0};
    bool open;
    int rc;

    for (unsigned i = 0; i < count; i++) {
        prepare(n, (first + i) % n->trees, &p[i]);
        batch[i] = (struct log_batch){.steps = buf_slice(&p[i].steps)};
    }
    rc = log_commit(n->log, batch, count, &open, &e);
    for (unsigned i = 0; i < count; i++) {
        say(n, "\"t\": \"%s\", \"v\": \"%s\", \"why\": \"%s\"", outcome(n, batch[i].rc, open),
            p[i].name, batch[i].rc != 0 ? err_name(batch[i].rc) : "");
        buf_free(&p[i].steps);
    }
    if (rc != 0) {
        fprintf(stderr, "commit: %s\n", e.text);
    }
    read_tree(n, first);
}

static int poll_log(struct node *n, struct err *e)
{
    uint64_t begun_ns = clock_now_ns();
    int rc = log_poll(n->log, e);

    n->confirmed_ns = rc == 0 ? begun_ns : n->confirmed_ns;
    return rc;
}

static void wait_a_moment(void)
{
    struct timespec t = {0, WAIT_MS * 1000000};

    nanosleep(&t, NULL);
}

static void wait_while_told(struct node *n)
{
    if (n->wait == NULL || access(n->wait, F_OK) != 0) {
        return;
    }
    say(n, "\"t\": \"waits\"");
    while (access(n->wait, F_OK) == 0) {
        wait_a_moment();
    }
}

static int catch_up(struct node *n, struct err *e)
{
    int rc;

    do { /* a bucket that fails is asked again */
        uint64_t begun_ns = clock_now_ns();
        rc = log_catch_up(n->log, e);
        n->confirmed_ns = rc == 0 ? begun_ns : n->confirmed_ns;
        if (rc != 0) {
            fprintf(stderr, "catch-up: %s\n", e->text);
            wait_a_moment();
        }
    } while (rc != 0 && rc != E_CANCELLED && !log_has_stopped(n->log, e));
    return rc;
}

static int run_node(struct node *n, uint64_t count)
{
    struct err e = {0};
    uint64_t done = 0, groups = 0;
    int rc = catch_up(n, &e);

    while (done < count && rc != E_CANCELLED && !log_has_stopped(n->log, &e)) {
        unsigned group = (unsigned)min_u64(1 + dice_below(&n->dice, GROUP), n->trees);
        group = (unsigned)min_u64(group, count - done);
        rc = poll_log(n, &e);
        if (rc != 0) {
            fprintf(stderr, "poll: %s\n", e.text);
            continue;
        }
        read_tree(n, (unsigned)dice_below(&n->dice, n->trees));
        publish_group(n, group);
        done += group;
        groups++;
        if (n->checkpoint_groups != 0 && groups % n->checkpoint_groups == 0) {
            checkpoint_and_trim(n);
        }
        wait_while_told(n);
    }
    for (unsigned i = 0; i < TRIES && !log_has_stopped(n->log, &e); i++) {
        rc = poll_log(n, &e); /* settles what is open */
    }
    if (log_has_stopped(n->log, &e)) {
        say(n, "\"t\": \"stopped\", \"why\": \"%s\"", err_name(e.code));
        fprintf(stderr, "stopped: %s\n", e.text);
        return e.code;
    }
    for (unsigned t = 0; t < n->trees; t++) {
        read_tree(n, t);
    }
    return rc;
}

static void *wait_for_sigterm(void *arg)
{
    struct node *n = arg;
    sigset_t set;
    int which;

    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    CHECK(sigwait(&set, &which) == 0);
    log_interrupt(n->log);
    bucket_interrupt(n->bucket);
    return NULL;
}

static int run_until_sigterm(struct node *n, uint64_t count)
{
    sigset_t set;
    pthread_t waits;
    int rc;

    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    CHECK(pthread_sigmask(SIG_BLOCK, &set, NULL) == 0);
    waits = thread_start("sigterm", wait_for_sigterm, n);
    rc = run_node(n, count);
    pthread_kill(waits, SIGTERM);
    pthread_join(waits, NULL);
    return rc;
}

static void open_node(struct node *n, char **arg)
{
    n->boot = clock_now_ns() * 0x9e3779b97f4a7c15u ^ (uint64_t)getpid();
    n->dice = n->boot | 1;
    n->boot_ahead_ns = (clock_boot_ms() + 1) * 1000000 - clock_now_ns();
    n->number = (unsigned)strtoul(arg[1], NULL, 10);
    n->trees = (unsigned)strtoul(arg[2], NULL, 10);
    n->history = open(arg[0], O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    CHECK(n->history != -1 && n->trees != 0 && n->trees <= TREES_MAX && n->number < NODES_MAX);
}

static bool option(const char *arg, const char *name, const char **value)
{
    size_t n = strlen(name);

    if (strncmp(arg, name, n) != 0 || arg[n] != '=') {
        return false;
    }
    *value = arg + n + 1;
    return true;
}

static void read_option(struct node *n, struct log_settings *set, const char *arg)
{
    const char *value;

    if (strcmp(arg, "lost-is-no") == 0) {
        n->lost_is_no = true;
    } else if (option(arg, "gate", &value)) {
        set->gate_s = strcmp(value, "never") == 0 ? UINT64_MAX : strtoull(value, NULL, 10);
    } else if (option(arg, "state", &value)) {
        n->state = value;
    } else if (option(arg, "wait", &value)) {
        n->wait = value;
    } else if (option(arg, "checkpoint", &value)) {
        n->checkpoint_groups = strtoull(value, NULL, 10);
    } else {
        CHECK(option(arg, "trim", &value));
        n->trims = true;
        n->trim_s = strtoull(value, NULL, 10);
    }
}

/* arg: HISTORY NODE TREES */
static struct node *node_open(struct bucket *b, char **arg, struct log_settings *set)
{
    static const struct log_ops ops = {
        .begin = on_begin,
        .admit = on_admit,
        .apply = on_apply,
        .restore_begin = on_restore_begin,
        .restore_commit = on_restore_commit,
        .restore_row = on_restore_row,
        .restore_end = on_restore_end,
        .restore_cancel = on_restore_cancel,
    };
    struct node *n = NEW(struct node);

    open_node(n, arg);
    n->bucket = b;
    set->author.node[0] = (uint8_t)n->number;
    set->author.boot = n->boot;
    set->ops = &ops;
    set->arg = n;
    return n;
}

static void node_close(struct node **np)
{
    struct node *n = *np;

    *np = NULL;
    log_close(&n->log);
    close(n->history);
    free(n);
}

/* arg: HISTORY NODE TREES COUNT SETTLE_MS [OPTION...] */
static int publish(struct bucket *b, char **arg)
{
    struct log_settings set = {0};
    struct node *n = node_open(b, arg, &set);
    int rc;

    set.settle_ms = strtoul(arg[4], NULL, 10);
    for (unsigned i = 5; arg[i] != NULL; i++) {
        read_option(n, &set, arg[i]);
    }
    set.applied = load_state(n);
    set.applied_own = n->own;
    n->log = log_open(b, &set);
    rc = run_until_sigterm(n, strtoul(arg[3], NULL, 10));
    node_close(&n);
    return rc;
}

/* arg: HISTORY NODE TREES PART_BYTES */
static int checkpoint(struct bucket *b, char **arg, struct err *e)
{
    struct log_settings set = {0};
    struct node *n = node_open(b, arg, &set);
    char key[CHECKPOINT_KEY_ROOM];
    int rc;

    n->log = log_open(b, &set);
    rc = catch_up(n, e);
    rc = rc != 0 ? rc : write_checkpoint(n, strtoul(arg[3], NULL, 10), key, e);
    if (rc == 0) {
        printf("%s\n", key);
    }
    node_close(&n);
    return rc;
}

static int trim(struct bucket *b, char **arg, struct err *e)
{
    struct log_trimmed t;
    int rc = log_trim(b, strtoul(arg[0], NULL, 10), &t, e);

    printf("covered %" PRIu64 " entries %" PRIu64 " checkpoints %" PRIu64 " parts %" PRIu64 "\n",
           t.covered, t.entries, t.checkpoints, t.parts);
    return rc;
}

/* --- through a store --- */

enum { CLIENTS = 4, POLL_MS = 50 };

struct client {
    struct node *n; /* of its own: counter, dice; the same number and boot */
    struct store *store;
    struct cluster_sequencer *sequencer;
    uint64_t count;
    pthread_t thread;
};

static void own_key(const struct client *c, char key[32])
{
    snprintf(key, 32, "test %u", c->n->client);
}

static int load_row(struct client *c, enum table table, const char *key, struct tree *t,
                    struct buf *row)
{
    int rc = store_get(c->store, table, slice_str(key), row, NULL);

    *t = (struct tree){0};
    CHECK(rc == 0 || rc == E_NOTFOUND);
    if (rc == 0) {
        row_read(buf_slice(row), t);
    }
    return rc;
}

static void load_tree(struct client *c, unsigned tree, struct tree *t, struct buf *row)
{
    struct sequencer_status status;
    char key[16];

    sequencer_status(c->sequencer, &status);
    snprintf(key, sizeof key, "%u", tree);
    (void)load_row(c, TABLE_PIN, key, t, row);
    say(c->n,
        "\"t\": \"read\", \"tree\": %u, \"n\": %" PRIu64
        ", \"last\": \"%s\", \"confirmed\": %" PRIu64,
        tree, t->version, t->name, status.confirmed_ms * 1000000 - c->n->boot_ahead_ns);
}

static void report_own_row(struct client *c)
{
    struct buf row = BUF_INIT(ROW_ROOM);
    struct tree t;
    char key[32];

    own_key(c, key);
    (void)load_row(c, TABLE_META, key, &t, &row);
    say(c->n, "\"t\": \"own\", \"v\": \"%s\"", t.name);
    buf_free(&row);
}

static struct batch *next_version(struct client *c, unsigned tree, struct tree *next)
{
    struct buf old = BUF_INIT(ROW_ROOM), row = BUF_INIT(ROW_ROOM);
    struct batch *b = batch_new();
    struct tree have;
    char key[32];

    load_tree(c, tree, &have, &old);
    next->version = have.version + 1;
    snprintf(next->name, NAME_ROOM, "%u-%016" PRIx64 "-%u-%" PRIu64, c->n->number, c->n->boot,
             c->n->client, ++c->n->counter);
    row_write(next, &row);
    snprintf(key, sizeof key, "%u", tree);
    if (have.version == 0) {
        batch_require_absent(b, TABLE_PIN, slice_str(key));
    } else {
        batch_require_value(b, TABLE_PIN, slice_str(key), buf_slice(&old));
    }
    batch_put(b, TABLE_PIN, slice_str(key), buf_slice(&row));
    own_key(c, key);
    batch_put(b, TABLE_META, slice_str(key), buf_slice(&row));
    buf_free(&old);
    buf_free(&row);
    return b;
}

static int publish_row(struct client *c, unsigned tree)
{
    struct buf row = BUF_INIT(ROW_ROOM);
    struct tree next = {0}, have;
    struct batch *b = next_version(c, tree, &next);
    struct err e = {0};
    int rc;

    say(c->n, "\"t\": \"inv\", \"v\": \"%s\", \"tree\": %u", next.name, tree);
    rc = store_commit(c->store, &b, COMMIT_SYNC, &e);
    say(c->n, "\"t\": \"%s\", \"v\": \"%s\", \"why\": \"%s\"",
        rc == 0           ? "ok"
        : rc == E_CHANGED ? "no"
                          : "unknown",
        next.name, rc != 0 ? err_name(rc) : "");
    load_tree(c, tree, &have, &row);
    buf_free(&row);
    return rc;
}

static void *run_client(void *arg)
{
    struct client *c = arg;

    report_own_row(c);
    for (uint64_t i = 0; i < c->count; i++) {
        int rc = publish_row(c, (unsigned)dice_below(&c->n->dice, c->n->trees));
        if (rc == E_AGAIN) { /* refused at once while an outcome is unknown */
            usleep(POLL_MS * 1000);
        } else if (rc == E_CORRUPT || rc == E_UNSUPPORTED) {
            break; /* the log has stopped */
        }
    }
    return NULL;
}

static void run_clients(struct store *s, struct cluster_sequencer *q, const struct node *n,
                        uint64_t count)
{
    struct client c[CLIENTS];

    for (unsigned i = 0; i < CLIENTS; i++) {
        c[i] = (struct client){NEW(struct node), s, q, count / CLIENTS, 0};
        *c[i].n = *n;
        c[i].n->client = i;
        c[i].n->dice = (n->dice + i) * 0x9e3779b97f4a7c15u | 1;
        c[i].thread = thread_start("client", run_client, &c[i]);
    }
    for (unsigned i = 0; i < CLIENTS; i++) {
        pthread_join(c[i].thread, NULL);
        free(c[i].n);
    }
}

static int put_pin(struct store *s, struct err *e)
{
    struct batch *b = batch_new();

    batch_put(b, TABLE_PIN, SLICE("0"), SLICE("1 mine"));
    return store_commit(s, &b, COMMIT_SYNC, e);
}

static int publish_rows(struct bucket *b, char **arg, bool used)
{
    struct store_settings set = {
        .state_dir = arg[5], .reserve_bytes = 1, .high_ratio = 0.9, .low_ratio = 0.85};
    struct sequencer_settings seq = {.poll_ms = POLL_MS};
    struct cluster_sequencer *q = NULL;
    struct sequencer_status status = {0};
    struct node *n = NEW(struct node);
    struct store *s = NULL;
    struct err e = {0};
    int rc = store_open(&set, &s, &e);

    rc = rc == 0 && used ? put_pin(s, &e) : rc;
    open_node(n, arg);
    seq.node[0] = (uint8_t)n->number;
    seq.boot = n->boot;
    seq.settle_ms = strtoul(arg[4], NULL, 10);
    rc = rc != 0 ? rc : sequencer_start(s, b, &seq, &q, &e);
    if (rc == 0) {
        run_clients(s, q, n, strtoul(arg[3], NULL, 10));
        sequencer_status(q, &status);
        sequencer_stop(q);
        rc = status.stopped ? status.why.code : 0;
        e = status.why;
    }
    if (rc != 0) {
        fprintf(stderr, "%s\n", e.text);
    }
    if (status.stopped) {
        say(n, "\"t\": \"stopped\", \"why\": \"%s\"", err_name(rc));
    }
    store_close(&s);
    sequencer_free(&q);
    close(n->history);
    free(n);
    return rc;
}

/* --- the program --- */

static void on_step(void *arg, const struct probe_step *s)
{
    (void)arg;
    printf("%s: %s%s%s\n", s->what, s->rc == 0 ? "ok" : "FAILED", s->why->code != 0 ? ": " : "",
           s->why->text);
}

int main(int argc, char **argv)
{
    struct bucket_settings set = {.region = "eu-test-1"};
    struct buf keys = BUF_INIT(4096);
    struct bucket *b = NULL;
    struct err e = {0};
    int rc;

    CHECK(argc >= 5);
    set.endpoint = argv[1];
    set.url = argv[2];
    rc = buf_read_file(&keys, argv[3], &e);
    while (keys.n != 0 && keys.p[keys.n - 1] == '\n') {
        keys.n--;
    }
    set.authorization = buf_cstr(&keys);
    rc = rc != 0 ? rc : bucket_open(&set, &b, &e);
    if (rc == 0 && strcmp(argv[4], "probe") == 0) {
        rc = probe_run(b, PROBE_ROUNDS, clock_now_ns(), on_step, NULL, &e);
    } else if (rc == 0 && strcmp(argv[4], "store") == 0) {
        CHECK(argc >= 11);
        rc = publish_rows(b, argv + 5, argc > 11 && strcmp(argv[11], "used") == 0);
    } else if (rc == 0 && strcmp(argv[4], "checkpoint") == 0) {
        CHECK(argc == 9);
        rc = checkpoint(b, argv + 5, &e);
    } else if (rc == 0 && strcmp(argv[4], "trim") == 0) {
        CHECK(argc == 6);
        rc = trim(b, argv + 5, &e);
    } else if (rc == 0) {
        CHECK(strcmp(argv[4], "publish") == 0 && argc >= 10);
        rc = publish(b, argv + 5);
    }
    if (rc != 0) {
        fprintf(stderr, "cluster_node: %s\n", e.text);
    }
    bucket_close(&b);
    buf_free(&keys);
    return err_sysexit(rc);
}
