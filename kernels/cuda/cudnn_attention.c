#include "kernels/cuda/cudnn_attention.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>

#include "kernels/cuda/cudnn_graph.h"

enum { SHAPES_MAX = 16 };

/* With a fixed order cuDNN keeps all gradients of scores in memory: beyond this our own kernel is
 * the better choice. */
#define WORKSPACE_MAX_BYTES ((int64_t)4 << 30)

/* The tensors in memory, by the names that graph and run share. */
enum name { Q, K, V, O, LSE, DO, DQ, DK, DV, DELTA, DQ_SUM, SCALE, ONE, MASKED };

struct shape_plan {
    enum dtype dt;
    struct attention_shape s;
    struct graph_plan forward, backward; /* backward only when it was asked for */
};

struct cudnn_attention {
    const struct cudnn_lib *lib;
    cudnnHandle_t handle;
    struct shape_plan plan[SHAPES_MAX];
    int plans;
};

static void attention_close(struct cudnn_attention **ap)
{
    struct cudnn_attention *a = *ap;

    if (a == NULL) {
        return;
    }
    *ap = NULL;
    for (int i = 0; i < a->plans; i++) {
        graph_plan_fini(&a->plan[i].forward);
        graph_plan_fini(&a->plan[i].backward);
    }
    if (a->handle != NULL) {
        a->lib->cudnnDestroy(a->handle);
    }
    free(a);
}

static int attention_open(cudaStream_t stream, struct cudnn_attention **out, struct err *e)
{
    struct cudnn_attention *a;
    const struct cudnn_lib *lib = cudnn_lib(e);
    cudnnStatus_t rc;

    *out = NULL;
    if (lib == NULL) {
        return E_UNSUPPORTED;
    }
    a = calloc(1, sizeof *a);
    if (a == NULL) {
        return err_set(e, E_NOSPACE, "not enough memory");
    }
    a->lib = lib;
    rc = lib->cudnnCreate(&a->handle);
    if (rc == CUDNN_STATUS_SUCCESS) {
        rc = lib->cudnnSetStream(a->handle, stream);
    }
    if (rc != CUDNN_STATUS_SUCCESS) {
        err_set(e, E_UNSUPPORTED, "cuDNN cannot be initialised: %s", lib->cudnnGetErrorString(rc));
        attention_close(&a);
        return E_UNSUPPORTED;
    }
    *out = a;
    return 0;
}

static size_t attention_version(const struct cudnn_attention *a)
{
    return a->lib->version;
}

/* --- the graphs ------------------------------------------------------------------------------- */

/* What both passes read, as cuDNN wants it: [batch, heads, seq, dim] by strides, k with its last
 * two exchanged. */
struct view {
    cudnnDataType_t type;
    int64_t b, h, kv, t, d;
    struct graph_dims packed;   /* strides of a head of qkv or dqkv */
    struct graph_dims separate; /* of out and dout */
};

static struct view view_of(enum dtype dt, const struct attention_shape *s)
{
    int64_t d = s->head_dim, token = (s->heads + 2 * s->kv_heads) * d;

    return (struct view){
        .type = dt == DT_BF16 ? CUDNN_DATA_BFLOAT16 : CUDNN_DATA_HALF,
        .b = s->batch,
        .h = s->heads,
        .kv = s->kv_heads,
        .t = s->seq,
        .d = d,
        .packed = graph_dims(s->seq * token, d, token, 1),
        .separate = graph_dims(s->seq * s->heads * d, d, s->heads * d, 1),
    };
}

static struct graph_tensor heads_in(struct graph *g, const struct view *v, enum name name,
                                    int64_t heads, struct graph_dims strides)
{
    return graph_tensor(g, name, v->type, graph_dims(v->b, heads, v->t, v->d), strides);
}

static struct graph_tensor heads_turned(struct graph *g, const struct view *v, enum name name)
{
    const int64_t *s = v->packed.d;

    return graph_tensor(g, name, v->type, graph_dims(v->b, v->kv, v->d, v->t),
                        graph_dims(s[0], s[1], s[3], s[2]));
}

/* A number for each query: lse, delta. */
static struct graph_tensor per_query(struct graph *g, const struct view *v, enum name name)
{
    struct graph_dims dims = graph_dims(v->b, v->h, v->t, 1);

    return graph_tensor(g, name, CUDNN_DATA_FLOAT, dims, graph_dense(dims));
}

static struct graph_dims scores(const struct view *v)
{
    return graph_dims(v->b, v->h, v->t, v->t);
}

static struct graph_tensor scaled_scores(struct graph *g, const struct view *v,
                                         const struct graph_tensor *q, const struct graph_tensor *k,
                                         const struct graph_tensor *scale)
{
    struct graph_tensor raw = graph_matmul(g, q, k, scores(v));

    return graph_binary(g, CUDNN_POINTWISE_MUL, &raw, scale);
}

