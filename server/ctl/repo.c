#include "server/ctl/ctl.h"

static void repo_row(struct table *t, const json_t *row)
{
    table_text(t, row, "name");
    table_text(t, row, "protocol");
    table_text(t, row, "origin");
    table_add(t, get_bool(row, "anonymous_read") ? "read" : "none");
    table_count(t, row, "requests");
    table_size(t, get_u64(row, "bytes"));
}

int ctl_repo_ls(struct ctl *c, struct err *e)
{
    return list(c, request("repo.ls"), "NAME,PROTOCOL,ORIGIN,ANONYMOUS,>REQUESTS,>SENT", repo_row,
                NULL, e);
}

int ctl_repo_show(struct ctl *c, struct err *e)
{
    json_t *req = request("repo.show");

    json_object_set_new(req, "repo", json_string(c->arg[0]));
    return list_members(c, req, e);
}
