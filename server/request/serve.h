/* serve.h - the pipeline: a request's way from the parsed head to the answer.
 *
 * listen -> parse -> route -> gate -> plan -> cache -> answer. serve.c is that list on one page;
 * the other files are its steps: serve loop (what a loop has at hand), call (one request under
 * way), hot (resolved answers), need (its own small body), rendering (one of our own), index (pages
 * rewritten), tree (hosted files and folders), put (uploads), reply and refusal (how an answer is
 * worded), opening (till its first byte), frontend (the ways in).
 *
 * threads  everything on the loop of the connection; steps that block go to parts->readers or
 *          parts->disk and come back
 */
#ifndef SERVER_REQUEST_SERVE_H
#define SERVER_REQUEST_SERVE_H

#include "server/http/exchange.h"
#include "server/live/repo_set.h"

struct access_log;
struct frontend;
struct own;
struct planners;
struct serve;
struct traffic;
struct uploads;

struct serve_deps { /* what it uses; all of it lives longer */
    struct loops *loops;
    struct pool *disk;
    struct pool *readers; /* row lookups, rewriting, listings */
    struct pool *pieces; /* one thread that reads files whole, for lists of what they are made of */
    struct store *store;
    struct cache *cache;
    struct uploads *uploads;
    struct gate *gate;
    struct peers *peers;
    struct access_log *access;
    struct traffic *traffic; /* counters by repo, kind and class */
    struct repos *repos;
    struct planners *planners; /* plan/run.h */
    struct own *own;           /* for the front frontend (own/own.h) */
};

/* doors: of protocols whose clients have a root of their own, and at the end the front
 * (request/frontend.h); live as long. */
struct serve *serve_open(const struct serve_deps *deps, const struct frontend *const *doors);
struct exchange_handler serve_handler(struct serve *s);
/* Gives every loop its serve loop, with the repos in force: after each reload. */
void serve_settle(struct serve *s);
/* Resolved answers of that key (p == NULL: of the whole repo) are void on every loop. Any
 * thread. */
void serve_forget(struct serve *s, struct slice repo, struct slice key);
/* Empties the desks: no request comes any more, no step is out. Waits for every loop, and for
 * uploads to let go. */
void serve_quiet(struct serve *s);
struct serve_stats { /* documents of our own (request/rendering.h) */
    uint64_t made, shared, memory_bytes, file_bytes;
};
void serve_stats(struct serve *s, struct serve_stats *out);
/* After the loops are gone. */
void serve_close(struct serve **sp);

#endif
