#include "server/repo/hosted/image.h"

#include <inttypes.h>
#include <stdio.h>

#include "common/codec/form.h"
#include "common/codec/jread.h"
#include "common/codec/jwrite.h"
#include "common/codec/url.h"
#include "server/store/alias.h"
#include "server/store/blob.h"
#include "server/store/keep.h"
#include "server/store/row.h"
#include "server/upload/upload_grant.h"

static void image_say(struct image_ask *k, enum oci_code code, const char *why);
static bool image_may(struct image_ask *k, const char *right, struct slice name, bool *asks);

/* --- lists ---
 *
 * An image's tags, and what refers to a manifest: documents made of a tree, on a pool thread.
 */

enum { LIST_VALUE_MAX = 1024, DESCRIPTOR_MAX = 8 << 20, TAGS_MAX = 1 << 20 };

/* --- tags ------------------------------------------------------------------------------------- */

struct tags {
    struct listing_out *out;
    uint64_t limit, count;
    char last[OCI_TAG_MAX + 1];
    bool more;
};

static int on_tag(void *arg, const struct entry *en)
{
    struct tags *t = arg;
    struct slice tag = slice_from(en->path, strlen("tags/"));

    if (t->count == t->limit) {
        t->more = true;
        return 1;
    }
    t->count++;
    jwrite_text(t->out->body, NULL, tag);
    if (tag.n < sizeof t->last) {
        memcpy(t->last, tag.p, tag.n);
        t->last[tag.n] = '\0';
    }
    return 0;
}

static int list_tags(struct store *s, const struct plan *p, struct listing_out *out, struct err *e)
{
    struct tags t = {.out = out, .limit = TAGS_MAX};
    struct arena a = {0};
    struct slice query = p->text;
    struct slice n = form_find(&query, "n", LIST_VALUE_MAX, &a);
    struct slice after = SLICE_NONE;
    struct slice last;
    uint64_t limit;
    int rc;

    query = p->text;
    last = form_find(&query, "last", LIST_VALUE_MAX, &a);
    if (slice_u64(n, &limit)) {
        t.limit = min_u64(limit, TAGS_MAX);
    }
    if (last.n != 0) {
        after = arena_fmt(&a, "tags/" SLICE_FMT, SLICE_ARG(last));
    }
    jwrite_open(out->body, NULL, '{');
    jwrite_text(out->body, "name", slice_from(p->name, strlen(IMAGE_TREE)));
    jwrite_open(out->body, "tags", '[');
    rc = tree_walk(s, &p->snap.root, SLICE("tags/"), after, on_tag, &t, e);
    jwrite_close(out->body, ']');
    jwrite_close(out->body, '}');
    buf_byte(out->body, '\n');
    if (t.more && t.limit != 0) { /* tags need no escapes */
        buf_addf(&out->next, SLICE_FMT "/tags/list?n=%" PRIu64 "&last=%s", SLICE_ARG(p->location),
                 t.limit, t.last);
    }
    arena_fini(&a);
    out->content_type = SLICE("application/json");
    return rc > 0 ? 0 : rc;
}

/* --- referrers -------------------------------------------------------------------------------- */

struct referrers {
    struct store *s;
    struct buf *out;
    struct slice kind; /* n == 0: any */
    struct err *e;
};

static int on_referrer(void *arg, const struct entry *en)
{
    struct referrers *r = arg;
    struct buf text = BUF_INIT(DESCRIPTOR_MAX);
    int rc = blob_read_whole(r->s, &en->digest, &text, r->e);

    if (rc == 0 && r->kind.n != 0) {
        json_t *o = json_loadb(text.p, text.n, 0, NULL);
        if (!slice_eq(jread_text(o, "artifactType"), r->kind)) {
            buf_clear(&text);
        }
        json_decref(o);
    }
    if (rc == 0 && text.n != 0) {
        jwrite_word(r->out, NULL, buf_slice(&text));
    }
    buf_free(&text);
    return rc;
}

