#include "agent/preflight/nvml.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ISO C has no cast from an object to a function pointer; POSIX promises that the bits are the
 * same. A call that the library lacks is answered by this one: arguments beyond those that it takes
 * do no harm in any ABI that we are built for. */
static int no_function(void)
{
    return NVML_NO_FUNCTION;
}

static void *find_nvml_symbol(void *so, const char *name)
{
    int (*none)(void) = no_function;
    void *fn = dlsym(so, name);

    return fn != NULL ? fn : *(void **)(void *)&none;
}

static void find_nvml_calls(struct nvml *n, void *so)
{
#define CALL(call, args) *(void **)(void *)&n->call = find_nvml_symbol(so, "nvml" #call);
    NVML_CALLS(CALL)
#undef CALL
    *(void **)(void *)&n->ErrorString = dlsym(so, "nvmlErrorString");
}

const char *nvml_error(const struct nvml *n, int rc)
{
    const char *text = n->ErrorString != NULL ? n->ErrorString(rc) : NULL;

    return text != NULL ? text : "an unknown error";
}

static void take_gpu(struct nvml *n, unsigned i)
{
    struct nvml_gpu *g = &n->gpu[i];
    struct nvml_pci pci = {{0}, 0, 0, 0, 0, 0, {0}};

    snprintf(g->name, sizeof g->name, "GPU %u", i);
    g->rc = n->DeviceGetHandleByIndex_v2(i, &g->dev);
    if (g->rc != NVML_DONE) {
        g->dev = NULL;
        return;
    }
    if (n->DeviceGetPciInfo_v3(g->dev, &pci) == NVML_DONE) {
        char bdf[sizeof g->bdf];

        snprintf(bdf, sizeof bdf, "%04x:%02x:%02x.0", pci.domain & 0xffff, pci.bus & 0xff,
                 pci.device & 0xff);
        snprintf(g->name, sizeof g->name, "GPU %u (%s)", i, bdf);
        memcpy(g->bdf, bdf, sizeof bdf);
    }
    if (n->DeviceGetName(g->dev, g->model, sizeof g->model) != NVML_DONE) {
        g->model[0] = '\0';
    }
}

static int start_nvml(struct nvml *n, struct err *e)
{
    int rc = n->Init_v2();

    if (rc != NVML_DONE) {
        return err_set(e, rc == NVML_NO_FUNCTION ? E_UNSUPPORTED : E_IO,
                       "NVML cannot be initialised: %s (%d)", nvml_error(n, rc), rc);
    }
    if (n->SystemGetDriverVersion(n->driver, sizeof n->driver) != NVML_DONE) {
        n->driver[0] = '\0';
    }
    if (n->SystemGetCudaDriverVersion_v2(&n->cuda) != NVML_DONE) {
        n->cuda = 0;
    }
    rc = n->DeviceGetCount_v2(&n->n);
    if (rc != NVML_DONE) {
        return err_set(e, E_IO, "NVML cannot count the GPUs: %s (%d)", nvml_error(n, rc), rc);
    }
    n->n = n->n < NVML_GPUS ? n->n : NVML_GPUS;
    for (unsigned i = 0; i < n->n; i++) {
        take_gpu(n, i);
    }
    return 0;
}

int nvml_open(struct nvml **out, struct err *e)
{
    void *so = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    struct nvml *n;
    const char *why;

    *out = NULL;
    if (so == NULL) {
        why = dlerror();
        return err_set(e, E_NOTFOUND, "%s",
                       why != NULL ? why : "libnvidia-ml.so.1 could not be loaded");
    }
    n = NEW(struct nvml);
    find_nvml_calls(n, so);
    *out = n;
    return start_nvml(n, e);
}
