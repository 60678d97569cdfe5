#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/base/endian.h"
#include "server/sync/mirrord/core.h"
#include "server/sync/mirrord/patch.h"

enum {
    LEAST_BYTES = 64 << 20, /* below it a list and some requests gain too little */
    COPY_BYTES = 256 << 10,
    TURN_BYTES = 16 << 20, /* copied, before the loop has its say */
};

struct cutting { /* a job: the former version's list; outlives the patching that it is for */
    struct job job;
    struct patching *p; /* NULL: nobody waits any more */
    struct core *g;
    struct digest digest;
    struct buf list;
    _Atomic bool stop;
    int rc;
    struct err why;
};

struct patching {
    struct take *t;
    struct blob *basis;
    struct ask *ask;
    struct cutting *cutting;
    struct pieces want;
    uint64_t list_bytes;
    struct patch patch;
    size_t at; /* stretch */
    uint64_t copied;
    char *room;
    struct event *turn;
    unsigned class;
    char *path;
};

static uint64_t key(const struct digest *d)
{
    return be_get(d->b, 8) | 1;
}

bool patching_fits(const struct core *g, const struct take_want *w)
{
    return w->basis != NULL && w->entry->size_bytes >= LEAST_BYTES &&
           blob_size_bytes(w->basis) >= LEAST_BYTES &&
           !set64_has(&g->patched, key(&w->entry->digest)) &&
           delta_pays(&g->delta, w->entry->path, w->entry->size_bytes, blob_size_bytes(w->basis));
}

void patching_give_up(struct core *g, const struct digest *d)
{
    (void)set64_add(&g->patched, key(d));
}

void patching_free(struct patching **pp)
{
    struct patching *p = *pp;

    *pp = NULL;
    if (p == NULL) {
        return;
    }
    ask_free(&p->ask);
    if (p->cutting != NULL) {
        p->cutting->p = NULL;
        p->cutting->stop = true;
    }
    pieces_free(&p->want);
    patch_free(&p->patch);
    blob_release(&p->basis);
    event_free(p->turn);
    free(p->room);
    free(p->path);
    free(p);
}

static void say(const struct patching *p, const char *what)
{
    const struct engine_site *site = p->t->g->site;

    site->log(site->log_arg, "%s: %s; it comes whole", p->path, what);
}

/* --- putting it together --- */

static void on_turn(evutil_socket_t fd, short what, void *arg);

static void soon(struct patching *p)
{
    struct timeval now = {0};
    evtimer_add(p->turn, &now);
}

static void finish(struct patching *p)
{
    struct take *t = p->t;
    const struct engine_site *site = t->g->site;

    /* When the digest of the whole does not hold, the next try is another. */
    patching_give_up(t->g, &t->digest);
    delta_learn(&t->g->delta, p->class, p->patch.here_bytes, t->size);
    site->log(site->log_arg,
              "%s: %" PRIu64 " of %" PRIu64
              " bytes were here in the former version, the list cost %" PRIu64,
              p->path, p->copied, t->size, p->list_bytes);
    take_done(t, 0);
}

/* 0, TAKE_PAUSE, or what ends the take. */
static int copy_some(struct patching *p, const struct stretch *s)
{
    struct take *t = p->t;
    size_t n = (size_t)min_u64(COPY_BYTES, s->end - t->got);
    int rc = blob_read(p->basis, s->from + (t->got - s->off), p->room, n, &t->why);

    if (rc != 0) {
        patching_give_up(t->g, &t->digest);
        return err_set(&t->why, E_AGAIN, "the former version cannot be read here");
    }
    rc = t->ev.on_copy(t->arg, slice_of(p->room, n));
    if (rc < 0) {
        return err_set(&t->why, rc, "given up here");
    }
    t->got += n;
    p->copied += n;
    return rc;
}

static void step(struct patching *p)
{
    struct take *t = p->t;
    uint64_t before = p->copied;

    while (p->at < p->patch.count) {
        const struct stretch *s = &p->patch.stretch[p->at];
        int rc = 0;
        if (t->got >= s->end) {
            p->at++;
            continue;
        }
        if (!s->here) {
            take_part(t, s->end);
            return;
        }
        if (p->copied - before >= TURN_BYTES) {
            soon(p);
            return;
        }
        rc = copy_some(p, s);
        if (rc < 0) {
            take_done(t, rc);
            return;
        }
        if (rc == TAKE_PAUSE) {
            return; /* until patching_resume() */
        }
    }
    finish(p);
}

