/* image.h - hosted trees for clients of container registries: docker push
 * mirror:8080/<repo>/<name>:<tag>.
 *
 * An image's name has any number of segments; "me/img" is the tree "oci:me/img" (no path of a file
 * leads to such a name, so images and repositories of files are never mixed up). The tree has:
 *
 *   manifests/sha256/<hex>/manifest             its bytes, as they came
 *   manifests/sha256/<hex>/type                 its media type
 *   manifests/sha256/<hex>/blobs/sha256/<hex>   what it names: config and layers
 *   tags/<tag>                                  the bytes of the manifest that has the tag
 *   referrers/<algorithm>/<hex>/<hex>           the descriptor of the manifest with the second
 *                                               digest, whose subject has the first
 *
 * A push of a manifest is one version of the tree, so versions, rollback, retention and collection
 * are those of all trees. A blob can be read by its digest as long as some version of the tree
 * holds it. Until a manifest names it, it belongs to an upload (upload/append.h): only callers that
 * may publish there see it, and it is removed when the upload expires.
 *
 *   image.c           what each route leads to; uploads; lists of tags and referrers (a pool
 *                     thread)
 *   image_manifest.c  manifests that are pushed, and what a deletion removes
 *
 * owns     everything that a plan makes is in the request's arena
 * threads  plan: loops; listings: a pool thread
 * source   OCI distribution-spec 1.1, image-spec 1.1
 */
#ifndef SERVER_REPO_HOSTED_IMAGE_H
#define SERVER_REPO_HOSTED_IMAGE_H

#include "server/repo/hosted/hosted.h"
#include "server/repo/repo.h"
#include "server/repo/oci/path.h"
#include "server/repo/plan.h"

#define IMAGE_TREE "oci:"

struct image_ask {
    const struct repo *r;
    const struct http_req *req;
    const struct results *results;
    const struct principal *who;
    struct arena *a;
    struct plan *p;
    struct slice path; /* the request's, below the repo, raw */
    struct oci_path at;
    struct slice tree;
    struct slice base; /* "/v2/models/me/img": the beginning of links to this image */
};

/* The plan of a request below /v2/. */
void image_plan(struct image_ask *k);
/* The answer to a PLAN_PUT of ours, in a registry's format. */
void image_put_answer(const struct plan *p, struct upload_reply *u, struct arena *a,
                      struct http_reply *reply);
/* True for trees that a list of repositories of files skips. */
bool image_is_tree(struct slice name);

extern const struct put_reader image_manifest_reader, image_removal_reader;
/* The paths of a manifest's folder and of a digest's referrers; both end in '/'. */
struct slice image_manifest_folder(const struct digest *d, struct arena *a);
struct slice image_referrers_folder(const struct oci_digest *d, struct arena *a);

/* p: a PLAN_LIST of LIST_IMAGE_TAGS or LIST_IMAGE_REFERRERS; p->text is the query, p->location the
 * address of the next part. */
MUST_USE int image_listing(struct store *s, const struct plan *p, struct listing_out *out,
                           struct err *e);

#endif
