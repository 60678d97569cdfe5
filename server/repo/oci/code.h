/* code.h - a registry's refusals: the specification's codes, the status that goes with each, and
 * their JSON.
 *
 * {"errors": [{"code": "NAME_UNKNOWN", "message": "what, why, what to do"}]}
 *
 * threads  any; pure
 * source   OCI distribution-spec 1.1, "Error codes"
 */
#ifndef SERVER_REPO_OCI_CODE_H
#define SERVER_REPO_OCI_CODE_H

#include "common/base/arena.h"
#include "common/base/slice.h"

enum oci_code {
    OCI_BLOB_UNKNOWN,
    OCI_BLOB_UPLOAD_INVALID,
    OCI_BLOB_UPLOAD_UNKNOWN,
    OCI_DIGEST_INVALID,
    OCI_MANIFEST_BLOB_UNKNOWN,
    OCI_MANIFEST_INVALID,
    OCI_MANIFEST_UNKNOWN,
    OCI_NAME_INVALID,
    OCI_NAME_UNKNOWN,
    OCI_SIZE_INVALID,
    OCI_UNAUTHORIZED,
    OCI_DENIED,
    OCI_UNSUPPORTED,
    OCI_TOOMANYREQUESTS,
    OCI_UNAVAILABLE, /* none of those: trouble of ours, or behind us */
};

const char *oci_code_name(enum oci_code c);
int oci_code_status(enum oci_code c); /* the usual one: 404, 400, 405 ... */
/* The body, in the arena. */
struct slice oci_errors(enum oci_code c, struct slice message, struct arena *a);
#define OCI_ERRORS_TYPE SLICE("application/json; charset=utf-8")

/* What a failure that has no code of its own is called: by its status alone. of_manifest: what was
 * asked for; else a blob. */
enum oci_code oci_code_of_status(int status, bool of_manifest);

#endif