/* out = softmax(q k^T * scale, keys up to the query) v; lse = max + log(sum). */
static void describe_forward(struct graph *g, const struct view *v)
{
    struct graph_dims column = graph_dims(v->b, v->h, v->t, 1);
    struct graph_tensor q = heads_in(g, v, Q, v->h, v->packed), k = heads_turned(g, v, K);
    struct graph_tensor value = heads_in(g, v, V, v->kv, v->packed);
    struct graph_tensor o = heads_in(g, v, O, v->h, v->separate), lse = per_query(g, v, LSE);
    struct graph_tensor scale = graph_value(g, SCALE), masked = graph_value(g, MASKED);
    struct graph_tensor p = graph_virtual(g, v->type, scores(v), graph_dense(scores(v)));

    struct graph_tensor s = scaled_scores(g, v, &q, &k, &scale);
    s = graph_lower_triangle(g, &s, &masked);
    struct graph_tensor max = graph_reduce(g, CUDNN_REDUCE_TENSOR_MAX, &s, column);
    s = graph_binary(g, CUDNN_POINTWISE_SUB, &s, &max);
    s = graph_unary(g, CUDNN_POINTWISE_EXP, &s);
    struct graph_tensor sum = graph_reduce(g, CUDNN_REDUCE_TENSOR_ADD, &s, column);
    struct graph_tensor log = graph_unary(g, CUDNN_POINTWISE_LOG, &sum);
    graph_binary_into(g, CUDNN_POINTWISE_ADD, &max, &log, &lse);
    graph_binary_into(g, CUDNN_POINTWISE_DIV, &s, &sum, &p);
    graph_matmul_into(g, &p, &value, &o);
}

/* to = a^T b, a given as its transpose; with fewer key heads, summed over each group's. */
static void into_key_heads(struct graph *g, const struct view *v, const struct graph_tensor *at,
                           const struct graph_tensor *b, const struct graph_tensor *to)
{
    struct graph_dims all = graph_dims(v->b, v->h, v->t, v->d);
    struct graph_tensor each;

    if (v->h == v->kv) {
        graph_matmul_into(g, at, b, to);
        return;
    }
    each = graph_virtual(g, v->type, all, graph_dense(all));
    graph_matmul_into(g, at, b, &each);
    graph_reduce_into(g, CUDNN_REDUCE_TENSOR_ADD, &each, to);
}

/* With P = exp(score - lse): dV = P^T dO, dS = P * (dO V^T - delta) * scale, dK = dS^T Q, dQ = dS
 * K; delta = rowsum(dO * O). When the order does not matter, dQ is added up in f32 by whoever
 * comes; else one owner writes it. */
static void describe_backward(struct graph *g, const struct view *v, bool any_order)
{
    struct graph_dims wide = graph_dims(v->b, v->h, v->t, v->d);
    struct graph_tensor q = heads_in(g, v, Q, v->h, v->packed), kt = heads_turned(g, v, K);
    struct graph_tensor vt = heads_turned(g, v, V), o = heads_in(g, v, O, v->h, v->separate);
    struct graph_tensor d_o = heads_in(g, v, DO, v->h, v->separate), lse = per_query(g, v, LSE);
    struct graph_tensor dq = heads_in(g, v, DQ, v->h, v->packed);
    struct graph_tensor dk = heads_in(g, v, DK, v->kv, v->packed);
    struct graph_tensor dv = heads_in(g, v, DV, v->kv, v->packed), delta = per_query(g, v, DELTA);
    struct graph_tensor scale = graph_value(g, SCALE), one = graph_value(g, ONE);
    struct graph_tensor masked = graph_value(g, MASKED);

    struct graph_tensor x = graph_binary(g, CUDNN_POINTWISE_MUL, &d_o, &o);
    x = graph_reduce(g, CUDNN_REDUCE_TENSOR_ADD, &x, graph_dims(v->b, v->h, v->t, 1));
    graph_binary_into(g, CUDNN_POINTWISE_MUL, &x, &one,
                      &delta); /* cuDNN looks for a scaling here */

    x = scaled_scores(g, v, &q, &kt, &scale);
    x = graph_binary(g, CUDNN_POINTWISE_SUB, &x, &lse);
    x = graph_lower_triangle(g, &x, &masked);
    struct graph_tensor p = graph_unary(g, CUDNN_POINTWISE_EXP, &x);
    struct graph_tensor pt = graph_transposed(g, v->type, &p);
    into_key_heads(g, v, &pt, &d_o, &dv);

    x = graph_matmul(g, &d_o, &vt, scores(v));
    x = graph_binary(g, CUDNN_POINTWISE_SUB, &x, &delta);
    x = graph_binary(g, CUDNN_POINTWISE_MUL, &x, &p);
    struct graph_tensor ds = graph_binary(g, CUDNN_POINTWISE_MUL, &x, &scale);
    struct graph_tensor dst = graph_transposed(g, v->type, &ds);
    into_key_heads(g, v, &dst, &q, &dk);

    struct graph_tensor k = graph_transposed(g, v->type, &kt);
    if (any_order) {
        struct graph_tensor sum =
            graph_tensor(g, DQ_SUM, CUDNN_DATA_FLOAT, wide, graph_dense(wide));

        graph_matmul_into(g, &ds, &k, &sum);
        graph_unary_into(g, CUDNN_POINTWISE_IDENTITY, &sum, &dq);
    } else {
        graph_matmul_into(g, &ds, &k, &dq);
    }
}

