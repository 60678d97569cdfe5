#include "server/repo/oci/path.h"

#include "server/repo/plan.h"

bool oci_asked(const struct http_req *req)
{
    return slice_starts(req->path, SLICE(OCI_ROOT));
}

static bool small_alnum(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
}

/* What may stand between two runs of letters and digits: '.', '_', "__", any number of '-'. n: how
 * long it is; 0: none. */
static size_t separator(struct slice s)
{
    size_t n = 0;

    if (s.p[0] == '-') {
        while (n < s.n && s.p[n] == '-') {
            n++;
        }
        return n;
    }
    if (s.p[0] == '_') {
        return s.n > 1 && s.p[1] == '_' ? 2 : 1;
    }
    return s.p[0] == '.' ? 1 : 0;
}

static bool component_valid(struct slice s)
{
    while (s.n != 0 && small_alnum(s.p[0])) {
        size_t n = 1;
        while (n < s.n && small_alnum(s.p[n])) {
            n++;
        }
        s = slice_from(s, n);
        if (s.n == 0) {
            return true;
        }
        s = slice_from(s, separator(s));
    }
    return false; /* empty, begins or ends with a separator, or with what no name holds */
}

bool oci_name_valid(struct slice name)
{
    bool ok = name.n != 0 && name.n <= OCI_NAME_MAX && name.p[name.n - 1] != '/';

    while (ok && name.n != 0) {
        ok = component_valid(slice_cut(&name, '/'));
    }
    return ok;
}

bool oci_tag_valid(struct slice tag)
{
    for (size_t i = 0; i < tag.n; i++) {
        char c = tag.p[i];
        bool word = small_alnum(c) || (c >= 'A' && c <= 'Z') || c == '_';
        if (!word && (i == 0 || (c != '.' && c != '-'))) {
            return false;
        }
    }
    return tag.n != 0 && tag.n <= OCI_TAG_MAX;
}

static bool small_hex(struct slice s, size_t digits)
{
    for (size_t i = 0; i < s.n; i++) {
        if (!(s.p[i] >= 'a' && s.p[i] <= 'f') && !(s.p[i] >= '0' && s.p[i] <= '9')) {
            return false;
        }
    }
    return s.n == digits;
}

bool oci_digest_parse(struct slice text, struct oci_digest *out)
{
    struct slice hex = text;
    struct slice algorithm = slice_cut(&hex, ':');

    *out = (struct oci_digest){.text = text};
    if (slice_eqs(algorithm, "sha256")) {
        out->called.by = CALLED_SHA256;
        return small_hex(hex, DIGEST_HEX) && digest_parse(hex, &out->called.sha256);
    }
    out->called.by = CALLED_SHA512;
    return slice_eqs(algorithm, "sha512") && small_hex(hex, 2 * SHA512_BYTES) &&
           slice_hex(hex, out->called.sha512.b, SHA512_BYTES);
}

/* Takes "/<last>" off the end; p == NULL: there is no '/'. */
static struct slice cut_last_segment(struct slice *path)
{
    for (size_t i = path->n; i > 0; i--) {
        if (path->p[i - 1] == '/') {
            struct slice last = slice_from(*path, i);
            *path = slice_first(*path, i - 1);
            return last;
        }
    }
    return SLICE_NONE;
}

/* "<name>/<word>/<last>", and of uploads "<name>/blobs/uploads/<last>". */
static enum oci_kind split_oci_path(struct slice path, struct oci_path *out)
{
    struct slice last = cut_last_segment(&path);
    struct slice word = cut_last_segment(&path);

    out->name = path;
    out->reference = last;
    if (word.p == NULL) {
        return OCI_OTHER;
    }
    if (slice_eqs(word, "uploads") && slice_ends(path, SLICE("/blobs"))) {
        (void)cut_last_segment(&out->name);
        return last.n == 0 ? OCI_UPLOADS : OCI_UPLOAD;
    }
    if (slice_eqs(word, "blobs") && slice_eqs(last, "uploads")) {
        out->reference = SLICE("");
        return OCI_UPLOADS;
    }
    if (slice_eqs(word, "tags") && slice_eqs(last, "list")) {
        out->reference = SLICE("");
        return OCI_TAGS;
    }
    return slice_eqs(word, "manifests")   ? OCI_MANIFEST
           : slice_eqs(word, "blobs")     ? OCI_BLOB
           : slice_eqs(word, "referrers") ? OCI_REFERRERS
                                          : OCI_OTHER;
}

static int oci_path_error(enum oci_code *code, enum oci_code c, struct err *e, const char *what)
{
    *code = c;
    return err_set(e, E_INVALID, "%s", what);
}

int oci_path_parse(struct slice raw, struct arena *a, struct oci_path *out, enum oci_code *code,
                   struct err *e)
{
    struct slice clean;

    *out = (struct oci_path){.kind = OCI_OTHER};
    if (plan_path(raw, a, &clean, e) != 0) {
        *code = OCI_NAME_INVALID;
        return E_INVALID;
    }
    out->kind = split_oci_path(clean, out);
    if (out->kind == OCI_OTHER) {
        return 0;
    }
    if (!oci_name_valid(out->name)) {
        return oci_path_error(
            code, OCI_NAME_INVALID, e,
            "invalid name of an image: it must have lower-case letters and digits, with "
            "'.', '_', '-' and '/' between them, and at most 255 characters");
    }
    out->by_digest = out->kind == OCI_BLOB || out->kind == OCI_REFERRERS ||
                     (out->kind == OCI_MANIFEST && slice_find(out->reference, ':') >= 0);
    if (out->by_digest && !oci_digest_parse(out->reference, &out->digest)) {
        return oci_path_error(
            code, OCI_DIGEST_INVALID, e,
            "invalid digest: it must be sha256:<64 hex digits> or sha512:<128>, in lower case");
    }
    if (out->kind == OCI_MANIFEST && !out->by_digest && !oci_tag_valid(out->reference)) {
        return oci_path_error(
            code, OCI_MANIFEST_INVALID, e,
            "invalid tag: it must have letters, digits, '_', '.' and '-', and at most 128 "
            "characters");
    }
    return 0;
}
