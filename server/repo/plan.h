/* plan.h - what the plans of all adapters share: paths, lookups, refusals, and the results so far.
 *
 * owns     nothing: everything is made in the given arena
 * threads  any
 */
#ifndef SERVER_REPO_PLAN_H
#define SERVER_REPO_PLAN_H

#include "server/repo/repo.h"

/* The canonical form (common/codec/url.h) of a raw path below a repo, without the leading '/'.
 * E_INVALID, E_TOOBIG. */
MUST_USE int plan_path(struct slice raw, struct arena *a, struct slice *out, struct err *e);
/* The spelling of a canonical path in trees: "%25" is a '%'. False: it has "%2F", which no name in
 * a tree has. */
MUST_USE bool plan_tree_path(struct slice clean, struct arena *a, struct slice *out);
/* The URL of a canonical path below `base` (ends in '/'). It is escaped again, so that all
 * spellings of a path are one URL. '+' is sent as %2B, because object stores read a plain one as a
 * blank. query: raw, p == NULL: none; what no URL may contain (bytes outside ASCII, '\\') is
 * escaped. */
struct slice plan_url(const char *base, struct slice path, struct slice query, struct arena *a);
/* The key of a path and its query; a '?' in the path is distinguished from the one between the
 * two. */
struct slice plan_key(struct slice path, struct slice query, struct arena *a);

/* Changes the plan's kind: its own part, reuse and delivery are cleared; the other fields that all
 * kinds share stay. */
void plan_become(struct plan *p, enum plan_kind kind);
void plan_reply(struct plan *p, int status, struct slice text);
void plan_redirect(struct plan *p, struct slice location);               /* 301 */
void plan_method(struct plan *p, struct slice allow, struct slice text); /* 405 */
/* The canonical path of a request that only reads. False: the path is invalid, with *rc; or the
 * method is neither GET nor HEAD, and the answer is 405. */
MUST_USE bool plan_enter(const struct http_req *req, struct slice raw, struct arena *a,
                         struct slice *out, struct plan *p, int *rc, struct err *e);
/* The rule of a canonical path. A rule that denies also matches spellings that an origin may read
 * as its path: most treat "a//b" and "a%2Fb" as "a/b". */
const struct rule *plan_rule(const struct repo *r, struct slice path, struct arena *a);
/* PLAN_LOOKUP, readable under `path`, from the repo's own origin by rule `rule`. */
void plan_lookup(const struct repo *r, const struct rule *rule, struct slice path, struct arena *a,
                 struct plan *p);

/* The beginning of absolute links to this repo: the configuration's public_url, else the URL by
 * which the client reached us; without a trailing '/'. path: the request's below the repo, raw, a
 * part of its target. */
struct slice plan_home(const struct repo *r, const struct http_req *req, struct slice path,
                       struct arena *a);

/* Removes "@v7/", or "@v7" if that is all, from the front of a synced repo's path and returns "v7";
 * "" when there is none. */
struct slice plan_cut_version(struct slice *path);
/* A synced repo's snapshot; NULL: the plan has become a dependency, or says that there is none. */
const struct snap *plan_synced(const struct results *f, struct slice version, struct plan *p);

/* Is `wanted`, for example "recursive=1", a member of the query? */
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
/* Makes the text fit for a field's value: one line of printable ASCII, at most 400 bytes. */
struct slice plan_line(struct slice text, struct arena *a);

/* The result, or NULL: then *p has become the PLAN_DEPENDENCY for it. */
const struct result *plan_row(const struct results *f, enum table table, struct slice key,
                              struct plan *p);
const struct result *plan_rows(const struct results *f, enum table table, struct slice key_prefix,
                               struct plan *p);
/* old.p == NULL: there is no such row. */
const struct result *plan_put_row(const struct results *f, enum table table, struct slice key,
                                  struct slice old, struct slice value, struct plan *p);
const struct result *plan_head(const struct results *f, struct slice name, struct slice version,
                               struct plan *p);
/* Follows links: the entry's path is where they led, also when nothing is there. */
const struct result *plan_resolve(const struct results *f, const struct digest *root,
                                  struct slice path, struct plan *p);
const struct result *plan_entry(const struct results *f, const struct digest *root,
                                struct slice path, struct plan *p);
/* what: as need.key; w: its first part. The result is shared for equal keys, principals, ttls and
 * one_part. A list that may be older, or only its first part, is another result. */
const struct result *plan_paged_fetch(const struct results *f, struct slice what,
                                      const struct lookup *w, bool one_part, struct plan *p);
/* Made from a file of a tree: valid for ever, because the file's bytes are. */
const struct result *plan_paged_blob(const struct results *f, struct slice what,
                                     const struct entry *en, struct arena *a, struct plan *p);
/* Does the caller have the right "read" or "publish" to "<repo>/<path>"? rc 0 or E_NOTFOUND. */
const struct result *plan_right(const struct results *f, struct slice right, struct slice subject,
                                struct plan *p);
const struct result *plan_request_body(const struct results *f, struct plan *p);
/* Is this body a form with no more fields than a loop may parse in one turn? False: the answer is a
 * 413, and *why says what to do. */
MUST_USE bool plan_form_fits(const struct result *body, struct arena *a, struct slice *why);

#endif
