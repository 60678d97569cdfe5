#include <inttypes.h>

#include "common/base/buf.h"
#include "server/ctl/ctl.h"

/* Its label, the branches and tags that lead to it. */
static void add_snapshot_names(struct table *t, const json_t *row)
{
    struct buf all = BUF_INIT(64 << 10);
    const json_t *names = json_object_get(row, "names");
    size_t i;
    const json_t *name;

    buf_str(&all, get_str(row, "label"));
    json_array_foreach(names, i, name)
    {
        buf_addf(&all, "%s%s", all.n != 0 ? "," : "", json_string_value(name));
    }
    table_add(t, all.n != 0 ? buf_cstr(&all) : "-");
    buf_free(&all);
}

static void snapshot_row(struct table *t, const json_t *row)
{
    table_addf(t, "v%" PRIu64, get_u64(row, "seq"));
    table_text(t, row, "name");
    add_snapshot_names(t, row);
    table_count(t, row, "entries");
    table_size(t, get_u64(row, "bytes"));
    table_ago(t, get_u64(row, "created_unix_s"));
    table_add(t, get_bool(row, "live") ? "live" : "-");
    table_addf(t, t->ctl->tty ? "%.12s" : "%s", get_str(row, "root"));
    table_text(t, row, "author");
    table_text(t, row, "title");
}

int ctl_snapshot_ls(struct ctl *c, struct err *e)
{
    json_t *req = request("snapshot.ls");

    json_object_set_new(req, "repo", json_string(c->arg[0]));
    if (c->args > 1) {
        json_object_set_new(req, "name", json_string(c->arg[1]));
    }
    return list(c, req, "VERSION,NAME,LABEL,>ENTRIES,>SIZE,>CREATED,LIVE,ROOT,BY,WHY", snapshot_row,
                NULL, e);
}

/* The arguments behind REPO: a hosted tree's name has an owner, "owner/name", and comes first; a
 * synced repo has none. The rest, in order, are members of the request. */
static json_t *of_tree(const struct ctl *c, const char *verb, const char *const *member)
{
    json_t *req = request(verb);
    size_t i = 1;

    json_object_set_new(req, "repo", json_string(c->arg[0]));
    if (i < c->args && strchr(c->arg[i], '/') != NULL) {
        json_object_set_new(req, "name", json_string(c->arg[i++]));
    }
    for (; i < c->args && *member != NULL; i++, member++) {
        json_object_set_new(req, *member, json_string(c->arg[i]));
    }
    return req;
}

static const char *const version[] = {"version", NULL};

int ctl_snapshot_show(struct ctl *c, struct err *e)
{
    return list_members(c, of_tree(c, "snapshot.show", version), e);
}

/* Of a side that is there, and a file. */
static void side_size(struct table *t, const json_t *row, const char *key)
{
    if (json_is_null(json_object_get(row, key))) {
        table_add(t, "-");
    } else {
        table_size(t, get_u64(row, key));
    }
}

static void diff_row(struct table *t, const json_t *row)
{
    table_text(t, row, "what");
    side_size(t, row, "old_size");
    side_size(t, row, "size");
    table_addf(t, "%s%s", get_str(row, "path"), get_bool(row, "folder") ? "/" : "");
}

int ctl_snapshot_diff(struct ctl *c, struct err *e)
{
    static const char *const ends[] = {"from", "to", NULL};

    return list(c, of_tree(c, "snapshot.diff", ends), "WHAT,>OLD SIZE,>SIZE,PATH", diff_row, NULL,
                e);
}

int ctl_snapshot_rollback(struct ctl *c, struct err *e)
{
    json_t *ok = NULL;
    int rc = act(c, of_tree(c, "snapshot.rollback", version), &ok, e);

    if (rc == 0) {
        say(c, "%s%s%s is v%" PRIu64 " again\n", c->arg[0], c->args > 2 ? "/" : "",
            c->args > 2 ? c->arg[1] : "", get_u64(ok, "seq"));
        if (c->args == 2 && get_bool(ok, "hold")) {
            say(c,
                "the results of new runs are held from now on: `mirrorctl sync approve %s` "
                "publishes them, `mirrorctl snapshot hold %s --off` lets runs publish again\n",
                c->arg[0], c->arg[0]);
        }
    }
    json_decref(ok);
    return rc;
}

int ctl_snapshot_tag(struct ctl *c, struct err *e)
{
    static const char *const members[] = {"version", "label", NULL};
    json_t *ok = NULL;
    int rc = act(c, of_tree(c, "snapshot.tag", members), &ok, e);

    if (rc == 0) {
        say(c, "v%" PRIu64 " is \"%s\"\n", get_u64(ok, "seq"), get_str(ok, "label"));
    }
    json_decref(ok);
    return rc;
}

int ctl_snapshot_hold(struct ctl *c, struct err *e)
{
    static const char *const none[] = {NULL};
    json_t *req = of_tree(c, "snapshot.hold", none), *ok = NULL;
    bool off = option_given(c, "--off");
    int rc;

    json_object_set_new(req, "off", json_boolean(off));
    rc = act(c, req, &ok, e);
    if (rc == 0) {
        say(c, "%s\n",
            off ? "runs publish again"
                : "runs publish nothing until `mirrorctl snapshot hold` is run with --off");
    }
    json_decref(ok);
    return rc;
}

int ctl_snapshot_rm(struct ctl *c, struct err *e)
{
    json_t *ok = NULL;
    int rc = act(c, of_tree(c, "snapshot.rm", version), &ok, e);

    if (rc == 0) {
        say(c, "v%" PRIu64 " is deleted; %s\n", get_u64(ok, "seq"),
            get_bool(ok, "cluster")
                ? "`mirrorctl cluster gc`, or the next collection, condemns the files that only it "
                  "had, and they are deleted from the bucket after collect_delay"
                : "`mirrorctl cache gc` frees the files that only it had");
    }
    json_decref(ok);
    return rc;
}
