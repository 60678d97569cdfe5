/* trainer train - the run: take samples, learn, step, tell, save; until the last step or a signal. */
#include <errno.h>
#include <limits.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

#include "agent/train/checkpoint.h"
#include "agent/train/measure.h"
#include "agent/train/metrics.h"
#include "agent/train/optim.h"
#include "agent/train/ranks.h"
#include "agent/train/verbs.h"
#include "common/os/clock.h"
#include "common/os/newfile.h"

enum { MAX_SKIPS = 20 }; /* steps in a row whose gradient is not finite */

/* What ranks agree on after each step; summed over all. */
enum { SHARED_STOP, SHARED_SAVE, SHARED_COUNT };

struct run {
    const struct options *o;
    const struct kops *k;
    struct ranks ranks;
    struct comm *comm;
    struct model_config config;
    int64_t seq;
    struct model *model;
    struct optim *optim;
    struct data *data;
    struct data *val;
    struct metrics *metrics; /* NULL on all ranks but the first */
    struct train_state state;
    int64_t saved_step;
    int64_t skips;
    int32_t *token;
    int32_t *target;
    void *shared; /* device memory */
};

/* What signals said. A handler it must be, and its flags global: OpenBLAS starts threads before main() does, so blocking
 * the signals and polling for them would let one of those threads take the default action. */
static volatile sig_atomic_t told_to_stop;
static volatile sig_atomic_t told_to_save;

static void hear(int signal)
{
    if (signal == SIGUSR1) {
        told_to_save = 1;
    } else {
        told_to_stop = 1;
    }
}

/* --- beginning ----------------------------------------------------------------------------------------------------- */

static int check_options(const struct options *o, struct err *e)
{
    int rc = 0;

    if (o->data == NULL || o->out == NULL) {
        return err_set(e, E_USAGE, "train needs --data and --out, and --config or --model");
    }
    rc = rc != 0 ? rc : setup_at_least("steps", o->steps, 1, e);
    rc = rc != 0 ? rc : setup_at_least("batch", o->batch, 1, e);
    rc = rc != 0 ? rc : setup_at_least("accum", o->accum, 1, e);
    rc = rc != 0 ? rc : setup_at_least("seq", o->seq, 0, e);
    rc = rc != 0 ? rc : setup_at_least("keep", o->keep, 0, e);
    rc = rc != 0 ? rc : setup_at_least("seed", o->seed, 0, e);
    rc = rc != 0 ? rc : setup_at_least("save-every", o->save_every, 0, e);
    rc = rc != 0 ? rc : setup_at_least("val-batches", o->val_batches, 1, e);
    return rc;
}

/* The checkpoint to go on from, NULL to begin anew. */
static int find_resume(const struct options *o, char **dir, struct err *e)
{
    *dir = NULL;
    if (strcmp(o->resume, "none") == 0) {
        return checkpoint_count(o->out) != 0
                   ? err_set(e, E_EXISTS,
                             "%s holds checkpoints: --resume auto goes on from them, another "
                             "--out begins anew",
                             o->out)
                   : 0;
    }
    if (strcmp(o->resume, "auto") == 0) {
        return checkpoint_count(o->out) != 0 ? checkpoint_newest(o->out, dir, e) : 0;
    }
    *dir = mem_strdup(o->resume);
    return checkpoint_verify(o->resume, e);
}

/* A resumed run takes its shape from the checkpoint; a --config beside it must say the same. */
static int find_config(struct run *r, const char *resume, struct err *e)
{
    struct buf here = BUF_INIT(1 << 16), there = BUF_INIT(1 << 16);
    struct model_config other;
    char path[PATH_MAX];
    int rc;

    if (resume == NULL) {
        return setup_config(r->o, &r->config, e);
    }
    snprintf(path, sizeof path, "%s/config.json", resume);
    rc = config_load(path, &r->config, e);
    if (rc == 0 && (r->o->config != NULL || r->o->model != NULL)) {
        rc = setup_config(r->o, &other, e);
        config_format(&r->config, &here);
        config_format(&other, &there);
        if (rc == 0 && !slice_eq(buf_slice(&here), buf_slice(&there))) {
            rc = err_set(e, E_INVALID, "%s holds a model of another shape", resume);
        }
    }
    buf_free(&here);
    buf_free(&there);
    return rc;
}

