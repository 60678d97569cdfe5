/* prefetch.h - revisions of a Hub's repositories fetched ahead of demand, file by file through the
 * cache, by the daemon itself.
 *
 *   prefetch.c  what there is to do, its rows, and who does it    prefetch_run.c  one attempt at one
 *
 * A job is one revision of one repository, with patterns of what is wanted. It is resolved to a
 * commit once; then every file that is not here is asked for as a client would, several at once.
 * Trouble with the Hub makes it wait and try again; what a person has to mend (a right, a name,
 * space) ends it. Jobs have a row (TABLE_PREFETCH): after a restart they go on, but for those that
 * were given a token, which is never written.
 *
 * owns     prefetches_close() stops what is under way; it goes on at the next start
 * threads  any; WORKERS of its own do the work. All but look and each block
 */
#ifndef SERVER_HUB_PREFETCH_H
#define SERVER_HUB_PREFETCH_H

#include "server/hub/deps.h"

struct prefetches;

enum prefetch_state {
    PREFETCH_WAITING, /* for a worker, or after trouble for its next try */
    PREFETCH_ASKING,  /* the Hub: which commit, which files */
    PREFETCH_FETCHING,
    PREFETCH_DONE,
    PREFETCH_FAILED,
    PREFETCH_STOPPED,
};
const char *prefetch_state_name(enum prefetch_state s);

struct prefetch_params {
    struct slice repo, type, id, rev;      /* "hf", "models", "org/name", "main" */
    const struct slice *include, *exclude; /* as fnmatch(3): '*' crosses '/' */
    size_t includes, excludes;
    bool pin;
    struct slice authorization; /* "Bearer hf_..."; p == NULL: none */
};
enum { PREFETCH_PATTERNS = 64, PREFETCH_PATTERN_BYTES = 512 };

struct prefetch_view {
    uint64_t id;
    char repo[64], type[16], name[256], rev[256], commit[41];
    enum prefetch_state state;
    int code; /* failed, or why it waits; 0 */
    char why[248];
    bool pin;
    uint64_t files, files_done, files_failed, bytes, bytes_done,
        here_bytes; /* here: before it began */
    uint64_t tries;
    uint64_t began_unix_s, ended_unix_s, next_unix_s;
    uint64_t gives_up_unix_s; /* of one that waits, if nothing comes until then */
};

struct prefetches *prefetches_open(const struct hub_deps *hub);
void prefetches_close(struct prefetches **pp); /* NULL is fine */

/* *joined: the same is under way already, *id is that. */
MUST_USE int prefetch_add(struct prefetches *p, const struct prefetch_params *w, uint64_t *id,
                          bool *joined, struct err *e);
/* Of the repository all that are under way, or with a revision that one; *count of them.
 * E_NOTFOUND: none. */
MUST_USE int prefetch_stop(struct prefetches *p, struct slice repo, struct slice type,
                           struct slice name, struct slice rev, unsigned *count, struct err *e);
MUST_USE int prefetch_look(struct prefetches *p, uint64_t id, struct prefetch_view *out,
                           struct err *e);
/* In the order they were asked for; not under a lock. */
int prefetch_each(struct prefetches *p, int (*each)(void *arg, const struct prefetch_view *v),
                  void *arg);
static inline bool prefetch_is_over(const struct prefetch_view *v)
{
    return v->state >= PREFETCH_DONE;
}

/* Is a file of this path among those that are wanted? Pure. */
bool prefetch_chooses(const struct prefetch_params *w, struct slice path);

#endif
