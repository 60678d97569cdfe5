/* finding.h - what a check found: how bad it is, a short code for scripts, a sentence, and what to
 * do.
 *
 * A check may tell of several things (eight GPUs); the worst decides, and the sentences of that
 * level stand behind one another. What is all right is told with one sentence, until something else
 * is.
 *
 * owns     plain memory, of one size: it crosses a pipe from the process that looked
 */
#ifndef AGENT_PREFLIGHT_FINDING_H
#define AGENT_PREFLIGHT_FINDING_H

#include "common/base/err.h"

enum level { LEVEL_OK, LEVEL_WARN, LEVEL_CRIT, LEVEL_SKIP }; /* as Nagios numbers them */

struct finding {
    uint8_t check; /* which: enum check */
    uint8_t level;
    uint8_t worst_allowed; /* what bad things count as: LEVEL_CRIT or LEVEL_WARN */
    uint8_t reported;      /* how many sentences stand in text */
    uint16_t more;         /* how many found no room */
    uint32_t took_ms;
    char code[24];  /* "ECC_VOLATILE"; "" when all is well */
    char text[360]; /* UTF-8, one line */
    char hint[200]; /* what to do, in one line; "" */
};

const char *level_name(enum level l); /* "OK", "WARN", "CRIT", "SKIP" */

/* As bad as the check's line in checks.def says, or the node's file. */
void finding_bad(struct finding *f, const char *code, const char *hint, const char *fmt, ...)
    PRINTF_LIKE(4, 5);
/* A warning, whatever the line says. */
void finding_warn(struct finding *f, const char *code, const char *hint, const char *fmt, ...)
    PRINTF_LIKE(4, 5);
void finding_ok(struct finding *f, const char *fmt, ...) PRINTF_LIKE(2, 3);
/* Not looked at, and why; nothing when something was found already. */
void finding_skip(struct finding *f, const char *fmt, ...) PRINTF_LIKE(2, 3);

#endif
