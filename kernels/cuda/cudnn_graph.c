#include "kernels/cuda/cudnn_graph.h"

#include <string.h>

#include "kernels/cuda/fault.h"

enum { PROPOSALS_MAX = 16, ALIGNMENT = 16 };

/* --- descriptors: made, described, closed; the first failure stays ---------------------------- */

void graph_init(struct graph *g, const struct cudnn_lib *lib)
{
    *g = (struct graph){.lib = lib, .names = GRAPH_NAMES_MAX};
}

void graph_fini(struct graph *g)
{
    while (g->held_count > 0) {
        g->lib->cudnnBackendDestroyDescriptor(g->held[--g->held_count]);
    }
}

/* With cuDNN's own sentence, when it has one. */
static int explain_cudnn_status(const struct cudnn_lib *lib, cudnnStatus_t rc, const char *what,
                                struct err *e)
{
    char said[128] = "";

    lib->cudnnGetLastErrorString(said, sizeof said);
    return err_set(e, E_UNSUPPORTED, "cuDNN rejected %s: %s %s", what, lib->cudnnGetErrorString(rc),
                   said);
}

static bool failed(const struct graph *g)
{
    return g->failure.code != 0;
}

static void check_cudnn_status(struct graph *g, cudnnStatus_t rc, const char *what)
{
    if (rc != CUDNN_STATUS_SUCCESS && !failed(g)) {
        explain_cudnn_status(g->lib, rc, what, &g->failure);
    }
}

static cudnnBackendDescriptor_t make_descriptor(struct graph *g, cudnnBackendDescriptorType_t type)
{
    cudnnBackendDescriptor_t d = NULL;

    if (g->held_count == GRAPH_HELD_MAX) {
        err_set(&g->failure, E_TOOBIG, "a graph of more than %d descriptors", GRAPH_HELD_MAX);
    }
    if (!failed(g)) {
        check_cudnn_status(g, g->lib->cudnnBackendCreateDescriptor(type, &d), "a descriptor");
    }
    if (d != NULL) {
        g->held[g->held_count++] = d;
    }
    return d;
}

static void set_graph_attribute(struct graph *g, cudnnBackendDescriptor_t d,
                                cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                                int64_t n, const void *value)
{
    if (!failed(g)) {
        check_cudnn_status(g, g->lib->cudnnBackendSetAttribute(d, name, type, n, value),
                           "an attribute");
    }
}

static void set_desc(struct graph *g, cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t name,
                     cudnnBackendDescriptor_t value)
{
    set_graph_attribute(g, d, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &value);
}

static void finalize_descriptor(struct graph *g, cudnnBackendDescriptor_t d, const char *what)
{
    if (!failed(g)) {
        check_cudnn_status(g, g->lib->cudnnBackendFinalize(d), what);
    }
}

static void finish_op(struct graph *g, cudnnBackendDescriptor_t d, const char *what)
{
    finalize_descriptor(g, d, what);
    if (g->ops == GRAPH_OPS_MAX) {
        err_set(&g->failure, E_TOOBIG, "a graph of more than %d operations", GRAPH_OPS_MAX);
        return;
    }
    g->op[g->ops++] = d;
}

/* --- tensors ---------------------------------------------------------------------------------- */

struct graph_dims graph_dims(int64_t a, int64_t b, int64_t c, int64_t d)
{
    return (struct graph_dims){{a, b, c, d}};
}

struct graph_dims graph_dense(struct graph_dims dims)
{
    const int64_t *d = dims.d;

    return graph_dims(d[1] * d[2] * d[3], d[2] * d[3], d[3], 1);
}

enum kind { IN_MEMORY, VIRTUAL, BY_VALUE };

