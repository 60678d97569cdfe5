/* status.c - `mirrorctl status`, and `mirrorctl top`: status over and over, with what changed in
 * between as rates. On a terminal the screen is written anew each time; elsewhere there is one
 * look, or with --json one object a line without end. */
#include <inttypes.h>
#include <stdio.h>
#include <unistd.h>

#include "common/codec/progress.h"
#include "common/codec/units.h"
#include "common/os/clock.h"
#include "server/ctl/ctl.h"

enum { EXIT_TROUBLE = 1 };       /* something needs a person */
enum { STATUS_PATIENCE_S = 10 }; /* cron asks it: it must not pile up */
enum { BAR_CELLS = 20, CLIENTS_SHOWN = 10 };

static void print_fetches(struct ctl *c, const json_t *fetches)
{
    struct table t;
    size_t i;
    json_t *f;

    table_init(&t, c, "FETCH,>HAVE,>OF,>PER SECOND,>READERS");
    json_array_foreach(fetches, i, f)
    {
        table_addf(&t, "%s/%s", get_str(f, "repo"), get_str(f, "key"));
        table_size(&t, get_u64(f, "have"));
        table_bytes(&t, f, "total");
        table_size(&t, get_u64(f, "rate"));
        table_count(&t, f, "readers");
    }
    table_print(&t);
}

static void print_repos(struct ctl *c, const json_t *repos)
{
    struct table t;
    size_t i;
    json_t *r;

    table_init(&t, c, "REPO,PROTOCOL,>REQUESTS,>SENT,>HITS,>FETCHED");
    json_array_foreach(repos, i, r)
    {
        table_text(&t, r, "name");
        table_text(&t, r, "protocol");
        table_count(&t, r, "requests");
        table_size(&t, get_u64(r, "bytes"));
        table_share(&t, r, "hit_ratio");
        table_size(&t, get_u64(json_object_get(r, "upstream"), "bytes"));
    }
    table_print(&t);
}

static void say_certificates(struct ctl *c, const json_t *certificates)
{
    uint64_t now = clock_unix_s();
    char span[UNITS_TEXT];
    size_t i;
    json_t *cert;

    json_array_foreach(certificates, i, cert)
    {
        uint64_t from = get_u64(cert, "valid_from_unix_s"), at = get_u64(cert, "expires_unix_s");
        bool over = at <= now;
        if (from > now) {
            span_format((from - now) * 1000, span);
            say(c, "certificate of %s: becomes valid in %s\n", get_str(cert, "listen"), span);
            continue;
        }
        span_format((over ? now - at : at - now) * 1000, span);
        say(c, "certificate of %s: %s %s%s%s\n", get_str(cert, "listen"),
            over ? "EXPIRED" : "expires in", span, over ? " ago" : "",
            get_bool(cert, "soon") ? "; WARNING: renew it, see TLS in operations.md" : "");
    }
}

static const char *state_word(const json_t *status)
{
    return get_bool(status, "draining")  ? "draining"
           : get_bool(status, "leaving") ? "leaving"
           : get_bool(status, "ready")   ? "serving"
                                         : "not ready";
}

/* What an origin wrote must not steer the terminal. */
static void say_safely(const struct ctl *c, const char *text)
{
    for (; *text != '\0'; text++) {
        say(c, "%c", (uint8_t)*text < ' ' || *text == 0x7f ? '?' : *text);
    }
}

static void print_trouble(const struct ctl *c, const json_t *t)
{
    uint64_t since = get_u64(t, "since_unix_s"), now = clock_unix_s();
    char text[UNITS_TEXT], time[TIME_TEXT];
    bool red = c->tty && c->color;

    say(c, "%sTROUBLE%s ", red ? "\033[31m" : "", red ? "\033[0m" : "");
    if (get_str(t, "repo")[0] != '\0') {
        say(c, "%s: ", get_str(t, "repo"));
    }
    say_safely(c, get_str(t, "what"));
    if (since != 0 && c->plain) {
        time_plain(c, since, time);
        say(c, ", since %s", time);
    } else if (since != 0) {
        span_format((now - min_u64(since, now)) * 1000, text);
        say(c, ", for %s", text);
    }
    say(c, "\n        %s\n", get_str(t, "todo"));
}

