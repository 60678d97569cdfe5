/* hints.h - tells the other mirrors through Redis or Valkey that the log has a new entry.
 *
 * A mirror that has published sends PUBLISH <channel> <entry>, and every subscriber reads the log.
 * It is what pokes (poke.h) are, without addresses, without a secret and without an answer, so the
 * client is not kept waiting for it. Redis has nothing that anybody needs: if it is gone, emptied,
 * stopped or lies, the mirrors learn of an entry at their next poll.
 *
 *   AWAY  -- connected, subscribed, answered a PING -->  UP
 *   UP    -- an error, or silent for HINTS_SILENT_MS --> AWAY; tried again after 1 s, then twice
 *            that, up to 30 s
 *
 * Several entries in a row make one message, and many messages one look at the log each
 * HINTS_APART_MS: a channel on which strangers shout costs requests to the bucket at that rate.
 *
 * owns     a thread with two connections
 * threads  any but for open and close; nothing blocks but close, and that for a lookup of a name
 * errors   none: what fails is tried again
 */
#ifndef SERVER_CLUSTER_HINTS_H
#define SERVER_CLUSTER_HINTS_H

#include "common/base/err.h"
#include "common/base/slice.h"

enum { HINTS_SILENT_MS = 10000, HINTS_APART_MS = 20 };

struct hints_settings {
    const char *url;           /* redis://host[:port][/channel] */
    const char *authorization; /* password, or user:password; NULL: none */
    const char *channel;       /* if the URL names none */
    /* The log may have this entry. On the thread of the hints; must not block. */
    void (*on_hint)(void *arg, uint64_t seq);
    void *arg;
};

struct hints_status {
    bool up;
    uint64_t since_unix_s; /* that it is up or away */
    uint64_t sent;         /* messages */
    uint64_t received;
    struct err why; /* of the last error while it is away */
};

struct hints;

/* E_CONFIG: the URL cannot be used, and why. */
MUST_USE int hints_check_url(const char *url, struct err *e);
struct hints *hints_open(const struct hints_settings *set); /* copied */
void hints_close(struct hints **hp);                        /* NULL is fine */
void hints_send(struct hints *h, uint64_t seq);
void hints_status(struct hints *h, struct hints_status *out);

#endif
