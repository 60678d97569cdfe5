#include <inttypes.h>

#include "server/ctl/ctl.h"

static void swarm_row(struct table *t, const json_t *row)
{
    const char *digest = get_str(row, "digest");

    if (get_str(row, "key")[0] != '\0') {
        table_addf(t, "%s/%s", get_str(row, "repo"), get_str(row, "key"));
    } else {
        table_add(t, "-");
    }
    table_size(t, get_u64(row, "size"));
    table_count(t, row, "members");
    table_count(t, row, "givers");
    table_addf(t, "%" PRIu64 "/%" PRIu64, get_u64(row, "had"), get_u64(row, "chunks"));
    table_count(t, row, "asked");
    table_addf(t, t->ctl->tty ? "%.12s" : "%s", digest);
}

int ctl_peers_ls(struct ctl *c, struct err *e)
{
    return list(c, request("peers.ls"), "FILE,>SIZE,>NODES,>GIVE,>CHUNKS,>ASKED,DIGEST", swarm_row,
                NULL, e);
}
