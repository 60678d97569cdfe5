/* trainer train - the life of a training run on one rank.
 *
 * The ranks form a group (ranks.h), and the watchdog starts. run_open() builds the model, the
 * optimiser, the data and the saver, from the options or from a checkpoint; all ranks choose the
 * same one. Then every step does the same: the loader gives samples, forward and backward passes
 * add up gradients, the gradients are reduced over the ranks (zero.h), the optimiser updates the
 * weights. A step whose gradients are not finite, or stand out, is skipped; MAX_SKIPS in a row end
 * the run. After each step the ranks agree, by one sum, whether to stop, to save, and how far
 * the checkpoint in progress is. A checkpoint is written while training continues (saver.h).
 * The run ends after the last step, or after a checkpoint when a signal or a notice asked any rank
 * to stop. An error on one rank ends all ranks (watchdog.h).
 */
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sysexits.h>
#include <unistd.h>

#include "agent/train/measure.h"
#include "agent/train/powersgd.h"
#include "agent/train/products.h"
#include "agent/train/run.h"
#include "agent/train/tensor_parallel.h"
#include "agent/train/verbs.h"
#include "agent/train/zero.h"
#include "common/base/log.h"
#include "common/os/clock.h"
#include "common/os/newfile.h"

/* Steps in a row that are not taken before the run counts as lost. */
enum { MAX_SKIPS = 20 };

/* How often ranks meet while they wait for a checkpoint. */
enum { MEET_MS = 1000 };

/* What signals said. A handler it must be, and its flags global: OpenBLAS starts threads before
 * main() does, so blocking the signals and polling for them would let one of those threads take the
 * default action. */
static volatile sig_atomic_t reported_to_stop;
static volatile sig_atomic_t reported_to_save;

static void on_training_signal(int signal)
{
    if (signal == SIGUSR1) {
        reported_to_save = 1;
    } else {
        reported_to_stop = 1;
    }
}

/* --- beginning -------------------------------------------------------------------------------- */

/* What AdamW would divide by, or take a root of; 0 / 0 sits in every row of the embedding that no
 * token has used. */
static int check_numbers(const struct options *o, struct err *e)
{
    const struct {
        const char *name;
        double value, low, high;
    } number[] = {
        {"lr", o->lr, 0, HUGE_VAL},
        {"beta1", o->beta1, 0, 1},
        {"beta2", o->beta2, 0, 1},
        {"eps", o->eps, 1e-30, HUGE_VAL},
        {"weight-decay", o->weight_decay, 0, HUGE_VAL},
        {"clip", o->clip, 0, HUGE_VAL},
        {"loss-scale", o->loss_scale, 0x1p-20, 0x1p127},
    };
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < ARRAY_LEN(number); i++) {
        rc = setup_within(number[i].name, number[i].value, number[i].low, number[i].high, e);
    }
    return rc;
}

static int check_training_options(const struct options *o, struct err *e)
{
    int64_t rank;
    int rc = 0;

    if (o->data == NULL || o->out == NULL) {
        return err_set(e, E_USAGE, "train needs --data, --out, and --config or --model");
    }
    rc = rc != 0 ? rc : setup_at_least("steps", o->steps, 1, e);
    rc = rc != 0 ? rc : setup_at_least("stop-at", o->stop_at, 0, e);
    rc = rc != 0 ? rc : setup_at_least("batch", o->batch, 1, e);
    rc = rc != 0 ? rc : setup_at_least("accum", o->accum, 1, e);
    rc = rc != 0 ? rc : setup_at_least("seq", o->seq, 0, e);
    rc = rc != 0 ? rc : setup_at_least("keep", o->keep, 0, e);
    rc = rc != 0 ? rc : setup_at_least("seed", o->seed, 0, e);
    rc = rc != 0 ? rc : setup_at_least("save-every", o->save_every, 0, e);
    rc = rc != 0 ? rc : setup_at_least("val-batches", o->val_batches, 1, e);
    rc = rc != 0 ? rc : setup_zero(o, e);
    rc = rc != 0 ? rc : setup_within("shard-group", (double)o->shard_group, 0, 1 << 30, e);
    rc = rc != 0 ? rc : setup_at_least("tp", o->tp, 1, e);
    if (rc == 0 && o->shard_group > 0 && o->zero == 0) {
        rc = err_set(e, E_USAGE, "--shard-group needs --zero 1, 2 or 3");
    }
    rc = rc != 0 ? rc : setup_at_least("compress-start", o->compress_start, -1, e);
    rc = rc != 0 ? rc : setup_compress(o, &rank, e);
    rc = rc != 0 ? rc : setup_within("comm-timeout", (double)o->comm_timeout, 1, 1e7, e);
    return rc != 0 ? rc : check_numbers(o, e);
}

