/* hub.h - hosted trees for clients of the Hugging Face Hub: HF_ENDPOINT=http://mirror:8080/<repo>.
 *
 * A tree "<owner>/<name>" is a model repository, "datasets/<owner>/<name>" a dataset,
 * "spaces/<owner>/<name>" a space. Its live version is the branch "main"; other branches and tags
 * are refs (store/ref.h). A commit's id is the first 40 hex digits of a version's root, so the same
 * files have the same id everywhere (docs/decisions/0013). All files are presented as LFS files,
 * whose name is the one in the tree: their SHA-256.
 *
 *   hub.c         what each route leads to, files by Xet's protocol
 *   hub_commit.c  the lines of a commit, as they come
 *   hub_write.c   creation, preupload, LFS batch, commit; branches and tags; move, delete, copy
 *   hub_list.c    documents made of a tree (a pool thread)
 *   hub_trees.c   lists of repositories
 *   hub_object.c  objects by LFS, whole and in parts
 *
 * owns     everything that a plan makes is in the request's arena
 * threads  plan: loops; listings: a pool thread
 */
#ifndef SERVER_REPO_HOSTED_HUB_H
#define SERVER_REPO_HOSTED_HUB_H

#include <jansson.h>

#include "common/codec/jread.h"
#include "common/codec/jwrite.h"
#include "server/repo/hf/path.h"
#include "server/repo/hosted/hosted.h"
#include "server/repo/repo.h"
#include "server/repo/plan.h"

enum {
    HUB_COMMIT_HEX = 40,
    HUB_BODY_VALUES = 100000, /* of a JSON body */
    /* files up to this size come inside a commit, larger ones before it */
    HUB_REGULAR_BYTES = 8 << 20,
};

struct hub_ask {
    const struct repo *r;
    const struct http_req *req;
    const struct principal *who;
    const struct results *results;
    struct arena *a;
    struct plan *p;
    struct hf_path at;
    struct slice tree;               /* the store's name for at.type and at.id: hub_name() */
    struct slice branch;             /* of a put; "": main */
    bool strict;                     /* only the tree's present name counts, no former one */
    struct slice path;               /* the request's, below the repo, raw */
    char commit[HUB_COMMIT_HEX + 1]; /* set by hub_version() */
};

/* True: the request is one of a Hub's client, and *rc is the result of the plan. */
bool hub_plan(struct hub_ask *k, int *rc, struct err *e);
/* The answer to a PLAN_PUT of ours, in the Hub's format. */
void hub_put_answer(const struct repo *r, const struct plan *p, struct upload_reply *u,
                    struct arena *a, struct http_reply *reply);

/* The same for a failure. */
void hub_failed(const struct repo *r, const struct plan *p, int status, struct slice why,
                struct arena *a, struct http_reply *reply);

/* --- private to this folder --- */
void hub_say(struct hub_ask *k, int status, const char *code, struct slice message);
void hub_say_json(struct hub_ask *k, struct slice json);
/* Sets the tree from its type and id, and the right that it requires. */
void hub_name(struct hub_ask *k);
/* A repository's name in the store, in the arena. */
struct slice hub_tree(struct slice type, struct slice id, struct arena *a);
/* Removes "models", "datasets" or "spaces" from the name of a tree and returns it. */
struct slice hub_cut_type(struct slice *tree);
/* The requested version of the tree; NULL: the plan is something else now. Sets commit. */
const struct snap *hub_version(struct hub_ask *k);
void hub_commit_id(const struct digest *root, char out[HUB_COMMIT_HEX + 1]);
/* The request's body as an object, for json_decref(); NULL: the plan is something else now. */
json_t *hub_body(struct hub_ask *k);
bool hub_query(struct slice query, const char *name, struct slice value);
void hub_write(struct hub_ask *k);
/* A request to an address from a batch: <tree>/-/objects/<hex>?upload=... */
void hub_object(struct hub_ask *k, struct slice hex);
/* What a batch hands out: p->put.objects, and what the store says of each. */
void hub_objects_answer(const struct plan *p, struct upload_reply *u);
/* Finds a digest in a kept version of the tree or, if upload.n != 0, in the upload grant of that
 * id. False: neither has it, or the plan asks. */
bool hub_held(struct hub_ask *k, const struct digest *d, struct slice upload, struct entry *out);
void hub_write_token(struct hub_ask *k); /* for a tree that exists, and a caller that may publish */
/* A PLAN_PUT of this tree. The links of its answer begin with p->text, the tree's own address. */
void hub_put(struct hub_ask *k, enum put_kind kind);

extern const struct put_reader hub_commit_reader;
/* For a preupload's body: how each file is to be uploaded, and what the tree has under its name.
 * E_INVALID: the body is malformed. */
MUST_USE int hub_modes(struct store *s, const struct plan *p, struct buf *out, struct err *e);
/* For an LFS batch's body: addresses of what the tree has and, with p->expand, of what an upload
 * grant has brought to it. p->location: the tree's own address, a blank, and the Authorization
 * field for them; "": none. E_INVALID. */
MUST_USE int hub_objects(struct store *s, const struct repo *r, const struct plan *p,
                         struct buf *out, struct err *e);

/* p: a PLAN_LIST whose form is one of the Hub's for one tree. */
MUST_USE int hub_listing(struct store *s, const struct repo *r, const struct plan *p,
                         struct buf *body, struct slice *content_type, struct err *e);
/* The same for the repositories of a kind, p->entry.path; p->text is the query. */
MUST_USE int hub_trees(struct store *s, const struct repo *r, const struct plan *p,
                       const struct listing_sight *sight, struct listing_out *out, struct err *e);
void hub_when(struct buf *out, const char *key, uint64_t unix_s);
struct note;

#endif
