/* filter.h - rsync's include and exclude rules: the first match decides, and a path that no rule
 * matches is included.
 *
 * A rule is "- PATTERN" or "+ PATTERN", or has the long names. A pattern that begins with '/' is
 * anchored at the top; one that ends with '/' is for folders. Otherwise it is as in glob.h,
 * except that '\' is special only in a pattern with a wildcard. A pattern with a '/' inside, or
 * "**", is matched against the end of the path, any other against its last part. PATTERN ending
 * in "/" and three asterisks is the folder and everything in it. Everything below an excluded
 * folder is excluded.
 *
 * Rules come from peers, with the modifiers and sides of their protocol ('/' anchored, 's' for
 * the sender's side, 'r' and 'P' for the receiver's, which we ignore), or from our own settings,
 * where a rule without effect is refused.
 *
 * owns     copies of the rules; filter_fini()
 * threads  one at a time; once all are added, any for filter_takes()
 * errors   E_UNSUPPORTED: rules of files in folders (merge), and unknown ones; E_INVALID:
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
    struct slice text;    /* as sent, ends in NUL: "- *.iso" */
    struct slice pattern; /* without its leading and trailing '/' */
    bool take;
    bool anchored;
    bool folders; /* only */
    bool negated;
    bool and_below; /* the folder too, if everything in it matches */
    bool literal;   /* without a wildcard */
    int slashes;    /* '/' in the pattern: one more part is matched; -1: any number ("**") */
};

struct filter {
    struct arena arena;
    struct filter_rule *first, *last;
    size_t count;
};

/* Adds a peer's rule. */
MUST_USE int filter_add(struct filter *f, struct slice rule, struct err *e);
/* Adds a rule of our settings. */
MUST_USE int filter_add_own(struct filter *f, struct slice rule, struct err *e);
/* E_INVALID when a "+" rule has no effect, because a folder above its path is excluded. *bad:
 * that rule. */
MUST_USE int filter_check(const struct filter *f, const struct filter_rule **bad, struct err *e);
/* path: below the top, without '/' at its ends. Its folders are included. */
bool filter_takes(const struct filter *f, struct slice path, bool is_folder);
/* The same for a peer's rules: goes_on() gets the cost of each rule, in comparisons of a byte, at
 * most pattern x path. When it returns false, so does this. */
bool filter_takes_while(const struct filter *f, struct slice path, bool is_folder,
                        bool (*goes_on)(void *arg, uint64_t steps), void *arg);
void filter_fini(struct filter *f);

#endif
