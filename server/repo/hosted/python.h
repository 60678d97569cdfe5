/* python.h - Python packages in a hosted repo: twine, uv publish and the like bring them, pip and
 * uv take them.
 *
 *   POST /<repo>/legacy/                one file, as a form (the index's upload API)
 *   GET  /<repo>/simple/                the projects; /<repo>/simple/<name>[@version]/ the files of one (PEP 503, 691, 700)
 *   GET  /<repo>/simple/<name>/<file>   a file; behind it .metadata (PEP 658), .asc, .yanked
 *
 * A project is the hosted tree "simple/<normalized name>", so that versions, rollback, scopes,
 * collection are those of all trees; no other tree has the owner "simple". Beside each distribution
 * its tree has
 *
 *   <file>.about       {"requires-python": ..., "upload-time": "2026-01-02T03:04:05Z"}: what the page says and the file does not
 *   <file>.metadata    of wheels: METADATA, as it stands in them
 *   <file>.asc         a signature that came along
 *   <file>.yanked      a mark, with its reason (PEP 592)
 *
 *   python.c         what each request comes to            python_form.c    an upload, as it comes, and what it says of itself
 *   python_page.c    pages made of trees (a pool thread)
 *
 * threads  plan: loops; everything it makes is in the request's arena
 */
#ifndef SERVER_REPO_HOSTED_PYTHON_H
#define SERVER_REPO_HOSTED_PYTHON_H

#include "server/repo/hosted/hosted.h"
#include "server/repo/repo.h"
#include "server/repo/plan.h"

enum { PYTHON_NAME_MAX = 96, PYTHON_WHY_MAX = 4096, PYTHON_ASC_MAX = 64 << 10 };

/* Trees of this owner are projects. */
bool python_owns(struct slice tree);
/* A distribution's name, so that nothing beside one is taken for one. */
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
/* True: the request is for us. */
bool python_plan(struct python_ask *k);
/* The answer to a PLAN_PUT of ours, in words that upload clients print. */
void python_put_answer(const struct plan *p, struct upload_reply *u);

extern const struct form_reader python_form_reader;

/* A PLAN_LIST of ours. E_NOTFOUND: no such project has files. */
MUST_USE int python_listing(struct store *s, const struct repo *r, const struct plan *p,
                            const struct listing_sight *sight, struct listing_out *out,
                            struct err *e);

#endif
