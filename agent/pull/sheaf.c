#include "agent/pull/sheaf.h"

#include <stdlib.h>

#include "agent/shelf/stage.h"

/* --- what came, on a worker --------------------------------------------------------------------------------------------- */

static enum sheaf_outcome take_record(struct sheaf *b, const struct pull_want *w,
                                      struct slice bytes)
{
    struct digest got;

    digest_of(bytes, &got);
    if (bytes.n != w->size_bytes || !digest_eq(&got, &w->digest)) {
        return SHEAF_WRONG;
    }
    return stage_put(b->pl->agent->shelf, &got, bytes, &b->disk) == 0 ? SHEAF_STAGED : SHEAF_FAILED;
}

static void read_records(struct job *j)
{
    struct sheaf *b = CONTAINER_OF(j, struct sheaf, job);
    struct slice rest = buf_slice(&b->came), bytes = SLICE_NONE, some;
    struct sheaf_reader r;
    struct err why;
    int step;

    sheaf_reader_init(&r, b->count);
    while ((step = sheaf_next(&r, &rest, &some, &why)) > SHEAF_NEED) {
        if (step == SHEAF_SOME) {
            bytes = some;
        } else if (step == SHEAF_WHOLE) {
            b->file[b->done].outcome = take_record(b, b->file[b->done].want, bytes);
            b->done++;
            bytes = SLICE_NONE;
        } else if (r.n == SHEAF_ABSENT || r.n == SHEAF_ALONE) {
            b->file[b->done++].outcome = SHEAF_ITSELF;
        }
    }
    if (step < 0) {
        b->rc = step;
        b->why = why;
    } else if (b->rc == 0 && !sheaf_between(&r)) {
        b->rc = err_set(&b->why, E_PROTOCOL, "an answer ends in the midst of a file");
    }
}

static void on_read(struct job *j)
{
    struct sheaf *b = CONTAINER_OF(j, struct sheaf, job);
    struct puller *pl = b->pl;

    b->on_end(b, b->arg);
    puller_feed(pl);
}

/* --- the transfer ------------------------------------------------------------------------------------------------------- */

static int on_head(void *arg, const struct xfer_head *h)
{
    struct sheaf *b = arg;

    if (!slice_u64(xfer_head_field(h, "retry-after"), &b->retry_after_s)) {
        b->retry_after_s = 0;
    }
    if (h->status != 200) {
        struct ask_reason reason;
        ask_reason_head(&reason, h);
        b->rc = ask_judge(h->status, &reason, &b->why);
        if (b->rc == 0 || h->status == 405 || h->status == 501) {
            b->rc =
                err_set(&b->why, E_UNSUPPORTED, "asked for many, the mirror answers %d", h->status);
        }
    } else if (!slice_eqs(slice_trim(xfer_head_field(h, "content-type")), SHEAF_BLOBS)) {
        b->rc = err_set(&b->why, E_UNSUPPORTED, "asked for many, the mirror sends other things");
    }
    return b->rc;
}

static int on_body(void *arg, struct slice bytes)
{
    struct sheaf *b = arg;

    buf_adds(&b->came, bytes);
    if (b->came.rc != 0) {
        b->rc = err_set(&b->why, E_PROTOCOL, "an answer is longer than one can be");
    }
    return b->rc;
}

static void on_done(void *arg, int rc, const struct err *why, uint64_t body_bytes)
{
    struct sheaf *b = arg;
    struct puller *pl = b->pl;

    (void)body_bytes;
    b->x = NULL;
    puller_give_conn(pl);
    if (b->rc == 0 && rc != 0) {
        b->rc = rc;
        b->why = *why;
    }
    if (b->came.n != 0 && b->came.rc == 0) {
        b->job = (struct job){.work = read_records, .done = on_read, .reply = pl->mail};
        pool_submit(pl->workers, &b->job, CLIENT_PROGRAM);
    } else {
        b->on_end(b, b->arg);
    }
    puller_feed(pl);
}

void sheaf_send(struct sheaf *b, struct slice url)
{
    static const struct xfer_events events = {on_head, on_body, on_done};
    static const struct slice fields[] = {
        {"Accept: " SHEAF_BLOBS, 8 + sizeof SHEAF_BLOBS - 1},
        {"Content-Type: " SHEAF_DIGESTS, 14 + sizeof SHEAF_DIGESTS - 1}};
    struct slice lines[ARRAY_LEN(fields) + 1];
    struct xfer_want w =
        ask_xfer_want(b->pl->agent, XFER_POST, url, lines, fields, ARRAY_LEN(fields));

    w.body = buf_slice(&b->asked);
    b->x = xfer_start(b->pl->xfers, &w, &events, b);
}

bool sheaf_cancel(struct sheaf *b)
{
    if (b->x == NULL) {
        return false;
    }
    xfer_cancel(&b->x);
    puller_give_conn(b->pl);
    b->rc = E_CANCELLED;
    return true;
}

/* --- its life ----------------------------------------------------------------------------------------------------------- */

void sheaf_add(struct sheaf *b, const struct pull_want *w, void *of)
{
    CHECK(b->count < SHEAF_COUNT_MAX);
    b->file[b->count++] = (struct sheaf_file){.want = w, .of = of};
    buf_add(&b->asked, w->digest.b, DIGEST_BYTES);
}

void sheaf_clear(struct sheaf *b)
{
    buf_clear(&b->asked);
    buf_clear(&b->came);
    b->count = b->done = 0;
    b->rc = 0;
    b->why = (struct err){0};
    b->retry_after_s = 0;
}

struct sheaf *sheaf_open(struct puller *pl, void (*on_end)(struct sheaf *b, void *arg), void *arg)
{
    struct sheaf *b = NEW(struct sheaf);

    b->pl = pl;
    b->on_end = on_end;
    b->arg = arg;
    b->asked = BUF_INIT(SHEAF_COUNT_MAX * DIGEST_BYTES);
    b->came = BUF_INIT(SHEAF_ANSWER_MAX);
    return b;
}

void sheaf_close(struct sheaf **bp)
{
    struct sheaf *b = *bp;

    if (b == NULL) {
        return;
    }
    *bp = NULL;
    buf_free(&b->asked);
    buf_free(&b->came);
    free(b);
}
