/* comment.h - parses what a job requests in its comment: `sbatch
 * --comment='mirror=hf/openai-community/gpt2@main,datasets/wiki.tar.zst?'`.
 *
 *   comment  text in which one word, between blanks, begins with "mirror="; a comment without such
 *            a word is ignored
 *   word     "mirror=" wish { "," wish }
 *   wish     repo "/" path [ "#sha256=" 64 hex digits ] [ "?" ]
 *            "?": the job can run without it
 *   path     letters, digits, "._@=+-" and "/"; a "/" at its end is a folder; no part is empty,
 *            ".", ".." or begins with "-"
 *
 * Anybody may write a comment, and root reads it: a comment of another form is refused whole,
 * with a message for the job's user. It cannot name a URL, a path on this machine, an option, or
 * more than WISHES_MAX names.
 *
 * owns     wishes borrow the text
 * threads  any; pure
 * errors   E_INVALID
 */
#ifndef AGENT_SLURM_COMMENT_H
#define AGENT_SLURM_COMMENT_H

#include "common/base/err.h"
#include "common/base/slice.h"

enum { COMMENT_MAX = 16 << 10, WISHES_MAX = 32, WISH_MAX = 512 };

struct wish {
    struct slice from; /* in the form of `trainagent pull` */
    bool optional;
};

struct wishes {
    struct wish one[WISHES_MAX];
    size_t n;
};

/* Appends its wishes to *out. */
MUST_USE int comment_read(struct slice comment, struct wishes *out, struct err *e);
/* One wish, of a comment or of the node's own list. */
MUST_USE int wish_read(struct slice text, struct wishes *out, struct err *e);
/* Its place below a job's folder: the path without the version of its content, "/" or "#...". */
struct slice wish_place(struct slice from);

#endif