int print_troubles(const struct ctl *c, const json_t *ok)
{
    const json_t *list = json_object_get(ok, "trouble"), *t;
    size_t i;

    json_array_foreach(list, i, t)
    {
        print_trouble(c, t);
    }
    return json_array_size(list) > 0 ? EXIT_TROUBLE : 0;
}

static void say_cluster(const struct ctl *c, const json_t *cluster)
{
    char lag[UNITS_TEXT];

    if (cluster == NULL) {
        return;
    }
    span_format(get_u64(cluster, "lag_ms"), lag);
    say(c, "cluster: %s, %" PRIu64 " entries of the log, confirmed %s ago, in %s\n",
        get_str(cluster, "state"), get_u64(cluster, "entries"), lag, get_str(cluster, "bucket"));
}

int ctl_status(struct ctl *c, struct err *e)
{
    char used[UNITS_TEXT], sent[UNITS_TEXT], quota[UNITS_TEXT], unused[UNITS_TEXT], up[UNITS_TEXT];
    const json_t *disk, *rsync;
    json_t *ok = NULL;
    uint64_t open;
    int rc;

    c->patience_s = STATUS_PATIENCE_S;
    rc = act(c, request("status"), &ok, e);
    rc = rc != 0 ? rc : print_troubles(c, ok);
    if (rc < 0 || c->json) {
        json_decref(ok);
        return rc;
    }
    rsync = json_object_get(ok, "rsync");
    disk = json_object_get(ok, "disk");
    open = get_u64(json_object_get(ok, "connections"), "open");
    size_format(get_u64(disk, "used"), used);
    size_format(get_u64(disk, "quota"), quota);
    size_format(get_u64(disk, "free"), unused);
    span_format((clock_unix_s() - get_u64(ok, "started_unix_s")) * 1000, up);
    say(c, "mirrord %s, %s, up %s, %" PRIu64 " %s\n", get_str(ok, "version"), state_word(ok), up,
        open, plural(open, "connection", "connections"));
    if (rsync != NULL) {
        size_format(get_u64(rsync, "sent"), sent);
        say(c, "rsync: %" PRIu64 " %s, %" PRIu64 " served, %s sent\n", get_u64(rsync, "open"),
            plural(get_u64(rsync, "open"), "client", "clients"), get_u64(rsync, "served"), sent);
    }
    say_certificates(c, json_object_get(ok, "certificates"));
    say(c, "disk: %s of %s in %" PRIu64 " %s, %s free%s\n", used, quota, get_u64(disk, "blobs"),
        plural(get_u64(disk, "blobs"), "file", "files"), unused,
        get_bool(disk, "full") ? ", FULL" : "");
    say_cluster(c, json_object_get(ok, "cluster"));
    say(c, "\n");
    print_repos(c, json_object_get(ok, "repos"));
    if (json_array_size(json_object_get(ok, "fills")) > 0) {
        say(c, "\n");
        print_fetches(c, json_object_get(ok, "fills"));
    }
    json_decref(ok);
    return rc;
}

/* --- top: rates --- */

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

/* --- top, for people --- */

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

static void print_fetch_rates(struct ctl *c, const struct look *l)
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

static void print_repo_rates(struct ctl *c, const struct look *l)
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
    print_repo_rates(c, l);
    if (json_array_size(json_object_get(l->now, "fills")) > 0) {
        putchar('\n');
        print_fetch_rates(c, l);
    }
    if (json_array_size(json_object_get(l->now, "clients")) > 0) {
        putchar('\n');
        print_clients(c, l);
    }
}

/* --- top, for programs: the status, and the rates beside what they are of --- */

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
                       "invalid --interval \"%s\"; write the time between two updates, from "
                       "50ms to 1h",
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
