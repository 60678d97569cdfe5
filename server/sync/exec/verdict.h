/* verdict.h - what the rsync program's end means: its exit code, and what it said on stderr where
 * that alone tells.
 *
 * source   rsync(1), EXIT VALUES; ssh(1), EXIT STATUS
 */
#ifndef SERVER_SYNC_EXEC_VERDICT_H
#define SERVER_SYNC_EXEC_VERDICT_H

#include "common/base/err.h"
#include "common/base/slice.h"

struct exec_ended {
    int exit_code;
    struct slice said; /* the last of its stderr */
};

/* 0: the tree is there, *partial when not all of it could be read. The sentence is the program's
 * last own. */
MUST_USE int exec_verdict(const struct exec_ended *x, bool *partial, struct err *e);

#endif
