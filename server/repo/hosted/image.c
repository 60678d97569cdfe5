#include "server/repo/hosted/image.h"

#include "common/codec/form.h"
#include "server/store/alias.h"
#include "server/store/blob.h"
#include "server/upload/brought.h"
#include "server/store/keep.h"
#include "server/store/row.h"

enum { KEY_BYTES = 8192, VALUE_MAX = 1024 };

/* --- saying ------------------------------------------------------------------------------------------------------- */

void image_say(struct image_ask *k, enum oci_code code, const char *why)
{
    plan_reply(k->p, oci_code_status(code), oci_errors(code, slice_str(why), k->a));
    k->p->content_type = OCI_ERRORS_TYPE;
    plan_field(k->p, SLICE("cache-control"), SLICE("no-store"));
}

bool image_is_tree(struct slice name)
{
    return slice_starts(name, SLICE(IMAGE_TREE));
}

struct slice image_subject(const struct image_ask *k, struct slice name)
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

bool image_may(struct image_ask *k, const char *right, struct slice name, bool *asks)
{
    const struct fact *f = plan_right(k->facts, slice_str(right), image_subject(k, name), k->p);

    *asks = f == NULL;
    return f != NULL && f->rc == 0;
}

/* --- blobs -------------------------------------------------------------------------------------------------------- */

static const struct fact *holder(struct image_ask *k, const struct digest *d, char kind,
                                 struct slice name)
{
    struct buf key = BUF_INIT(KEY_BYTES);
    const struct fact *f;

    holder_key(&key, d, slice_str(k->r->name), kind, name);
    f = plan_row(k->facts, TABLE_HOLDER, arena_copy(k->a, buf_slice(&key)), k->p);
    buf_free(&key);
    return f;
}

/* An upload has brought it, and no manifest names it yet: for those alone who may write one. NULL: the plan asks. */
static const struct fact *brought(struct image_ask *k, const struct digest *d)
{
    struct buf key = BUF_INIT(KEY_BYTES);
    const struct fact *f;

    brought_key(&key, slice_str(k->r->name), k->tree, d);
    f = plan_row(k->facts, TABLE_UPLOAD, arena_copy(k->a, buf_slice(&key)), k->p);
    buf_free(&key);
    return f == NULL || f->rc != 0 ? f : holder(k, d, 'u', f->bytes);
}

/* Who holds it, as far as the caller may know: a version of the tree, or an upload. False: nobody, or the plan asks (*asks). */
static bool find_blob(struct image_ask *k, const struct digest *d, bool *asks)
{
    const struct fact *f = holder(k, d, 't', k->tree);

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
    k->p->passing = true;
    f = brought(k, d);
    *asks = f == NULL;
    return f != NULL && f->rc == 0;
}

static void send_blob(struct image_ask *k, const struct digest *d, uint64_t size_bytes)
{
    plan_become(k->p, PLAN_BLOB);
    k->p->entry = (struct entry){
        .path = SLICE(""), .type = ENTRY_FILE, .digest = *d, .size_bytes = size_bytes};
    k->p->etag = arena_fmt(k->a, "\"" SLICE_FMT "\"", SLICE_ARG(k->at.reference));
    k->p->content_type = SLICE("application/octet-stream");
    k->p->cache_control = k->p->passing          ? SLICE("no-store")
                          : k->r->anonymous_read ? SLICE("public, max-age=31536000, immutable")
                                                 : SLICE("private, max-age=31536000, immutable");
    plan_field(k->p, SLICE("docker-content-digest"), k->at.reference);
}

/* What is called so here, as alias_find() by a row. False: nothing is, or the plan asks (*asks). */
static bool own_name(struct image_ask *k, struct digest *out, bool *asks)
{
    const struct called *c = &k->at.digest.called;
    const struct fact *f;

    *asks = false;
    if (c->by == CALLED_SHA256) {
        *out = c->sha256;
        return true;
    }
    f = plan_row(k->facts, TABLE_ALIAS, arena_copy(k->a, alias_key(&c->sha512)), k->p);
    *asks = f == NULL;
    return f != NULL && f->rc == 0 && alias_decode(f->bytes, out);
}