static int parse_comm(const char *text, enum ranks_over *out, struct err *e)
{
    static const char *const known[] = {
        [OVER_AUTO] = "auto", [OVER_NCCL] = "nccl", [OVER_MPI] = "mpi"};

    for (size_t i = 0; i < ARRAY_LEN(known); i++) {
        if (strcmp(text, known[i]) == 0) {
            *out = (enum ranks_over)i;
            return 0;
        }
    }
    return err_set(e, E_USAGE, "--comm %.20s is invalid; give auto, nccl or mpi", text);
}

/* --- a step ----------------------------------------------------------------------------------- */

static int allreduce(struct run *r, enum dtype dt, void *buf, int64_t n, struct err *e)
{
    int rc = zero_allreduce(r->model, r->comm, dt, buf, n);

    if (rc != 0) {
        return err_set(e, rc, "%s: %s: %s%s", r->comm->name,
                       rc == E_CUDA || rc == E_SICK ? "the GPU failed"
                                                    : "the connection between the ranks broke",
                       comm_fault(r->comm), r->k->fault());
    }
    return 0;
}

/* Why a step is not taken; NULL when it is. */
static const char *objection(struct run *r, const struct step_report *p)
{
    double loss_z, norm_z;

    if (!isfinite(p->grad_norm) || !isfinite(p->loss)) {
        return r->state.scaler.on ? "the gradient overflowed" : "the gradient is not finite";
    }
    loss_z = outlier_add(&r->state.loss, p->loss);
    norm_z = outlier_add(&r->state.norm, p->grad_norm);
    if (r->o->skip_loss > 0 && loss_z > r->o->skip_loss) {
        return "the loss is an outlier";
    }
    if (r->o->skip_norm > 0 && norm_z > r->o->skip_norm) {
        return "the gradient norm is an outlier";
    }
    return NULL;
}

/* Takes the step, or says why not. A run of steps that are not taken means that the run is lost;
 * but f16's scale may halve as long as it is a large one. */
static int judge_step(struct run *r, const struct step_report *p, struct err *e)
{
    struct scaler *scaler = &r->state.scaler;
    bool finite = isfinite(p->grad_norm) && isfinite(p->loss);
    double before = scaler->scale;
    const char *why = objection(r, p);

    scaler_step(scaler, finite);
    if (why != NULL || scaler->scale != before) {
        powersgd_forget(r->model);
    }
    if (why == NULL) {
        r->skips = 0;
        optim_update(r->optim, ++r->state.updates);
        return 0;
    }
    r->skips++;
    if (r->metrics != NULL && scaler->on && !finite) {
        metrics_say(r->metrics, "step %lld is skipped: %s; the loss scale is now %g",
                    (long long)p->step, why, scaler->scale);
    } else if (r->metrics != NULL) {
        metrics_say(r->metrics, "step %lld is skipped: %s (loss %.4g, norm %.4g)",
                    (long long)p->step, why, p->loss, p->grad_norm);
    }
    return r->skips < MAX_SKIPS || scaler->scale > 1
               ? 0
               : err_set(e, E_INVALID, "%d steps in a row were skipped; try a lower --lr",
                         MAX_SKIPS);
}

/* The last step that this process takes. */
static int64_t last_step(const struct options *o)
{
    return o->stop_at > 0 && o->stop_at < o->steps ? o->stop_at : o->steps;
}

static int one_step(struct run *r, struct step_report *report, struct err *e)
{
    struct model *m = r->model;
    int64_t samples = r->o->accum * r->dp->size * r->o->batch;
    double tokens = (double)(samples * r->seq), scale = r->state.scaler.scale, sum = 0;
    const int32_t *token, *target;
    int rc;

    rc = loader_next(r->loader, &token, &target, e);
    model_begin(m);
    powersgd_begin(m, r->state.step + 1);
    for (int64_t micro = 0; rc == 0 && micro < r->o->accum; micro++) {
        int64_t at = micro * r->o->batch * r->seq;

        model_forward_backward(m, token + at, target + at, r->o->batch, r->seq, scale / tokens);
    }
    tp_count_once(m, m->loss);
    rc = rc != 0 ? rc : allreduce(r, DT_F64, m->loss, 1, e);
    if (rc != 0) {
        return rc;
    }
    r->state.step++;
    r->state.samples += (uint64_t)samples;
    r->state.tokens += (uint64_t)(samples * r->seq);
    optim_clip(r->optim, 1 / scale);
    rc = optim_norm(r->optim, &report->grad_norm, e);
    rc = rc != 0 ? rc : model_loss(m, &sum, e);
    report->step = r->state.step;
    report->steps = last_step(r->o);
    report->loss = sum / tokens;
    report->lr = schedule_lr(&r->optim->o.schedule, r->state.updates + 1);
    report->loss_scale = r->state.scaler.on ? scale : 0;
    report->tokens = r->state.tokens;
    report->sent_bytes = m->sent_bytes;
    report->step_tokens = (uint64_t)(samples * r->seq);
    return rc != 0 ? rc : judge_step(r, report, e);
}

