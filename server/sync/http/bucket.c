#include <inttypes.h>
#include <stdlib.h>

#include "common/codec/url.h"
#include "server/fetch/s3_list.h"
#include "server/store/tree.h"
#include "server/sync/http/http_engine.h"

/* An S3 bucket as an upstream: its list, page after page.
 *
 * Each is asked for by the token of the one before. One after the other: a token cannot be guessed,
 * and a list split by delimiters is wrong where keys lie flat. A list without end stops at the
 * number of entries, at the bytes that a list may have, when a token comes twice, or when page
 * after page is empty. */

_Static_assert(S3_SIZE_UNKNOWN == SYNC_SIZE_UNKNOWN && S3_TIME_UNKNOWN == SYNC_TIME_UNKNOWN,
               "the sizes and times of a list are those of an entry");

enum { PAGE_BYTES = 32 << 20, EMPTY_PAGES_MAX = 100 };

struct bucket {
    struct http_engine *g;
    const struct origin_bucket *of;
    struct doc *doc;
    struct s3_list_page page;
    uint64_t pages, entries, left_out;
    unsigned empty;       /* pages on end */
    uint64_t mark, limit; /* of a ring of tokens: Brent's tortoise stays for 2^n pages */
    struct slice prefix;
};

static void request_bucket_page(struct bucket *x);

static void end_bucket_listing(struct bucket *x, int rc, const struct err *why)
{
    struct engine_listed l = {.left_out = x->left_out};

    if (rc == 0) {
        x->g->site->log(x->g->site->log_arg, "%" PRIu64 " pages of the bucket's list were read",
                        x->pages);
    }
    http_listed(x->g, rc, why, &l);
}

static int on_bucket_object(void *arg, const struct s3_object *o, struct err *e)
{
    struct bucket *x = arg;
    struct sync_entry en = {.type = SYNC_FILE,
                            .size_bytes = o->size_bytes,
                            .mtime_ns = o->mtime_ns,
                            .validator = o->etag};
    int rc;

    if (!slice_starts(o->key, x->prefix)) {
        return err_set(e, E_PROTOCOL, "the list has a key that does not begin with the prefix");
    }
    en.path = slice_from(o->key, x->prefix.n);
    /* "a/", which some tools put where they show a folder, is no file; and nothing is called "a//b"
     * or "../a". */
    if (!tree_path_valid(en.path)) {
        x->left_out++;
        return 0;
    }
    if (++x->entries > x->g->site->entries_max) {
        return err_set(e, E_TOOBIG,
                       "the bucket lists more than %" PRIu64 " keys; raise max_entries",
                       x->g->site->entries_max);
    }
    rc = x->g->ev.on_entry(x->g->arg, &en);
    return rc != 0 ? err_set(e, rc, "an entry of the bucket's list was rejected") : 0;
}

/* Pages must lead on: not to where we were, nor through nothing for ever. */
static int check_progress(struct bucket *x, struct err *e)
{
    uint64_t now = slice_hash(slice_str(x->page.token));

    x->empty = x->page.objects == 0 ? x->empty + 1 : 0;
    if (x->pages > 1 && now == x->mark) {
        return err_set(e, E_PROTOCOL, "the list leads back to a page that was already read");
    }
    if (x->empty == EMPTY_PAGES_MAX) {
        return err_set(e, E_PROTOCOL, "the list has too many empty pages in a row");
    }
    if (x->pages >= x->limit) {
        x->limit = 2 * x->pages;
        x->mark = now;
    }
    return 0;
}

static void on_bucket_page(struct doc *d, int rc)
{
    struct bucket *x = d->arg;
    struct s3_list_events ev = {on_bucket_object, x};
    struct err why = d->why;

    x->pages++;
    if (rc == 0) {
        err_clear(&why);
        rc = s3_list_read(buf_slice(&d->body), &ev, &x->page, &why);
        x->left_out += x->page.left_out;
    }
    if (rc == E_INVALID) { /* of a list that is E_PROTOCOL: it may be better the next time */
        rc = why.code = E_PROTOCOL;
    }
    doc_free(&x->doc);
    if (rc == 0 && x->page.more) {
        rc = check_progress(x, &why);
    }
    if (rc != 0) {
        err_prefix(&why, "page %" PRIu64 " of the list", x->pages);
        end_bucket_listing(x, rc, &why);
    } else if (x->page.more) {
        request_bucket_page(x);
    } else {
        end_bucket_listing(x, 0, NULL);
    }
}

/* Sorted and encoded as it will be signed. */
static void request_bucket_page(struct bucket *x)
{
    struct buf url = BUF_INIT(32 << 10);

    buf_addf(&url, "%s?", x->of->url);
    if (x->page.more) {
        buf_str(&url, "continuation-token=");
        url_encode(slice_str(x->page.token), &url);
        buf_byte(&url, '&');
    }
    buf_str(&url, "encoding-type=url&list-type=2&max-keys=1000&prefix=");
    url_encode(x->prefix, &url);
    x->doc = doc_ask(x->g, buf_cstr(&url), NULL, PAGE_BYTES, on_bucket_page, x);
    buf_free(&url);
}

static void bucket_start(struct http_engine *g)
{
    struct bucket *x = NEW(struct bucket);

    x->g = g;
    x->of = origin_bucket(g->site->origin);
    x->prefix = slice_str(x->of->prefix);
    g->lister_state = x;
    request_bucket_page(x);
}

static void bucket_free(struct http_engine *g)
{
    struct bucket *x = g->lister_state;

    if (x != NULL) {
        doc_free(&x->doc);
        free(x);
        g->lister_state = NULL;
    }
}

const struct lister lister_bucket = {"bucket", bucket_start, bucket_free, NULL, NULL};
