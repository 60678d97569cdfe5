/* hub_object.c - bytes that a commit will name, as LFS brings them: the addresses that a batch gives out, and what comes there.
 *
 *   PUT  <tree>/-/objects/<sha256>?upload=<id>            all of it
 *   PUT  <tree>/-/objects/<sha256>?upload=<id>&part=<n>   a part of a large one; its ETag is for the list below
 *   POST <tree>/-/objects/<sha256>?upload=<id>            {"oid", "parts": [{"partNumber", "etag"}]}: that is all of them
 *   POST <tree>/-/objects/<sha256>?upload=<id>&verify=1   {"oid", "size"}: is it here?
 *
 * They were told to one who may publish, and are good without a token: clients of a Hub send none there. */
#include <inttypes.h>
#include <stdio.h>

#include <jansson.h>

#include "common/codec/jwrite.h"
#include "server/repo/hosted/hub.h"
#include "server/store/parts.h"

enum { HREF_BYTES = 4096 };

/* --- giving out --------------------------------------------------------------------------------------------------- */

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

static void actions(const struct plan *p, const struct put_object *o, const struct offered *f,
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
        if (!u->offered[i].held) { /* without actions a client has nothing to do */
            actions(p, o, &u->offered[i], hex, &u->body);
        }
        jwrite_close(&u->body, '}');
    }
    jwrite_close(&u->body, ']');
    jwrite_close(&u->body, '}');
}

/* --- what comes there --------------------------------------------------------------------------------------------- */

static void plan_bytes(struct hub_ask *k, struct slice part)
{
    uint64_t n = 0;

    if (part.p != NULL && (!slice_u64(part, &n) || n == 0 || n > PARTS_MAX)) {
        hub_say(k, 404, NULL, SLICE("parts are numbered from 1 on"));
    } else if (http_req_field(k->req, "content-encoding").p != NULL ||
               http_req_field(k->req, "content-range").p != NULL) {
        hub_say(k, 415, NULL, SLICE("an object, or a part of one, is sent whole, as it is"));
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

/* ETags are for stores that have nothing better than them; here the digest of all the parts decides. */
static void plan_end(struct hub_ask *k, const json_t *o)
{
    const json_t *parts = json_object_get(o, "parts");
    size_t i;
    const json_t *one;

    if (!names_object(k, o) || !json_is_array(parts) || json_array_size(parts) > PARTS_MAX) {
        hub_say(k, 400, NULL, SLICE("the end of an object is {oid, parts: [{partNumber, etag}]}"));
        return;
    }
    json_array_foreach(parts, i, one)
    {
        if (json_integer_value(json_object_get(one, "partNumber")) != (json_int_t)i + 1) {
            hub_say(k, 400, NULL, SLICE("parts are told of in their order, each once, from 1 on"));
            return;
        }
    }
    k->p->put.kind = PUT_PARTS_END;
    k->p->put.parts_count = (uint32_t)json_array_size(parts);
}

static void plan_verify(struct hub_ask *k, const json_t *o)
{
    if (!names_object(k, o) || !jread_u64(o, "size", &k->p->put.total)) {
        hub_say(k, 400, NULL, SLICE("an object is verified as {oid, size}"));
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
    k->p->kind = PLAN_PUT;
    k->p->put = put;
    if (verify) {
        plan_verify(k, o);
    } else {
        plan_end(k, o);
    }
    json_decref(o);
}

void hub_object(struct hub_ask *k, struct slice hex)
{
    struct slice query = k->req->query;
    struct slice part = SLICE_NONE;
    bool verify = false;

    k->p->variant = SLICE("hub");
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
                SLICE("no such upload: objects go to the addresses that a batch gives"));
    } else if (k->req->method == METHOD_PUT) {
        plan_bytes(k, part);
    } else if (k->req->method == METHOD_POST) {
        plan_word(k, verify);
    } else {
        plan_method(k->p, SLICE("PUT, POST"),
                    SLICE("objects are read by their paths in the tree\n"));
    }
}
