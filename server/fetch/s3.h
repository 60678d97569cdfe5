/* s3.h - a bucket of S3 as an origin: its URL as HTTP has it, its keys, requests signed with them,
 * and what its refusals mean.
 *
 * owns     s3_close() frees, and wipes what is secret
 * threads  any; a bucket does not change once it is open
 * errors   E_CONFIG: settings that cannot be. The secret, the token and what is signed stand in no
 *          sentence
 */
#ifndef SERVER_FETCH_S3_H
#define SERVER_FETCH_S3_H

#include "common/base/arena.h"
#include "common/hash/digest.h"
#include "common/xfer/xfer.h"
#include "server/fetch/origin.h"

struct s3 {
    struct origin_bucket bucket;
    char *access_key, *secret, *token; /* NULL, NULL: anonymous; token may be NULL alone */
};

/* *url: the prefix' own URL, "https://bucket.s3.eu-west-1.amazonaws.com/a%20b/". */
MUST_USE int s3_open(const struct origin_settings *set, struct s3 **out, struct buf *url,
                     struct err *e);
void s3_close(struct s3 **bp); /* NULL is fine */

/* Puts *url into the form that is signed, and gives the lines to be sent with it, to be kept as
 * secret as the keys. */
MUST_USE int s3_sign(const struct s3 *b, bool head, uint64_t unix_s, struct buf *url,
                     struct arena *a, struct slice lines[ORIGIN_LINES], size_t *n, struct err *e);

/* A head's x-amz-checksum-sha256, and its -type or p == NULL: false when it is not that of the
 * object's bytes but of its parts' sums, or none. */
MUST_USE bool s3_checksum(struct slice value, struct slice type, struct digest *out);

/* Is it a no, whose reason stands in its body? */
bool s3_is_no(const struct xfer_head *h);
/* What the document of a no says, as it may be shown: printable, short. Empty: nothing. */
struct s3_no {
    char code[64], message[128], region[40];
};
/* region: the head's x-amz-bucket-region, or p == NULL. */
void s3_no_read(struct slice body, struct slice region, struct s3_no *out);
/* Whose fault is it? 0: of this one object or this moment, the status says all. Else why no request
 * to this bucket can go well before somebody has mended something: E_CONFIG (region, bucket),
 * E_DENIED (keys, clock). */
MUST_USE int s3_no_judge(const struct s3 *b, int status, const struct s3_no *no, struct err *e);

#endif