/* --- saving and stopping ---------------------------------------------------------------------- */

/* A request that reached any rank is followed by all ranks, in the same step. */
static int agree(struct run *r, double shared[SHARED_COUNT], struct err *e)
{
    struct model *m = r->model;
    int rc;

    if (r->comm->size == 1) {
        return 0;
    }
    model_do(m, r->k->mem_put(m->ks, r->shared, shared, SHARED_COUNT * sizeof *shared));
    rc = allreduce(r, DT_F64, r->shared, SHARED_COUNT, e);
    return rc != 0 ? rc : model_get(m, shared, r->shared, SHARED_COUNT * sizeof *shared, e);
}

static void tell_saver(struct run *r, double shared[SHARED_COUNT], uint64_t wait_ms)
{
    struct saver_report mine = saver_tell(r->saver, wait_ms);

    shared[SHARED_BUSY] = mine.busy;
    shared[SHARED_FAILED] = mine.failed;
}

static int mark_step(struct run *r, double shared[SHARED_COUNT], struct err *e)
{
    uint16_t mark = 0;
    int rc = 0;

    if (r->skips == 0) { /* else what is not finite may differ from rank to rank */
        rc = powersgd_mark(r->model, &mark, e);
    }

    shared[SHARED_MARK] = mark;
    shared[SHARED_MARK_SQUARE] = (double)mark * mark;
    return rc;
}

/* Numbers are equal when their sum's square is that of their squares, times how many there are; all
 * of these are integers. */
static int compare_marks(const struct run *r, const double shared[SHARED_COUNT], struct err *e)
{
    uint64_t sum = (uint64_t)shared[SHARED_MARK], squares = (uint64_t)shared[SHARED_MARK_SQUARE];

    return sum * sum == squares * (uint64_t)r->comm->size
               ? 0
               : err_set(
                     e, E_CONFIG,
                     "--compress: the parameters of the ranks differ after step %lld, because "
                     "their processors round differently; use hosts of one kind, --zero 1, or on "
                     "CPUs the same OPENBLAS_CORETYPE (Haswell) for all",
                     (long long)r->state.step);
}

/* True when a checkpoint is still under way on some rank. */
static bool settle_saver(struct run *r, const double shared[SHARED_COUNT])
{
    const struct saver_report sum = {.busy = shared[SHARED_BUSY], .failed = shared[SHARED_FAILED]};

    return saver_settle(r->saver, &sum);
}

/* Until the checkpoint under way is written by all ranks. They meet each second meanwhile: a slow
 * disk of one of them is no collective that does not end. A disk that hangs is an error. */
static int finish_writing(struct run *r, struct err *e)
{
    uint64_t stall_ms = 2 * LONG_WAIT * (uint64_t)r->o->comm_timeout * 1000;
    uint64_t since_ms = clock_now_ms(), seen = saver_progress(r->saver), wait_ms = 0;
    bool under_way;
    int rc;

    do {
        double shared[SHARED_COUNT] = {0};

        tell_saver(r, shared, wait_ms);
        wait_ms = MEET_MS;
        if (saver_progress(r->saver) != seen) {
            seen = saver_progress(r->saver);
            since_ms = clock_now_ms();
        }
        if (shared[SHARED_BUSY] > 0 && clock_now_ms() - since_ms > stall_ms) {
            return err_set(e, E_TIMEOUT, "%s: writing the checkpoint made no progress for %llu s",
                           r->o->out, (unsigned long long)stall_ms / 1000);
        }
        watchdog_patience(r->watchdog, true);
        rc = agree(r, shared, e);
        under_way = rc == 0 && settle_saver(r, shared);
    } while (under_way);
    return rc;
}

