#include <limits.h>
#include <stdio.h>
#include <unistd.h>

#include "agent/train/checkpoint.h"
#include "agent/train/powersgd.h"
#include "agent/train/tokenizer.h"
#include "agent/train/verbs.h"
#include "agent/train/weights.h"
#include "agent/train/zero.h"
#include "common/base/log.h"
#include "common/codec/units.h"

enum { USUAL_SEQ = 1024, COMPRESS_START = 1000 };
/* A matrix whose factors are half as large is not worth the products. */
#define COMPRESS_GAIN 2

int setup_at_least(const char *name, int64_t value, int64_t least, struct err *e)
{
    return value >= least ? 0
                          : err_set(e, E_USAGE, "--%s %lld is too small; give at least %lld", name,
                                    (long long)value, (long long)least);
}

int setup_within(const char *name, double value, double low, double high, struct err *e)
{
    return value >= low && value < high
               ? 0
               : err_set(e, E_USAGE, "--%s %g is out of range; give at least %g and less than %g",
                         name, value, low, high);
}

int setup_zero(const struct options *o, struct err *e)
{
    return o->zero >= 0 && o->zero < ZERO_STAGES
               ? 0
               : err_set(e, E_USAGE, "--zero %lld is invalid; give 0, 1, 2 or 3",
                         (long long)o->zero);
}

/* As far as the system's own files tell. */
static bool gpu_is_there(void)
{
    return access("/dev/nvidiactl", F_OK) == 0 || access("/dev/dxg", F_OK) == 0;
}

int setup_device(const struct options *o, int local_rank, const struct kops **out, struct err *e)
{
    struct err why = {0};

    *out = NULL;
    if (strcmp(o->device, "cpu") == 0) {
        *out = kops_cpu();
        return 0;
    }
    if (strcmp(o->device, "auto") != 0 && strcmp(o->device, "cuda") != 0) {
        return err_set(e, E_USAGE, "--device %.20s is invalid; give auto, cuda or cpu", o->device);
    }
    *out = kops_cuda(local_rank, &why);
    if (*out == NULL && why.code == E_SICK) {
        return err_set(e, E_SICK, "--device %s: %s", o->device, why.text);
    }
    if (*out == NULL && strcmp(o->device, "cuda") == 0) {
        return err_set(e, E_UNSUPPORTED, "--device cuda: %s", why.text);
    }
    if (*out == NULL) {
        *out = kops_cpu();
        if (gpu_is_there()) { /* nobody wants to learn that a day later */
            log_warn("device.cpu", "training runs on the CPU, although there is a GPU: %s",
                     why.text);
        } else {
            log_debug("device.cpu", "%s", why.text);
        }
    }
    return 0;
}

int setup_find_model(struct options *o, char **newest, struct err *e)
{
    char path[PATH_MAX];
    int rc;

    *newest = NULL;
    if (o->model == NULL) {
        return 0;
    }
    snprintf(path, sizeof path, "%s/config.json", o->model);
    if (access(path, F_OK) == 0 || checkpoint_count(o->model) == 0) {
        return 0;
    }
    rc = checkpoint_newest(o->model, newest, e);
    if (rc == 0) {
        o->model = *newest;
        log_info("model.newest", "path=%s", *newest);
    }
    return rc;
}

int setup_config(const struct options *o, struct model_config *out, struct err *e)
{
    char path[PATH_MAX];
    int rc;

    if (o->model != NULL && o->config != NULL) {
        return err_set(e, E_USAGE, "--model has its own configuration; leave out --config");
    }
    if (o->model != NULL) {
        snprintf(path, sizeof path, "%s/config.json", o->model);
        return config_load(path, out, e);
    }
    if (o->config == NULL) {
        return err_set(e, E_USAGE, "give --config or --model");
    }
    rc = config_builtin(o->config, out, e);
    return rc == E_NOTFOUND && strchr(o->config, '.') != NULL ? config_load(o->config, out, e) : rc;
}

