/* trainer info - what a shape, a checkpoint, a folder from the Hub or a token shard is: its size,
 * its tensors beside what the configuration asks for, the memory that it takes; digests are
 * checked. */
#include <glob.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/train/checkpoint.h"
#include "agent/train/inventory.h"
#include "agent/train/saver.h"
#include "agent/train/shard.h"
#include "agent/train/verbs.h"
#include "agent/train/zero.h"
#include "common/codec/jwrite.h"
#include "common/codec/units.h"

enum { JSON_MAX_BYTES = 256 << 20, RANKS_MAX = 1 << 16 };

/* --- a model ---------------------------------------------------------------------------------- */

/* What there is to say of one. */
struct about {
    struct options *o;
    struct model_config config;
    struct layout layout;
    bool ours; /* a checkpoint, verified: `state` is its */
    struct train_state state;
    const char *newest;        /* the checkpoint that was found in a run's folder; NULL */
    struct inventory *tensors; /* NULL: no weights beside the configuration */
    const struct kops *k;
    int64_t seq;
    struct model_memory train, run;
    double sent_plain,
        sent_compressed; /* bytes of gradients that a rank sends in a step; 0: it is alone */
    int64_t most_train, most_run; /* batches that fit; 0: none */
    size_t room;                  /* on the device */
    int groups;                   /* of ranks that share out a model each */
    struct kops gpu;              /* with --memory: what plans for one that is not here */
    uint64_t host_bytes;          /* of a rank's share of a checkpoint */
};

static void json_config(const struct about *a, struct buf *out)
{
    const struct model_config *c = &a->config;

    jwrite_str(out, "model_type", config_family(c));
    jwrite_u64(out, "parameters", a->layout.parameters);
    jwrite_u64(out, "layers", c->layers);
    jwrite_u64(out, "heads", c->heads);
    jwrite_u64(out, "kv_heads", c->kv_heads);
    jwrite_u64(out, "head_dim", c->head_dim);
    jwrite_u64(out, "hidden", c->hidden);
    jwrite_u64(out, "ffn", c->ffn);
    jwrite_u64(out, "vocab", c->vocab);
    jwrite_u64(out, "context", c->context);
}

static void json_memory(struct buf *out, const char *key, const struct model_memory *m)
{
    jwrite_open(out, key, '{');
    jwrite_u64(out, "weights", m->weights_bytes);
    jwrite_u64(out, "gradients", m->gradients_bytes);
    jwrite_u64(out, "optimizer", m->optimizer_bytes);
    jwrite_u64(out, "activations", m->activations_bytes);
    jwrite_u64(out, "total", model_memory_total(m));
    jwrite_close(out, '}');
}

static void json_plan(const struct about *a, struct buf *out)
{
    jwrite_open(out, "memory", '{');
    jwrite_str(out, "device", a->k->device);
    jwrite_str(out, "dtype", a->o->dtype);
    jwrite_u64(out, "batch", a->o->batch);
    jwrite_u64(out, "seq", a->seq);
    jwrite_u64(out, "ranks", a->o->ranks);
    jwrite_u64(out, "zero", a->o->zero);
    jwrite_u64(out, "shard_group", a->o->shard_group);
    jwrite_u64(out, "tp", a->o->tp);
    json_memory(out, "train", &a->train);
    json_memory(out, "eval", &a->run);
    jwrite_u64(out, "checkpoint_host", a->host_bytes);
    jwrite_u64(out, "free", a->room);
    if (a->sent_plain > 0) {
        jwrite_open(out, "gradient_bytes", '{');
        jwrite_u64(out, "plain", (uint64_t)a->sent_plain);
        jwrite_u64(out, "compressed", (uint64_t)a->sent_compressed);
        jwrite_close(out, '}');
    }
    jwrite_open(out, "largest_batch", '{');
    jwrite_u64(out, "train", a->most_train);
    jwrite_u64(out, "eval", a->most_run);
    jwrite_close(out, '}');
    jwrite_close(out, '}');
}

/* The extents as the files have them: of a tensor that is missing, as they should be. */
static int extents(const struct inventory_row *r, uint64_t out[SAFETENSORS_MAX_RANK])
{
    if (r->found != NULL) {
        memcpy(out, r->found->shape, sizeof r->found->shape);
        return r->found->rank;
    }
    out[0] = (uint64_t)(r->want->transposed ? r->want->cols : r->want->rows);
    out[1] = (uint64_t)(r->want->transposed ? r->want->rows : r->want->cols);
    return r->want->matrix ? 2 : 1;
}

