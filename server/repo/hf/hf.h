/* hf.h - one request to a Hub on its way through the plan, for the files of this folder.
 *
 *   hf.c         what each route leads to; last commits, scans, discussions and the like
 *   file.c       one file: resolve, and its chunks by Xet's protocol (repo/hf/xet.h)
 *   access.c     which commit, and who may have its files
 *   synced.c     the same from a synced tree
 *   held.c       branches that are rolled back
 *   bucket.c     buckets (catalog.c: their files)
 *   lfs.c        files by git-lfs
 *   say.c        refusals in the Hub's own format
 *   openness.c   the Hub's last answer on who may read a repository
 *   path.c, info.c, manifest.c   parsing
 *   key.c        the keys of stored objects
 *
 * A function that returns false has put the next step (a dependency, a refusal) into the plan.
 *
 * owns     everything except `state` is in the request's arena
 * threads  plans run on loops; functions that block say so
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

#define HF_MAIN "main" /* the default branch; a few repositories have none of that name */

/* --- what paged fetches make of documents (need.key) --- */
#define HF_MAKE_INFO "info"
#define HF_MAKE_OPEN "open" /* the same, never from a stale copy: to whom the repository is open */
#define HF_MAKE_ANEW                                                                               \
    "anew" /* the same, if that may be too old: requested after the note (openness.h) */
#define HF_MAKE_TREE    "tree"
#define HF_MAKE_JSON    "json"
#define HF_MAKE_ABOUT   "about"   /* JSON about a repository */
#define HF_MAKE_BUCKET  "bucket"  /* JSON about a bucket */
#define HF_MAKE_PATHS   "paths"   /* a catalog of a bucket's files, by path */
#define HF_MAKE_FILES   "files"   /* the same, with what the Hub says of each */
#define HF_MAKE_HASHES  "hashes"  /* the same, by hash */
#define HF_MAKE_UPLOADS "uploads" /* when a file of a bucket was last uploaded */
#define HF_MAKE_RIGHT   "right"   /* empty: auth-check allowed it */
#define HF_MAKE_PROBE   "probe"   /* empty: it only shows that a file may be read */

struct hf {           /* repo->state */
    char *public_url; /* "http://mirror:8080/hf/"; NULL: taken from the request */
    /* our credential fetches for everybody; else each caller uses its own */
    bool service;
    _Atomic(struct held *) held; /* rolled-back branches; or NULL */
};

struct hf_ask {
    const struct repo *r;
    const struct http_req *req;
    const struct results *results;
    struct arena *a;
    struct plan *p;
    struct slice raw; /* the request's path below the repo */
    struct hf_path at;
    /* The name in at.rev, when it was replaced by the commit that the branch is held at. p == NULL:
     * a commit was requested. */
    struct slice branch;
    struct slice token;  /* the caller's token for the Hub; p == NULL: none, or not used here */
    struct slice caller; /* identifies the token without revealing it; "" for nobody */
    /* --- set by access.c --- */
    struct slice commit;
    struct slice id; /* the Hub's own name for the repository, once its document was read */
    /* whose view of the metadata is used: "" for everybody's, or `caller` */
    struct slice reader;
    enum openness openness; /* for everybody (openness.h) */
    bool closed;            /* only callers whose right was checked may read the files */
    /* how long what is known of the repository is valid; 0: nothing is known */
    uint64_t until_unix_s;
    uint64_t open_until_unix_s; /* the same for its openness */
    /* Before this time another repository had the name; 0: never, as far as is known. */
    uint64_t since_unix_s;
    /* Listings of the bucket from before this time are outdated; 0: none is, as far as is known. */
    uint64_t changed_unix_s;
    bool change_noted; /* this request has noted the change */
    bool stale;
    bool in_trouble;           /* stale because the Hub is in trouble */
    const struct result *info; /* of the revision, when it was requested */
    /* --- for a synced repo (synced.h) --- */
    const struct snap *snap; /* the snapshot with the commit */
    struct slice folder;     /* its place in the tree, with its '/' */
};

