/* cvs.h - what a client's -C (--cvs-exclude) leaves out of a view.
 *
 * These are the names of files that CVS ignores by itself, as rules after the client's own. The installed server reads more
 * such names from .cvsignore files in the tree. No file of a tree is read for rules here, so a view that one of them would
 * narrow is refused.
 *
 * threads  any
 * errors   E_UNSUPPORTED: a .cvsignore file concerns the view; E_TOOBIG: too many rules, or the budget is spent
 * source   rsync(1), -C
 */
#ifndef SERVER_RSYNC_CVS_H
#define SERVER_RSYNC_CVS_H

#include "server/rsync/view.h"

MUST_USE int cvs_rules(struct filter *f, struct err *e);
MUST_USE int cvs_judge(const struct view *v, struct err *e);

#endif
