/* Verb upstream.check: one HEAD at every origin, or the first word of one that speaks first, all at
 * once, past the cache. */
#include <event2/event.h>
#include <stdlib.h>
#include <sys/socket.h>

#include "common/os/clock.h"
#include "common/xfer/xfer.h"
#include "server/admin/talk.h"
#include "server/fetch/origin.h"
#include "server/sync/rsync/link.h"
#include "server/sync/rsync/rsyncurl.h"
#include "server/sync/sshurl.h"

enum { SSH_PORT = 22 };

/* --- a peer that speaks first: an rsync daemon, an sshd --------------------------------------- */

struct greet { /* its first word is all that is asked of it */
    struct link *link;
    struct proxy proxy;
    const char *word; /* what it is to begin with */
    size_t heard;     /* of that */
    struct buf out;   /* nothing is said */
    void (*done)(void *arg, int rc, const struct err *why);
    void *arg;
};

static bool greet_speaks(const char *url)
{
    return strncmp(url, "rsync://", 8) == 0 || strncmp(url, "rsyncs://", 9) == 0 ||
           strncmp(url, "ssh://", 6) == 0;
}

static void on_upstream_link_end(void *arg, int rc, const struct err *why)
{
    struct greet *g = arg;
    struct err e = {.code = 0};

    if (rc == 0) {
        rc = err_set(&e, E_NETWORK, "the server closed the connection without sending anything");
        why = &e;
    }
    g->done(g->arg, rc, why);
}

static int on_upstream_bytes(void *arg, struct slice *in, struct err *e)
{
    struct greet *g = arg;
    size_t left = strlen(g->word) - g->heard;
    struct slice now = slice_first(*in, in->n < left ? in->n : left);

    *in = slice_from(*in, in->n);
    if (memcmp(now.p, g->word + g->heard, now.n) != 0) {
        return err_set(e, E_PROTOCOL,
                       "the server at that address does not speak this protocol: "
                       "its response does not begin with %s",
                       g->word);
    }
    g->heard += now.n;
    if (now.n > 0 && now.n == left) {
        link_close(&g->link);
        g->done(g->arg, 0, NULL);
    }
    return 0;
}

static struct buf *out(void *arg)
{
    struct greet *g = arg;

    return &g->out;
}

static void no_probe_event(void *arg)
{
    (void)arg;
}

static int read_upstream_address(struct greet *g, const struct origin_settings *o,
                                 struct link_settings *set, struct err *e)
{
    struct rsync_url r;
    struct ssh_url s;
    bool through = false;
    int rc;

    if (strncmp(o->url, "ssh://", 6) == 0) {
        g->word = "SSH-";
        rc = ssh_url_parse(slice_str(o->url), &s, e);
        set->host = s.host;
        set->port = s.port != 0 ? s.port : SSH_PORT;
        if (rc == 0 && slice_starts(s.host, SLICE("["))) {
            set->host = slice_of(s.host.p + 1, s.host.n - 2);
        }
        return rc;
    }
    g->word = "@RSYNCD: ";
    rc = rsync_url_parse(slice_str(o->url), &r, e);
    rc = rc != 0 ? rc : proxy_choose(o->proxy, o->no_proxy, r.host, &g->proxy, &through, e);
    set->host = r.host;
    set->port = r.port;
    set->tls = r.tls;
    set->proxy = through ? &g->proxy : NULL;
    return rc;
}

static void greet_close(struct greet **gp)
{
    struct greet *g = *gp;

    if (g == NULL) {
        return;
    }
    *gp = NULL;
    link_close(&g->link);
    buf_free(&g->out);
    free(g);
}

static int greet_open(const struct origin_settings *o, const struct link_site *site,
                      void (*done)(void *arg, int rc, const struct err *why), void *arg,
                      struct greet **result, struct err *e)
{
    static const struct link_events events = {.on_bytes = on_upstream_bytes,
                                              .out = out,
                                              .on_sent = no_probe_event,
                                              .on_quiet = no_probe_event,
                                              .on_end = on_upstream_link_end};
    struct link_settings set = {
        .ca_file = o->ca_file, .connect_ms = o->connect_ms, .stall_ms = o->stall_ms};
    struct greet *g = NEW(struct greet);
    int rc;

    g->done = done;
    g->arg = arg;
    rc = read_upstream_address(g, o, &set, e);
    rc = rc != 0 ? rc : link_open(&set, site, &events, g, &g->link, e);
    if (rc != 0) {
        greet_close(&g);
    }
    *result = g;
    return rc;
}

/* --- the probes ------------------------------------------------------------------------------- */

struct probe { /* of one URL */
    const struct repo_conf *conf;
    const char *url;
    const struct origin *origin; /* NULL: no HEAD can be asked of it, */
    struct greet *greet;         /* but it greets */
    unsigned *waiting;
    struct event_base *base;
    uint64_t began_ms, took_ms;
    bool up;
    int status; /* of HTTP; 0: none */
    struct err why;
};

static int on_control_upstream_head(void *arg, const struct xfer_head *h)
{
    struct probe *p = arg;

    p->status = h->status;
    return 0;
}

static int on_control_upstream_body(void *arg, struct slice bytes)
{
    (void)arg;
    (void)bytes;
    return 0;
}

static void answered(void *arg, int rc, const struct err *why)
{
    struct probe *p = arg;

    p->up = rc == 0 && p->status < 500;
    p->took_ms = clock_now_ms() - p->began_ms;
    if (p->up && p->origin != NULL) {
        origin_answered(p->origin, true);
    }
    if (rc != 0 && why != NULL) {
        p->why = *why;
    }
    if (--*p->waiting == 0) {
        event_base_loopbreak(p->base);
    }
}

