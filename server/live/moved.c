#include "server/live/moved.h"

#include "common/base/log.h"

/* In TABLE_META, "origin" NUL repo -> protocol NUL url; a hosted repo's url is empty. */
static void put_key(struct buf *out, const struct repo *r)
{
    buf_str(out, "origin");
    buf_byte(out, 0);
    buf_str(out, r->name);
}

static void put_moved_row(struct buf *out, const struct repo *r)
{
    buf_str(out, r->ops->name);
    buf_byte(out, 0);
    buf_str(out, r->origin != NULL ? origin_url(r->origin) : "");
}

/* was: the row of before. */
static void report_moved_repo(const struct repo *r, struct slice was, struct buf *said)
{
    struct slice url = was, protocol = slice_cut(&url, '\0');
    struct buf text = BUF_INIT(8192);

    if (r->origin != NULL && origin_owns(r->origin, origin_identity_of(protocol, url))) {
        log_info("repo.moved", "repo=%s from=" SLICE_FMT, r->name, SLICE_ARG(url));
        return;
    }
    buf_addf(&text, "repo %s was " SLICE_FMT " " SLICE_FMT " before: ", r->name,
             SLICE_ARG(protocol), SLICE_ARG(url));
    if (url.n == 0) {
        buf_str(&text, "the uploaded files stay in the store but are no longer served");
    } else if (r->origin != NULL) {
        buf_addf(&text,
                 "its objects are fetched again from %s; if both have the same files, write "
                 "moved_from = {\"" SLICE_FMT "\"} to keep the cached ones",
                 origin_url(r->origin), SLICE_ARG(url));
    } else {
        buf_str(&text, "its objects stay in the store until they are evicted, but are no longer "
                       "served");
    }
    log_warn("repo.other_origin", "%s", buf_cstr(&text));
    if (said != NULL) {
        buf_addf(said, "%s%s", said->n > 0 ? "\n" : "", buf_cstr(&text));
    }
    buf_free(&text);
}

void moved_note(struct store *s, const struct repo_set *rs, struct buf *said)
{
    struct buf key = BUF_INIT(256), row = BUF_INIT(8192), was = BUF_INIT(8192);
    struct batch *b = batch_new();
    struct err why = {0};

    for (size_t i = 0; i < rs->count; i++) {
        int rc;
        buf_clear(&key);
        buf_clear(&row);
        put_key(&key, rs->repo[i]);
        put_moved_row(&row, rs->repo[i]);
        rc = store_get(s, TABLE_META, buf_slice(&key), &was, &why);
        if (rc == 0 && slice_eq(buf_slice(&was), buf_slice(&row))) {
            continue;
        }
        if (rc == 0) {
            report_moved_repo(rs->repo[i], buf_slice(&was), said);
        }
        batch_put(b, TABLE_META, buf_slice(&key), buf_slice(&row));
    }
    if (store_commit(s, &b, COMMIT_LAZY, &why) != 0) {
        log_warn("repo.origin_not_noted", "why=\"%s\"",
                 why.text); /* a full disk: it is said again */
    }
    buf_free(&key);
    buf_free(&row);
    buf_free(&was);
}
