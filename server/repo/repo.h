/* repo.h - one repository as configured, and its protocol adapter.
 *
 * plan() decides what to do about a request; it does no I/O. When it needs a result first (a row, a
 * head, a tree entry, the content of documents) it returns a PLAN_DEPENDENCY; plan/run.h provides
 * the result and calls plan() again, at most RESULTS_MAX times.
 *
 * owns     repo_close() or the last repo_release() frees it
 * threads  plan and answer run on loops, rewrite on a pool thread; a repo is immutable after open
 *          (a reload makes new ones)
 * errors   repo_open(): E_CONFIG with the place
 */
#ifndef SERVER_REPO_REPO_H
#define SERVER_REPO_REPO_H

#include "server/cache/cache.h"
#include "server/cache/lookup.h"
#include "server/http/principal.h"
#include "server/repo/rule.h"
#include "server/repo/sync_conf.h"
#include "server/upload/changes.h"
#include "server/upload/form_upload.h"
#include "server/upload/upload.h"

struct repo;
struct plan;

/* DEPENDENCY_ROWS: the values of all rows whose keys begin with `key`, in sequence, up to 64 KiB.
 * DEPENDENCY_PAGES: what ops->paged_fetch makes of a document and of those that its Link fields
 * (rel="next") lead to. DEPENDENCY_BODY: the request's, up to BODY_BYTES; E_TOOBIG is a result,
 * too. DEPENDENCY_RIGHT: whether the caller has the right `name` to the subject `path`, in addition
 * to the plan's own right. DEPENDENCY_PUT: writes the row `key`: `path` in place of `name`; p ==
 * NULL: there was none. E_CHANGED: it was written by another request since. */
enum dependency_kind {
    DEPENDENCY_ROW,
    DEPENDENCY_ROWS,
    DEPENDENCY_HEAD,
    DEPENDENCY_ENTRY,
    DEPENDENCY_PAGES,
    DEPENDENCY_BODY,
    DEPENDENCY_RIGHT,
    DEPENDENCY_PUT
};
enum { BODY_BYTES = 1 << 20 };

struct dependency {
    enum dependency_kind kind;
    enum table table;           /* DEPENDENCY_ROW, DEPENDENCY_ROWS, DEPENDENCY_PUT */
    struct slice key;           /* DEPENDENCY_PAGES: what to make of it; for ops->paged_fetch */
    struct slice name, version; /* DEPENDENCY_HEAD; DEPENDENCY_RIGHT: "read", "publish" */
    struct digest root;         /* DEPENDENCY_ENTRY; DEPENDENCY_PAGES of_blob: the file's */
    struct slice path;
    /* follow links on the way; the result's entry.path is then where they led */
    bool follow;
    struct lookup lookup; /* DEPENDENCY_PAGES: its first part */
    /* DEPENDENCY_PAGES: its one part is a file of a tree, and `lookup` only has its name. */
    bool of_blob;
    bool one_part;  /* DEPENDENCY_PAGES: its Link is not followed */
    bool elsewhere; /* DEPENDENCY_ROW: another mirror of the cluster may have it */
};

struct result { /* the result of a dependency; rc 0 or E_NOTFOUND, for DEPENDENCY_PAGES any */
    struct dependency dependency;
    int rc;
    struct slice bytes; /* DEPENDENCY_ROW, DEPENDENCY_ROWS, DEPENDENCY_PAGES, DEPENDENCY_BODY */
    /* --- DEPENDENCY_PAGES --- */
    int status; /* the origin's 401, 403, 404, 410; else the status for rc; 0: rc is 0 */
    struct slice code,
        /* x-error-code and x-error-message of the origin's refusal; or what went wrong */
        message;
    uint64_t until_unix_s; /* how long it is valid; UINT64_MAX: for ever */
    /* when the origin last sent or confirmed it; of several parts the earliest */
    uint64_t spoken_unix_s;
    bool stale; /* it is a stale answer of the origin, */
    /* ... because the origin is in trouble; if not, it is being revalidated */
    bool in_trouble;
    struct slice next;  /* with one_part: the origin's URL of the next part; p == NULL: none */
    struct snap snap;   /* DEPENDENCY_HEAD */
    struct entry entry; /* DEPENDENCY_ENTRY */
};
enum { RESULTS_MAX = 12, RESULTS_CHANGES = 2 };
struct results {
    size_t count;
    /* How often the origin had other bytes than the plan assumed (lookup.content), at most
     * RESULTS_CHANGES. Answers from before since_unix_s are outdated. */
    unsigned changes;
    uint64_t since_unix_s;
    struct result result[RESULTS_MAX];
};