static void on_control_upstream_done(void *arg, int rc, const struct err *why, uint64_t body_bytes)
{
    struct probe *p = arg;

    (void)body_bytes;
    answered(p, p->status > 0 ? 0 : rc, why);
}

static void start_greet(const struct link_site *site, struct probe *p)
{
    p->began_ms = clock_now_ms();
    if (greet_open(&p->conf->origin, site, answered, p, &p->greet, &p->why) != 0) {
        --*p->waiting;
    }
}

/* Of a bucket, the bucket: its prefix need not be an object. */
static void start_probe(struct xfer_loop *l, struct probe *p, struct arena *a)
{
    static const struct xfer_events events = {on_control_upstream_head, on_control_upstream_body,
                                              on_control_upstream_done};
    const struct origin_settings *o = &p->conf->origin;
    const struct origin_bucket *bucket = p->origin != NULL ? origin_bucket(p->origin) : NULL;
    struct slice lines[ORIGIN_LINES];
    struct buf url = BUF_INIT(16384);
    struct xfer_params w = {
        .method = XFER_HEAD,
        .fields = lines,
        .connect_timeout_ms = o->connect_ms,
        .idle_timeout_s = 30,
        .ca_file = o->ca_file,
        .proxy = o->proxy,
        .no_proxy = o->no_proxy,
    };
    int rc = 0;

    buf_str(&url, bucket != NULL ? bucket->url : p->url);
    if (p->origin != NULL) {
        rc =
            origin_credential(p->origin, true, clock_unix_s(), &url, a, lines, &w.nfields, &p->why);
    }
    p->began_ms = clock_now_ms();
    w.url = buf_slice(&url);
    if (rc != 0 || xfer_start(l, &w, &events, p) == NULL) {
        --*p->waiting;
    }
    buf_free(&url);
}

/* The client has left, or the daemon stops: nobody waits for the slowest any more. */
static void on_client(evutil_socket_t fd, short what, void *arg)
{
    struct event_base *base = arg;
    char byte;

    (void)what;
    if (recv(fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 0) {
        event_base_loopbreak(base);
    }
}

/* Any answer means that the origin is there; what it thinks of a HEAD at its root is shown, not
 * judged, but for 5xx. */
static void report_probe_result(struct talk *t, const struct probe *p)
{
    struct buf *row = talk_row(t);

    jwrite_str(row, "repo", p->conf->name);
    jwrite_str(row, "origin", p->url);
    jwrite_bool(row, "up", p->up);
    jwrite_u64(row, "status", (uint64_t)p->status);
    jwrite_u64(row, "took_ms", p->took_ms);
    jwrite_str(row, "why", !p->up && p->status == 0 ? p->why.text : "");
    (void)talk_row_end(t);
}

static size_t count_urls(const struct conf *c)
{
    size_t n = 0;

    for (size_t i = 0; i < c->repos_count; i++) {
        n += c->repos[i].origin.urls_count;
    }
    return n;
}

int verb_upstream_check(struct talk *t, struct err *e)
{
    struct slice only = talk_text(t, "repo");
    struct repo_set *rs = repo_set_hold(t->deps->repos);
    struct probe *probes = mem_array(count_urls(rs->conf) + 1, sizeof(*probes));
    struct event_base *base = event_base_new();
    struct message_queue *box;
    struct link_site site;
    struct xfer_loop *l;
    struct arena a = {0};
    unsigned waiting = 0;
    size_t n = 0, down = 0;

    CHECK(base != NULL);
    box = message_queue_open(base);
    site = (struct link_site){base, box};
    l = xfer_loop_open(base, &(struct xfer_limits){0});
    for (size_t i = 0; i < rs->conf->repos_count; i++) {
        const struct repo_conf *c = &rs->conf->repos[i];
        if (c->origin.url != NULL && (only.n == 0 || slice_eqs(only, c->name))) {
            const struct repo *r = repo_set_find(rs, slice_str(c->name));
            for (size_t k = 0; k < c->origin.urls_count; k++) {
                probes[n++] = (struct probe){.conf = c,
                                             .url = c->origin.urls[k],
                                             .origin = r != NULL ? r->origin : NULL,
                                             .waiting = &waiting,
                                             .base = base};
            }
        }
    }
    waiting = (unsigned)n;
    for (size_t i = 0; i < n; i++) {
        if (greet_speaks(probes[i].url)) {
            start_greet(&site, &probes[i]);
        } else {
            start_probe(l, &probes[i], &a);
        }
    }
    if (waiting > 0) {
        struct event *client = event_new(base, t->fd, EV_READ, on_client, base);
        CHECK(client != NULL);
        event_add(client, NULL);
        event_base_dispatch(base);
        event_free(client);
    }
    xfer_loop_close(&l); /* those that nobody waited for end here */
    for (size_t i = 0; i < n; i++) {
        greet_close(&probes[i].greet);
    }
    message_queue_close(&box);
    for (size_t i = 0; i < n; i++) {
        report_probe_result(t, &probes[i]);
        down += !probes[i].up;
    }
    jwrite_u64(t->result, "down", down);
    event_base_free(base);
    arena_fini(&a);
    free(probes);
    repo_set_release(&rs);
    return only.n > 0 && n == 0
               ? err_set(e, E_NOTFOUND,
                         "there is no repo of that name with an origin; see `mirrorctl repo ls`")
               : 0;
}
