#include "server/request/put.h"

#include <inttypes.h>
#include <stdlib.h>

#include "common/base/log.h"
#include "server/gate/gate.h"
#include "server/cluster/cluster.h"
#include "server/http/status.h"
#include "server/request/reply.h"
#include "server/upload/upload_reply.h"

enum {
    GATHER_BYTES = 4 << 20,
    BLOCK_BYTES = 1 << 20,
    REPLY_BYTES = 32 << 20,   /* addresses of parts (upload/parts.h) */
    WAIT_MS = TIMERS_STEP_MS, /* for another request to let go of the file, */
    WAITS_MAX = 100,          /* so often */
};

enum flow_next { FLOW_OPEN, FLOW_RUN, FLOW_WRITE, FLOW_FINISH, FLOW_CLOSE };

struct upload_flow {
    struct job job;
    struct request *request; /* held */
    struct uploads *uploads;
    struct put put;      /* slices in the call's arena */
    enum flow_next next; /* what the job that is out does */
    bool busy;           /* a job is out */
    bool ended;          /* the body's last byte came */
    bool answered;
    bool paused;
    bool yielded; /* another request has taken the file over */
    struct message yield;
    struct timer again; /* asks whether the other one is gone */
    unsigned waits;
    struct upload_sink *sink;
    struct changes *changes; /* PUT_CHANGES, instead of a sink: what the reader makes of the body */
    struct form_upload *form_upload; /* PUT_FORM, likewise */
    struct put_sight sight;
    void *reader;
    struct buf gather; /* came while busy */
    struct buf block;  /* being written */
    struct upload_reply reply;
    uint64_t now_unix_s;
    int rc;
    struct err why;
};

static void advance_upload(struct upload_flow *f);

/* --- on the pool --- */

/* The message comes before the job's own that closes the sink: the flow is still there when it is
 * read. */
static void yield(void *arg)
{
    struct upload_flow *f = arg;

    message_queue_post(f->request->serve_loop->loop->mail, &f->yield);
}

/* --- PUT_CHANGES --- */

static void work_changes(struct upload_flow *f)
{
    const struct put_reader *r = f->request->plan.reader;

    switch (f->next) {
    case FLOW_OPEN:
        f->changes = changes_open(f->uploads, &f->put);
        f->reader = r->open(f->request->repo);
        break;
    case FLOW_WRITE:
        f->rc = r->read(f->reader, buf_slice(&f->block), false, f->changes, &f->reply, &f->why);
        break;
    case FLOW_FINISH:
        f->rc = r->read(f->reader, SLICE(""), true, f->changes, &f->reply, &f->why);
        if (f->rc == 0 && f->reply.status == 0) {
            f->rc = changes_commit(f->changes, f->now_unix_s, &f->reply, &f->why);
        }
        break;
    case FLOW_RUN:
    case FLOW_CLOSE:
        break;
    }
    if (f->next == FLOW_CLOSE || f->next == FLOW_FINISH) {
        r->close(f->reader);
        changes_close(&f->changes);
    }
}

/* --- PUT_FORM --- */

static bool may_publish(const void *arg, struct slice subject)
{
    return gate_allows(arg, "publish", subject);
}

static void work_form(struct upload_flow *f)
{
    const struct form_reader *r = f->request->plan.form_reader;

    switch (f->next) {
    case FLOW_OPEN:
        f->form_upload = form_upload_open(f->uploads, &f->put);
        f->sight = (struct put_sight){may_publish, &f->request->who};
        f->reader = r->open(f->request->repo, &f->request->plan, &f->sight);
        break;
    case FLOW_WRITE:
        f->rc = r->read(f->reader, buf_slice(&f->block), f->form_upload, &f->reply, &f->why);
        break;
    case FLOW_FINISH:
        f->rc = r->finish(f->reader, f->now_unix_s, f->form_upload, &f->reply, &f->why);
        break;
    case FLOW_RUN:
    case FLOW_CLOSE:
        break;
    }
    if (f->next == FLOW_CLOSE || f->next == FLOW_FINISH) {
        r->close(f->reader);
        form_upload_close(&f->form_upload);
    }
}

/* --- a file, or none --- */