static int list_referrers(struct store *s, const struct plan *p, struct listing_out *out,
                          struct err *e)
{
    struct arena a = {0};
    struct slice query = p->text;
    struct referrers r = {s, out->body, form_find(&query, "artifactType", LIST_VALUE_MAX, &a), e};
    int rc;

    jwrite_open(out->body, NULL, '{');
    jwrite_u64(out->body, "schemaVersion", 2);
    jwrite_str(out->body, "mediaType", "application/vnd.oci.image.index.v1+json");
    jwrite_open(out->body, "manifests", '[');
    rc = tree_walk(s, &p->snap.root, p->entry.path, SLICE_NONE, on_referrer, &r, e);
    jwrite_close(out->body, ']');
    jwrite_close(out->body, '}');
    buf_byte(out->body, '\n');
    arena_fini(&a);
    out->content_type = SLICE("application/vnd.oci.image.index.v1+json");
    return rc;
}

int image_listing(struct store *s, const struct plan *p, struct listing_out *out, struct err *e)
{
    int rc = p->form == LIST_IMAGE_TAGS ? list_tags(s, p, out, e) : list_referrers(s, p, out, e);

    if (rc == 0 && out->body->rc != 0) {
        rc = err_set(e, out->body->rc, "the list is larger than %zu bytes", out->body->max);
    }
    return rc;
}

/* --- what is written ---
 *
 * What changes an image: blobs brought by uploads, manifests put and deleted; and how the answers
 * are worded.
 */

enum { PUT_VALUE_MAX = 1024, TYPE_MAX = 255 };

static void plan_image_put(struct image_ask *k, enum put_kind kind)
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

    return form_find(&query, name, PUT_VALUE_MAX, k->a);
}

/* text: as in a path or a query. It names what comes, and so ends it. */
static bool take_image_digest(struct image_ask *k, struct slice text)
{
    struct oci_digest d;

    if (!oci_digest_parse(text, &d)) {
        image_say(
            k, OCI_DIGEST_INVALID,
            "invalid digest: it must be sha256:<64 hex digits> or sha512:<128>, in lower case");
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
                  "bodies are stored as received; send this one without Content-Encoding");
        return false;
    }
    return true;
}

/* --- uploads ---------------------------------------------------------------------------------- */

/* "me/base" of "models/me/base": the name as the request's own path spells names. p == NULL: it is
 * not in this repo. */
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

/* The blob may be here already. Of another image only for those who may read that; else it is
 * uploaded, as ever. */
static void plan_mount(struct image_ask *k, struct slice digest)
{
    struct slice from = name_here(k, ask_query(k, "from"));
    bool asks = false;
    bool may = from.p != NULL && (k->r->anonymous_read || image_may(k, "read", from, &asks));

    if (asks) {
        return;
    }
    plan_image_put(k, PUT_APPEND_OPEN);
    k->p->put.location = arena_fmt(k->a, SLICE_FMT "/blobs/uploads", SLICE_ARG(k->base));
    if (take_image_digest(k, digest) && may) {
        k->p->put.to = arena_fmt(k->a, IMAGE_TREE SLICE_FMT, SLICE_ARG(from));
    }
}

static void plan_begin(struct image_ask *k)
{
    struct slice mount = ask_query(k, "mount");
    struct slice digest = ask_query(k, "digest");

    if (k->req->method != METHOD_POST) {
        image_say(k, OCI_UNSUPPORTED, "start an upload with POST");
    } else if (digest.p != NULL) { /* all of it at once */
        plan_image_put(k, PUT_APPEND);
        k->p->put.upload_id = SLICE("");
        if (plain_body(k)) {
            (void)take_image_digest(k, digest);
        }
    } else if (mount.p != NULL) {
        plan_mount(k, mount);
    } else {
        plan_image_put(k, PUT_APPEND_OPEN);
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
                  "invalid Content-Range; send <first>-<last>, with the length of the body");
        return false;
    }
    return true;
}

/* The end may come without a body: then nothing is said of where it begins. */
static bool ends_with_bytes(const struct image_ask *k)
{
    return k->req->has_body && k->req->content_length != 0;
}

