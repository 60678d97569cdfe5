#include "agent/preflight/cudalib.h"

#include <dlfcn.h>

int cudalib_open(struct cudalib *out, struct err *e)
{
    void *so = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    const char *lacks = NULL, *why;

    *out = (struct cudalib){0};
    if (so == NULL) {
        why = dlerror();
        return err_set(e, E_NOTFOUND, "%s", why != NULL ? why : "libcuda.so.1 could not be loaded");
    }
    /* ISO C has no cast from an object to a function pointer; POSIX promises that the bits are the
     * same. */
#define CALL(name, symbol, args)                                                                   \
    *(void **)(void *)&out->name = dlsym(so, symbol);                                              \
    lacks = out->name == NULL ? symbol : lacks;
    CUDA_CALLS(CALL)
#undef CALL
    if (lacks != NULL) {
        return err_set(e, E_UNSUPPORTED, "libcuda.so.1 lacks %s", lacks);
    }
    out->rc = out->Init(0);
    return 0;
}

const char *cudalib_error(const struct cudalib *c, int rc)
{
    const char *text = NULL;

    return c->GetErrorString(rc, &text) == 0 && text != NULL ? text : "an unknown error";
}