static struct optim_options optim_options(const struct options *o)
{
    return (struct optim_options){
        .schedule = {.lr = o->lr,
                     .min_lr = o->min_lr < 0 ? o->lr / 10 : o->min_lr,
                     .warmup = o->warmup < 0 ? o->steps / 20 : o->warmup,
                     .steps = o->steps},
        .beta1 = o->beta1,
        .beta2 = o->beta2,
        .eps = o->eps,
        .decay = o->weight_decay,
        .clip = o->clip,
    };
}

static int open_data(struct run *r, struct err *e)
{
    int rc = data_open(r->o->data, r->seq, (uint64_t)r->o->seed, &r->data, e);

    if (rc == 0 && r->o->val != NULL) {
        rc = data_open(r->o->val, r->seq, 0, &r->val, e);
    }
    if (rc == 0 && data_vocab(r->data) > (uint64_t)r->config.vocab) {
        rc = err_set(e, E_INVALID, "the data have a vocabulary of %u, the model only %lld",
                     data_vocab(r->data), (long long)r->config.vocab);
    }
    return rc;
}

static int resume(struct run *r, const char *dir, struct err *e)
{
    int rc = checkpoint_load(dir, r->model, r->optim, &r->state, e);

    if (rc == 0 && (r->state.seed != (uint64_t)r->o->seed || r->state.seq != r->seq ||
                    r->state.windows != data_count(r->data))) {
        rc = err_set(
            e, E_INVALID,
            "%s was made with other data, --seq or --seed: it cannot be gone on from exactly; "
            "--model %s starts a new run from its weights",
            dir, dir);
    }
    return rc;
}

static int open_run(struct run *r, struct err *e)
{
    const struct optim_options oo = optim_options(r->o);
    size_t room;
    char *dir = NULL;
    int rc = find_resume(r->o, &dir, e);

    rc = rc != 0 ? rc : find_config(r, dir, e);
    if (rc == 0) {
        r->seq = setup_seq(r->o, &r->config);
        rc = open_data(r, e);
    }
    if (rc == 0) {
        const struct setup s = {r->comm->size, r->o->batch, r->seq, true, r->comm->rank == 0};
        rc = setup_model(r->o, &r->config, r->k, &s, &r->model, e);
    }
    rc = rc != 0 ? rc : optim_open(r->model, &oo, &r->optim, e);
    rc = rc != 0 ? rc : r->k->mem_alloc(&r->shared, SHARED_COUNT * sizeof(double));
    if (rc != 0) {
        goto out;
    }
    r->state = (struct train_state){
        .seed = (uint64_t)r->o->seed, .seq = r->seq, .windows = data_count(r->data)};
    if (dir != NULL) {
        rc = resume(r, dir, e);
    }
    room = (size_t)(r->o->batch * r->seq);
    r->token = mem_array(room, sizeof *r->token);
    r->target = mem_array(room, sizeof *r->target);
    r->saved_step = r->state.step;
    if (rc == 0 && r->comm->rank == 0) {
        rc = metrics_open(r->o->out, r->state.step, r->o->log_every, &r->metrics, e);
    }
    if (rc == 0 && r->metrics != NULL) {
        metrics_say(r->metrics, "%s: %s of %.2f M parameters on %s, %d rank%s, %s",
                    dir == NULL ? "new run" : dir, config_family(&r->config),
                    (double)r->model->layout.parameters / 1e6, r->k->device, r->comm->size,
                    r->comm->size == 1 ? "" : "s", r->comm->name);
    }
out:
    free(dir);
    return rc;
}