/* --- access.c --- */
void access_init(struct hf_ask *k, const struct principal *who);
/* Later dependencies are requested with this Authorization field instead of the request's. */
void access_as(struct hf_ask *k, struct slice authorization);
/* Determines commit, reader and closed. */
bool access_commit(struct hf_ask *k);
/* May the caller see metadata of the repository? Determines reader. */
bool access_seen(struct hf_ask *k, struct slice path);
struct slice access_id(const struct hf_ask *k); /* the Hub's own name, once it is known */
/* The commit's manifest. */
bool access_manifest(struct hf_ask *k, struct manifest *m);
/* For a closed repository: may this caller read it? False: the plan asks the Hub, or refuses. */
bool access_try(struct hf_ask *k);
/* Takes what is known of the repository at the revision. False: it is a refusal, or cannot be
 * parsed. */
bool access_learn(struct hf_ask *k, const struct result *f);
bool access_lacks_revision(const struct result *f);
/* A document of the API, as everybody sees it or, failing that, as the caller does. path: below the
 * origin, escaped. for_ever: it belongs to a commit. */
const struct result *access_json(struct hf_ask *k, struct slice path, struct slice query,
                                 bool for_ever);
/* A listing of a bucket, processed as `make` says, for the readers that bucket_learn() determined.
 * one_part: only its first part. least_s: it may be as old as that; 0: as other documents. */
const struct result *access_listing(struct hf_ask *k, struct slice path, struct slice query,
                                    const char *make, bool one_part, uint32_t least_s);
/* The Hub's document on who may read something, never a stale one (lookup.h: swr_s): as everybody
 * sees it, else as the caller does; only as the caller if k->reader is set. */
const struct result *access_word(struct hf_ask *k, struct slice path, const char *make);
/* The row key of the object with a lookup's key that was fetched with this principal's
 * credential. */
struct slice access_row(struct hf_ask *k, struct slice key, struct slice principal);
/* Requests it as the caller: stored apart from everybody's view, and not for ever. */
void access_as_caller(struct hf_ask *k, struct lookup *w);
/* A lookup below the origin; rule_path is the path that rules match. False: a rule denies it. */
bool access_lookup(struct hf_ask *k, struct slice key, struct slice rule_path, struct lookup *w);

/* --- file.c: a file and its chunks --- */
void file_plan(struct hf_ask *k); /* any request of HF_FILE */
void chunks_token(struct hf_ask *k);
void chunks_answer(struct hf_ask *k); /* any request of HF_XET_STORE */
/* Opens the key in the query of a data URL. XET_KEY_GOOD: from now on the credential sealed in the
 * key counts. XET_KEY_NONE: the URL has no key, whatever else is in its query; the request's own
 * credential counts. XET_KEY_BAD: the plan refuses the key. */
enum xet_key chunks_use_key(struct hf_ask *k, const struct xet_place *at, const struct digest *d);

/* --- bucket.c, lfs.c --- */
void bucket_plan(struct hf_ask *k); /* any request of HF_BUCKET */
void lfs_plan(struct hf_ask *k);    /* an LFS batch */

/* --- hf.c --- */
/* Passes on a document of the API. path: below the origin, escaped. */
void hf_plan_json(struct hf_ask *k, struct slice path, bool for_ever);
/* Replaces a branch that is rolled back by the commit that it is held at. Call it before
 * access_commit(). */
void hf_hold(struct hf_ask *k);
void hf_refuse_write(struct hf_ask *k);

/* --- say.c --- */
/* code, message: X-Error-Code and X-Error-Message; p == NULL: none. */
void say_error(struct hf_ask *k, int status, struct slice code, struct slice message);
/* The origin's answer on a document, or its lack of one. */
void say_result(struct hf_ask *k, const struct result *f);
void say_json(struct hf_ask *k, struct slice json);
/* 404 EntryNotFound, with the commit, because clients remember it */
void say_no_file(struct hf_ask *k);
/* the fields that identify the repository and commit of an answer */
void say_commit(struct hf_ask *k);
void say_failed(const struct repo *r, const struct plan *p, int status, struct slice why,
                struct arena *a, struct http_reply *reply);

#endif