static void run_upload_job(struct job *j)
{
    struct upload_flow *f = CONTAINER_OF(j, struct upload_flow, job);
    const struct upload_body body = {f->request->req.content_length, yield, f};

    if (f->put.kind == PUT_CHANGES) {
        work_changes(f);
        return;
    }
    if (f->put.kind == PUT_FORM) {
        work_form(f);
        return;
    }
    switch (f->next) {
    case FLOW_RUN:
        f->rc = upload_run(f->uploads, &f->put, f->now_unix_s, &f->reply, &f->why);
        break;
    case FLOW_OPEN:
        f->rc = upload_sink_open(f->uploads, &f->put, &body, &f->sink, &f->reply, &f->why);
        break;
    case FLOW_WRITE:
        f->rc = upload_sink_write(f->sink, buf_slice(&f->block), &f->reply, &f->why);
        break;
    case FLOW_FINISH:
        f->rc = upload_sink_finish(&f->sink, f->now_unix_s, &f->reply, &f->why);
        break;
    case FLOW_CLOSE:
        upload_sink_close(&f->sink);
        break;
    }
}

/* --- on the loop --- */

static void answer_put_request(struct upload_flow *f)
{
    struct request *c = f->request;
    struct upload_reply *u = &f->reply;
    struct http_reply *r = ARENA_NEW(&c->arena, struct http_reply);

    f->answered = true;
    if (u->published) {
        repos_changed(c->serve_loop->deps->repos, f->put.repo);
    }
    if (c->x == NULL) {
        return;
    }
    if (f->rc == E_BUSY) {
        /* Clients that bring parts try again after 503, not after 409. */
        upload_refuse(u, f->put.kind == PUT_PART || f->put.kind == PUT_PARTS_END ? 503 : 409,
                      "another request is still writing this file; try again later");
        reply_add(r, SLICE("retry-after"), SLICE("1"));
    } else if (f->rc != 0) {
        log_error("serve.put_failed", "repo=%s why=\"%s\"", c->repo->name, f->why.text);
        r->status = status_of_error(f->rc, STATUS_OURS);
        reply_add(r, SLICE("cache-control"), SLICE("no-store"));
        if (r->status == 503) {
            reply_add(r, SLICE("retry-after"), SLICE("5"));
        }
        reply_failure(c, r, arena_fmt(&c->arena, "%s: %s", err_plain(f->rc), f->why.text));
        return;
    }
    if (c->repo->ops->put_answer != NULL) {
        c->repo->ops->put_answer(c->repo, &c->plan, u, &c->arena, r);
    }
    r->status = u->status;
    if (u->location[0] != '\0') {
        reply_add(r, SLICE("location"), arena_copy(&c->arena, slice_str(u->location)));
    }
    if (u->etag[0] != '\0') {
        reply_add(r, SLICE("etag"), arena_copy(&c->arena, slice_str(u->etag)));
    }
    if (u->offset_known) {
        reply_addf(r, &c->arena, "upload-offset", "%" PRIu64, u->offset);
        reply_add(r, SLICE("upload-complete"), u->complete ? SLICE("?1") : SLICE("?0"));
        if (u->offset > 0) {
            reply_addf(r, &c->arena, "range", "bytes=0-%" PRIu64, u->offset - 1);
        }
    }
    if (u->body.n != 0) {
        reply_add(r, SLICE("content-type"),
                  u->content_type.p != NULL ? u->content_type : SLICE("application/json"));
    }
    exchange_reply(c->x, r, u->body.n != 0 ? body_of_bytes(buf_slice(&u->body)) : NULL);
}

static void end_flow(struct upload_flow *f)
{
    struct request *c = f->request;
    struct serve_loop *d = c->serve_loop;

    c->flow = NULL;
    timer_stop(&f->again);
    upload_reply_free(&f->reply);
    buf_free(&f->gather);
    buf_free(&f->block);
    free(f);
    request_release(&c);
    serve_loop_flow_over(d);
}

static void worked(struct job *j)
{
    struct upload_flow *f = CONTAINER_OF(j, struct upload_flow, job);

    f->busy = false;
    advance_upload(f);
}

static void submit_upload_step(struct upload_flow *f, enum flow_next next)
{
    f->next = next;
    f->busy = true;
    f->now_unix_s = f->request->serve_loop->loop->unix_s;
    f->job.work = run_upload_job;
    f->job.done = worked;
    f->job.reply = f->request->serve_loop->loop->mail;
    pool_submit(f->request->serve_loop->deps->disk, &f->job, f->request->who.client);
}

static void on_yield(struct message *l)
{
    struct upload_flow *f = CONTAINER_OF(l, struct upload_flow, yield);

    f->yielded = true;
    advance_upload(f);
}