static void plan_image_upload(struct image_ask *k)
{
    enum method m = k->req->method;

    plan_image_put(k, m == METHOD_GET || m == METHOD_HEAD ? PUT_APPEND_STATUS
                      : m == METHOD_DELETE                ? PUT_APPEND_DROP
                                                          : PUT_APPEND);
    k->p->put.upload_id = k->at.reference;
    if (k->at.reference.n != UPLOAD_ID) {
        image_say(k, OCI_BLOB_UPLOAD_UNKNOWN, "no such upload");
    } else if (m == METHOD_PATCH) {
        (void)(plain_body(k) && take_range(k));
    } else if (m == METHOD_PUT) {
        (void)(plain_body(k) && take_image_digest(k, ask_query(k, "digest")) &&
               (!ends_with_bytes(k) || take_range(k)));
    } else if (m == METHOD_POST || m == METHOD_OPTIONS || m == METHOD_OTHER) {
        image_say(k, OCI_UNSUPPORTED,
                  "method not allowed: an upload accepts PATCH, PUT, GET and DELETE");
    }
}

/* --- manifests -------------------------------------------------------------------------------- */

static void plan_put_manifest(struct image_ask *k)
{
    struct slice type = http_req_field(k->req, "content-type");

    plan_image_put(k, PUT_CHANGES);
    k->p->reader = &image_manifest_reader;
    k->p->put.path = k->at.by_digest ? SLICE("") : k->at.reference;
    k->p->put.location = k->base;
    k->p->put.to = slice_trim(slice_cut(&type, ';'));
    if (k->at.by_digest && !take_image_digest(k, k->at.reference)) {
        return;
    }
    (void)plain_body(k);
}

static void plan_delete_manifest(struct image_ask *k)
{
    if (!k->at.by_digest) {
        plan_image_put(k, PUT_DELETE);
        k->p->put.path = arena_fmt(k->a, "tags/" SLICE_FMT, SLICE_ARG(k->at.reference));
        return;
    }
    plan_image_put(k, PUT_CHANGES);
    k->p->reader = &image_removal_reader;
    (void)take_image_digest(k, k->at.reference);
}

/* all but GET and HEAD; and of an upload these too */
static void image_write(struct image_ask *k)
{
    enum method m = k->req->method;

    k->p->right = RIGHT_PUBLISH;
    if (k->at.kind == OCI_UPLOADS) {
        plan_begin(k);
    } else if (k->at.kind == OCI_UPLOAD) {
        plan_image_upload(k);
    } else if (k->at.kind == OCI_MANIFEST && m == METHOD_PUT) {
        plan_put_manifest(k);
    } else if (k->at.kind == OCI_MANIFEST && m == METHOD_DELETE) {
        plan_delete_manifest(k);
    } else if (k->at.kind == OCI_BLOB && m == METHOD_DELETE) {
        image_say(k, OCI_UNSUPPORTED,
                  "blobs cannot be deleted one by one; they are deleted after the last manifest "
                  "that refers to them");
    } else {
        image_say(k, OCI_UNSUPPORTED, "method not allowed on this path");
    }
}

/* --- answers ---------------------------------------------------------------------------------- */

static enum oci_code oci_code_of(const struct plan *p, int status)
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
            oci_errors(oci_code_of(p, u->status), why.p != NULL ? why : SLICE("refused"), a);
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

enum { KEY_BYTES = 8192, VALUE_MAX = 1024 };

/* --- saying ----------------------------------------------------------------------------------- */

/* --- of this folder --- */
static void image_say(struct image_ask *k, enum oci_code code, const char *why)
{
    plan_reply(k->p, oci_code_status(code), oci_errors(code, slice_str(why), k->a));
    k->p->content_type = OCI_ERRORS_TYPE;
    plan_field(k->p, SLICE("cache-control"), SLICE("no-store"));
}

bool image_is_tree(struct slice name)
{
    return slice_starts(name, SLICE(IMAGE_TREE));
}

/* Below an image; "" for the top. */
static struct slice image_subject(const struct image_ask *k, struct slice name)
{
    return arena_fmt(k->a, "%s/" SLICE_FMT "/", k->r->name, SLICE_ARG(name));
}

