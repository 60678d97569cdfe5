#include "agent/publish/publish.h"

#include <errno.h>
#include <event2/event.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "agent/publish/files.h"
#include "agent/publish/memo.h"
#include "agent/pull/ask.h"
#include "agent/shelf/place.h"
#include "agent/verb.h"
#include "common/base/log.h"
#include "common/codec/units.h"
#include "common/os/clock.h"
#include "common/codec/progress.h"

enum { TICK_MS = 100 };

struct publisher;

struct lane { /* one file on its way */
    struct publisher *p;
    const struct publish_file *file;
    struct ask *ask; /* how much of it has arrived? */
    struct xfer *x;
    int fd;
    uint64_t from; /* what the mirror has already */
    uint64_t sent;
    int status;
    unsigned tries;
    uint64_t not_before_ms;
    bool asked; /* where to go on */
};

struct publisher {
    const struct agent *agent;
    struct event_base *base;
    struct xfer_loop *xfers;
    struct event *tick;
    struct event *stop[2];
    struct arena arena;
    struct publish_files files;
    struct slice to;       /* URL of the tree */
    struct slice location; /* of the upload */
    struct memo *memo;     /* outlives this process */
    bool resumed;          /* files may be there already, whole or in part */
    bool committed;        /* by an earlier process that did not hear the answer */
    size_t next;
    unsigned running;
    struct lane *lanes;
    struct progress *bar;
    uint64_t done_bytes;
    struct ask *ask;
    int rc;
    struct err why;
};

static void fail(struct publisher *p, int rc, const struct err *why)
{
    if (p->rc == 0) {
        p->rc = rc;
        p->why = *why;
        p->why.code = rc;
    }
    event_base_loopbreak(p->base);
}

/* --- files ------------------------------------------------------------------------------------------------------------- */

static void lane_done(struct lane *l)
{
    if (l->fd != -1) {
        close(l->fd);
    }
    l->fd = -1;
    l->file = NULL;
    l->p->running--;
}

static void lane_sent(struct lane *l)
{
    l->p->done_bytes += l->file->size_bytes;
    lane_done(l);
}

static void lane_failed(struct lane *l, int rc, const struct err *why)
{
    struct err e = *why;

    l->asked = false; /* ask where to go on */
    if ((rc == E_NETWORK || rc == E_TIMEOUT || rc == E_AGAIN) && ++l->tries <= l->p->agent->tries) {
        l->not_before_ms = clock_now_ms() + ((uint64_t)100 << l->tries);
        return;
    }
    err_prefix(&e, SLICE_FMT, SLICE_ARG(l->file->name));
    fail(l->p, rc, &e);
}

static struct slice file_url(struct lane *l)
{
    struct buf url = BUF_INIT(64 << 10);
    struct slice out;

    buf_adds(&url, l->p->location);
    buf_byte(&url, '/');
    url_encode_path(l->file->name, &url);
    out = arena_copy(&l->p->arena, buf_slice(&url));
    buf_free(&url);
    return out;
}

static ptrdiff_t read_file(void *arg, uint64_t offset, void *p, size_t n)
{
    struct lane *l = arg;
    ssize_t got;

    do {
        got = pread(l->fd, p, n, (off_t)(l->from + offset));
    } while (got == -1 && errno == EINTR);
    l->sent = offset + (got > 0 ? (uint64_t)got : 0);
    return got > 0 ? got : E_CHANGED; /* shorter than it was */
}

static int on_put_head(void *arg, const struct xfer_head *h)
{
    struct lane *l = arg;

    l->status = h->status;
    return 0;
}

static void on_put_done(void *arg, int rc, const struct err *why, uint64_t body_bytes)
{
    struct lane *l = arg;
    struct err e = *why;

    (void)body_bytes;
    l->x = NULL;
    if (rc == 0 && l->status == 422) {
        rc = err_set(&e, E_CHANGED, "it changed while it was sent; publish again");
    } else if (rc == 0 && (l->status == 308 || l->status == 409)) {
        rc = err_set(&e, E_NETWORK, "the mirror has another part of it than was thought");
    } else if (rc == 0) {
        rc = ask_judge(l->status, &e);
    }
    if (rc != 0) {
        lane_failed(l, rc, &e);
        return;
    }
    lane_sent(l);
}

