/* image_put.c - what changes an image: blobs brought by uploads, manifests put and deleted; and how the answers are worded. */
#include <inttypes.h>
#include <stdio.h>

#include "common/codec/form.h"
#include "common/codec/jread.h"
#include "server/repo/hosted/image.h"

enum { VALUE_MAX = 1024, TYPE_MAX = 255 };

static void put(struct image_ask *k, enum put_kind kind)
{
    plan_become(k->p, PLAN_PUT);
    k->p->put = (struct put){.kind = kind,
                             .repo = slice_str(k->r->name),
                             .name = k->tree,
                             .branch = SLICE(""),
                             .note.author = k->who->name,
                             .path = SLICE(""),
                             .first = LENGTH_UNKNOWN,
                             .total = LENGTH_UNKNOWN};
    k->p->location = k->base;
}

static struct slice ask_query(struct image_ask *k, const char *name)
{
    struct slice query = k->req->query;

    return form_find(&query, name, VALUE_MAX, k->a);
}

/* text: as in a path or a query. It names what comes, and so ends it. */
static bool take_digest(struct image_ask *k, struct slice text)
{
    struct oci_digest d;

    if (!oci_digest_parse(text, &d)) {
        image_say(k, OCI_DIGEST_INVALID,
                  "not a digest that is taken here: sha256:<64 hex digits> or sha512:<128>, in "
                  "small letters");
        return false;
    }
    k->p->put.called = d.called;
    k->p->text = text;
    return true;
}

static bool plain_body(struct image_ask *k)
{
    if (http_req_field(k->req, "content-encoding").p != NULL) {
        image_say(k, OCI_UNSUPPORTED,
                  "bodies are kept as they come: send without Content-Encoding");
        return false;
    }
    return true;
}

/* --- uploads ------------------------------------------------------------------------------------------------------ */

/* "me/base" of "models/me/base": the name as the request's own path spells names. p == NULL: it is not in this repo. */
static struct slice name_here(struct image_ask *k, struct slice from)
{
    size_t root = strlen(OCI_ROOT);
    struct slice before =
        slice_first(slice_from(k->req->path, root), k->req->path.n - k->path.n - root);

    if (!slice_starts(from, before)) {
        return SLICE_NONE;
    }
    from = slice_from(from, before.n);
    return oci_name_valid(from) ? from : SLICE_NONE;
}

/* The blob may be here already. Of another image only for those who may read that; else it is uploaded, as ever. */
static void plan_mount(struct image_ask *k, struct slice digest)
{
    struct slice from = name_here(k, ask_query(k, "from"));
    bool asks = false;
    bool may = from.p != NULL && (k->r->anonymous_read || image_may(k, "read", from, &asks));

    if (asks) {
        return;
    }
    put(k, PUT_APPEND_OPEN);
    k->p->put.location = arena_fmt(k->a, SLICE_FMT "/blobs/uploads", SLICE_ARG(k->base));
    if (take_digest(k, digest) && may) {
        k->p->put.to = arena_fmt(k->a, IMAGE_TREE SLICE_FMT, SLICE_ARG(from));
    }
}

static void plan_begin(struct image_ask *k)
{
    struct slice mount = ask_query(k, "mount");
    struct slice digest = ask_query(k, "digest");

    if (k->req->method != METHOD_POST) {
        image_say(k, OCI_UNSUPPORTED, "an upload is begun with POST");
    } else if (digest.p != NULL) { /* all of it at once */
        put(k, PUT_APPEND);
        k->p->put.upload_id = SLICE("");
        if (plain_body(k)) {
            (void)take_digest(k, digest);
        }
    } else if (mount.p != NULL) {
        plan_mount(k, mount);
    } else {
        put(k, PUT_APPEND_OPEN);
        k->p->put.location = arena_fmt(k->a, SLICE_FMT "/blobs/uploads", SLICE_ARG(k->base));
    }
}

