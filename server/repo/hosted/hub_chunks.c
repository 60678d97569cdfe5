/* hub_chunks.c - files of hosted trees by Xet's protocol: out (repo/hf/xet.h), the blobs themselves, framed as they leave; and in
 * (repo/hosted/assemble.h), xorbs and shards that belong to one offer.
 *
 * The address of the store that a client brings its xorbs to is the offer's own, so what it remembers of chunks that it has
 * brought before, by address, never reaches beyond what is still here. A tree has the same one for half a day: an upload
 * that is broken off and begun again, or changed a little, brings the rest. */
#include <stdio.h>

#include "common/os/clock.h"
#include "server/repo/hosted/hub.h"
#include "server/repo/hf/xet.h"
#include "server/repo/hf/xorb_body.h"
#include "server/repo/hosted/assemble.h"
#include "server/store/keep.h"
#include "server/store/row.h"

static struct xet_place place_of(const struct hub_ask *k, struct slice commit)
{
    return (struct xet_place){.home = plan_home(k->r, k->req, k->path, k->a),
                              .type = k->at.type,
                              .id = k->at.id,
                              .commit = commit};
}

void hub_announce(struct hub_ask *k, const struct entry *en)
{
    if (en->size_bytes >= k->r->xet_from_bytes) {
        struct xet_place at = place_of(k, slice_str(k->commit));
        xet_announce(&at, &en->digest, k->a, k->p);
    }
}

void hub_token(struct hub_ask *k)
{
    if (k->r->xet_from_bytes == UINT64_MAX) {
        hub_say(k, 404, NULL,
                SLICE("this mirror gives files over HTTP, its Xet store is switched off"));
    } else if (hub_version(k) != NULL) {
        struct xet_place at = place_of(k, slice_str(k->commit));
        xet_token(&at, http_req_field(k->req, "authorization"), clock_unix_s(), k->a, k->p);
    }
}

/* A right to the tree is one to what any kept version of it holds. False: the plan says what is missing. */
bool hub_held(struct hub_ask *k, const struct digest *d, struct slice upload, struct entry *out)
{
    struct buf key = BUF_INIT(4096);
    const struct fact *held;
    const struct fact *row;
    struct blob_row b;
    struct err e;

    holder_key(&key, d, slice_str(k->r->name), upload.n != 0 ? 'u' : 't',
               upload.n != 0 ? upload : k->tree);
    held = plan_row(k->facts, TABLE_HOLDER, arena_copy(k->a, buf_slice(&key)), k->p);
    buf_free(&key);
    row = held == NULL || held->rc != 0
              ? held
              : plan_row(k->facts, TABLE_BLOB,
                         arena_copy(k->a, slice_of((const char *)d->b, DIGEST_BYTES)), k->p);
    if (row == NULL) {
        return false;
    }
    if (row->rc != 0 || blob_row_decode(row->bytes, &b, &e) != 0) {
        hub_say(k, 404, "EntryNotFound",
                arena_fmt(k->a, "no such file in " SLICE_FMT, SLICE_ARG(k->at.id)));
        return false;
    }
    *out = (struct entry){
        .path = SLICE(""), .type = ENTRY_FILE, .digest = *d, .size_bytes = b.size_bytes};
    return true;
}

static bool use_key(struct hub_ask *k, const struct digest *d)
{
    struct xet_place at = place_of(k, k->at.rev);
    struct slice credential;
    enum xet_key key = xet_key_open(k->r, &at, d, k->req->query, clock_unix_s(), k->a, &credential);

    if (key == XET_KEY_BAD) {
        hub_say(k, 403, NULL, SLICE("this address is no longer good: ask for a new one"));
    }
    if (key != XET_KEY_GOOD) {
        return key == XET_KEY_NONE;
    }
    k->p->right = RIGHT_KNOWN;
    return true;
}

static void answer_terms(struct hub_ask *k, const struct entry *en)
{
    struct xet_place at = place_of(k, k->at.rev);
    struct slice key = SLICE_NONE;

    if (!k->r->anonymous_read) {
        key = xet_key_seal(k->r, &at, &en->digest, SLICE(""), clock_unix_s(), k->a);
    }
    xet_terms(&at, k->req, &en->digest, en->size_bytes, key, k->a, k->p);
}

static void answer_data(struct hub_ask *k, const struct entry *en)
{
    char hex[DIGEST_HEX + 1];

    digest_format(&en->digest, hex);
    plan_become(k->p, PLAN_BLOB);
    k->p->entry = *en;
    k->p->framing = &xorb_framing;
    k->p->etag = arena_fmt(k->a, "\"xorb-%s\"", hex);
    k->p->cache_control = k->r->anonymous_read ? SLICE("no-cache") : SLICE("private, no-cache");
}

