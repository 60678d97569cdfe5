/* filter.h - rsync's include and exclude rules: the first that matches decides, none means in.
 *
 * "- PATTERN", "+ PATTERN", or by their long names. A pattern that begins with '/' is anchored at
 * the top; one that ends with '/' is for folders; else it is as in glob.h, where '\' counts only in
 * one with a wildcard. A pattern with a '/' inside, or "**", is held against the end of the path,
 * else against its last part; PATTERN ending in "/" and three asterisks is the folder and all in
 * it. What is below a folder that is out, is out.
 *
 * Rules come from peers, with modifiers and sides of their protocol ('/' anchored, 's' for the
 * sender's side, 'r' and 'P' for the receiver's, which do not concern us), or from our own
 * settings, where what would have no effect is refused.
 *
 * owns     copies of the rules; filter_fini()
 * threads  one at a time; once all are added, any for filter_takes()
 * errors   E_UNSUPPORTED: rules of files in folders (merge), and others we do not know; E_INVALID:
 *          filter_check(); E_TOOBIG
 * source   rsync's manual, its answers to random rules (tests/system/test_filter.py)
 */
#ifndef COMMON_CODEC_FILTER_H
#define COMMON_CODEC_FILTER_H

#include "common/base/arena.h"
#include "common/base/err.h"

enum { FILTER_RULES_MAX = 1000, FILTER_RULE_MAX = 4096 };

struct filter_rule {
    struct filter_rule *next;
    struct slice text;    /* as it travels, ends in NUL: "- *.iso" */
    struct slice pattern; /* without its leading and trailing '/' */
    bool take;
    bool anchored;
    bool folders; /* alone */
    bool negated;
    bool and_below; /* the folder too, when all that is in it matches */
    bool literal;   /* no wildcard in it */
    int slashes;    /* in the pattern: so many and one parts are held against it; -1: any ("**") */
};

struct filter {
    struct arena arena;
    struct filter_rule *first, *last;
    size_t count;
};

/* A peer's. */
MUST_USE int filter_add(struct filter *f, struct slice rule, struct err *e);
/* One of our settings. */
MUST_USE int filter_add_own(struct filter *f, struct slice rule, struct err *e);
/* E_INVALID when a "+" rule cannot be reached: a folder above what it names is out. *bad: that
 * rule. */
MUST_USE int filter_check(const struct filter *f, const struct filter_rule **bad, struct err *e);
/* path: below the top, without '/' at its ends. Its folders were in. */
bool filter_takes(const struct filter *f, struct slice path, bool is_folder);
/* The same for a peer's rules: goes_on() gets what each rule cost, in comparisons of a byte, at
 * most pattern x path; once it says no, so does this. */
bool filter_takes_while(const struct filter *f, struct slice path, bool is_folder,
                        bool (*goes_on)(void *arg, uint64_t steps), void *arg);
void filter_fini(struct filter *f);

#endif