static void close_run(struct run *r)
{
    metrics_close(&r->metrics);
    optim_close(&r->optim);
    if (r->shared != NULL) {
        r->k->mem_free(r->shared);
    }
    model_close(&r->model);
    data_close(&r->data);
    data_close(&r->val);
    comm_close(&r->comm);
    free(r->token);
    free(r->target);
}

/* --- a step -------------------------------------------------------------------------------------------------------- */

/* Micro-batch `micro` of this step, this rank's part. Which sample is whose depends on their product only: more ranks
 * with less accumulation see the same samples in the same step. */
static int take_samples(struct run *r, int64_t micro, struct err *e)
{
    uint64_t first =
        r->state.samples + (uint64_t)((micro * r->comm->size + r->comm->rank) * r->o->batch);
    int rc = 0;

    for (int64_t b = 0; rc == 0 && b < r->o->batch; b++) {
        rc = data_sample(r->data, first + (uint64_t)b, r->token + b * r->seq,
                         r->target + b * r->seq, e);
    }
    return rc;
}

static int share(struct run *r, enum dtype dt, void *buf, int64_t n, struct err *e)
{
    int rc = r->comm->allreduce(r->comm, r->model->ks, dt, buf, n);

    return rc == 0 ? 0 : err_set(e, rc, "%s: the ranks lost each other", r->comm->name);
}

static int one_step(struct run *r, struct step_report *report, struct err *e)
{
    struct model *m = r->model;
    int64_t samples = r->o->accum * r->comm->size * r->o->batch;
    double tokens = (double)(samples * r->seq), sum;
    int rc = 0;

    model_begin(m);
    for (int64_t micro = 0; rc == 0 && micro < r->o->accum; micro++) {
        rc = take_samples(r, micro, e);
        if (rc == 0) {
            model_learn(m, r->token, r->target, r->o->batch, r->seq, 1.0 / tokens);
        }
    }
    rc = rc != 0 ? rc : share(r, m->accum, m->grad, m->layout.size, e);
    rc = rc != 0 ? rc : share(r, DT_F64, m->loss, 1, e);
    if (rc != 0) {
        return rc;
    }
    r->state.step++;
    r->state.samples += (uint64_t)samples;
    r->state.tokens += (uint64_t)(samples * r->seq);
    optim_step(r->optim, r->state.step);
    rc = model_loss(m, &sum, e);
    rc = rc != 0 ? rc : optim_norm(r->optim, &report->grad_norm, e);
    report->step = r->state.step;
    report->steps = r->o->steps;
    report->loss = sum / tokens;
    report->lr = schedule_lr(&r->optim->o.schedule, r->state.step);
    report->tokens = r->state.tokens;
    report->step_tokens = (uint64_t)(samples * r->seq);
    return rc;
}

/* A gradient that is not finite changes nothing (adamw.h); a run of them means that the run is lost. */
static int judge_step(struct run *r, const struct step_report *report, struct err *e)
{
    if (isfinite(report->grad_norm)) {
        r->skips = 0;
        return 0;
    }
    r->skips++;
    if (r->metrics != NULL) {
        metrics_say(r->metrics, "step %lld: the gradient is not finite, the step is skipped",
                    (long long)report->step);
    }
    return r->skips < MAX_SKIPS
               ? 0
               : err_set(e, E_INVALID,
                         "%d steps in a row without a finite gradient: a lower --lr may help",
                         MAX_SKIPS);
}

/* --- saving and stopping ------------------------------------------------------------------------------------------- */

static int save(struct run *r, struct err *e)
{
    int rc = 0;

    if (r->comm->rank == 0 && r->saved_step != r->state.step) {
        rc = checkpoint_save(r->o->out, r->model, r->optim, &r->state, e);
        rc = rc != 0 ? rc : checkpoint_prune(r->o->out, r->o->keep, e);
    }
    r->saved_step = r->state.step;
    return rc != 0 ? rc : r->comm->barrier(r->comm, r->model->ks);
}

