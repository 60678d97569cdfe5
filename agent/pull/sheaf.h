/* sheaf.h - one request for many small files, and what came of it: each checked against its digest, then staged
 * (agent/shelf/stage.h).
 *
 * Filled by sheaf_add(), sent once, read on a worker when the transfer has ended, however it has: an answer that broke off is good as
 * far as it goes. Then on_end(), and outcomes stand with the files. A sheaf that was read to its end may be cleared and used again.
 *
 * Memory: an answer of SHEAF_ANSWER_MAX.
 *
 * owns     its buffers; the files' wants are the caller's, and must live until on_end()
 * events   on_end() exactly once behind sheaf_send(), never inside it; with sheaf_cancel() not at all
 * threads  the puller's loop
 * errors   rc: E_UNSUPPORTED, the mirror knows no sheaves; those of transfers and of ask_judge(); E_PROTOCOL
 */
#ifndef AGENT_PULL_SHEAF_H
#define AGENT_PULL_SHEAF_H

#include "agent/pull/pull.h"
#include "common/codec/sheaf.h"

enum sheaf_outcome {
    SHEAF_MISSED, /* has not come */
    SHEAF_STAGED,
    SHEAF_WRONG,  /* other bytes */
    SHEAF_ITSELF, /* the mirror has it not, or gives it by itself alone */
    SHEAF_FAILED, /* could not be staged: `disk` says why */
};

struct sheaf_file {
    const struct pull_want *want;
    void *of; /* the caller's */
    enum sheaf_outcome outcome;
};

struct sheaf {
    struct list node; /* the caller's */
    struct puller *pl;
    void (*on_end)(struct sheaf *b, void *arg);
    void *arg;
    struct xfer *x; /* with a connection */
    struct buf asked, came;
    uint64_t retry_after_s; /* that the mirror asked for, else 0 */
    int rc;                 /* of the transfer, then of what is in it */
    struct err why, disk;
    struct job job;
    size_t count;
    size_t done; /* records that came whole */
    struct sheaf_file file[SHEAF_COUNT_MAX];
};

struct sheaf *sheaf_open(struct puller *pl, void (*on_end)(struct sheaf *b, void *arg), void *arg);
void sheaf_close(struct sheaf **bp); /* one that is not under way */
void sheaf_clear(struct sheaf *b);

void sheaf_add(struct sheaf *b, const struct pull_want *w, void *of); /* below SHEAF_COUNT_MAX */
/* Takes a connection, which the caller has in hand; it is given back when the transfer has ended. */
void sheaf_send(struct sheaf *b, struct slice url);
/* False: the transfer has ended, and what came is being read. */
MUST_USE bool sheaf_cancel(struct sheaf *b);

#endif
