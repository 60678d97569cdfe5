/* image_manifest.c - a pushed manifest, checked and added to the tree; and what is removed together
 * with a deleted one.
 *
 * The bytes are kept as they came. Everything that a manifest names must be present, in this image
 * or in an upload to it, so that what can be pulled is complete. Exceptions are a subject, which
 * may come later, and layers that their author keeps elsewhere.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/codec/jread.h"
#include "server/repo/hosted/image.h"
#include "server/upload/upload_reply.h"

enum { MANIFEST_BYTES = 4 << 20, MANIFEST_VALUES = 200000, WHY_BYTES = 512 };

struct manifest {
    struct buf bytes;
    struct arena arena;
    struct changes *to;
    struct upload_reply *out;
    struct err *e;
    struct digest digest;
    struct slice name; /* "sha256:<hex>", or what it was put under */
    struct slice folder;
    json_t *doc;
};

static void *manifest_open(const struct repo *r)
{
    struct manifest *m = NEW(struct manifest);

    (void)r;
    m->bytes = BUF_INIT(MANIFEST_BYTES);
    return m;
}

static void manifest_close(void *state)
{
    struct manifest *m = state;

    if (m != NULL) {
        json_decref(m->doc);
        buf_free(&m->bytes);
        arena_fini(&m->arena);
        free(m);
    }
}

static int refuse_manifest(struct manifest *m, int status, enum oci_code code, struct slice why)
{
    m->out->status = status;
    buf_clear(&m->out->body);
    buf_adds(&m->out->body, oci_errors(code, why, &m->arena));
    return 0;
}

static int invalid(struct manifest *m, const char *why)
{
    return refuse_manifest(m, 400, OCI_MANIFEST_INVALID, slice_str(why));
}

/* --- what kind of manifest -------------------------------------------------------------------- */

static bool is_index(struct slice type)
{
    return slice_eqs(type, "application/vnd.oci.image.index.v1+json") ||
           slice_eqs(type, "application/vnd.docker.distribution.manifest.list.v2+json");
}

static bool is_image(struct slice type)
{
    return slice_eqs(type, "application/vnd.oci.image.manifest.v1+json") ||
           slice_eqs(type, "application/vnd.docker.distribution.manifest.v2+json");
}

/* A document that reads as two kinds at once would be another image to each client
 * (CVE-2021-41190). */
static int judge_kind(struct manifest *m, struct slice type)
{
    struct slice said = jread_text(m->doc, "mediaType");
    json_int_t version = json_integer_value(json_object_get(m->doc, "schemaVersion"));

    if (!is_image(type) && !is_index(type)) {
        return invalid(m, "unsupported Content-Type; accepted are OCI image manifests and indexes, "
                          "and Docker manifests (version 2, schema 2) and manifest lists");
    }
    if (!json_is_object(m->doc) || version != 2) {
        return invalid(m, "not a manifest: it must be a JSON object with schemaVersion 2 and at "
                          "most 200,000 values");
    }
    if (said.p != NULL && !slice_eq(said, type)) {
        return invalid(m, "the manifest's mediaType differs from the request's Content-Type");
    }
    if (is_index(type) ? !json_is_array(json_object_get(m->doc, "manifests"))
                       : !json_is_object(json_object_get(m->doc, "config")) ||
                             !json_is_array(json_object_get(m->doc, "layers"))) {
        return invalid(m, "the manifest of an image must have a config and layers, and an index "
                          "must have manifests");
    }
    if (is_index(type)
            ? json_object_get(m->doc, "layers") != NULL || json_object_get(m->doc, "config") != NULL
            : json_object_get(m->doc, "manifests") != NULL) {
        return invalid(m, "the manifest must not be of an image and an index at the same time");
    }
    return 0;
}

/* --- what it names ---------------------------------------------------------------------------- */

struct descriptor {
    struct oci_digest digest;
    uint64_t size_bytes;
    struct slice type;
};

