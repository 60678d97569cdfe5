#include "agent/lazy/lazy.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sysexits.h>

static _Noreturn void abort_missing_symbol(const struct lazy_library *l, const char *lacks)
{
    const char *why = dlerror();

    fprintf(stderr, "trainagent: %s %s: %s; install %s\n", l->file, lacks,
            why != NULL ? why : "unknown error", l->package);
    _Exit(EX_UNAVAILABLE);
}

static void *find_library_symbol(struct lazy_library *l, const char *name)
{
    void *so = atomic_load(&l->so);
    void *at;

    if (so == NULL) {
        so = dlopen(l->file, RTLD_NOW | RTLD_LOCAL); /* two threads at once get the same one */
        if (so == NULL) {
            abort_missing_symbol(l, "could not be loaded");
        }
        atomic_store(&l->so, so);
    }
    at = dlsym(so, name);
    if (at == NULL) {
        abort_missing_symbol(l, "lacks a required function");
    }
    return at;
}

void *lazy_kept(struct lazy_library *l, _Atomic(void *) *kept, const char *name)
{
    void *at = atomic_load_explicit(kept, memory_order_acquire);

    if (at == NULL) {
        at = find_library_symbol(l, name);
        atomic_store_explicit(kept, at, memory_order_release);
    }
    return at;
}
