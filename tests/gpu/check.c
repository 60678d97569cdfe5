/* gpu-check - every CUDA operation beside its CPU twin, then tiny models trained on both, then a
 * run repeated.
 *
 *     gpu-check [--look | --list] [--quick] [--models] [--only NAME+NAME] [--limit SECONDS]
 *               [--here]
 *
 * The rows run in a child (watch.h): one that crashes, hangs or breaks the device costs its own row
 * alone. A row's shapes depend on the row, not on what ran before it, so `--only` asks the same
 * again.
 *
 * Prints a line a row and, behind one that does not hold, where it was worst and what CUDA said;
 * exits 1 then. Without a GPU it says so and exits 0. --look only says whether there is one;
 * --models leaves the operations out; --quick takes one shape of each, in f32 and bf16; --here
 * forks nothing, for tools that look into a process.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/err.h"
#include "tests/gpu/twins.h"
#include "tests/gpu/watch.h"

enum { ROUNDS = 6, ROWS_MAX = 128, LIMIT_S = 90 };

static const enum dtype types[] = {DT_F32, DT_BF16, DT_F16};
static const char *const names[] = {"f32", "bf16", "f16"};

struct options {
    bool look, list, quick, models, here;
    const char *only;
    int limit_s;
    int from,
        report; /* a child's: its first row, and where it says how that went; -1: not a child */
};

struct row {
    const struct twin *twin;
    size_t type;
};

/* --- which rows ------------------------------------------------------------------------------- */

static bool wanted(const struct options *o, const char *name)
{
    size_t n = strlen(name);

    for (const char *at = o->only; at != NULL && (at = strstr(at, name)) != NULL; at++) {
        if ((at == o->only || at[-1] == '+') && (at[n] == '\0' || at[n] == '+')) {
            return true;
        }
    }
    return o->only == NULL;
}

static int add_rows(const struct options *o, const struct twin *t, struct row *rows, int count)
{
    for (; t->name != NULL; t++) {
        for (size_t i = 0; i < ARRAY_LEN(types); i++) {
            bool left_out = (o->quick && types[i] == DT_F16) || !wanted(o, t->name);

            if (count < ROWS_MAX && (t->types & 1u << types[i]) != 0 && !left_out) {
                rows[count++] = (struct row){t, i};
            }
        }
    }
    return count;
}

static int all_rows(const struct options *o, struct row rows[ROWS_MAX])
{
    int count = o->models ? 0 : add_rows(o, twins_of_operations, rows, 0);

    return add_rows(o, twins_of_models, rows, count);
}

/* --- one row ---------------------------------------------------------------------------------- */

static void print_row(const struct row *r, double worst, const char *verdict, const char *note)
{
    printf("%-24s %-5s %12.2e %10.0e  %s%s%s\n", r->twin->name, names[r->type], worst,
           twins_bound(types[r->type]), verdict, note[0] != '\0' ? "  " : "", note);
    fflush(stdout);
}

static void seed_for(struct twins *c, const struct row *r)
{
    c->seed = 1 + r->type;
    for (const char *p = r->twin->name; *p != '\0'; p++) {
        c->seed = c->seed * 31 + (unsigned char)*p;
    }
}

static enum range_answer run_row(struct twins *c, const struct row *r, const struct options *o)
{
    int rounds = o->quick ? 1 : r->twin->rounds > 0 ? r->twin->rounds : ROUNDS;
    bool good;

    seed_for(c, r);
    good = twins_hold(c, r->twin, types[r->type], rounds);
    print_row(r, c->worst, good ? "ok" : "FAILED", c->note);
    if (c->told[0] != '\0') {
        printf("    %s\n", c->told);
    }
    if (c->trouble != NULL) {
        printf("    %s, %s: %s. %s\n", c->trouble, c->shape, err_plain(c->trouble_rc),
               c->k->fault());
    }
    fflush(stdout);
    return good ? HOLDS : FAILS;
}

/* Whether the next row would say less for it: a broken device fails whatever comes, and CUDA's
 * first words are kept. */
static bool spent(const struct twins *c, const struct options *o)
{
    return o->report >= 0 ? c->trouble != NULL : c->trouble_rc == E_CUDA;
}

