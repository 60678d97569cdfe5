/* cuDNN's plans without a device: it is told of one, and asked whether it would run our graphs.
 *
 * Proposals need libcuda to be there; CUDA's stub of it, which can do nothing, is enough.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <cmocka.h>

#ifdef HAVE_CUDNN
#    include <dlfcn.h>

#    include "kernels/cuda/cudnn_attention.h"
#    include "kernels/cuda/cudnn_graph.h"

/* An H200, as cuDNN 9 wants to hear of it. */
static const char h200[] =
    "{\"cudaDeviceId\":0,\"deviceVer\":900,\"driverVer\":13000,\"deviceName\":\"NVIDIA H200\","
    "\"maxGridSize\":[2147483647,65535,65535],\"maxBlockSize\":[1024,1024,64],"
    "\"regsPerBlock\":65536,\"multiProcessorCount\":132,\"smClockRateKHz\":1980000,"
    "\"memClockRateKHz\":3201000,\"l2CacheSize\":62914560,\"warpSize\":32,"
    "\"maxSharedMemoryPerBlock\":49152,\"maxSharedMemoryPerBlockOptin\":232448,"
    "\"reservedSharedMemoryPerBlock\":1024,\"maxRegistersPerSM\":65536,\"pciDeviceId\":0,"
    "\"maxCtasPerSM\":32,\"maxThreadsPerBlock\":1024,\"maxThreadsPerSM\":2048,\"isTccDriver\":0,"
    "\"supportCoopLaunch\":1,\"totalGlobalMem\":150754820096}";

struct world {
    const struct cudnn_lib *lib;
    struct graph_target target;
    char why[256];
};

static bool open_world(struct world *w)
{
    struct err e = {0};

    if (dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL) == NULL &&
        dlopen(CUDA_STUB, RTLD_NOW | RTLD_GLOBAL) == NULL) {
        snprintf(w->why, sizeof w->why, "no libcuda, nor CUDA's stub of it");
        return false;
    }
    w->lib = cudnn_lib(&e);
    if (w->lib == NULL || graph_device(w->lib, h200, &w->target.device, &e) != 0) {
        snprintf(w->why, sizeof w->why, "%s", e.text);
        return false;
    }
    return true;
}

static void planned(const struct world *w, enum dtype dt, struct attention_shape s)
{
    for (int backward = 0; backward < 2; backward++) {
        struct err e = {0};

        if (cudnn_attention_build(w->lib, &w->target, dt, &s, backward, NULL, &e) != 0) {
            fail_msg("heads of %lld, any order %d, %s: %s", (long long)s.head_dim, s.any_order,
                     backward ? "backward" : "forward", e.text);
        }
    }
}

static void test_graphs(void **state)
{
    struct world *w = *state;

    if (w->lib == NULL) {
        print_message("skipped: %s\n", w->why);
        skip();
    }
    for (int any_order = 0; any_order < 2; any_order++) {
        planned(w, DT_BF16, (struct attention_shape){64, 1024, 12, 12, 64, any_order});
        planned(w, DT_BF16, (struct attention_shape){8, 4096, 32, 8, 64, any_order});
        planned(w, DT_F16, (struct attention_shape){2, 2048, 32, 8, 128, any_order});
        planned(w, DT_BF16,
                (struct attention_shape){1, 1000, 4, 2, 128, any_order}); /* no full tiles */
        /* What attention_check() and tests/gpu/twins.c ask first. */
        planned(w, DT_BF16, (struct attention_shape){2, 256, 2, 2, 64, any_order});
        planned(w, DT_F16, (struct attention_shape){2, 256, 6, 2, 64, any_order});
        planned(w, DT_BF16, (struct attention_shape){1, 71, 4, 4, 64, any_order});
        planned(w, DT_F16, (struct attention_shape){2, 199, 4, 2, 128, any_order});
    }
}

/* What is no graph is refused with a sentence. */
static void test_refusal(void **state)
{
    struct world *w = *state;
    struct attention_shape odd = {1, 64, 2, 2, 7, false};
    struct err e = {0};

    if (w->lib == NULL) {
        skip();
    }
    assert_true(cudnn_attention_build(w->lib, &w->target, DT_BF16, &odd, false, NULL, &e) != 0);
    assert_true(e.text[0] != '\0');
}

int main(void)
{
    struct world w = {0};
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_prestate(test_graphs, &w),
        cmocka_unit_test_prestate(test_refusal, &w),
    };

    if (!open_world(&w)) {
        w.lib = NULL;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
#else
static void test_graphs(void **state)
{
    (void)state;
    print_message("skipped: this build has no cuDNN\n");
    skip();
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_graphs)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
#endif
