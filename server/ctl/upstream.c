#include "server/ctl/ctl.h"

static void origin_row(struct table *t, const json_t *row)
{
    table_text(t, row, "repo");
    table_text(t, row, "origin");
    table_add(t, get_bool(row, "up") ? "up" : "DOWN");
    table_count(t, row, "status");
    table_count(t, row, "took_ms");
    table_text(t, row, "why");
}

int ctl_upstream_check(struct ctl *c, struct err *e)
{
    json_t *req = request("upstream.check"), *ok = NULL;
    bool down;
    int rc;

    if (c->args > 0) {
        json_object_set_new(req, "repo", json_string(c->arg[0]));
    }
    rc = list(c, req, "REPO,ORIGIN,STATE,>STATUS,>TOOK MS,WHY", origin_row, &ok, e);
    down = get_u64(ok, "down") > 0;
    json_decref(ok);
    return rc != 0 ? rc : down ? 69 : 0;
}
