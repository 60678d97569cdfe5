/* cudnn_graph.h - builds an operation graph for cuDNN's backend API from a list of small
 * operations.
 *
 *     struct graph g;
 *     graph_init(&g, lib);
 *     struct graph_tensor s = graph_matmul(&g, &q, &k, graph_dims(b, h, t, t));
 *     struct graph_tensor p = graph_unary(&g, CUDNN_POINTWISE_EXP, &s);
 *     ...
 *     rc = graph_plan(&g, &target, &plan, e);
 *     graph_fini(&g);
 *
 * Tensors in memory are made by graph_tensor() with a name (cuDNN's unique id), under which
 * graph_run() gets their address. An operation returns a virtual tensor (f32, dense), unless it
 * writes a given tensor: the *_into() forms. All have four dimensions. The first failure is kept;
 * later calls do nothing, and graph_plan() reports it.
 *
 * owns     graph_fini() frees every descriptor of the graph; a plan lives on alone until
 *          graph_plan_fini()
 * threads  one at a time
 */
#ifndef KERNELS_CUDA_CUDNN_GRAPH_H
#define KERNELS_CUDA_CUDNN_GRAPH_H

#include "kernels/cuda/cudnn_lib.h"

enum { GRAPH_OPS_MAX = 32, GRAPH_HELD_MAX = 160, GRAPH_NAMES_MAX = 100 };

struct graph_dims {
    int64_t d[4];
};

struct graph_tensor {
    cudnnBackendDescriptor_t desc;
    struct graph_dims dims, strides;
};

struct graph {
    const struct cudnn_lib *lib;
    cudnnBackendDescriptor_t held[GRAPH_HELD_MAX];
    cudnnBackendDescriptor_t op[GRAPH_OPS_MAX];
    int held_count, ops;
    int64_t names; /* the last one given to a virtual tensor */
    struct err failure;
};

/* The target of a plan: the device of a handle, or a device described to cuDNN as JSON
 * (graph_device()), which needs no device and only shows whether a graph can be planned. */
struct graph_target {
    cudnnHandle_t handle;
    cudnnBackendDescriptor_t device;
};

struct graph_plan {
    const struct cudnn_lib *lib;
    cudnnBackendDescriptor_t desc;
    int64_t workspace_bytes;
};

/* The address of the tensor of that name: device memory, or for graph_value() a value on the
 * host. */
struct graph_place {
    int64_t name;
    const void *at;
};

void graph_init(struct graph *g, const struct cudnn_lib *lib);
void graph_fini(struct graph *g);

struct graph_dims graph_dims(int64_t a, int64_t b, int64_t c, int64_t d);
/* Row-major strides for these dimensions. */
struct graph_dims graph_dense(struct graph_dims dims);
/* In memory; name is below GRAPH_NAMES_MAX and used once. */
struct graph_tensor graph_tensor(struct graph *g, int64_t name, cudnnDataType_t type,
                                 struct graph_dims dims, struct graph_dims strides);
/* One f32, given by value when the plan runs. */
struct graph_tensor graph_value(struct graph *g, int64_t name);
/* Between operations: not in memory that we see. */
struct graph_tensor graph_virtual(struct graph *g, cudnnDataType_t type, struct graph_dims dims,
                                  struct graph_dims strides);

struct graph_tensor graph_matmul(struct graph *g, const struct graph_tensor *a,
                                 const struct graph_tensor *b, struct graph_dims dims);
void graph_matmul_into(struct graph *g, const struct graph_tensor *a, const struct graph_tensor *b,
                       const struct graph_tensor *to);
struct graph_tensor graph_unary(struct graph *g, cudnnPointwiseMode_t mode,
                                const struct graph_tensor *x);
void graph_unary_into(struct graph *g, cudnnPointwiseMode_t mode, const struct graph_tensor *x,
                      const struct graph_tensor *to);
/* Of x's dimensions; b is broadcast. */
struct graph_tensor graph_binary(struct graph *g, cudnnPointwiseMode_t mode,
                                 const struct graph_tensor *x, const struct graph_tensor *b);
void graph_binary_into(struct graph *g, cudnnPointwiseMode_t mode, const struct graph_tensor *x,
                       const struct graph_tensor *b, const struct graph_tensor *to);
/* x where its row's number is at least its column's, else `other`. */
struct graph_tensor graph_lower_triangle(struct graph *g, const struct graph_tensor *x,
                                         const struct graph_tensor *other);
struct graph_tensor graph_reduce(struct graph *g, cudnnReduceTensorOp_t how,
                                 const struct graph_tensor *x, struct graph_dims dims);
void graph_reduce_into(struct graph *g, cudnnReduceTensorOp_t how, const struct graph_tensor *x,
                       const struct graph_tensor *to);
/* x seen with its last two dimensions exchanged, as `type`. */
struct graph_tensor graph_transposed(struct graph *g, cudnnDataType_t type,
                                     const struct graph_tensor *x);

/* Ends the graph and takes the best of cuDNN's proposals that can be built. With `out` NULL
 * nothing is built: 0 says that there is a proposal. */
MUST_USE int graph_plan(struct graph *g, const struct graph_target *t, struct graph_plan *out,
                        struct err *e);
void graph_plan_fini(struct graph_plan *p); /* one that was never made is fine */
/* On the handle's stream. E_CUDA when cuDNN refuses. */
MUST_USE int graph_run(const struct graph_plan *p, cudnnHandle_t handle,
                       const struct graph_place *place, int places, void *workspace);

/* A device that need not exist. */
MUST_USE int graph_device(const struct cudnn_lib *lib, const char *json,
                          cudnnBackendDescriptor_t *out, struct err *e);

#endif
