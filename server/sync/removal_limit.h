/* removal_limit.h - decides whether a list may be published over the present tree. An upstream
 * that empties itself must not empty the mirror (docs/operations.md). */
#ifndef SERVER_SYNC_REMOVAL_LIMIT_H
#define SERVER_SYNC_REMOVAL_LIMIT_H

#include "common/base/err.h"

struct removal_limit { /* how much may vanish before a run is held */
    bool set;          /* max_delete is set: it replaces the two default rules */
    double share;      /* of the entries; 0: not set */
    uint64_t count;    /* 0: not set */
};

/* "5%", "40000". False: neither form. */
MUST_USE bool removal_limit_parse(const char *text, struct removal_limit *out);
/* 0, or E_REFUSED with the reason to hold the run. before: published entries; listed: entries
 * that would be published. */
MUST_USE int removal_judge(const struct removal_limit *l, uint64_t before, uint64_t listed,
                           uint64_t gone, struct err *e);

#endif
