#include "agent/train/run.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/random.h>
#include <unistd.h>

#include "agent/train/flops.h"
#include "agent/train/powersgd.h"
#include "agent/train/powersgd_state.h"
#include "agent/train/products.h"
#include "agent/train/verbs.h"
#include "agent/train/zero.h"
#include "common/base/endian.h"
#include "common/base/log.h"
#include "common/codec/units.h"
#include "common/os/clock.h"
#include "common/os/newfile.h"

/* A run that goes on from an older checkpoint than its folder's newest would lose what it does: the
 * next --resume auto takes the other one. */
static int check_resume(const char *out, const char *dir, struct err *e)
{
    int64_t last = checkpoint_last_step(out);
    struct train_state s;
    int rc = checkpoint_check(dir, e);

    rc = rc != 0 ? rc : checkpoint_state(dir, &s, e);
    if (rc == 0 && last > s.step) {
        rc = err_set(
            e, E_EXISTS,
            "%s is of step %lld, but %s already has checkpoint-%lld; use another --out or move "
            "the newer checkpoints away",
            dir, (long long)s.step, out, (long long)last);
    }
    return rc;
}

/* *x becomes the sum of all ranks'. */
static int sum_of_ranks(struct run *r, struct kstream *ks, double *x, struct err *e)
{
    int rc = r->k->mem_put(ks, r->shared, x, sizeof *x);

    rc = rc != 0 ? rc : comm_allreduce(r->comm, ks, DT_F64, r->shared, 1);
    rc = rc != 0 ? rc : r->k->mem_get(ks, x, r->shared, sizeof *x);
    return rc != 0 ? err_set(e, rc, "%s: the connection between the ranks broke: %s%s",
                             r->comm->name, comm_fault(r->comm), r->k->fault())
                   : 0;
}

/* The first rank looks for the newest checkpoint before step `below`, and all take that one:
 * r->resumed, NULL when there is none. The others need not read all of it for that. */
static int choose_checkpoint(struct run *r, struct kstream *ks, int64_t below, struct err *e)
{
    double step = -1;
    int64_t found = -1;
    int rc = 0;

    if (r->comm->rank == 0 && checkpoint_count(r->o->out) > 0) {
        rc = checkpoint_newest_below(r->o->out, below, &found, e);
    }
    step = r->comm->rank == 0 ? (double)found : 0;
    rc = rc != 0 || r->comm->size == 1 ? rc : sum_of_ranks(r, ks, &step, e);
    r->resumed_step = (int64_t)step;
    free(r->resumed);
    r->resumed = rc == 0 && step >= 0 ? checkpoint_path(r->o->out, (int64_t)step) : NULL;
    return rc;
}

/* The checkpoint to go on from, if any. */
static int find_resume(struct run *r, struct kstream *ks, struct err *e)
{
    const struct options *o = r->o;

    if (strcmp(o->resume, "none") == 0) {
        return checkpoint_count(o->out) > 0
                   ? err_set(
                         e, E_EXISTS,
                         "%s already has checkpoints; resume with --resume auto, or start a new "
                         "run with another --out",
                         o->out)
                   : 0;
    }
    if (strcmp(o->resume, "auto") == 0) {
        int rc = choose_checkpoint(r, ks, INT64_MAX, e);

        if (rc == 0 && r->resumed != NULL && access(r->resumed, F_OK) != 0) {
            free(r->resumed); /* not where all see it: agree_on_options() says so */
            r->resumed = NULL;
        }
        return rc;
    }
    r->resumed = mem_strdup(o->resume);
    return r->comm->rank == 0 ? check_resume(o->out, o->resume, e) : 0;
}

/* Two runs in one folder would write over each other's checkpoints. Whoever dies lets go; where a
 * file system has no locks there is none. A folder that is not there yet is no error. */
