#include "server/serve/right.h"

#include "server/gate/gate.h"
#include "server/store/keep.h"

enum { HOLDER_MAX = 8192 };

struct question {
    const struct repo_set *set;
    const struct principal *who;
    const struct digest *digest;
    struct right_last *last;
};

/* Of trees alone: other holders are a digest's own. */
static void remember(const struct question *q, struct slice repo, char kind, struct slice key)
{
    struct buf row = BUF_INIT(HOLDER_MAX);

    if (q->last == NULL || kind != 't') {
        return;
    }
    holder_key(&row, q->digest, repo, kind, key);
    buf_free(&q->last->holder);
    q->last->holder = BUF_INIT(HOLDER_MAX);
    buf_adds(&q->last->holder, slice_from(buf_slice(&row), DIGEST_BYTES));
    buf_free(&row);
}

static bool as_the_last(struct store *s, const struct question *q)
{
    struct buf key = BUF_INIT(DIGEST_BYTES + HOLDER_MAX), value = BUF_INIT(HOLDER_MAX);
    bool yes = false;

    if (q->last != NULL && q->last->holder.n != 0) {
        buf_add(&key, q->digest->b, DIGEST_BYTES);
        buf_adds(&key, buf_slice(&q->last->holder));
        yes = store_get(s, TABLE_HOLDER, buf_slice(&key), &value, NULL) == 0;
    }
    buf_free(&key);
    buf_free(&value);
    return yes;
}

static int judge_holder(void *arg, struct slice repo, char kind, struct slice key)
{
    const struct question *q = arg;
    struct repo *r = repo_set_find(q->set, repo);
    struct buf subject = BUF_INIT(8192);
    struct slice path = key;
    bool allowed;

    /* What an upload holds is nobody's to read before its commit; what came by a caller's own right is for those whose right
     * the origin has confirmed, and a digest does not say where to ask. */
    if (r == NULL || kind == 'u' || (r->by_caller && slice_find(key, '\0') >= 0)) {
        return 0;
    }
    if (r->anonymous_read) {
        remember(q, repo, kind, key);
        return 1;
    }
    buf_adds(&subject, repo);
    buf_byte(&subject, '/');
    buf_adds(&subject,
             kind == 'o' ? slice_cut(&path, '\0') : key); /* not what a variant is told by */
    buf_str(&subject,
            kind == 't' ? "/" : ""); /* a tree: who may list it has been told its digests */
    allowed = gate_allows(q->who, "read", buf_slice(&subject));
    buf_free(&subject);
    if (allowed) {
        remember(q, repo, kind, key);
    }
    return allowed ? 1 : 0;
}

int right_to_digest(struct store *s, const struct repo_set *set, const struct principal *who,
                    const struct digest *d, struct right_last *last, struct err *e)
{
    struct question q = {set, who, d, last};
    int rc;

    if (as_the_last(s, &q)) {
        return 0;
    }
    rc = holder_each(s, d, judge_holder, &q, e);
    return rc == 0 ? E_NOTFOUND : rc < 0 ? rc : 0;
}
