/* finding.h - the result of a check: its level, a short code for scripts, a sentence, and what to
 * do.
 *
 * A check may report several problems (eight GPUs). The worst level decides, and the sentences of
 * that level are joined. A good result has one sentence, until there is a problem.
 *
 * owns     plain memory, of one size: it is sent through a pipe from the checking process
 */
#ifndef AGENT_PREFLIGHT_FINDING_H
#define AGENT_PREFLIGHT_FINDING_H

#include "common/base/err.h"

enum level { LEVEL_OK, LEVEL_WARN, LEVEL_CRIT, LEVEL_SKIP }; /* numbered as in Nagios */

struct finding {
    uint8_t check; /* which: enum check */
    uint8_t level;
    uint8_t worst_allowed; /* the level of problems: LEVEL_CRIT or LEVEL_WARN */
    uint8_t reported;      /* the number of sentences in text */
    uint16_t more;         /* how many did not fit */
    uint32_t took_ms;
    char code[24];  /* "ECC_VOLATILE"; "" if all is well */
    char text[360]; /* UTF-8, one line */
    char hint[200]; /* what to do, in one line; "" */
};

const char *level_name(enum level l); /* "OK", "WARN", "CRIT", "SKIP" */

/* A problem, of the level in the check's line of checks.def, or in the node's file. */
void finding_bad(struct finding *f, const char *code, const char *hint, const char *fmt, ...)
    PRINTF_LIKE(4, 5);
/* A warning, whatever the line says. */
void finding_warn(struct finding *f, const char *code, const char *hint, const char *fmt, ...)
    PRINTF_LIKE(4, 5);
void finding_ok(struct finding *f, const char *fmt, ...) PRINTF_LIKE(2, 3);
/* Not checked, and why; no effect if a problem was found already. */
void finding_skip(struct finding *f, const char *fmt, ...) PRINTF_LIKE(2, 3);

#endif
