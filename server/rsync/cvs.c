#include "server/rsync/cvs.h"

enum { ENTRY_STEPS = 8 }; /* of a budget: an entry of a list is looked at */

static const char *const ignored[] = {
    "RCS",         "SCCS",         "CVS",   "CVS.adm", "RCSLOG", "cvslog.*", "tags", "TAGS",
    ".make.state", ".nse_depinfo", "*~",    "#*",      ".#*",    ",*",       "_$*",  "*$",
    "*.old",       "*.bak",        "*.BAK", "*.orig",  "*.rej",  ".del-*",   "*.a",  "*.olb",
    "*.o",         "*.obj",        "*.so",  "*.exe",   "*.Z",    "*.elc",    "*.ln", "core",
    ".svn/",       ".git/",        ".hg/",  ".bzr/",
};

int cvs_rules(struct filter *f, struct err *e)
{
    int rc = 0;

    for (size_t i = 0; i < ARRAY_LEN(ignored) && rc == 0; i++) {
        struct buf rule = BUF_INIT(32);
        buf_addf(&rule, "- %s", ignored[i]);
        rc = filter_add(f, buf_slice(&rule), e);
        buf_free(&rule);
    }
    return rc;
}

/* Is an entry of the view in that folder? */
static int concerns(const struct view *v, struct slice folder, struct err *e)
{
    for (uint32_t i = 0; i < v->count; i++) {
        int rc = budget_spend(v->budget, ENTRY_STEPS, e);
        if (rc != 0) {
            return rc;
        }
        if (slice_eq(list_folder(v->list, view_at(v, i)), folder)) {
            return err_set(e, E_UNSUPPORTED,
                           "-C is not served for this tree: its .cvsignore files are not read as "
                           "rules; give the rules themselves (--exclude)");
        }
    }
    return 0;
}

int cvs_judge(const struct view *v, struct err *e)
{
    int rc = 0;

    for (uint32_t i = 0; i < list_count(v->list) && rc == 0; i++) {
        const struct list_entry *en = list_at(v->list, i);
        rc = budget_spend(v->budget, 1, e);
        if (rc == 0 && (list_type(en) == LIST_FILE || list_type(en) == LIST_LINK) &&
            slice_eqs(list_name(v->list, en), ".cvsignore")) {
            rc = concerns(v, list_folder(v->list, en), e);
        }
    }
    return rc;
}