static void plan_blob(struct image_ask *k)
{
    const struct fact *f = NULL;
    struct blob_row row;
    struct digest d;
    bool asks = false;

    if (own_name(k, &d, &asks) && find_blob(k, &d, &asks)) {
        f = plan_row(k->facts, TABLE_BLOB,
                     arena_copy(k->a, slice_of((const char *)d.b, DIGEST_BYTES)), k->p);
        asks = f == NULL;
    }
    if (asks) {
        return;
    }
    if (f == NULL || f->rc != 0 || blob_row_decode(f->bytes, &row, NULL) != 0) {
        image_say(k, OCI_BLOB_UNKNOWN, "this image has no such blob");
        return;
    }
    send_blob(k, &d, row.size_bytes);
}

/* --- manifests ---------------------------------------------------------------------------------------------------- */

static const struct snap *live(struct image_ask *k)
{
    const struct fact *f = plan_head(k->facts, k->tree, SLICE(""), k->p);

    if (f != NULL && f->rc != 0) {
        image_say(k, OCI_NAME_UNKNOWN, "no image of this name was pushed here");
    }
    return f != NULL && f->rc == 0 ? &f->snap : NULL;
}

/* What a manifest was called when it came. p == NULL: there is none of that digest, or the plan asks (*asks). */
static struct slice type_of(struct image_ask *k, const struct snap *sn, const struct digest *d,
                            bool *asks)
{
    struct slice path =
        arena_fmt(k->a, SLICE_FMT "type", SLICE_ARG(image_manifest_folder(d, k->a)));
    const struct fact *f = plan_entry(k->facts, &sn->root, path, k->p);

    if (f != NULL && f->rc == 0) {
        f = plan_row(k->facts, TABLE_INLINE,
                     arena_copy(k->a, slice_of((const char *)f->entry.digest.b, DIGEST_BYTES)),
                     k->p);
    }
    *asks = f == NULL;
    return f != NULL && f->rc == 0 ? f->bytes : SLICE_NONE;
}

/* The manifest that a tag or digest names. NULL: there is none, or the plan asks (*asks). */
static const struct fact *find_manifest(struct image_ask *k, const struct snap *sn, bool *asks)
{
    const struct fact *f;
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
    f = plan_entry(k->facts, &sn->root, path, k->p);
    *asks = f == NULL;
    return f != NULL && f->rc == 0 ? f : NULL;
}

static struct slice name_of(struct image_ask *k, const struct digest *d)
{
    char hex[DIGEST_HEX + 1];

    digest_format(d, hex);
    return k->at.by_digest ? k->at.reference : arena_fmt(k->a, "sha256:%s", hex);
}

static void plan_manifest(struct image_ask *k)
{
    const struct snap *sn = live(k);
    const struct fact *f;
    struct slice type = SLICE_NONE;
    struct slice name;
    bool asks = false;

    if (sn == NULL) {
        return;
    }
    f = find_manifest(k, sn, &asks);
    if (f != NULL) {
        type = type_of(k, sn, &f->entry.digest, &asks);
    }
    if (asks) {
        return;
    }
    if (type.p == NULL) {
        image_say(k, OCI_MANIFEST_UNKNOWN, "this image has no such tag or manifest");
        return;
    }
    name = name_of(k, &f->entry.digest);
    plan_become(k->p, PLAN_BLOB);
    k->p->entry = f->entry;
    k->p->snap = *sn;
    k->p->whole = true;
    k->p->content_type = type;
    k->p->etag = arena_fmt(k->a, "\"" SLICE_FMT "\"", SLICE_ARG(name));
    k->p->cache_control = k->r->anonymous_read ? SLICE("no-cache") : SLICE("private, no-cache");
    plan_field(k->p, SLICE("docker-content-digest"), name);
}

/* --- lists -------------------------------------------------------------------------------------------------------- */

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

/* Of what was never pushed, too: an empty list tells clients that this way of asking is known here. */
static void plan_referrers(struct image_ask *k)
{
    const struct fact *f = plan_head(k->facts, k->tree, SLICE(""), k->p);
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

/* --- which requests ----------------------------------------------------------------------------------------------- */

static void plan_read(struct image_ask *k)
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
        image_say(k, OCI_UNSUPPORTED, "an upload is begun with POST");
        break;
    case OCI_OTHER:
        image_say(k, OCI_NAME_UNKNOWN, "a registry has no such page");
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
        plan_read(k);
    } else if (k->at.kind == OCI_OTHER) {
        image_say(k, OCI_NAME_UNKNOWN, "a registry has no such page");
    } else {
        image_write(k);
    }
}
