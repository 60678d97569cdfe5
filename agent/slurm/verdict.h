/* verdict.h - how it went with all that a job asked for: may its tasks start, and what are they told?
 *
 * The worker makes one and writes it on the ticket; each task's prolog reads it there. Texts of strangers (a comment, a mirror) become
 * lines of printable bytes: nothing in them can be a line of its own, for Slurm takes "export NAME=value" of a task's prolog.
 *
 * owns     verdict_fini(); the policy outlives it
 * threads  one at a time
 */
#ifndef AGENT_SLURM_VERDICT_H
#define AGENT_SLURM_VERDICT_H

#include "agent/slurm/outcome.h"
#include "common/base/buf.h"

struct verdict {
    const struct node_slurm *policy;
    bool fails;     /* the tasks do not start */
    struct buf say; /* JSON texts */
    struct buf artifacts;
};

void verdict_init(struct verdict *v, const struct node_slurm *policy);
/* from NULL: all of them. */
void verdict_add(struct verdict *v, const char *from, enum outcome o, bool optional,
                 uint64_t size_bytes, uint64_t fetched_bytes, const char *why);
MUST_USE int verdict_say(const struct verdict *v, int ticket, const char *job, const char *staged,
                         struct err *e);
void verdict_fini(struct verdict *v);

/* As a task's prolog reads it. */
struct verdict_read {
    struct arena arena;
    const char *staged; /* NULL: no folder */
    const char *const *say;
    size_t nsay;
    bool done; /* false: whoever was to bring it was killed */
    bool run;
};
void verdict_read(struct slice text, struct verdict_read *out);
void verdict_read_fini(struct verdict_read *v);
/* Is it the last word? Half of one is none. */
bool verdict_is_done(struct slice text);
/* Printable, on one line. */
void verdict_tame(char *text);

#endif
