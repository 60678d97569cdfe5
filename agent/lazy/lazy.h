/* lazy.h - loads libraries when they are first called, not when the program starts.
 *
 * libcurl, which needs libssl, and libarchive load 40 others: 5 of the 7 ms of CPU that a start
 * of trainagent takes (1.7 without them, Debian 12). The programs that Slurm starts for each job,
 * and for each task, need neither if everything is in the local cache. So the program is linked
 * with the forwarders of this folder in place of the libraries; callers do not notice.
 *
 * threads  any
 * errors   a library that is missing, or lacks a function, ends the program with 69 and a line on
 *          stderr: a start would have failed as well
 */
#ifndef AGENT_LAZY_LAZY_H
#define AGENT_LAZY_LAZY_H

#include <stdatomic.h>

struct lazy_library {
    const char *file;    /* "libcurl.so.4" */
    const char *package; /* the package that has it */
    _Atomic(void *) so;  /* NULL: not loaded yet */
};

/* The address of a function, which is kept; the first call loads the library. */
void *lazy_kept(struct lazy_library *l, _Atomic(void *) *kept, const char *name);

/* ISO C has no cast from an object to a function pointer; POSIX promises that the bits are the
 * same. */
#define LAZY(library, ret, name, params, args)                                                     \
    ret name params                                                                                \
    {                                                                                              \
        static _Atomic(void *) kept;                                                               \
        ret(*call) params;                                                                         \
                                                                                                   \
        *(void **)(void *)&call = lazy_kept(&library, &kept, #name);                               \
        return call args;                                                                          \
    }

#endif
