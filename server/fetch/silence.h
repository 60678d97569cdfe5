/* silence.h - decides from all requests to an origin together whether it answers at all.
 *
 *              nothing arrived for `patience`,          a request that was sent in doubt
 *              or a request failed without a response   got no response either
 *     HEARD ----------------------------> DOUBTED ----------------------------> SILENT
 *       ^                                 |    ^   KEPT_MS without a new sign      |
 *       |           any response          |    +------------------------------------+
 *       +---------------------------------+-----------------------------------------+
 *
 * In doubt, requests are sent as usual, but clients do not wait longer than `patience` for one. For
 * a silent origin they do not wait at all; from time to time one request probes whether it is back.
 *
 * owns     nothing: plain data
 * threads  one at a time; time is an argument
 */
#ifndef SERVER_FETCH_SILENCE_H
#define SERVER_FETCH_SILENCE_H

#include "common/base/err.h"

enum origin_word {
    ORIGIN_HEARD,   /* it has answered, or was never asked */
    ORIGIN_DOUBTED, /* it did not answer the last request */
    ORIGIN_SILENT,  /* it did not answer the next one either, a few seconds ago at most */
};

struct silence {
    enum origin_word word;
    unsigned waiting;  /* requests under way without a response */
    uint64_t since_ms; /* since when nothing has arrived while requests were waiting */
    uint64_t again_ms; /* DOUBTED: when the first request was sent since; 0: none was */
    uint64_t seen_ms;  /* SILENT: the last sign of it */
    uint64_t probe_ms; /* SILENT: when the next request may be sent */
    struct err why;    /* of a failed request; code 0: the origin only did not answer */
};

void silence_asked(struct silence *s, uint64_t patience_ms, uint64_t now_ms);
/* A request without a response is no longer under way: it was canceled, or is retried. */
void silence_left(struct silence *s, uint64_t patience_ms, uint64_t now_ms);
/* The same, and it has failed for good: E_NETWORK, E_TIMEOUT. began_ms: its first try. */
void silence_failed(struct silence *s, uint64_t began_ms, uint64_t now_ms, const struct err *why);
/* a request under way has its response */
void silence_answered(struct silence *s, uint64_t now_ms);
void silence_heard(struct silence *s, uint64_t now_ms); /* more of a response has arrived */

/* why: the reason in words, unless the origin answers. */
enum origin_word silence_word(struct silence *s, uint64_t patience_ms, uint64_t now_ms,
                              struct err *why);
/* For a silent origin: may a request probe it? True counts as that request. */
bool silence_probe(struct silence *s, uint64_t now_ms);

#endif