static int hold_out(struct run *r, struct err *e)
{
    if (r->comm->rank != 0 || r->out_fd != -1) {
        return 0;
    }
    r->out_fd = open(r->o->out, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (r->out_fd == -1) {
        return errno == ENOENT ? 0 : err_sys(e, "%s", r->o->out);
    }
    return flock(r->out_fd, LOCK_EX | LOCK_NB) == -1 && errno == EWOULDBLOCK
               ? err_set(e, E_BUSY,
                         "another trainer is writing to %s; wait for it or use another --out",
                         r->o->out)
               : 0;
}

/* Where the folder is new, nobody held it while checkpoints were looked for. */
static int make_out(struct run *r, struct err *e)
{
    bool anew = r->comm->rank == 0 && r->out_fd == -1;
    int rc = dir_make(r->o->out, 0755, e);

    rc = rc != 0 ? rc : hold_out(r, e);
    return rc == 0 && anew && checkpoint_count(r->o->out) > 0
               ? err_set(e, E_BUSY,
                         "another trainer wrote to %s in the meantime; use another --out",
                         r->o->out)
               : rc;
}

static int same_shape(const struct model_config *a, const struct model_config *b, const char *dir,
                      struct err *e)
{
    struct buf here = BUF_INIT(1 << 16), there = BUF_INIT(1 << 16);
    int rc = 0;

    config_format(a, &here);
    config_format(b, &there);
    if (!slice_eq(buf_slice(&here), buf_slice(&there))) {
        rc = err_set(e, E_INVALID, "%s has a model of another shape", dir);
    }
    buf_free(&here);
    buf_free(&there);
    return rc;
}

static int config_of(const char *dir, struct model_config *out, struct err *e)
{
    char path[PATH_MAX];

    snprintf(path, sizeof path, "%s/config.json", dir);
    return config_load(path, out, e);
}

/* A resumed run takes its shape from the checkpoint; a --config beside it must say the same. */
static int find_config(struct run *r, struct err *e)
{
    struct model_config other;
    int rc;

    if (r->resumed == NULL) {
        return setup_config(r->o, &r->config, e);
    }
    rc = config_of(r->resumed, &r->config, e);
    if (rc == 0 && (r->o->config != NULL || r->o->model != NULL)) {
        rc = setup_config(r->o, &other, e);
        rc = rc != 0 ? rc : same_shape(&r->config, &other, r->resumed, e);
    }
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
        .seed = (uint64_t)o->seed,
    };
}

static int open_data(struct run *r, struct err *e)
{
    int rc = data_open(r->o->data, r->seq, (uint64_t)r->o->seed, &r->data, e);

    if (rc == 0 && r->o->val != NULL) {
        rc = data_open(r->o->val, r->seq, 0, &r->val, e);
    }
    if (rc == 0 && data_vocab(r->data) > (uint64_t)r->config.vocab) {
        rc = err_set(e, E_INVALID,
                     "the data has a vocabulary of %u tokens, but the model's has only %lld",
                     data_vocab(r->data), (long long)r->config.vocab);
    }
    return rc;
}

/* From where the run stands. */
static int open_loader(struct run *r, struct err *e)
{
    const struct loader_plan p = {.first = r->state.samples,
                                  .batch = r->o->batch,
                                  .micros = r->o->accum,
                                  .seq = r->seq,
                                  .rank = r->dp->rank,
                                  .ranks = r->dp->size};

    return loader_open(r->data, r->k, &p, &r->loader, e);
}

/* Takes the memory that the library needs for it, before the model's is planned. */
static int warm_up(struct run *r, struct comm *part)
{
    struct kstream *ks;
    int rc = r->k->stream_open(&ks);

    if (rc != 0) {
        return rc;
    }
    comm_watch(r->comm, r->k, ks);
    rc = comm_warm_up(part, r->k, ks);
    if (rc == 0) {
        r->k->stream_close(&ks);
    }
    return rc;
}

/* Cuts `of` into groups of `size` ranks that follow each other, and those of the ranks with the
 * same place in each. */
static int open_groups(struct run *r, struct comm *of, int size, struct comm **near,
                       struct comm **far, struct err *e)
{
    int rc = comm_split(of, of->rank / size, near);