int cudnn_attention_build(const struct cudnn_lib *lib, const struct graph_target *t, enum dtype dt,
                          const struct attention_shape *s, bool backward, struct graph_plan *out,
                          struct err *e)
{
    struct view v = view_of(dt, s);
    struct graph g;
    int rc;

    graph_init(&g, lib);
    if (backward) {
        describe_backward(&g, &v, s->any_order);
    } else {
        describe_forward(&g, &v);
    }
    rc = graph_plan(&g, t, out, e);
    graph_fini(&g);
    return rc;
}

/* --- plans by shape --------------------------------------------------------------------------- */

/* What cuDNN is known to refuse, or to do wrong. */
static int check_attention_shape(const struct cudnn_lib *lib, int sm, enum dtype dt,
                                 const struct attention_shape *s, struct err *e)
{
    if (dt != DT_BF16 && dt != DT_F16) {
        return err_set(e, E_UNSUPPORTED, "cuDNN's attention supports only bf16 and f16");
    }
    if (sm < 80 || s->head_dim % 8 != 0 || s->head_dim > 128 || s->seq < 2) {
        return err_set(e, E_UNSUPPORTED,
                       "cuDNN has no attention for heads of %lld dimensions on sm_%d",
                       (long long)s->head_dim, sm);
    }
    /* Up to 9.15 its backward pass reads behind sequences that do not fill their last tile. */
    if (s->seq % 128 != 0 && lib->version <= 91500) {
        return err_set(e, E_UNSUPPORTED, "cuDNN %zu needs --seq in multiples of 128", lib->version);
    }
    /* There a fixed order needs an engine that the heuristics do not propose. */
    if (!s->any_order && sm >= 100) {
        return err_set(e, E_UNSUPPORTED, "cuDNN's backward pass is not deterministic on sm_%d", sm);
    }
    return 0;
}

static bool same_shape_plan(const struct shape_plan *p, enum dtype dt,
                            const struct attention_shape *s)
{
    const struct attention_shape *x = &p->s;

    return p->dt == dt && x->batch == s->batch && x->seq == s->seq && x->heads == s->heads &&
           x->kv_heads == s->kv_heads && x->head_dim == s->head_dim && x->any_order == s->any_order;
}

static struct shape_plan *find_shape_plan(struct cudnn_attention *a, enum dtype dt,
                                          const struct attention_shape *s)
{
    for (int i = 0; i < a->plans; i++) {
        if (same_shape_plan(&a->plan[i], dt, s)) {
            return &a->plan[i];
        }
    }
    return NULL;
}

static bool attention_knows(struct cudnn_attention *a, enum dtype dt,
                            const struct attention_shape *s, bool backward)
{
    const struct shape_plan *p = find_shape_plan(a, dt, s);

    return p != NULL && (backward ? p->backward.desc : p->forward.desc) != NULL;
}

/* Backward's scratch: delta, the f32 sums of dq, cuDNN's own. */
static size_t aligned(int64_t size_bytes)
{
    return ((size_t)size_bytes + 255) / 256 * 256;
}

static size_t delta_bytes(const struct attention_shape *s)
{
    return aligned(s->batch * s->heads * s->seq * (int64_t)sizeof(float));
}

static size_t sums_bytes(const struct attention_shape *s)
{
    return s->any_order
               ? aligned(s->batch * s->heads * s->seq * s->head_dim * (int64_t)sizeof(float))
               : 0;
}

static size_t scratch_of_one(const struct shape_plan *p)
{
    size_t forward = aligned(p->forward.workspace_bytes), backward = 0;

    if (p->backward.desc != NULL) {
        backward = delta_bytes(&p->s) + sums_bytes(&p->s) + aligned(p->backward.workspace_bytes);
    }
    return forward > backward ? forward : backward;
}

