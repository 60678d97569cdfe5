/* hub_object.c - objects that a commit will name, as LFS uploads them: the addresses that a batch
 * hands out, and the requests to them.
 *
 *   PUT  <tree>/-/objects/<sha256>?upload=<id>            all of it
 *   PUT  <tree>/-/objects/<sha256>?upload=<id>&part=<n>   a part of a large one; its ETag is for
 *                                                         the list below
 *   POST <tree>/-/objects/<sha256>?upload=<id>            {"oid", "parts": [{"partNumber",
 *                                                         "etag"}]}: that is all of them
 *   POST <tree>/-/objects/<sha256>?upload=<id>&verify=1   {"oid", "size"}: is it here?
 *   GET  <tree>/-/objects/<sha256>                        from a kept version of the tree
 *   GET  <tree>/-/objects/<sha256>?upload=<id>            from that upload grant
 *
 * Addresses for writing are only handed out to a caller that may publish, and are valid without a
 * token, because clients of a Hub send none there. Reading requires the right to read the tree; for
 * objects that no commit names yet, the right to publish there.
 */
#include <inttypes.h>
#include <stdio.h>

#include <jansson.h>

#include "common/codec/form.h"
#include "common/codec/jwrite.h"
#include "server/repo/hosted/hub.h"
#include "server/store/blob.h"
#include "server/upload/upload_grant.h"
#include "server/upload/parts.h"

enum { HREF_BYTES = 4096, OBJECTS_MAX = 4096, UPLOAD_GRANTS_BYTES = 1 << 16 };

/* --- giving out ------------------------------------------------------------------------------- */

static void action(struct buf *out, const char *name, struct slice href)
{
    jwrite_open(out, name, '{');
    jwrite_text(out, "href", href);
}

/* chunk_size and an address for each part: clients read them out of the header. */
static void parts_header(struct buf *out, const struct put_object *o, uint64_t part_bytes,
                         struct slice href)
{
    uint32_t count = parts_count(o->size_bytes, part_bytes);
    char text[HREF_BYTES + 32];
    char room[U64_DIGITS];

    jwrite_open(out, "header", '{');
    jwrite_text(out, "chunk_size", slice_of_u64(room, part_bytes));
    for (uint32_t n = 1; n <= count; n++) {
        snprintf(text, sizeof text, SLICE_FMT "&part=%" PRIu32, SLICE_ARG(href), n);
        jwrite_key(out, slice_of_u64(room, n));
        jwrite_str(out, NULL, text);
    }
    jwrite_close(out, '}');
}

static void actions(const struct plan *p, const struct put_object *o, const struct granted *f,
                    const char *hex, struct buf *out)
{
    char href[HREF_BYTES];
    char verify[HREF_BYTES + 16];

    snprintf(href, sizeof href, SLICE_FMT "/-/objects/%s?upload=%s", SLICE_ARG(p->text), hex,
             f->upload);
    jwrite_open(out, "actions", '{');
    action(out, "upload", slice_str(href));
    if (f->part_bytes != 0) {
        parts_header(out, o, f->part_bytes, slice_str(href));
    }
    jwrite_close(out, '}');
    if (f->part_bytes != 0) {
        snprintf(verify, sizeof verify, "%s&verify=1", href);
        action(out, "verify", slice_str(verify));
        jwrite_close(out, '}');
    }
    jwrite_close(out, '}');
}

void hub_objects_answer(const struct plan *p, struct upload_reply *u)
{
    char hex[DIGEST_HEX + 1];

    jwrite_open(&u->body, NULL, '{');
    jwrite_str(&u->body, "transfer", "basic");
    jwrite_open(&u->body, "objects", '[');
    for (size_t i = 0; i < p->put.objects_count; i++) {
        const struct put_object *o = &p->put.objects[i];
        digest_format(&o->digest, hex);
        jwrite_open(&u->body, NULL, '{');
        jwrite_str(&u->body, "oid", hex);
        jwrite_u64(&u->body, "size", o->size_bytes);
        if (!u->granted[i].held) { /* without actions a client has nothing to do */
            actions(p, o, &u->granted[i], hex, &u->body);
        }
        jwrite_close(&u->body, '}');
    }
    jwrite_close(&u->body, ']');
    jwrite_close(&u->body, '}');
}

/* --- what is read ----------------------------------------------------------------------------- */

struct found {
    bool held;
    /* the offer that has brought it; "": a version of the tree has it */
    char upload[UPLOAD_ID + 1];
    uint64_t size_bytes;
};

