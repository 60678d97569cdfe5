/* top: status over and over, with what changed in between as rates. On a terminal the screen is written anew each time;
 * elsewhere there is one look, or with --json one object a line without end. */
#include <inttypes.h>
#include <stdio.h>
#include <unistd.h>

#include "common/codec/progress.h"
#include "common/codec/units.h"
#include "server/ctl/ctl.h"

enum { BAR_CELLS = 20, CLIENTS_SHOWN = 10 };

struct look {
    const json_t *now, *before;
    double took_s;
};

/* How much a counter has grown a second: of two objects that have it. */
static uint64_t rate(const struct look *l, const json_t *now, const json_t *before, const char *key)
{
    uint64_t a = get_u64(before, key), b = get_u64(now, key);

    return b > a ? (uint64_t)((double)(b - a) / l->took_s) : 0;
}

static const json_t *item_before(const struct look *l, const char *list, const char *key,
                                 const json_t *item)
{
    const json_t *other;
    size_t i;

    json_array_foreach(json_object_get(l->before, list), i, other)
    {
        if (strcmp(get_str(other, key), get_str(item, key)) == 0) {
            return other;
        }
    }
    return NULL;
}

/* Who was not there before has no rate yet: all of its bytes may be old. */
static uint64_t item_rate(const struct look *l, const char *list, const char *id,
                          const json_t *item, const char *key)
{
    const json_t *before = item_before(l, list, id, item);

    return before != NULL ? rate(l, item, before, key) : 0;
}

/* --- for people --- */

static void print_head(const struct ctl *c, const struct look *l)
{
    const json_t *disk = json_object_get(l->now, "disk"),
                 *conns = json_object_get(l->now, "connections");
    char out[UNITS_TEXT], in[UNITS_TEXT], used[UNITS_TEXT], quota[UNITS_TEXT], up[UNITS_TEXT];
    char bar[BAR_CELLS + 1];

    span_format(get_u64(l->now, "now_ms") - get_u64(l->now, "started_unix_s") * 1000, up);
    size_format(rate(l, l->now, l->before, "bytes_out"), out);
    size_format(rate(l, l->now, l->before, "upstream_bytes"), in);
    size_format(get_u64(disk, "used"), used);
    size_format(get_u64(disk, "quota"), quota);
    progress_bar(get_u64(disk, "used"), get_u64(disk, "quota"), BAR_CELLS, bar);
    (void)print_troubles(c, l->now);
    printf("mirrord %s, %s, up %s, %" PRIu64 " %s (%" PRIu64 " HTTP/2, %" PRIu64 " TLS)\n",
           get_str(l->now, "version"), state_word(l->now), up, get_u64(conns, "open"),
           plural(get_u64(conns, "open"), "connection", "connections"), get_u64(conns, "h2"),
           get_u64(conns, "tls"));
    printf("sent %s/s, fetched %s/s, %" PRIu64 " requests/s\n", out, in,
           rate(l, l->now, l->before, "requests"));
    printf("disk [%s] %s of %s%s\n\n", bar, used, quota, get_bool(disk, "full") ? ", FULL" : "");
}

static void print_fills(struct ctl *c, const struct look *l)
{
    const json_t *f;
    struct table t;
    size_t i;

    table_init(&t, c, "FETCH,DONE,>HAVE,>OF,>PER SECOND,>LEFT,>READERS");
    json_array_foreach(json_object_get(l->now, "fills"), i, f)
    {
        uint64_t have = get_u64(f, "have"), total = get_u64(f, "total"), per_s = get_u64(f, "rate");
        bool known = !json_is_null(json_object_get(f, "total"));
        char bar[BAR_CELLS + 1], left[UNITS_TEXT];
        progress_bar(have, total, BAR_CELLS, bar);
        span_format(per_s > 0 && total > have ? (total - have) * 1000 / per_s : 0, left);
        table_addf(&t, "%s/%s", get_str(f, "repo"), get_str(f, "key"));
        table_add(&t, known ? bar : "?");
        table_size(&t, have);
        table_bytes(&t, f, "total");
        table_size(&t, per_s);
        table_add(&t, known && per_s > 0 ? left : "-");
        table_count(&t, f, "readers");
    }
    table_print(&t);
}

static void print_repos(struct ctl *c, const struct look *l)
{
    const json_t *r;
    struct table t;
    size_t i;

    table_init(&t, c, "REPO,>REQUESTS/S,>SENT/S,>FETCHED/S,>HITS");
    json_array_foreach(json_object_get(l->now, "repos"), i, r)
    {
        const json_t *before = item_before(l, "repos", "name", r);
        table_text(&t, r, "name");
        table_addf(&t, "%" PRIu64, item_rate(l, "repos", "name", r, "requests"));
        table_size(&t, item_rate(l, "repos", "name", r, "bytes"));
        table_size(&t, rate(l, json_object_get(r, "upstream"), json_object_get(before, "upstream"),
                            "bytes"));
        table_share(&t, r, "hit_ratio");
    }
    table_print(&t);
}

