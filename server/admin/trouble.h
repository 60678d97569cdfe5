/* trouble.h - the problems of a running daemon that need a person: what happened, since when, and
 * what to do about it.
 *
 * Only lasting conditions are listed: an origin whose last TROUBLE_FAILURES requests failed, a
 * sync that failed or waits for approval, a refused reload, a disk or a store that cannot be
 * written, stored files that were found damaged, a certificate that expires soon or is not valid
 * yet, a cluster whose bucket cannot be used or fails its check. What an operator chose (a pause, a
 * hold after a rollback, a drain) is not a problem.
 *
 * threads  any; no disk
 */
#ifndef SERVER_ADMIN_TROUBLE_H
#define SERVER_ADMIN_TROUBLE_H

#include "server/admin/sample.h"

enum { TROUBLE_FAILURES = 3 };

struct trouble {
    /* "store", "disk", "cluster", "damage", "certificate", "origin", "sync", "held", "reload" */
    const char *kind;
    const char *repo;      /* NULL: it concerns the whole daemon */
    const char *what;      /* "the last 5 requests to the origin failed: connection refused" */
    const char *todo;      /* a sentence, commands in `backticks` */
    uint64_t since_unix_s; /* 0: not known */
};

/* Calls each() for every problem, the gravest first. whole: for readers who may see everything.
 * Others do not see error texts of a private repository's origin, of the configuration or of the
 * disk. Returns the number of problems; each may be NULL. */
size_t trouble_each(const struct sample *s, bool whole,
                    void (*each)(void *arg, const struct trouble *t), void *arg);
/* "trouble": [{"kind", "repo", "what", "todo", "since_unix_s"}]. kind: only these; NULL: all. */
void trouble_json(const struct sample *s, bool whole, const char *kind, struct buf *out);

#endif