/* Reads a body that describes changes (PUT_CHANGES), as it comes. Pool threads, one at a time. */
struct put_reader {
    void *(*open)(const struct repo *r);
    /* A status in *out: refused, and the rest is not read. end: these were the last bytes. */
    int (*read)(void *state, struct slice bytes, bool end, struct changes *to,
                struct upload_reply *out, struct err *e);
    void (*close)(void *state); /* NULL is fine */
};

/* May the caller publish that? For subjects named by the form; RIGHT_TOKEN has admitted the
 * request. */
struct put_sight {
    bool (*may)(const void *arg, struct slice subject);
    const void *arg;
};
/* Reads a form with a file in it (PUT_FORM), as it comes. Pool threads, one at a time. */
struct form_reader {
    /* p and sight outlive it. */
    void *(*open)(const struct repo *r, const struct plan *p, const struct put_sight *sight);
    /* A status in *out: refused, and the rest is not read. */
    int (*read)(void *state, struct slice bytes, struct form_upload *to, struct upload_reply *out,
                struct err *e);
    /* These were all bytes: publishes, or refuses. */
    int (*finish)(void *state, uint64_t now_unix_s, struct form_upload *to,
                  struct upload_reply *out, struct err *e);
    void (*close)(void *state);
};

/* Another representation of a file, made from its bytes while they are sent. */
struct framing {
    uint64_t (*framed)(
        uint64_t plain); /* the length of the first `plain` bytes of the file when framed, */
    uint64_t (*plain)(
        uint64_t framed); /* and how many of the file's bytes are in the first `framed` bytes */
    /* [first, end) of the framed bytes of a file of plain_bytes. Takes `inner`, which begins at the
     * first byte of the file in that range and covers at least the range. */
    struct body *(*body)(struct body *inner, uint64_t plain_bytes, uint64_t first, uint64_t end);
};

enum { PLAN_FIELDS = 12 };
enum plan_kind { PLAN_DEPENDENCY, PLAN_LOOKUP, PLAN_BLOB, PLAN_LIST, PLAN_PUT, PLAN_REPLY };

/* Which other requests may get the same answer without their own plan. In a repo by_caller only
 * requests without an Authorization field do, unless the value says otherwise. */
enum plan_reuse {
    REUSE_USUAL, /* a document or a file: requests with this path and query; PLAN_REPLY: none */
    REUSE_ALL,   /* the same, with any Authorization field */
    REUSE_KEPT,  /* the same, and also a PLAN_REPLY of status 200, until until_unix_s */
    REUSE_NONE,  /* none */
    REUSE_ALONE  /* none, and what a maker writes is for this request alone, too */
};
/* How a document or a file is sent. */
enum plan_delivery {
    DELIVERY_STREAM, /* as its bytes arrive, also in ranges */
    /* A Range field of the request is ignored. PLAN_LOOKUP: no byte is sent before all are present
     * and verified, and lookup.digest is then known; a HEAD causes the download, too. */
    DELIVERY_WHOLE,
    DELIVERY_REWRITTEN /* PLAN_LOOKUP: the whole document goes through ops->rewrite first */
};

/* The result of plan(). The kind says which member of the union is valid; plan_become() changes it.
 * The fields before the union are for every kind that is answered with a document or a file, unless
 * a comment names others. */
