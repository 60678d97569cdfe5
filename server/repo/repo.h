/* repo.h - one repository as configured, and the protocol adapter that speaks for it.
 *
 * plan() looks at a request and says what is to be done; it does no I/O. When it needs a result
 * first (a row, a head, a tree entry, what documents tell) it says NEED; plan/run.h brings it and
 * asks again with the result added, at most RESULTS_MAX times.
 *
 * threads  plan and answer run on loops, rewrite on a pool thread; a repo is immutable after open
 *          (a reload makes new ones)
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

/* DEPENDENCY_ROWS: the values of all rows whose keys begin with `key`, one behind the other, up to
 * 64 KiB. DEPENDENCY_PAGES: what ops->gather makes of a document and of those that its Link fields
 * (rel="next") lead to. DEPENDENCY_BODY: the request's, up to BODY_BYTES; E_TOOBIG is a result too.
 * DEPENDENCY_RIGHT: has the caller the right `name` to the subject `path`, beyond the one that the
 * plan itself takes? DEPENDENCY_PUT: writes the row `key`: `path` in place of `name`; p == NULL:
 * there was none. E_CHANGED: another has written it since. */
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
    struct slice key;           /* DEPENDENCY_PAGES: what is made of it; tells ops->gather */
    struct slice name, version; /* DEPENDENCY_HEAD; DEPENDENCY_RIGHT: "read", "publish" */
    struct digest root;         /* DEPENDENCY_ENTRY; DEPENDENCY_PAGES of_blob: the file's */
    struct slice path;
    bool follow;          /* links on the way; the result's entry.path is then where they led */
    struct lookup lookup; /* DEPENDENCY_PAGES: its first part */
    /* DEPENDENCY_PAGES: its one part is a file of a tree, `want` says no more than its name */
    bool of_blob;
    bool one_part; /* DEPENDENCY_PAGES: what its Link leads to is not looked at */
};

struct result { /* what came of a need; rc 0 or E_NOTFOUND, of DEPENDENCY_PAGES any */
    struct dependency dependency;
    int rc;
    struct slice bytes; /* DEPENDENCY_ROW, DEPENDENCY_ROWS, DEPENDENCY_PAGES, DEPENDENCY_BODY */
    /* DEPENDENCY_PAGES: */
    int status; /* the origin's 401, 403, 404, 410; else what to answer for rc; 0: rc is 0 */
    struct slice code,
        message;            /* x-error-code and -message of the origin's no; or what went wrong */
    uint64_t until_unix_s;  /* good so long; UINT64_MAX: for ever */
    uint64_t spoken_unix_s; /* when the origin said it last; of several parts the first time */
    bool stale;             /* this is what the origin said before, */
    bool in_trouble;        /* ... because it is in trouble: else it is being asked meanwhile */
    struct slice next; /* with one_part: where the origin has the part behind it; p == NULL: none */
    struct snap snap;  /* DEPENDENCY_HEAD */
    struct entry entry; /* DEPENDENCY_ENTRY */
};
enum { RESULTS_MAX = 12, RESULTS_CHANGES = 2 };
struct results {
    size_t count;
    /* How often the origin had other bytes than the plan rested on (want.content), RESULTS_CHANGES
     * at most; what it said before since_unix_s is old. */
    unsigned changes;
    uint64_t since_unix_s;
    struct result result[RESULTS_MAX];
};

/* Reads a body that says what is to be changed (PUT_CHANGES), as it comes. Pool threads, one at a
 * time. */
struct put_reader {
    void *(*open)(const struct repo *r);
    /* A status in *out: refused, the rest is not looked at. end: these were the last bytes. */
    int (*read)(void *state, struct slice bytes, bool end, struct changes *to,
                struct upload_reply *out, struct err *e);
    void (*close)(void *state); /* NULL is fine */
};

/* Reads a form with a file in it (PUT_FORM), as it comes. Pool threads, one at a time. */
struct
    put_sight { /* may the caller publish that? For what the form itself says; RIGHT_TOKEN has let it in */
    bool (*may)(const void *arg, struct slice subject);
    const void *arg;
};
struct form_reader {
    /* p and sight outlive it. */
    void *(*open)(const struct repo *r, const struct plan *p, const struct put_sight *sight);
    /* A status in *out: refused, the rest is not looked at. */
    int (*read)(void *state, struct slice bytes, struct form_upload *to, struct upload_reply *out,
                struct err *e);
    /* These were all: publishes, or refuses. */
    int (*finish)(void *state, uint64_t now_unix_s, struct form_upload *to,
                  struct upload_reply *out, struct err *e);
    void (*close)(void *state);
};

