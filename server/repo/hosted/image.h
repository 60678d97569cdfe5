/* image.h - hosted trees as clients of container registries know them: docker push
 * mirror:8080/<repo>/<name>:<tag>.
 *
 * An image's name has any number of segments; "me/img" is the tree "oci:me/img" (no path of a file
 * leads to such a name, so images and repositories of files are never mixed up). In it:
 *
 *   manifests/sha256/<hex>/manifest             its bytes, as they came
 *   manifests/sha256/<hex>/type                 its media type
 *   manifests/sha256/<hex>/blobs/sha256/<hex>   what it names: config and layers
 *   tags/<tag>                                  the bytes of the manifest that has the tag
 *   referrers/<algorithm>/<hex>/<hex>           what the manifest of the second digest says of the first, its subject: a descriptor
 *
 * A push of a manifest is one version of the tree, so versions, rollback, retention and collection
 * are those of all trees. A blob is read by its digest alone, as long as some version of the tree
 * holds it. Until a manifest names it, it is an upload's (upload/append.h): seen by those who may
 * publish there, gone when the upload expires.
 *
 *   image.c           what each route comes to; uploads; lists of tags and referrers (a pool thread)
 *   image_manifest.c  what comes as a manifest, and what a deletion takes along
 *
 * threads  plan: loops; everything it makes is in the request's arena
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
    struct slice base; /* "/v2/models/me/img": what links to this image begin with */
};

/* Of a request below /v2/. */
void image_plan(struct image_ask *k);
/* The answer to a PLAN_PUT of ours, in a registry's words. */
void image_put_answer(const struct plan *p, struct upload_reply *u, struct arena *a,
                      struct http_reply *reply);
/* What those who list repositories of files pass over. */
bool image_is_tree(struct slice name);

extern const struct put_reader image_manifest_reader, image_removal_reader;
/* The paths of a manifest's folder, and of a digest's referrers; both end in '/'. */
struct slice image_manifest_folder(const struct digest *d, struct arena *a);
struct slice image_referrers_folder(const struct oci_digest *d, struct arena *a);

/* p: a PLAN_LIST of LIST_IMAGE_TAGS, LIST_IMAGE_REFERRERS; p->text is the query, p->location what
 * the next part is asked by. */
MUST_USE int image_listing(struct store *s, const struct plan *p, struct listing_out *out,
                           struct err *e);

#endif