/* For every shape that was planned: who comes with the latest scratch may run any of them. */
static size_t scratch_of(const struct cudnn_attention *a)
{
    size_t most = 0;

    for (int i = 0; i < a->plans; i++) {
        size_t one = scratch_of_one(&a->plan[i]);

        most = one > most ? one : most;
    }
    return most;
}

/* The shape's place, new or old; NULL when there is no more room. */
static struct shape_plan *shape_plan_slot(struct cudnn_attention *a, enum dtype dt,
                                          const struct attention_shape *s)
{
    struct shape_plan *p = find_shape_plan(a, dt, s);

    if (p == NULL && a->plans < SHAPES_MAX) {
        p = &a->plan[a->plans++];
        *p = (struct shape_plan){.dt = dt, .s = *s};
    }
    return p;
}

static int attention_plan(struct cudnn_attention *a, int sm, enum dtype dt,
                          const struct attention_shape *s, bool for_training, size_t *scratch_bytes,
                          struct err *e)
{
    const struct graph_target target = {.handle = a->handle};
    struct shape_plan *p;
    int rc = check_attention_shape(a->lib, sm, dt, s, e);

    if (rc != 0) {
        return rc;
    }
    p = shape_plan_slot(a, dt, s);
    if (p == NULL) {
        return err_set(e, E_UNSUPPORTED,
                       "cuDNN has already planned %d shapes, which is the maximum", SHAPES_MAX);
    }
    if (p->forward.desc == NULL) {
        rc = cudnn_attention_build(a->lib, &target, dt, s, false, &p->forward, e);
    }
    if (rc == 0 && for_training && p->backward.desc == NULL) {
        rc = cudnn_attention_build(a->lib, &target, dt, s, true, &p->backward, e);
    }
    if (rc == 0 && for_training && p->backward.workspace_bytes > WORKSPACE_MAX_BYTES) {
        rc = err_set(e, E_UNSUPPORTED, "a deterministic order would cost cuDNN %.1f GiB",
                     (double)p->backward.workspace_bytes / 1073741824.0);
        graph_plan_fini(&p->backward);
    }
    *scratch_bytes = scratch_of(a);
    return rc;
}

/* --- runs ------------------------------------------------------------------------------------- */

static const float one_value = 1;

/* What is masked: from 9.10 on cuDNN takes an infinity there, before that the lowest number. */
static float masked_value(const struct cudnn_attention *a)
{
    return a->lib->version >= 91000 ? -INFINITY : -FLT_MAX;
}

/* Where a head's q, k or v begins: `heads` heads behind the first. */
static const char *behind(const void *qkv, const struct attention_shape *s, int64_t heads)
{
    return (const char *)qkv + heads * s->head_dim * 2;
}

static int attention_forward(struct cudnn_attention *a, enum dtype dt, void *out, void *lse,
                             const void *qkv, const struct attention_shape *s, void *scratch)
{
    const struct shape_plan *p = find_shape_plan(a, dt, s);
    const float scale = 1 / sqrtf((float)s->head_dim), masked = masked_value(a);
    const struct graph_place place[] = {
        {Q, qkv},
        {K, behind(qkv, s, s->heads)},
        {V, behind(qkv, s, s->heads + s->kv_heads)},
        {O, out},
        {LSE, lse},
        {SCALE, &scale},
        {MASKED, &masked},
    };

    return graph_run(&p->forward, a->handle, place, ARRAY_LEN(place), scratch);
}

static int attention_backward(struct cudnn_attention *a, enum dtype dt, void *dqkv,
                              const void *dout, const void *qkv, const void *out, const void *lse,
                              const struct attention_shape *s, void *scratch)
{
    const struct shape_plan *p = find_shape_plan(a, dt, s);
    const float scale = 1 / sqrtf((float)s->head_dim), masked = masked_value(a);
    char *delta = scratch, *sums = delta + delta_bytes(s);
    const struct graph_place place[] = {
        {Q, qkv},
        {K, behind(qkv, s, s->heads)},
        {V, behind(qkv, s, s->heads + s->kv_heads)},
        {O, out},
        {LSE, lse},
        {DO, dout},
        {DQ, dqkv},
        {DK, behind(dqkv, s, s->heads)},
        {DV, behind(dqkv, s, s->heads + s->kv_heads)},
        {DELTA, delta},
        {SCALE, &scale},
        {ONE, &one_value},
        {MASKED, &masked},
        {DQ_SUM, sums}, /* the last: absent from the graph with a fixed order */
    };
    int places = (int)ARRAY_LEN(place) - !s->any_order;

    return graph_run(&p->backward, a->handle, place, places, sums + sums_bytes(s));
}

const struct cudnn_calls cudnn_attention = {
    .open = attention_open,
    .close = attention_close,
    .version = attention_version,
    .plan = attention_plan,
    .knows = attention_knows,
    .forward = attention_forward,
    .backward = attention_backward,
};