static void read_signals(double shared[SHARED_COUNT])
{
    shared[SHARED_STOP] = told_to_stop;
    shared[SHARED_SAVE] = told_to_save;
    told_to_save = 0;
}

/* TERM and INT stop behind a checkpoint, a second INT at once; USR1 saves. A launcher may have left them blocked. */
static void listen_to_signals(void)
{
    static const int heard[] = {SIGTERM, SIGINT, SIGUSR1};
    sigset_t set;

    told_to_stop = told_to_save = 0;
    sigemptyset(&set);
    for (size_t i = 0; i < ARRAY_LEN(heard); i++) {
        struct sigaction act = {.sa_handler = hear, .sa_flags = SA_RESTART};

        act.sa_flags |= heard[i] == SIGINT ? (int)SA_RESETHAND : 0;
        sigaction(heard[i], &act, NULL);
        sigaddset(&set, heard[i]);
    }
    pthread_sigmask(SIG_UNBLOCK, &set, NULL);
}

/* What any rank was told, all ranks do, in the same step. */
static int agree(struct run *r, double shared[SHARED_COUNT], struct err *e)
{
    struct model *m = r->model;
    int rc;

    if (r->comm->size == 1) {
        return 0;
    }
    model_do(m, r->k->mem_put(m->ks, r->shared, shared, SHARED_COUNT * sizeof *shared));
    rc = share(r, DT_F64, r->shared, SHARED_COUNT, e);
    if (rc == 0) {
        rc = r->k->mem_get(m->ks, shared, r->shared, SHARED_COUNT * sizeof *shared);
    }
    return rc;
}

static int stopped(const struct run *r, struct err *e)
{
    return err_set(e, E_AGAIN,
                   "stopped by a signal after step %lld; --resume auto goes on from there",
                   (long long)r->state.step);
}

static int validate(struct run *r, struct err *e)
{
    struct measured result;
    int rc = measure(r->model, r->val, r->o->batch, r->o->val_batches, &result, e);

    if (rc == 0) {
        metrics_val(r->metrics, r->state.step, result.loss);
    }
    return rc;
}

static bool every(int64_t step, int64_t n)
{
    return n > 0 && step % n == 0;
}

static int run_steps(struct run *r, struct err *e)
{
    while (r->state.step < r->o->steps) {
        double shared[SHARED_COUNT] = {0};
        struct step_report report;
        bool last;
        int rc = one_step(r, &report, e);

        if (rc == 0 && r->metrics != NULL) {
            metrics_step(r->metrics, &report, clock_now_ns());
        }
        rc = rc != 0 ? rc : judge_step(r, &report, e);
        last = r->state.step == r->o->steps;
        if (rc == 0 && r->val != NULL && r->metrics != NULL &&
            (last || every(r->state.step, r->o->val_every))) {
            rc = validate(r, e);
        }
        read_signals(shared);
        rc = rc != 0 ? rc : agree(r, shared, e);
        if (rc == 0 && (last || shared[SHARED_STOP] > 0 || shared[SHARED_SAVE] > 0 ||
                        every(r->state.step, r->o->save_every))) {
            rc = save(r, e);
        }
        if (rc != 0) {
            return rc;
        }
        if (shared[SHARED_STOP] > 0 && !last) {
            return stopped(r, e);
        }
    }
    return 0;
}

static const char *environment(const char *name)
{
    return getenv(name);
}

int verb_train(const struct options *o, struct err *e)
{
    struct run r = {.o = o};
    int rc = check_options(o, e);

    listen_to_signals();
    rc = rc != 0 ? rc : ranks_read(environment, &r.ranks, e);
    rc = rc != 0 ? rc : setup_device(o, r.ranks.local_rank, &r.k, e);
    rc = rc != 0 ? rc : ranks_join(&r.ranks, r.k, &r.comm, e);
    rc = rc != 0 ? rc : dir_make(o->out, 0755, e);
    rc = rc != 0 ? rc : open_run(&r, e);
    rc = rc != 0 ? rc : run_steps(&r, e);
    close_run(&r);
    return rc;
}
