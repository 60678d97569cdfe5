/* said.h - parses the output of the rsync program: errors for the log, progress, and paths that
 * it skipped.
 *
 * A listed path that the program does not transfer (too large, or neither file nor folder nor
 * link) it does not remove either: the working tree may have an older file under that name. Those
 * paths are kept, so that the walk can leave them out.
 *
 * owns     said_fini()
 * threads  one at a time
 */
#ifndef SERVER_SYNC_EXEC_SAID_H
#define SERVER_SYNC_EXEC_SAID_H

#include "common/base/buf.h"
#include "common/base/err.h"

enum { SAID_LINE_MAX = 32 << 10, SAID_ERRORS_MAX = 16 << 10, SAID_PASSED_MAX = 64 << 20 };

struct said {
    struct buf out, err;    /* incomplete lines */
    struct buf errors;      /* the latest whole lines of stderr */
    struct buf passed;      /* skipped paths, each followed by a NUL */
    const char **passed_at; /* sorted, after said_sort() */
    size_t passed_count;
    uint64_t odd;                               /* of those: neither file, folder nor link */
    uint64_t bytes;                             /* of files, so far */
    void (*line)(void *arg, struct slice line); /* of stderr */
    void *arg;
};

void said_init(struct said *s, void (*line)(void *arg, struct slice line), void *arg);
void said_fini(struct said *s);
void said_out(struct said *s, struct slice bytes);
void said_err(struct said *s, struct slice bytes);
/* The output has ended. E_TOOBIG: more paths were skipped than are kept. */
MUST_USE int said_sort(struct said *s, struct err *e);
bool said_passed(const struct said *s, const char *path);

#endif
