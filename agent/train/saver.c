#include "agent/train/saver.h"

#include <stdatomic.h>
#include <stdlib.h>

#include "agent/train/powersgd_state.h"
#include "agent/train/products.h"
#include "agent/train/zero.h"
#include "common/base/log.h"
#include "common/os/clock.h"
#include "common/os/lock.h"

enum part { PARAM, FIRST, SECOND, PARTS };

/* One of the wholes: what of it is in the device's memory, and where it is copied to. */
struct whole {
    struct model *m;
    char *device;
    struct partition held;
    float *copy; /* NULL: there is no room for copies */
    _Atomic uint64_t *progress;
};

struct saver {
    struct saver_options o;
    struct model *m;
    struct optim *opt;
    struct watchdog *watchdog; /* NULL: none */
    struct checkpoint c;
    struct layout layout; /* of the copies: that of a model that is not cut */
    struct layout *part;  /* of each tensor parallel rank; NULL: the model is not cut */
    float *pieces;        /* of all of them, on their way into a copy */
    struct buf products;
    struct whole whole[PARTS];
    _Atomic uint64_t progress; /* pieces that were given to the writer */
    int64_t
        good_step; /* of the last one that is known to be whole; of the thread alone, where there is one */
    struct lock lock;
    struct cond cond;
    pthread_t thread;
    bool threaded;
    bool busy; /* under the lock, as all below: the thread has something to write */
    bool stop;
    struct err last; /* of the last one written */
};

static int read_whole(void *arg, int64_t offset, int64_t n, float *out, struct err *e)
{
    const struct whole *w = arg;

    atomic_fetch_add(w->progress, 1);
    if (w->copy == NULL) {
        return model_get(w->m, out, w->device + (size_t)offset * sizeof *out,
                         (size_t)n * sizeof *out, e);
    }
    memcpy(out, w->copy + offset, (size_t)n * sizeof *out);
    return 0;
}

/* What cannot be removed (a file that somebody has open on NFS, another user's folder) costs room and no checkpoint. */
static void prune(const struct saver *s)
{
    struct err why = {0};

    if (checkpoint_prune(s->o.out, s->good_step, s->o.keep, &why) != 0) {
        log_warn("checkpoint.prune", "%s", why.text);
    }
}

static void write_one(struct saver *s, struct err *e)
{
    uint64_t began = clock_now_ms();
    int rc;

    if (s->c.left_out == 0) { /* else its folder is there, and room was made */
        prune(s);
    }
    rc = checkpoint_write(s->o.out, &s->c, e);
    if (rc == 0) {
        s->good_step = s->c.state.step;
        prune(s);
        log_debug("checkpoint.written", "step=%lld took_ms=%llu", (long long)s->c.state.step,
                  (unsigned long long)(clock_now_ms() - began));
    } else {
        log_warn("checkpoint.failed", "step=%lld %s", (long long)s->c.state.step, e->text);
    }
}

static void *run(void *arg)
{
    struct saver *s = arg;

    lock_take(&s->lock);
    while (true) {
        struct err why = {0};

        while (!s->busy && !s->stop) {
            cond_wait(&s->cond, &s->lock);
        }
        if (!s->busy) {
            break;
        }
        lock_drop(&s->lock);
        write_one(s, &why);
        lock_take(&s->lock);
        s->last = why;
        s->busy = false;
        watchdog_writes(s->watchdog, false);
        cond_broadcast(&s->cond);
    }
    lock_drop(&s->lock);
    return NULL;
}

/* Half of what the host has may go into copies. */
static void take_room(struct saver *s)
{
    size_t bytes = model_accum_bytes(s->m, s->layout.size), room = 0;

    if (kops_cpu()->mem_room(&room) != 0 || PARTS * bytes > room / 2) {
        log_info("checkpoint.direct", "no room for a copy of %.1f GiB: training waits for each",
                 (double)(PARTS * bytes) / (1 << 30));
        return;
    }
    for (int i = 0; i < PARTS; i++) {
        void *p;

        if (s->m->k->host_alloc(&p, bytes) != 0) {
            break;
        }
        s->whole[i].copy = p;
    }
}

static void give_room(struct saver *s)
{
    for (int i = 0; i < PARTS; i++) {
        s->m->k->host_free(s->whole[i].copy);
        s->whole[i].copy = NULL;
    }
}

/* Elements of each tensor parallel rank that pass through m->wide at a time. */
static int64_t elements_of_piece(const struct model *m)
{
    size_t room = model_bytes(m, m->batch * m->seq * m->config.hidden);

    return (int64_t)(room / sizeof(float)) / m->o.tp;
}

/* Whether ranks have to give what they have. */
static bool is_in_parts(const struct model *m)
{
    return m->state_held.ranks > 1 || m->o.tp > 1;
}