static bool read_descriptor(const json_t *o, struct descriptor *d)
{
    *d = (struct descriptor){.type = jread_text(o, "mediaType")};
    return d->type.n != 0 && jread_u64(o, "size", &d->size_bytes) &&
           oci_digest_parse(jread_text(o, "digest"), &d->digest);
}

/* Kept by their author, who does not want them to be handed on. */
static bool stays_away(const struct descriptor *d)
{
    return slice_starts(d->type, SLICE("application/vnd.oci.image.layer.nondistributable.")) ||
           slice_starts(d->type, SLICE("application/vnd.docker.image.rootfs.foreign."));
}

static int not_here(struct manifest *m, const struct descriptor *d, const char *what)
{
    return refuse_manifest(
        m, 404, OCI_MANIFEST_BLOB_UNKNOWN,
        arena_fmt(&m->arena, "push the %s before the manifest that refers to it: " SLICE_FMT, what,
                  SLICE_ARG(d->digest.text)));
}

static int add_manifest_blob(struct manifest *m, const json_t *o)
{
    struct descriptor d;
    struct digest own;
    char hex[DIGEST_HEX + 1];
    bool known;
    int rc;

    if (!read_descriptor(o, &d)) {
        return invalid(m, "a descriptor must have a mediaType, a digest and a size");
    }
    rc = changes_find(m->to, &d.digest.called, &own, &known, m->e);
    if (rc != 0 || !known) {
        return rc != 0 || stays_away(&d) ? rc : not_here(m, &d, "blob");
    }
    digest_format(&own, hex);
    rc = changes_object(
        m->to, arena_fmt(&m->arena, SLICE_FMT "blobs/sha256/%s", SLICE_ARG(m->folder), hex), &own,
        d.size_bytes, m->out, m->e);
    if (rc != 0 || m->out->status == 0 || m->out->status == 413) {
        return rc;
    }
    if (m->out->status == 400) {
        return refuse_manifest(
            m, 400, OCI_SIZE_INVALID,
            arena_fmt(&m->arena,
                      "the size in the descriptor is not the size of that blob: " SLICE_FMT,
                      SLICE_ARG(d.digest.text)));
    }
    if (stays_away(&d)) {
        m->out->status = 0;
        buf_clear(&m->out->body);
        return 0;
    }
    return not_here(m, &d, "blob");
}

static int see_manifest(struct manifest *m, const json_t *o)
{
    struct descriptor d;
    struct digest own;
    bool yes = false, known = false;
    int rc;

    if (!read_descriptor(o, &d)) {
        return invalid(m, "a descriptor must have a mediaType, a digest and a size");
    }
    rc = changes_find(m->to, &d.digest.called, &own, &known, m->e);
    if (rc == 0 && known) {
        struct slice folder = image_manifest_folder(&own, &m->arena);
        rc = changes_see(m->to, arena_fmt(&m->arena, SLICE_FMT "manifest", SLICE_ARG(folder)), &yes,
                         m->e);
    }
    return rc == 0 && !yes ? not_here(m, &d, "manifest") : rc;
}

static int each_of(struct manifest *m, const char *key,
                   int (*fn)(struct manifest *m, const json_t *o))
{
    const json_t *list = json_object_get(m->doc, key);
    const json_t *o;
    size_t i;
    int rc = 0;

    json_array_foreach(list, i, o)
    {
        rc = fn(m, o);
        if (rc != 0 || m->out->status != 0) {
            break;
        }
    }
    return rc;
}

static int add_named(struct manifest *m, struct slice type)
{
    int rc;

    if (is_index(type)) {
        return each_of(m, "manifests", see_manifest);
    }
    rc = add_manifest_blob(m, json_object_get(m->doc, "config"));
    return rc == 0 && m->out->status == 0 ? each_of(m, "layers", add_manifest_blob) : rc;
}

/* --- its subject ------------------------------------------------------------------------------ */

