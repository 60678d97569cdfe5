#include "kernels/cuda/cudnn_lib.h"

#include <dlfcn.h>

enum { VERSION_MIN = 90600, VERSION_END = 100000 };

static bool find_cudnn_calls(struct cudnn_lib *lib, void *so)
{
    bool found = true;

    /* ISO C has no cast from an object to a function pointer; POSIX promises that the bits are the
     * same. */
#define CALL(name)                                                                                 \
    *(void **)(void *)&lib->name = dlsym(so, #name);                                               \
    found = found && lib->name != NULL;
    CUDNN_CALLS(CALL)
#undef CALL
    return found;
}

static bool taken(size_t version)
{
    return version >= VERSION_MIN && version < VERSION_END && version != 91000 && version != 91001;
}

const struct cudnn_lib *cudnn_lib(struct err *e)
{
    static struct cudnn_lib lib;
    const char *why;
    void *so;

    if (lib.version != 0) {
        return &lib;
    }
    so = dlopen("libcudnn.so.9", RTLD_NOW | RTLD_LOCAL);
    if (so == NULL) {
        why = dlerror();
        err_set(e, E_UNSUPPORTED, "%s", why != NULL ? why : "libcudnn.so.9 could not be loaded");
        return NULL;
    }
    if (!find_cudnn_calls(&lib, so)) {
        err_set(e, E_UNSUPPORTED, "libcudnn.so.9 lacks the backend interface");
    } else if (!taken(lib.cudnnGetVersion())) {
        err_set(e, E_UNSUPPORTED, "cuDNN %zu is not supported", lib.cudnnGetVersion());
    } else {
        lib.version = lib.cudnnGetVersion();
        return &lib;
    }
    dlclose(so);
    return NULL;
}