static struct slice name_of_info_row(const struct inventory_row *r)
{
    return r->found != NULL ? r->found->name : slice_str(r->want->name);
}

static void json_tensors(const struct inventory *v, struct buf *out)
{
    jwrite_open(out, "tensors", '[');
    for (size_t i = 0; i < v->rows; i++) {
        const struct inventory_row *r = &v->row[i];
        uint64_t shape[SAFETENSORS_MAX_RANK];
        int rank = extents(r, shape);

        jwrite_open(out, NULL, '{');
        jwrite_text(out, "name", name_of_info_row(r));
        if (r->found != NULL) {
            jwrite_str(out, "dtype", st_dtype_name(r->found->dtype));
        }
        jwrite_open(out, "shape", '[');
        for (int d = 0; d < rank; d++) {
            jwrite_u64(out, NULL, shape[d]);
        }
        jwrite_close(out, ']');
        jwrite_str(out, "is", inventory_verdict_name(r->verdict));
        jwrite_close(out, '}');
    }
    jwrite_close(out, ']');
}

static void print_info_json(const struct about *a)
{
    struct buf out = BUF_INIT(JSON_MAX_BYTES);

    jwrite_open(&out, NULL, '{');
    json_config(a, &out);
    if (a->ours) {
        jwrite_u64(&out, "step", a->state.step);
        jwrite_u64(&out, "tokens", a->state.tokens);
    }
    if (a->newest != NULL) {
        jwrite_str(&out, "checkpoint", a->newest);
    }
    jwrite_bool(&out, "verified", a->ours);
    json_plan(a, &out);
    if (a->tensors != NULL) {
        json_tensors(a->tensors, &out);
    }
    jwrite_close(&out, '}');
    printf("%s\n", buf_cstr(&out));
    buf_free(&out);
}

static void print_tensor(const struct inventory_row *r)
{
    uint64_t shape[SAFETENSORS_MAX_RANK];
    int rank = extents(r, shape);

    printf("  " SLICE_FMT, SLICE_ARG(name_of_info_row(r)));
    for (int d = 0; d < rank; d++) {
        printf("%s%llu", d == 0 ? " [" : ", ", (unsigned long long)shape[d]);
    }
    printf("%s%s%s%s%s\n", rank == 0 ? "" : "]", r->found != NULL ? " " : "",
           r->found != NULL ? st_dtype_name(r->found->dtype) : "",
           r->verdict == INVENTORY_FITS ? "" : " ",
           r->verdict == INVENTORY_FITS ? "" : inventory_verdict_name(r->verdict));
}

/* Every one, or those that do not fit. */
static void print_tensors(const struct about *a)
{
    const struct inventory *v = a->tensors;
    size_t wrong = v->rows - v->count[INVENTORY_FITS];

    printf("%zu tensors in %zu file%s", v->rows - v->count[INVENTORY_MISSING],
           tensorset_files(v->set), tensorset_files(v->set) == 1 ? "" : "s");
    for (int i = INVENTORY_MISSING; i < INVENTORY_VERDICTS; i++) {
        if (v->count[i] > 0) {
            printf(", %zu %s", v->count[i], inventory_verdict_name((enum inventory_verdict)i));
        }
    }
    printf("%s\n", wrong == 0 ? ", all as in the configuration" : ":");
    for (size_t i = 0; i < v->rows; i++) {
        if (a->o->tensors || v->row[i].verdict != INVENTORY_FITS) {
            print_tensor(&v->row[i]);
        }
    }
}

static void print_memory(const char *what, const struct model_memory *m)
{
    char weights[UNITS_TEXT], gradients[UNITS_TEXT], optimizer[UNITS_TEXT];
    char activations[UNITS_TEXT], total[UNITS_TEXT];

    size_format(m->weights_bytes, weights);
    size_format(m->gradients_bytes, gradients);
    size_format(m->optimizer_bytes, optimizer);
    size_format(m->activations_bytes, activations);
    size_format(model_memory_total(m), total);
    printf("  %-6s %10s: weights %s, gradients %s, optimiser %s, activations %s\n", what, total,
           weights, gradients, optimizer, activations);
}