    rc = rc != 0 ? rc : comm_split(of, of->rank % size, far);
    rc = rc != 0 ? rc : warm_up(r, *near);
    rc = rc != 0 ? rc : warm_up(r, *far);
    return rc != 0 ? err_set(e, rc, "%s: groups of %d ranks could not be created: %s%s",
                             r->comm->name, size, comm_fault(r->comm), r->k->fault())
                   : 0;
}

/* Neighbours cut a model: they talk the most. */
static int open_tp(struct run *r, struct err *e)
{
    int size = (int)r->o->tp;
    int rc = layout_can_cut(&r->config, r->o->tp, e);

    r->dp = r->comm;
    if (rc != 0 || size == 1) {
        return rc;
    }
    if (r->comm->size % size != 0) {
        return err_set(e, E_USAGE, "--tp %d: the number of ranks (%d) must be a multiple of it",
                       size, r->comm->size);
    }
    /* Ranks that all cut one model have collectives on one stream alone. */
    if (r->comm->size > size && r->comm->one_group[0] != '\0') {
        return err_set(
            e, E_UNSUPPORTED,
            "--tp %d runs collectives of two groups at the same time, which could deadlock: %s, "
            "or divide the model with --zero 3 instead",
            size, r->comm->one_group);
    }
    rc = open_groups(r, r->comm, size, &r->tp, &r->same_part, e);
    r->dp = r->same_part;
    return rc;
}

/* Ranks that follow each other share out a model: they are on one node. */
static int open_shards(struct run *r, struct err *e)
{
    int size = (int)r->o->shard_group;

    if (size <= 1 || size == r->dp->size) {
        return 0;
    }
    if (r->dp->size % size != 0) {
        return err_set(e, E_USAGE,
                       "--shard-group %d: the number of ranks (%d%s) must be a multiple of it",
                       size, r->dp->size, r->o->tp > 1 ? " with the same part of a model" : "");
    }
    return open_groups(r, r->dp, size, &r->shards, &r->replicas, e);
}

static int open_model(struct run *r, bool resumed, struct err *e)
{
    const struct optim_options oo = optim_options(r->o);
    const struct setup s = {.comm = r->shards != NULL ? r->shards : r->dp,
                            .replicas = r->replicas,
                            .all = r->comm,
                            .tp = r->tp,
                            .passes = r->o->accum,
                            .compress_start = setup_compress_start(r->o, &oo.schedule),
                            .batch = r->o->batch,
                            .seq = r->seq,
                            .training = true,
                            .blank = resumed,
                            .tell = r->comm->rank == 0};
    int rc = setup_model(r->o, &r->config, r->k, &s, &r->model, e);

    rc = rc != 0 ? rc : optim_open(r->model, &oo, &r->optim, e);
    if (rc == 0 && r->model->powersgd != NULL) {
        powersgd_rehearse(r->model, zero_stream(r->model));
    }
    return rc;
}

static void begin_training_run(struct run *r)
{
    r->state = (struct train_state){
        .seed = (uint64_t)r->o->seed, .seq = r->seq, .windows = data_count(r->data)};
    r->state.tokenizer = *data_tokenizer(r->data);
    data_identity(r->data, &r->state.data);
    r->state.recipe = (struct recipe){.schedule = r->optim->o.schedule,
                                      .batch = r->o->batch,
                                      .accum = r->o->accum,
                                      .ranks = r->dp->size,
                                      .tp = r->o->tp};
    snprintf(r->state.dtype, sizeof r->state.dtype, "%s", r->o->dtype);
    scaler_init(&r->state.scaler, r->model->dt == DT_F16, r->o->loss_scale);
}

