/* artifact.h - what a job or a person requests: a file or a folder of the mirror, named by FROM.
 *
 * FROM is `hf/<owner>/<name>[@<rev>]`, a Hub repository (hub.h), or
 * `<repo>/<path>[@version][#sha256=<hex>]` below the mirror. It is put into the URL as written,
 * with blanks and other bytes encoded that no URL has. A '/' at its end names a folder. Without
 * one a file is tried first and, if there is none, the folder. A folder is listed by `GET
 * .../?recursive=1` with Accept: application/json.
 *
 * owns     artifact_fini() frees what artifacts_pull() set
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
    struct digest digest;       /* of a file, if the job states one; else zero */
    const char *const *include; /* shell patterns, matched against names in a folder; NULL: all */
    size_t ninclude;
    const char *const *exclude;
    size_t nexclude;
    /* Called once its files are known, before any is fetched. True: a folder with exactly these
     * files already exists; then none need be in the local cache. NULL: not called. */
    bool (*lay)(void *arg, const struct artifact *a);
    void *lay_arg;

    struct arena arena;
    bool is_folder;
    /* its files were not listed by the mirror, but read from known/ of the cache */
    bool known;
    bool laid;          /* lay() returned true */
    struct hub *hub;    /* NULL: not a Hub repository */
    struct digest root; /* of a folder; zero if the mirror did not state it */
    struct slice etag;  /* of a folder's listing; may be empty */
    struct slice url;   /* of the file; of a folder, the prefix of its files */
    struct artifact_file *file;
    size_t nfiles;
    size_t next; /* next file to pull */
    uint64_t size_bytes;
    uint64_t fetched_bytes; /* transferred; 0: everything was in the local cache */
    uint64_t peer_bytes;    /* of them, from other nodes */
    unsigned peers;         /* how many nodes gave chunks, for any artifact of the run */
    struct ask *ask;
    bool listing; /* requested, or about to be requested again */
    struct artifacts *run;
    unsigned tries; /* of the listing */
};

struct artifacts_params {
    const struct peer_ops *peer_ops; /* NULL: only from the mirror */
    bool (*is_gone)(void *arg); /* called now and then: is the requester gone? NULL: not called */
    void *arg;
};

/* Brings all of them into the local cache, in parallel, with a progress bar on a terminal. The
 * first failure stops the others. */
MUST_USE int artifacts_pull(const struct agent *ag, struct artifact *a, size_t count,
                            const struct artifacts_params *w, struct err *e);
/* True: it cannot change, its parts are known, and all of them are in the local cache: no request
 * is needed. */
MUST_USE bool artifact_at_hand(const struct agent *ag, struct artifact *a);
/* Do its patterns admit a name? */
bool artifact_wants(const struct artifact *a, const char *name);
/* Puts the files under dir, which is created. */
MUST_USE int artifact_place(const struct agent *ag, const struct artifact *a, const char *dir,
                            struct err *e);
/* The path of the artifact in dir: the file, the folder, or the snapshot of a Hub repository. */
void artifact_path(const struct artifact *a, const char *dir, char out[PATH_MAX]);
/* The part of dir that belongs to the artifact alone: for a Hub repository its folder in the
 * client's cache, else dir. */
void artifact_home(const struct artifact *a, const char *dir, char out[PATH_MAX]);
/* A key of its content: the file's digest, or the folder's root and patterns. */
void artifact_key(const struct artifact *a, struct digest *out);
void artifact_fini(struct artifact *a);

#endif