struct slice image_manifest_folder(const struct digest *d, struct arena *a)
{
    char hex[DIGEST_HEX + 1];

    digest_format(d, hex);
    return arena_fmt(a, "manifests/sha256/%s/", hex);
}

struct slice image_referrers_folder(const struct oci_digest *d, struct arena *a)
{
    struct slice hex = d->text;
    struct slice algorithm = slice_cut(&hex, ':');

    return arena_fmt(a, "referrers/" SLICE_FMT "/" SLICE_FMT "/", SLICE_ARG(algorithm),
                     SLICE_ARG(hex));
}

/* May the caller do that to the image `name`? False: no, or, with *asks, not known yet. */
static bool image_may(struct image_ask *k, const char *right, struct slice name, bool *asks)
{
    const struct result *f = plan_right(k->results, slice_str(right), image_subject(k, name), k->p);

    *asks = f == NULL;
    return f != NULL && f->rc == 0;
}

/* --- blobs ------------------------------------------------------------------------------------ */

static const struct result *look_up_image_holder(struct image_ask *k, const struct digest *d,
                                                 char kind, struct slice name)
{
    struct buf key = BUF_INIT(KEY_BYTES);
    const struct result *f;

    holder_key(&key, d, slice_str(k->r->name), kind, name);
    f = plan_row(k->results, TABLE_HOLDER, arena_copy(k->a, buf_slice(&key)), k->p);
    buf_free(&key);
    return f;
}

/* An upload has brought it, and no manifest names it yet: for those alone who may write one. NULL:
 * the plan asks. */
static const struct result *staged_object(struct image_ask *k, const struct digest *d)
{
    struct buf key = BUF_INIT(KEY_BYTES);
    const struct result *f;

    staged_object_key(&key, slice_str(k->r->name), k->tree, d);
    f = plan_row(k->results, TABLE_UPLOAD, arena_copy(k->a, buf_slice(&key)), k->p);
    buf_free(&key);
    return f == NULL || f->rc != 0 ? f : look_up_image_holder(k, d, 'u', f->bytes);
}

/* Who holds it, as far as the caller may know: a version of the tree, or an upload (*staged).
 * False: nobody, or the plan asks (*asks). */
static bool find_blob(struct image_ask *k, const struct digest *d, bool *staged, bool *asks)
{
    const struct result *f = look_up_image_holder(k, d, 't', k->tree);

    *asks = f == NULL;
    if (f == NULL || f->rc == 0) {
        return f != NULL;
    }
    if (http_req_field(k->req, "authorization").p == NULL) {
        k->p->right = RIGHT_PUBLISH; /* who may push finds it with a token: they are asked for it */
        *asks = true;
        return false;
    }
    if (k->who->token == NULL || !image_may(k, "publish", k->at.name, asks)) {
        return false;
    }
    *staged = true;
    f = staged_object(k, d);
    *asks = f == NULL;
    return f != NULL && f->rc == 0;
}

static void send_blob(struct image_ask *k, const struct digest *d, uint64_t size_bytes, bool staged)
{
    plan_become(k->p, PLAN_BLOB);
    k->p->reuse = staged ? REUSE_NONE : REUSE_USUAL;
    k->p->entry = (struct entry){
        .path = SLICE(""), .type = ENTRY_FILE, .digest = *d, .size_bytes = size_bytes};
    k->p->etag = arena_fmt(k->a, "\"" SLICE_FMT "\"", SLICE_ARG(k->at.reference));
    k->p->content_type = SLICE("application/octet-stream");
    k->p->cache_control = staged                 ? SLICE("no-store")
                          : k->r->anonymous_read ? SLICE("public, max-age=31536000, immutable")
                                                 : SLICE("private, max-age=31536000, immutable");
    plan_field(k->p, SLICE("docker-content-digest"), k->at.reference);
}