static void print_clients(struct ctl *c, const struct look *l)
{
    const json_t *r;
    struct table t;
    size_t i;

    table_init(&t, c, "CLIENT,>CONNECTIONS,>SENT/S,>SENT");
    json_array_foreach(json_object_get(l->now, "clients"), i, r)
    {
        if (i == CLIENTS_SHOWN) {
            break;
        }
        table_text(&t, r, "address");
        table_count(&t, r, "connections");
        table_size(&t, item_rate(l, "clients", "address", r, "bytes_out"));
        table_size(&t, get_u64(r, "bytes_out"));
    }
    table_print(&t);
}

static void print_look(struct ctl *c, const struct look *l, bool once)
{
    if (c->quiet) {
        return;
    }
    if (c->tty && !once) {
        printf("\033[H\033[2J");
    }
    print_head(c, l);
    print_repos(c, l);
    if (json_array_size(json_object_get(l->now, "fills")) > 0) {
        putchar('\n');
        print_fills(c, l);
    }
    if (json_array_size(json_object_get(l->now, "clients")) > 0) {
        putchar('\n');
        print_clients(c, l);
    }
}

/* --- for programs: the status, and the rates beside what they are of --- */

static void add_rates(const struct look *l, json_t *now)
{
    json_t *r;
    size_t i;

    json_object_set_new(
        now, "per_s",
        json_pack("{s:I, s:I, s:I}", "requests", (json_int_t)rate(l, l->now, l->before, "requests"),
                  "bytes_out", (json_int_t)rate(l, l->now, l->before, "bytes_out"),
                  "upstream_bytes", (json_int_t)rate(l, l->now, l->before, "upstream_bytes")));
    json_array_foreach(json_object_get(now, "repos"), i, r)
    {
        json_object_set_new(r, "per_s",
                            json_pack("{s:I, s:I}", "requests",
                                      (json_int_t)item_rate(l, "repos", "name", r, "requests"),
                                      "bytes",
                                      (json_int_t)item_rate(l, "repos", "name", r, "bytes")));
    }
    json_array_foreach(json_object_get(now, "clients"), i, r)
    {
        json_object_set_new(
            r, "per_s",
            json_pack("{s:I}", "bytes_out",
                      (json_int_t)item_rate(l, "clients", "address", r, "bytes_out")));
    }
}

static int ask_status(struct ctl *c, json_t **out, struct err *e)
{
    json_t *req = request("status");

    json_object_set_new(req, "clients", json_true());
    return ask(c, req, NULL, NULL, NULL, out, e);
}

static int read_interval(const struct ctl *c, uint64_t *ms, struct err *e)
{
    const char *interval = option_text(c, "--interval");

    *ms = 1000;
    if (interval != NULL &&
        (!span_parse(slice_str(interval), ms) || *ms < 50 || *ms > 3600 * 1000)) {
        return err_set(e, E_USAGE,
                       "--interval \"%s\" is no time, it is what lies between two looks, write "
                       "one from 50ms to 1h",
                       interval);
    }
    return 0;
}

int ctl_top(struct ctl *c, struct err *e)
{
    static char screen[1 << 16]; /* written at once: a screen half drawn flickers */
    bool once = option_given(c, "--once") || (!c->tty && !c->json);
    json_t *before = NULL, *now = NULL;
    uint64_t interval_ms;
    int rc = read_interval(c, &interval_ms, e);

    if (rc == 0) {
        setvbuf(stdout, screen, _IOFBF, sizeof(screen));
        rc = ask_status(c, &before, e);
    }
    while (rc == 0) {
        usleep((useconds_t)interval_ms * 1000);
        rc = ask_status(c, &now, e);
        if (rc != 0) {
            break;
        }
        struct look l = {now, before,
                         (double)max_u64(1, get_u64(now, "now_ms") - get_u64(before, "now_ms")) /
                             1000};
        if (c->json) {
            add_rates(&l, now);
            json_dumpf(now, stdout, JSON_COMPACT | JSON_PRESERVE_ORDER);
            putchar('\n');
        } else {
            print_look(c, &l, once);
        }
        json_decref(before);
        before = now;
        now = NULL;
        if (fflush(stdout) != 0 || once) {
            break;
        }
    }
    json_decref(before);
    return rc;
}
