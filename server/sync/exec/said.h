/* said.h - the lines that the rsync program writes: errors for the log, progress, and what it
 * leaves as it was.
 *
 * What it does not take although it is listed (too large, neither file nor folder nor link), it
 * does not remove either: the working tree may hold what was there before under that name. Those
 * paths are kept, so the walk can leave them out.
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
    struct buf out, err;    /* lines that have no end yet */
    struct buf errors;      /* whole lines of stderr, the latest */
    struct buf passed;      /* paths, each with a NUL behind it */
    const char **passed_at; /* sorted, after said_sort() */
    size_t passed_count;
    uint64_t odd;                               /* of those: no file, folder or link */
    uint64_t bytes;                             /* of files, so far */
    void (*line)(void *arg, struct slice line); /* of stderr */
    void *arg;
};

void said_init(struct said *s, void (*line)(void *arg, struct slice line), void *arg);
void said_fini(struct said *s);
void said_out(struct said *s, struct slice bytes);
void said_err(struct said *s, struct slice bytes);
/* No more comes. E_TOOBIG: more was passed over than is kept. */
MUST_USE int said_sort(struct said *s, struct err *e);
bool said_passed(const struct said *s, const char *path);

#endif
