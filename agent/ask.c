#include "agent/ask.h"

#include <stdlib.h>
#include <string.h>

#include "common/codec/url.h"
#include "common/codec/utf8.h"
#include "common/os/clock.h"

enum {
    IDLE_BYTES_PER_S = 1024,
    CONNECT_MS = 3000, /* when there is another mirror */
    HOPS_MAX = 5,
    FIELDS_MAX = 8,
    URL_ROOM = 64 << 10,
    REASON_SHOWN = 160
};

struct ask {
    const struct agent *agent;
    struct xfer_loop *loop;
    struct xfer *x;
    struct arena arena;
    enum xfer_method method;
    bool head_reason;
    bool for_reason; /* the GET after a refused HEAD */
    bool fixed;
    struct digest key;
    unsigned mirror;    /* the one that is asked */
    uint64_t tried;     /* a bit for each mirror that was asked */
    struct slice first; /* the URL as it was given */
    struct slice url;   /* of the request, at that mirror */
    struct slice sent;
    struct slice fields[FIELDS_MAX];
    size_t nfields;
    struct buf body;
    struct ask_answer ans;
    unsigned hops;
    void (*on_done)(void *arg, int rc, const struct err *why, const struct ask_answer *ans);
    void *arg;
};

/* --- what a status means ---------------------------------------------------------------------- */

void ask_reason_head(struct ask_reason *r, const struct xfer_head *h)
{
    struct slice message = xfer_head_field(h, "x-error-message");

    *r = (struct ask_reason){0};
    if (h->status >= 400 && message.n != 0) {
        ask_reason_body(r, message);
        r->whole = true;
    }
}

void ask_reason_body(struct ask_reason *r, struct slice bytes)
{
    size_t n = min_u64(bytes.n, sizeof r->text - r->n);

    if (!r->whole) {
        memcpy(r->text + r->n, bytes.p, n);
        r->n += n;
        r->whole = r->n == sizeof r->text;
    }
}

/* C0 and C1 controls and DEL: a terminal acts on them. */
static bool is_control(uint32_t c)
{
    return c < 0x20 || (c >= 0x7f && c < 0xa0);
}

/* Appends the first line, cut at a character's end. What cannot be printed becomes ".": a "?" would
 * begin a query, which messages leave out. */
static void add_request_line(struct buf *out, struct slice text)
{
    size_t start = out->n;
    struct slice rest = text;

    text = slice_trim(slice_cut(&rest, '\n'));
    if (slice_ends(text, SLICE("\r"))) {
        text.n--;
    }
    text = slice_trim(text);
    while (text.n > 0) {
        size_t n;
        bool whole = utf8_next(text, &n) == UTF8_WHOLE;
        bool shown = whole && !is_control(utf8_char(text));

        if (out->n - start + n > REASON_SHOWN) {
            buf_adds(out, SLICE("..."));
            return;
        }
        buf_adds(out, shown ? slice_of(text.p, n) : SLICE("."));
        text = slice_from(text, n);
    }
}

static bool starts_with_word(struct slice text, struct slice word)
{
    return text.n >= word.n && slice_ieq(slice_first(text, word.n), word) &&
           (text.n == word.n || strchr(" :;.\r\n", text.p[word.n]) != NULL);
}

/* Some servers begin the reason with the status, "404: Not Found" or "not found: no such repo",
 * which judge_status() has said already. */
static struct slice without_status(struct slice text)
{
    struct slice rest = text;

    if (starts_with_word(rest, SLICE("404"))) {
        rest = slice_from(rest, 3);
        while (rest.n > 0 && (rest.p[0] == ':' || rest.p[0] == ' ')) {
            rest = slice_from(rest, 1);
        }
    }
    if (!starts_with_word(rest, SLICE("not found"))) {
        return text;
    }
    rest = slice_from(rest, SLICE("not found").n);
    if (rest.n > 0 && rest.p[0] == ' ') {
        return text; /* "not found in ..." */
    }
    while (rest.n > 0 && strchr(":;. ", rest.p[0]) != NULL) {
        rest = slice_from(rest, 1);
    }
    return rest;
}

/* A page for browsers is some proxy's, and its first line says nothing. */
static void add_reason(const struct ask_reason *r, struct err *e)
{
    struct slice text = slice_of(r->text, r->n);
    struct buf line = BUF_INIT(sizeof e->text);
    char what[sizeof e->text];
    int code = e->code;

    while (text.n > 0 && (uint8_t)text.p[0] <= ' ') {
        text = slice_from(text, 1);
    }
    if (text.n != 0 && text.p[0] != '<') {
        add_request_line(&line, code == E_NOTFOUND ? without_status(text) : text);
    }
    if (line.n != 0) {
        memcpy(what, e->text, sizeof what);
        err_set(e, code, "%s: %s", what, buf_cstr(&line));
    }
    buf_free(&line);
}

