#include <inttypes.h>

#include "server/ctl/ctl.h"

int ctl_upstream_check(struct ctl *c, struct err *e)
{
    json_t *req = request("upstream.check"), *rows = NULL, *ok = NULL, *r;
    struct table t;
    size_t i;
    bool down;
    int rc;

    if (c->args > 0) {
        json_object_set_new(req, "repo", json_string(c->arg[0]));
    }
    rc = ask_rows(c, req, &rows, &ok, e);
    if (rc != 0) {
        return rc;
    }
    down = get_u64(ok, "down") > 0;
    if (c->json) {
        print_json(rows);
    } else {
        table_init(&t, c, "REPO,ORIGIN,STATE,>STATUS,>TOOK MS,WHY");
        json_array_foreach(rows, i, r)
        {
            table_add(&t, get_str(r, "repo"));
            table_add(&t, get_str(r, "origin"));
            table_add(&t, get_bool(r, "up") ? "up" : "DOWN");
            table_addf(&t, "%" PRIu64, get_u64(r, "status"));
            table_addf(&t, "%" PRIu64, get_u64(r, "took_ms"));
            table_add(&t, get_str(r, "why")[0] != '\0' ? get_str(r, "why") : "-");
        }
        table_print(&t);
    }
    json_decref(rows);
    json_decref(ok);
    return down ? 69 : 0;
}