static int resume_from(struct run *r, const char *dir, struct err *e)
{
    struct model_config shape;
    struct train_state s;
    int rc = checkpoint_state(dir, &s, e);

    rc = rc != 0 ? rc : config_of(dir, &shape, e);
    rc = rc != 0 ? rc : same_shape(&r->config, &shape, dir, e);
    if (rc != 0) {
        return rc;
    }
    if (s.seed != r->state.seed || s.seq != r->state.seq || s.windows != r->state.windows ||
        strcmp(s.dtype, r->state.dtype) != 0 || !digest_eq(&s.tokenizer, &r->state.tokenizer) ||
        (!digest_is_zero(&s.data) && !digest_eq(&s.data, &r->state.data))) {
        return err_set(
            e, E_INVALID,
            "%s was made with other data, --seq, --seed or --dtype, so the run cannot be "
            "resumed; --model %s starts a new run from its weights",
            dir, dir);
    }
    s.scaler.on = r->state.scaler.on;
    s.data = r->state.data; /* a checkpoint of before does not say */
    r->before = s.recipe;
    s.recipe = r->state.recipe;
    r->state = s;
    return checkpoint_load(dir, r->model, r->optim, e);
}

static bool is_damage(int rc)
{
    return rc == E_CORRUPT || rc == E_NOTFOUND || rc == E_IO;
}

/* Each rank reads and verifies what it needs. Where one finds damage, all take the checkpoint
 * before: what was loaded of this one is written over. */
static int resume_training(struct run *r, struct err *e)
{
    bool chosen = strcmp(r->o->resume, "auto") == 0;
    double damaged;
    int rc;

    while (true) {
        struct err why = {0};

        rc = resume_from(r, r->resumed, &why);
        if (rc != 0 && !is_damage(rc)) {
            return err_set(e, rc, "%s", why.text);
        }
        damaged = rc != 0;
        zero_settle(r->model);
        if (r->comm->size > 1 && sum_of_ranks(r, r->model->ks, &damaged, e) != 0) {
            return e->code;
        }
        if (damaged == 0) {
            break;
        }
        if (rc != 0) {
            log_warn("checkpoint.damaged", "%s", why.text);
        }
        if (!chosen) {
            return rc != 0 ? err_set(e, rc, "%s", why.text)
                           : err_set(e, E_CORRUPT, "%s: another rank found the checkpoint damaged",
                                     r->resumed);
        }
        rc = choose_checkpoint(r, r->model->ks, r->resumed_step, e);
        if (rc == 0 && r->resumed == NULL) {
            rc = err_set(e, E_CORRUPT, "%s: every checkpoint is damaged", r->o->out);
        }
        if (rc != 0) {
            return rc;
        }
    }
    if (r->o->deterministic) {
        rc = products_load(r->model, r->resumed, &r->products, e);
    }
    optim_refresh(r->optim, r->state.updates);
    return rc;
}

/* The first that has a tokenizer gives it; it must be the data's. */
static int find_companions(struct run *r, const char *model, struct err *e)
{
    char *folder = data_folder(r->data);
    const char *from[] = {r->o->tokenizer, model, folder};
    struct companions *c = &r->companions;
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < ARRAY_LEN(from); i++) {
        bool had = companions_have(c, COMPANION_TOKENIZER);

        if (from[i] == NULL || (from[i] == folder && had)) {
            continue;
        }
        rc = companions_add(c, from[i], e);
        if (rc == 0 && !had && companions_have(c, COMPANION_TOKENIZER)) {
            rc = setup_same_tokenizer(from[i], r->data, e);
        }
        if (rc == 0 && c->count == 0 && from[i] == r->o->tokenizer) {
            rc = err_set(e, E_NOTFOUND, "%s: the folder has no " COMPANION_TOKENIZER, from[i]);
        }
    }
    free(folder);
    return rc;
}