static struct graph_tensor tensor(struct graph *g, enum kind kind, int64_t name,
                                  cudnnDataType_t type, struct graph_dims dims,
                                  struct graph_dims strides)
{
    struct graph_tensor t = {make_descriptor(g, CUDNN_BACKEND_TENSOR_DESCRIPTOR), dims, strides};
    const int64_t alignment = ALIGNMENT;
    const bool yes = true;

    set_graph_attribute(g, t.desc, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &name);
    set_graph_attribute(g, t.desc, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type);
    set_graph_attribute(g, t.desc, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, dims.d);
    set_graph_attribute(g, t.desc, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, strides.d);
    set_graph_attribute(g, t.desc, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1,
                        &alignment);
    if (kind == VIRTUAL) {
        set_graph_attribute(g, t.desc, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, &yes);
    } else if (kind == BY_VALUE) {
        set_graph_attribute(g, t.desc, CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, 1, &yes);
    }
    finalize_descriptor(g, t.desc, "a tensor");
    return t;
}

struct graph_tensor graph_tensor(struct graph *g, int64_t name, cudnnDataType_t type,
                                 struct graph_dims dims, struct graph_dims strides)
{
    return tensor(g, IN_MEMORY, name, type, dims, strides);
}

struct graph_tensor graph_value(struct graph *g, int64_t name)
{
    return tensor(g, BY_VALUE, name, CUDNN_DATA_FLOAT, graph_dims(1, 1, 1, 1),
                  graph_dims(1, 1, 1, 1));
}

struct graph_tensor graph_virtual(struct graph *g, cudnnDataType_t type, struct graph_dims dims,
                                  struct graph_dims strides)
{
    return tensor(g, VIRTUAL, g->names++, type, dims, strides);
}

static struct graph_tensor between(struct graph *g, struct graph_dims dims)
{
    return graph_virtual(g, CUDNN_DATA_FLOAT, dims, graph_dense(dims));
}

/* --- operations ------------------------------------------------------------------------------- */

void graph_matmul_into(struct graph *g, const struct graph_tensor *a, const struct graph_tensor *b,
                       const struct graph_tensor *to)
{
    cudnnBackendDescriptor_t how = make_descriptor(g, CUDNN_BACKEND_MATMUL_DESCRIPTOR);
    cudnnBackendDescriptor_t op = make_descriptor(g, CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);
    const cudnnDataType_t sums = CUDNN_DATA_FLOAT;

    set_graph_attribute(g, how, CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &sums);
    finalize_descriptor(g, how, "a product's type");
    set_desc(g, op, CUDNN_ATTR_OPERATION_MATMUL_ADESC, a->desc);
    set_desc(g, op, CUDNN_ATTR_OPERATION_MATMUL_BDESC, b->desc);
    set_desc(g, op, CUDNN_ATTR_OPERATION_MATMUL_CDESC, to->desc);
    set_desc(g, op, CUDNN_ATTR_OPERATION_MATMUL_DESC, how);
    finish_op(g, op, "a product");
}

struct graph_tensor graph_matmul(struct graph *g, const struct graph_tensor *a,
                                 const struct graph_tensor *b, struct graph_dims dims)
{
    struct graph_tensor to = between(g, dims);

    graph_matmul_into(g, a, b, &to);
    return to;
}

static cudnnBackendDescriptor_t pointwise(struct graph *g, cudnnPointwiseMode_t mode,
                                          cudnnDataType_t type)
{
    cudnnBackendDescriptor_t how = make_descriptor(g, CUDNN_BACKEND_POINTWISE_DESCRIPTOR);

    set_graph_attribute(g, how, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &mode);
    set_graph_attribute(g, how, CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, 1, &type);
    return how;
}

