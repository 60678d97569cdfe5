#include "server/sync/engine.h"

#define ENGINE(name) extern const struct engine_ops engine_##name;
#include "server/sync/engines.def"
#undef ENGINE

static const struct engine_ops *const engines[] = {
#define ENGINE(name) &engine_##name,
#include "server/sync/engines.def"
#undef ENGINE
    NULL,
};

static bool speaks(const struct engine_ops *ops, struct slice url)
{
    for (size_t i = 0; ops->schemes[i] != NULL; i++) {
        size_t n = strlen(ops->schemes[i]);
        if (url.n > n + 3 && memcmp(url.p, ops->schemes[i], n) == 0 &&
            memcmp(url.p + n, "://", 3) == 0) {
            return true;
        }
    }
    return false;
}

const struct engine_ops *engine_find(const char *name, struct slice url)
{
    for (size_t i = 0; engines[i] != NULL; i++) {
        if ((name == NULL || strcmp(name, engines[i]->name) == 0) && speaks(engines[i], url)) {
            return engines[i];
        }
    }
    return NULL;
}

enum sync_class sync_class_of(int rc, bool of_download)
{
    switch (rc) {
    case 0:
        return SYNC_OK;
    case E_NETWORK:
    case E_TIMEOUT:
    case E_BUSY:
    case E_AGAIN:
    case E_PROTOCOL:
    case E_IO:
        return SYNC_RETRY;
    case E_NOTFOUND:
    case E_CHANGED:
    case E_CORRUPT:
        return of_download ? SYNC_ENTRY : rc == E_NOTFOUND ? SYNC_FINAL : SYNC_RETRY;
    case E_NOSPACE:
        return SYNC_HERE;
    case E_CANCELLED:
        return SYNC_STOPPED;
    default:
        return SYNC_FINAL;
    }
}
