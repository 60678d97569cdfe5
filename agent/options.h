/* options.h - parses the command line of `trainagent [options] VERB ...`, from options.def.
 *
 * Options may stand anywhere before a "--", including those of verbs: to which verb they belong
 * is checked when the verb is known.
 *
 * owns     texts point into argv, which is reordered
 * threads  one at a time in the process (getopt)
 * errors   E_USAGE: what, and the nearest option's name
 */
#ifndef AGENT_OPTIONS_H
#define AGENT_OPTIONS_H

#include <stdio.h>

#include "agent/command.h"

enum options_next { OPTIONS_DONE, OPTIONS_HELP, OPTIONS_VERSION };

/* An enum options_next, or an E_*. Sets the fields of *v and its agent; v->argv is then the verb
 * and what follows it, also for a line with --help. *said: one bit per option. */
MUST_USE int options_read(struct verb_line *v, int argc, char **argv, uint64_t *said,
                          struct err *e);
/* Do all given options belong to the verb? An ignored number of ranks would mean a job on one
 * GPU. */
MUST_USE int options_check(const char *verb, uint64_t said, struct err *e);
/* Writes the title and a line for each option of this verb; verb NULL: the common ones. Nothing
 * if there are none. */
void options_help(const char *verb, const char *title, FILE *to);

#endif