static int save_training(struct run *r, struct err *e)
{
    int rc = 0;

    /* Until the next step is done: those that write may still be at it. */
    watchdog_patience(r->watchdog, true);
    if (r->saved_step != r->state.step) {
        rc = finish_writing(r, e);
        watchdog_host_work(r->watchdog, true);
        rc = rc != 0 ? rc : saver_save(r->saver, &r->state, e);
        watchdog_host_work(r->watchdog, false);
    }
    r->saved_step = r->state.step;
    return rc;
}

/* After the last save. The ranks wait for each other, for a launcher ends them all when one has
 * ended; but a rank that could not write ends the others by its error. */
static int save_to_the_end(struct run *r, struct err *e)
{
    int rc = finish_writing(r, e);

    rc = rc != 0 ? rc : saver_wait(r->saver, e);
    return rc != 0 ? rc : comm_barrier(r->comm, r->model->ks);
}

/* The requests to this rank: by signals, and by a file that something on its node makes. */
static void read_notices(const struct options *o, double shared[SHARED_COUNT])
{
    shared[SHARED_STOP] = reported_to_stop;
    shared[SHARED_PREEMPTED] = o->preempt_file != NULL && access(o->preempt_file, F_OK) == 0;
    shared[SHARED_SAVE] = reported_to_save;
    reported_to_save = 0;
}

/* TERM and INT stop behind a checkpoint, a second INT at once; USR1 saves. A launcher may have left
 * them blocked. */
static void listen_to_signals(void)
{
    static const int heard[] = {SIGTERM, SIGINT, SIGUSR1};
    sigset_t set;

    reported_to_stop = reported_to_save = 0;
    sigemptyset(&set);
    for (size_t i = 0; i < ARRAY_LEN(heard); i++) {
        struct sigaction act = {.sa_handler = on_training_signal, .sa_flags = SA_RESTART};

        act.sa_flags |= heard[i] == SIGINT ? (int)SA_RESETHAND : 0;
        sigaction(heard[i], &act, NULL);
        sigaddset(&set, heard[i]);
    }
    pthread_sigmask(SIG_UNBLOCK, &set, NULL);
}

static int stopped(const struct run *r, const double shared[SHARED_COUNT], struct err *e)
{
    return err_set(
        e, E_AGAIN, "stopped by a %s after step %lld; --resume auto continues from there",
        shared[SHARED_PREEMPTED] > 0 ? "preemption notice" : "signal", (long long)r->state.step);
}

/* After the first step of this process: with --deterministic all ranks multiply as the first one
 * does, and it as the checkpoint's run did. */
static int settle_products(struct run *r, struct err *e)
{
    size_t changed = 0;
    int rc = 0;

    if (!r->o->deterministic) {
        return 0;
    }
    if (r->products.n > 0 && r->comm->rank == 0) {
        rc = products_changed(r->model, &r->products, &changed, e);
    }
    if (changed > 0) {
        log_warn("deterministic.products",
                 "%zu matrix products use other algorithms than in the checkpoint's run; their "
                 "results may differ in the last bits",
                 changed);
    }
    return rc != 0 || r->comm->size == 1 ? rc : products_share(r->model, r->comm, e);
}

