/* gate.h - who the client is, what it may do, and how fast.
 *
 * Tokens: "mrd_<id>_<secret>_<crc>", stored as the SHA-256 of the whole text (TABLE_TOKEN), never
 * in clear. All known tokens are in memory (they are few), so a decision needs no I/O. Rights: a
 * scope is "<right>:<glob>", where right is read, publish, sync or admin; the glob matches
 * "<repo>/<path>" ('*' crosses '/'). publish includes read, admin includes all. Limits: GCRA (an
 * 8-byte theoretical arrival time per bucket, no timers), sharded; a bounded table that drops the
 * oldest. A client with a token has the limit of that name, else of its network. One without a
 * token has its network's (the narrowest), else `anonymous`. Buckets are per token, or per
 * address (IPv6: per /64).
 *
 * threads  gate_identify, gate_spend, gate_connect: any loop, a short lock; token changes: pool
 *          threads
 */
#ifndef SERVER_GATE_GATE_H
#define SERVER_GATE_GATE_H

#include "server/gate/forwarded.h"
#include "server/http/msg.h"
#include "server/http/pace.h"
#include "server/http/principal.h"
#include "server/store/store.h"

struct limit_conf {
    const char *title;     /* "anonymous", a token's name, or a CIDR block */
    double requests_per_s; /* 0: no limit */
    uint32_t burst;
    uint64_t rate_bytes_per_s; /* 0: no limit */
    uint32_t connections;      /* 0: no limit */
};

struct gate;
MUST_USE int gate_open(struct store *s, const struct limit_conf *limits, size_t count,
                       bool plaintext_token, struct gate **out, struct err *e);
/* On a reload: tokens stay, buckets are reset. */
void gate_set_limits(struct gate *g, const struct limit_conf *limits, size_t count,
                     bool plaintext_token);
/* Of a cluster: so many mirrors share the limits, each has its part. 0 is 1. */
void gate_share(struct gate *g, uint32_t mirrors);
/* The connection limit of addresses without a limit in the settings; 0, the initial value: none. */
void gate_set_connections(struct gate *g, uint32_t most);
/* The trusted proxies; at first there are none. */
void gate_set_proxies(struct gate *g, const char *const *networks, size_t count);
/* Reads the tokens of the store anew: another mirror of the cluster has changed them. Blocks. */
MUST_USE int gate_reload_tokens(struct gate *g, struct err *e);
/* Before the loops start: whether it is known which tokens were revoked. While it is not, tokens
 * are refused with E_AGAIN. */
void gate_set_fresh(struct gate *g, bool (*fresh)(void *arg), void *arg);
void gate_close(struct gate **gp);

/* The client behind a trusted proxy; false: the request comes from its own address. Call it
 * before all other functions of the gate. */
bool gate_client(struct gate *g, const struct http_req *r, struct forwarded *out);

/* From Authorization: Bearer, or Basic with the token as password. rc 0 (maybe anonymous), or
 * E_DENIED: 401, the token is unknown, expired, or came unencrypted from another machine (text
 * says which); or E_AGAIN: 503, it is not known whether the token was revoked. Credentials that are
 * not an mrd_ token are meant for someone else (a client sends those that it has for the origin):
 * the client stays anonymous. who->token stays valid until gate_release(). */
MUST_USE int gate_identify(struct gate *g, const struct http_req *r, struct principal *who,
                           struct err *e);
/* The token of a name, for a client that has proved in another way that it owns it (rsync's
 * passwords). E_NOTFOUND: no valid one. */
MUST_USE int gate_named(struct gate *g, struct slice name, struct principal *who, struct err *e);
/* A second reference to the same token, for work that outlives the exchange. */
void gate_hold(struct gate *g, const struct principal *who, struct principal *out);
void gate_release(struct gate *g, struct principal *who);
bool gate_allows(const struct principal *who, const char *right, struct slice subject);
/* Enumerates the prefixes of subjects in `repo`, after "<repo>/", for which the right may be
 * given. *at: 0 at first. False: no more. */
