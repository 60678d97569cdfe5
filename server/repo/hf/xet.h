/* xet.h - a chunk store for clients that insist on one, made of whole files: nothing is kept in
 * chunks here.
 *
 * huggingface_hub with hf_xet gets files of any size, in many ranges at once, from a "CAS" that it
 * is told of. We announce one, and say of each file that it consists of stretches of
 * XET_TERM_CHUNKS chunks of 128 KiB, stored as they are; the stretches' bytes are the file's own
 * with a head before each chunk (server/repo/hf/xorb.h), so they are made as they leave.
 *
 *   <home>/api/{T}/{id}/xet-read-token/{rev}                     -> where the CAS is: xet_token()
 *   <home>/api/{T}/{id}/xet/{commit}/v1/reconstructions/{sha256} -> what a file consists of: xet_terms()
 *   <home>/api/{T}/{id}/xet/{commit}/data/{sha256}[?key=...]     -> the framed bytes; asked for without a credential
 *
 * A file's name in that store is its SHA-256: clients check lengths, never hashes
 * (docs/protocols/hf.md).
 *
 * source   Xet Protocol Specification 1.1.0, CAS API, GET /v1/reconstructions
 * threads  any; everything is made in the arena that is given
 */
#ifndef SERVER_REPO_HF_XET_H
#define SERVER_REPO_HF_XET_H

#include "server/repo/repo.h"

#define XET_LARGE_FROM_BYTES UINT64_C(50000000000) /* stock clients refuse more over plain HTTP */

enum { XET_TERM_CHUNKS = 256, XET_KEY_S = 6 * 3600, XET_TOKEN_S = 3600 };

/* Of the setting off | large | on (NULL: the usual one): files from this size on are offered so. */
uint64_t xet_from_bytes(const char *setting);

struct xet_place {
    struct slice home; /* "http://mirror:8080/hf", no '/' behind it */
    struct slice type, id, commit;
};

/* The fields that make a client go there. */
void xet_announce(const struct xet_place *at, const struct digest *d, struct arena *a,
                  struct plan *p);
/* The credential that comes back with what is asked there: the request's own, so rights are looked
 * at each time anew. */
struct slice xet_credential(struct slice authorization);
/* {"casUrl", "accessToken", "exp"} */
void xet_token_json(struct slice store, struct slice credential, uint64_t exp_unix_s,
                    struct buf *out);
/* A PLAN_REPLY, in JSON and in fields, for old and new clients. authorization: the request's. */
void xet_token(const struct xet_place *at, struct slice authorization, uint64_t now_unix_s,
               struct arena *a, struct plan *p);
/* No credential: what xet_token() gives to those who came without. */
bool xet_is_nobody(struct slice token);

enum xet_ask { XET_ASK_NONE, XET_ASK_TERMS, XET_ASK_DATA };
/* path: behind ".../xet/{commit}/". */
enum xet_ask xet_path_parse(struct slice path, struct digest *out);
/* A PLAN_REPLY: the terms that the request's Range is in, 416 behind the end. key: of the data's
 * URL, or p == NULL. */
void xet_terms(const struct xet_place *at, const struct http_req *req, const struct digest *d,
               uint64_t size_bytes, struct slice key, struct arena *a, struct plan *p);
/* The key of the data's URL, where one is needed: `credential` (may be "") sealed for these bytes
 * and XET_KEY_S. */
struct slice xet_key_seal(const struct repo *r, const struct xet_place *at, const struct digest *d,
                          struct slice credential, uint64_t now_unix_s, struct arena *a);
enum xet_key { XET_KEY_NONE, XET_KEY_GOOD, XET_KEY_BAD };
/* What the data's URL has behind its '?'. *credential: with XET_KEY_GOOD alone. */
enum xet_key xet_key_open(const struct repo *r, const struct xet_place *at, const struct digest *d,
                          struct slice query, uint64_t now_unix_s, struct arena *a,
                          struct slice *credential);

#endif
