#include <inttypes.h>
#include <stdio.h>

#include "common/codec/units.h"
#include "server/ctl/ctl.h"

int ctl_cache_ls(struct ctl *c, struct err *e)
{
    json_t *req = request("cache.ls"), *rows = NULL, *ok = NULL, *r;
    uint64_t limit = 1000;
    struct table t;
    size_t i;
    int rc;

    if (c->limit != NULL && !slice_u64(slice_str(c->limit), &limit)) {
        json_decref(req);
        return err_set(e, E_USAGE, "--limit \"%s\" is no number, it counts rows, write one",
                       c->limit);
    }
    json_object_set_new(req, "repo", json_string(c->arg[0]));
    json_object_set_new(req, "limit", json_integer((json_int_t)limit));
    if (c->args > 1) {
        json_object_set_new(req, "prefix", json_string(c->arg[1]));
    }
    rc = ask_rows(c, req, &rows, &ok, e);
    if (rc != 0) {
        return rc;
    }
    if (c->json) {
        print_json(rows);
    } else {
        table_init(&t, c, "OBJECT,>STATUS,>SIZE,>STORED,>FRESH UNTIL");
        json_array_foreach(rows, i, r)
        {
            table_addf(&t, "%s/%s", get_str(r, "repo"),
                       get_str(r, "key")); /* as rm and pin take it */
            table_addf(&t, "%" PRIu64, get_u64(r, "status"));
            table_size(&t, get_u64(r, "size"));
            table_ago(&t, get_u64(r, "stored_unix_s"));
            table_ago(&t, get_u64(r, "fresh_until_unix_s"));
        }
        table_print(&t);
        if (get_bool(ok, "more") && c->tty) {
            say(c, "... and more: --limit N, or a longer prefix\n");
        }
    }
    json_decref(rows);
    json_decref(ok);
    return 0;
}

int ctl_cache_stats(struct ctl *c, struct err *e)
{
    json_t *ok = NULL, *v;
    struct table t;
    const char *key;
    int rc = ask(c, request("cache.stats"), NULL, NULL, NULL, &ok, e);

    if (rc != 0) {
        return rc;
    }
    if (c->json) {
        print_json(ok);
        json_decref(ok);
        return 0;
    }
    table_init(&t, c, "WHAT,>NOW");
    json_object_foreach(ok, key, v)
    {
        static const char *const sizes[] = {"used", "quota",      "small",         "staged",
                                            "free", "fill_bytes", "evicted_bytes", NULL};
        size_t i = 0;
        while (sizes[i] != NULL && strcmp(sizes[i], key) != 0) {
            i++;
        }
        table_add(&t, key);
        if (json_is_boolean(v)) {
            table_add(&t, json_is_true(v) ? "yes" : "no");
        } else if (sizes[i] != NULL) {
            table_size(&t, get_u64(ok, key));
        } else {
            table_addf(&t, "%" PRIu64, get_u64(ok, key));
        }
    }
    table_print(&t);
    json_decref(ok);
    return 0;
}

static int with_scope(struct ctl *c, const char *verb, json_t **ok, struct err *e)
{
    json_t *req = request(verb);

    json_object_set_new(req, "scope", json_string(c->arg[0]));
    json_object_set_new(req, "all", json_boolean(c->all));
    json_object_set_new(req, "dry_run", json_boolean(c->dry_run));
    return ask(c, req, NULL, NULL, NULL, ok, e);
}

static int done(struct ctl *c, json_t *ok, int rc)
{
    if (rc == 0 && c->json) {
        print_json(ok);
    }
    json_decref(ok);
    return rc;
}

int ctl_cache_pin(struct ctl *c, struct err *e)
{
    json_t *ok = NULL;
    int rc = with_scope(c, "cache.pin", &ok, e);

    if (rc == 0) {
        say(c, "pinned %s\n", c->arg[0]);
    }
    return done(c, ok, rc);
}

int ctl_cache_unpin(struct ctl *c, struct err *e)
{
    json_t *ok = NULL;
    int rc = with_scope(c, "cache.unpin", &ok, e);

    if (rc == E_NOTFOUND) {
        err_set(e, rc, "%s is not pinned, see `mirrorctl cache pins`", c->arg[0]);
    } else if (rc == 0) {
        say(c, "unpinned %s\n", c->arg[0]);
    }
    return done(c, ok, rc);
}

int ctl_cache_pins(struct ctl *c, struct err *e)
{
    json_t *rows = NULL, *ok = NULL, *r;
    struct table t;
    size_t i;
    int rc = ask_rows(c, request("cache.pins"), &rows, &ok, e);

    if (rc != 0) {
        return rc;
    }
    if (c->json) {
        print_json(rows);
    } else {
        table_init(&t, c, "SCOPE,OWNER");
        json_array_foreach(rows, i, r)
        {
            table_add(&t, get_str(r, "scope"));
            table_add(&t, get_str(r, "owner"));
        }
        table_print(&t);
    }
    json_decref(rows);
    json_decref(ok);
    return 0;
}

int ctl_cache_rm(struct ctl *c, struct err *e)
{
    json_t *ok = NULL;
    int rc = with_scope(c, "cache.rm", &ok, e);

    if (rc == 0 && c->dry_run) {
        say(c, "would remove %" PRIu64 " objects\n", get_u64(ok, "would_remove"));
    } else if (rc == 0) {
        say(c, "removed %" PRIu64 " objects\n", get_u64(ok, "removed"));
    }
    return done(c, ok, rc);
}

int ctl_cache_gc(struct ctl *c, struct err *e)
{
    json_t *req = request("cache.gc"), *ok = NULL;
    char bytes[UNITS_TEXT];
    int rc;

    json_object_set_new(req, "dry_run", json_boolean(c->dry_run));
    rc = ask(c, req, NULL, NULL, NULL, &ok, e);
    if (rc == 0) {
        size_format(get_u64(ok, "bytes"), bytes);
        say(c, "%s %" PRIu64 " files (%s) and %" PRIu64 " tree nodes\n",
            c->dry_run ? "would remove" : "removed", get_u64(ok, "blobs"), bytes,
            get_u64(ok, "nodes"));
    }
    return done(c, ok, rc);
}