static int find_holder(struct store *s, const struct repo *r, const struct plan *p,
                       const struct digest *d, struct found *out, struct err *e)
{
    struct put put = {.repo = slice_str(r->name), .name = p->name};
    struct buf upload_grants = BUF_INIT(UPLOAD_GRANTS_BYTES);
    int rc = upload_grant_tree_holds(s, put.repo, put.name, d, &out->held, e);

    if (rc == 0 && !out->held && p->expand) {
        rc = upload_grant_tree_has(s, &put, d, &out->held, &upload_grants, e);
        out->held = out->held && upload_grants.n >= UPLOAD_ID;
        if (rc == 0 && out->held) {
            memcpy(out->upload, upload_grants.p, UPLOAD_ID);
        }
    }
    buf_free(&upload_grants);
    return rc;
}

static int find_object(struct store *s, const struct repo *r, const struct plan *p,
                       const struct digest *d, struct found *out, struct err *e)
{
    int rc = find_holder(s, r, p, d, out, e);

    if (rc == 0 && out->held) {
        rc = blob_length(s, d, &out->size_bytes, e);
        out->held = rc == 0;
    }
    return rc == E_NOTFOUND || rc == E_CORRUPT ? 0 : rc;
}

static void say_where(const struct repo *r, const struct plan *p, const struct digest *d,
                      const struct found *f, struct buf *out)
{
    struct slice credential = p->location;
    struct slice tree = slice_cut(&credential, ' ');
    char hex[DIGEST_HEX + 1], href[HREF_BYTES];

    digest_format(d, hex);
    snprintf(href, sizeof href, SLICE_FMT "/-/objects/%s%s%s", SLICE_ARG(tree), hex,
             f->upload[0] != '\0' ? "?upload=" : "", f->upload);
    jwrite_bool(out, "authenticated", true);
    jwrite_open(out, "actions", '{');
    action(out, "download", slice_str(href));
    if (credential.n != 0 && (!r->anonymous_read || f->upload[0] != '\0')) {
        jwrite_open(out, "header", '{');
        jwrite_text(out, "Authorization", credential);
        jwrite_close(out, '}');
    }
    jwrite_close(out, '}');
    jwrite_close(out, '}');
}

static void write_object_missing(struct buf *out)
{
    jwrite_open(out, "error", '{');
    jwrite_u64(out, "code", 404);
    jwrite_str(out, "message", "no version of this repository has that object");
    jwrite_close(out, '}');
}

static int write_object(struct store *s, const struct repo *r, const struct plan *p,
                        const json_t *o, struct buf *out, struct err *e)
{
    struct found f = {0};
    struct digest d;
    int rc;

    if (!digest_parse(jread_text(o, "oid"), &d) || !jread_u64(o, "size", &f.size_bytes)) {
        return E_INVALID;
    }
    rc = find_object(s, r, p, &d, &f, e);
    jwrite_open(out, NULL, '{');
    jwrite_hex(out, "oid", d.b, DIGEST_BYTES);
    jwrite_u64(out, "size", f.size_bytes);
    if (f.held) {
        say_where(r, p, &d, &f, out);
    } else {
        write_object_missing(out);
    }
    jwrite_close(out, '}');
    return rc;
}

int hub_objects(struct store *s, const struct repo *r, const struct plan *p, struct buf *out,
                struct err *e)
{
    json_t *o = jread_parse(p->text, JSON_REJECT_DUPLICATES, HUB_BODY_VALUES);
    const json_t *list = json_object_get(o, "objects"), *one;
    int rc = json_is_array(list) && json_array_size(list) <= OBJECTS_MAX ? 0 : E_INVALID;
    size_t i;

    jwrite_open(out, NULL, '{');
    jwrite_str(out, "transfer", "basic");
    jwrite_str(out, "hash_algo", "sha256");
    jwrite_open(out, "objects", '[');
    json_array_foreach(list, i, one)
    {
        rc = rc != 0 ? rc : write_object(s, r, p, one, out, e);
    }
    jwrite_close(out, ']');
    jwrite_close(out, '}');
    json_decref(o);
    return rc == E_INVALID
               ? err_set(e, rc,
                         "invalid body: objects must be a list of at most 4096 {oid: sha256, size}")
               : rc;
}

/* --- what comes there ------------------------------------------------------------------------- */

static void plan_bytes(struct hub_ask *k, struct slice part)
{
    uint64_t n = 0;

    if (part.p != NULL && (!slice_u64(part, &n) || n == 0 || n > PARTS_MAX)) {
        hub_say(k, 404, NULL, SLICE("invalid part number: parts are numbered from 1"));
    } else if (http_req_field(k->req, "content-encoding").p != NULL ||
               http_req_field(k->req, "content-range").p != NULL) {
        hub_say(k, 415, NULL,
                SLICE("an object or a part must be sent whole, without Content-Range and "
                      "Content-Encoding"));
    } else {
        k->p->put.kind = part.p != NULL ? PUT_PART : PUT_OBJECT;
        k->p->put.part = (uint32_t)n;
    }
}

