#include "kernels/plugin.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/base/err.h"

static void *open_beside(const char *where, const char *name)
{
    char self[PATH_MAX], path[PATH_MAX + 64];
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    char *slash;

    if (n <= 0) {
        return NULL;
    }
    self[n] = '\0';
    slash = strrchr(self, '/');
    if (slash == NULL) {
        return NULL;
    }
    *slash = '\0';
    snprintf(path, sizeof path, "%s/%s%s.so", self, where, name);
    return access(path, R_OK) == 0 ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
}

/* The function `symbol` of the shared object `name`, or NULL and the reason. */
static void *plugin_find(const char *name, const char *symbol, struct err *e)
{
    const char *why;
    void *so, *fn = NULL;

    dlerror();
    so = open_beside("", name);
    if (so == NULL) {
        so = open_beside("../lib/mirrord/", name);
    }
    if (so != NULL) {
        fn = dlsym(so, symbol);
    }
    if (fn == NULL) {
        why = dlerror();
        err_set(e, E_UNSUPPORTED, "%s.so: %s", name,
                why != NULL ? why : "this build does not have this plugin");
    }
    return fn;
}

/* ISO C has no cast from an object to a function pointer; POSIX promises that the bits are the
 * same. */
#define PLUGIN_CALL(type, fn) (*(type **)(void *)&(fn))

const struct kops *kops_cuda(int device, struct err *e)
{
    static struct kops table;
    char why[224] = "";
    void *fn;
    int rc;

    if (table.name != NULL) {
        return &table;
    }
    fn = plugin_find("trainer-cuda", "plugin_cuda", e);
    if (fn == NULL) {
        return NULL;
    }
    rc = PLUGIN_CALL(plugin_cuda_fn, fn)(device, &table, why, sizeof why);
    if (rc != 0) {
        table.name = NULL;
        err_set(e, rc, "CUDA: %s", why);
        return NULL;
    }
    return &table;
}

int comm_open_mpi(const struct kops *k, bool ordered, struct comm **out, struct err *e)
{
    void *fn = plugin_find("trainer-mpi", "plugin_mpi", e);
    char why[224] = "";
    int rc;

    *out = NULL;
    if (fn == NULL) {
        return E_UNSUPPORTED;
    }
    rc = PLUGIN_CALL(plugin_mpi_fn, fn)(k, ordered, out, why, sizeof why);
    if (rc != 0) {
        return err_set(e, rc, "MPI: %s", why);
    }
    (*out)->flight = flight_open();
    return 0;
}

static int call_nccl(uint8_t *id, int rank, int size, uint64_t timeout_ms, struct comm **out,
                     struct err *e)
{
    void *fn = plugin_find("trainer-nccl", "plugin_nccl", e);
    char why[224] = "";
    int rc;

    if (fn == NULL) {
        return E_UNSUPPORTED;
    }
    rc = PLUGIN_CALL(plugin_nccl_fn, fn)(id, rank, size, timeout_ms, out, why, sizeof why);
    if (rc != 0) {
        return err_set(e, rc, "NCCL: %s", why);
    }
    if (out != NULL) {
        (*out)->flight = flight_open();
    }
    return 0;
}

int comm_make_nccl_id(uint8_t id[COMM_ID_BYTES], struct err *e)
{
    return call_nccl(id, 0, 0, 0, NULL, e);
}

int comm_open_nccl(const uint8_t id[COMM_ID_BYTES], int rank, int size, uint64_t timeout_ms,
                   struct comm **out, struct err *e)
{
    uint8_t copy[COMM_ID_BYTES];

    *out = NULL;
    memcpy(copy, id, sizeof copy);
    return call_nccl(copy, rank, size, timeout_ms, out, e);
}