/* "<first>-<last>", of this body; some clients write "bytes " in front, as elsewhere. */
static bool take_range(struct image_ask *k)
{
    struct slice v = http_req_field(k->req, "content-range");
    struct slice first;
    uint64_t last;

    if (v.p == NULL) {
        return true;
    }
    v = slice_starts(v, SLICE("bytes ")) ? slice_from(v, 6) : v;
    v = slice_cut(&v, '/');
    first = slice_cut(&v, '-');
    if (!slice_u64(first, &k->p->put.first) || !slice_u64(v, &last) || last < k->p->put.first ||
        k->p->put.first == LENGTH_UNKNOWN ||
        (k->req->content_length != LENGTH_UNKNOWN &&
         k->req->content_length != last - k->p->put.first + 1)) {
        image_say(k, OCI_SIZE_INVALID,
                  "Content-Range does not fit: <first>-<last>, as long as the body");
        return false;
    }
    return true;
}

/* The end may come without a body: then nothing is said of where it begins. */
static bool ends_with_bytes(const struct image_ask *k)
{
    return k->req->has_body && k->req->content_length != 0;
}

static void plan_upload(struct image_ask *k)
{
    enum method m = k->req->method;

    put(k, m == METHOD_GET || m == METHOD_HEAD ? PUT_APPEND_STATUS
           : m == METHOD_DELETE                ? PUT_APPEND_DROP
                                               : PUT_APPEND);
    k->p->put.upload_id = k->at.reference;
    if (k->at.reference.n != UPLOAD_ID) {
        image_say(k, OCI_BLOB_UPLOAD_UNKNOWN, "no such upload");
    } else if (m == METHOD_PATCH) {
        (void)(plain_body(k) && take_range(k));
    } else if (m == METHOD_PUT) {
        (void)(plain_body(k) && take_digest(k, ask_query(k, "digest")) &&
               (!ends_with_bytes(k) || take_range(k)));
    } else if (m == METHOD_POST || m == METHOD_OPTIONS || m == METHOD_OTHER) {
        image_say(k, OCI_UNSUPPORTED, "an upload takes PATCH, PUT, GET and DELETE");
    }
}

/* --- manifests ---------------------------------------------------------------------------------------------------- */

static void plan_put_manifest(struct image_ask *k)
{
    struct slice type = http_req_field(k->req, "content-type");

    put(k, PUT_CHANGES);
    k->p->reader = &image_manifest_reader;
    k->p->put.path = k->at.by_digest ? SLICE("") : k->at.reference;
    k->p->put.location = k->base;
    k->p->put.to = slice_trim(slice_cut(&type, ';'));
    if (k->at.by_digest && !take_digest(k, k->at.reference)) {
        return;
    }
    (void)plain_body(k);
}

static void plan_delete_manifest(struct image_ask *k)
{
    if (!k->at.by_digest) {
        put(k, PUT_DELETE);
        k->p->put.path = arena_fmt(k->a, "tags/" SLICE_FMT, SLICE_ARG(k->at.reference));
        return;
    }
    put(k, PUT_CHANGES);
    k->p->reader = &image_removal_reader;
    (void)take_digest(k, k->at.reference);
}

void image_write(struct image_ask *k)
{
    enum method m = k->req->method;

    k->p->right = RIGHT_PUBLISH;
    if (k->at.kind == OCI_UPLOADS) {
        plan_begin(k);
    } else if (k->at.kind == OCI_UPLOAD) {
        plan_upload(k);
    } else if (k->at.kind == OCI_MANIFEST && m == METHOD_PUT) {
        plan_put_manifest(k);
    } else if (k->at.kind == OCI_MANIFEST && m == METHOD_DELETE) {
        plan_delete_manifest(k);
    } else if (k->at.kind == OCI_BLOB && m == METHOD_DELETE) {
        image_say(k, OCI_UNSUPPORTED,
                  "blobs are not deleted one by one: they go after the last manifest that names "
                  "them");
    } else {
        image_say(k, OCI_UNSUPPORTED, "this path does not take this method");
    }
}

/* --- answers ------------------------------------------------------------------------------------------------------ */

static enum oci_code code_of(const struct plan *p, int status)
{
    bool manifest = p->put.kind == PUT_CHANGES || p->put.kind == PUT_DELETE;