static int open_metrics(struct run *r, const char *resumed, struct err *e)
{
    struct metrics_about about = {.resumed_step = r->state.step,
                                  .log_every = r->o->log_every,
                                  .token_flops =
                                      flops_of_token(&r->config, &r->model->layout, r->seq)};
    struct flops_peak peak = {0};
    int rc = 0;

    /* What a CPU could do depends on who else uses it: no figure worth showing. */
    if (strcmp(r->k->name, "cpu") != 0) {
        rc = flops_peak(r->k, r->model->ks, r->model->dt, &peak, e);
    }
    if (rc != 0) {
        return rc;
    }
    about.peak_flops = peak.per_s * r->comm->size;
    about.memory_bytes = model_memory_total(&r->model->taken);
    rc = metrics_open(r->o->out, &about, &r->metrics, e);
    if (rc == 0) {
        char cut[40] = "";

        if (r->tp != NULL) {
            snprintf(cut, sizeof cut, ", each model divided among %d", r->tp->size);
        }
        metrics_say(r->metrics, "%s: %s of %.2f M parameters in %s on %s, %d rank%s, %s%s",
                    resumed == NULL ? "new run" : resumed, config_family(&r->config),
                    (double)r->model->layout.parameters / 1e6, r->o->dtype, r->k->device,
                    r->comm->size, r->comm->size == 1 ? "" : "s", r->comm->name, cut);
    }
    if (rc == 0 && peak.per_s > 0) {
        metrics_say(r->metrics, "mfu is relative to %.4g TFLOP/s per rank, %s", peak.per_s / 1e12,
                    peak.measured ? "as measured" : "from the data sheet");
    }
    return rc;
}

/* The options of a resumed run may differ from those that its checkpoint was made with. */
static void say_changes(const struct run *r)
{
    const struct train_state *s = &r->state;
    const struct recipe_place at = {.step = s->step,
                                    .updates = s->updates,
                                    .samples = s->samples,
                                    .windows = s->windows,
                                    .tokens = s->tokens,
                                    .seq = s->seq};
    struct buf text = BUF_INIT(4096);

    recipe_changes(&r->before, &s->recipe, &at, &text);
    if (text.n > 0) {
        metrics_say(r->metrics, SLICE_FMT, SLICE_ARG(buf_slice(&text)));
    }
    buf_free(&text);
}

/* When gradients are compressed, and what that saves. */
static void say_compression(const struct run *r, bool resumed)
{
    const struct model *m = r->model;
    int64_t start = m->o.compress.start;
    char plain[UNITS_TEXT], compressed[UNITS_TEXT];

    size_format((uint64_t)zero_gradient_bytes(m, false), plain);
    size_format((uint64_t)zero_gradient_bytes(m, true), compressed);
    if (m->powersgd == NULL) {
        metrics_say(r->metrics, "--compress has no effect: a single rank sends no gradients");
    } else if (start >= r->o->steps) {
        metrics_say(
            r->metrics,
            "--compress has no effect: it starts after step %lld, but --steps is %lld; start it "
            "sooner with --compress-start",
            (long long)start, (long long)r->o->steps);
    } else {
        metrics_say(
            r->metrics,
            "gradients are compressed from step %lld on: each rank sends %s per step instead of %s",
            (long long)start + 1, compressed, plain);
    }
    if (m->powersgd != NULL && resumed && r->state.step > start && !powersgd_resumed(m)) {
        metrics_say(
            r->metrics,
            "the accumulated compression error is dropped: the checkpoint's applies only to the "
            "same number of ranks and the same --compress");
    }
}

/* The first rank speaks for all; each writes its share of the checkpoints. */
static int open_outputs(struct run *r, struct err *e)
{
    const struct saver_options so = {.out = r->o->out,
                                     .attempt = r->attempt,
                                     .keep = r->o->keep,
                                     .comm = r->comm,
                                     .host_ranks = r->ranks.local_world,
                                     .patience_ms = LONG_WAIT * (uint64_t)r->o->comm_timeout * 1000,
                                     .resumed_step = r->state.step,
                                     .companions = &r->companions,
                                     .products = r->o->deterministic};
    const char *from = r->resumed != NULL ? r->resumed : r->o->model;
    int rc = r->comm->rank == 0 ? find_companions(r, from, e) : 0;

    rc = rc != 0 ? rc : saver_open(&so, r->model, r->optim, &r->saver, e);
    if (rc != 0 || r->comm->rank != 0) {
        return rc;
    }
    rc = open_metrics(r, r->resumed, e);
    if (rc == 0) {
        say_changes(r);
    }
    if (rc == 0 && strcmp(r->o->compress, "none") != 0) {
        say_compression(r, r->resumed != NULL);
    }
    if (rc == 0 && r->resumed != NULL && r->model->powersgd == NULL &&
        powersgd_is_saved(r->resumed)) {
        metrics_say(
            r->metrics,
            "the accumulated compression error is dropped: gradients are no longer compressed");
    }
    return rc;
}