static void print_sent(const struct about *a)
{
    char plain[UNITS_TEXT], compressed[UNITS_TEXT];

    size_format((uint64_t)a->sent_plain, plain);
    size_format((uint64_t)a->sent_compressed, compressed);
    if (a->sent_plain > a->sent_compressed) {
        printf("each rank sends %s of gradients per step, %s once --compress has started\n", plain,
               compressed);
    } else if (a->sent_plain > 0) {
        printf("each rank sends %s of gradients per step\n", plain);
    }
}

/* As setup_open() has it: a group of one rank has nothing to share out. */
static int64_t zero_stage(const struct about *a)
{
    const struct options *o = a->o;

    return o->ranks / o->tp / a->groups > 1 && o->shard_group != 1 ? o->zero : 0;
}

static void print_plan(const struct about *a)
{
    char room[UNITS_TEXT], host[UNITS_TEXT], ranks[120] = "", tp[40] = "", groups[40] = "";

    if (a->o->tp > 1) {
        snprintf(tp, sizeof tp, " and --tp %lld", (long long)a->o->tp);
    }
    if (a->groups > 1) {
        snprintf(groups, sizeof groups, " in %d groups", a->groups);
    }
    if (a->o->ranks > 1) {
        snprintf(ranks, sizeof ranks, " of each of %lld ranks with --zero %lld%s%s",
                 (long long)a->o->ranks, (long long)zero_stage(a), groups, tp);
    }
    printf("memory%s at %lld x %lld tokens in %s on %s:\n", ranks, (long long)a->o->batch,
           (long long)a->seq, a->o->dtype, a->k->device);
    if (zero_stage(a) != a->o->zero) {
        printf("--zero %lld has no effect %s\n", (long long)a->o->zero,
               a->o->ranks <= 1
                   ? "with one rank; give --ranks"
                   : "in groups of one rank; give more --ranks or leave out --shard-group");
    }
    print_memory("train", &a->train);
    print_memory("eval", &a->run);
    print_sent(a);
    size_format(a->host_bytes, host);
    printf("  host   %10s: a rank's share of a checkpoint, copied before it is written\n", host);
    size_format(a->room, room);
    printf("largest batch in %s of free memory: train %lld, eval %lld\n", room,
           (long long)a->most_train, (long long)a->most_run);
}

static void print_text(const struct about *a)
{
    const struct model_config *c = &a->config;

    printf("%s: %.2f M parameters, %lld layers, %lld heads of %lld", config_family(c),
           (double)a->layout.parameters / 1e6, (long long)c->layers, (long long)c->heads,
           (long long)c->head_dim);
    if (c->kv_heads != c->heads) {
        printf(" over %lld of keys", (long long)c->kv_heads);
    }
    printf(", width %lld, vocabulary %lld, context %lld\n", (long long)c->hidden,
           (long long)c->vocab, (long long)c->context);
    if (a->ours) {
        printf("after step %lld, %llu tokens; all files match the manifest\n",
               (long long)a->state.step, (unsigned long long)a->state.tokens);
    }
    if (a->tensors != NULL) {
        print_tensors(a);
    }
    print_plan(a);
}

/* --- finding it out --------------------------------------------------------------------------- */

static bool batch_fits_memory(const struct about *a, struct model *m, int64_t batch)
{
    struct model_memory p;

    return model_plan(m, batch, a->seq, &p, NULL) == 0 && model_memory_total(&p) <= a->room;
}

/* The largest batch that fits; 0: none does. */
static int64_t largest_batch(const struct about *a, struct model *m)
{
    int64_t most = 0, not = 1;

    while (not < INT32_MAX && batch_fits_memory(a, m, not )) {
        most = not ;
        not *= 2;
    }
    while (not -most > 1) {
        int64_t mid = most + (not -most) / 2;

        if (batch_fits_memory(a, m, mid)) {
            most = mid;
        } else {
            not = mid;
        }
    }
    return most;
}

static int plan_info_memory(struct about *a, bool training, struct model_memory *out, int64_t *most,
                            struct err *e)
{
    const struct setup s = {.world = training ? (int)(a->o->ranks / a->o->tp) / a->groups : 1,
                            .groups = training ? a->groups : 1,
                            .passes = a->o->accum,
                            .training = training};
    struct model *m = NULL;
    int rc = setup_open(a->o, &a->config, a->k, &s, &m, e);