/* Another representation of a file, made of its bytes as they leave. */
struct framing {
    uint64_t (*framed)(
        uint64_t plain); /* how many bytes the first `plain` ones of the file become, */
    uint64_t (*plain)(
        uint64_t framed); /* and how many of the file's are within the first `framed` */
    /* [first, end) of the framed bytes of a file of plain_bytes. Takes `inner`, which begins at the
     * file's byte that is first in them and reaches at least as far. */
    struct body *(*body)(struct body *inner, uint64_t plain_bytes, uint64_t first, uint64_t end);
};

enum { PLAN_FIELDS = 12 };
enum plan_kind { PLAN_DEPENDENCY, PLAN_LOOKUP, PLAN_BLOB, PLAN_LIST, PLAN_PUT, PLAN_REPLY };

/* Who may be answered so, too, without a plan of their own. Of a repo by_caller only those without
 * an Authorization field are, unless it says otherwise. */
enum plan_reuse {
    REUSE_USUAL, /* a document or a file: whoever asks by this path and query; PLAN_REPLY: nobody */
    REUSE_ALL,   /* the same, whatever Authorization field comes */
    REUSE_KEPT,  /* the same, and a PLAN_REPLY of status 200, too, until until_unix_s */
    REUSE_NONE,  /* nobody */
    REUSE_ALONE  /* nobody, and what a maker writes for it is no other request's, either */
};
/* How a document or a file leaves. */
enum plan_delivery {
    DELIVERY_STREAM, /* as it comes, also in ranges */
    /* A Range field of the request is passed over. PLAN_LOOKUP: no byte of it before all are here
     * and verified, want.digest tells which they are then; a HEAD brings it, too. */
    DELIVERY_WHOLE,
    DELIVERY_REWRITTEN /* PLAN_LOOKUP: all of it goes through ops->rewrite first */
};

/* What plan() comes to. The kind says which member of the union holds; plan_become() changes it.
 * What stands before the union is of every kind that is answered with a document or a file, unless
 * it says another. */
struct plan {
    enum plan_kind kind;
    enum {
        RIGHT_READ,
        RIGHT_PUBLISH,
        RIGHT_TOKEN, /* any token: what it is for, the body says, and its reader judges (PUT_FORM) */
        RIGHT_KNOWN /* none is asked for: what it names is known to those alone who were told it (an upload, a sealed URL) */
    } right;        /* checked by the gate on `subject` before anything is done */
    struct slice subject; /* "<repo>/<path>" */
    struct slice also;    /* another one on which the right is needed; p == NULL: none */
    /* PLAN_REPLY: the body: what, why, what to do. PLAN_LIST: what ops->list makes of it; of a
     * folder as HTML the canonical path that was requested. PLAN_PUT: for ops->put_answer. */
    struct slice text;
    /* redirects, relative; PLAN_LIST: what links to the next part begin with; of a folder as
     * HTML its path with a '/', when the request lacks that */
    struct slice location;
    /* names a rendering ("json", "html"), part of the hot key; PLAN_PUT: for ops->put_answer */
    struct slice variant;
    struct slice content_type;  /* our own, where the origin gives none */
    struct slice cache_control; /* for the client; p == NULL: derived from the class */
    struct slice etag;          /* with quotes, instead of the cache's own; p == NULL: that one */
    const struct framing *framing;         /* sent so, under an etag of its own; NULL: as it is */
    uint64_t until_unix_s;                 /* what the plan rests on is good so long; 0: for ever */
    struct http_field fields[PLAN_FIELDS]; /* further ones of the reply */
    size_t nfields;
    enum cache_state state;
    bool cached; /* of what is here: its Cache-Status is `state`, of what the plan rests on */
    enum plan_reuse reuse;
    enum plan_delivery delivery;
    union {
        struct dependency dependency; /* PLAN_DEPENDENCY */
        struct {                      /* PLAN_LOOKUP */
            struct lookup lookup;
            enum {
                FIELDS_ORIGIN, /* the origin's fields are passed on */
                FIELDS_OWN,    /* none of them, nor its type */
                FIELDS_KNOWN /* the same; etag and want.size_bytes tell all that a HEAD asks for */
            } fields_of;
        };
        struct { /* PLAN_BLOB, PLAN_LIST */
            struct snap snap;
            struct slice name;  /* of the tree; PLAN_LIST: p == NULL: list of trees */
            struct entry entry; /* PLAN_BLOB: digest, size; PLAN_LIST: path = folder */
            /* PLAN_LIST: */
            int form; /* what of, for ops->list; 0: a folder, or the repo's trees (plan_folder()) */
            bool recursive;
            bool html;   /* a folder as a page of ours (page/html.h) */
            bool expand; /* with more of each path */
            bool sift;   /* of trees: what the caller may not read is left out; there is a token */
            bool posted; /* a POST asks for it, too: its body, in `text`, says what of */
        };
        struct {                                   /* PLAN_PUT */
            struct put put;                        /* executed by upload/upload.h */
            const struct put_reader *reader;       /* PUT_CHANGES */
            const struct form_reader *form_reader; /* PUT_FORM */
        };
        struct { /* PLAN_REPLY: refusal, redirect, a document of the adapter's */
            int status;
            struct slice allow; /* 405: the methods that are taken */
            /* 200: where it takes a while, the body is made of `text` by a maker's thread
             * (request/rendering.h), once for all whose `variant` is the same. NULL: the body is
             * `text`. */
            int (*word)(const struct repo *r, const struct plan *p, struct buf *out, struct err *e);
            struct slice folder; /* for word() */
            bool deep;           /* likewise */
            struct slice key; /* REUSE_KEPT: of the object that it is made of, and forgotten with */
            /* 200: of a file whose bytes nobody needs: what would bring them all the same */
            const struct lookup *brings;
        };
    };
};

