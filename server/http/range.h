/* range.h - evaluates Range, If-Range and the conditional fields (RFC 9110 13, 14) against an
 * object's validators.
 *
 * Several ranges are coalesced when they touch or overlap. If more than one remains, the answer is
 * 200, which is legal (RFC 9110 14.2).
 *
 * owns     nothing
 * threads  any; pure
 */
#ifndef SERVER_HTTP_RANGE_H
#define SERVER_HTTP_RANGE_H

#include "server/http/msg.h"

enum range_answer {
    RANGE_ANSWER_FULL,        /* 200 */
    RANGE_ANSWER_PART,        /* 206: [*first, *end) */
    RANGE_ANSWER_UNSATISFIED, /* 416 with Content-Range: bytes <star>/total */
    RANGE_ANSWER_NOT_MODIFIED,
    RANGE_ANSWER_FAILED, /* 412 */
};

struct validators {
    struct slice etag; /* with quotes, as sent; p == NULL without */
    /* A second form that conditional fields may use ("sha256-..." beside "g-..."); or none. */
    struct slice etag_alias;
    /* The origin's own, if it is weak: only for If-None-Match; or none. */
    struct slice etag_weak;
    uint64_t last_modified_s; /* unix; 0 without */
    /* A rollback brings an older date back: If-Modified-Since only matches exactly this date. */
    bool may_go_back;
    /* Two commits may be in the same second: If-Range never matches by date (RFC 9110 8.8.2.2). */
    bool is_commit_time;
    uint64_t total_bytes; /* LENGTH_UNKNOWN: ranges cannot be evaluated, the answer is 200 */
};

/* For GET and HEAD (ranges only count for GET). Sets the window for RANGE_ANSWER_FULL, too. */
enum range_answer request_judge(const struct http_req *r, const struct validators *v,
                                uint64_t *first, uint64_t *end);

/* Only parses "bytes=...", for a missing object whose length is not known yet. *end ==
 * LENGTH_UNKNOWN for "a-". A suffix range sets *suffix, and *first is the count. False: absent,
 * invalid, more than one range, or one that begins beyond any file: *first and a known *end are
 * below 2^63 + 1. */
bool range_peek(const struct http_req *r, uint64_t *first, uint64_t *end, bool *suffix);

#endif
