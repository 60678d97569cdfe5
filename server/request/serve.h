/* serve.h - the pipeline: the way of a request from the parsed head to the answer.
 *
 * listen -> parse -> route -> gate -> plan -> cache -> answer. serve.c is that list on one page;
 * the other files are its steps: serve_loop (what a loop has), request (one request under way),
 * response_cache (resolved answers), rendering (a document of ours), index (rewritten pages), tree
 * (hosted files and folders), put (uploads), reply and refusal (the words of an answer), frontend
 * (the entry points).
 *
 * owns     struct serve, from serve_open() to serve_close()
 * threads  everything on the loop of the connection; steps that block go to deps->readers or
 *          deps->disk and come back
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

struct serve_deps { /* the parts that it uses; all of them live longer */
    struct loops *loops;
    struct pool *disk;
    struct pool *readers; /* row lookups, rewriting, listings */
    struct pool *pieces;  /* one thread that reads whole files, for their lists of pieces */
    struct pool *content; /* waits for the cluster's bucket; NULL: this mirror stands alone */
    struct store *store;
    struct cluster *cluster; /* NULL: this mirror stands alone */
    struct cache *cache;
    struct uploads *uploads;
    struct gate *gate;
    struct peers *peers;
    struct access_log *access;
    struct traffic *traffic; /* counters by repo, kind and class */
    struct repos *repos;
    struct planners *planners; /* plan/run.h */
    struct own *own;           /* for the front (own/own.h) */
};

/* doors: the frontends of protocols whose clients have a root of their own, and last the front
 * (request/frontend.h). They live as long as the server. */
struct serve *serve_open(const struct serve_deps *deps, const struct frontend *const *doors);
struct exchange_handler serve_handler(struct serve *s);
/* Gives every loop its serve loop, with the repos in force. Call it after each reload. */
void serve_settle(struct serve *s);
/* Invalidates the resolved answers of that key (p == NULL: of the whole repo) on every loop. Any
 * thread. */
void serve_forget(struct serve *s, struct slice repo, struct slice key);
/* Empties the serve loops, when no request comes any more and no step is out. Waits for every loop
 * and for uploads to end. */
void serve_quiet(struct serve *s);
struct serve_stats { /* documents made by this server (request/rendering.h) */
    uint64_t made, shared, memory_bytes, file_bytes;
};
void serve_stats(struct serve *s, struct serve_stats *out);
/* After the loops are gone. */
void serve_close(struct serve **sp);

#endif