struct plan {
    enum plan_kind kind;
    enum {
        RIGHT_READ,
        RIGHT_PUBLISH,
        RIGHT_TOKEN, /* any token: its reader checks the right that the body requires (PUT_FORM) */
        /* none: only callers that were given its name know it (an upload, a sealed URL) */
        RIGHT_KNOWN
    } right;              /* checked by the gate on `subject` first */
    struct slice subject; /* "<repo>/<path>" */
    struct slice also;    /* a second subject for which the right is needed; p == NULL: none */
    /* PLAN_REPLY: the body: what, why, what to do. PLAN_LIST: for ops->list; for a folder as HTML,
     * the canonical path that was requested. PLAN_PUT: for ops->put_answer. */
    struct slice text;
    /* Redirects: relative. PLAN_LIST: the beginning of links to the next part; for a folder as HTML
     * its path with a '/', if the request lacks that. */
    struct slice location;
    /* Names a rendering ("json", "html"); part of the response cache's key. PLAN_PUT: for
     * ops->put_answer. */
    struct slice variant;
    struct slice content_type;  /* our own, if the origin gives none */
    struct slice cache_control; /* for the client; p == NULL: derived from the class */
    /* with quotes, instead of the cache's own; p == NULL: the cache's */
    struct slice etag;
    /* sent in this framing, under its own etag; NULL: unframed */
    const struct framing *framing;
    uint64_t until_unix_s;                 /* how long the plan's results are valid; 0: for ever */
    struct http_field fields[PLAN_FIELDS]; /* further ones of the reply */
    size_t nfields;
    enum cache_state state;
    /* the answer is from the cache: `state` is its Cache-Status, from the plan's results */
    bool cached;
    enum plan_reuse reuse;
    enum plan_delivery delivery;
    /* Not PLAN_PUT: the answer depends on what uploads have brought to this tree, or on the upload
     * with this id. In a cluster another mirror may have them. p == NULL: it does not. */
    struct slice uploads_tree, uploads_id;
    union {
        struct dependency dependency; /* PLAN_DEPENDENCY */
        struct {                      /* PLAN_LOOKUP */
            struct lookup lookup;
            enum {
                FIELDS_ORIGIN, /* the origin's fields are passed on */
                FIELDS_OWN,    /* none of them, nor its type */
                FIELDS_KNOWN   /* the same; etag and lookup.size_bytes suffice for a HEAD */
            } fields_of;
        };
        struct { /* PLAN_BLOB, PLAN_LIST */
            struct snap snap;
            struct slice name;  /* of the tree; PLAN_LIST: p == NULL: the list of trees */
            struct entry entry; /* PLAN_BLOB: digest, size; PLAN_LIST: path = folder */
            /* PLAN_LIST: */
            /* what to list, for ops->list; 0: a folder, or the repo's trees (plan_folder()) */
            int form;
            bool recursive;
            bool html;   /* a folder as a page of ours (page/html.h) */
            bool expand; /* with more data on each path */
            /* lists of trees: leave out what the caller may not read; there is a token */
            bool sift;
            bool posted; /* also for a POST, whose body, in `text`, says what to list */
        };
        struct {                                   /* PLAN_PUT */
            struct put put;                        /* executed by upload/upload.h */
            const struct put_reader *reader;       /* PUT_CHANGES */
            const struct form_reader *form_reader; /* PUT_FORM */
        };
        struct { /* PLAN_REPLY: a refusal, a redirect, or a document of the adapter */
            int status;
            struct slice allow; /* 405: the allowed methods */
            /* 200: if it takes a while, a maker's thread makes the body of `text`
             * (request/rendering.h), once for all plans with the same `variant`. NULL: the body is
             * `text`. */
            int (*word)(const struct repo *r, const struct plan *p, struct buf *out, struct err *e);
            struct slice folder; /* for word() */
            bool deep;           /* for word(), too */
            /* REUSE_KEPT: the key of the object that it is made of; it is forgotten with that */
            struct slice key;
            /* 200 for a file whose bytes are not needed: the lookup that would fetch them. */
            const struct lookup *brings;
        };
    };
};

