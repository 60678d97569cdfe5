/* watch.h - numbered rows of work, done one after another by a child that may crash, hang or give
 * up.
 *
 * The child is this program again (--from ROW --report FD behind its arguments) and says of each
 * row when it begins and how it went. A child that ends or says nothing for too long has lost the
 * row it was at; the next rows get a new child.
 */
#ifndef TESTS_GPU_WATCH_H
#define TESTS_GPU_WATCH_H

#include <stdbool.h>

enum range_answer {
    BEGUN,
    HOLDS,
    FAILS,
    NOTHING_HERE, /* nothing to check, and that is no failure: the child has said why */
    CANNOT_START, /* no row can run: the child has said why */
};

enum { WATCH_INCOMPLETE = -1, WATCH_NOTHING = -2 };

struct watch {
    char **argv; /* our own */
    int rows, limit_s;
    void (*lost)(void *arg, int row, const char *why); /* tells of a row whose child said no more */
    void *arg;
};

/* The child's side. Ends the program when nobody listens; with fd -1 nobody should. */
void watch_say(int fd, int row, enum range_answer v);
/* The number of rows that failed or were lost; WATCH_INCOMPLETE when not all could be tried,
 * WATCH_NOTHING without a device. */
int watch_run(const struct watch *w);

#endif
