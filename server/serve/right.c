#include "server/serve/right.h"

#include "server/gate/gate.h"
#include "server/store/keep.h"

struct question {
    const struct repo_set *set;
    const struct principal *who;
};

static int judge_holder(void *arg, struct slice repo, char kind, struct slice key)
{
    const struct question *q = arg;
    struct repo *r = repo_set_find(q->set, repo);
    struct buf subject = BUF_INIT(8192);
    bool allowed;

    /* What an upload holds is nobody's to read before its commit; what came by a caller's own right is for those whose right
     * the origin has confirmed, and a digest does not say where to ask. */
    if (r == NULL || kind == 'u' || (r->by_caller && slice_find(key, '\0') >= 0)) {
        return 0;
    }
    if (r->anonymous_read) {
        return 1;
    }
    buf_adds(&subject, repo);
    buf_byte(&subject, '/');
    buf_adds(&subject, key);
    buf_str(&subject,
            kind == 't' ? "/" : ""); /* a tree: who may list it has been told its digests */
    allowed = gate_allows(q->who, "read", buf_slice(&subject));
    buf_free(&subject);
    return allowed ? 1 : 0;
}

int right_to_digest(struct store *s, const struct repo_set *set, const struct principal *who,
                    const struct digest *d, struct err *e)
{
    struct question q = {set, who};
    int rc = holder_each(s, d, judge_holder, &q, e);

    return rc == 0 ? E_NOTFOUND : rc < 0 ? rc : 0;
}