struct repo_conf { /* one `repo` section, as parsed */
    const char *name, *protocol;
    struct origin_settings origin; /* url NULL: none */
    const struct rule_conf *rules;
    size_t rules_count;
    bool anonymous_read;
    uint64_t max_object_bytes; /* 0: no limit */
    const char *unknown_host;  /* pypi: "register" (default), "drop" */
    const char *public_url;    /* the server's; or NULL */
    /* hf: "service", "caller"; NULL: service if it has an authorization, else caller. */
    const char *credentials;
    const char *const *names; /* oci: the hosts that `?ns=` may name */
    size_t names_count;
    bool names_set;             /* `names` was configured, even if empty */
    const char *const *forward; /* generic: fields of the client that are passed to the origin */
    size_t forward_count;
    /* generic: fields of the origin that are passed to clients, beside the usual ones */
    const char *const *pass_headers;
    size_t pass_headers_count;
    const char *const *targeted_cache_control; /* generic: used in place of Cache-Control */
    size_t targeted_cache_control_count;
    const char *xet;              /* hf, hosted: off, large, on; NULL: the default */
    const struct sync_conf *sync; /* synced; or NULL */
    const char *source;           /* "file:line" of the section, for errors */
};

struct rewrite_out {
    struct buf body;           /* the rewritten document */
    struct slice content_type; /* static */
    struct batch *rows;        /* to be committed (lazily) before the document is sent; or NULL */
};

struct listing_sight { /* may the caller read "<repo>/<tree>/"? */
    bool (*sees)(const void *arg, struct slice subject);
    const void *arg;
};
struct listing_out {
    struct buf *body;
    struct slice content_type; /* static */
    struct buf next;           /* the address of the list's next part; empty: there is none */
};

struct paged_fetch_part { /* one document of several, in order */
    const struct dependency *dependency;
    struct slice doc;
    struct slice url; /* its origin, after redirects */
    bool first, last;
};

struct repo_ops {
    const char *name; /* as in the configuration: protocol = "pypi" */
    /* Its clients put a token into the path: "/t/<token>/<repo>/...", or after the repo. */
    bool path_tokens;
    /* Its answers have absolute links: by public_url, else by the URL that the client used. */
    bool by_host;
    /* Container clients also reach it below /v2/: plan() then gets such paths (oci/path.h) and
     * recognizes them by oci_asked(). */
    bool registry;
    /* Each of its mutable documents is valid on its own, even an old one. While one is fresh, no
     * client's Cache-Control causes a request to the origin, and a stale one is served while it is
     * revalidated, unless a rule says otherwise. Not for archives whose indexes must be of one
     * generation (apt, dnf). */
    bool stale_first;
    /* Reads the adapter's own options from conf; repo->state belongs to the adapter. */
    int (*open)(struct repo *r, const struct repo_conf *conf, struct err *e);
    void (*close)(struct repo *r);
    /* path: the request's path below the repo, raw, without the leading '/'. Fills *out from
     * arena. */
    int (*plan)(const struct repo *r, const struct http_req *req, struct slice path,
                const struct principal *who, const struct results *results, struct arena *arena,
                struct plan *out, struct err *e);
    /* Optional, for DEPENDENCY_PAGES: adds a part to *out, which keeps what was written for earlier
     * parts. After the last part *out is the result's bytes. Runs on a pool thread. */
    int (*paged_fetch)(const struct repo *r, const struct paged_fetch_part *part, struct buf *out,
                       struct err *e);
    /* Optional: further fields of an error: a refusal of the origin, or trouble of the cache or of
     * ours. why: in words. */
    void (*failed)(const struct repo *r, const struct plan *p, int status, struct slice why,
                   struct arena *arena, struct http_reply *reply);
    /* Optional: further reply fields for a 200 of this plan. */
    void (*answer)(const struct repo *r, const struct plan *p, const struct answer *a,
                   struct arena *arena, struct http_reply *reply);
    /* Optional: further fields of the answer to a PLAN_PUT, and its status and body in another
     * format. */
    void (*put_answer)(const struct repo *r, const struct plan *p, struct upload_reply *u,
                       struct arena *arena, struct http_reply *reply);
    /* Optional: converts an index document of the origin to the one that is sent. url: where the
     * document came from. */
    int (*rewrite)(const struct repo *r, const struct plan *p, struct slice doc,
                   struct slice content_type, struct slice url, struct rewrite_out *out,
                   struct err *e);
    /* For PLAN_LIST: writes the listing. sight: for a list of trees; NULL: all of them. Runs on a
     * maker's thread. */
    int (*list)(const struct repo *r, const struct plan *p, struct store *st,
                const struct listing_sight *sight, struct listing_out *out, struct err *e);
    /* Optional, for a repo by_caller: may everybody still have what everybody was once given under
     * this key? Runs on a pool thread. */
    bool (*is_open)(const struct repo *r, struct slice key, struct store *st);
    /* Optional: converts a key that no request's path spells to its lookup, without digest and URL.
     * False: it is not such a key. */
    bool (*kept)(const struct repo *r, struct slice key, struct arena *arena, struct lookup *out);
    /* Optional: its reader of that name (cache/lookup.h); NULL: there is none. */
    const struct lookup_reader *(*reader)(struct slice name);
};

