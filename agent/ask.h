/* ask.h - one small question to the mirror: HEAD, a document, a commit. The answer's body is kept,
 * up to a bound.
 *
 * Redirects are followed on the mirror's own scheme, host and port only, five of them; others are
 * E_DENIED: the token and the trust in digests end there. Any status is an answer; ask_judge() says
 * what it means, with the mirror's own words.
 *
 * events   on_done exactly once, on the loop; the answer lives until it returns
 */
#ifndef AGENT_ASK_H
#define AGENT_ASK_H

#include "agent/agent.h"
#include "common/xfer/xfer.h"

enum { REASON_MAX = 512 /* bytes of a reason that are kept */ };

struct ask;

/* Why the mirror refuses: X-Error-Message, else the beginning of the body. As it came; ask_judge()
 * makes it fit to print. */
struct ask_reason {
    char text[REASON_MAX];
    size_t n;
    bool whole; /* no more of the body is wanted */
};

void ask_reason_head(struct ask_reason *r, const struct xfer_head *h);
void ask_reason_body(struct ask_reason *r, struct slice bytes);

struct ask_params {
    enum xfer_method method;
    struct slice url;
    struct slice body;
    const struct slice *fields; /* besides the token */
    size_t nfields;
    size_t body_max; /* 0: 64 KiB */
    /* A refused HEAD has no body: have GET tell the reason. The answer is the HEAD's. */
    bool head_reason;
};

struct ask_answer {
    int status;
    struct ask_reason reason;
    struct slice url; /* the last one asked */
    struct slice body;
    struct slice etag; /* p == NULL where a field is absent */
    struct slice digest;
    struct slice link;
    struct slice location;
    struct slice ranges;
    struct slice type;
    uint64_t retry_after_s; /* 0 when not said */
    uint64_t content_length;
    uint64_t upload_offset; /* 0 when not said */
    bool upload_complete;
};

struct ask *ask_start(struct xfer_loop *l, const struct agent *a, const struct ask_params *w,
                      void (*on_done)(void *arg, int rc, const struct err *why,
                                      const struct ask_answer *ans),
                      void *arg);
void ask_cancel(struct ask **ap);

/* 0 for 2xx; else E_NOTFOUND, E_DENIED, E_AGAIN (try later), E_CHANGED (412), ... and why: the
 * first line of the mirror's reason, where it gave one. */
int ask_judge(int status, const struct ask_reason *r, struct err *e);

/* The want of a transfer as this agent makes them; lines needs room for one more than nfields. */
struct xfer_params ask_xfer_params(const struct agent *a, enum xfer_method method, struct slice url,
                                   struct slice *lines, const struct slice *fields, size_t nfields);

#endif
