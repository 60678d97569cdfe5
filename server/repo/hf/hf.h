/* hf.h - one request to a Hub on its way through the plan, for this folder's own files.
 *
 *   hf.c       what each route comes to; last commits, scans, discussions and the like
 *   file.c     one file: resolve, and its chunks by Xet's protocol (repo/hf/xet.h)
 *   access.c   which commit, and who may have its files
 *   synced.c   the same out of a synced tree          held.c      branches that are rolled back
 *   bucket.c   buckets (catalog.c: what is in them)   lfs.c       files by git-lfs
 *   say.c      refusals in the Hub's own words        openness.c  what was last said to everybody
 *   path.c, info.c, manifest.c   what is read         key.c     under which keys it is kept
 *
 * All but `state` lives in the request's arena. Functions that return false have put what is to be
 * done (a need, a refusal) into the plan.
 */
#ifndef SERVER_REPO_HF_HF_H
#define SERVER_REPO_HF_HF_H

#include <stdatomic.h>

#include "server/repo/hf/held.h"
#include "server/repo/hf/info.h"
#include "server/repo/hf/manifest.h"
#include "server/repo/hf/openness.h"
#include "server/repo/hf/path.h"
#include "server/repo/plan.h"
#include "server/repo/hf/xet.h"

#define HF_MAIN                                                                                    \
    "main" /* the default branch, but of a few repositories that have none of that name */

/* What gatherings are made of (need.key). */
#define HF_MAKE_INFO "info"
#define HF_MAKE_OPEN "open" /* the same, never from a stale copy: whom the repository is open to */
#define HF_MAKE_ANEW                                                                               \
    "anew" /* the same, where that may be too old: asked after what was noted (openness.h) */
#define HF_MAKE_TREE    "tree"
#define HF_MAKE_JSON    "json"
#define HF_MAKE_ABOUT   "about"   /* JSON that is about a repository */
#define HF_MAKE_BUCKET  "bucket"  /* JSON that is about a bucket */
#define HF_MAKE_PATHS   "paths"   /* a catalog of a bucket's files, by path */
#define HF_MAKE_FILES   "files"   /* ... with what the Hub says of each */
#define HF_MAKE_HASHES  "hashes"  /* ... by hash */
#define HF_MAKE_UPLOADS "uploads" /* when a bucket's file was uploaded last */
#define HF_MAKE_RIGHT   "right"   /* nothing: a yes of auth-check */
#define HF_MAKE_PROBE   "probe"   /* nothing: that a file may be read is all */

struct hf {                      /* repo->state */
    char *public_url;            /* "http://mirror:8080/hf/", or NULL: as the request says */
    bool service;                /* our credential fetches for everybody; else each caller's own */
    _Atomic(struct held *) held; /* branches that are rolled back; or NULL */
};

struct hf_ask {
    const struct repo *r;
    const struct http_req *req;
    const struct results *results;
    struct arena *a;
    struct plan *p;
    struct slice raw; /* the request's path below the repo */
    struct hf_path at;
    /* What at.rev was: where it is held that has become its commit. p == NULL: a commit was asked
     * for. */
    struct slice branch;
    struct slice token;  /* the caller's, of the Hub; p == NULL: none, or it does not count here */
    struct slice caller; /* names it without telling it; "" for nobody */
    /* access(): */
    struct slice commit;
    struct slice id;        /* the Hub's own name for the repository, once its word was read */
    struct slice reader;    /* whose metadata is looked at: "" for everybody's, or `caller` */
    enum openness openness; /* to everybody (openness.h) */
    bool closed;            /* the files are for those alone whose right was tried */
    uint64_t until_unix_s;  /* what was learned of the repository is good so long; 0: nothing was */
    uint64_t open_until_unix_s; /* the same of its openness */
    /* the name was another repository's before; 0: never, as far as is known */
    uint64_t since_unix_s;
    /* what the Hub listed of a bucket before is old; 0: nothing is, as far as is known */
    uint64_t changed_unix_s;
    bool change_noted; /* ... by this request */
    bool stale;
    bool in_trouble;           /* ... for the Hub's trouble */
    const struct result *info; /* of the revision, when it was looked at */
    /* of a synced repo (synced.h): */
    const struct snap *snap; /* that has the commit */
    struct slice folder;     /* where, with its '/' */
};

