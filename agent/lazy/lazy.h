/* lazy.h - libraries that are loaded when they are first called, not when the program starts.
 *
 * libcurl, which has libssl, and libarchive bring 40 others along: 5 of the 7 ms of CPU that a
 * start of trainagent takes (1.7 without them, Debian 12). What Slurm starts for each job, and for
 * each task, needs neither where all is on the local cache. So the program is linked with the
 * forwarders of this folder in place of them; whoever calls them need not know.
 *
 * threads  any
 * errors   a library that is not there, or lacks a call, ends the program with 69 and a line on
 *          stderr: a start would have failed as well
 */
#ifndef AGENT_LAZY_LAZY_H
#define AGENT_LAZY_LAZY_H

#include <stdatomic.h>

struct lazy_library {
    const char *file;    /* "libcurl.so.4" */
    const char *package; /* where it is to be had */
    _Atomic(void *) so;  /* NULL: not loaded yet */
};

/* The address of a call, which is kept; the first of any loads the library. */
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
