#include "agent/train/saver.h"

#include <stdatomic.h>
#include <stdlib.h>

#include "agent/train/moments.h"
#include "agent/train/powersgd_state.h"
#include "agent/train/products.h"
#include "agent/train/zero.h"
#include "common/base/log.h"
#include "common/os/clock.h"
#include "common/os/lock.h"

enum part { PARAM, FIRST, SECOND, PARTS };

/* How often the first rank looks whether it must do without the others' word. */
enum { LOOK_MS = 200 };

/* A run of elements that this rank writes. */
struct span {
    int64_t offset; /* in the whole */
    int64_t n;
    int64_t at;     /* in the copy */
    int64_t device; /* in the device's memory; -1: it is not there in one piece */
};

/* One of the wholes: what of it is in the device's memory, and where what this rank writes is
 * copied to. */
struct whole {
    struct model *m;
    char *device;
    struct partition held;
    struct span *span; /* by offset */
    size_t spans;
    int64_t size; /* elements of the copy */
    float *copy;  /* NULL: there is no room for copies */
    _Atomic uint64_t *progress;
};

enum stage { /* as in the header's drawing */ IDLE, WRITING, WRITTEN, ENDING };

struct saver {
    struct saver_options o;
    struct model *m;
    struct optim *opt;
    struct watchdog *watchdog; /* NULL: none */
    struct checkpoint c;
    struct layout layout; /* of the model's files: that of a model that is not cut */
    struct layout *cut;   /* of each tensor parallel rank; NULL: the model is not cut */
    float *pieces;        /* of all of them, on their way into a copy */
    struct tensor_files *model, *moments;
    struct tensor_source param[1], moment[2];
    struct buf products;
    struct whole whole[PARTS];
    bool copies;               /* there is room for them */
    _Atomic uint64_t progress; /* pieces that were given to the writer */
    int64_t good_step;         /* of the last one that is known to be whole; of the thread alone */
    uint64_t began_ms;
    struct lock lock;
    struct cond cond;
    pthread_t thread;
    enum stage stage; /* under the lock, as all below */
    struct err part;  /* of this rank's files */
    bool good;        /* in ENDING: all ranks have written theirs */
    bool stop;
    struct err last; /* of the last checkpoint */
};

static enum stage stage_of(struct saver *s)
{
    enum stage stage;

    lock_take(&s->lock);
    stage = s->stage;
    lock_drop(&s->lock);
    return stage;
}

static bool first_rank(const struct saver *s)
{
    return s->c.rank == 0;
}

static int read_whole(void *arg, int64_t offset, int64_t n, float *out, struct err *e)
{
    const struct whole *w = arg;
    const struct span *x = w->span;

    atomic_fetch_add(w->progress, 1);
    while (offset >= x->offset + x->n) {
        x++;
    }
    CHECK(offset >= x->offset && offset + n <= x->offset + x->n);
    if (w->copy == NULL) {
        return model_get(w->m, out,
                         w->device + (size_t)(x->device + offset - x->offset) * sizeof *out,
                         (size_t)n * sizeof *out, e);
    }
    memcpy(out, w->copy + x->at + offset - x->offset, (size_t)n * sizeof *out);
    return 0;
}

/* --- writing: the thread ---------------------------------------------------------------------- */

/* What cannot be removed (a file that somebody has open on NFS, another user's folder) costs room
 * and no checkpoint. */
static void prune(const struct saver *s, bool writing)
{
    struct err why = {0};

    if (checkpoint_prune(s->o.out, &s->c, writing, s->good_step, s->o.keep, &why) != 0) {
        log_warn("checkpoint.prune", "%s", why.text);
    }
}

static void write_part(struct saver *s, struct err *why)
{
    if (first_rank(s)) {
        prune(s, true); /* room for this one */
    }
    if (checkpoint_part(s->o.out, &s->c, why) != 0 && s->c.ranks > 1) {
        log_warn("checkpoint.part", "step=%lld rank=%d %s", (long long)s->c.state.step, s->c.rank,
                 why->text);
    }
}