int64_t setup_seq(const struct options *o, const struct model_config *c)
{
    return o->seq != 0 ? o->seq : c->context < USUAL_SEQ ? c->context : USUAL_SEQ;
}

int setup_same_tokenizer(const char *path, const struct data *d, struct err *e)
{
    struct tokenizer *t = NULL;
    struct err why = {0};
    int rc = 0;

    if (digest_is_zero(data_tokenizer(d))) {
        return 0;
    }
    rc = tokenizer_open(path, &t, &why);
    if (rc != 0) { /* another kind than ours: the weights can be trained all the same */
        if (rc != E_NOTFOUND) {
            log_warn("tokenizer.unknown", "%s", why.text);
        }
        return 0;
    }
    if (!digest_eq(tokenizer_identity(t), data_tokenizer(d))) {
        rc =
            err_set(e, E_INVALID, "the data was made with another tokenizer than that of %s", path);
    }
    tokenizer_close(&t);
    return rc;
}

/* The largest batch for which `other` bytes beside its activations still fit; 0: none. */
static int64_t largest_batch(struct model *m, const struct setup *s, size_t other, size_t room)
{
    int64_t fits = 0, not = s->batch;

    while (not -fits > 1) {
        int64_t mid = fits + (not -fits) / 2;

        if (other + model_activations_bytes(m, mid, s->seq) <= room) {
            fits = mid;
        } else {
            not = mid;
        }
    }
    return fits;
}

static void tell_memory(const struct model *m, const struct model_memory *p, size_t room)
{
    char weights[UNITS_TEXT], gradients[UNITS_TEXT], optimizer[UNITS_TEXT];
    char activations[UNITS_TEXT], total[UNITS_TEXT], all[UNITS_TEXT];

    size_format(p->weights_bytes, weights);
    size_format(p->gradients_bytes, gradients);
    size_format(p->optimizer_bytes, optimizer);
    size_format(p->activations_bytes, activations);
    size_format(model_memory_total(p), total);
    size_format(room, all);
    fprintf(stderr,
            "memory on %s: weights %s, gradients %s, optimiser %s, activations %s: %s of %s free\n",
            m->k->device, weights, gradients, optimizer, activations, total, all);
}

/* What helps where not even one sequence fits. */
static int refuse_one(struct model *m, const struct setup *s, const char *left, size_t other,
                      size_t room, struct err *e)
{
    size_t one = model_activations_bytes(m, 1, s->seq);
    char fixed[UNITS_TEXT], more[UNITS_TEXT];

    size_format(other, fixed);
    size_format(one, more);
    if (other >= room) {
        return err_set(
            e, E_NOSPACE, "%s are free on %s, but weights%s alone need %s%s", left, m->k->device,
            s->training ? ", gradients and optimiser" : "", fixed,
            s->training
                ? "; use more ranks with --zero or --tp (`trainer info --ranks N` shows the "
                  "memory of each)"
                : "");
    }
    return err_set(
        e, E_NOSPACE,
        "%s are free on %s, but besides %s, not even one sequence of %lld tokens fits (%s); use "
        "a shorter --seq%s",
        left, m->k->device, fixed, (long long)s->seq, more,
        s->training && m->o.recompute == 0 ? " or --recompute block" : "");
}

static int refuse_model_size(struct model *m, const struct setup *s, const struct model_memory *p,
                             size_t room, struct err *e)
{
    size_t all = model_memory_total(p), other = all - p->activations_bytes;
    int64_t fits = largest_batch(m, s, other, room);
    char total[UNITS_TEXT], left[UNITS_TEXT];

    size_format(all, total);
    size_format(room, left);
    if (fits == 0) {
        return refuse_one(m, s, left, other, room, e);
    }
    return err_set(e, E_NOSPACE, "%s are needed, but %s are free on %s; use --batch %lld%s", total,
                   left, m->k->device, (long long)fits,
                   s->training && m->o.recompute == 0 ? " or --recompute block" : "");
}