/* The rows from o->from on; how many fail. */
static int run_rows(const struct options *o, const struct row *rows, int count)
{
    struct twins c = {0};
    struct err e = {0};
    int failed = 0, i;

    c.k = kops_cuda(0, &e);
    if (c.k == NULL) {
        bool was_here = o->from > 0; /* and is gone: that is a failure */

        printf("gpu-check: %s: %s\n",
               was_here ? "no device any more" : "skipped, nothing was checked", e.text);
        fflush(stdout);
        watch_say(o->report, o->from, was_here ? CANNOT_START : NOTHING_HERE);
        return was_here ? WATCH_INCOMPLETE : WATCH_NOTHING;
    }
    if (c.k->stream_open(&c.ks) != 0) {
        printf("gpu-check: no stream on %s: %s\n", c.k->device, c.k->fault());
        fflush(stdout);
        watch_say(o->report, o->from, CANNOT_START);
        return WATCH_INCOMPLETE;
    }
    if (o->from == 0) {
        printf("%s\n%-24s %-5s %12s %10s\n", c.k->device, "operation", "type", "difference",
               "bound");
        fflush(stdout);
    }
    for (i = o->from; i < count && !spent(&c, o); i++) {
        enum range_answer v;

        watch_say(o->report, i, BEGUN);
        v = run_row(&c, &rows[i], o);
        failed += v == FAILS;
        watch_say(o->report, i, v);
    }
    if (spent(&c, o) && o->report >= 0) {
        _exit(1); /* CUDA's own end would wait for the device */
    }
    if (c.trouble_rc != E_CUDA) {
        c.k->stream_close(&c.ks);
    }
    return failed + (count - i);
}

/* --- the program ------------------------------------------------------------------------------ */

static int look(void)
{
    struct err e = {0};
    const struct kops *k = kops_cuda(0, &e);

    if (k == NULL) {
        printf("gpu-check: skipped, nothing was checked: %s\n", e.text);
    } else {
        printf("gpu-check: %s\n", k->device);
    }
    return 0;
}

static bool parse(int argc, char **argv, struct options *o)
{
    *o = (struct options){.limit_s = LIMIT_S, .report = -1};
    for (int i = 1; i < argc; i++) {
        const char *name = argv[i], *value = i + 1 < argc ? argv[i + 1] : NULL;
        bool *flag = strcmp(name, "--look") == 0     ? &o->look
                     : strcmp(name, "--list") == 0   ? &o->list
                     : strcmp(name, "--quick") == 0  ? &o->quick
                     : strcmp(name, "--models") == 0 ? &o->models
                     : strcmp(name, "--here") == 0   ? &o->here
                                                     : NULL;
        int *number = strcmp(name, "--limit") == 0    ? &o->limit_s
                      : strcmp(name, "--from") == 0   ? &o->from
                      : strcmp(name, "--report") == 0 ? &o->report
                                                      : NULL;

        if (flag != NULL) {
            *flag = true;
            continue;
        }
        if (value == NULL || (number == NULL && strcmp(name, "--only") != 0)) {
            fprintf(stderr, "gpu-check: %s: no such option, or no value behind it\n", name);
            return false;
        }
        if (number != NULL) {
            *number = (int)strtol(value, NULL, 10);
        } else {
            o->only = value;
        }
        i++;
    }
    return true;
}

static void lost(void *arg, int row, const char *why)
{
    const struct row *rows = arg;

    print_row(&rows[row], 0, "FAILED", why);
}

int main(int argc, char **argv)
{
    struct row rows[ROWS_MAX];
    struct options o;
    int count, failed;

    if (!parse(argc, argv, &o)) {
        return 64;
    }
    if (o.look) {
        return look();
    }
    count = all_rows(&o, rows);
    if (count == 0) {
        fprintf(stderr, "gpu-check: --only %s: there is no such row\n", o.only);
        return 64;
    }
    for (int i = 0; o.list && i < count; i++) {
        printf("%s %s\n", rows[i].twin->name, names[rows[i].type]);
    }
    if (o.list) {
        return 0;
    }
    if (o.report >= 0) {
        return run_rows(&o, rows, count) == 0 ? 0 : 1;
    }
    failed =
        o.here ? run_rows(&o, rows, count)
               : watch_run(&(struct watch){
                     .argv = argv, .rows = count, .limit_s = o.limit_s, .lost = lost, .arg = rows});
    if (failed != WATCH_NOTHING) {
        printf("gpu-check: %s\n", failed == 0 ? "all rows hold" : "FAILED");
    }
    return failed == 0 || failed == WATCH_NOTHING ? 0 : 1;
}
