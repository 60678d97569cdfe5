/* silence.h - does an origin answer at all? What its requests, taken together, say of that.
 *
 *            nothing heard for `patience`,            a request that was sent in doubt
 *            or a request failed without a word       got no word either
 *     HEARD ----------------------------> DOUBTED ----------------------------> SILENT
 *       ^                                 |    ^   KEPT_MS without a new sign      |
 *       |           any word              |    +------------------------------------+
 *       +---------------------------------+-----------------------------------------+
 *
 * In doubt requests go out as ever, but nobody waits for one longer than `patience`. Of a silent
 * origin nobody waits for anything; one request now and then asks whether it is back.
 *
 * threads  none of its own; time is an argument
 */
#ifndef SERVER_FETCH_SILENCE_H
#define SERVER_FETCH_SILENCE_H

#include "common/base/err.h"

enum origin_word {
    ORIGIN_HEARD,   /* it has answered, or was never asked */
    ORIGIN_DOUBTED, /* it did not answer when it was asked last */
    ORIGIN_SILENT,  /* and not when it was asked again, a few seconds ago at most */
};

struct silence {
    enum origin_word word;
    unsigned waiting;  /* requests that are out and have no word */
    uint64_t since_ms; /* nothing was heard since then, though somebody waited */
    uint64_t again_ms; /* DOUBTED: when the first request was sent since; 0: none was */
    uint64_t seen_ms;  /* SILENT: the last sign of that */
    uint64_t probe_ms; /* SILENT: the next request may go out */
    struct err why;    /* of a request that failed; code 0: it was only waited for */
};

void silence_asked(struct silence *s, uint64_t patience_ms, uint64_t now_ms);
/* A request that was out is not any more, and had no word: given up, or tried again. */
void silence_left(struct silence *s, uint64_t patience_ms, uint64_t now_ms);
/* The same, and that was its end: E_NETWORK, E_TIMEOUT. began_ms: its first try. */
void silence_failed(struct silence *s, uint64_t began_ms, uint64_t now_ms, const struct err *why);
void silence_answered(struct silence *s, uint64_t now_ms); /* a request that was out has its word */
void silence_heard(struct silence *s, uint64_t now_ms);    /* more of an answer has come */

/* why: in words, unless it was heard. */
enum origin_word silence_word(struct silence *s, uint64_t patience_ms, uint64_t now_ms,
                              struct err *why);
/* Of a silent one: may a request ask whether it is back? A yes counts as that request. */
bool silence_probe(struct silence *s, uint64_t now_ms);

#endif
