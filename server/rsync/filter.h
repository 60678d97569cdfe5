/* filter.h - rsync's include and exclude rules: the first that matches decides, none means in.
 *
 * "- PATTERN", "+ PATTERN", with modifiers ('/' anchored, 's' for the sender's side, 'r' for the receiver's, which do not concern
 * us, '!' for what does not match). A pattern that begins with '/' is anchored at the top; one that ends with '/' is for folders; "*" stops at
 * a '/', "**" does not, "?" and "[a-z]" are one byte. A pattern with a '/' inside, or "**", is held against the end of the path, else against
 * its last part; PATTERN ending in three asterisks is the folder and all in it.
 *
 * owns     copies of the rules; filter_fini()
 * threads  one at a time
 * errors   E_UNSUPPORTED: rules of files in folders (merge), and others we do not know
 * source   rsync's manual; research/sync 3 (4)
 */
#ifndef SERVER_RSYNC_FILTER_H
#define SERVER_RSYNC_FILTER_H

#include "common/base/arena.h"
#include "common/base/err.h"

enum { FILTER_RULES_MAX = 1000, FILTER_RULE_MAX = 4096 };

struct filter_rule;
struct filter {
    struct arena arena;
    struct filter_rule *first, *last;
    size_t count;
};

MUST_USE int filter_add(struct filter *f, struct slice rule, struct err *e);
/* path: below the top, without '/' at its ends. Its folders were in. */
bool filter_takes(const struct filter *f, struct slice path, bool is_folder);
void filter_fini(struct filter *f);

/* One pattern against a whole text. */
MUST_USE bool filter_match(struct slice pattern, struct slice text);

#endif