static void on_turn(evutil_socket_t fd, short what, void *arg)
{
    (void)fd;
    (void)what;
    step(arg);
}

void patching_went_on(struct take *t)
{
    step(t->patching);
}

void patching_resume(struct take *t)
{
    if (t->patching->at < t->patching->patch.count) {
        soon(t->patching);
    }
}

/* --- both lists --- */

static void begin(struct patching *p, struct slice former)
{
    struct take *t = p->t;
    struct pieces have;
    int rc = pieces_decode(former, &have, NULL);

    if (rc != 0) {
        say(p, "the former version's list does not read");
        take_whole(t);
        return;
    }
    patch_make(&p->want, &have, &p->patch);
    pieces_free(&have);
    pieces_free(&p->want);
    if (!patch_pays(&p->patch, p->list_bytes)) {
        delta_learn(&t->g->delta, p->class, p->patch.here_bytes, t->size);
        say(p, "too little of it was in the former version");
        take_whole(t);
        return;
    }
    rc = t->ev.on_begin(t->arg, t->got, slice_str(t->validator));
    if (rc != 0) {
        take_done(t, err_set(&t->why, rc, "given up here"));
        return;
    }
    p->room = mem_new(COPY_BYTES);
    step(p);
}

static void cut_work(struct job *j)
{
    struct cutting *c = CONTAINER_OF(j, struct cutting, job);
    struct store *s = c->g->site->store;

    c->rc = pieces_get(s, &c->digest, &c->list, &c->why);
    if (c->rc == E_NOTFOUND) {
        c->rc = pieces_make(s, &c->digest, &c->stop, &c->list, &c->why);
    }
}

static void cut_done(struct job *j)
{
    struct cutting *c = CONTAINER_OF(j, struct cutting, job);
    struct patching *p = c->p;

    c->g->jobs--;
    if (p != NULL) {
        p->cutting = NULL;
        if (c->rc == 0) {
            begin(p, buf_slice(&c->list));
        } else {
            say(p, c->why.text);
            take_whole(p->t);
        }
    }
    buf_free(&c->list);
    free(c);
}

static void cut_former(struct patching *p)
{
    struct cutting *c = NEW(struct cutting);

    c->p = p;
    c->g = p->t->g;
    c->digest = *blob_digest(p->basis);
    c->list = BUF_INIT(PIECES_BYTES_MAX);
    c->job = (struct job){.work = cut_work, .done = cut_done, .reply = c->g->site->box};
    p->cutting = c;
    c->g->jobs++;
    pool_submit(c->g->site->disk, &c->job, c->g->site->client);
}

static void on_list(struct ask *a, int rc)
{
    struct patching *p = a->arg;
    struct take *t = p->t;
    struct err why = a->why;

    p->list_bytes = a->body.n;
    t->beside += a->body.n;
    if (rc == 0) {
        rc = pieces_decode(buf_slice(&a->body), &p->want, &why);
    }
    if (rc == 0 && (p->want.size_bytes != t->size || !digest_eq(&p->want.whole, &t->digest))) {
        rc = err_set(&why, E_PROTOCOL, "the core gave another file's list");
    }
    ask_free(&p->ask);
    if (rc == 0) {
        cut_former(p);
    } else {
        say(p, why.text);
        take_whole(t);
    }
}

void patching_start(struct take *t, const struct take_want *w)
{
    struct patching *p = NEW(struct patching);
    size_t room = strlen(t->g->lists) + DIGEST_HEX + 1;
    char *url = mem_new(room);

    t->patching = p;
    p->t = t;
    p->basis = blob_hold(w->basis);
    p->class = delta_class(w->entry->path);
    p->path = mem_new(w->entry->path.n + 1);
    memcpy(p->path, w->entry->path.p, w->entry->path.n);
    p->turn = evtimer_new(t->g->site->base, on_turn, p);
    CHECK(p->turn != NULL);
    snprintf(url, room, "%s%s", t->g->lists, t->validator);
    p->ask =
        ask_start(t->g, url, "application/vnd.mirrord.pieces", NULL, PIECES_BYTES_MAX, on_list, p);
}