/* Both bodies name the object that the address names. */
static bool names_object(const struct hub_ask *k, const json_t *o)
{
    struct digest d;

    return digest_parse(jread_text(o, "oid"), &d) && digest_eq(&d, &k->p->put.digest);
}

/* ETags are for stores that have nothing better than them; here the digest of all the parts
 * decides. */
static void plan_end(struct hub_ask *k, const json_t *o)
{
    const json_t *parts = json_object_get(o, "parts");
    size_t i;
    const json_t *one;

    if (!names_object(k, o) || !json_is_array(parts) || json_array_size(parts) > PARTS_MAX) {
        hub_say(k, 400, NULL,
                SLICE("invalid body: the end of an object is {oid, parts: [{partNumber, etag}]}"));
        return;
    }
    json_array_foreach(parts, i, one)
    {
        if (json_integer_value(json_object_get(one, "partNumber")) != (json_int_t)i + 1) {
            hub_say(k, 400, NULL,
                    SLICE("the parts must be listed in order, each once, starting with 1"));
            return;
        }
    }
    k->p->put.kind = PUT_PARTS_END;
    k->p->put.parts_count = (uint32_t)json_array_size(parts);
}

static void plan_verify(struct hub_ask *k, const json_t *o)
{
    if (!names_object(k, o) || !jread_u64(o, "size", &k->p->put.total)) {
        hub_say(k, 400, NULL, SLICE("invalid body: it must be {oid, size}"));
        return;
    }
    k->p->put.kind = PUT_OBJECT_KNOWN;
}

static void plan_word(struct hub_ask *k, bool verify)
{
    struct put put = k->p->put;
    json_t *o = hub_body(k);

    if (o == NULL) {
        return;
    }
    plan_become(k->p, PLAN_PUT);
    k->p->put = put;
    if (verify) {
        plan_verify(k, o);
    } else {
        plan_end(k, o);
    }
    json_decref(o);
}

static void read_object(struct hub_ask *k, struct slice hex)
{
    struct slice query = k->req->query;
    struct slice upload = form_find(&query, "upload", UPLOAD_ID + 1, k->a);
    struct digest d;
    struct entry en;

    k->p->right = upload.n != 0 ? RIGHT_PUBLISH : RIGHT_READ;
    k->p->subject = arena_fmt(k->a, "%s/" SLICE_FMT "/", k->r->name, SLICE_ARG(k->tree));
    if (!digest_parse(hex, &d)) {
        hub_say(k, 404, "EntryNotFound", SLICE("invalid name of an object: it must be a SHA-256"));
    } else if (hub_held(k, &d, upload, &en)) {
        plan_become(k->p, PLAN_BLOB);
        k->p->reuse = upload.n != 0 ? REUSE_NONE : REUSE_USUAL;
        k->p->entry = en;
        k->p->etag = arena_fmt(k->a, "\"" SLICE_FMT "\"", SLICE_ARG(hex));
        k->p->content_type = SLICE("application/octet-stream");
        k->p->cache_control = k->r->anonymous_read ? SLICE("no-cache") : SLICE("private, no-cache");
    }
    k->p->uploads_id = upload;
}

void hub_object(struct hub_ask *k, struct slice hex)
{
    struct slice query = k->req->query;
    struct slice part = SLICE_NONE;
    bool verify = false;

    k->p->variant = SLICE("hub");
    if (k->req->method == METHOD_GET || k->req->method == METHOD_HEAD) {
        read_object(k, hex);
        return;
    }
    k->p->right = RIGHT_KNOWN;
    hub_put(k, PUT_OBJECT);
    k->p->put.digest_known = digest_parse(hex, &k->p->put.digest);
    while (query.n != 0) {
        struct slice value = slice_cut(&query, '&');
        struct slice name = slice_cut(&value, '=');
        if (slice_eqs(name, "upload")) {
            k->p->put.upload_id = value;
        } else if (slice_eqs(name, "part")) {
            part = value;
        } else if (slice_eqs(name, "verify")) {
            verify = true;
        }
    }
    if (!k->p->put.digest_known || k->p->put.upload_id.n != UPLOAD_ID) {
        hub_say(k, 404, NULL,
                SLICE("no such upload; send objects to the addresses in the response to a batch"));
    } else if (k->req->method == METHOD_PUT) {
        plan_bytes(k, part);
    } else if (k->req->method == METHOD_POST) {
        plan_word(k, verify);
    } else {
        plan_method(k->p, SLICE("GET, HEAD, PUT, POST"),
                    SLICE("method not allowed: an object accepts GET, HEAD, PUT and POST\n"));
    }
}
