/* prefetch.h - downloads revisions of a Hub's repositories ahead of demand, file by file through
 * the cache, by the daemon itself.
 *
 *   prefetch.c       the jobs, their rows and their workers
 *   prefetch_run.c   one attempt at one job
 *
 * A job is one revision of one repository, with patterns that select files. It is resolved to a
 * commit once; then every file that is missing is requested as a client would, several at a time.
 * When the Hub is in trouble, the job waits and tries again. A cause that a person has to fix (a
 * right, a name, space) ends it. Jobs have a row (TABLE_PREFETCH) and continue after a restart,
 * except those with a token, because tokens are never written.
 *
 * owns     prefetches_close() stops what is under way; it continues at the next start
 * threads  any; WORKERS threads do the work. All calls block except prefetch_look() and
 *          prefetch_each()
 * errors   E_NOTFOUND: no such job
 */
#ifndef SERVER_HUB_PREFETCH_H
#define SERVER_HUB_PREFETCH_H

#include "server/hub/deps.h"

struct prefetches;

enum prefetch_state {
    PREFETCH_WAITING, /* for a worker, or after trouble for its next try */
    PREFETCH_ASKING,  /* asks the Hub for the commit and its files */
    PREFETCH_FETCHING,
    PREFETCH_DONE,
    PREFETCH_FAILED,
    PREFETCH_STOPPED,
};
const char *prefetch_state_name(enum prefetch_state s);

struct prefetch_params {
    struct slice repo, type, id, rev;      /* "hf", "models", "org/name", "main" */
    const struct slice *include, *exclude; /* as fnmatch(3), where '*' also matches '/' */
    size_t includes, excludes;
    bool pin;
    struct slice authorization; /* "Bearer hf_..."; p == NULL: none */
};
enum { PREFETCH_PATTERNS = 64, PREFETCH_PATTERN_BYTES = 512 };

struct prefetch_view {
    uint64_t id;
    char repo[64], type[16], name[256], rev[256], commit[41];
    enum prefetch_state state;
    int code; /* why it failed or waits; 0: neither */
    char why[248];
    bool pin;
    uint64_t files, files_done, files_failed, bytes, bytes_done,
        here_bytes; /* here_bytes: those present before it began */
    uint64_t tries;
    uint64_t began_unix_s, ended_unix_s, next_unix_s;
    uint64_t gives_up_unix_s; /* while it waits: when it fails unless something arrives */
};

struct prefetches *prefetches_open(const struct hub_deps *hub);
void prefetches_close(struct prefetches **pp); /* NULL is fine */

/* *joined: the same job is under way already, and *id is its id. */
MUST_USE int prefetch_add(struct prefetches *p, const struct prefetch_params *w, uint64_t *id,
                          bool *joined, struct err *e);
/* Stops all jobs of the repository, or with a revision only that one; *count: how many. E_NOTFOUND:
 * none. */
MUST_USE int prefetch_stop(struct prefetches *p, struct slice repo, struct slice type,
                           struct slice name, struct slice rev, unsigned *count, struct err *e);
MUST_USE int prefetch_look(struct prefetches *p, uint64_t id, struct prefetch_view *out,
                           struct err *e);
/* In the order in which they were added; each() is not called under a lock. */
int prefetch_each(struct prefetches *p, int (*each)(void *arg, const struct prefetch_view *v),
                  void *arg);
static inline bool prefetch_is_over(const struct prefetch_view *v)
{
    return v->state >= PREFETCH_DONE;
}

/* Do the patterns select a file of this path? Pure. */
bool prefetch_chooses(const struct prefetch_params *w, struct slice path);

#endif
