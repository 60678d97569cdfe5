/* removal_limit.h - may this list be published over what is there? A mirror that empties itself
 * must not empty us (docs/operations.md). */
#ifndef SERVER_SYNC_REMOVAL_LIMIT_H
#define SERVER_SYNC_REMOVAL_LIMIT_H

#include "common/base/err.h"

struct removal_limit { /* what may vanish, beyond which a run is held */
    bool set;          /* max_delete was written: the usual two rules give way to it */
    double share;      /* of the entries; 0: none is stated */
    uint64_t count;    /* 0: none is stated */
};

/* "5%", "40000". False: neither. */
MUST_USE bool removal_limit_parse(const char *text, struct removal_limit *out);
/* 0, or E_REFUSED with the reason to hold it. before: entries that are published; listed: entries
 * that would be. */
MUST_USE int removal_judge(const struct removal_limit *l, uint64_t before, uint64_t listed,
                           uint64_t gone, struct err *e);

#endif