static void put_file(struct lane *l)
{
    static const struct xfer_events events = {on_put_head, NULL, on_put_done};
    const struct publish_file *f = l->file;
    struct slice fields[2];
    struct slice lines[4];
    struct xfer_want w;
    size_t n = 0;
    char repr[64];

    digest_repr(&f->digest, repr);
    fields[n++] = arena_fmt(&l->p->arena, "Repr-Digest: %s", repr);
    if (l->from > 0) {
        fields[n++] =
            arena_fmt(&l->p->arena, "Content-Range: bytes %" PRIu64 "-%" PRIu64 "/%" PRIu64,
                      l->from, f->size_bytes - 1, f->size_bytes);
    }
    w = ask_xfer_want(l->p->agent, XFER_PUT, file_url(l), lines, fields, n);
    w.body_read = read_file;
    w.body_bytes = f->size_bytes - l->from;
    l->sent = 0;
    l->x = xfer_start(l->p->xfers, &w, &events, l);
}

/* After a break: the mirror lets go of what it still takes in of this file, and says how much it has. */
static void on_offset(void *arg, int rc, const struct err *why, const struct ask_answer *a)
{
    struct lane *l = arg;
    uint64_t size = l->file->size_bytes;
    struct err e = *why;

    l->ask = NULL;
    if (rc == 0 && a->status == 409) {
        rc = err_set(&e, E_AGAIN, "the mirror still takes in what an earlier connection brought");
    } else if (rc == 0 && a->status != 404) {
        rc = ask_judge(a->status, &e);
    }
    if (rc != 0) {
        lane_failed(l, rc, &e);
        return;
    }
    l->asked = true;
    l->from = a->status == 404 ? 0 : a->upload_offset;
    if (a->upload_complete && l->from == size) {
        lane_sent(l); /* it was checked against this digest when its last byte came */
        return;
    }
    if (l->from > size || a->upload_complete) {
        l->from = 0; /* something else: sending it again settles what that is */
    } else if (l->from == size && size > 0) {
        l->from--; /* no range is empty: the last byte once more makes it whole */
    }
    put_file(l);
}

static void lane_go(struct lane *l)
{
    if (l->x != NULL || l->ask != NULL || clock_now_ms() < l->not_before_ms) {
        return;
    }
    if ((l->tries > 0 || l->p->resumed) && !l->asked) {
        const struct ask_want w = {.method = XFER_HEAD, .url = file_url(l)};
        l->ask = ask_start(l->p->xfers, l->p->agent, &w, on_offset, l);
        return;
    }
    put_file(l);
}

