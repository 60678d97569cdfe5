/* sigv4.h - signs a request by AWS Signature Version 4, in the form for services that treat paths
 * as S3 does: the path is encoded once and never normalized.
 *
 * The signed request must be sent byte for byte: with the same path and query, and every signed
 * field. libcurl's own signer is wrong for S3 (it does not sort the query, and its list of fields
 * is not clean), so this one exists.
 *
 * owns     nothing
 * threads  any; pure
 * errors   E_TOOBIG: more fields or bytes than a request of ours has
 * source   AWS, "Authenticating Requests: Using the Authorization Header (AWS Signature Version
 * 4)"
 */
#ifndef SERVER_FETCH_SIGV4_H
#define SERVER_FETCH_SIGV4_H

#include "common/base/buf.h"
#include "server/http/msg.h"

#define SIGV4_EMPTY_PAYLOAD "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"

enum { SIGV4_FIELDS_MAX = 16, SIGV4_DATE_ROOM = 17 }; /* "20130524T000000Z" and NUL */

struct sigv4_keys {
    struct slice access_key, secret;
    struct slice region, service; /* "us-east-1", "s3" */
};

struct sigv4_request {
    struct slice method;
    /* as sent: every byte except A-Z a-z 0-9 - . _ ~ / is encoded, in upper case */
    struct slice path;
    struct slice query; /* as sigv4_query() writes it; may be empty */
    /* The fields to sign: "host", "x-amz-date", "x-amz-content-sha256" and all other x-amz-.
     * Lower-case names, in any order. */
    const struct http_field *fields;
    size_t nfields;
    struct slice payload; /* hex SHA-256 of the body, or "UNSIGNED-PAYLOAD" */
};

void sigv4_date(uint64_t unix_s, char out[SIGV4_DATE_ROOM]);
/* The canonical form of a query: decoded, encoded again, each part with its '=', sorted. False: a
 * bad escape, or too many parts. */
MUST_USE bool sigv4_query(struct slice raw, struct buf *out);
/* Appends the value of the Authorization field. unix_s: the time in x-amz-date. */
MUST_USE int sigv4_sign(const struct sigv4_keys *k, const struct sigv4_request *r, uint64_t unix_s,
                        struct buf *out, struct err *e);

#endif
