/* plan.h - what the adapters' plans have in common: paths, wants, refusals, and the results that
 * have come so far.
 *
 * threads  any; everything is made in the arena that is given
 */
#ifndef SERVER_REPO_PLAN_H
#define SERVER_REPO_PLAN_H

#include "server/repo/repo.h"

/* The canonical form (common/codec/url.h) of a raw path below a repo, without the leading '/'.
 * E_INVALID, E_TOOBIG. */
MUST_USE int plan_path(struct slice raw, struct arena *a, struct slice *out, struct err *e);
/* As trees spell a canonical path: "%25" is a '%'. False: "%2F" is in no name of a tree. */
MUST_USE bool plan_tree_path(struct slice clean, struct arena *a, struct slice *out);
/* The URL of a canonical path below `base` (ends in '/'): escaped anew, so that all spellings of a
 * path are one URL. '+' goes as %2B: object stores read the bare one as a blank. query: raw, p ==
 * NULL without; what no URL may hold (bytes past ASCII, '\\') is escaped. */
struct slice plan_url(const char *base, struct slice path, struct slice query, struct arena *a);
/* The key of a path and its query; a '?' that belongs to the path is kept apart from the one
 * between the two. */
struct slice plan_key(struct slice path, struct slice query, struct arena *a);

/* The plan is of that kind from now on: its own part begins empty, what all kinds share stays. */
void plan_become(struct plan *p, enum plan_kind kind);
void plan_reply(struct plan *p, int status, struct slice text);
void plan_redirect(struct plan *p, struct slice location);               /* 301 */
void plan_method(struct plan *p, struct slice allow, struct slice text); /* 405 */
/* The canonical path of what is only read. False: it does not spell one, *rc; or it is no GET or
 * HEAD, and answered with 405. */
MUST_USE bool plan_enter(const struct http_req *req, struct slice raw, struct arena *a,
                         struct slice *out, struct plan *p, int *rc, struct err *e);
/* The rule of a canonical path; one that denies also where only an origin's way of reading paths
 * makes it match: most take "a//b" and "a%2Fb" for "a/b". */
const struct rule *plan_rule(const struct repo *r, struct slice path, struct arena *a);
/* PLAN_LOOKUP, readable under `path`, from the repo's own origin by rule `rule`. */
void plan_lookup(const struct repo *r, const struct rule *rule, struct slice path, struct arena *a,
                 struct plan *p);

/* What absolute links to this repo begin with: the configuration's public_url, else as the client
 * reached us; no '/' at its end. path: the request's below the repo, raw, a part of its target. */
struct slice plan_home(const struct repo *r, const struct http_req *req, struct slice path,
                       struct arena *a);

/* Takes "@v7/", or "@v7" where that is all, from the front of a synced repo's path: snapshot "v7";
 * "" when there is none. */
struct slice plan_cut_version(struct slice *path);
/* A synced repo's snapshot; NULL: the plan asks, or says that there is none. */
const struct snap *plan_synced(const struct results *f, struct slice version, struct plan *p);

/* Is `wanted`, such as "recursive=1", among the query's members? */
bool plan_asks(struct slice query, struct slice wanted);
/* 301 to the canonical path with a '/' appended. */
void plan_redirect_to_folder(struct plan *p, const struct http_req *req, struct slice at,
                             struct arena *a);
/* A PLAN_LIST of a folder, as HTML or JSON; p is one, or a PLAN_BLOB, and has its snap and name.
 * at: the canonical path that was requested; folder: where that is in the tree. HTML of a folder
 * whose path lacks the '/' becomes a redirect, provided that the folder exists. */
void plan_folder(struct plan *p, const struct http_req *req, struct slice at, struct slice folder,
                 struct arena *a);
void plan_field(struct plan *p, struct slice name, struct slice value);
/* As a field's value has to be: one line of printable ASCII, at most 400 bytes. */
struct slice plan_line(struct slice text, struct arena *a);

/* The result, or NULL: then *p has become the PLAN_DEPENDENCY that asks for it. */
const struct result *plan_row(const struct results *f, enum table table, struct slice key,
                              struct plan *p);
const struct result *plan_rows(const struct results *f, enum table table, struct slice key_prefix,
                               struct plan *p);
/* old.p == NULL: there is no such row. */
const struct result *plan_put_row(const struct results *f, enum table table, struct slice key,
                                  struct slice old, struct slice value, struct plan *p);
const struct result *plan_head(const struct results *f, struct slice name, struct slice version,
                               struct plan *p);
/* Links are followed: the entry's path is where they led, also when nothing is there. */
const struct result *plan_resolve(const struct results *f, const struct digest *root,
                                  struct slice path, struct plan *p);
const struct result *plan_entry(const struct results *f, const struct digest *root,
                                struct slice path, struct plan *p);
/* what: as in need.key; w: its first part. One result for equal keys, principals, ttls and
 * one_part: a list that may be older, or its first part alone, is another. */
const struct result *plan_paged_fetch(const struct results *f, struct slice what,
                                      const struct lookup *w, bool one_part, struct plan *p);
/* Made of a file of a tree: good for ever, as its bytes are. */
const struct result *plan_paged_blob(const struct results *f, struct slice what,
                                     const struct entry *en, struct arena *a, struct plan *p);
/* Has the caller that right, "read" or "publish", to "<repo>/<path>"? rc 0 or E_NOTFOUND. */
const struct result *plan_right(const struct results *f, struct slice right, struct slice subject,
                                struct plan *p);
const struct result *plan_request_body(const struct results *f, struct plan *p);
/* Is this body a form of no more fields than a loop may read in one turn? False: the request is a
 * 413, and *why says what to do. */
MUST_USE bool plan_form_fits(const struct result *body, struct arena *a, struct slice *why);

#endif
