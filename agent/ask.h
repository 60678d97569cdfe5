/* ask.h - sends one small request to the mirror: HEAD, a document, a commit. The response's body
 * is kept, up to a limit.
 *
 * Of several mirrors (mirrors.h) the first one in the order of the key is asked, and the next if
 * that one fails: it cannot be reached, breaks off or has a status from 500 on. A mirror that does
 * not know the thing or the token (404, 401) has not failed, but the others are asked as well: they
 * may have heard of it before. The URL of an answer is below the first mirror again.
 *
 * Redirects are followed, at most five, to the mirror's own scheme, host and port; others are
 * E_DENIED, because the token and the trust in digests end there. Any status is a response;
 * ask_judge() explains it, with the mirror's own words.
 *
 * events   on_done exactly once, on the loop; the answer lives until it returns
 */
#ifndef AGENT_ASK_H
#define AGENT_ASK_H

#include "agent/agent.h"
#include "common/xfer/xfer.h"

enum { REASON_MAX = 512 /* kept bytes of a reason */ };

struct ask;

/* Why the mirror refuses: X-Error-Message, else the beginning of the body. As received;
 * ask_judge() makes it printable. */
struct ask_reason {
    char text[REASON_MAX];
    size_t n;
    bool whole; /* the rest of the body is not needed */
};

void ask_reason_head(struct ask_reason *r, const struct xfer_head *h);
void ask_reason_body(struct ask_reason *r, struct slice bytes);

struct ask_params {
    enum xfer_method method;
    struct slice url;
    struct slice body;
    const struct slice *fields; /* in addition to the token */
    size_t nfields;
    size_t body_max; /* 0: 64 KiB */
    /* A refused HEAD has no body: send a GET for the reason. The status is the HEAD's. */
    bool head_reason;
    const struct digest *key; /* of the order; NULL: of the URL's path */
    bool fixed;               /* the URL is one mirror's, and no other is asked */
};

struct ask_answer {
    int status;
    struct ask_reason reason;
    struct slice url; /* the last one requested */
    struct slice body;
    struct slice etag; /* p == NULL if the field is missing */
    struct slice digest;
    struct slice link;
    struct slice location;
    struct slice ranges;
    struct slice type;
    uint64_t retry_after_s; /* 0 if absent */
    uint64_t content_length;
    uint64_t upload_offset; /* 0 if absent */
    bool upload_complete;
};

struct ask *ask_start(struct xfer_loop *l, const struct agent *a, const struct ask_params *w,
                      void (*on_done)(void *arg, int rc, const struct err *why,
                                      const struct ask_answer *ans),
                      void *arg);
void ask_cancel(struct ask **ap);
/* The same, for a mirror that was too slow: it has failed. */
void ask_give_up(struct ask **ap);
/* Has a mirror with that result failed, so that another one is to be asked? status: if rc is 0. */
bool ask_has_failed(int rc, int status);

/* 0 for 2xx; else E_NOTFOUND, E_DENIED, E_AGAIN (try later), E_CHANGED (412), ... and the first
 * line of the mirror's reason, if it gave one. */
int ask_judge(int status, const struct ask_reason *r, struct err *e);

/* The parameters of a transfer as this agent makes them; lines needs room for nfields + 1. */
struct xfer_params ask_xfer_params(const struct agent *a, enum xfer_method method, struct slice url,
                                   struct slice *lines, const struct slice *fields, size_t nfields);

#endif
