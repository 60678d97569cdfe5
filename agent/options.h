/* options.h - the command line of `trainagent [options] VERB ...`, from options.def.
 *
 * Options may stand anywhere before a "--", those of verbs as well: which verb they belong to is
 * looked at when it is known.
 *
 * owns     texts point into argv, which is put in another order
 * threads  one at a time in the process (getopt)
 * errors   E_USAGE: what, and the nearest option's name
 */
#ifndef AGENT_OPTIONS_H
#define AGENT_OPTIONS_H

#include <stdio.h>

#include "agent/command.h"

enum options_next { OPTIONS_DONE, OPTIONS_HELP, OPTIONS_VERSION };

/* An enum options_next, or an E_*. Fills *v and its agent; v->argv is then the verb and what stands
 * behind it, also of a line that asks for help. *said: a bit an option. */
MUST_USE int options_read(struct verb_line *v, int argc, char **argv, uint64_t *said,
                          struct err *e);
/* Do all that were said belong to the verb? A number of ranks that is passed over in silence is a
 * job on one GPU. */
MUST_USE int options_check(const char *verb, uint64_t said, struct err *e);
/* Below the title a line each of the options that are this verb's own; of everybody's where verb is
 * NULL. Nothing where there are none. */
void options_help(const char *verb, const char *title, FILE *to);

#endif