/* What a list of referrers says of this manifest. */
static char *descriptor_text(const struct manifest *m, struct slice type)
{
    const json_t *kind = json_object_get(m->doc, "artifactType");
    const json_t *notes = json_object_get(m->doc, "annotations");
    json_t *o = json_object();
    char *text;

    if (!json_is_string(kind) || json_string_length(kind) == 0) {
        kind = json_object_get(json_object_get(m->doc, "config"), "mediaType");
    }
    json_object_set_new(o, "mediaType", json_stringn(type.p, type.n));
    json_object_set_new(o, "digest", json_stringn(m->name.p, m->name.n));
    json_object_set_new(o, "size", json_integer((json_int_t)m->bytes.n));
    if (json_is_string(kind)) {
        json_object_set_new(o, "artifactType", json_copy((json_t *)(uintptr_t)kind));
    }
    if (json_is_object(notes)) {
        json_object_set_new(o, "annotations", json_copy((json_t *)(uintptr_t)notes));
    }
    text = json_dumps(o, JSON_COMPACT | JSON_SORT_KEYS);
    json_decref(o);
    return text;
}

/* image.c words the answer with it: the manifest's name and, behind a blank, its subject's. */
static void add_manifest_reply(struct manifest *m, struct slice subject)
{
    int n = snprintf(m->out->word, sizeof m->out->word, SLICE_FMT "%s" SLICE_FMT,
                     SLICE_ARG(m->name), subject.n != 0 ? " " : "", SLICE_ARG(subject));

    CHECK(n > 0 && (size_t)n < sizeof m->out->word); /* two by SHA-512 fill it */
}

static int add_subject(struct manifest *m, struct slice type, const char *hex)
{
    const json_t *subject = json_object_get(m->doc, "subject");
    struct descriptor d;
    char *text;
    int rc;

    if (subject == NULL || json_is_null(subject)) {
        return 0;
    }
    if (!read_descriptor(subject, &d)) {
        return invalid(m,
                       "the subject must be a descriptor, with a mediaType, a digest and a size");
    }
    text = descriptor_text(m, type);
    CHECK(text != NULL); /* of a document that was parsed */
    rc = changes_file(m->to,
                      arena_fmt(&m->arena, SLICE_FMT "%s",
                                SLICE_ARG(image_referrers_folder(&d.digest, &m->arena)), hex),
                      slice_str(text), m->out, m->e);
    free(text);
    add_manifest_reply(m, d.digest.text);
    return rc;
}

/* --- all of it -------------------------------------------------------------------------------- */

static int add_itself(struct manifest *m, struct slice type, struct slice tag)
{
    struct slice bytes = buf_slice(&m->bytes);
    int rc = changes_file(m->to, arena_fmt(&m->arena, SLICE_FMT "manifest", SLICE_ARG(m->folder)),
                          bytes, m->out, m->e);

    if (rc == 0 && m->out->status == 0) {
        rc = changes_file(m->to, arena_fmt(&m->arena, SLICE_FMT "type", SLICE_ARG(m->folder)), type,
                          m->out, m->e);
    }
    if (rc == 0 && m->out->status == 0 && tag.n != 0) {
        rc = changes_file(m->to, arena_fmt(&m->arena, "tags/" SLICE_FMT, SLICE_ARG(tag)), bytes,
                          m->out, m->e);
    }
    return rc;
}

static int wrong_digest(struct manifest *m)
{
    return refuse_manifest(m, 400, OCI_DIGEST_INVALID,
                           SLICE("the bytes of the manifest do not match this digest"));
}

/* It is put under its SHA-512, and found by it from now on. */
static int name_otherwise(struct manifest *m, const struct sha512 *name)
{
    struct sha512 got;
    struct buf text = BUF_INIT(256);

    sha512_of(buf_slice(&m->bytes), &got);
    if (!sha512_eq(&got, name)) {
        return wrong_digest(m);
    }
    buf_str(&text, "sha512:");
    for (size_t i = 0; i < SHA512_BYTES; i++) {
        buf_addf(&text, "%02x", name->b[i]);
    }
    m->name = arena_copy(&m->arena, buf_slice(&text));
    buf_free(&text);
    return changes_called(m->to, name, &m->digest, m->e);
}

