/* hub.h - hosted trees as clients of the Hugging Face Hub know them:
 * HF_ENDPOINT=http://mirror:8080/<repo>.
 *
 * A tree "<owner>/<name>" is a model repository, "datasets/<owner>/<name>" a dataset,
 * "spaces/<owner>/<name>" a space; its live version is the branch "main", refs (store/ref.h) are
 * the others, and tags. A commit's id is the first 40 hex digits of a version's root, so the same
 * files have the same id everywhere (docs/decisions/0013). All files are told of as LFS files,
 * which have the name that the tree gives them: their SHA-256.
 *
 *   hub.c         what each route comes to, files by Xet's protocol    hub_commit.c  the lines of a commit, as they come
 *   hub_write.c   creating, preupload, LFS batch, commit; branches and tags; moving, deleting, copying
 *   hub_list.c    documents made of a tree (a pool thread)            hub_trees.c   lists of repositories
 *   hub_object.c  objects by LFS, whole and in parts
 *
 * threads  plan: loops; everything it makes is in the request's arena
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
    HUB_BODY_VALUES = 100000,    /* of a JSON body */
    HUB_REGULAR_BYTES = 8 << 20, /* files up to this come inside a commit, longer ones before it */
};

struct hub_ask {
    const struct repo *r;
    const struct http_req *req;
    const struct principal *who;
    const struct results *results;
    struct arena *a;
    struct plan *p;
    struct hf_path at;
    struct slice tree;               /* of at.type and at.id: its name in the store; hub_name() */
    struct slice branch;             /* a put's; "": main */
    bool strict;                     /* the name that the tree has now, no other */
    struct slice path;               /* the request's, below the repo, raw */
    char commit[HUB_COMMIT_HEX + 1]; /* hub_version() */
};

/* True: the request speaks this dialect, and *rc is what the plan came to. */
bool hub_plan(struct hub_ask *k, int *rc, struct err *e);
/* The answer to a PLAN_PUT of ours, in the Hub's words. */
void hub_put_answer(const struct repo *r, const struct plan *p, struct upload_reply *u,
                    struct arena *a, struct http_reply *reply);

/* ... and where none could be made. */
void hub_failed(const struct repo *r, const struct plan *p, int status, struct slice why,
                struct arena *a, struct http_reply *reply);

/* --- of this folder --- */
void hub_say(struct hub_ask *k, int status, const char *code, struct slice message);
void hub_say_json(struct hub_ask *k, struct slice json);
/* Sets the tree, by its type and id, and what it takes to reach it. */
void hub_name(struct hub_ask *k);
/* A repository's name in the store, in the arena. */
struct slice hub_tree(struct slice type, struct slice id, struct arena *a);
/* "models", "datasets", "spaces", cut off the name of a tree. */
struct slice hub_cut_type(struct slice *tree);
/* The tree's version that was asked for, NULL: the plan has become something else. Sets commit. */
const struct snap *hub_version(struct hub_ask *k);
void hub_commit_id(const struct digest *root, char out[HUB_COMMIT_HEX + 1]);
/* The request's body as an object, to be json_decref()ed; NULL: the plan has become something
 * else. */
json_t *hub_body(struct hub_ask *k);
bool hub_query(struct slice query, const char *name, struct slice value);
void hub_write(struct hub_ask *k);
/* A request to an address that a batch gave out: <tree>/-/objects/<hex>?upload=... */
void hub_object(struct hub_ask *k, struct slice hex);
/* What a batch gives out: p->put.objects, and what the store says of each. */
void hub_objects_answer(const struct plan *p, struct upload_reply *u);
/* What a kept version of the tree holds, by its digest; upload.n != 0: or the offer of that id.
 * False: none does, or the plan asks. */
bool hub_held(struct hub_ask *k, const struct digest *d, struct slice upload, struct entry *out);
void hub_write_token(struct hub_ask *k); /* of a tree that is there, by one who may publish */
/* A PLAN_PUT of this tree; its answer's links begin with p->text, the tree's own address. */
void hub_put(struct hub_ask *k, enum put_kind kind);

extern const struct put_reader hub_commit_reader;
/* Of a preupload's body: how each file is to come, and what the tree has under its name. E_INVALID:
 * it is none. */
MUST_USE int hub_modes(struct store *s, const struct plan *p, struct buf *out, struct err *e);
/* Of an LFS batch's body: addresses of what the tree has, p->expand: and of what an offer has
 * brought to it. p->location: the tree's own address, a blank, and the Authorization field that
 * they are to be asked with; "": none. E_INVALID. */
MUST_USE int hub_objects(struct store *s, const struct repo *r, const struct plan *p,
                         struct buf *out, struct err *e);

/* p: a PLAN_LIST whose form is one of the Hub's and speaks of one tree. */
MUST_USE int hub_listing(struct store *s, const struct repo *r, const struct plan *p,
                         struct buf *body, struct slice *content_type, struct err *e);
/* ... and of the repositories of a kind, p->entry.path; p->text is the query. */
MUST_USE int hub_trees(struct store *s, const struct repo *r, const struct plan *p,
                       const struct listing_sight *sight, struct listing_out *out, struct err *e);
void hub_when(struct buf *out, const char *key, uint64_t unix_s);
struct note;

#endif
