/* chunks.c - a Hub's large files by Xet's protocol, for clients that have it (repo/hf/xet.h).
 *
 * The Hub's own chunk store is never told of; what is offered instead is the very object that plain HTTP gives. Each of the
 * three requests looks at the caller's right anew. The last one comes without a credential, so the second gives it a URL
 * with one sealed inside, where one is needed. */
#include "server/repo/hf/hf.h"

#include "common/os/clock.h"
#include "server/repo/hf/xet.h"
#include "server/repo/hf/xorb_body.h"

static struct xet_place place_of(const struct hf_ask *k)
{
    return (struct xet_place){.home = plan_home(k->r, k->req, k->raw, k->a),
                              .type = k->at.type,
                              .id = k->at.id,
                              .commit = k->commit};
}

void chunks_announce(struct hf_ask *k, const struct manifest_entry *f)
{
    if (f->size_bytes >= k->r->xet_from_bytes) {
        struct xet_place at = place_of(k);
        xet_announce(&at, &f->sha256, k->a, k->p);
    }
}

void chunks_token(struct hf_ask *k)
{
    struct xet_place at;
    struct manifest m;

    if (k->r->xet_from_bytes == UINT64_MAX) {
        say_error(k, 404, SLICE_NONE,
                  SLICE("this mirror gives files over HTTP, its Xet store is switched off"));
    } else if (access_commit(k) && access_manifest(k, &m) && access_try(k)) {
        at = place_of(k);
        xet_token(&at, http_req_field(k->req, "authorization"), clock_unix_s(), k->a, k->p);
    }
}

enum xet_key chunks_use_key(struct hf_ask *k, const struct xet_place *at, const struct digest *d)
{
    struct slice credential;
    enum xet_key key;

    key = xet_key_open(k->r, at, d, k->req->query, clock_unix_s(), k->a, &credential);
    if (key == XET_KEY_BAD) {
        say_error(k, 403, SLICE_NONE, SLICE("this address is no longer good: ask for a new one"));
    } else if (key == XET_KEY_GOOD) {
        k->p->right = RIGHT_KNOWN;
        access_as(k, credential);
    }
    return key;
}

static void answer_terms(struct hf_ask *k, const struct manifest_entry *f)
{
    struct xet_place at = place_of(k);
    struct slice key = SLICE_NONE;

    if (k->closed || !k->r->anonymous_read) {
        key = xet_key_seal(k->r, &at, &f->sha256, k->token.p != NULL ? k->token : SLICE(""),
                           clock_unix_s(), k->a);
    }
    xet_terms(&at, k->req, &f->sha256, f->size_bytes, key, k->a, k->p);
}

static void answer_data(struct hf_ask *k, const struct manifest *m, const struct manifest_entry *f)
{
    if (!file_want(k, m, f)) {
        return;
    }
    k->p->framing = &xorb_framing;
    k->p->until_unix_s = k->until_unix_s;
    k->p->etag = arena_fmt(k->a, "\"xorb-" SLICE_FMT, SLICE_ARG(slice_from(k->p->etag, 1)));
    k->p->content_type = SLICE("application/octet-stream");
    if (k->closed) {
        k->p->cache_control = SLICE("private, no-cache");
    }
}

void chunks_answer(struct hf_ask *k)
{
    struct digest d;
    enum xet_ask ask = xet_path_parse(k->at.path, &d);
    struct xet_place at = place_of(k);
    struct manifest_entry f;
    struct manifest m;

    if (ask == XET_ASK_NONE || !hf_is_commit(k->at.rev)) {
        say_error(k, 404, SLICE_NONE, SLICE("this Xet store has reconstructions (v1) and data"));
        return;
    }
    at.commit = k->at.rev;
    if ((ask == XET_ASK_DATA && chunks_use_key(k, &at, &d) == XET_KEY_BAD) || !access_commit(k) ||
        !access_manifest(k, &m)) {
        return;
    }
    if (!manifest_find_lfs(&m, &d, &f)) {
        say_no_file(k);
    } else if (!access_try(k)) {
        return;
    } else if (ask == XET_ASK_TERMS) {
        answer_terms(k, &f);
    } else {
        answer_data(k, &m, &f);
    }
}