static void open_layouts(struct saver *s)
{
    struct model *m = s->m;

    /* Numbers of elements in a part are places in the whole. */
    layout_init(&s->layout, &m->config, m->o.world);
    if (m->o.tp == 1) {
        return;
    }
    s->part = mem_array((size_t)m->o.tp, sizeof *s->part);
    for (int r = 0; r < m->o.tp; r++) {
        layout_init_cut(&s->part[r], &m->config, m->o.world, r, m->o.tp);
    }
    s->pieces = mem_array((size_t)(elements_of_piece(m) * m->o.tp), sizeof *s->pieces);
}

static void close_layouts(struct saver *s)
{
    for (int r = 0; s->part != NULL && r < s->m->o.tp; r++) {
        layout_fini(&s->part[r]);
    }
    free(s->part);
    free(s->pieces);
    layout_fini(&s->layout);
}

int saver_open(const struct saver_options *o, struct model *m, struct optim *opt,
               struct saver **out, struct err *e)
{
    struct saver *s = NEW(struct saver);

    *out = NULL;
    if (m->accum != DT_F32) {
        free(s);
        return err_set(e, E_UNSUPPORTED, "checkpoints are of f32");
    }
    *s = (struct saver){.o = *o,
                        .m = m,
                        .opt = opt,
                        .good_step = o->resumed_step,
                        .products = BUF_INIT(2 * MATMUL_CHOICES_BYTES),
                        .whole = {{m, m->master, m->master_held, NULL, &s->progress},
                                  {m, opt->m, m->state_held, NULL, &s->progress},
                                  {m, opt->v, m->state_held, NULL, &s->progress}}};
    s->c = (struct checkpoint){.config = &m->config,
                               .layout = &s->layout,
                               .companions = o->companions,
                               .products = &s->products,
                               .param = {.read = read_whole, .arg = &s->whole[PARAM]},
                               .m = {.read = read_whole, .arg = &s->whole[FIRST]},
                               .v = {.read = read_whole, .arg = &s->whole[SECOND]}};
    open_layouts(s);
    lock_init(&s->lock, LOCK_LEAF);
    cond_init(&s->cond);
    if (o->writes) {
        take_room(s);
    }
    s->threaded = s->whole[PARTS - 1].copy != NULL;
    if (s->threaded) {
        s->thread = thread_start("checkpoint", run, s);
    } else {
        give_room(s);
    }
    if (o->writes && !s->threaded && is_in_parts(m)) {
        saver_close(&s);
        return err_set(e, E_NOSPACE,
                       "a checkpoint of parts is collected in the first rank's memory: it has no "
                       "room for them; without --zero and --tp it needs none");
    }
    *out = s;
    return 0;
}

void saver_watch(struct saver *s, struct watchdog *w)
{
    s->watchdog = w;
}

static void wait_idle(struct saver *s)
{
    lock_take(&s->lock);
    while (s->busy) {
        cond_wait(&s->cond, &s->lock);
    }
    lock_drop(&s->lock);
}

bool saver_idle(struct saver *s, uint64_t wait_ms)
{
    uint64_t until_ms = clock_now_ms() + wait_ms, now_ms;
    bool idle;

    lock_take(&s->lock);
    while (s->busy && (now_ms = clock_now_ms()) < until_ms) {
        cond_wait_ms(&s->cond, &s->lock, until_ms - now_ms);
    }
    idle = !s->busy;
    lock_drop(&s->lock);
    return idle;
}

uint64_t saver_progress(const struct saver *s)
{
    return atomic_load(&s->progress);
}

/* Elements of a tensor parallel rank's layout, from number `offset` on, into their places. */
static void place(const struct layout *part, int64_t offset, const float *from, int64_t n,
                  float *copy)
{
    struct numbering run;

    for (; n > 0; offset += run.n, from += run.n, n -= run.n) {
        run = layout_number(part, offset, n);
        if (run.first >= 0 && run.cols == 0) {
            memcpy(copy + run.first, from, (size_t)run.n * sizeof *copy);
        }
        for (int64_t i = 0; run.first >= 0 && run.cols > 0 && i < run.n; i++) {
            int64_t at = run.skip + i;

            copy[run.first + at / run.cols * run.whole_cols + at % run.cols] = from[i];
        }
    }
}

/* A group of which each tensor parallel rank has a part, at `from`. */
static int copy_parts(struct saver *s, const struct whole *w, const struct group *g,
                      const char *from, struct err *e)
{
    struct model *m = s->m;
    int64_t step = elements_of_piece(m);
    int rc = 0;

    for (int64_t at = 0; rc == 0 && at < g->size; at += step) {
        int64_t n = g->size - at < step ? g->size - at : step;

        model_do(m, comm_allgather(m->o.tp_comm, m->ks, m->accum, from + model_accum_bytes(m, at),
                                   m->wide, n));
        if (s->o.writes || m->rc != 0) {
            rc = model_get(m, s->pieces, m->wide, model_accum_bytes(m, n * m->o.tp), e);
        }
        for (int r = 0; rc == 0 && s->o.writes && r < m->o.tp; r++) {
            place(&s->part[r], g->offset + at, s->pieces + r * n, n, w->copy);
        }
    }
    return rc;
}

