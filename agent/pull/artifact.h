/* artifact.h - what a job or a person asks for: a file or a folder of the mirror, by FROM.
 *
 * FROM is `hf/<owner>/<name>[@<rev>]`, a repository of a Hub (hub.h), or
 * `<repo>/<path>[@version][#sha256=<hex>]` below the mirror; it goes into the URL as written, with
 * blanks and other bytes that no URL has encoded. A '/' at its end names a folder. Without one a
 * file is tried first, and where there is none, the folder. A folder is listed by `GET
 * .../?recursive=1` with Accept: application/json.
 *
 * owns     artifact_fini() frees what artifacts_pull() filled in
 * threads  one
 */
#ifndef AGENT_PULL_ARTIFACT_H
#define AGENT_PULL_ARTIFACT_H

#include <limits.h>

#include "agent/agent.h"
#include "agent/pull/file.h"
#include "common/hash/digest.h"

struct hub;
struct peer_ops;
struct artifact {
    const char *from;
    struct digest digest;       /* of a file, when the job names one; zero else */
    const char *const *include; /* shell patterns, matched against names in a folder; NULL: all */
    size_t ninclude;
    const char *const *exclude;
    size_t nexclude;
    /* Asked once its files are known, before any is fetched: true, and somebody has laid out a
     * folder of just these; then none need be on the local cache. NULL: nobody has. */
    bool (*lay)(void *arg, const struct artifact *a);
    void *lay_arg;

    struct arena arena;
    bool is_folder;
    bool known;         /* its files were not asked for, but read from known/ of the cache */
    bool laid;          /* lay() said so */
    struct hub *hub;    /* NULL: not one of a Hub's */
    struct digest root; /* of a folder; zero when the mirror did not say */
    struct slice etag;  /* of a folder's listing; may be empty */
    struct slice url;   /* of the file; of a folder, what its names stand behind */
    struct artifact_file *file;
    size_t nfiles;
    size_t next; /* file to be pulled */
    uint64_t size_bytes;
    uint64_t fetched_bytes; /* over the wire; 0: all was on the local cache */
    uint64_t peer_bytes;    /* of them, from other nodes */
    unsigned peers;         /* how many nodes gave something, to any artifact of the run */
    struct ask *ask;
    bool listing; /* asked for, or about to be again */
    struct artifacts *run;
    unsigned tries; /* of the listing */
};

struct artifacts_params {
    const struct peer_ops *peer_ops; /* NULL: from the mirror alone */
    bool (*is_gone)(void *arg); /* asked now and then: whoever waits for it; NULL: nobody does */
    void *arg;
};

/* Brings all of them into the local cache, at the same time, with a progress bar at a terminal. The
 * first failure stops the others. */
MUST_USE int artifacts_pull(const struct agent *ag, struct artifact *a, size_t count,
                            const struct artifacts_params *w, struct err *e);
/* True: it cannot change, what it consists of is known, and all of that is on the local cache:
 * nobody need be asked. */
MUST_USE bool artifact_at_hand(const struct agent *ag, struct artifact *a);
/* Do its patterns let a name in? */
bool artifact_wants(const struct artifact *a, const char *name);
/* Puts the files under dir, which is made. */
MUST_USE int artifact_place(const struct agent *ag, const struct artifact *a, const char *dir,
                            struct err *e);
/* What of dir is the artifact: the file, the folder, the snapshot of a Hub's repository. */
void artifact_path(const struct artifact *a, const char *dir, char out[PATH_MAX]);
/* What of dir is the artifact alone: of a Hub's repository what its client calls its cache of it,
 * else dir. */
void artifact_home(const struct artifact *a, const char *dir, char out[PATH_MAX]);
/* What stands for its content: the file's digest, the folder's root and patterns. */
void artifact_key(const struct artifact *a, struct digest *out);
void artifact_fini(struct artifact *a);

#endif
