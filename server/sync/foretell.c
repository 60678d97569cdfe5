/* foretell.c - what a dry run says: the plan, entry by entry, into the run's log. */
#include <inttypes.h>

#include "common/codec/units.h"
#include "server/store/seek.h"
#include "server/sync/run_priv.h"

enum { SAID_MAX = 5000 }; /* of a log that keeps twice as many lines */

struct telling {
    struct run *r;
    uint64_t said, unsaid;
    size_t at; /* in the roster: both are in the order of paths */
};

/* "+ path, 123 bytes": added; "~" changed; "-" removed. */
static void tell(struct telling *x, char what, struct slice path, bool sized, uint64_t bytes)
{
    if (x->said++ >= SAID_MAX) {
        x->unsaid++;
    } else if (sized) {
        run_say(x->r, "%c " SLICE_FMT ", %" PRIu64 " bytes", what, SLICE_ARG(path), bytes);
    } else {
        run_say(x->r, "%c " SLICE_FMT, what, SLICE_ARG(path));
    }
}

static int on_old(void *arg, const struct entry *en)
{
    struct telling *x = arg;
    struct roster *roster = x->r->plan.roster;

    if (slice_eq(en->path, x->r->plan.own)) {
        return 0;
    }
    while (x->at < roster_count(roster)) {
        struct sync_entry listed;
        int order;
        roster_get(roster, x->at, &listed);
        order = slice_cmp(listed.path, en->path);
        if (order == 0) {
            return 0;
        }
        if (order > 0) {
            break;
        }
        x->at++;
    }
    tell(x, '-', en->path, en->type == ENTRY_FILE, en->size_bytes);
    return 0;
}

static int tell_listed(struct telling *x, struct err *e)
{
    const struct plan_of_run *p = &x->r->plan;
    struct seek base;
    int rc = 0;

    seek_open(&base, p->store, &p->base);
    for (size_t i = 0; rc == 0 && i < roster_count(p->roster); i++) {
        struct sync_entry en;
        const struct entry *old;
        if (p->fate[i] == FATE_SAME) {
            continue;
        }
        roster_get(p->roster, i, &en);
        rc = seek_get(&base, en.path, &old, e);
        if (rc == 0 || rc == E_NOTFOUND) {
            tell(x, rc == 0 ? '~' : '+', en.path,
                 en.type == SYNC_FILE && en.size_bytes != SYNC_SIZE_UNKNOWN, en.size_bytes);
            rc = 0;
        }
    }
    seek_close(&base);
    return rc;
}

int run_foretell(struct run *r, struct err *e)
{
    struct telling x = {.r = r};
    int rc = tell_listed(&x, e);

    if (rc == 0 && r->plan.has_base && !r->keep_gone) {
        rc = tree_walk(r->plan.store, &r->plan.base, SLICE(""), SLICE_NONE, on_old, &x, e);
    }
    if (x.unsaid != 0) {
        run_say(r, "and %" PRIu64 " %s more", x.unsaid, plural(x.unsaid, "entry", "entries"));
    }
    return rc;
}
