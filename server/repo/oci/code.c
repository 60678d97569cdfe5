#include "server/repo/oci/code.h"

#include "common/codec/jwrite.h"

static const struct {
    const char *name;
    int status;
} codes[] = {
    [OCI_BLOB_UNKNOWN] = {"BLOB_UNKNOWN", 404},
    [OCI_BLOB_UPLOAD_INVALID] = {"BLOB_UPLOAD_INVALID", 400},
    [OCI_BLOB_UPLOAD_UNKNOWN] = {"BLOB_UPLOAD_UNKNOWN", 404},
    [OCI_DIGEST_INVALID] = {"DIGEST_INVALID", 400},
    [OCI_MANIFEST_BLOB_UNKNOWN] = {"MANIFEST_BLOB_UNKNOWN", 404},
    [OCI_MANIFEST_INVALID] = {"MANIFEST_INVALID", 400},
    [OCI_MANIFEST_UNKNOWN] = {"MANIFEST_UNKNOWN", 404},
    [OCI_NAME_INVALID] = {"NAME_INVALID", 400},
    [OCI_NAME_UNKNOWN] = {"NAME_UNKNOWN", 404},
    [OCI_SIZE_INVALID] = {"SIZE_INVALID", 400},
    [OCI_UNAUTHORIZED] = {"UNAUTHORIZED", 401},
    [OCI_DENIED] = {"DENIED", 403},
    [OCI_UNSUPPORTED] = {"UNSUPPORTED", 405},
    [OCI_TOOMANYREQUESTS] = {"TOOMANYREQUESTS", 429},
    [OCI_UNAVAILABLE] = {"UNAVAILABLE", 503},
};

const char *oci_code_name(enum oci_code c)
{
    return codes[c].name;
}

int oci_code_status(enum oci_code c)
{
    return codes[c].status;
}

struct slice oci_errors(enum oci_code c, struct slice message, struct arena *a)
{
    struct buf out = BUF_INIT(64 << 10);
    struct slice body;

    jwrite_open(&out, NULL, '{');
    jwrite_open(&out, "errors", '[');
    jwrite_open(&out, NULL, '{');
    jwrite_str(&out, "code", codes[c].name);
    jwrite_text(&out, "message", slice_first(message, min_u64(message.n, 4096)));
    jwrite_close(&out, '}');
    jwrite_close(&out, ']');
    jwrite_close(&out, '}');
    buf_byte(&out, '\n');
    CHECK(out.rc == 0); /* a byte becomes six at most */
    body = arena_copy(a, buf_slice(&out));
    buf_free(&out);
    return body;
}

enum oci_code oci_code_of_status(int status, bool of_manifest)
{
    switch (status) {
    case 401:
        return OCI_UNAUTHORIZED;
    case 403:
        return OCI_DENIED;
    case 404:
    case 410:
        return of_manifest ? OCI_MANIFEST_UNKNOWN : OCI_BLOB_UNKNOWN;
    case 413:
        return OCI_SIZE_INVALID;
    case 429:
        return OCI_TOOMANYREQUESTS;
    case 400:
        return of_manifest ? OCI_MANIFEST_INVALID : OCI_DIGEST_INVALID;
    default:
        return status >= 500 ? OCI_UNAVAILABLE : OCI_UNSUPPORTED;
    }
}
