#include <inttypes.h>
#include <stdlib.h>

#include "common/codec/units.h"
#include "common/os/clock.h"
#include "server/ctl/ctl.h"

/* "immutable", "fresh 3m20s", "stale 2h"; scripts get the instant where people get the span. */
static void add_freshness(struct table *t, const json_t *row)
{
    const char *state = get_str(row, "state");
    uint64_t until_s = get_u64(row, "fresh_until_unix_s"), now_s = clock_unix_s();
    char span[UNITS_TEXT], time[TIME_TEXT];

    if (strcmp(state, "fresh") != 0 && strcmp(state, "stale") != 0) {
        table_add(t, state);
    } else if (!t->ctl->tty) {
        time_plain(t->ctl, until_s, time);
        table_addf(t, "%s %s", state, time);
    } else {
        span_format((until_s > now_s ? until_s - now_s : now_s - until_s) * 1000, span);
        table_addf(t, "%s %s", state, span);
    }
}

/* By what an origin tells it from others of that name: a line a field. */
static void add_variant(struct table *t, const json_t *row)
{
    char *text = mem_strdup(get_str(row, "variant"));

    for (char *p = text; *p != '\0'; p++) {
        *p = *p == '\n' ? ' ' : *p;
    }
    table_add(t, text[0] != '\0' ? text : "-");
    free(text);
}

static void object_row(struct table *t, const json_t *row)
{
    table_addf(t, "%s/%s", get_str(row, "repo"), get_str(row, "key")); /* as rm and pin take it */
    table_size(t, get_u64(row, "size"));
    table_ago(t, get_u64(row, "stored_unix_s"));
    add_freshness(t, row);
    add_variant(t, row);
}

int ctl_cache_ls(struct ctl *c, struct err *e)
{
    json_t *req = request("cache.ls");
    const char *most = option_text(c, "--limit");
    uint64_t limit = 1000;

    if (most != NULL && !slice_u64(slice_str(most), &limit)) {
        json_decref(req);
        return err_set(e, E_USAGE, "--limit \"%s\" is not a number; write a number of rows", most);
    }
    json_object_set_new(req, "repo", json_string(c->arg[0]));
    json_object_set_new(req, "limit", json_integer((json_int_t)limit));
    if (c->args > 1) {
        json_object_set_new(req, "prefix", json_string(c->arg[1]));
    }
    return list(c, req, "OBJECT,>SIZE,>STORED,FRESHNESS,VARIANT", object_row, NULL, e);
}

int ctl_cache_stats(struct ctl *c, struct err *e)
{
    return list_members(c, request("cache.stats"), e);
}

static json_t *of_scope(const struct ctl *c, const char *verb)
{
    json_t *req = request(verb);

    json_object_set_new(req, "scope", json_string(c->arg[0]));
    return req;
}

int ctl_cache_pin(struct ctl *c, struct err *e)
{
    json_t *ok = NULL;
    int rc = act(c, of_scope(c, "cache.pin"), &ok, e);

    if (rc == 0) {
        say(c, "pinned %s\n", c->arg[0]);
    }
    json_decref(ok);
    return rc;
}

int ctl_cache_unpin(struct ctl *c, struct err *e)
{
    json_t *ok = NULL;
    int rc = act(c, of_scope(c, "cache.unpin"), &ok, e);

    if (rc == E_NOTFOUND) {
        err_set(e, rc, "%s is not pinned; see `mirrorctl cache pins`", c->arg[0]);
    } else if (rc == 0) {
        say(c, "unpinned %s\n", c->arg[0]);
    }
    json_decref(ok);
    return rc;
}

static void pin_row(struct table *t, const json_t *row)
{
    table_text(t, row, "scope");
    table_text(t, row, "owner");
}

int ctl_cache_pins(struct ctl *c, struct err *e)
{
    return list(c, request("cache.pins"), "SCOPE,OWNER", pin_row, NULL, e);
}

int ctl_cache_rm(struct ctl *c, struct err *e)
{
    json_t *req = of_scope(c, "cache.rm"), *ok = NULL;
    bool dry_run = option_given(c, "--dry-run");
    int rc;

    json_object_set_new(req, "all", json_boolean(option_given(c, "--all")));
    json_object_set_new(req, "dry_run", json_boolean(dry_run));
    rc = act(c, req, &ok, e);
    if (rc == 0 && dry_run) {
        say(c, "would remove %" PRIu64 " %s\n", get_u64(ok, "would_remove"),
            plural(get_u64(ok, "would_remove"), "object", "objects"));
    } else if (rc == 0) {
        say(c, "removed %" PRIu64 " %s\n", get_u64(ok, "removed"),
            plural(get_u64(ok, "removed"), "object", "objects"));
    }
    json_decref(ok);
    return rc;
}

int ctl_cache_refresh(struct ctl *c, struct err *e)
{
    json_t *req = request("cache.refresh"), *prefixes = json_array(), *ok = NULL;
    int rc;

    for (size_t i = 1; i < c->args; i++) {
        json_array_append_new(prefixes, json_string(c->arg[i]));
    }
    json_object_set_new(req, "repo", json_string(c->arg[0]));
    json_object_set_new(req, "prefixes", prefixes);
    rc = act(c, req, &ok, e);
    if (rc == 0) {
        say(c, "marked %" PRIu64 " %s: %s revalidated with the origin at the next request for it\n",
            get_u64(ok, "marked"), plural(get_u64(ok, "marked"), "object", "objects"),
            plural(get_u64(ok, "marked"), "it is", "each is"));
    }
    json_decref(ok);
    return rc;
}

int ctl_cache_gc(struct ctl *c, struct err *e)
{
    json_t *req = request("cache.gc"), *ok = NULL;
    bool dry_run = option_given(c, "--dry-run");
    char bytes[UNITS_TEXT];
    int rc;

    json_object_set_new(req, "dry_run", json_boolean(dry_run));
    rc = act(c, req, &ok, e);
    if (rc == 0) {
        size_format(get_u64(ok, "bytes"), bytes);
        say(c, "%s %" PRIu64 " %s (%s) and %" PRIu64 " tree %s\n",
            dry_run ? "would remove" : "removed", get_u64(ok, "blobs"),
            plural(get_u64(ok, "blobs"), "file", "files"), bytes, get_u64(ok, "nodes"),
            plural(get_u64(ok, "nodes"), "node", "nodes"));
    }
    json_decref(ok);
    return rc;
}