static int judge_status(int status, struct err *e)
{
    switch (status) {
    case 404:
    case 410:
        return err_set(e, E_NOTFOUND, "not found on the mirror (%d)", status);
    case 401:
        return err_set(
            e, E_DENIED,
            "the mirror requires a token or rejected this one (401); check $TRAINAGENT_TOKEN_FILE");
    case 403:
        return err_set(e, E_DENIED, "the token does not permit it (403)");
    case 409:
    case 412:
        return err_set(e, E_CHANGED, "another client changed it in the meantime (%d)", status);
    case 413:
    case 507:
        return err_set(e, E_NOSPACE, "the mirror has no space for it (%d)", status);
    case 408:
    case 425:
    case 429:
    case 500:
    case 502:
    case 503:
    case 504:
        return err_set(e, E_AGAIN, "the mirror is temporarily unavailable (%d)", status);
    default:
        return err_set(e, E_PROTOCOL, "the mirror responded with status %d", status);
    }
}

int ask_judge(int status, const struct ask_reason *r, struct err *e)
{
    if (status >= 200 && status < 300) {
        return 0;
    }
    judge_status(status, e);
    add_reason(r, e);
    return e->code;
}

/* --- one question ----------------------------------------------------------------------------- */

struct xfer_params ask_xfer_params(const struct agent *a, enum xfer_method method, struct slice url,
                                   struct slice *lines, const struct slice *fields, size_t nfields)
{
    size_t n = 0;

    if (a->auth_line.n != 0) {
        lines[n++] = a->auth_line;
    }
    for (size_t i = 0; i < nfields; i++) {
        lines[n++] = fields[i];
    }
    return (struct xfer_params){
        .method = method,
        .url = url,
        .fields = lines,
        .nfields = n,
        .ca_file = a->ca_file,
        .no_issuer = AGENT_NO_ISSUER,
        .connect_timeout_ms = a->mirrors != NULL && mirrors_count(a->mirrors) > 1 ? CONNECT_MS : 0,
        .idle_timeout_s = a->idle_timeout_s,
        .idle_bytes_per_s = IDLE_BYTES_PER_S};
}

static void ask_free(struct ask *q)
{
    buf_free(&q->body);
    arena_fini(&q->arena);
    free(q);
}

static int on_mirror_head(void *arg, const struct xfer_head *h)
{
    struct ask *q = arg;
    struct ask_answer *a = &q->ans;
    struct slice after = xfer_head_field(h, "retry-after");
    struct slice url = a->url;

    if (q->for_reason) {
        ask_reason_head(&a->reason, h);
        return h->status == a->status ? 0 : E_CHANGED;
    }
    *a = (struct ask_answer){.status = h->status, .url = url, .content_length = h->content_length};
    ask_reason_head(&a->reason, h);
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

static int on_mirror_body(void *arg, struct slice bytes)
{
    struct ask *q = arg;

    if (q->ans.status >= 400) {
        ask_reason_body(&q->ans.reason, bytes);
    }
    if (q->for_reason) {
        return q->ans.reason.whole ? E_TOOBIG : 0;
    }
    buf_adds(&q->body, bytes);
    return q->body.rc;
}

static void send_it(struct ask *q);

static struct slice plain_url(struct ask *q)
{
    return q->fixed ? q->url : mirrors_plain(q->agent->mirrors, q->mirror, q->url, &q->arena);
}

/* HEAD of a file that turns out to be a folder: that is the answer, and its listing another
 * question. */
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
    *rc = url_resolve(q->url, q->ans.location, &to, e);
    if (*rc == 0) {
        CHECK(url_split(q->url, &here, NULL) == 0 && url_split(buf_slice(&to), &there, NULL) == 0);
        if (!url_same_host(&here, &there)) {
            *rc = err_set(e, E_DENIED, "the mirror redirects to another host, " SLICE_FMT,
                          SLICE_ARG(there.host));
        } else if (q->hops++ == HOPS_MAX) {
            *rc = err_set(e, E_PROTOCOL, "the mirror redirects more than %d times", HOPS_MAX);
        } else {
            q->url = arena_copy(&q->arena, buf_slice(&to));
            q->ans.url = plain_url(q);
            buf_clear(&q->body);
            send_it(q);
            again = true;
        }
    }
    buf_free(&to);
    return again;
}

/* A 404 is followed by a request for a folder of that name, whose answer has a reason; 405 and 501
 * are of HEAD itself; 429 asks for fewer requests. */
