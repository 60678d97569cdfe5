#include <inttypes.h>
#include <stdio.h>

#include "common/codec/units.h"
#include "common/os/clock.h"
#include "server/ctl/ctl.h"

enum { STATUS_PATIENCE_S = 10 }; /* cron asks it: it must not pile up */

static void print_fills(struct ctl *c, const json_t *fills)
{
    struct table t;
    size_t i;
    json_t *f;

    table_init(&t, c, "FETCH,>HAVE,>OF,>PER SECOND,>READERS");
    json_array_foreach(fills, i, f)
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
            get_bool(cert, "soon") ? ", WARNING: renew it, see TLS in operations.md" : "");
    }
}

const char *state_word(const json_t *status)
{
    return get_bool(status, "draining") ? "draining"
           : get_bool(status, "ready")  ? "serving"
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

int print_troubles(const struct ctl *c, const json_t *status)
{
    const json_t *list = json_object_get(status, "trouble"), *t;
    size_t i;

    json_array_foreach(list, i, t)
    {
        print_trouble(c, t);
    }
    return json_array_size(list) > 0 ? EXIT_TROUBLE : 0;
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
    say(c, "\n");
    print_repos(c, json_object_get(ok, "repos"));
    if (json_array_size(json_object_get(ok, "fills")) > 0) {
        say(c, "\n");
        print_fills(c, json_object_get(ok, "fills"));
    }
    json_decref(ok);
    return rc;
}
