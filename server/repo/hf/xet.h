/* xet.h - a chunk store for clients that require one, made of whole files: no chunks are stored
 * here.
 *
 * huggingface_hub with hf_xet downloads files of any size, in many parallel ranges, from a "CAS"
 * whose address a Hub announces. We announce one of our own. It describes each file as terms of
 * XET_TERM_CHUNKS chunks of 128 KiB, stored uncompressed. The bytes of a term are the file's own
 * with a head before each chunk (server/repo/hf/xorb.h), so they are made while they are sent.
 *
 *   <home>/api/{T}/{id}/xet-read-token/{rev}
 *       -> the address of the CAS: xet_token()
 *   <home>/api/{T}/{id}/xet/{commit}/v1/reconstructions/{sha256}
 *       -> the terms of a file: xet_terms()
 *   <home>/api/{T}/{id}/xet/{commit}/data/{sha256}[?key=...]
 *       -> the framed bytes; requested without a credential
 *
 * A file's name in that store is its SHA-256: clients check lengths, never hashes
 * (docs/protocols/hf.md).
 *
 * owns     nothing: everything is made in the given arena
 * threads  any
 * source   Xet Protocol Specification 1.1.0, CAS API, GET /v1/reconstructions
 */
#ifndef SERVER_REPO_HF_XET_H
#define SERVER_REPO_HF_XET_H

#include "server/repo/repo.h"

/* stock clients refuse larger files over plain HTTP */
#define XET_LARGE_FROM_BYTES UINT64_C(50000000000)

enum { XET_TERM_CHUNKS = 256, XET_KEY_S = 6 * 3600, XET_TOKEN_S = 3600 };

/* From the setting off | large | on (NULL: the default): files of this size or more are offered by
 * this protocol. */
uint64_t xet_from_bytes(const char *setting);

struct xet_place {
    struct slice home; /* "http://mirror:8080/hf", without a trailing '/' */
    struct slice type, id, commit;
};

/* The fields that direct a client there. */
void xet_announce(const struct xet_place *at, const struct digest *d, struct arena *a,
                  struct plan *p);
/* The credential that clients send back with each request: it is the request's own, so rights are
 * checked again each time. */
struct slice xet_credential(struct slice authorization);
/* {"casUrl", "accessToken", "exp"} */
void xet_token_json(struct slice store, struct slice credential, uint64_t exp_unix_s,
                    struct buf *out);
/* A PLAN_REPLY, in JSON and in fields, for old and new clients. authorization: the request's. */
void xet_token(const struct xet_place *at, struct slice authorization, uint64_t now_unix_s,
               struct arena *a, struct plan *p);
/* True for the credential that xet_token() gives to clients without one. */
bool xet_is_nobody(struct slice token);

enum xet_ask { XET_ASK_NONE, XET_ASK_TERMS, XET_ASK_DATA };
/* path: the part after ".../xet/{commit}/". */
enum xet_ask xet_path_parse(struct slice path, struct digest *out);
/* A PLAN_REPLY: the terms that cover the request's Range; 416 after the end. key: for the data's
 * URL, or p == NULL. */
void xet_terms(const struct xet_place *at, const struct http_req *req, const struct digest *d,
               uint64_t size_bytes, struct slice key, struct arena *a, struct plan *p);
/* The key for the data's URL, if one is needed: `credential` (may be "") sealed for these bytes and
 * for XET_KEY_S. */
struct slice xet_key_seal(const struct repo *r, const struct xet_place *at, const struct digest *d,
                          struct slice credential, uint64_t now_unix_s, struct arena *a);
enum xet_key { XET_KEY_NONE, XET_KEY_GOOD, XET_KEY_BAD };
/* query: the part of the data's URL after '?'. *credential is only set with XET_KEY_GOOD. */
enum xet_key xet_key_open(const struct repo *r, const struct xet_place *at, const struct digest *d,
                          struct slice query, uint64_t now_unix_s, struct arena *a,
                          struct slice *credential);

#endif