struct repo_owner { /* owner of repos that were opened together */
    _Atomic unsigned holds;
    void (*last)(struct repo_owner *o); /* none of them is held any more: closes them */
};

struct repo {
    const char *name;
    const struct repo_ops *ops;
    struct origin *origin; /* NULL: hosted, or synced by rsync */
    bool synced;           /* answers only from its published snapshot */
    /* For people: the origin's URL, of whatever scheme, without a user; NULL: hosted. */
    const char *shown_origin;
    const char *holds; /* of a synced repo: "debian", "conda", "rpm"; NULL: anything */
    struct rules *rules;
    bool anonymous_read;
    /* Answers depend on the Authorization field: the adapter passes it on, or sends requests with
     * it. */
    bool by_caller;
    /* the beginning of absolute links; NULL: the URL that the client used */
    const char *public_url;
    uint64_t max_object_bytes;
    /* Files of this size or more are also offered by Xet's protocol (hf/xet.h). */
    uint64_t xet_from_bytes;
    /* For a registry: hosts that `?ns=` may name; ends with NULL, or NULL. */
    const char **names;
    /* Fields of the client that are passed to the origin (forward.h): sorted by name, lower
     * case. */
    char **forward;
    size_t forwards;
    char **pass; /* pass_headers (origin_field.h), in lower case */
    size_t passes;
    struct slice *targets; /* targeted_cache_control, in lower case */
    size_t ntargets;
    unsigned slot;            /* for its counters (request/traffic.h) */
    void *state;              /* the adapter's own */
    struct repo_owner *owner; /* NULL: the opener closes it, and it is never held */
    /* Incremented by publish, rollback and reload: resolved answers of earlier generations are
     * void. */
    _Atomic uint64_t generation;
    _Atomic uint64_t requests, bytes_out, hits; /* for the page */
};

/* A held repo stays valid until it is released. Any thread. */
struct repo *repo_hold(struct repo *r);
void repo_release(struct repo **rp);
MUST_USE int repo_open(const struct repo_conf *conf, struct repo **out, struct err *e);
void repo_close(struct repo **rp);
const struct repo_ops *repo_ops_find(const char *protocol); /* repos.def; NULL: unknown */
#define REPO(protocol) extern const struct repo_ops repo_##protocol;
#include "server/repo/repos.def"
#undef REPO

/* Splits "<repo>/<rest>" of a raw request path; root: the listener's repo or NULL. Reserved
 * segments (route.c) give NULL with *reserved set. */
struct route {
    struct repo *repo; /* NULL: for no repo */
    struct slice path; /* below the repo, raw */
    bool reserved;
    struct slice ns; /* registry/route.h: the value of ?ns=, in the arena; p == NULL: none */
};
struct repo *repo_named(struct repo *const *repos, size_t count, struct slice name); /* or NULL */
struct route route_of(struct repo *const *repos, size_t count, struct slice path, const char *root);

#endif
