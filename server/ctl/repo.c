#include <inttypes.h>

#include "server/ctl/ctl.h"

int ctl_repo_ls(struct ctl *c, struct err *e)
{
    json_t *rows = NULL, *ok = NULL, *r;
    struct table t;
    size_t i;
    int rc = ask_rows(c, request("repo.ls"), &rows, &ok, e);

    if (rc != 0) {
        return rc;
    }
    if (c->json) {
        print_json(rows);
    } else {
        table_init(&t, c, "NAME,PROTOCOL,ORIGIN,ANONYMOUS,>REQUESTS,>SENT");
        json_array_foreach(rows, i, r)
        {
            table_add(&t, get_str(r, "name"));
            table_add(&t, get_str(r, "protocol"));
            table_add(&t, get_str(r, "origin")[0] != '\0' ? get_str(r, "origin") : "-");
            table_add(&t, get_bool(r, "anonymous_read") ? "read" : "none");
            table_addf(&t, "%" PRIu64, get_u64(r, "requests"));
            table_size(&t, get_u64(r, "bytes"));
        }
        table_print(&t);
    }
    json_decref(rows);
    json_decref(ok);
    return 0;
}

int ctl_repo_show(struct ctl *c, struct err *e)
{
    json_t *req = request("repo.show"), *ok = NULL, *v;
    struct table t;
    const char *key;
    int rc;

    json_object_set_new(req, "repo", json_string(c->arg[0]));
    rc = ask(c, req, NULL, NULL, NULL, &ok, e);
    if (rc != 0) {
        return rc;
    }
    if (c->json) {
        print_json(ok);
    } else {
        table_init(&t, c, "WHAT,VALUE");
        json_object_foreach(ok, key, v)
        {
            table_add(&t, key);
            if (json_is_string(v)) {
                table_add(&t, json_string_value(v)[0] != '\0' ? json_string_value(v) : "-");
            } else if (json_is_boolean(v)) {
                table_add(&t, json_is_true(v) ? "yes" : "no");
            } else if (json_is_real(v)) {
                table_addf(&t, "%.1f%%", 100 * json_real_value(v));
            } else if (strstr(key, "bytes") != NULL) {
                table_size(&t, get_u64(ok, key));
            } else if (json_is_null(v)) {
                table_add(&t, "-");
            } else {
                table_addf(&t, "%" PRIu64, get_u64(ok, key));
            }
        }
        table_print(&t);
    }
    json_decref(ok);
    return 0;
}