bool gate_reaches(const struct principal *who, const char *right, struct slice repo, size_t *at,
                  struct slice *prefix);

struct gate_decision {
    bool pass;
    uint32_t retry_after_s;             /* if refused */
    uint64_t limit, remaining, reset_s; /* RateLimit fields; limit 0: none apply */
    struct pace *pace; /* shared by all responses to this client, counted for the caller; or NULL */
};
void gate_spend(struct gate *g, const struct principal *who, const struct sockaddr_storage *peer,
                uint64_t now_ms, struct gate_decision *out);
/* A request that passed costs n more. */
void gate_owe(struct gate *g, const struct principal *who, const struct sockaddr_storage *peer,
              uint64_t now_ms, unsigned n);
uint64_t gate_limited(struct gate *g); /* refused requests */
/* Connections of a client address: false when over its limit; a trusted proxy's connections
 * belong to many clients. Paired with gate_disconnect. */
uint32_t gate_most_connections(struct gate *g, const struct sockaddr_storage *peer);
bool gate_connect(struct gate *g, const struct sockaddr_storage *peer);
void gate_disconnect(struct gate *g, const struct sockaddr_storage *peer);

/* Tokens; all calls block. secret: room for the whole text, which is shown once. */
enum { TOKEN_TEXT = 80 };
MUST_USE int token_create(struct gate *g, struct slice name, const char *const *scopes,
                          size_t count, uint64_t expires_unix_s, char secret[TOKEN_TEXT],
                          struct err *e);
/* The text of the token in a request that gate_identify() accepted, for a client that requests it
 * in another form. */
void gate_token_text(const struct http_req *r, char secret[TOKEN_TEXT]);
MUST_USE int token_revoke(struct gate *g, struct slice name, struct err *e);
struct token_info {
    const char *name, *id;
    const char *const *scopes;
    size_t scopes_count;
    uint64_t created_unix_s, expires_unix_s; /* 0: never */
    uint64_t last_used_unix_s;               /* since the daemon started; 0: not yet */
};
void token_each(struct gate *g, void (*each)(void *arg, const struct token_info *t), void *arg);
const char *token_id(const struct token *t);
/* "mrd_", the id, "_": no secret. */
enum { TOKEN_SHOWN = 3 + 1 + 8 + 1 };
/* The length of the token at the beginning of s, also in the spelling of conda's clients ('-' for
 * '_'); 0: there is none. */
size_t token_bytes(struct slice s);

/* --- the access log: one line per response ---
 *
 * It never blocks a loop: each loop has its own lock-free ring, and a thread empties them. A line
 * for which there is no room, in the ring or after it, is dropped and counted. Lines of one loop
 * stay in order. */
struct access_log;
struct access_entry {
    const struct http_req *req;
    const struct principal *who;
    struct slice repo;
    const char *cache;    /* "HIT", "MISS", ... */
    const char *protocol; /* NULL: HTTP, as in req; else files and outcome are written too */
    const char *outcome;
    uint64_t files;
    int status;
    uint64_t bytes, took_ns, first_ns;
    bool complete;
};
MUST_USE int access_log_open(const char *path, const char *format, unsigned loops,
                             struct access_log **out, struct err *e);
/* On a reload: the new path and form; on an error nothing changes. One at a time. */
MUST_USE int access_log_set(struct access_log *l, const char *path, const char *format,
                            struct err *e);
/* Could access_log_set() write there? Changes nothing. */
MUST_USE int access_log_try(const struct access_log *l, const char *path, struct err *e);
enum { ACCESS_NO_LOOP = ~0u >> 1 };
/* loop: the index of the calling loop; ACCESS_NO_LOOP: another thread, which may wait for a lock.
 */
void access_log_write(struct access_log *l, unsigned loop, const struct access_entry *en);
void access_log_reopen(struct access_log *l); /* SIGUSR1 */
uint64_t access_log_dropped(struct access_log *l);
void access_log_close(struct access_log **lp); /* no thread writes any more; writes what is left */

#endif