void hub_store(struct hub_ask *k)
{
    struct entry en;
    struct digest d;
    enum xet_ask ask = xet_path_parse(k->at.path, &d);

    if (ask == XET_ASK_NONE || !hf_is_commit(k->at.rev)) {
        hub_say(k, 404, NULL, SLICE("this Xet store has reconstructions (v1) and data"));
    } else if ((ask == XET_ASK_DATA && !use_key(k, &d)) || !hub_held(k, &d, SLICE(""), &en)) {
        return;
    } else if (ask == XET_ASK_TERMS) {
        answer_terms(k, &en);
    } else {
        answer_data(k, &en);
    }
}

/* --- in ----------------------------------------------------------------------------------------------------------- */

void hub_write_token(struct hub_ask *k)
{
    struct xet_place at = place_of(k, SLICE(""));
    struct slice credential = xet_credential(http_req_field(k->req, "authorization"));

    if (k->r->xet_from_bytes == UINT64_MAX) {
        hub_say(
            k, 404, NULL,
            SLICE("this mirror's Xet store is switched off: set HF_HUB_DISABLE_XET=1 to upload"));
        return;
    }
    hub_put(k, PUT_OFFER);
    k->p->put.again = true;
    k->p->text =
        arena_fmt(k->a, SLICE_FMT "/api/" SLICE_FMT "/" SLICE_FMT "/xet-put/ " SLICE_FMT,
                  SLICE_ARG(at.home), SLICE_ARG(at.type), SLICE_ARG(at.id), SLICE_ARG(credential));
}

static bool is_hash(struct slice s)
{
    struct digest d;
    return digest_parse(s, &d);
}

/* "<what>/default/<hash>": the hash; p == NULL: it is another path. */
static struct slice hash_behind(struct slice path, struct slice what)
{
    struct slice hash = slice_starts(path, what) ? slice_from(path, what.n) : SLICE_NONE;

    return is_hash(hash) ? hash : SLICE_NONE;
}

/* hf_xet before 1.5 says no "v1", 1.0 "xorb" and "shard". */
static enum put_kind kind_of(struct slice path, struct slice *xorb)
{
    path = slice_starts(path, SLICE("v1/")) ? slice_from(path, 3) : path;
    *xorb = hash_behind(path, SLICE("xorbs/default/"));
    *xorb = xorb->p != NULL ? *xorb : hash_behind(path, SLICE("xorb/default/"));
    if (xorb->p != NULL) {
        return PUT_PIECE;
    }
    *xorb = hash_behind(path, SLICE("xorb-grants/default/"));
    if (xorb->p != NULL) {
        return PUT_PIECE_KNOWN;
    }
    return slice_eqs(path, "shards") || hash_behind(path, SLICE("shard/default/")).p != NULL
               ? PUT_ASSEMBLE
               : PUT_FILE; /* none of these */
}

/* Newer clients ask for leave before they bring a xorb: a yes says that it is here already, after a 404 they bring it. They ask
 * for more ("v1/chunks/", "v2/shards"), and do without. */
void hub_chunks_put(struct hub_ask *k)
{
    struct slice xorb;
    enum put_kind kind = kind_of(k->at.path, &xorb);

    k->p->right = RIGHT_PUBLISH;
    if (kind == PUT_FILE) {
        hub_say(k, 404, NULL, SLICE("this Xet store takes v1/xorbs and v1/shards"));
    } else if (k->req->method != METHOD_POST) {
        plan_method(k->p, SLICE("POST"), SLICE("this path takes POST\n"));
    } else {
        hub_put(k, kind);
        k->p->put.assembler = &xet_assembler;
        k->p->put.upload_id = k->at.rev;
        k->p->put.path =
            xorb.p != NULL ? arena_fmt(k->a, XORB_PATH SLICE_FMT, SLICE_ARG(xorb)) : SLICE("");
    }
}

void hub_chunks_answer(const struct plan *p, struct upload_reply *u)
{
    struct slice credential = p->text;
    struct slice store = slice_cut(&credential, ' ');
    char at[4096];

    if (u->status != 200) {
        return;
    }
    buf_clear(&u->body);
    if (p->put.kind == PUT_PIECE_KNOWN) {
        buf_str(&u->body, "{}");
    } else if (p->put.kind == PUT_PIECE) {
        buf_str(&u->body, "{\"was_inserted\":true}");
    } else if (p->put.kind == PUT_ASSEMBLE) {
        buf_str(&u->body, "{\"result\":1}");
    } else {
        int n = snprintf(at, sizeof at, SLICE_FMT "%s", SLICE_ARG(store), u->upload);
        xet_token_json(slice_of(at, (size_t)min_u64((uint64_t)n, sizeof at - 1)), credential,
                       u->until_unix_s, &u->body);
    }
}
