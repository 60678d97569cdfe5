#include "server/request/right.h"

#include "server/gate/gate.h"
#include "server/store/keep.h"

enum { HOLDER_MAX = 8192 };

struct question {
    const struct repo_set *set;
    const struct principal *who;
    const struct digest *digest;
    struct right_last *last;
    struct store *store;
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

static bool may_read_key(const struct question *q, struct slice repo, char kind, struct slice key)
{
    struct buf subject = BUF_INIT(HOLDER_MAX);
    struct slice path = key;
    bool yes;

    buf_adds(&subject, repo);
    buf_byte(&subject, '/');
    buf_adds(&subject,
             kind == 'o' ? slice_cut(&path, '\0') : key); /* without the vary key of a variant */
    buf_str(&subject, kind == 't' ? "/" : "");            /* a tree: listing it shows its digests */
    yes = gate_allows(q->who, "read", buf_slice(&subject));
    buf_free(&subject);
    return yes;
}

/* Where the next holder may be that one of the caller's scopes speaks of: as kind and key, the
 * least behind this one. Empty: nowhere in this repo. False: this one's neighbour may be it. */
static bool next_reach(const struct question *q, struct slice repo, char kind, struct slice key,
                       struct buf *to)
{
    static const char kinds[] = {'o', 's', 't'};
    struct buf here = BUF_INIT(HOLDER_MAX), there = BUF_INIT(HOLDER_MAX);
    struct slice prefix;
    bool skips = true;
    size_t at = 0;

    buf_byte(&here, (uint8_t)kind);
    buf_adds(&here, key);
    while (skips && gate_reaches(q->who, "read", repo, &at, &prefix)) {
        for (size_t i = 0; skips && i < ARRAY_LEN(kinds); i++) {
            bool slash = kinds[i] == 't' && prefix.n != 0 && prefix.p[prefix.n - 1] == '/';
            buf_clear(&there);
            buf_byte(&there, (uint8_t)kinds[i]);
            buf_adds(&there, slice_first(prefix, prefix.n - slash));
            if (slice_starts(buf_slice(&here), buf_slice(&there))) {
                skips = false;
            } else if (slice_cmp(buf_slice(&here), buf_slice(&there)) < 0 &&
                       (to->n == 0 || slice_cmp(buf_slice(&there), buf_slice(to)) < 0)) {
                buf_clear(to);
                buf_adds(to, buf_slice(&there));
            }
        }
    }
    buf_free(&here);
    buf_free(&there);
    return skips;
}

/* The same few bytes may lie in a hundred thousand trees: whoever may read none of a repo's is not
 * looked for in all of them. */
static int judge_holder(void *arg, struct slice repo, char kind, struct slice key, struct buf *to)
{
    const struct question *q = arg;
    struct repo *r = repo_set_find(q->set, repo);

    if (r == NULL) {
        return HOLDER_SKIP;
    }
    /* What an upload holds is nobody's to read before its commit; what came by a caller's own right
     * is for those whose right the origin has confirmed, and a digest does not say where to ask. */
    if (kind == 'u' || (r->by_caller && slice_find(key, '\0') >= 0)) {
        return kind == 'u' ? HOLDER_SKIP : 0; /* the last kind */
    }
    if (r->by_caller && r->ops->is_open != NULL && kind == 'o' &&
        !r->ops->is_open(r, key, q->store)) {
        return 0;
    }
    if (r->anonymous_read || may_read_key(q, repo, kind, key)) {
        remember(q, repo, kind, key);
        return 1;
    }
    return next_reach(q, repo, kind, key, to) ? HOLDER_SKIP : 0;
}

int right_to_digest(struct store *s, const struct repo_set *set, const struct principal *who,
                    const struct digest *d, struct right_last *last, struct err *e)
{
    struct question q = {set, who, d, last, s};
    int rc;

    if (as_the_last(s, &q)) {
        return 0;
    }
    rc = holder_seek(s, d, judge_holder, &q, e);
    return rc == 0 ? E_NOTFOUND : rc < 0 ? rc : 0;
}
