/* What is told of files that nodes share: to the world in status.json and on the page, to mirrorctl in whole. */
#include "common/codec/jwrite.h"
#include "common/os/clock.h"
#include "server/admin/admin.h"
#include "server/admin/sample.h"
#include "server/admin/talk.h"

bool swarm_is_public(const struct sample *s, const struct swarm_view *v)
{
    const struct repo *r = repo_set_find(s->set, slice_str(v->repo));

    return r != NULL && r->anonymous_read;
}

static void swarm_json(const struct swarm_view *v, bool seen, struct buf *out)
{
    if (seen) {
        jwrite_hex(out, "digest", v->digest.b, sizeof v->digest.b);
        jwrite_str(out, "repo", v->repo);
        jwrite_str(out, "key", v->key);
    } else { /* not even which repo: its name says that somebody pulls from it now */
        jwrite_null(out, "digest");
        jwrite_null(out, "repo");
        jwrite_null(out, "key");
    }
    jwrite_u64(out, "size", v->size_bytes);
    jwrite_u64(out, "members", v->count.members);
    jwrite_u64(out, "givers", v->count.givers);
    jwrite_u64(out, "chunks", v->count.chunks);
    jwrite_u64(out, "had", v->count.had);
    jwrite_u64(out, "asked", v->count.asked);
    jwrite_u64(out, "age_ms", v->age_ms);
}

void swarms_status_json(const struct sample *s, bool whole, struct buf *out)
{
    jwrite_open(out, "swarms", '[');
    for (size_t i = 0; i < s->swarms; i++) {
        jwrite_open(out, NULL, '{');
        swarm_json(&s->swarm[i], whole || swarm_is_public(s, &s->swarm[i]), out);
        jwrite_close(out, '}');
    }
    jwrite_close(out, ']');
}

int verb_peers_ls(struct talk *t, struct err *e)
{
    struct swarm_view *v = mem_array(SWARMS_MAX, sizeof *v);
    size_t n = peers_look(t->parts->peers, clock_now_ms(), v, SWARMS_MAX);
    int rc = peers_on(t->parts->peers)
                 ? 0
                 : err_set(e, E_NOTFOUND,
                           "nodes share nothing through this mirror, it has no peers section, "
                           "write peers { } into its configuration");

    for (size_t i = 0; i < n && rc == 0; i++) {
        swarm_json(&v[i], true, talk_row(t));
        if (talk_row_end(t) != 0) {
            break;
        }
    }
    free(v);
    return rc;
}
