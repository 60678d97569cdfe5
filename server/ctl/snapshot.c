#include <inttypes.h>

#include "server/ctl/ctl.h"

static void snapshot_row(struct table *t, const json_t *row)
{
    table_addf(t, "v%" PRIu64, get_u64(row, "seq"));
    table_text(t, row, "name");
    table_text(t, row, "label");
    table_count(t, row, "entries");
    table_size(t, get_u64(row, "bytes"));
    table_ago(t, get_u64(row, "created_unix_s"));
    table_add(t, get_bool(row, "live") ? "live" : "-");
    table_addf(t, t->ctl->tty ? "%.12s" : "%s", get_str(row, "root"));
}

int ctl_snapshot_ls(struct ctl *c, struct err *e)
{
    json_t *req = request("snapshot.ls");

    json_object_set_new(req, "repo", json_string(c->arg[0]));
    if (c->args > 1) {
        json_object_set_new(req, "name", json_string(c->arg[1]));
    }
    return list(c, req, "VERSION,NAME,LABEL,>FILES,>SIZE,>CREATED,LIVE,ROOT", snapshot_row, NULL,
                e);
}

int ctl_snapshot_rollback(struct ctl *c, struct err *e)
{
    json_t *req = request("snapshot.rollback"), *ok = NULL;
    int rc;

    json_object_set_new(req, "repo", json_string(c->arg[0]));
    json_object_set_new(req, "name", json_string(c->arg[1]));
    json_object_set_new(req, "version", json_string(c->arg[2]));
    rc = act(c, req, &ok, e);
    if (rc == E_NOTFOUND) {
        err_set(e, rc,
                "%s/%s has no version \"%s\", nothing was changed, see `mirrorctl snapshot ls %s`",
                c->arg[0], c->arg[1], c->arg[2], c->arg[0]);
    } else if (rc == 0) {
        say(c, "%s/%s is v%" PRIu64 " again\n", c->arg[0], c->arg[1], get_u64(ok, "seq"));
    }
    json_decref(ok);
    return rc;
}
