/* path.h - parses the path of a request below /v2/: the image's name, and what of it is requested.
 *
 * It is shared by all adapters for clients of registries: the pull-through adapter beside it, and
 * hosted repos that accept pushes. An adapter gets paths of /v2/ when its ops set `registry`
 * (repo.h). registry_route() has removed the repo, so the path here is
 * "<name>/manifests/<reference>" and the like. Names may contain words such as "manifests": the end
 * of the path decides.
 *
 * owns     slices live in the given arena
 * threads  any; pure
 * errors   E_INVALID, with one of the specification's codes in *code and a sentence in *e
 * source   OCI distribution-spec 1.1, "API" and "Pulling manifests" (the grammars of name, tag and
 *          digest)
 */
#ifndef SERVER_REPO_OCI_PATH_H
#define SERVER_REPO_OCI_PATH_H

#include "common/base/arena.h"
#include "common/base/err.h"
#include "common/hash/called.h"
#include "server/http/msg.h"
#include "server/repo/oci/code.h"

#define OCI_ROOT "/v2/"
/* Did the request come below /v2/? No repo can have that name. */
bool oci_asked(const struct http_req *req);

enum oci_kind {
    OCI_OTHER,     /* not a path of a registry */
    OCI_MANIFEST,  /* <name>/manifests/<tag or digest> */
    OCI_BLOB,      /* <name>/blobs/<digest> */
    OCI_UPLOADS,   /* <name>/blobs/uploads/ */
    OCI_UPLOAD,    /* <name>/blobs/uploads/<id> */
    OCI_TAGS,      /* <name>/tags/list */
    OCI_REFERRERS, /* <name>/referrers/<digest> */
};

enum { OCI_NAME_MAX = 255, OCI_TAG_MAX = 128 };

struct oci_digest {
    struct slice text; /* "sha256:<64 lower-case hex digits>" */
    struct called called;
};

struct oci_path {
    enum oci_kind kind;
    struct slice name;      /* "library/alpine" */
    struct slice reference; /* the tag, the digest's text, the upload's id; else "" */
    bool by_digest;
    struct oci_digest digest; /* when by_digest */
};

/* raw: below the repo, without the leading '/'. */
MUST_USE int oci_path_parse(struct slice raw, struct arena *a, struct oci_path *out,
                            enum oci_code *code, struct err *e);
MUST_USE bool oci_name_valid(struct slice name);
MUST_USE bool oci_tag_valid(struct slice tag);
/* Accepts the two algorithms that the specification registers; text is borrowed. */
MUST_USE bool oci_digest_parse(struct slice text, struct oci_digest *out);

#endif
