/* token_bucket.h - limits how fast each client may send requests: GCRA over a bounded, sharded
 * table.
 *
 * A bucket is one theoretical arrival time, a count of connections and the pace of the bytes.
 * Time is an argument, so nothing runs in the background. A bucket whose time is in the past
 * equals none. When a shard is full, the least recently used bucket is dropped.
 *
 * threads  any; a short lock per call
 */
#ifndef SERVER_GATE_TOKEN_BUCKET_H
#define SERVER_GATE_TOKEN_BUCKET_H

#include "common/base/slice.h"
#include "server/http/pace.h"

struct token_buckets;

struct token_bucket_key {
    uint8_t b[20]; /* 'a' and an address, 't' and a token's id; padded with zeros */
};

struct token_bucket_rate {
    double per_s;   /* > 0 */
    uint32_t burst; /* >= 1 */
};

struct token_bucket_decision {
    bool pass;
    uint64_t wait_us; /* if refused: until one would pass */
    uint64_t remaining;
    uint64_t reset_us; /* until the bucket is full again */
};

struct token_buckets *token_buckets_open(unsigned shards, unsigned per_shard);
void token_buckets_spend(struct token_buckets *bs, const struct token_bucket_key *key,
                         const struct token_bucket_rate *rate, uint64_t now_ms,
                         struct token_bucket_decision *out);
/* n more requests were made, whether or not they would have passed: the next ones wait longer. */
void token_buckets_owe(struct token_buckets *bs, const struct token_bucket_key *key,
                       const struct token_bucket_rate *rate, uint64_t now_ms, unsigned n);
/* The pace that this client's responses share, counted for the caller; a new one if its rate
 * differed. */
struct pace *token_buckets_pace(struct token_buckets *bs, const struct token_bucket_key *key,
                                uint64_t rate_bytes_per_s);
/* Counts a connection; false, and not counted, if `most` are open. */
bool token_buckets_connect(struct token_buckets *bs, const struct token_bucket_key *key,
                           uint32_t most);
void token_buckets_disconnect(struct token_buckets *bs, const struct token_bucket_key *key);
/* Resets arrival times. Connections stay counted, and responses in progress keep the old pace. */
void token_buckets_forget(struct token_buckets *bs);
void token_buckets_close(struct token_buckets **bp);

#endif