static int check_memory(struct model *m, const struct setup *s, struct err *e)
{
    struct model_memory p;
    size_t room, total;
    int rc = model_plan(m, s->batch, s->seq, &p, e);

    if (rc != 0) {
        return rc;
    }
    total = model_memory_total(&p);
    rc = m->k->mem_room(&room);
    if (rc != 0) {
        return err_set(e, rc, "%s: the amount of free memory could not be read", m->k->device);
    }
    if (s->tell) {
        tell_memory(m, &p, room);
    }
    if (s->tell) {
        log_info("attention.by", "kernel=\"%s\" order=%s scratch_bytes=%zu", m->attention.by,
                 m->o.any_order ? "any" : "fixed", m->attention.scratch_bytes);
    }
    return total <= room ? 0 : refuse_model_size(m, s, &p, room, e);
}

static int parse_recompute(const char *text, int64_t *out, struct err *e)
{
    uint64_t k = 0;

    if (strcmp(text, "block") == 0) {
        k = 1;
    } else if (strcmp(text, "none") != 0 && (!slice_u64(slice_str(text), &k) || k == 0)) {
        return err_set(e, E_USAGE,
                       "--recompute %.20s is invalid; give none, block or a number of blocks",
                       text);
    }
    *out = k < INT32_MAX ? (int64_t)k : INT32_MAX;
    return 0;
}

static int parse_reduce(const struct options *o, bool *narrow, struct err *e)
{
    *narrow = strcmp(o->reduce_dtype, "bf16") == 0;
    if (!*narrow && strcmp(o->reduce_dtype, "f32") != 0) {
        return err_set(e, E_USAGE, "--reduce-dtype %.20s is invalid; give f32 or bf16",
                       o->reduce_dtype);
    }
    return *narrow && strcmp(o->compress, "none") != 0
               ? err_set(
                     e, E_USAGE,
                     "--reduce-dtype bf16 cannot be combined with --compress, which sums in f32")
               : 0;
}

int setup_compress(const struct options *o, int64_t *rank, struct err *e)
{
    struct slice text = slice_str(o->compress);
    uint64_t r = 0;

    *rank = 0;
    if (slice_eqs(text, "none")) {
        return o->compress_start < 0
                   ? 0
                   : err_set(e, E_USAGE, "--compress-start needs --compress powersgd:RANK");
    }
    if (!slice_starts(text, SLICE("powersgd:")) ||
        !slice_u64(slice_from(text, strlen("powersgd:")), &r) || r < 1 || r > POWERSGD_RANK_MAX) {
        return err_set(
            e, E_USAGE,
            "--compress %.30s is invalid; give none or powersgd:RANK with a rank from 1 to %d",
            o->compress, POWERSGD_RANK_MAX);
    }
    if (o->zero >= 2) {
        return err_set(
            e, E_USAGE,
            "--compress needs whole gradients on each rank, but --zero %lld divides them; use "
            "--zero 0 or 1",
            (long long)o->zero);
    }
    if (o->tp > 1) {
        return err_set(
            e, E_USAGE,
            "--compress needs whole matrices on each rank, but --tp %lld divides them; leave out "
            "--tp",
            (long long)o->tp);
    }
    if (o->shard_group != 0) {
        return err_set(
            e, E_USAGE,
            "--compress cannot be combined with groups of ranks; leave out --shard-group");
    }
    *rank = (int64_t)r;
    return 0;
}

int64_t setup_compress_start(const struct options *o, const struct schedule *s)
{
    int64_t start = s->steps / 10;

    start = start < COMPRESS_START ? COMPRESS_START : start;
    start = start < s->warmup ? s->warmup : start;
    return o->compress_start >= 0 ? o->compress_start : start;
}

static const struct dtype_name {
    const char *name;
    enum dtype dt;
} dtypes[] = {{"f32", DT_F32}, {"bf16", DT_BF16}, {"fp16", DT_F16}};