    switch (status) {
    case 404:
        return manifest ? OCI_MANIFEST_UNKNOWN : OCI_BLOB_UPLOAD_UNKNOWN;
    case 410:
        return OCI_NAME_UNKNOWN;
    case 422:
        return OCI_DIGEST_INVALID;
    case 400:
        return manifest ? OCI_MANIFEST_INVALID : OCI_SIZE_INVALID;
    case 413:
        return OCI_SIZE_INVALID;
    case 409:
    case 412:
    case 416:
        return manifest ? OCI_MANIFEST_INVALID : OCI_BLOB_UPLOAD_INVALID;
    default:
        return OCI_UNSUPPORTED;
    }
}

/* The store's {"error": "..."}, in a registry's words; what speaks them already stays. */
static void word_no(const struct plan *p, struct upload_reply *u, struct arena *a)
{
    json_t *o = json_loadb(u->body.p != NULL ? u->body.p : "", u->body.n, 0, NULL);
    struct slice why = jread_text(o, "error");

    if (json_object_get(o, "errors") == NULL) {
        struct slice body =
            oci_errors(code_of(p, u->status), why.p != NULL ? why : SLICE("refused"), a);
        buf_clear(&u->body);
        buf_adds(&u->body, body);
    }
    u->status = u->status == 422 ? 400 : u->status;
    json_decref(o);
}

static void add_range(const struct upload_reply *u, struct arena *a, struct http_reply *reply)
{
    reply_addf(reply, a, "range", "0-%" PRIu64, u->offset != 0 ? u->offset - 1 : 0);
}

/* Of an upload that goes on: where, and how far it is. */
static void answer_upload(const struct plan *p, struct upload_reply *u, struct arena *a,
                          struct http_reply *reply)
{
    struct slice id = p->put.kind == PUT_APPEND_OPEN ? slice_str(u->upload) : p->put.upload_id;

    u->location[0] = '\0';
    if (u->offset_known) {
        reply_add(reply, SLICE("location"),
                  arena_fmt(a, SLICE_FMT "/blobs/uploads/" SLICE_FMT, SLICE_ARG(p->location),
                            SLICE_ARG(id)));
        reply_add(reply, SLICE("docker-upload-uuid"), arena_copy(a, id));
        add_range(u, a, reply);
    }
    u->offset_known = false;
}

static void answer_blob(const struct plan *p, struct arena *a, struct http_reply *reply)
{
    reply_add(
        reply, SLICE("location"),
        arena_fmt(a, SLICE_FMT "/blobs/" SLICE_FMT, SLICE_ARG(p->location), SLICE_ARG(p->text)));
    reply_add(reply, SLICE("docker-content-digest"), p->text);
}

/* u->word: its digest and, behind a blank, its subject's. */
static void answer_manifest(const struct plan *p, struct upload_reply *u, struct arena *a,
                            struct http_reply *reply)
{
    struct slice subject = arena_copy(a, slice_str(u->word));
    struct slice digest = slice_cut(&subject, ' ');

    u->status = 201;
    reply_add(
        reply, SLICE("location"),
        arena_fmt(a, SLICE_FMT "/manifests/" SLICE_FMT, SLICE_ARG(p->location), SLICE_ARG(digest)));
    reply_add(reply, SLICE("docker-content-digest"), digest);
    if (subject.n != 0) {
        reply_add(reply, SLICE("oci-subject"), subject);
    }
}

void image_put_answer(const struct plan *p, struct upload_reply *u, struct arena *a,
                      struct http_reply *reply)
{
    bool good = u->status < 300;

    u->etag[0] = '\0'; /* the tree's: nothing that a client of a registry could use */
    if (p->put.kind == PUT_APPEND_OPEN || p->put.kind == PUT_APPEND ||
        p->put.kind == PUT_APPEND_STATUS) {
        answer_upload(p, u, a, reply);
    }
    if (!good) {
        word_no(p, u, a);
        return;
    }
    buf_clear(&u->body);
    if (u->status == 201 && (p->put.kind == PUT_APPEND || p->put.kind == PUT_APPEND_OPEN)) {
        answer_blob(p, a, reply);
    } else if (p->reader == &image_manifest_reader) {
        answer_manifest(p, u, a, reply);
    } else if (p->put.kind == PUT_DELETE || p->put.kind == PUT_CHANGES) {
        u->status = 202;
    }
}