/* to = how(x, b, t); b and t may be NULL. */
static void apply(struct graph *g, cudnnBackendDescriptor_t how, const struct graph_tensor *x,
                  const struct graph_tensor *b, const struct graph_tensor *t,
                  const struct graph_tensor *to)
{
    cudnnBackendDescriptor_t op = make_descriptor(g, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);

    finalize_descriptor(g, how, "an element's operation");
    set_desc(g, op, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, how);
    set_desc(g, op, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x->desc);
    if (b != NULL) {
        set_desc(g, op, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, b->desc);
    }
    if (t != NULL) {
        set_desc(g, op, CUDNN_ATTR_OPERATION_POINTWISE_TDESC, t->desc);
    }
    set_desc(g, op, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, to->desc);
    finish_op(g, op, "an operation on elements");
}

void graph_unary_into(struct graph *g, cudnnPointwiseMode_t mode, const struct graph_tensor *x,
                      const struct graph_tensor *to)
{
    apply(g, pointwise(g, mode, CUDNN_DATA_FLOAT), x, NULL, NULL, to);
}

struct graph_tensor graph_unary(struct graph *g, cudnnPointwiseMode_t mode,
                                const struct graph_tensor *x)
{
    struct graph_tensor to = between(g, x->dims);

    graph_unary_into(g, mode, x, &to);
    return to;
}

void graph_binary_into(struct graph *g, cudnnPointwiseMode_t mode, const struct graph_tensor *x,
                       const struct graph_tensor *b, const struct graph_tensor *to)
{
    apply(g, pointwise(g, mode, CUDNN_DATA_FLOAT), x, b, NULL, to);
}

struct graph_tensor graph_binary(struct graph *g, cudnnPointwiseMode_t mode,
                                 const struct graph_tensor *x, const struct graph_tensor *b)
{
    struct graph_tensor to = between(g, x->dims);

    graph_binary_into(g, mode, x, b, &to);
    return to;
}

/* The number of each element's row (axis 2) or column (axis 3). */
static struct graph_tensor position(struct graph *g, const struct graph_tensor *x, int64_t axis)
{
    struct graph_tensor to = graph_virtual(g, CUDNN_DATA_INT32, x->dims, graph_dense(x->dims));
    cudnnBackendDescriptor_t how = pointwise(g, CUDNN_POINTWISE_GEN_INDEX, CUDNN_DATA_INT32);

    set_graph_attribute(g, how, CUDNN_ATTR_POINTWISE_AXIS, CUDNN_TYPE_INT64, 1, &axis);
    apply(g, how, x, NULL, NULL, &to);
    return to;
}

struct graph_tensor graph_lower_triangle(struct graph *g, const struct graph_tensor *x,
                                         const struct graph_tensor *other)
{
    struct graph_tensor row = position(g, x, 2), column = position(g, x, 3);
    struct graph_tensor keep = graph_virtual(g, CUDNN_DATA_BOOLEAN, x->dims, graph_dense(x->dims));
    struct graph_tensor to = between(g, x->dims);

    apply(g, pointwise(g, CUDNN_POINTWISE_CMP_GE, CUDNN_DATA_BOOLEAN), &row, &column, NULL, &keep);
    apply(g, pointwise(g, CUDNN_POINTWISE_BINARY_SELECT, CUDNN_DATA_FLOAT), x, other, &keep, &to);
    return to;
}

void graph_reduce_into(struct graph *g, cudnnReduceTensorOp_t how, const struct graph_tensor *x,
                       const struct graph_tensor *to)
{
    cudnnBackendDescriptor_t d = make_descriptor(g, CUDNN_BACKEND_REDUCTION_DESCRIPTOR);
    cudnnBackendDescriptor_t op = make_descriptor(g, CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR);
    const cudnnDataType_t sums = CUDNN_DATA_FLOAT;

    set_graph_attribute(g, d, CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, 1,
                        &how);
    set_graph_attribute(g, d, CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &sums);
    finalize_descriptor(g, d, "a reduction's type");
    set_desc(g, op, CUDNN_ATTR_OPERATION_REDUCTION_XDESC, x->desc);
    set_desc(g, op, CUDNN_ATTR_OPERATION_REDUCTION_YDESC, to->desc);
    set_desc(g, op, CUDNN_ATTR_OPERATION_REDUCTION_DESC, d);
    finish_op(g, op, "a reduction");
}