/* --- ranks that begin alike ------------------------------------------------------------------- */

/* A rank that begins otherwise would train beside the others, and nobody could tell from the loss;
 * or they would wait for each other in different collectives. */
static int agree_on(struct run *r, struct kstream *ks, const struct buf *text, int64_t step,
                    struct err *e)
{
    struct digest d;
    double mine, first, others;
    int rc;

    digest_of(buf_slice(text), &d);
    mine = (double)le_get(d.b, 3); /* exact, also in sums */
    first = r->comm->rank == 0 ? mine : 0;
    rc = sum_of_ranks(r, ks, &first, e);
    others = first != mine;
    rc = rc != 0 ? rc : sum_of_ranks(r, ks, &others, e);
    if (rc == 0 && others != 0) {
        rc = err_set(
            e, E_CONFIG,
            "%.0f of %d ranks do not start in the state of rank 0 (this one is at step %lld); "
            "give all ranks the same options and data, and an --out that all can access",
            others, r->comm->size, (long long)step);
    }
    return rc;
}

enum { DRAWN_BITS = 11 }; /* beside the 42 of milliseconds: a double has 53 */

/* The first rank says it: launchers count, if at all, from 1 again when they are started again. By
 * the clock, so that later ones are greater, and by chance where clocks go back. */
static int agree_on_attempt(struct run *r, struct kstream *ks, struct err *e)
{
    uint16_t drawn;
    double number;
    int rc = 0;

    if (getrandom(&drawn, sizeof drawn, 0) != sizeof drawn) {
        return err_sys(e, "getrandom");
    }
    number = r->comm->rank == 0
                 ? (double)(clock_unix_ms() << DRAWN_BITS | drawn % (1 << DRAWN_BITS))
                 : 0; /* exact, also in sums */
    rc = r->comm->size > 1 ? sum_of_ranks(r, ks, &number, e) : 0;
    r->attempt = (uint64_t)number;
    return rc;
}

/* Before the first collective that an option could change. */
static int agree_on_options(struct run *r, struct kstream *ks, int64_t step, struct err *e)
{
    const struct options *o = r->o;
    struct buf text = BUF_INIT(1 << 16);
    int rc;

    buf_addf(&text, "%lld %lld %lld %d %s %s %lld %lld %lld %lld %.17g %.17g %d",
             (long long)o->zero, (long long)o->shard_group, (long long)o->tp, o->deterministic,
             o->dtype, o->recompute, (long long)o->batch, (long long)o->accum, (long long)r->seq,
             (long long)step, o->skip_loss, o->skip_norm, r->val != NULL);
    buf_addf(&text, " %s %lld %s", o->compress, (long long)o->compress_start, o->reduce_dtype);
    rc = r->comm->size == 1 ? 0 : agree_on(r, ks, &text, step, e);
    buf_free(&text);
    return rc;
}

/* The shape, the rest of the options, the data and the place in them. */
static int agree_on_start(struct run *r, struct err *e)
{
    const struct options *o = r->o;
    const struct schedule *s = &r->optim->o.schedule;
    struct buf text = BUF_INIT(1 << 20);
    struct digest d = {{0}};
    int rc;

    if (r->val != NULL) {
        data_identity(r->val, &d);
        buf_addf(&text, "%lld %lld ", (long long)o->val_every, (long long)o->val_batches);
        buf_add(&text, d.b, DIGEST_BYTES);
    }
    config_format(&r->config, &text);
    state_format(&r->state, &text);
    buf_addf(&text, "%lld %lld %.17g %.17g %.17g %.17g %.17g %.17g %.17g %lld %lld",
             (long long)o->save_every, (long long)o->stop_at, s->lr, s->min_lr, o->beta1, o->beta2,
             o->eps, o->weight_decay, o->clip, (long long)s->warmup, (long long)s->steps);
    zero_settle(r->model);
    rc = r->comm->size == 1 ? 0 : agree_on(r, r->model->ks, &text, r->state.step, e);
    buf_free(&text);
    return rc;
}