/* What is called so here, as alias_find() by a row. False: nothing is, or the plan asks (*asks). */
static bool own_name(struct image_ask *k, struct digest *out, bool *asks)
{
    const struct called *c = &k->at.digest.called;
    const struct result *f;

    *asks = false;
    if (c->by == CALLED_SHA256) {
        *out = c->sha256;
        return true;
    }
    f = plan_row(k->results, TABLE_ALIAS, arena_copy(k->a, alias_key(&c->sha512)), k->p);
    *asks = f == NULL;
    return f != NULL && f->rc == 0 && alias_decode(f->bytes, out);
}

static void plan_blob(struct image_ask *k)
{
    const struct result *f = NULL;
    struct blob_row row;
    struct digest d;
    bool staged = false;
    bool asks = false;

    if (own_name(k, &d, &asks) && find_blob(k, &d, &staged, &asks)) {
        f = plan_row(k->results, TABLE_BLOB,
                     arena_copy(k->a, slice_of((const char *)d.b, DIGEST_BYTES)), k->p);
        asks = f == NULL;
    }
    if (asks) {
        return;
    }
    if (f == NULL || f->rc != 0 || blob_row_decode(f->bytes, &row, NULL) != 0) {
        image_say(k, OCI_BLOB_UNKNOWN, "this image does not have that blob");
        k->p->uploads_tree = staged ? k->tree : SLICE_NONE;
        return;
    }
    send_blob(k, &d, row.size_bytes, staged);
}

/* --- manifests -------------------------------------------------------------------------------- */

static const struct snap *live(struct image_ask *k)
{
    const struct result *f = plan_head(k->results, k->tree, SLICE(""), k->p);

    if (f != NULL && f->rc != 0) {
        image_say(k, OCI_NAME_UNKNOWN, "no image of this name exists here");
    }
    return f != NULL && f->rc == 0 ? &f->snap : NULL;
}

/* What a manifest was called when it came. p == NULL: there is none of that digest, or the plan
 * asks (*asks). */
static struct slice media_type_of_image(struct image_ask *k, const struct snap *sn,
                                        const struct digest *d, bool *asks)
{
    struct slice path =
        arena_fmt(k->a, SLICE_FMT "type", SLICE_ARG(image_manifest_folder(d, k->a)));
    const struct result *f = plan_entry(k->results, &sn->root, path, k->p);

    if (f != NULL && f->rc == 0) {
        f = plan_row(k->results, TABLE_INLINE,
                     arena_copy(k->a, slice_of((const char *)f->entry.digest.b, DIGEST_BYTES)),
                     k->p);
    }
    *asks = f == NULL;
    return f != NULL && f->rc == 0 ? f->bytes : SLICE_NONE;
}

/* The manifest that a tag or digest names. NULL: there is none, or the plan asks (*asks). */
static const struct result *find_manifest(struct image_ask *k, const struct snap *sn, bool *asks)
{
    const struct result *f;
    struct slice path;
    struct digest d;

    *asks = false;
    if (!k->at.by_digest) {
        path = arena_fmt(k->a, "tags/" SLICE_FMT, SLICE_ARG(k->at.reference));
    } else if (own_name(k, &d, asks)) {
        path = arena_fmt(k->a, SLICE_FMT "manifest", SLICE_ARG(image_manifest_folder(&d, k->a)));
    } else {
        return NULL;
    }
    f = plan_entry(k->results, &sn->root, path, k->p);
    *asks = f == NULL;
    return f != NULL && f->rc == 0 ? f : NULL;
}

static struct slice name_of_image_blob(struct image_ask *k, const struct digest *d)
{
    char hex[DIGEST_HEX + 1];

    digest_format(d, hex);
    return k->at.by_digest ? k->at.reference : arena_fmt(k->a, "sha256:%s", hex);
}

