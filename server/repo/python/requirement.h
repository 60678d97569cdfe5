/* requirement.h - parses requirements: PEP 508's "name[extra] >=1.0; marker", and files with one on
 * each line.
 *
 * owns     nothing: results are in the given arena; slices may be of the text
 * threads  any; requirements_file() reads files, and so blocks
 * errors   E_INVALID, with the place
 */
#ifndef SERVER_REPO_PYTHON_REQUIREMENT_H
#define SERVER_REPO_PYTHON_REQUIREMENT_H

#include "server/repo/python/version.h"

enum { PYEXTRAS_MAX = 64 };

struct requirement {
    struct slice text;   /* without the marker, as written */
    struct slice name;   /* normalized */
    struct slice *extra; /* likewise */
    size_t extras;
    struct pyspecs specs;
    struct slice url;    /* "name @ https://...": no index has it; p == NULL: not given */
    struct slice marker; /* p == NULL: everywhere */
};
MUST_USE int requirement_parse(struct slice text, struct arena *a, struct requirement *out,
                               struct err *e);

struct requirements_events {
    int (*on_line)(void *arg, struct slice requirement, struct err *e);
    void (*on_odd)(void *arg, struct slice line); /* an option that means nothing to a mirror */
    void *arg;
};
/* As pip reads it with -r: comments, continued lines, hashes, and -r of further files beside it. */
MUST_USE int requirements_file(const char *path, const struct requirements_events *ev,
                               struct err *e);
/* The same for bytes; path: what -r is relative to. */
MUST_USE int requirements_read(struct slice bytes, const char *path,
                               const struct requirements_events *ev, struct err *e);

#endif
