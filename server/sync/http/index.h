/* index.h - reads folder pages of web servers: the HTML of nginx, Apache, lighttpd and Python,
 * and the JSON of nginx, Caddy and our own listings. index.c also has the lister of that name,
 * which reads pages from the top down.
 *
 * A page is not trusted. Only links exactly one level below the page's own URL count, by their
 * decoded name, which must be valid as part of a path. All others (up, sideways, "%2e%2e", sort
 * orders) are ignored; links that look like entries but are invalid are counted.
 *
 * threads  any; pure
 * errors   E_INVALID: not such a page
 */
#ifndef SERVER_SYNC_HTTP_INDEX_H
#define SERVER_SYNC_HTTP_INDEX_H

#include "common/base/err.h"
#include "common/base/slice.h"
#include "common/hash/digest.h"

struct index_item {
    struct slice name; /* decoded, without '/'; in a recursive listing of ours it is a path */
    bool folder;
    uint64_t size_bytes;   /* UINT64_MAX: not stated */
    uint64_t size_step;    /* for "1.2M" some 100k */
    int64_t mtime_s;       /* INT64_MIN: not stated */
    uint32_t mtime_step_s; /* 60: no seconds; 1: seconds, but of an unknown time zone; 0: exact */
    bool digest_known;
    struct digest digest;
};

struct index_events {
    /* a nonzero result ends it and is returned */
    int (*on_item)(void *arg, const struct index_item *it);
    void *arg;
    uint64_t left_out; /* counted */
};

enum index_form { INDEX_HTML, INDEX_JSON };
/* url: the page's own, by which its HTML links are resolved. */
MUST_USE int index_read(enum index_form form, struct slice page, struct slice url,
                        struct index_events *ev, struct err *e);

#endif