    rc = rc != 0 ? rc : model_plan(m, a->o->batch, a->seq, out, e);
    if (rc == 0 && training) {
        a->host_bytes = saver_share_bytes(&m->layout, (int)a->o->ranks);
    }
    *most = rc == 0 ? largest_batch(a, m) : 0;
    if (rc == 0 && training) {
        a->sent_plain = zero_gradient_bytes(m, false);
        a->sent_compressed = zero_gradient_bytes(m, true);
    }
    model_close(&m);
    return rc;
}

/* As cuDNN's backward pass takes it, which adds up in any order; otherwise our own kernels take
 * next to nothing. */
static int prepare_gpu_attention(struct kstream *ks, enum dtype dt, const struct attention_shape *s,
                                 bool for_training, struct attention_ready *out)
{
    int rc = kops_cpu()->attention_prepare(ks, dt, s, for_training, out);
    int64_t rows = s->batch * s->heads * s->seq, width = s->any_order ? s->head_dim + 1 : 1;

    out->scratch_bytes = for_training ? (size_t)(rows * width) * sizeof(float) : 0;
    return rc;
}

/* The device, what is free there, and what the model's own stream takes of that. */
static int find_room(struct about *a, struct err *e)
{
    uint64_t size = 0;
    char text[UNITS_TEXT];
    int rc;

    if (a->o->memory == NULL) {
        rc = setup_device(a->o, 0, &a->k, e);
        if (rc == 0 && a->k->mem_room(&a->room) != 0) {
            rc =
                err_set(e, E_CUDA, "%s: the amount of free memory could not be read", a->k->device);
        }
    } else if (!size_parse(slice_str(a->o->memory), &size) || size == 0 || size > SIZE_MAX / 2) {
        rc = err_set(e, E_USAGE, "--memory %.40s is not a size; write one such as 79g",
                     a->o->memory);
    } else {
        a->gpu = *kops_cpu();
        a->gpu.attention_prepare = prepare_gpu_attention;
        a->gpu.stream_bytes = CUDA_STREAM_BYTES;
        a->gpu.bf16 = true;
        size_format(size, text);
        snprintf(a->gpu.device, sizeof a->gpu.device, "a GPU of %s", text);
        a->k = &a->gpu;
        a->room = (size_t)size;
        rc = 0;
    }
    if (rc == 0) {
        a->room -= a->room < a->k->stream_bytes ? a->room : a->k->stream_bytes;
    }
    return rc;
}

/* As train divides them. */
static int find_groups(struct about *a, struct err *e)
{
    const struct options *o = a->o;
    int64_t dp = o->ranks / o->tp;

    a->groups = 1;
    if (o->shard_group > 0 && o->zero == 0) {
        return err_set(e, E_USAGE, "--shard-group needs --zero 1, 2 or 3");
    }
    if (o->shard_group > 1 && dp % o->shard_group != 0) {
        return err_set(e, E_USAGE,
                       "--shard-group %lld: the number of ranks (%lld%s) must be a multiple of it",
                       (long long)o->shard_group, (long long)dp,
                       o->tp > 1 ? " with the same part of a model" : "");
    }
    if (o->shard_group > 1) {
        a->groups = (int)(dp / o->shard_group);
    }
    return 0;
}