/* On the first rank. `why` has its own error, if any. */
static void end_one(struct saver *s, bool good, struct err *why)
{
    if (good && checkpoint_commit(s->o.out, &s->c, why) == 0) {
        s->good_step = s->c.state.step;
        prune(s, false);
        log_debug("checkpoint.written", "step=%lld took_ms=%llu", (long long)s->c.state.step,
                  (unsigned long long)(clock_now_ms() - s->began_ms));
        return;
    }
    if (!good) {
        checkpoint_drop(s->o.out, &s->c, why);
    }
    log_warn("checkpoint.failed", "step=%lld %s", (long long)s->c.state.step,
             why->code != 0 ? why->text : "another rank could not write its part");
}

/* The main thread will settle nothing any more, or has not come to it: the files themselves say
 * whether all have written. */
static bool may_end_alone(struct saver *s)
{
    return s->c.ranks == 1 || ((s->stop || watchdog_waits(s->watchdog)) && s->part.code == 0 &&
                               checkpoint_parts_there(s->o.out, &s->c));
}

/* Until there is something to do; false: there will not be. */
static bool wait_for_work(struct saver *s)
{
    uint64_t since_ms = clock_now_ms();

    while (s->stage != WRITING && s->stage != ENDING) {
        if (s->stage == WRITTEN && first_rank(s) && may_end_alone(s)) {
            s->good = s->part.code == 0;
            s->stage = ENDING;
        } else if (s->stop && (s->stage == IDLE || !first_rank(s) || s->part.code != 0 ||
                               clock_now_ms() - since_ms > s->o.patience_ms)) {
            return false;
        } else if (s->stage == WRITTEN && first_rank(s)) {
            cond_wait_ms(&s->cond, &s->lock, LOOK_MS);
        } else {
            cond_wait(&s->cond, &s->lock);
        }
    }
    return true;
}

static void *run_saver_thread(void *arg)
{
    struct saver *s = arg;

    lock_take(&s->lock);
    while (wait_for_work(s)) {
        enum stage stage = s->stage;
        struct err why = s->part;
        bool good = s->good;

        lock_drop(&s->lock);
        if (stage == WRITING) {
            write_part(s, &why);
        } else {
            end_one(s, good, &why);
        }
        lock_take(&s->lock);
        if (stage == WRITING) {
            s->part = why;
            s->stage = WRITTEN;
            watchdog_writes(s->watchdog, why.code == 0); /* else there is nothing to wait for */
        } else {
            s->last = why;
            s->stage = IDLE;
            watchdog_writes(s->watchdog, false);
        }
        cond_broadcast(&s->cond);
    }
    lock_drop(&s->lock);
    return NULL;
}

/* --- what this rank writes -------------------------------------------------------------------- */

static void add_span(struct whole *w, int64_t offset, int64_t n, int64_t device)
{
    if (n > 0) {
        w->span[w->spans++] =
            (struct span){.offset = offset, .n = n, .at = w->size, .device = device};
        w->size += n;
    }
}

static int cuts(const struct model *m)
{
    return m->o.tp > 1 ? m->o.tp : 1;
}

/* Of each group's piece that `copies` ranks hold, one of them writes as much as the others. Ranks
 * that cut a model are neighbours, then those that share it out. */
static void plan_moments(struct saver *s, struct whole *w)
{
    const struct layout *l = &s->m->layout;
    int copies = s->c.ranks / cuts(s->m) / w->held.ranks;
    int copy = s->c.rank / cuts(s->m) / w->held.ranks;

    w->span = mem_array((size_t)l->groups, sizeof *w->span);
    for (int g = 0; g < l->groups; g++) {
        struct piece p = partition_group(l, w->held, g);
        int64_t from = p.n * copy / copies, to = p.n * (copy + 1) / copies;

        add_span(w, p.offset + from, to - from, p.at + from);
    }
}

/* The Hub's tensors, as far as they lie in what this rank writes. Of what all tensor parallel ranks
 * have, the first writes. */