static void plan_manifest(struct image_ask *k)
{
    const struct snap *sn = live(k);
    const struct result *f;
    struct slice type = SLICE_NONE;
    struct slice name;
    bool asks = false;

    if (sn == NULL) {
        return;
    }
    f = find_manifest(k, sn, &asks);
    if (f != NULL) {
        type = media_type_of_image(k, sn, &f->entry.digest, &asks);
    }
    if (asks) {
        return;
    }
    if (type.p == NULL) {
        image_say(k, OCI_MANIFEST_UNKNOWN, "this image does not have that tag or manifest");
        return;
    }
    name = name_of_image_blob(k, &f->entry.digest);
    plan_become(k->p, PLAN_BLOB);
    k->p->entry = f->entry;
    k->p->snap = *sn;
    k->p->delivery = DELIVERY_WHOLE;
    k->p->content_type = type;
    k->p->etag = arena_fmt(k->a, "\"" SLICE_FMT "\"", SLICE_ARG(name));
    k->p->cache_control = k->r->anonymous_read ? SLICE("no-cache") : SLICE("private, no-cache");
    plan_field(k->p, SLICE("docker-content-digest"), name);
}

/* --- lists ------------------------------------------------------------------------------------ */

static void plan_list(struct image_ask *k, enum hosted_list form, const struct snap *sn)
{
    plan_become(k->p, PLAN_LIST);
    k->p->form = (int)form;
    k->p->snap = *sn;
    k->p->name = k->tree;
    k->p->entry.path = SLICE("");
    k->p->text = k->req->query;
    k->p->location = k->base;
    k->p->cache_control = k->r->anonymous_read ? SLICE("no-cache") : SLICE("private, no-cache");
}

static void plan_tags(struct image_ask *k)
{
    const struct snap *sn = live(k);

    if (sn != NULL) {
        plan_list(k, LIST_IMAGE_TAGS, sn);
    }
}

/* Of what was never pushed, too: an empty list tells clients that this way of asking is known
 * here. */
static void plan_referrers(struct image_ask *k)
{
    const struct result *f = plan_head(k->results, k->tree, SLICE(""), k->p);
    struct slice query = k->req->query;
    struct snap none = {0};

    if (f == NULL) {
        return;
    }
    tree_empty_root(&none.root);
    plan_list(k, LIST_IMAGE_REFERRERS, f->rc == 0 ? &f->snap : &none);
    k->p->entry.path = image_referrers_folder(&k->at.digest, k->a);
    if (form_find(&query, "artifactType", VALUE_MAX, k->a).n != 0) {
        plan_field(k->p, SLICE("oci-filters-applied"), SLICE("artifactType"));
    }
}

/* --- which requests --------------------------------------------------------------------------- */

static void plan_image_read(struct image_ask *k)
{
    switch (k->at.kind) {
    case OCI_MANIFEST:
        plan_manifest(k);
        break;
    case OCI_BLOB:
        plan_blob(k);
        break;
    case OCI_TAGS:
        plan_tags(k);
        break;
    case OCI_REFERRERS:
        plan_referrers(k);
        break;
    case OCI_UPLOAD:
        image_write(k);
        break;
    case OCI_UPLOADS:
        image_say(k, OCI_UNSUPPORTED, "start an upload with POST");
        break;
    case OCI_OTHER:
        image_say(k, OCI_NAME_UNKNOWN, "no such path in a registry");
        break;
    }
}

void image_plan(struct image_ask *k)
{
    bool read = k->req->method == METHOD_GET || k->req->method == METHOD_HEAD;
    enum oci_code code = OCI_NAME_INVALID;
    struct err why = {0};

    k->p->right = RIGHT_READ;
    if (oci_path_parse(k->path, k->a, &k->at, &code, &why) != 0) {
        image_say(k, code, why.text);
        return;
    }
    k->tree = arena_fmt(k->a, IMAGE_TREE SLICE_FMT, SLICE_ARG(k->at.name));
    k->base = arena_fmt(k->a, SLICE_FMT SLICE_FMT,
                        SLICE_ARG(slice_first(k->req->path, k->req->path.n - k->path.n)),
                        SLICE_ARG(k->at.name));
    k->p->subject = image_subject(k, k->at.name);
    k->p->variant = SLICE("oci");
    if (read) {
        plan_image_read(k);
    } else if (k->at.kind == OCI_OTHER) {
        image_say(k, OCI_NAME_UNKNOWN, "no such path in a registry");
    } else {
        image_write(k);
    }
}