static const struct dtype_name *find_dtype(const char *text)
{
    for (size_t i = 0; i < ARRAY_LEN(dtypes); i++) {
        if (strcmp(text, dtypes[i].name) == 0) {
            return &dtypes[i];
        }
    }
    return NULL;
}

static int parse_dtype(const char *text, enum dtype *out, struct err *e)
{
    const struct dtype_name *found = find_dtype(text);

    if (found == NULL) {
        return err_set(e, E_USAGE, "--dtype %.20s is invalid; give auto, f32, bf16 or fp16", text);
    }
    *out = found->dt;
    return 0;
}

void setup_dtype(struct options *o, const struct kops *k, const char *before, bool tell)
{
    const struct dtype_name *found = find_dtype(before);

    if (strcmp(o->dtype, "auto") != 0) {
        return;
    }
    o->dtype = found != NULL ? found->name : k->bf16 ? "bf16" : "f32";
    if (tell && strcmp(o->dtype, "f32") != 0) {
        log_info("dtype.auto", "dtype=%s device=\"%s\"%s", o->dtype, k->device,
                 found != NULL ? " as in the checkpoint" : "");
    }
}

/* Where there are masters they are filled, and the narrow parameters made of them. */
static int fill_model(const struct options *o, struct model *m, struct err *e)
{
    bool masters = m->master != m->param;
    const struct weights_part param = {"", m->master, m->master_held, masters ? m->accum : m->dt};
    int rc = o->model != NULL ? weights_load(m, &param, 1, o->model, "model", NULL, e)
                              : model_init(m, (uint64_t)o->seed, e);

    if (rc == 0) {
        model_refresh(m, NULL);
    }
    return rc;
}

int setup_open(const struct options *o, const struct model_config *c, const struct kops *k,
               const struct setup *s, struct model **out, struct err *e)
{
    int world = s->comm != NULL ? s->comm->size : s->world;
    /* A group of one has nothing to share out. */
    bool shares = s->training && world > 1 && o->shard_group != 1;
    struct model_options mo = {.world = world,
                               .rank = s->comm != NULL ? s->comm->rank : 0,
                               .comm = s->comm,
                               .replicas = s->replicas,
                               .groups = s->replicas != NULL ? s->replicas->size : s->groups,
                               .all = s->all,
                               .tp = s->training ? (int)o->tp : 1,
                               .tp_rank = s->tp != NULL ? s->tp->rank : 0,
                               .tp_comm = s->tp,
                               .zero = shares ? (int)o->zero : 0,
                               .ordered = o->deterministic,
                               .compress = {.start = s->compress_start, .gain = COMPRESS_GAIN},
                               .passes = s->passes,
                               .training = s->training,
                               .caching = s->caching,
                               .any_order = !o->deterministic};
    int rc = parse_recompute(o->recompute, &mo.recompute, e);

    *out = NULL;
    rc = rc != 0 ? rc : setup_compress(o, &mo.compress.rank, e);
    rc = rc != 0 ? rc : parse_reduce(o, &mo.narrow_sums, e);
    mo.narrow_sums = mo.narrow_sums && s->training && world > 1;
    mo.compress.rank = s->training ? mo.compress.rank : 0;
    rc = rc != 0 ? rc : parse_dtype(o->dtype, &mo.dt, e);
    return rc != 0 ? rc : model_open(c, k, &mo, out, e);
}

int setup_model(const struct options *o, const struct model_config *c, const struct kops *k,
                const struct setup *s, struct model **out, struct err *e)
{
    int rc = setup_open(o, c, k, s, out, e);

    if (rc == 0 && s->all != NULL) {
        (*out)->flight = s->all->flight;
        comm_watch(s->all, k, (*out)->ks);
    }
    rc = rc != 0 ? rc : check_memory(*out, s, e);
    rc = rc != 0 ? rc : model_reserve(*out, s->batch, s->seq, e);
    rc = rc != 0 || s->blank ? rc : fill_model(o, *out, e);
    if (rc != 0) {
        model_close(out);
    }
    return rc;
}