static void ask_again(struct timer *t)
{
    struct upload_flow *f = CONTAINER_OF(t, struct upload_flow, again);

    f->rc = 0;
    submit_upload_step(f, f->next);
}

/* True: whoever wrote the file before is on the way out, which takes a moment. */
static bool waits(struct upload_flow *f)
{
    struct loop *l = f->request->serve_loop->loop;

    if (f->rc != E_BUSY || f->request->x == NULL || f->waits == WAITS_MAX) {
        return false;
    }
    f->waits++;
    timer_set(&l->timers, &f->again, l->now_ms + WAIT_MS);
    return true;
}

static void write_gathered(struct upload_flow *f)
{
    struct buf swap = f->block;

    f->block = f->gather;
    f->gather = swap;
    buf_clear(&f->gather);
    if (f->paused && f->request->x != NULL) {
        f->paused = false;
        exchange_pause(f->request->x, false);
    }
    submit_upload_step(f, FLOW_WRITE);
}

/* Something takes the body in, and is to be closed. */
static bool upload_takes_body(const struct upload_flow *f)
{
    return f->sink != NULL || f->changes != NULL || f->form_upload != NULL;
}

/* What came is kept, also of a client that has left: it will ask where to go on. False: that was
 * all. */
static bool take_in_upload_bytes(struct upload_flow *f)
{
    struct request *c = f->request;

    if (f->gather.n != 0) {
        write_gathered(f);
    } else if (f->ended && (c->x != NULL || f->put.kind == PUT_UPLOAD_FILE)) {
        submit_upload_step(f, FLOW_FINISH);
    } else if (c->x == NULL) {
        return false;
    } else if (f->yielded) {
        upload_refuse(&f->reply, 409, "a later request has taken over this file");
        return false;
    } else if (f->next == FLOW_OPEN) {
        f->next = FLOW_WRITE;
        exchange_read(c->x);
    }
    return true;
}

/* What comes next, each time a job is back or bytes came. */
static void advance_upload(struct upload_flow *f)
{
    if (f->busy || waits(f)) {
        return;
    }
    if (upload_takes_body(f) && f->rc == 0 && f->reply.status == 0 && take_in_upload_bytes(f)) {
        return;
    }
    if (!f->answered && (f->rc != 0 || f->reply.status != 0)) {
        answer_put_request(f);
    }
    if (upload_takes_body(f)) {
        submit_upload_step(f, FLOW_CLOSE);
    } else {
        end_flow(f);
    }
}

static void on_upload_data(struct request *c, struct slice bytes, bool end)
{
    struct upload_flow *f = c->flow;

    if (f == NULL || f->answered || f->yielded) {
        return; /* the rest of a body that was, or will be, answered early */
    }
    buf_adds(&f->gather, bytes);
    CHECK(f->gather.rc == 0); /* held at a quarter of that */
    f->ended = end;
    /* Where memory is short the body waits at its sender: what is being written now makes room. */
    if (!exchange_keep(c->x, c->counted_bytes + f->gather.cap + f->block.cap, BODY_CAN_WAIT) &&
        f->busy && !f->paused) {
        f->paused = true;
        exchange_pause(c->x, true);
    }
    if (f->busy && f->gather.n >= BLOCK_BYTES && !f->paused) {
        f->paused = true;
        exchange_pause(c->x, true);
    }
    advance_upload(f);
}

static void on_upload_gone(struct request *c)
{
    if (c->flow != NULL) {
        advance_upload(c->flow);
    }
}

void put_start(struct request *c)
{
    const struct relay *relay = cluster_relay(c->serve_loop->deps->cluster);
    static const struct request_reader reader = {on_upload_data, on_upload_gone};
    struct upload_flow *f = NEW(struct upload_flow);

    f->request = request_hold(c);
    f->uploads = c->serve_loop->deps->uploads;
    f->put = c->plan.put;
    f->put.client = c->who.client;
    f->put.node = relay != NULL ? relay_digits(relay) : SLICE_NONE;
    f->gather = BUF_INIT(GATHER_BYTES * 2);
    f->block = BUF_INIT(GATHER_BYTES * 2);
    f->reply.body = BUF_INIT(REPLY_BYTES);
    f->yield.deliver = on_yield;
    f->again.fire = ask_again;
    /* An empty file: no bytes come, and no end of them. */
    f->ended = !c->req.has_body || c->req.content_length == 0;
    c->reader = &reader;
    c->flow = f;
    c->serve_loop->flows++;
    submit_upload_step(f, put_has_body(f->put.kind) ? FLOW_OPEN : FLOW_RUN);
}