struct repo_conf { /* one `repo` section, as read */
    const char *name, *protocol;
    struct origin_settings origin; /* url NULL: none */
    const struct rule_conf *rules;
    size_t rules_count;
    bool anonymous_read;
    uint64_t max_object_bytes; /* 0: any */
    const char *unknown_host;  /* pypi: "register" (default), "drop" */
    const char *public_url;    /* the server's; or NULL */
    /* hf: "service", "caller"; NULL: service with an authorization, else caller */
    const char *credentials;
    const char *const *names; /* oci: what `?ns=` may call it */
    size_t names_count;
    bool names_set;             /* `names` was written, maybe empty */
    const char *const *forward; /* generic: fields of the client's that go to the origin */
    size_t forward_count;
    const char *const
        *pass_headers; /* generic: fields of the origin's that reach clients, beside the usual */
    size_t pass_headers_count;
    const char *const *targeted_cache_control; /* generic: obeyed in place of Cache-Control */
    size_t targeted_cache_control_count;
    const char *xet;              /* hf, hosted: off, large, on; NULL: the usual */
    const struct sync_conf *sync; /* mirrored whole; or NULL */
    const char *source;           /* "file:line" of the section, for errors */
};

struct rewrite_out {
    struct buf body;           /* rewritten document */
    struct slice content_type; /* static */
    struct batch *rows;        /* to be committed (lazily) before the document is sent; or NULL */
};

struct listing_sight { /* may the caller read that? "<repo>/<tree>/" */
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
    struct slice url; /* where it came from, behind redirects */
    bool first, last;
};