/* On all ranks. */
static int validate(struct run *r, struct err *e)
{
    struct measured result;
    int rc = measure(r->model, r->val, r->o->batch, r->o->val_batches, r->dp, &result, e);

    if (rc == 0 && r->metrics != NULL) {
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
    int64_t end = last_step(r->o), first = r->state.step;
    int rc;

    if (first >= end && r->metrics != NULL) {
        metrics_say(r->metrics, "step %lld is already done and --%s is %lld: nothing to do",
                    (long long)r->state.step, end < r->o->steps ? "stop-at" : "steps",
                    (long long)end);
    }
    while (r->state.step < end) {
        double shared[SHARED_COUNT] = {0};
        struct step_report report;
        bool last, stop;

        r->k->range_begin("step");
        rc = one_step(r, &report, e);
        r->k->range_end();
        watchdog_patience(r->watchdog, false);

        if (rc == 0 && r->metrics != NULL) {
            metrics_step(r->metrics, &report, clock_now_ns());
        }
        if (rc == 0 && r->state.step == first + 1) {
            rc = settle_products(r, e);
        }
        last = r->state.step == end;
        if (rc == 0 && r->val != NULL && (last || every(r->state.step, r->o->val_every))) {
            watchdog_patience(r->watchdog, true);
            rc = validate(r, e);
        }
        read_notices(r->o, shared);
        tell_saver(r, shared, 0);
        rc = rc != 0 ? rc : mark_step(r, shared, e);
        rc = rc != 0 ? rc : agree(r, shared, e);
        if (rc == 0) {
            (void)settle_saver(r, shared);
        }
        rc = rc != 0 || r->comm->size == 1 ? rc : compare_marks(r, shared, e);
        stop = shared[SHARED_STOP] > 0 || shared[SHARED_PREEMPTED] > 0;
        if (rc == 0 &&
            (last || stop || shared[SHARED_SAVE] > 0 || every(r->state.step, r->o->save_every))) {
            rc = save_training(r, e);
        }
        if (rc == 0 && stop && !last) {
            rc = save_to_the_end(r, e);
            r->agreed_to_stop = rc == 0;
            return rc != 0 ? rc : stopped(r, shared, e);
        }
        if (rc != 0) {
            return rc;
        }
    }
    rc = save_to_the_end(r, e);
    if (rc == 0 && first < end && end < r->o->steps && r->metrics != NULL) {
        metrics_say(r->metrics,
                    "--stop-at %lld: the run ends here; --resume auto continues to step %lld",
                    (long long)end, (long long)r->o->steps);
    }
    return rc;
}

static const char *training_environment(const char *name)
{
    return getenv(name);
}

/* After an error of the GPU or the group freeing may hang, and so may CUDA's exit handlers. */
NORETURN static void end_at_once(int rc, const struct err *e)
{
    fprintf(stderr, "trainer train: %s\n", e->text);
    fflush(NULL);
    _exit(rc == E_SICK ? err_sysexit(rc) : EX_TEMPFAIL);
}

/* An error of one rank ends all of them; only a stop that all have agreed on is none. */
static void end_ranks(struct run *r, int rc, const struct err *e)
{
    if (watchdog_may_pass(rc) && r->comm == NULL && r->ranks.world > 1) {
        watchdog_record_alone(r->o->out, r->ranks.rank, r->ranks.world, rc, e->text);
    }
    if (watchdog_may_pass(rc) && r->watchdog == NULL) {
        end_at_once(rc, e);
    }
    if (watchdog_may_pass(rc)) {
        watchdog_fail(r->watchdog, rc, e->text);
    }
    if (rc != 0 && !r->agreed_to_stop && r->watchdog != NULL && r->comm->size > 1) {
        watchdog_fail(r->watchdog, rc, e->text); /* meanwhile the saver's thread goes on */
    }
}

static int start_training_watchdog(struct run *r, struct err *e)
{
    const struct watchdog_options wo = {.comm = r->comm,
                                        .k = r->k,
                                        .out = r->o->out,
                                        .host = r->ranks.master_addr,
                                        .timeout_ms = (uint64_t)r->o->comm_timeout * 1000};

    int rc = watchdog_open(&wo, &r->watchdog, e);

    if (rc == 0 && r->comm->size > 1 && r->comm->rank == 0) {
        log_info("comm.ready", "name=%s ranks=%d timeout_s=%lld facts=\"%s\"", r->comm->name,
                 r->comm->size, (long long)r->o->comm_timeout, r->comm->facts);
    }
    return rc;
}

int verb_train(struct options *o, struct err *e)
{
    struct run r = {.o = o, .out_fd = -1, .products = BUF_INIT(2 * MATMUL_CHOICES_BYTES)};
    int rc = check_training_options(o, e);

    listen_to_signals();
    rc = rc != 0 ? rc : ranks_read(training_environment, &r.ranks, e);
    rc = rc != 0 ? rc : setup_device(o, r.ranks.local_rank, &r.k, e);
    rc = rc != 0 ? rc : parse_comm(o->comm, &r.ranks.over, e);
    if (o->deterministic) {
        r.ranks.ordered = true;
        setenv("NCCL_NVLS_ENABLE", "0",
               0); /* sums made in NVLink's switches differ from run to run */
    }
    if (o->tp > 1) {
        setenv("NCCL_LAUNCH_ORDER_IMPLICIT", "1",
               0); /* two streams have collectives under way: all ranks begin them in one order */
    }
    if (rc == 0) {
        r.ranks.timeout_ms = LONG_WAIT * (uint64_t)o->comm_timeout * 1000;
        rc = ranks_join(&r.ranks, r.k, &r.comm, e);
    }
    rc = rc != 0 ? rc : start_training_watchdog(&r, e);
    watchdog_host_work(r.watchdog, true); /* a checkpoint is verified, memory is pinned */
    rc = rc != 0 ? rc : run_open(&r, e);
    watchdog_host_work(r.watchdog, false);
    if (rc == 0) {
        saver_watch(r.saver, r.watchdog);
    }
    rc = rc != 0 ? rc : run_steps(&r, e);
    end_ranks(&r, rc, e);
    run_close(&r);
    return rc;
}