static bool wants_reason(const struct ask *q)
{
    int status = q->ans.status;

    return q->head_reason && q->method == XFER_HEAD && status >= 400 && status != 404 &&
           status != 405 && status != 429 && status != 501 && q->ans.reason.n == 0;
}

bool ask_has_failed(int rc, int status)
{
    if (rc != 0) {
        return rc == E_NETWORK || rc == E_TIMEOUT || rc == E_PROTOCOL;
    }
    return status == 500 || (status >= 502 && status <= 504);
}

/* Of those that come into question the next mirror; false: there is none. */
static bool ask_next_mirror(struct ask *q, enum mirrors_which which)
{
    unsigned next = mirrors_choose(q->agent->mirrors, &q->key, q->tried, which, clock_now_ms());
    struct slice plain = q->first;

    if (next == MIRROR_NONE) {
        return false;
    }
    q->mirror = next;
    q->tried |= (uint64_t)1 << next;
    q->url = mirrors_at(q->agent->mirrors, next, plain, &q->arena);
    q->ans = (struct ask_answer){.url = plain};
    q->hops = 0;
    buf_clear(&q->body);
    send_it(q);
    return true;
}

/* True: another mirror is asked. */
static bool ask_other_mirror(struct ask *q, int rc)
{
    struct mirrors *m = q->agent->mirrors;
    int status = rc == 0 ? q->ans.status : 0;

    if (q->fixed) {
        return false;
    }
    if (ask_has_failed(rc, status)) {
        mirrors_failed(m, q->mirror, clock_now_ms());
        return ask_next_mirror(q, MIRRORS_ALL);
    }
    if (status == 404 || status == 401) {
        return ask_next_mirror(q, MIRRORS_FRESH);
    }
    if (rc == 0) {
        mirrors_worked(m, q->mirror);
    }
    return false;
}

static void on_mirror_done(void *arg, int rc, const struct err *why, uint64_t body_bytes)
{
    struct ask *q = arg;
    struct err e = *why;

    (void)body_bytes;
    q->x = NULL;
    if (!q->for_reason && ask_other_mirror(q, rc)) {
        return;
    }
    if (q->for_reason) { /* whatever became of it, the HEAD was answered */
        rc = 0;
        err_clear(&e);
    } else if (rc == 0 && followed(q, &rc, &e)) {
        return;
    } else if (rc == 0 && wants_reason(q)) {
        q->for_reason = true;
        send_it(q);
        return;
    }
    q->ans.body = buf_slice(&q->body);
    q->on_done(q->arg, rc, &e, &q->ans);
    ask_free(q);
}

static void send_it(struct ask *q)
{
    static const struct xfer_events events = {on_mirror_head, on_mirror_body, on_mirror_done};
    struct slice lines[FIELDS_MAX + 1];
    struct xfer_params w = ask_xfer_params(q->agent, q->for_reason ? XFER_GET : q->method, q->url,
                                           lines, q->fields, q->nfields);

    w.body = q->sent;
    w.ranged = q->for_reason; /* one byte, if it is there by now */
    q->x = xfer_start(q->loop, &w, &events, q);
}

struct ask *ask_start(struct xfer_loop *l, const struct agent *a, const struct ask_params *w,
                      void (*done)(void *arg, int rc, const struct err *why,
                                   const struct ask_answer *ans),
                      void *arg)
{
    struct ask *q = NEW(struct ask);

    CHECK(w->nfields <= FIELDS_MAX);
    q->agent = a;
    q->loop = l;
    q->method = w->method;
    q->head_reason = w->head_reason;
    q->first = arena_copy(&q->arena, w->url);
    q->sent = arena_copy(&q->arena, w->body);
    for (size_t i = 0; i < w->nfields; i++) {
        q->fields[i] = arena_copy(&q->arena, w->fields[i]);
    }
    q->nfields = w->nfields;
    q->body = BUF_INIT(w->body_max != 0 ? w->body_max : 64 << 10);
    q->on_done = done;
    q->arg = arg;
    q->fixed = w->fixed;
    if (q->fixed) {
        q->url = q->ans.url = q->first;
        send_it(q);
        return q;
    }
    if (w->key != NULL) {
        q->key = *w->key;
    } else {
        mirrors_key(a->mirrors, q->first, &q->key);
    }
    CHECK(ask_next_mirror(q, MIRRORS_ALL));
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

void ask_give_up(struct ask **ap)
{
    struct ask *q = *ap;

    if (q != NULL && !q->fixed) {
        mirrors_failed(q->agent->mirrors, q->mirror, clock_now_ms());
    }
    ask_cancel(ap);
}
