/* cluster_node.c - a node of a cluster without a mirror around it: it publishes versions of trees
 * through the log, and writes down what it asked and what it was told, for
 * tests/harness/history.py.
 *
 * cluster_node ENDPOINT URL KEYS probe
 *     Probes the bucket: prints each step, exits 0 or with the error's sysexits code.
 * cluster_node ENDPOINT URL KEYS publish HISTORY NODE TREES COUNT SETTLE_MS [lost-is-no]
 *     Publishes COUNT versions of trees that it draws among TREES, in groups of 1 to 4, and reads
 *     after each. lost-is-no is a mistake for the checker to find: an outcome that is unknown is
 *     reported as a failure. SIGTERM interrupts the log and the bucket: the node then ends soon.
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
#include "server/cluster/log.h"
#include "server/cluster/probe.h"
#include "server/cluster/sequencer.h"

enum { TREES_MAX = 64, GROUP = 4, NAME_ROOM = 64, ROW_ROOM = 96, TRIES = 3 };

struct tree {
    uint64_t version;
    char name[NAME_ROOM]; /* of the value that was added last */
};

struct node {
    struct bucket *bucket;
    struct cluster_log *log;
    struct tree tree[TREES_MAX], pending[TREES_MAX];
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

static int run_node(struct node *n, uint64_t count)
{
    struct err e = {0};
    uint64_t done = 0;
    int rc = 0;

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
    CHECK(n->history != -1 && n->trees != 0 && n->trees <= TREES_MAX);
}

static int publish(struct bucket *b, char **arg, bool lost_is_no)
{
    static const struct log_ops ops = {on_begin, on_admit, on_apply};
    struct node *n = NEW(struct node);
    struct log_settings set = {.ops = &ops, .arg = n};
    int rc;

    open_node(n, arg);
    n->bucket = b;
    n->lost_is_no = lost_is_no;
    set.author.node[0] = (uint8_t)n->number;
    set.author.boot = n->boot;
    set.settle_ms = strtoul(arg[4], NULL, 10);
    n->log = log_open(b, &set);
    rc = run_until_sigterm(n, strtoul(arg[3], NULL, 10));
    log_close(&n->log);
    close(n->history);
    free(n);
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
        rc = probe_run(b, clock_now_ns(), on_step, NULL, &e);
    } else if (rc == 0 && strcmp(argv[4], "store") == 0) {
        CHECK(argc >= 11);
        rc = publish_rows(b, argv + 5, argc > 11 && strcmp(argv[11], "used") == 0);
    } else if (rc == 0) {
        CHECK(strcmp(argv[4], "publish") == 0 && argc >= 10);
        rc = publish(b, argv + 5, argc > 10 && strcmp(argv[10], "lost-is-no") == 0);
    }
    if (rc != 0) {
        fprintf(stderr, "cluster_node: %s\n", e.text);
    }
    bucket_close(&b);
    buf_free(&keys);
    return err_sysexit(rc);
}
