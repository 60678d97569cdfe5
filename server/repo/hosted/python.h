/* python.h - Python packages in a hosted repo: twine, uv publish and the like upload them, pip and
 * uv download them.
 *
 *   POST /<repo>/legacy/                one file, as a form (the index's upload API)
 *   GET  /<repo>/simple/                the projects
 *   GET  /<repo>/simple/<name>[@version]/   the files of one (PEP 503, 691, 700)
 *   GET  /<repo>/simple/<name>/<file>   a file; with .metadata (PEP 658), .asc or .yanked appended
 *
 * A project is the hosted tree "simple/<normalized name>", so versions, rollback, scopes and
 * collection are those of all trees; no other tree has the owner "simple". Beside each distribution
 * its tree has:
 *
 *   <file>.about       {"requires-python": ..., "upload-time": "2026-01-02T03:04:05Z"}:
 *                      what the page says and the file does not
 *   <file>.metadata    of wheels: METADATA, as in the wheel
 *   <file>.asc         a signature that was uploaded with it
 *   <file>.yanked      a mark, with its reason (PEP 592)
 *
 *   python.c         what each request leads to
 *   python_form.c    an upload, as it comes, and its metadata
 *   python_page.c    pages made of trees (a pool thread)
 *
 * owns     everything that a plan makes is in the request's arena
 * threads  plan: loops; pages: a pool thread
 */
#ifndef SERVER_REPO_HOSTED_PYTHON_H
#define SERVER_REPO_HOSTED_PYTHON_H

#include "server/repo/hosted/hosted.h"
#include "server/repo/repo.h"
#include "server/repo/plan.h"

enum { PYTHON_NAME_MAX = 96, PYTHON_WHY_MAX = 4096, PYTHON_ASC_MAX = 64 << 10 };

/* True for a tree of this owner: it is a project. */
bool python_owns(struct slice tree);
/* True for the name of a distribution, which no file beside one may have. */
bool python_is_file(struct slice name);

struct python_ask {
    const struct repo *r;
    const struct http_req *req;
    const struct principal *who;
    const struct results *results;
    struct arena *a;
    struct plan *p;
    struct slice path;  /* below the repo, raw */
    struct slice clean; /* the same, canonical */
};
/* True: the request is for this adapter. */
bool python_plan(struct python_ask *k);
/* The answer to a PLAN_PUT of ours, in a form that upload clients print. */
void python_put_answer(const struct plan *p, struct upload_reply *u);

extern const struct form_reader python_form_reader;

/* Writes a PLAN_LIST of ours. E_NOTFOUND: no such project has files. */
MUST_USE int python_listing(struct store *s, const struct repo *r, const struct plan *p,
                            const struct listing_sight *sight, struct listing_out *out,
                            struct err *e);

#endif
