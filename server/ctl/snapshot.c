#include <inttypes.h>

#include "server/ctl/ctl.h"

int ctl_snapshot_ls(struct ctl *c, struct err *e)
{
    json_t *req = request("snapshot.ls"), *rows = NULL, *ok = NULL, *r;
    struct table t;
    size_t i;
    int rc;

    json_object_set_new(req, "repo", json_string(c->arg[0]));
    if (c->args > 1) {
        json_object_set_new(req, "name", json_string(c->arg[1]));
    }
    rc = ask_rows(c, req, &rows, &ok, e);
    if (rc != 0) {
        return rc;
    }
    if (c->json) {
        print_json(rows);
    } else {
        table_init(&t, c, "VERSION,NAME,LABEL,>FILES,>SIZE,>CREATED,LIVE,ROOT");
        json_array_foreach(rows, i, r)
        {
            table_addf(&t, "v%" PRIu64, get_u64(r, "seq"));
            table_add(&t, c->args > 1 ? c->arg[1] : get_str(r, "name"));
            table_add(&t, get_str(r, "label")[0] != '\0' ? get_str(r, "label") : "-");
            table_addf(&t, "%" PRIu64, get_u64(r, "entries"));
            table_size(&t, get_u64(r, "bytes"));
            table_ago(&t, get_u64(r, "created_unix_s"));
            table_add(&t, get_bool(r, "live") ? "live" : "-");
            table_addf(&t, c->tty ? "%.12s" : "%s", get_str(r, "root"));
        }
        table_print(&t);
    }
    json_decref(rows);
    json_decref(ok);
    return 0;
}

int ctl_snapshot_rollback(struct ctl *c, struct err *e)
{
    json_t *req = request("snapshot.rollback"), *ok = NULL;
    int rc;

    json_object_set_new(req, "repo", json_string(c->arg[0]));
    json_object_set_new(req, "name", json_string(c->arg[1]));
    json_object_set_new(req, "version", json_string(c->arg[2]));
    rc = ask(c, req, NULL, NULL, NULL, &ok, e);
    if (rc == 0 && c->json) {
        print_json(ok);
    } else if (rc == E_NOTFOUND) {
        err_set(e, rc,
                "%s/%s has no version \"%s\", nothing was changed, see `mirrorctl snapshot ls %s`",
                c->arg[0], c->arg[1], c->arg[2], c->arg[0]);
    } else if (rc == 0) {
        say(c, "%s/%s is v%" PRIu64 " again\n", c->arg[0], c->arg[1], get_u64(ok, "seq"));
    }
    json_decref(ok);
    return rc;
}