static int print_model_info(struct about *a, struct err *e)
{
    int rc = setup_at_least("batch", a->o->batch, 1, e);

    rc = rc != 0 ? rc : setup_at_least("accum", a->o->accum, 1, e);
    rc = rc != 0 ? rc : setup_zero(a->o, e);
    rc = rc != 0 ? rc : setup_at_least("seq", a->o->seq, 0, e);
    rc = rc != 0 ? rc : setup_at_least("ranks", a->o->ranks, 1, e);
    if (rc == 0 && a->o->ranks > RANKS_MAX) {
        rc = err_set(e, E_USAGE, "--ranks %lld is too large; at most %d are supported",
                     (long long)a->o->ranks, RANKS_MAX);
    }
    rc = rc != 0 ? rc : layout_can_cut(&a->config, a->o->tp, e);
    if (rc == 0 && a->o->ranks % a->o->tp != 0) {
        rc = err_set(e, E_USAGE, "--tp %lld: --ranks %lld must be a multiple of it",
                     (long long)a->o->tp, (long long)a->o->ranks);
    }
    rc = rc != 0 ? rc : setup_at_least("shard-group", a->o->shard_group, 0, e);
    rc = rc != 0 ? rc : find_groups(a, e);
    rc = rc != 0 ? rc : find_room(a, e);
    if (rc != 0) {
        return rc;
    }
    setup_dtype(a->o, a->k, "", true);
    a->seq = setup_seq(a->o, &a->config);
    rc = plan_info_memory(a, true, &a->train, &a->most_train, e);
    rc = rc != 0 ? rc : plan_info_memory(a, false, &a->run, &a->most_run, e);
    if (rc != 0) {
        return rc;
    }
    if (a->o->json) {
        print_info_json(a);
    } else {
        print_text(a);
    }
    return 0;
}

/* First, so that the output says which checkpoint it is about. */
static int check_inventory_complete(const struct inventory *v, const char *dir, struct err *e)
{
    size_t bad = v->count[INVENTORY_MISSING] + v->count[INVENTORY_SHAPE] + v->count[INVENTORY_TYPE];

    return bad == 0
               ? 0
               : err_set(e, E_CORRUPT,
                         "%s: %zu of the model's tensors are missing or do not match config.json",
                         dir, bad);
}

static int info_config(struct about *a, struct err *e)
{
    int rc;

    layout_init(&a->layout, &a->config, 1);
    rc = print_model_info(a, e);
    layout_fini(&a->layout);
    return rc;
}

static bool has_weights(const char *dir)
{
    char one[PATH_MAX], many[PATH_MAX];

    snprintf(one, sizeof one, "%s/model.safetensors", dir);
    snprintf(many, sizeof many, "%s/model.safetensors.index.json", dir);
    return access(one, F_OK) == 0 || access(many, F_OK) == 0;
}

/* A model of ours has a manifest; one from the Hub does not. */
static int info_model(struct about *a, const char *dir, struct err *e)
{
    char path[PATH_MAX];
    int rc;

    snprintf(path, sizeof path, "%s/config.json", dir);
    rc = config_load(path, &a->config, e);
    snprintf(path, sizeof path, "%s/manifest.sha256", dir);
    a->ours = access(path, F_OK) == 0;
    if (rc == 0 && a->ours && a->newest == NULL) {
        rc = checkpoint_verify(dir, e);
    }
    if (rc == 0 && a->ours) {
        rc = checkpoint_state(dir, &a->state, e);
    }
    if (rc != 0) {
        return rc;
    }
    layout_init(&a->layout, &a->config, 1);
    rc = has_weights(dir) ? inventory_open(dir, &a->layout, &a->tensors, e) : 0;
    rc = rc != 0 ? rc : print_model_info(a, e);
    rc = rc != 0 || a->tensors == NULL ? rc : check_inventory_complete(a->tensors, dir, e);
    inventory_close(&a->tensors);
    layout_fini(&a->layout);
    return rc;
}

/* --- tokens ----------------------------------------------------------------------------------- */

/* Open, and whole. */
static int look_shard(const char *path, struct shard *s, struct err *e)
{
    int rc = shard_open(path, s, e);

    if (rc == 0) {
        rc = shard_verify(s, e);
        if (rc != 0) {
            shard_close(s);
        }
    }
    return rc;
}

static void json_shard(struct buf *out, const struct shard *s)
{
    jwrite_u64(out, "tokens", s->tokens);
    jwrite_u64(out, "vocab", s->vocab);
    jwrite_str(out, "tokenizer", s->tokenizer);
    jwrite_bool(out, "verified", !digest_is_zero(&s->digest));
}

static const char *shard_digest_word(const struct shard *s)
{
    return digest_is_zero(&s->digest) ? "no SHA-256 in the header" : "the SHA-256 is correct";
}

static void print_buf(struct buf *out)
{
    printf("%s\n", buf_cstr(out));
    buf_free(out);
}

