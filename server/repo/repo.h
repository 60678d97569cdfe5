/* repo.h - one repository as configured, and the protocol adapter that speaks for it (STYLE 7).
 *
 * plan() looks at a request and says what is to be done; it does no I/O. When it needs a fact first (a row, a head, a tree
 * entry, a document) it says NEED; the corridor resolves it and asks again with the fact added, at most 8 times.
 *
 * threads  plan and answer run on loops, rewrite on a pool thread; a repo is immutable after open (a reload makes new ones)
 */
#ifndef SERVER_REPO_REPO_H
#define SERVER_REPO_REPO_H

#include "server/cache/cache.h"
#include "server/cache/want.h"
#include "server/http/principal.h"
#include "server/repo/rule.h"
#include "server/store/upload.h"

struct repo;

/* NEED_ROWS: the values of all rows whose keys begin with `key`, one behind the other, up to 64 KiB. */
enum need_kind { NEED_ROW, NEED_ROWS, NEED_HEAD, NEED_ENTRY, NEED_DOCUMENT };

struct need {
    enum need_kind kind;
    enum table table; /* NEED_ROW, NEED_ROWS */
    struct slice key;
    struct slice name, version; /* NEED_HEAD */
    struct digest root;         /* NEED_ENTRY */
    struct slice path;
    struct want want; /* NEED_DOCUMENT: its bytes */
};

struct fact { /* what came of a need; rc 0 or E_NOTFOUND */
    struct need need;
    int rc;
    struct slice bytes; /* NEED_ROW, NEED_ROWS, NEED_DOCUMENT */
    struct snap snap;   /* NEED_HEAD */
    struct entry entry; /* NEED_ENTRY */
};
enum { FACTS_MAX = 8 };
struct facts {
    size_t count;
    struct fact fact[FACTS_MAX];
};

enum plan_kind { PLAN_NEED, PLAN_WANT, PLAN_BLOB, PLAN_LIST, PLAN_PUT, PLAN_REPLY };
struct plan {
    enum plan_kind kind;
    enum {
        RIGHT_READ,
        RIGHT_PUBLISH
    } right;              /* checked by the gate on `subject` before anything is done */
    struct slice subject; /* "<repo>/<path>" */
    struct need need;
    struct want want;
    bool rewrite; /* the document goes through ops->rewrite before it is sent */
    struct slice
        variant; /* of the rewritten document: names the rendering ("json", "html"), part of the hot key */
    struct entry entry; /* PLAN_BLOB: digest, size; PLAN_LIST: path = folder */
    struct snap snap;   /* of PLAN_BLOB and PLAN_LIST */
    struct slice name;  /* PLAN_LIST: tree name, p == NULL: list of trees */
    bool recursive, html;
    struct put put;            /* PLAN_PUT: executed by store/upload.h */
    int status;                /* PLAN_REPLY: refusal, redirect */
    struct slice text;         /* body: what, why, what to do */
    struct slice location;     /* redirects, relative */
    struct slice allow;        /* 405: the methods that are taken */
    struct slice content_type; /* our own, for PLAN_BLOB and PLAN_WANT when the origin gives none */
    struct slice cache_control; /* for the client; p == NULL: derived from the class */
};

struct repo_conf { /* one `repo` section, as read */
    const char *name, *protocol;
    struct origin_settings origin; /* url NULL: none */
    const struct rule_conf *rules;
    size_t rules_count;
    bool anonymous_read;
    uint64_t max_object_bytes; /* 0: any */
    const char *unknown_host; /* pypi: "register" (default), "drop" */
    const char *source;       /* "file:line" of the section, for errors */
};

struct rewrite_out {
    struct buf body;           /* rewritten document */
    struct slice content_type; /* static */
    struct batch *rows;        /* to be committed (lazily) before the document is sent; or NULL */
};

struct repo_ops {
    const char *name; /* as the configuration says it: protocol = "pypi" */
    /* Reads its own options from conf; repo->state is its own. */
    int (*open)(struct repo *r, const struct repo_conf *conf, struct err *e);
    void (*close)(struct repo *r);
    /* path: the request's path below the repo, raw, without the leading '/'. Fills *out from arena. */
    int (*plan)(const struct repo *r, const struct http_req *req, struct slice path,
                const struct principal *who, const struct facts *facts, struct arena *arena,
                struct plan *out, struct err *e);
    /* Optional: further reply fields for a 200 of this plan. */
    void (*answer)(const struct repo *r, const struct plan *p, const struct answer *a,
                   struct arena *arena, struct http_reply *reply);
    /* Optional: an index document as the origin gave it -> as we give it. url: where the document came from. */
    int (*rewrite)(const struct repo *r, const struct plan *p, struct slice doc,
                   struct slice content_type, struct slice url, struct rewrite_out *out,
                   struct err *e);
    /* Optional: a key that no request's path spells -> what it is wanted as, but for digest and URL. False: it is none. */
    bool (*kept)(const struct repo *r, struct slice key, struct arena *arena, struct want *out);
};

struct repo {
    const char *name;
    const struct repo_ops *ops;
    struct origin *origin; /* NULL: hosted */
    struct rules *rules;
    bool anonymous_read;
    uint64_t max_object_bytes;
    unsigned slot; /* of its counters (admin/traffic.h) */
    void *state;   /* the adapter's */
    _Atomic uint64_t
        generation; /* bumped by publish, rollback, reload: resolved answers of older ones are void */
    _Atomic uint64_t requests, bytes_out, hits; /* for the page */
};

MUST_USE int repo_open(const struct repo_conf *conf, struct repo **out, struct err *e);
void repo_close(struct repo **rp);
const struct repo_ops *repo_ops_find(const char *protocol); /* repos.def; NULL: unknown */
#define REPO(protocol) extern const struct repo_ops repo_##protocol;
#include "server/repo/repos.def"
#undef REPO

/* "<repo>/<rest>" of a raw request path; root: the listener's repo or NULL. Reserved segments (DESIGN 2.2) give NULL with
 * *reserved set. */
struct route {
    struct repo *repo;
    struct slice path; /* below the repo, raw */
    bool reserved;
};
struct route route_of(struct repo *const *repos, size_t count, struct slice path, const char *root);

#endif