/* --- access.c --- */
void access_init(struct hf_ask *k, const struct principal *who);
/* What follows is asked for with this Authorization field, not the request's. */
void access_as(struct hf_ask *k, struct slice authorization);
/* Settles commit, reader and closed. */
bool access_commit(struct hf_ask *k);
/* May the caller see what is said of the repository? Settles reader. */
bool access_seen(struct hf_ask *k, struct slice path);
struct slice access_id(const struct hf_ask *k); /* the Hub's own, once it is known */
/* The commit's manifest. */
bool access_manifest(struct hf_ask *k, struct manifest *m);
/* Of a closed one: may this caller read it? False: the plan asks, or says no. */
bool access_try(struct hf_ask *k);
/* What is known of the repository at the revision. False: it is a no, or not understood. */
bool access_learn(struct hf_ask *k, const struct result *f);
bool access_lacks_revision(const struct result *f);
/* A document of the API as everybody sees it, else as the caller does. path: below the origin,
 * escaped; for_ever: it is of a commit. */
const struct result *access_json(struct hf_ask *k, struct slice path, struct slice query,
                                 bool for_ever);
/* A listing of a bucket, read as `make` says, for whom bucket_learn() found the bucket open.
 * one_part: its first part alone. least_s: it may be as old as that; 0: as other documents. */
const struct result *access_listing(struct hf_ask *k, struct slice path, struct slice query,
                                    const char *make, bool one_part, uint32_t least_s);
/* What the Hub says of whom something is open to, never from before (want.h: swr_s): as everybody
 * sees it, else as the caller; as the caller where k->reader is settled. */
const struct result *access_word(struct hf_ask *k, struct slice path, const char *make);
/* The key of the row of what is kept under a want's key, fetched by this principal's credential. */
struct slice access_row(struct hf_ask *k, struct slice key, struct slice principal);
/* Asked for as the caller: kept apart from what everybody sees, and not for ever. */
void access_as_caller(struct hf_ask *k, struct lookup *w);
/* A want below the origin; rule_path is what rules are matched on. False: a rule denies it. */
bool access_lookup(struct hf_ask *k, struct slice key, struct slice rule_path, struct lookup *w);

/* --- file.c: a file and its chunks --- */
void file_plan(struct hf_ask *k); /* whatever HF_FILE asks for */
void chunks_token(struct hf_ask *k);
void chunks_answer(struct hf_ask *k); /* whatever HF_XET_STORE asks for */
/* Opens the key in the query of a data URL. XET_KEY_GOOD: the credential sealed in the key counts
 * from here on. XET_KEY_NONE: the URL has no key, whatever else its query says; the request's own
 * credential counts, and nothing in the URL is ours. XET_KEY_BAD: the plan refuses the key. */
enum xet_key chunks_use_key(struct hf_ask *k, const struct xet_place *at, const struct digest *d);

/* --- bucket.c, lfs.c --- */
void bucket_plan(struct hf_ask *k); /* ... HF_BUCKET */
void lfs_plan(struct hf_ask *k);    /* an LFS batch */

/* --- hf.c --- */
/* A document of the API, passed on. path: below the origin, escaped. */
void hf_plan_json(struct hf_ask *k, struct slice path, bool for_ever);
/* A branch that is rolled back becomes the commit that it is held at. Before access_commit(). */
void hf_hold(struct hf_ask *k);
void hf_refuse_write(struct hf_ask *k);

/* --- say.c --- */
/* code, message: X-Error-Code and -Message; p == NULL: none. */
void say_error(struct hf_ask *k, int status, struct slice code, struct slice message);
/* What the origin, or its silence, said of a document. */
void say_result(struct hf_ask *k, const struct result *f);
void say_json(struct hf_ask *k, struct slice json);
void say_no_file(struct hf_ask *k); /* 404 EntryNotFound, with the commit: clients remember it */
void say_commit(struct hf_ask *k);  /* the fields that tell where an answer comes from */
void say_failed(const struct repo *r, const struct plan *p, int status, struct slice why,
                struct arena *a, struct http_reply *reply);

#endif