static int take_next(struct lane *l, struct err *e)
{
    const struct publish_file *f = &l->p->files.at[l->p->next++];

    l->file = f;
    l->tries = 0;
    l->from = l->sent = 0;
    l->not_before_ms = 0;
    l->asked = false;
    l->fd = open(f->path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    l->p->running++;
    return l->fd == -1 ? err_sys(e, "%s", f->path) : 0;
}

static void feed(struct publisher *p)
{
    struct err why;

    for (unsigned i = 0; i < p->agent->connections && p->rc == 0; i++) {
        struct lane *l = &p->lanes[i];
        if (l->file == NULL && p->next < p->files.n && take_next(l, &why) != 0) {
            fail(p, why.code, &why);
        } else if (l->file != NULL) {
            lane_go(l);
        }
    }
}

static void on_tick(evutil_socket_t fd, short what, void *arg)
{
    struct publisher *p = arg;
    uint64_t done = p->done_bytes;

    (void)fd;
    (void)what;
    for (unsigned i = 0; i < p->agent->connections; i++) {
        done += p->lanes[i].file != NULL ? p->lanes[i].from + p->lanes[i].sent : 0;
    }
    if (p->bar != NULL) {
        progress_draw(p->bar, done, p->files.bytes, clock_now_ms());
    }
}

static void on_signal(evutil_socket_t fd, short what, void *arg)
{
    struct err why;

    (void)fd;
    (void)what;
    err_set(&why, E_CANCELLED, "stopped; nothing was published");
    fail(arg, E_CANCELLED, &why);
}

static int put_all(struct publisher *p)
{
    do {
        feed(p);
        if (p->rc == 0 && p->running > 0) {
            event_base_loop(p->base, EVLOOP_ONCE);
        }
    } while (p->rc == 0 && (p->running > 0 || p->next < p->files.n));
    for (unsigned i = 0; i < p->agent->connections; i++) {
        struct lane *l = &p->lanes[i];
        xfer_cancel(&l->x);
        ask_cancel(&l->ask);
        if (l->file != NULL) {
            lane_done(l);
        }
    }
    return p->rc;
}

/* --- the questions before and after ------------------------------------------------------------------------------------------ */

struct question {
    struct publisher *p;
    int rc;
    bool done;
    struct slice location;
    struct slice body;
    struct slice url;
    int status;
};

static void on_answer(void *arg, int rc, const struct err *why, const struct ask_answer *a)
{
    struct question *q = arg;

    q->p->ask = NULL;
    q->done = true;
    q->rc = rc;
    q->p->why = *why;
    q->status = a->status;
    q->url = arena_copy(&q->p->arena, a->url);
    q->location = arena_copy(&q->p->arena, a->location);
    q->body = arena_copy(&q->p->arena, a->body);
}

static void wait_ms(struct publisher *p, uint64_t ms)
{
    uint64_t until = clock_now_ms() + ms;

    while (p->rc == 0 && clock_now_ms() < until) {
        event_base_loop(p->base, EVLOOP_ONCE); /* the tick ends it */
    }
}

/* Asks until there is an answer; a commit may be asked twice, the mirror remembers. */
static int put_question(struct publisher *p, enum xfer_method method, struct slice url,
                        struct slice field, struct question *q)
{
    const struct ask_want w = {
        .method = method, .url = url, .fields = &field, .nfields = field.n != 0};

    for (unsigned tries = 0;; tries++) {
        *q = (struct question){.p = p};
        p->ask = ask_start(p->xfers, p->agent, &w, on_answer, q);
        while (!q->done && p->rc == 0) {
            event_base_loop(p->base, EVLOOP_ONCE);
        }
        ask_cancel(&p->ask);
        if (p->rc != 0) {
            return p->rc;
        }
        if (q->rc == 0) {
            q->rc = ask_judge(q->status, &p->why);
        }
        if ((q->rc != E_NETWORK && q->rc != E_TIMEOUT && q->rc != E_AGAIN) ||
            tries == p->agent->tries) {
            return q->rc;
        }
        wait_ms(p, (uint64_t)100 << tries);
    }
}

/* Takes the upload's URL, wherever it is from: the token goes to our mirror alone. */
static int take_location(struct publisher *p, struct slice base, struct slice location)
{
    struct buf url = BUF_INIT(64 << 10);
    struct url there;
    int rc = url_resolve(base, location, &url, &p->why);

    if (rc == 0 && (url_split(buf_slice(&url), &there, NULL) != 0 ||
                    !url_same_host(&there, &p->agent->mirror_url))) {
        rc = err_set(&p->why, E_DENIED, "the mirror sends the upload to another host");
    }
    if (rc == 0) {
        while (url.n > 0 && url.p[url.n - 1] == '/') {
            url.n--;
        }
        p->location = arena_copy(&p->arena, buf_slice(&url));
    }
    buf_free(&url);
    return rc;
}

/* True when an upload of the same files, begun by a process that was killed, is still there. */
static bool find_upload(struct publisher *p)
{
    struct slice location = memo_location(p->memo);
    struct question q;
    json_t *doc = NULL;

    if (location.n == 0 || take_location(p, p->to, location) != 0) {
        return false;
    }
    if (put_question(p, XFER_GET, p->location, SLICE_NONE, &q) == 0) {
        doc = json_loadb(q.body.p, q.body.n, 0, NULL);
    }
    p->resumed = json_is_object(doc);
    p->committed = json_is_true(json_object_get(doc, "committed"));
    json_decref(doc);
    return p->resumed;
}

static int open_upload(struct publisher *p)
{
    struct question q;
    int rc;

    p->memo = memo_open(p->agent->state_dir, p->to, &p->files);
    if (find_upload(p)) {
        return 0;
    }
    if (p->rc != 0) {
        return p->rc;
    }
    rc = put_question(p, XFER_POST, arena_fmt(&p->arena, SLICE_FMT "/-/uploads", SLICE_ARG(p->to)),
                      SLICE_NONE, &q);
    if (rc == 0 && q.location.n == 0) {
        rc = err_set(&p->why, E_PROTOCOL,
                     "no hosted repository: the mirror names no place for an upload");
    }
    rc = rc != 0 ? rc : take_location(p, q.url, q.location);
    if (rc == 0) {
        memo_keep(p->memo, p->location);
    }
    return rc;
}

static int commit(struct publisher *p, const char *if_match, struct publish_result *out)
{
    struct question q;
    struct slice match = SLICE_NONE;
    json_t *doc;
    int rc;

    if (if_match != NULL) {
        match = arena_fmt(&p->arena, "If-Match: \"%s\"", if_match);
    }
    rc = put_question(p, XFER_POST,
                      arena_fmt(&p->arena, SLICE_FMT "/commit?replace=1", SLICE_ARG(p->location)),
                      match, &q);
    if (rc == 0 || rc == E_CHANGED || rc == E_NOTFOUND) {
        memo_forget(p->memo); /* it is settled, one way or the other */
    }
    if (rc == E_CHANGED && q.status == 412) {
        return err_set(&p->why, rc,
                       "the repository is no longer at that root; look, then publish again");
    }
    if (rc == E_CHANGED) {
        doc = json_loadb(q.body.p, q.body.n, 0, NULL);
        err_set(&p->why, rc, "the mirror refuses the commit: %.150s",
                json_is_string(json_object_get(doc, "error"))
                    ? json_string_value(json_object_get(doc, "error"))
                    : "409");
        json_decref(doc);
    }
    if (rc != 0) {
        return rc;
    }
    doc = json_loadb(q.body.p, q.body.n, 0, NULL);
    if (json_is_string(json_object_get(doc, "root")) &&
        !digest_parse(slice_str(json_string_value(json_object_get(doc, "root"))), &out->root)) {
        log_warn("publish.root", "the mirror names a root that is none");
    }
    if (json_is_string(json_object_get(doc, "version"))) {
        snprintf(out->version, sizeof out->version, "%s",
                 json_string_value(json_object_get(doc, "version")));
    }
    json_decref(doc);
    return 0;
}

/* --- all of it ----------------------------------------------------------------------------------------------------------------- */

static struct slice plain_to(struct slice to)
{
    while (to.n > 0 && to.p[to.n - 1] == '/') {
        to.n--;
    }
    return to;
}

bool publish_to_ok(struct slice to)
{
    size_t segments = 1;

    to = plain_to(to);
    for (size_t i = 0; i < to.n; i++) {
        segments += to.p[i] == '/';
    }
    return segments == 3 && place_name_ok(to);
}

static void open_publisher(struct publisher *p, const struct agent *a, const struct publish_want *w,
                           const struct publish_files *files)
{
    const struct timeval tick = {0, TICK_MS * 1000};
    struct slice to = plain_to(slice_str(w->to));

    *p = (struct publisher){.agent = a, .files = *files};
    p->to = arena_fmt(&p->arena, SLICE_FMT "/" SLICE_FMT, SLICE_ARG(a->mirror), SLICE_ARG(to));
    p->base = event_base_new();
    CHECK(p->base != NULL);
    p->xfers =
        xfer_loop_open(p->base, &(struct xfer_limits){.user_agent = "trainagent/" MIRROR_VERSION});
    p->lanes = mem_array(a->connections, sizeof p->lanes[0]);
    for (unsigned i = 0; i < a->connections; i++) {
        p->lanes[i] = (struct lane){.p = p, .fd = -1};
    }
    p->tick = event_new(p->base, -1, EV_PERSIST, on_tick, p);
    p->stop[0] = evsignal_new(p->base, SIGINT, on_signal, p);
    p->stop[1] = evsignal_new(p->base, SIGTERM, on_signal, p);
    event_add(p->tick, &tick);
    event_add(p->stop[0], NULL);
    event_add(p->stop[1], NULL);
    p->bar = a->quiet || a->json ? NULL : progress_open(w->to);
}

static void close_publisher(struct publisher *p)
{
    xfer_loop_close(&p->xfers);
    event_free(p->tick);
    event_free(p->stop[0]);
    event_free(p->stop[1]);
    event_base_free(p->base);
    progress_close(&p->bar);
    memo_close(&p->memo);
    publish_files_fini(&p->files);
    arena_fini(&p->arena);
    free(p->lanes);
}

int publish(const struct agent *a, const struct publish_want *w, struct publish_result *out,
            struct err *e)
{
    struct publish_files files;
    struct publisher p;
    int rc;

    *out = (struct publish_result){0};
    if (!publish_to_ok(slice_str(w->to))) {
        return err_set(e, E_USAGE,
                       "%s: publish goes to <repo>/<owner>/<name>, such as models/me/gpt2", w->to);
    }
    /* Before signals are ours: reading it all may take a while, and there is nothing to tidy up. */
    rc = publish_files_list(w->dir, &files, e);
    if (rc != 0) {
        return err_prefix(e, "%s", w->to);
    }
    open_publisher(&p, a, w, &files);
    rc = open_upload(&p);
    rc = rc != 0 || p.committed ? rc : put_all(&p);
    rc = rc != 0 ? rc : commit(&p, w->if_match, out);
    out->files = p.files.n;
    out->bytes = p.files.bytes;
    if (rc != 0) {
        *e = p.why;
        e->code = rc;
        err_prefix(e, "%s", w->to);
    }
    close_publisher(&p);
    return rc;
}

int verb_publish(struct verb_line *v, struct err *e)
{
    struct publish_want w = {.if_match = v->if_match};
    struct publish_result r;
    char root[DIGEST_HEX + 1];
    char size[UNITS_TEXT];
    int rc;

    if (v->argc != 2) {
        return err_set(e, E_USAGE,
                       "publish takes DIR and TO: trainagent publish out models/me/gpt2");
    }
    w.dir = v->argv[0];
    w.to = v->argv[1];
    rc = agent_open(v->agent, true, e);
    if (rc == 0) {
        rc = publish(v->agent, &w, &r, e);
    }
    if (rc != 0) {
        return rc;
    }
    digest_format(&r.root, root);
    if (v->agent->json) {
        json_t *o =
            json_pack("{s:s, s:s, s:s, s:I, s:I}", "to", w.to, "root", root, "version", r.version,
                      "files", (json_int_t)r.files, "bytes", (json_int_t)r.bytes);
        json_dumpf(o, stdout, JSON_COMPACT);
        fputc('\n', stdout);
        json_decref(o);
    } else if (!v->agent->quiet && isatty(STDERR_FILENO)) {
        size_format(r.bytes, size);
        fprintf(stderr, "%s: %" PRIu64 " files, %s, published as %s\n", w.to, r.files, size,
                r.version[0] != '\0' ? r.version : root);
    }
    return 0;
}
