/* verdict.h - explains how the rsync program ended: by its exit code, and by its stderr where
 * only that says why.
 *
 * source   rsync(1), EXIT VALUES; ssh(1), EXIT STATUS
 */
#ifndef SERVER_SYNC_EXEC_VERDICT_H
#define SERVER_SYNC_EXEC_VERDICT_H

#include "common/base/err.h"
#include "common/base/slice.h"

struct exec_ended {
    int exit_code;
    struct slice said; /* the end of its stderr */
};

/* 0: the tree is there; *partial when the program could not read all of it. The sentence is the
 * last one of the program itself. */
MUST_USE int exec_verdict(const struct exec_ended *x, bool *partial, struct err *e);

#endif