/* Copies one of the wholes; of those in pieces all ranks give theirs, and the one that writes takes them. */
static int copy_whole(struct saver *s, struct whole *w, struct err *e)
{
    struct model *m = s->m;
    int rc = 0;

    for (int g = 0; rc == 0 && g < m->layout.groups; g++) {
        const struct group *r = &m->layout.group[g];
        const char *from = zero_collect(m, w->device, w->held, g);

        if (m->o.tp > 1) {
            rc = copy_parts(s, w, r, from, e);
        } else if (s->o.writes) {
            rc = model_get(m, w->copy + r->offset, from, model_accum_bytes(m, r->size), e);
        }
    }
    return rc;
}

/* *x becomes the sum of all ranks'; between steps the losses' place is free. */
static int sum_of_ranks(struct model *m, double *x, struct err *e)
{
    int rc = model_put(m, m->loss, x, sizeof *x, e);

    zero_sum(m, m->loss);
    return rc != 0 ? rc : model_get(m, x, m->loss, sizeof *x, e);
}

/* Each rank writes what compression has left out on it, while the model waits. *good: all could, or there is nothing of it. */
static int save_left_out(struct saver *s, bool *good, struct err *e)
{
    int64_t step = s->c.state.step;
    struct model *m = s->m;
    struct err why = {0};
    char dir[PATH_MAX];
    double failed;
    int rc;

    *good = true;
    s->c.left_out = 0;
    if (!powersgd_begun(m)) {
        return 0;
    }
    if (s->o.writes) {
        prune(s);
    }
    failed = s->o.writes && checkpoint_begin(s->o.out, step, &why) != 0;
    rc = sum_of_ranks(m, &failed, e);
    if (rc == 0 && failed == 0) {
        checkpoint_folder(s->o.out, step, dir);
        failed = powersgd_save(dir, m, &why) != 0;
        rc = sum_of_ranks(m, &failed, e);
    }
    if (rc != 0) {
        return rc;
    }
    s->c.left_out = m->own.ranks;
    *good = failed == 0;
    if (why.code != 0 || (!*good && s->o.writes)) {
        log_warn("checkpoint.failed", "step=%lld %s", (long long)step,
                 why.code != 0 ? why.text : "another rank could not write its part");
    }
    if (!*good && s->o.writes) {
        (void)err_set(&s->last, why.code != 0 ? why.code : E_IO, "%s",
                      why.code != 0 ? why.text : "another rank could not write its part");
        prune(s); /* it may hold the space that was missing */
    }
    return 0;
}

int saver_save(struct saver *s, const struct train_state *state, struct err *e)
{
    bool good;
    int rc = 0;

    wait_idle(s);
    if (s->o.products) {
        rc = products_read(s->m, &s->products, e);
    }
    if (rc != 0) {
        return rc;
    }
    s->c.state = *state;
    rc = save_left_out(s, &good, e);
    if (rc != 0 || !good) {
        return rc;
    }
    if (s->o.writes && !s->threaded) {
        struct err why = {0};

        watchdog_writes(s->watchdog, true);
        write_one(s, &why);
        watchdog_writes(s->watchdog, false);
        s->last = why;
        return s->m->rc != 0 ? err_set(e, why.code, "%s", why.text) : 0;
    }
    for (int i = 0; rc == 0 && i < PARTS; i++) {
        if (s->o.writes || s->whole[i].held.ranks > 1 || s->m->o.tp > 1) {
            rc = copy_whole(s, &s->whole[i], e);
        }
    }
    if (rc == 0 && s->o.writes) {
        watchdog_writes(s->watchdog, true);
        lock_take(&s->lock);
        s->busy = true;
        cond_broadcast(&s->cond);
        lock_drop(&s->lock);
    }
    return rc;
}

int saver_wait(struct saver *s, struct err *e)
{
    wait_idle(s);
    return s->last.code == 0 ? 0 : err_set(e, s->last.code, "%s", s->last.text);
}

void saver_close(struct saver **sp)
{
    struct saver *s = *sp;

    if (s == NULL) {
        return;
    }
    *sp = NULL;
    if (s->threaded) {
        lock_take(&s->lock);
        s->stop = true;
        cond_broadcast(&s->cond);
        lock_drop(&s->lock);
        pthread_join(s->thread, NULL);
    }
    give_room(s);
    close_layouts(s);
    buf_free(&s->products);
    cond_fini(&s->cond);
    lock_fini(&s->lock);
    free(s);
}
