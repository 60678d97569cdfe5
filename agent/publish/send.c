/* send.c - the files of an upload, several at a time: each goes on where the mirror says when its connection broke. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <unistd.h>

#include "agent/publish/publisher.h"
#include "common/os/clock.h"

struct lane { /* one file on its way */
    struct publisher *p;
    const struct publish_file *file;
    struct ask *ask; /* how much of it has arrived? */
    struct xfer *x;
    int fd;
    uint64_t from; /* what the mirror has already */
    uint64_t sent;
    int status;
    struct ask_reason reason;
    unsigned tries;
    uint64_t not_before_ms;
    bool asked; /* where to go on */
};

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
    publisher_fail(l->p, rc, &e);
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
    ask_reason_head(&l->reason, h);
    return 0;
}

static int on_put_body(void *arg, struct slice bytes)
{
    struct lane *l = arg;

    ask_reason_body(&l->reason, bytes);
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
        rc = ask_judge(l->status, &l->reason, &e);
    }
    if (rc != 0) {
        lane_failed(l, rc, &e);
        return;
    }
    lane_sent(l);
}

static void put_file(struct lane *l)
{
    static const struct xfer_events events = {on_put_head, on_put_body, on_put_done};
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
        rc = ask_judge(a->status, &a->reason, &e);
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

static void pass_over(struct publisher *p)
{
    while (p->next < p->files.n && p->files.at[p->next].there) {
        p->done_bytes += p->files.at[p->next++].size_bytes;
    }
}

static void feed(struct publisher *p)
{
    struct err why;

    pass_over(p);
    for (unsigned i = 0; i < p->agent->connections && p->rc == 0; i++) {
        struct lane *l = &p->lanes[i];
        if (l->file == NULL && p->next < p->files.n && take_next(l, &why) != 0) {
            publisher_fail(p, why.code, &why);
        } else if (l->file != NULL) {
            lane_go(l);
        }
        pass_over(p);
    }
}

int send_files(struct publisher *p)
{
    p->lanes = mem_array(p->agent->connections, sizeof p->lanes[0]);
    for (unsigned i = 0; i < p->agent->connections; i++) {
        p->lanes[i] = (struct lane){.p = p, .fd = -1};
    }
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
    free(p->lanes);
    p->lanes = NULL;
    return p->rc;
}

uint64_t send_done_bytes(const struct publisher *p)
{
    uint64_t done = p->done_bytes;

    for (unsigned i = 0; p->lanes != NULL && i < p->agent->connections; i++) {
        const struct lane *l = &p->lanes[i];
        done += l->file != NULL ? l->from + l->sent : 0;
    }
    return done;
}
