/* fetch_ask.c - one hop is asked: whether its host may be, what it is shown of credentials, and the fields of the request. */
#include "common/os/clock.h"
#include "server/fetch/fetch_priv.h"
#include "server/fetch/origin_priv.h"

enum {
    STALL_BYTES_PER_S = 64, /* slower than this for stall_ms is a stall */
    LINES_MAX = 9 + FETCH_FIELDS + ORIGIN_LINES,
};

bool fetch_shows_tokens(const struct fetch *x)
{
    return x->home && x->origin->tokens && x->want.authorization.p == NULL;
}

static void add_line(struct fetch *x, struct slice *lines, size_t *n, const char *name,
                     struct slice value)
{
    if (value.p != NULL) {
        lines[(*n)++] = arena_fmt(&x->arena, "%s: " SLICE_FMT, name, SLICE_ARG(value));
    }
}

static void add_fields(struct fetch *x, struct slice *lines, size_t *n)
{
    for (size_t i = 0; i < x->want.nfields; i++) {
        const struct http_field *f = &x->want.fields[i];
        if (x->home || slice_starts(f->name, SLICE("accept"))) {
            lines[(*n)++] = arena_fmt(&x->arena, SLICE_FMT ": " SLICE_FMT, SLICE_ARG(f->name),
                                      SLICE_ARG(f->value));
        }
    }
}

/* 1: one is on its way, x->token.go goes on. Who waits has no seat: a token server that hangs for some keeps nobody whose token is
 * good from the origin. */
static int add_token(struct fetch *x, struct slice *lines, size_t *n)
{
    struct slice line;

    x->token_number = 0;
    if (!fetch_shows_tokens(x)) {
        return 0;
    }
    switch (bearer_get(lane_bearers(x->lane, x->fetcher->xfers), x->want.token_scope,
                       clock_now_ms(), &x->arena, &line, &x->token_number, &x->token)) {
    case BEARER_NONE:
        return 0;
    case BEARER_READY:
        lines[(*n)++] = line;
        return 0;
    case BEARER_WAIT:
        lane_leave(x->lane, &x->seat);
        return 1;
    }
    return 0;
}

/* A credential is for the origin's own scheme, host and port. */
static int add_credential(struct fetch *x, struct slice *lines, size_t *n)
{
    size_t before = *n;

    if (add_token(x, lines, n) != 0) {
        return 1;
    }
    if (*n != before) {
        return 0;
    }
    if (x->want.authorization.p != NULL && x->origin->s3 == NULL) {
        add_line(x, lines, n, "Authorization", x->want.authorization);
        return 0;
    }
    return origin_credential(x->origin, x->want.head, clock_unix_s(), &x->url, &x->arena, lines, n,
                             &x->why);
}

static void note_asked(struct fetch *x)
{
    uint64_t now = clock_now_ms();

    x->began_ms = x->began_ms != 0 ? x->began_ms : now;
    x->unanswered = false;
    x->unheard = x->home;
    if (x->home) {
        silence_asked(lane_silence(x->lane), x->origin->patience_ms, now);
    }
}

int fetch_ask(struct fetch *x, const struct xfer_events *events)
{
    const struct origin *o = x->origin;
    struct slice lines[LINES_MAX];
    struct xfer_want w = {
        .method = x->want.head          ? XFER_HEAD
                  : x->want.body.n != 0 ? XFER_POST
                                        : XFER_GET,
        .body = x->want.body,
        .url = buf_slice(&x->url),
        .fields = lines,
        .ranged = x->want.end != LENGTH_UNKNOWN,
        .range_first = x->want.first,
        .range_last = x->want.end - 1,
        .connect_timeout_ms = o->connect_ms,
        .idle_timeout_s = (o->stall_ms + 999) / 1000,
        .idle_bytes_per_s = STALL_BYTES_PER_S,
        .ca_file = o->ca_file,
    };
    struct url u;
    int rc = x->url.rc != 0
                 ? err_set(&x->why, E_TOOBIG, "its URL has more than %zu bytes", x->url.max)
                 : origin_admits(o, w.url, x->via_set ? buf_slice(&x->via) : x->want.via, &x->why);

    if (rc == 0) {
        rc = url_split(w.url, &u, &x->why);
    }
    if (rc != 0) {
        return rc;
    }
    x->home = origin_is_home(o, &u);
    if (x->want.stays_home && !x->home) {
        return err_set(&x->why, E_PROTOCOL,
                       "the origin redirects a question about a right to " SLICE_FMT,
                       SLICE_ARG(u.host));
    }
    origin_set_way(o, origin_trusts_address(o, &u), &w);
    rc = x->home ? add_credential(x, lines, &w.nfields) : 0;
    if (rc != 0) {
        return rc > 0 ? 0 : rc; /* x->token.go asks again */
    }
    w.url = buf_slice(&x->url); /* signing has put it into another form */
    add_line(x, lines, &w.nfields, "Accept", x->want.accept);
    add_fields(x, lines, &w.nfields);
    add_line(x, lines, &w.nfields, "Content-Type", x->want.body_type);
    add_line(x, lines, &w.nfields, "If-Range", x->want.if_range);
    add_line(x, lines, &w.nfields, "If-Match", x->want.if_match);
    add_line(x, lines, &w.nfields, "If-None-Match", x->want.if_none_match);
    add_line(x, lines, &w.nfields, "If-Modified-Since", x->want.if_modified_since);
    x->got_bytes = 0;
    x->due_bytes = LENGTH_UNKNOWN;
    atomic_fetch_add_explicit(&x->origin->count->requests, 1, memory_order_relaxed);
    note_asked(x);
    x->xfer = xfer_start(x->fetcher->xfers, &w, events, x);
    return 0;
}
