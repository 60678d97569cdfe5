/* s3.h - an S3 bucket as an origin: its URL over HTTP, its keys, signed requests, and the meaning
 * of its refusals.
 *
 * owns     s3_close() frees it, and wipes the secrets
 * threads  any; a bucket does not change once it is open
 * errors   E_CONFIG: invalid settings. No sentence has the secret, the token or the text that is
 *          signed
 */
#ifndef SERVER_FETCH_S3_H
#define SERVER_FETCH_S3_H

#include "common/base/arena.h"
#include "common/hash/digest.h"
#include "common/xfer/xfer.h"
#include "server/fetch/origin.h"
#include "server/http/msg.h"

struct s3 {
    struct origin_bucket bucket;
    char *access_key, *secret, *token; /* NULL, NULL: anonymous; only the token may be NULL */
};

/* *url: the prefix's own URL, "https://bucket.s3.eu-west-1.amazonaws.com/a%20b/". */
MUST_USE int s3_open(const struct origin_settings *set, struct s3 **out, struct buf *url,
                     struct err *e);
void s3_close(struct s3 **bp); /* NULL is fine */

struct s3_request {
    enum xfer_method method;
    struct slice payload; /* hex SHA-256 of the body; p == NULL: no body */
    /* More fields, signed and sent: lower-case names. At most S3_FIELDS_MAX. */
    const struct http_field *fields;
    size_t nfields;
};
enum { S3_FIELDS_MAX = 2, S3_LINES = ORIGIN_LINES + S3_FIELDS_MAX };
/* Changes *url to the form that is signed, and returns the lines to send with it (at most
 * ORIGIN_LINES and one for each of r->fields), which are as secret as the keys. */
MUST_USE int s3_sign(const struct s3 *b, const struct s3_request *r, uint64_t unix_s,
                     struct buf *url, struct arena *a, struct slice lines[], size_t *n,
                     struct err *e);

/* Parses a head's x-amz-checksum-sha256 and its -type (or p == NULL). False: it is not the digest
 * of the object's bytes but of its parts' sums, or there is none. */
MUST_USE bool s3_checksum(struct slice value, struct slice type, struct digest *out);

/* Is it a refusal whose reason is in its body? */
bool s3_is_no(const struct xfer_head *h);
/* The content of a refusal's document, fit for display: printable and short. Empty: it says
 * nothing. */
struct s3_no {
    char code[64], message[128], region[40];
};
/* region: the head's x-amz-bucket-region, or p == NULL. */
void s3_no_read(struct slice body, struct slice region, struct s3_no *out);
/* The cause of a refusal. 0: this one object or this moment; the status says all. Else no request
 * to this bucket can succeed before a person fixes something: E_CONFIG (region, bucket), E_DENIED
 * (keys, clock). */
MUST_USE int s3_no_judge(const struct s3 *b, int status, const struct s3_no *no, struct err *e);

#endif