struct graph_tensor graph_reduce(struct graph *g, cudnnReduceTensorOp_t how,
                                 const struct graph_tensor *x, struct graph_dims dims)
{
    struct graph_tensor to = between(g, dims);

    graph_reduce_into(g, how, x, &to);
    return to;
}

struct graph_tensor graph_transposed(struct graph *g, cudnnDataType_t type,
                                     const struct graph_tensor *x)
{
    const int64_t *d = x->dims.d, *s = x->strides.d;
    struct graph_tensor to = graph_virtual(g, type, graph_dims(d[0], d[1], d[3], d[2]),
                                           graph_dims(s[0], s[1], s[3], s[2]));
    cudnnBackendDescriptor_t op = make_descriptor(g, CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR);

    set_desc(g, op, CUDNN_ATTR_OPERATION_RESHAPE_XDESC, x->desc);
    set_desc(g, op, CUDNN_ATTR_OPERATION_RESHAPE_YDESC, to.desc);
    finish_op(g, op, "a transposition");
    return to;
}

/* --- the plan --------------------------------------------------------------------------------- */

/* cuDNN's proposals, the best first. */
static int propose(struct graph *g, const struct graph_target *t,
                   cudnnBackendDescriptor_t proposal[PROPOSALS_MAX])
{
    cudnnBackendDescriptor_t graph = make_descriptor(g, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    cudnnBackendDescriptor_t heur = make_descriptor(g, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
    const cudnnBackendHeurMode_t mode = CUDNN_HEUR_MODE_A;
    int64_t n = 0;

    set_graph_attribute(g, graph, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                        g->ops, g->op);
    if (t->handle != NULL) {
        set_graph_attribute(g, graph, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1,
                            &t->handle);
    }
    finalize_descriptor(g, graph, "the graph");
    set_desc(g, heur, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph);
    set_graph_attribute(g, heur, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode);
    if (t->handle == NULL) {
        set_desc(g, heur, CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, t->device);
    }
    finalize_descriptor(g, heur, "the heuristics");
    for (int i = 0; i < PROPOSALS_MAX; i++) {
        proposal[i] = make_descriptor(g, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
    }
    if (!failed(g)) {
        check_cudnn_status(g,
                           g->lib->cudnnBackendGetAttribute(heur, CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                                            CUDNN_TYPE_BACKEND_DESCRIPTOR,
                                                            PROPOSALS_MAX, &n, proposal),
                           "the proposals");
    }
    if (!failed(g) && n == 0) {
        err_set(&g->failure, E_UNSUPPORTED, "cuDNN has no engine that can run the graph");
    }
    return (int)n;
}

/* One proposal made ready to run, or nothing. */
static bool build(struct graph *g, const struct graph_target *t, cudnnBackendDescriptor_t proposal,
                  struct graph_plan *out, struct err *e)
{
    const struct cudnn_lib *lib = g->lib;
    cudnnBackendDescriptor_t plan = NULL;
    int64_t n;
    cudnnStatus_t rc =
        lib->cudnnBackendCreateDescriptor(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, &plan);

    *out = (struct graph_plan){.lib = lib, .desc = plan};
    if (rc == CUDNN_STATUS_SUCCESS) {
        rc = lib->cudnnBackendSetAttribute(plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG,
                                           CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &proposal);
    }
    if (rc == CUDNN_STATUS_SUCCESS) {
        rc = t->handle != NULL
                 ? lib->cudnnBackendSetAttribute(plan, CUDNN_ATTR_EXECUTION_PLAN_HANDLE,
                                                 CUDNN_TYPE_HANDLE, 1, &t->handle)
                 : lib->cudnnBackendSetAttribute(plan, CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP,
                                                 CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &t->device);
    }
    if (rc == CUDNN_STATUS_SUCCESS) {
        rc = lib->cudnnBackendFinalize(plan);
    }
    if (rc == CUDNN_STATUS_SUCCESS) {
        rc = lib->cudnnBackendGetAttribute(plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE,
                                           CUDNN_TYPE_INT64, 1, &n, &out->workspace_bytes);
    }
    if (rc != CUDNN_STATUS_SUCCESS) {
        explain_cudnn_status(lib, rc, "a plan", e);
        graph_plan_fini(out);
    }
    return rc == CUDNN_STATUS_SUCCESS;
}

int graph_plan(struct graph *g, const struct graph_target *t, struct graph_plan *out, struct err *e)
{
    cudnnBackendDescriptor_t proposal[PROPOSALS_MAX];
    int n = propose(g, t, proposal);

    if (failed(g)) {
        return err_set(e, g->failure.code, "%s", g->failure.text);
    }
    for (int i = 0; i < n; i++) {
        if (out == NULL || build(g, t, proposal[i], out, e)) {
            err_clear(e);
            return 0;
        }
    }
    return E_UNSUPPORTED;
}

void graph_plan_fini(struct graph_plan *p)
{
    if (p->desc != NULL) {
        p->lib->cudnnBackendDestroyDescriptor(p->desc);
    }
    *p = (struct graph_plan){0};
}

int graph_run(const struct graph_plan *p, cudnnHandle_t handle, const struct graph_place *place,
              int places, void *workspace)
{
    const struct cudnn_lib *lib = p->lib;
    cudnnBackendDescriptor_t pack = NULL;
    const void *at[GRAPH_NAMES_MAX];
    int64_t name[GRAPH_NAMES_MAX];
    cudnnStatus_t rc =
        lib->cudnnBackendCreateDescriptor(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, &pack);

    for (int i = 0; i < places; i++) {
        at[i] = place[i].at;
        name[i] = place[i].name;
    }
    if (rc == CUDNN_STATUS_SUCCESS) {
        rc = lib->cudnnBackendSetAttribute(pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS,
                                           CUDNN_TYPE_VOID_PTR, places, at);
    }
    if (rc == CUDNN_STATUS_SUCCESS) {
        rc = lib->cudnnBackendSetAttribute(pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS,
                                           CUDNN_TYPE_INT64, places, name);
    }
    if (rc == CUDNN_STATUS_SUCCESS) {
        rc = lib->cudnnBackendSetAttribute(pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE,
                                           CUDNN_TYPE_VOID_PTR, 1, &workspace);
    }
    if (rc == CUDNN_STATUS_SUCCESS) {
        rc = lib->cudnnBackendFinalize(pack);
    }
    if (rc == CUDNN_STATUS_SUCCESS) {
        rc = lib->cudnnBackendExecute(handle, p->desc, pack);
    }
    if (pack != NULL) {
        lib->cudnnBackendDestroyDescriptor(pack);
    }
    return rc == CUDNN_STATUS_SUCCESS
               ? 0
               : fault_said("cuDNN", lib->cudnnGetErrorString(rc), __func__, __LINE__);
}

int graph_device(const struct cudnn_lib *lib, const char *json, cudnnBackendDescriptor_t *out,
                 struct err *e)
{
    cudnnStatus_t rc = lib->cudnnBackendCreateDescriptor(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR, out);

    if (rc == CUDNN_STATUS_SUCCESS) {
        rc = lib->cudnnBackendSetAttribute(*out, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION,
                                           CUDNN_TYPE_CHAR, (int64_t)strlen(json) + 1, json);
    }
    if (rc == CUDNN_STATUS_SUCCESS) {
        rc = lib->cudnnBackendFinalize(*out);
    }
    return rc == CUDNN_STATUS_SUCCESS
               ? 0
               : explain_cudnn_status(lib, rc, "the device's description", e);
}
