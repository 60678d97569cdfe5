#include "agent/pull/ask.h"

#include <stdlib.h>

enum { IDLE_BYTES_PER_S = 1024, HOPS_MAX = 5, FIELDS_MAX = 8, URL_ROOM = 64 << 10 };

struct ask {
    const struct agent *agent;
    struct xfer_loop *loop;
    struct xfer *x;
    struct arena arena;
    enum xfer_method method;
    struct slice sent;
    struct slice fields[FIELDS_MAX];
    size_t nfields;
    struct buf body;
    struct ask_answer ans;
    unsigned hops;
    void (*on_done)(void *arg, int rc, const struct err *why, const struct ask_answer *ans);
    void *arg;
};

int ask_judge(int status, struct err *e)
{
    if (status >= 200 && status < 300) {
        return 0;
    }
    switch (status) {
    case 404:
    case 410:
        return err_set(e, E_NOTFOUND, "the mirror does not have it (%d)", status);
    case 401:
        return err_set(e, E_DENIED,
                       "the mirror wants a token, or does not take this one (401); see to "
                       "$TRAINAGENT_TOKEN_FILE");
    case 403:
        return err_set(e, E_DENIED, "the token has no right to it (403)");
    case 409:
    case 412:
        return err_set(e, E_CHANGED, "somebody else was faster (%d)", status);
    case 413:
    case 507:
        return err_set(e, E_NOSPACE, "the mirror has no room for it (%d)", status);
    case 408:
    case 425:
    case 429:
    case 500:
    case 502:
    case 503:
    case 504:
        return err_set(e, E_AGAIN, "the mirror cannot answer now (%d)", status);
    default:
        return err_set(e, E_PROTOCOL, "the mirror answers %d", status);
    }
}

struct xfer_want ask_xfer_want(const struct agent *a, enum xfer_method method, struct slice url,
                               struct slice *lines, const struct slice *fields, size_t nfields)
{
    size_t n = 0;

    if (a->auth_line.n != 0) {
        lines[n++] = a->auth_line;
    }
    for (size_t i = 0; i < nfields; i++) {
        lines[n++] = fields[i];
    }
    return (struct xfer_want){.method = method,
                              .url = url,
                              .fields = lines,
                              .nfields = n,
                              .ca_file = a->ca_file,
                              .no_issuer = AGENT_NO_ISSUER,
                              .idle_timeout_s = a->idle_timeout_s,
                              .idle_bytes_per_s = IDLE_BYTES_PER_S};
}

static void ask_free(struct ask *q)
{
    buf_free(&q->body);
    arena_fini(&q->arena);
    free(q);
}

static int on_head(void *arg, const struct xfer_head *h)
{
    struct ask *q = arg;
    struct ask_answer *a = &q->ans;
    struct slice after = xfer_head_field(h, "retry-after");
    struct slice url = a->url;

    *a = (struct ask_answer){.status = h->status, .url = url, .content_length = h->content_length};
    a->etag = arena_copy(&q->arena, xfer_head_field(h, "etag"));
    a->digest = arena_copy(&q->arena, xfer_head_field(h, "repr-digest"));
    a->link = arena_copy(&q->arena, xfer_head_field(h, "link"));
    a->location = arena_copy(&q->arena, xfer_head_field(h, "location"));
    a->ranges = arena_copy(&q->arena, xfer_head_field(h, "accept-ranges"));
    a->type = arena_copy(&q->arena, xfer_head_field(h, "content-type"));
    if (!slice_u64(after, &a->retry_after_s)) {
        a->retry_after_s = 0;
    }
    if (!slice_u64(xfer_head_field(h, "upload-offset"), &a->upload_offset)) {
        a->upload_offset = 0;
    }
    a->upload_complete = slice_eq(xfer_head_field(h, "upload-complete"), SLICE("?1"));
    return 0;
}

static int on_body(void *arg, struct slice bytes)
{
    struct ask *q = arg;

    buf_adds(&q->body, bytes);
    return q->body.rc;
}

static void send_it(struct ask *q);

/* HEAD of a file that turns out to be a folder: that is the answer, and its listing another question. */
static bool names_folder(const struct ask *q)
{
    return q->method == XFER_HEAD && slice_ends(q->ans.location, SLICE("/")) &&
           !slice_ends(q->ans.url, SLICE("/"));
}

/* True when another question went out. */
static bool followed(struct ask *q, int *rc, struct err *e)
{
    int status = q->ans.status;
    struct buf to = BUF_INIT(URL_ROOM);
    struct url here;
    struct url there;
    bool again = false;

    if ((status != 301 && status != 302 && status != 303 && status != 307 && status != 308) ||
        q->ans.location.n == 0 || (q->method != XFER_GET && q->method != XFER_HEAD)) {
        return false;
    }
    if (names_folder(q)) {
        return false;
    }
    *rc = url_resolve(q->ans.url, q->ans.location, &to, e);
    if (*rc == 0) {
        CHECK(url_split(q->ans.url, &here, NULL) == 0 &&
              url_split(buf_slice(&to), &there, NULL) == 0);
        if (!url_same_host(&here, &there)) {
            *rc = err_set(e, E_DENIED, "the mirror sends us to another host, " SLICE_FMT,
                          SLICE_ARG(there.host));
        } else if (q->hops++ == HOPS_MAX) {
            *rc = err_set(e, E_PROTOCOL, "the mirror redirects more than %d times", HOPS_MAX);
        } else {
            q->ans.url = arena_copy(&q->arena, buf_slice(&to));
            buf_clear(&q->body);
            send_it(q);
            again = true;
        }
    }
    buf_free(&to);
    return again;
}

static void on_done(void *arg, int rc, const struct err *why, uint64_t body_bytes)
{
    struct ask *q = arg;
    struct err e = *why;

    (void)body_bytes;
    q->x = NULL;
    if (rc == 0 && followed(q, &rc, &e)) {
        return;
    }
    q->ans.body = buf_slice(&q->body);
    q->on_done(q->arg, rc, &e, &q->ans);
    ask_free(q);
}

static void send_it(struct ask *q)
{
    static const struct xfer_events events = {on_head, on_body, on_done};
    struct slice lines[FIELDS_MAX + 1];
    struct xfer_want w =
        ask_xfer_want(q->agent, q->method, q->ans.url, lines, q->fields, q->nfields);

    w.body = q->sent;
    q->x = xfer_start(q->loop, &w, &events, q);
}

struct ask *ask_start(struct xfer_loop *l, const struct agent *a, const struct ask_want *w,
                      void (*done)(void *arg, int rc, const struct err *why,
                                   const struct ask_answer *ans),
                      void *arg)
{
    struct ask *q = NEW(struct ask);

    CHECK(w->nfields <= FIELDS_MAX);
    q->agent = a;
    q->loop = l;
    q->method = w->method;
    q->ans.url = arena_copy(&q->arena, w->url);
    q->sent = arena_copy(&q->arena, w->body);
    for (size_t i = 0; i < w->nfields; i++) {
        q->fields[i] = arena_copy(&q->arena, w->fields[i]);
    }
    q->nfields = w->nfields;
    q->body = BUF_INIT(w->body_max != 0 ? w->body_max : 64 << 10);
    q->on_done = done;
    q->arg = arg;
    send_it(q);
    return q;
}

void ask_cancel(struct ask **ap)
{
    struct ask *q = *ap;

    if (q != NULL) {
        *ap = NULL;
        xfer_cancel(&q->x);
        ask_free(q);
    }
}