/* --- opening ---------------------------------------------------------------------------------- */

/* For what the ranks tell each other before there is a model. */
static int open_shared(struct run *r, struct kstream **ks, struct err *e)
{
    int rc = r->k->mem_alloc(&r->shared, SHARED_COUNT * sizeof(double));

    rc = rc != 0 ? rc : r->k->stream_open(ks);
    if (rc != 0) {
        return err_set(e, rc, "%s: not enough memory for the exchange between the ranks: %s",
                       r->k->name, r->k->fault());
    }
    comm_watch(r->comm, r->k, *ks);
    return 0;
}

/* A run goes on in the type that it began with. */
static int choose_dtype(struct run *r, int64_t *step, struct err *e)
{
    struct train_state s = {0};
    int rc = r->resumed != NULL ? checkpoint_state(r->resumed, &s, e) : 0;

    *step = s.step;
    if (rc == 0) {
        setup_dtype(r->o, r->k, s.dtype, r->comm->rank == 0);
    }
    return rc;
}

int run_open(struct run *r, struct err *e)
{
    struct kstream *ks = NULL;
    int64_t step = 0;
    int rc = open_shared(r, &ks, e);

    rc = rc != 0 ? rc : hold_out(r, e); /* another run could remove the checkpoint that is chosen */
    rc = rc != 0 ? rc : find_resume(r, ks, e);
    rc = rc != 0 ? rc : choose_dtype(r, &step, e);
    rc = rc != 0 ? rc : find_config(r, e);
    if (rc == 0) {
        r->seq = setup_seq(r->o, &r->config);
        rc = open_data(r, e);
    }
    rc = rc != 0 ? rc : make_out(r, e); /* before anything takes long */
    rc = rc != 0 ? rc : agree_on_attempt(r, ks, e);
    rc = rc != 0 ? rc : agree_on_options(r, ks, step, e);
    if (rc == 0 || r->comm->size == 1) {
        r->k->stream_close(&ks); /* else it stays: a collective on it may never end */
    }
    rc = rc != 0 ? rc : open_tp(r, e);
    rc = rc != 0 ? rc : open_shards(r, e);
    rc = rc != 0 ? rc : open_model(r, r->resumed != NULL, e);
    if (rc == 0) {
        begin_training_run(r);
        rc = r->resumed != NULL ? resume_training(r, e) : 0;
    }
    r->saved_step = r->state.step;
    rc = rc != 0 ? rc : agree_on_start(r, e);
    if (rc == 0 && r->model->powersgd != NULL) { /* else copies would differ by what is rounded */
        rc = products_share(r->model, r->comm, e);
    }
    rc = rc != 0 ? rc : open_loader(r, e);
    return rc != 0 ? rc : open_outputs(r, e);
}

void run_close(struct run *r)
{
    loader_close(&r->loader);
    saver_close(&r->saver);
    metrics_close(&r->metrics);
    companions_free(&r->companions);
    optim_close(&r->optim);
    if (r->shared != NULL) {
        r->k->mem_free(r->shared);
    }
    model_close(&r->model);
    data_close(&r->data);
    data_close(&r->val);
    buf_free(&r->products);
    free(r->resumed);
    watchdog_close(&r->watchdog);
    comm_close(&r->replicas);
    comm_close(&r->shards);
    comm_close(&r->same_part);
    comm_close(&r->tp);
    comm_close(&r->comm);
    if (r->out_fd != -1) {
        close(r->out_fd);
    }
}