/* What `trainer tokenize --out FOLDER` leaves. */
static int info_shards(const struct options *o, const glob_t *found, struct err *e)
{
    struct buf out = BUF_INIT(JSON_MAX_BYTES);
    uint64_t tokens = 0;
    int rc = 0;

    jwrite_open(&out, NULL, '{');
    jwrite_open(&out, "shards", '[');
    for (size_t i = 0; rc == 0 && i < found->gl_pathc; i++) {
        const char *name = strrchr(found->gl_pathv[i], '/') + 1;
        struct shard s;
        rc = look_shard(found->gl_pathv[i], &s, e);
        if (rc != 0) {
            break;
        }
        tokens += s.tokens;
        jwrite_open(&out, NULL, '{');
        jwrite_str(&out, "name", name);
        json_shard(&out, &s);
        jwrite_close(&out, '}');
        if (!o->json) {
            printf("%-20s %12llu tokens of \"%s\", vocabulary %u; %s\n", name,
                   (unsigned long long)s.tokens, s.tokenizer, s.vocab, shard_digest_word(&s));
        }
        shard_close(&s);
    }
    jwrite_close(&out, ']');
    jwrite_u64(&out, "tokens", tokens);
    jwrite_close(&out, '}');
    if (rc == 0 && o->json) {
        print_buf(&out);
    } else if (rc == 0) {
        printf("%zu shards, %llu tokens\n", found->gl_pathc, (unsigned long long)tokens);
    }
    buf_free(&out);
    return rc;
}

/* Neither a model nor a run. */
static int info_other(const struct options *o, const char *dir, struct err *e)
{
    char pattern[PATH_MAX];
    glob_t found = {0};
    int rc;

    snprintf(pattern, sizeof pattern, "%s/*.bin", dir);
    if (glob(pattern, 0, NULL, &found) == 0) {
        rc = info_shards(o, &found, e);
    } else {
        rc = err_set(e, E_NOTFOUND,
                     "%s: holds neither a model (config.json), nor checkpoint-<step> folders, nor "
                     "token shards (*.bin)",
                     dir);
    }
    globfree(&found);
    return rc;
}

/* The folder of a model, or of a run: then its newest checkpoint that is whole. */
static int info_folder(struct options *o, const char *dir, struct err *e)
{
    size_t n = checkpoint_count(dir);
    struct about a = {.o = o};
    char path[PATH_MAX];
    char *newest;
    int rc;

    snprintf(path, sizeof path, "%s/config.json", dir);
    if (access(path, F_OK) == 0) {
        return info_model(&a, dir, e);
    }
    if (n == 0) {
        return info_other(o, dir, e);
    }
    rc = checkpoint_newest(dir, &newest, e);
    if (rc == 0 && !o->json) {
        printf("%s, the newest of %zu\n", newest, n);
    }
    a.newest = newest;
    rc = rc != 0 ? rc : info_model(&a, newest, e);
    free(newest);
    return rc;
}

static int info_shard(const struct options *o, const char *path, struct err *e)
{
    struct buf out = BUF_INIT(JSON_MAX_BYTES);
    struct shard s;
    int rc = look_shard(path, &s, e);

    if (rc != 0) {
        return rc;
    }
    if (o->json) {
        jwrite_open(&out, NULL, '{');
        json_shard(&out, &s);
        jwrite_close(&out, '}');
        print_buf(&out);
    } else {
        printf("%llu tokens of \"%s\", vocabulary %u; %s\n", (unsigned long long)s.tokens,
               s.tokenizer, s.vocab, shard_digest_word(&s));
    }
    shard_close(&s);
    return 0;
}

int verb_info(struct options *o, struct err *e)
{
    struct about a = {.o = o};
    struct stat st;
    int rc;

    if (o->config != NULL && o->paths == 0) {
        rc = setup_config(o, &a.config, e);
        return rc != 0 ? rc : info_config(&a, e);
    }
    if (o->paths != 1) {
        return err_set(e, E_USAGE,
                       "info needs one checkpoint, folder, config.json or shard, or --config");
    }
    if (stat(o->path[0], &st) == -1) {
        return err_sys(e, "%s", o->path[0]);
    }
    if (S_ISDIR(st.st_mode)) {
        return info_folder(o, o->path[0], e);
    }
    if (slice_ends(slice_str(o->path[0]), SLICE(".json"))) {
        rc = config_load(o->path[0], &a.config, e);
        return rc != 0 ? rc : info_config(&a, e);
    }
    return info_shard(o, o->path[0], e);
}
