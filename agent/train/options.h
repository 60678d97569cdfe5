/* options.h - the command line of `trainer VERB`, from options.def.
 *
 * owns     texts point into argv
 * errors   E_USAGE with the nearest option's name
 */
#ifndef AGENT_TRAIN_OPTIONS_H
#define AGENT_TRAIN_OPTIONS_H

#include "common/base/err.h"
#include "common/base/slice.h"

enum verb { /* bits: an option belongs to several */
            TRAIN = 1,
            EVAL = 2,
            SAMPLE = 4,
            TOKENIZE = 8,
            BENCH = 16,
            INFO = 32,
};

struct options {
#define TEXT                                                        const char *
#define COUNT                                                       int64_t
#define NUMBER                                                      double
#define FLAG                                                        bool
#define OPTION(field, type, name, argument, otherwise, verbs, help) type field;
#include "agent/train/options.def"
#undef OPTION
#undef TEXT
#undef COUNT
#undef NUMBER
#undef FLAG
    char **path; /* arguments that are not options */
    int paths;
    bool help;
};

MUST_USE int options_parse(enum verb verb, int argc, char **argv, struct options *out,
                           struct err *e);
void options_help(enum verb verb);

#endif