static int check_manifest_parts(struct manifest *m)
{
    const struct put *p = changes_put(m->to);
    char hex[DIGEST_HEX + 1];
    int rc;

    digest_of(buf_slice(&m->bytes), &m->digest);
    digest_format(&m->digest, hex);
    if (p->called.by == CALLED_SHA256 && !digest_eq(&p->called.sha256, &m->digest)) {
        return wrong_digest(m);
    }
    m->name = arena_fmt(&m->arena, "sha256:%s", hex);
    if (p->called.by == CALLED_SHA512) {
        rc = name_otherwise(m, &p->called.sha512);
        if (rc != 0 || m->out->status != 0) {
            return rc;
        }
    }
    m->doc = jread_parse(buf_slice(&m->bytes), JSON_REJECT_DUPLICATES, MANIFEST_VALUES);
    rc = judge_kind(m, p->to);
    if (rc != 0 || m->out->status != 0) {
        return rc;
    }
    m->folder = image_manifest_folder(&m->digest, &m->arena);
    add_manifest_reply(m, SLICE(""));
    changes_make(m->to);
    changes_note(m->to,
                 p->path.n != 0 ? arena_fmt(&m->arena, "push " SLICE_FMT, SLICE_ARG(p->path))
                                : arena_fmt(&m->arena, "push sha256:%.12s", hex),
                 SLICE(""), m->out);
    rc = add_named(m, p->to);
    if (rc == 0 && m->out->status == 0) {
        rc = add_subject(m, p->to, hex);
    }
    return rc == 0 && m->out->status == 0 ? add_itself(m, p->to, p->path) : rc;
}

static int manifest_read(void *state, struct slice bytes, bool end, struct changes *to,
                         struct upload_reply *out, struct err *e)
{
    struct manifest *m = state;

    m->to = to;
    m->out = out;
    m->e = e;
    buf_adds(&m->bytes, bytes);
    if (m->bytes.rc != 0) {
        return refuse_manifest(m, 413, OCI_MANIFEST_INVALID,
                               SLICE("a manifest has at most 4 MiB; put larger data into a blob"));
    }
    return end ? check_manifest_parts(m) : 0;
}

const struct put_reader image_manifest_reader = {
    .open = manifest_open, .read = manifest_read, .close = manifest_close};

/* --- deletion by digest ----------------------------------------------------------------------- */

static bool has_bytes(const struct entry *en, const struct digest *d)
{
    return en->type == ENTRY_FILE && digest_eq(&en->digest, d);
}

static bool ends_so(const struct entry *en, const struct digest *d)
{
    char hex[DIGEST_HEX + 1];

    digest_format(d, hex);
    return slice_ends(en->path, slice_of(hex, DIGEST_HEX));
}

/* The manifest with its blobs, the tags that lead to it, and what it says of a subject. */
static int removal_read(void *state, struct slice bytes, bool end, struct changes *to,
                        struct upload_reply *out, struct err *e)
{
    struct manifest *m = state;
    struct digest d;
    char hex[DIGEST_HEX + 1];
    bool known;
    int rc;

    (void)bytes; /* of no meaning in a deletion */
    if (!end) {
        return 0;
    }
    m->out = out;
    rc = changes_find(to, &changes_put(to)->called, &d, &known, e);
    if (rc != 0 || !known) {
        return rc != 0 ? rc
                       : refuse_manifest(m, 404, OCI_MANIFEST_UNKNOWN,
                                         SLICE("this image does not have that manifest"));
    }
    digest_format(&d, hex);
    changes_note(to, arena_fmt(&m->arena, "delete sha256:%.12s", hex), SLICE(""), out);
    changes_remove_where(to, SLICE("tags/"), has_bytes, &d);
    changes_remove_where(to, SLICE("referrers/"), ends_so, &d);
    return changes_remove(to, image_manifest_folder(&d, &m->arena), out, e);
}

const struct put_reader image_removal_reader = {
    .open = manifest_open, .read = removal_read, .close = manifest_close};
