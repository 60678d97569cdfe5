/* range.h - Range, If-Range and the conditional fields (RFC 9110 13, 14), judged against what we
 * have.
 *
 * Several ranges are coalesced when they touch or overlap; if more than one remains, the answer is
 * 200 (legal, RFC 9110 14.2).
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
    /* a second form that conditionals accept ("sha256-..." beside "g-..."); or none */
    struct slice etag_alias;
    /* the origin's own, where that is weak: for If-None-Match alone; or none */
    struct slice etag_weak;
    uint64_t last_modified_s; /* unix; 0 without */
    /* A rollback brings an older date: If-Modified-Since holds for the very same one alone. */
    bool may_go_back;
    /* Two commits may share a second: If-Range never holds by the date (RFC 9110 8.8.2.2). */
    bool is_commit_time;
    uint64_t total_bytes; /* LENGTH_UNKNOWN: ranges cannot be judged, answers 200 */
};

/* GET and HEAD (ranges are for GET only). Writes the window on RANGE_ANSWER_FULL too. */
enum range_answer request_judge(const struct http_req *r, const struct validators *v,
                                uint64_t *first, uint64_t *end);

/* Parses "bytes=..." alone, for a cold object whose length is not known yet. *end == LENGTH_UNKNOWN
 * for "a-". A suffix range sets *suffix and *first is the count. false: absent, invalid, more than
 * one range, or one that begins where no file has bytes: *first and a known *end stay below 2^63 +
 * 1. */
bool range_peek(const struct http_req *r, uint64_t *first, uint64_t *end, bool *suffix);

#endif
