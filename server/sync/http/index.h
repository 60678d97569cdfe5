/* index.h - folder pages of web servers, as data: what nginx, Apache, lighttpd and Python write in
 * HTML, and what nginx, Caddy and our own listings say in JSON. index.c is the lister of that name,
 * too, which reads them from the top down.
 *
 * A page may be anybody's: only links exactly one level below the page's own URL count, by their
 * decoded name, which must be one that can be a path's part. All others (up, sideways, "%2e%2e",
 * sort orders) are passed over; those that look like entries but cannot be are counted.
 *
 * threads  any; pure
 * errors   E_INVALID: no such page
 */
#ifndef SERVER_SYNC_HTTP_INDEX_H
#define SERVER_SYNC_HTTP_INDEX_H

#include "common/base/err.h"
#include "common/base/slice.h"
#include "common/hash/digest.h"

struct index_item {
    struct slice name; /* decoded, without '/'; of a listing of ours that is recursive, a path */
    bool folder;
    uint64_t size_bytes;   /* UINT64_MAX: not told */
    uint64_t size_step;    /* "1.2M": some 100k */
    int64_t mtime_s;       /* INT64_MIN: not told */
    uint32_t mtime_step_s; /* 60: no seconds; 1: seconds, but in whose time zone; 0: exact */
    bool digest_known;
    struct digest digest;
};

struct index_events {
    int (*on_item)(void *arg, const struct index_item *it); /* nonzero ends it, and is returned */
    void *arg;
    uint64_t left_out; /* counted */
};

enum index_form { INDEX_HTML, INDEX_JSON };
/* url: the page's own, which links of HTML are read by. */
MUST_USE int index_read(enum index_form form, struct slice page, struct slice url,
                        struct index_events *ev, struct err *e);

#endif