struct repo_ops {
    const char *name; /* as the configuration says it: protocol = "pypi" */
    /* its clients put a token into the path: "/t/<token>/<repo>/...", or behind the repo */
    bool path_tokens;
    /* answers hold absolute links: by public_url, else as the client has reached us */
    bool by_host;
    /* container clients reach it below /v2/, too: plan() is then asked for such paths
     * (oci/path.h), and tells by oci_asked() */
    bool registry;
    /* Each of its mutable documents is right by itself, an old one too. While one is fresh no
     * client's Cache-Control asks the origin for it, and a stale one is served while it is
     * revalidated, unless a rule says otherwise. Not for archives whose indexes must be of one
     * generation (apt, dnf). */
    bool stale_first;
    /* Reads its own options from conf; repo->state is its own. */
    int (*open)(struct repo *r, const struct repo_conf *conf, struct err *e);
    void (*close)(struct repo *r);
    /* path: the request's path below the repo, raw, without the leading '/'. Fills *out from
     * arena. */
    int (*plan)(const struct repo *r, const struct http_req *req, struct slice path,
                const struct principal *who, const struct results *results, struct arena *arena,
                struct plan *out, struct err *e);
    /* Optional, for DEPENDENCY_PAGES: adds a part to *out, which keeps what was written for the
     * parts before; with the last part *out becomes the result's bytes. A pool thread. */
    int (*paged_fetch)(const struct repo *r, const struct paged_fetch_part *part, struct buf *out,
                       struct err *e);
    /* Optional: further fields of an answer that is none: the origin's no, trouble of the cache or
     * of ours. why: in words. */
    void (*failed)(const struct repo *r, const struct plan *p, int status, struct slice why,
                   struct arena *arena, struct http_reply *reply);
    /* Optional: further reply fields for a 200 of this plan. */
    void (*answer)(const struct repo *r, const struct plan *p, const struct answer *a,
                   struct arena *arena, struct http_reply *reply);
    /* Optional: further fields for the answer to a PLAN_PUT, and its status and body in other
     * words. */
    void (*put_answer)(const struct repo *r, const struct plan *p, struct upload_reply *u,
                       struct arena *arena, struct http_reply *reply);
    /* Optional: an index document as the origin gave it -> as we give it. url: where the document
     * came from. */
    int (*rewrite)(const struct repo *r, const struct plan *p, struct slice doc,
                   struct slice content_type, struct slice url, struct rewrite_out *out,
                   struct err *e);
    /* For PLAN_LIST: writes the listing. sight: of a list of trees, NULL: all of them. A maker's
     * thread. */
    int (*list)(const struct repo *r, const struct plan *p, struct store *st,
                const struct listing_sight *sight, struct listing_out *out, struct err *e);
    /* Optional, of a repo by_caller: may everybody still have what everybody was once given under
     * this key? A pool thread. */
    bool (*is_open)(const struct repo *r, struct slice key, struct store *st);
    /* Optional: a key that no request's path spells -> what it is wanted as, but for digest and
     * URL. False: it is none. */
    bool (*kept)(const struct repo *r, struct slice key, struct arena *arena, struct lookup *out);
};

struct repo_owner { /* of repos that were opened together */
    _Atomic unsigned holds;
    void (*last)(struct repo_owner *o); /* nobody holds one of them any more: closes them */
};

struct repo {
    const char *name;
    const struct repo_ops *ops;
    struct origin *origin; /* NULL: hosted, or synced by rsync */
    bool synced;           /* answers from its published snapshot alone */
    /* for people: the origin's URL, of whatever scheme, without a user; NULL: hosted */
    const char *shown_origin;
    const char *holds; /* a synced one: "debian", "conda", "rpm"; NULL: anything */
    struct rules *rules;
    bool anonymous_read;
    /* answers depend on the Authorization field: the adapter passes it on, or asks by it */
    bool by_caller;
    const char *public_url; /* what absolute links begin with; NULL: as the client reached us */
    uint64_t max_object_bytes;
    /* files of so many bytes and more are offered by Xet's protocol, too (hf/xet.h) */
    uint64_t xet_from_bytes;
    /* of a registry: hosts that `?ns=` may call it by; NULL at their end, or NULL */
    const char **names;
    /* fields of the client's that go to the origin (forward.h): by name, small letters */
    char **forward;
    size_t forwards;
    char **pass; /* pass_headers (origin_field.h), in small letters */
    size_t passes;
    struct slice *targets; /* targeted_cache_control, in small letters */
    size_t ntargets;
    unsigned slot;            /* of its counters (request/traffic.h) */
    void *state;              /* the adapter's */
    struct repo_owner *owner; /* NULL: whoever opened it closes it, and nobody holds it */
    /* bumped by publish, rollback, reload: resolved answers of older ones are void */
    _Atomic uint64_t generation;
    _Atomic uint64_t requests, bytes_out, hits; /* for the page */
};

/* It lives on at least until it is released. Any thread. */
struct repo *repo_hold(struct repo *r);
void repo_release(struct repo **rp);
MUST_USE int repo_open(const struct repo_conf *conf, struct repo **out, struct err *e);
void repo_close(struct repo **rp);
const struct repo_ops *repo_ops_find(const char *protocol); /* repos.def; NULL: unknown */
#define REPO(protocol) extern const struct repo_ops repo_##protocol;
#include "server/repo/repos.def"
#undef REPO

/* "<repo>/<rest>" of a raw request path; root: the listener's repo or NULL. Reserved segments
 * (route.c) give NULL with *reserved set. */
struct route {
    struct repo *repo; /* NULL: nobody's */
    struct slice path; /* below the repo, raw */
    bool reserved;
    struct slice ns; /* registry/route.h: as asked, in the arena; p == NULL: not asked */
};
struct repo *repo_named(struct repo *const *repos, size_t count, struct slice name); /* or NULL */
struct route route_of(struct repo *const *repos, size_t count, struct slice path, const char *root);

#endif
