#include <inttypes.h>
#include <stdio.h>

#include "common/codec/units.h"
#include "common/os/clock.h"
#include "server/ctl/ctl.h"

static void share(struct table *t, const json_t *o, const char *key)
{
    const json_t *v = json_object_get(o, key);

    if (json_is_number(v)) {
        table_addf(t, "%.1f%%", 100 * json_number_value(v));
    } else {
        table_add(t, "-");
    }
}

static void print_fills(struct ctl *c, const json_t *fills)
{
    struct table t;
    size_t i;
    json_t *f;

    table_init(&t, c, "FILL,>HAVE,>OF,>PER SECOND,>READERS");
    json_array_foreach(fills, i, f)
    {
        table_addf(&t, "%s/%s", get_str(f, "repo"), get_str(f, "key"));
        table_size(&t, get_u64(f, "have"));
        if (json_is_null(json_object_get(f, "total"))) {
            table_add(&t, "?");
        } else {
            table_size(&t, get_u64(f, "total"));
        }
        table_size(&t, get_u64(f, "rate"));
        table_addf(&t, "%" PRIu64, get_u64(f, "readers"));
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
        table_add(&t, get_str(r, "name"));
        table_add(&t, get_str(r, "protocol"));
        table_addf(&t, "%" PRIu64, get_u64(r, "requests"));
        table_size(&t, get_u64(r, "bytes"));
        share(&t, r, "hit_ratio");
        table_size(&t, get_u64(json_object_get(r, "upstream"), "bytes"));
    }
    table_print(&t);
}

int ctl_status(struct ctl *c, struct err *e)
{
    char used[UNITS_TEXT], quota[UNITS_TEXT], unused[UNITS_TEXT], up[UNITS_TEXT];
    const json_t *disk;
    json_t *ok = NULL;
    int rc = ask(c, request("status"), NULL, NULL, NULL, &ok, e);

    if (rc != 0) {
        return rc;
    }
    if (c->json) {
        print_json(ok);
        goto out;
    }
    disk = json_object_get(ok, "disk");
    size_format(get_u64(disk, "used"), used);
    size_format(get_u64(disk, "quota"), quota);
    size_format(get_u64(disk, "free"), unused);
    span_format((clock_unix_s() - get_u64(ok, "started_unix_s")) * 1000, up);
    say(c, "mirrord %s, %s, up %s, %" PRIu64 " connections%s\n", get_str(ok, "version"),
        get_bool(ok, "draining") ? "draining"
        : get_bool(ok, "ready")  ? "serving"
                                 : "not ready",
        up, get_u64(json_object_get(ok, "connections"), "open"),
        get_bool(json_object_get(ok, "reload"), "ok")
            ? ""
            : ", the last reload FAILED: `mirrorctl config test`");
    say(c, "disk: %s of %s in %" PRIu64 " files, %s free%s\n", used, quota, get_u64(disk, "blobs"),
        unused, get_bool(disk, "full") ? ", FULL" : "");
    say(c, "\n");
    print_repos(c, json_object_get(ok, "repos"));
    if (json_array_size(json_object_get(ok, "fills")) > 0) {
        say(c, "\n");
        print_fills(c, json_object_get(ok, "fills"));
    }
out:
    json_decref(ok);
    return 0;
}
