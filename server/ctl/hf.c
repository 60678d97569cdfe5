#include <inttypes.h>

#include "common/codec/units.h"
#include "server/ctl/ctl.h"

/* "12/30", "?" where the listing is not known. */
static void add_share(struct table *t, const json_t *row, const char *here, const char *all)
{
    if (json_is_null(json_object_get(row, all))) {
        table_add(t, "?");
    } else {
        table_addf(t, "%" PRIu64 "/%" PRIu64, get_u64(row, here), get_u64(row, all));
    }
}

static void add_marks(struct table *t, const json_t *row)
{
    bool pinned = get_bool(row, "pinned"), held = get_bool(row, "held");

    table_add(t, pinned && held ? "pinned,held" : pinned ? "pinned" : held ? "held" : "-");
}

static void repo_row(struct table *t, const json_t *row)
{
    const char *type = get_str(row, "type");
    bool model = strcmp(type, "models") == 0;

    table_text(t, row, "repo");
    table_text(t, row, "kind");
    table_addf(t, "%s%s%s", model ? "" : type, model ? "" : "/", get_str(row, "id"));
    table_count(t, row, "revisions");
    add_share(t, row, "files_here", "files");
    table_bytes(t, row, "bytes_here");
    table_bytes(t, row, "bytes");
    table_ago(t, get_u64(row, "last_asked_unix_s"));
    add_marks(t, row);
}

int ctl_hf_ls(struct ctl *c, struct err *e)
{
    json_t *req = request("hf.ls");

    if (c->args > 0) {
        json_object_set_new(req, "repo", json_string(c->arg[0]));
    }
    if (c->args > 1) {
        json_object_set_new(req, "prefix", json_string(c->arg[1]));
    }
    return list(c, req, "REPO,KIND,ID,>REVISIONS,>FILES,>HERE,>OF,>LAST ASKED,MARKS", repo_row,
                NULL, e);
}

static void revision_row(struct table *t, const json_t *row)
{
    table_text(t, row, "revision");
    table_text(t, row, "commit");
    table_ago(t, get_u64(row, "asked_unix_s"));
    add_share(t, row, "files_here", "files");
    table_bytes(t, row, "bytes_here");
    table_bytes(t, row, "bytes");
    add_marks(t, row);
}

static void file_row(struct table *t, const json_t *row)
{
    bool lfs = !json_is_null(json_object_get(row, "sha256"));
    const char *name = get_str(row, lfs ? "sha256" : "git_oid");
    const char *state = get_str(row, "state");
    uint64_t size = get_u64(row, "size"), have = get_u64(row, "have");

    table_text(t, row, "path");
    table_size(t, size);
    if (strcmp(state, "partial") == 0 && size != 0) {
        table_addf(t, "partial %" PRIu64 "%%", have * 100 / size);
    } else {
        table_add(t, state);
    }
    table_addf(t, t->ctl->tty ? "%.12s" : "%s", name);
}

/* [REPO] ID [REV]: a repo's name has no '/', and most ids have. */
static json_t *of_id(const struct ctl *c, const char *verb, bool *has_rev)
{
    json_t *req = request(verb);
    size_t i = 0;

    if (c->args == 3 || (c->args == 2 && strchr(c->arg[0], '/') == NULL)) {
        json_object_set_new(req, "repo", json_string(c->arg[i++]));
    }
    json_object_set_new(req, "id", json_string(c->arg[i]));
    *has_rev = strchr(c->arg[i++], '@') != NULL || i < c->args;
    if (i < c->args) {
        json_object_set_new(req, "revision", json_string(c->arg[i]));
    }
    return req;
}

int ctl_hf_show(struct ctl *c, struct err *e)
{
    bool has_rev;
    json_t *req = of_id(c, "hf.show", &has_rev);

    if (has_rev) {
        return list(c, req, "PATH,>SIZE,HERE,DIGEST", file_row, NULL, e);
    }
    return list(c, req, "REVISION,COMMIT,>ASKED,>FILES,>HERE,>OF,MARKS", revision_row, NULL, e);
}
