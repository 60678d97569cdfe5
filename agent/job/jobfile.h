/* jobfile.h - a job file (libconfuse syntax): what to fetch, what to run, what to publish.
 *
 *   mirror = "http://mirror:8080"
 *   artifact "corpus" { from = "datasets/wiki.tar.zst" sha256 = "..." unpack = true }
 *   artifact "model"  { from = "models/me/gpt2/" include = {"*.safetensors"} exclude = {"*.bin"} }
 *   run { command = {"trainer", "train", "--data", "{corpus}/" "*.bin", "--out", "{out}"}
 *         ranks = auto restarts = 3 }
 *   publish { from = "{out}" to = "models/me/wiki-gpt2" }
 *   preflight { gpus = 8 driver = "550" disk_free = "100g" }
 *
 * threads  one at a time in the process (common/codec/settings.h)
 * errors   E_NOTFOUND: no such file; E_CONFIG: "file:line: what, why, what to do"
 */
#ifndef AGENT_JOB_JOBFILE_H
#define AGENT_JOB_JOBFILE_H

#include "agent/nodes.h"
#include "agent/preflight/expect.h"
#include "common/base/arena.h"
#include "common/base/err.h"
#include "common/hash/digest.h"

struct job_artifact {
    const char *name;
    const char *from;
    struct digest digest; /* zero: not given */
    bool unpack;
    const char *const *include;
    size_t ninclude;
    const char *const *exclude;
    size_t nexclude;
};

struct job_publish {
    const char *from;
    const char *to;
};

struct jobfile {
    struct arena arena;
    const char *mirror; /* or several, with commas between them; NULL: not given */
    struct job_artifact *artifact;
    size_t nartifacts;
    const char **command; /* NULL-terminated; command[0] NULL: nothing to run */
    size_t ncommand;
    unsigned ranks; /* 0: auto */
    unsigned restarts;
    uint64_t grace_ms;
    uint64_t backoff_ms;
    struct nodes_said nodes;
    const char *out; /* NULL: the job's own folder */
    struct job_publish *publish;
    size_t npublish;
    bool preflight; /* the node is checked first */
    struct expect expect;
};

MUST_USE int jobfile_read(const char *path, struct jobfile *out, struct err *e);
void jobfile_fini(struct jobfile *j);

/* Replaces "{name}" and "{out}"; "{{" is a brace. value() returns NULL for an unknown name:
 * E_NOTFOUND and *unknown. A file that jobfile_read() accepted has only the job's own names. */
MUST_USE int jobfile_fill(const char *text, const char *(*value)(void *arg, struct slice name),
                          void *arg, struct buf *out, struct slice *unknown, struct err *e);

#endif
