/* code.h - a registry's refusals: the specification's codes, the status of each, and their JSON.
 *
 * {"errors": [{"code": "NAME_UNKNOWN", "message": "what, why, what to do"}]}
 *
 * owns     nothing: results are static or in the given arena
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
    OCI_UNAVAILABLE, /* not of the specification: trouble of ours, or of an origin */
};

const char *oci_code_name(enum oci_code c);
int oci_code_status(enum oci_code c); /* the usual status: 404, 400, 405 ... */
/* The body, in the arena. */
struct slice oci_errors(enum oci_code c, struct slice message, struct arena *a);
#define OCI_ERRORS_TYPE SLICE("application/json; charset=utf-8")

/* The code for a failure that only has a status. of_manifest: a manifest was requested; else a
 * blob. */
enum oci_code oci_code_of_status(int status, bool of_manifest);

#endif