static struct tensor_slice *cut_slices(const struct layout *l, const struct whole *w, size_t *n)
{
    struct tensor_slice *slice = mem_array((size_t)l->slices + w->spans + 1, sizeof *slice);

    *n = 0;
    for (int i = 0; i < l->slices; i++) {
        struct region all = region_of(&l->slice[i]);
        int64_t base = l->slice[i].offset;

        if (l->cut_rank > 0 && l->tensor[l->slice[i].tensor].copied) {
            continue;
        }
        for (size_t j = 0; j < w->spans; j++) {
            const struct span *x = &w->span[j];
            int64_t from = base > x->offset ? base : x->offset;
            int64_t end = base + all.n < x->offset + x->n ? base + all.n : x->offset + x->n;

            if (end > from) {
                struct region r = all;

                r.from += from - base;
                r.n = end - from;
                slice[(*n)++] =
                    (struct tensor_slice){.hub = l->slice[i].hub, .region = r, .offset = from};
            }
        }
    }
    return slice;
}

static void plan_model(struct saver *s, struct whole *w)
{
    const struct layout *l = &s->layout;
    bool here = w->held.ranks == 1 && cuts(s->m) == 1;
    uint64_t least = s->o.least_bytes != 0 ? s->o.least_bytes : TENSOR_FILE_LEAST_BYTES;

    s->param[0] = (struct tensor_source){"", read_whole, w};
    tensor_files_whole(l, s->param, 1, "model", s->c.ranks, least, TENSOR_FILE_MOST_BYTES,
                       &s->model);
    w->span = mem_array((size_t)l->hubs, sizeof *w->span);
    for (int i = 0; i < l->hubs; i++) {
        const struct hub_tensor *h = &l->hub[i];
        int64_t base = l->tensor[h->tensor].offset + h->first_row * h->cols;

        if (tensor_files_of(s->model, i) % (size_t)s->c.ranks == (size_t)s->c.rank) {
            add_span(w, base, h->rows * h->cols, here ? base : -1);
        }
    }
}

static void plan_save(struct saver *s)
{
    const struct layout *l = &s->m->layout;
    struct tensor_slice *slice;
    size_t n;

    s->moment[0] = (struct tensor_source){MOMENTS_FIRST, read_whole, &s->whole[FIRST]};
    s->moment[1] = (struct tensor_source){MOMENTS_SECOND, read_whole, &s->whole[SECOND]};
    plan_model(s, &s->whole[PARAM]);
    plan_moments(s, &s->whole[FIRST]);
    plan_moments(s, &s->whole[SECOND]);
    if (s->c.ranks == 1) {
        tensor_files_whole(l, s->moment, ARRAY_LEN(s->moment), MOMENTS_BASE, 1, 0,
                           TENSOR_FILE_MOST_BYTES, &s->moments);
    } else {
        slice = cut_slices(l, &s->whole[FIRST], &n);
        tensor_files_slices(l, slice, n, s->moment, ARRAY_LEN(s->moment), MOMENTS_BASE, s->c.rank,
                            s->c.ranks, &s->moments);
        free(slice);
    }
    s->c.model = s->model;
    s->c.moments = s->moments;
}

uint64_t saver_share_bytes(const struct layout *l, int ranks)
{
    const struct tensor_source none = {.prefix = ""};
    uint64_t *model = mem_array((size_t)ranks, sizeof *model), most = 0;
    struct tensor_files *f;

    tensor_files_whole(l, &none, 1, "model", ranks, TENSOR_FILE_LEAST_BYTES, TENSOR_FILE_MOST_BYTES,
                       &f);
    for (int i = 0; i < l->hubs; i++) {
        uint64_t *of = &model[tensor_files_of(f, i) % (size_t)ranks];

        *of += (uint64_t)(l->hub[i].rows * l->hub[i].cols) * sizeof(float);
        most = *of > most ? *of : most;
    }
    tensor_files_close(&f);
    free(model);
    return most + (PARTS - 1) * (uint64_t)l->parameters * sizeof(float) / (uint64_t)ranks;
}

/* Half of what the host has may go into copies, of all ranks that share it. */
static void take_room(struct saver *s)
{
    uint64_t bytes = 0, all;
    size_t room = 0;

    for (int i = 0; i < PARTS; i++) {
        bytes += (uint64_t)s->whole[i].size * sizeof(float);
    }
    all = bytes * (uint64_t)(s->o.host_ranks > 0 ? s->o.host_ranks : 1);
    s->copies = kops_cpu()->mem_room(&room) == 0 && all <= room / 2;
    for (int i = 0; s->copies && i < PARTS; i++) {
        void *p = NULL;

        s->copies = s->m->k->host_alloc(&p, ((size_t)s->whole[i].size + 1) * sizeof(float)) == 0;
        s->whole[i].copy = s->copies ? p : NULL;
    }
    if (!s->copies) {
        log_info(
            "checkpoint.direct",
            "not enough host memory for a copy of %.1f GiB; training waits while a checkpoint is "
            "written",
            (double)bytes / (1 << 30));
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

static void open_layouts(struct saver *s)
{
    struct model *m = s->m;

    /* Numbers of elements in a part are places in the whole. */
    layout_init(&s->layout, &m->config, m->o.world);
    if (cuts(m) == 1) {
        return;
    }
    s->cut = mem_array((size_t)m->o.tp, sizeof *s->cut);
    for (int r = 0; r < m->o.tp; r++) {
        layout_init_cut(&s->cut[r], &m->config, m->o.world, r, m->o.tp);
    }
    s->pieces = mem_array((size_t)(elements_of_piece(m) * m->o.tp), sizeof *s->pieces);
}

static void close_layouts(struct saver *s)
{
    for (int r = 0; s->cut != NULL && r < s->m->o.tp; r++) {
        layout_fini(&s->cut[r]);
    }
    free(s->cut);
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
        return err_set(e, E_UNSUPPORTED, "a checkpoint needs master weights in f32");
    }
    *s = (struct saver){.o = *o,
                        .m = m,
                        .opt = opt,
                        .good_step = o->resumed_step,
                        .products = BUF_INIT(2 * MATMUL_CHOICES_BYTES),
                        .whole = {{.m = m, .device = m->master, .held = m->master_held},
                                  {.m = m, .device = opt->m, .held = m->state_held},
                                  {.m = m, .device = opt->v, .held = m->state_held}}};
    s->c = (struct checkpoint){.config = &m->config,
                               .companions = o->companions,
                               .products = &s->products,
                               .attempt = o->attempt,
                               .rank = o->comm != NULL ? o->comm->rank : 0,
                               .ranks = o->comm != NULL ? o->comm->size : 1};
    for (int i = 0; i < PARTS; i++) {
        s->whole[i].progress = &s->progress;
    }
    lock_init(&s->lock, LOCK_LEAF);
    cond_init(&s->cond);
    open_layouts(s);
    plan_save(s);
    take_room(s);
    s->thread = thread_start("checkpoint", run_saver_thread, s);
    if (!s->copies) {
        give_room(s);
    }
    if (!s->copies && (m->master_held.ranks > 1 || cuts(m) > 1)) {
        saver_close(&s);
        return err_set(
            e, E_NOSPACE,
            "not enough host memory for this rank's share of a checkpoint, which --zero and --tp "
            "need; leave out --zero and --tp");
    }
    *out = s;
    return 0;
}

void saver_watch(struct saver *s, struct watchdog *w)
{
    s->watchdog = w;
}

/* --- saving: the main thread ------------------------------------------------------------------ */

/* The slices that this rank holds; no other rank is needed. */
static int copy_slices(struct whole *w, struct err *e)
{
    int rc = 0;

    zero_settle(w->m);
    for (size_t i = 0; rc == 0 && i < w->spans; i++) {
        const struct span *x = &w->span[i];

        rc = model_get(w->m, w->copy + x->at, w->device + (size_t)x->device * sizeof(float),
                       (size_t)x->n * sizeof(float), e);
    }
    return rc;
}

/* Where the copy has a number of the whole; NULL: another rank writes it. */
static float *copy_at(const struct whole *w, int64_t offset)
{
    size_t low = 0, high = w->spans;

    while (low < high) {
        size_t mid = low + (high - low) / 2;
        const struct span *x = &w->span[mid];

        if (offset >= x->offset && offset < x->offset + x->n) {
            return w->copy + x->at + offset - x->offset;
        }
        if (offset < x->offset) {
            high = mid;
        } else {
            low = mid + 1;
        }
    }
    return NULL;
}

/* Elements of a tensor parallel rank's layout, from number `offset` on, into their places. A run is
 * of one of the Hub's tensors, which this rank writes whole or not at all. */
static void place_tensor_part(const struct layout *part, int64_t offset, const float *from,
                              int64_t n, const struct whole *w)
{
    struct numbering run;

    for (; n > 0; offset += run.n, from += run.n, n -= run.n) {
        float *to;

        run = layout_number(part, offset, n);
        to = run.first >= 0 ? copy_at(w, run.first) : NULL;
        if (to != NULL && run.cols == 0) {
            memcpy(to, from, (size_t)run.n * sizeof *to);
        }
        for (int64_t i = 0; to != NULL && run.cols > 0 && i < run.n; i++) {
            int64_t at = run.skip + i;

            to[at / run.cols * run.whole_cols + at % run.cols] = from[i];
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
        rc = model_get(m, s->pieces, m->wide, model_accum_bytes(m, n * m->o.tp), e);
        for (int r = 0; rc == 0 && r < m->o.tp; r++) {
            place_tensor_part(&s->cut[r], g->offset + at, s->pieces + r * n, n, w);
        }
    }
    return rc;
}

/* Group by group, together with the other ranks; kept is what this one writes. */
static int copy_tensors(struct saver *s, struct whole *w, struct err *e)
{
    const struct layout *l = &w->m->layout;
    const struct span *x = w->span, *end = w->span + w->spans;
    int rc = 0;

    for (int g = 0; rc == 0 && g < l->groups; g++) {
        const struct group *r = &l->group[g];
        const char *from = zero_collect(w->m, w->device, w->held, g);

        if (cuts(w->m) > 1) {
            rc = copy_parts(s, w, r, from, e);
            continue;
        }
        for (; rc == 0 && x < end && x->offset < r->offset + r->size; x++) {
            rc = model_get(w->m, w->copy + x->at,
                           from + (size_t)(x->offset - r->offset) * sizeof(float),
                           (size_t)x->n * sizeof(float), e);
        }
    }
    return rc;
}

/* The folder is there, and empty, before anybody writes to it. */
static int begin_save(struct saver *s, struct err *why, struct err *e)
{
    int rc = 0;

    if (first_rank(s) && checkpoint_begin(s->o.out, &s->c, why) != 0) {
        log_warn("checkpoint.begin", "step=%lld %s", (long long)s->c.state.step, why->text);
    }
    if (s->c.ranks > 1) {
        zero_settle(s->m);
        rc = comm_barrier(s->o.comm, s->m->ks);
        rc = rc != 0 ? rc : s->m->k->stream_sync(s->m->ks);
        rc = rc != 0 ? err_set(e, rc, "%s: the connection between the ranks broke: %s%s",
                               s->o.comm->name, comm_fault(s->o.comm), s->m->k->fault())
                     : 0;
    }
    return rc;
}

/* What compression has left out on this rank; the model waits. */
static void save_left_out(struct saver *s, struct err *why)
{
    char dir[PATH_MAX];

    s->c.left_out = powersgd_begun(s->m) ? s->m->own.ranks : 0;
    if (s->c.left_out > 0 && why->code == 0) {
        checkpoint_folder(s->o.out, &s->c, dir);
        if (powersgd_save(dir, s->m, why) != 0) {
            log_warn("checkpoint.part", "step=%lld rank=%d %s", (long long)s->c.state.step,
                     s->c.rank, why->text);
        }
    }
}

int saver_save(struct saver *s, const struct train_state *state, struct err *e)
{
    struct err why = {0};
    enum stage next;
    int rc = s->o.products ? products_read(s->m, &s->products, e) : 0;

    CHECK(stage_of(s) == IDLE);
    s->c.state = *state;
    s->began_ms = clock_now_ms();
    rc = rc != 0 ? rc : begin_save(s, &why, e);
    /* Others may have made their copies, and end with an error, before this rank has its own. */
    watchdog_writes(s->watchdog, rc == 0 && why.code == 0);
    if (s->copies) {
        rc = rc != 0 ? rc : copy_tensors(s, &s->whole[PARAM], e);
        rc = rc != 0 ? rc : copy_slices(&s->whole[FIRST], e);
        rc = rc != 0 ? rc : copy_slices(&s->whole[SECOND], e);
    }
    if (rc != 0) {
        watchdog_writes(s->watchdog, false);
        return rc;
    }
    save_left_out(s, &why);
    watchdog_writes(s->watchdog, why.code == 0);
    next = s->copies && why.code == 0 ? WRITING : WRITTEN;
    if (!s->copies && why.code == 0) {
        write_part(s, &why);
        rc = s->m->rc != 0 ? err_set(e, why.code, "%s", why.text) : 0;
        watchdog_writes(s->watchdog, why.code == 0);
    }
    lock_take(&s->lock);
    s->last = (struct err){0};
    s->part = why;
    s->stage = next;
    cond_broadcast(&s->cond);
    lock_drop(&s->lock);
    return rc;
}

static bool at_work(const struct saver *s)
{
    return s->stage == WRITING || s->stage == ENDING || (s->stage == WRITTEN && s->c.ranks == 1);
}

struct saver_report saver_tell(struct saver *s, uint64_t wait_ms)
{
    uint64_t until_ms = clock_now_ms() + wait_ms, now_ms;
    struct saver_report r;

    lock_take(&s->lock);
    while (at_work(s) && (now_ms = clock_now_ms()) < until_ms) {
        cond_wait_ms(&s->cond, &s->lock, until_ms - now_ms);
    }
    r = (struct saver_report){.busy = at_work(s),
                              .failed = s->stage == WRITTEN && s->part.code != 0};
    lock_drop(&s->lock);
    return r;
}

bool saver_settle(struct saver *s, const struct saver_report *sum)
{
    bool under_way;

    lock_take(&s->lock);
    under_way = sum->busy > 0 || s->stage != IDLE;
    if (sum->busy == 0 && s->stage == WRITTEN) {
        s->good = sum->failed == 0;
        s->last = s->part;
        s->stage = first_rank(s) ? ENDING : IDLE;
        if (s->stage == IDLE) {
            watchdog_writes(s->watchdog, false);
        }
        cond_broadcast(&s->cond);
    }
    lock_drop(&s->lock);
    return under_way;
}

uint64_t saver_progress(const struct saver *s)
{
    return atomic_load(&s->progress);
}

int saver_wait(struct saver *s, struct err *e)
{
    CHECK(stage_of(s) == IDLE);
    return s->last.code == 0 ? 0 : err_set(e, s->last.code, "%s", s->last.text);
}

void saver_close(struct saver **sp)
{
    struct saver *s = *sp;

    if (s == NULL) {
        return;
    }
    *sp = NULL;
    lock_take(&s->lock);
    s->stop = true;
    cond_broadcast(&s->cond);
    lock_drop(&s->lock);
    pthread_join(s->thread, NULL);
    give_room(s);
    for (int i = 0; i < PARTS; i++) {
        free(s->whole[i].span);
    }
    tensor_files_close(&s->model);
    tensor_files_close(&s->moments);
    close_layouts(s);
    buf_free(&s->products);
    cond_fini(&s->cond);
    lock_fini(&s->lock);
    free(s);
}
