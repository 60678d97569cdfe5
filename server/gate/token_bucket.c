#include "server/gate/token_bucket.h"

#include <stdlib.h>

#include <openssl/rand.h>
#include <xxhash.h>

#include "common/base/list.h"
#include "common/os/lock.h"

struct token_bucket {
    struct list used; /* in the shard, the least recently used first */
    struct token_bucket *next;
    struct token_bucket_key key;
    uint32_t connections;
    uint64_t arrival_us;       /* theoretical arrival time of the next request */
    uint64_t rate_bytes_per_s; /* of `pace` */
    struct pace *pace;         /* held; NULL: none yet */
};

struct shard {
    struct lock lock;
    struct list used;
    unsigned count;
    struct token_bucket **head; /* per_shard chains */
    struct token_bucket *all;   /* per_shard of them; pages come as they are touched */
};

struct token_buckets {
    uint64_t seed; /* so that nobody can choose addresses that share a chain */
    unsigned shards, per_shard;
    struct shard shard[];
};

struct token_buckets *token_buckets_open(unsigned shards, unsigned per_shard)
{
    struct token_buckets *bs = mem_new(sizeof(*bs) + shards * sizeof(bs->shard[0]));

    bs->shards = shards;
    bs->per_shard = per_shard;
    CHECK(RAND_bytes((unsigned char *)&bs->seed, sizeof(bs->seed)) == 1);
    for (unsigned i = 0; i < shards; i++) {
        struct shard *s = &bs->shard[i];
        lock_init(&s->lock, LOCK_GATE);
        list_init(&s->used);
        s->head = mem_array(per_shard, sizeof(*s->head));
        s->all = mem_array(per_shard, sizeof(*s->all));
    }
    return bs;
}

static struct token_bucket **chain_of(struct token_buckets *bs, const struct token_bucket_key *key,
                                      struct shard **s)
{
    uint64_t h = XXH3_64bits_withSeed(key, sizeof(*key), bs->seed);

    *s = &bs->shard[(h >> 32) % bs->shards];
    return &(*s)->head[(uint32_t)h % bs->per_shard];
}

static struct token_bucket *find_client_bucket(struct token_bucket *b,
                                               const struct token_bucket_key *key)
{
    while (b != NULL && memcmp(&b->key, key, sizeof(*key)) != 0) {
        b = b->next;
    }
    return b;
}

/* A new one, or the least recently used, cut out of its chain. Those with open connections stay
 * when others can go. */
static struct token_bucket *spare(struct token_buckets *bs, struct shard *s)
{
    enum { LOOKS = 32 };
    struct token_bucket *b = NULL, **at;
    struct shard *same;

    if (s->count < bs->per_shard) {
        return &s->all[s->count++];
    }
    for (unsigned i = 0; i < LOOKS && (b == NULL || b->connections > 0); i++) {
        b = LIST_ITEM(s->used.next, struct token_bucket, used);
        list_remove(&b->used);
        list_push_back(&s->used, &b->used);
    }
    list_remove(&b->used);
    for (at = chain_of(bs, &b->key, &same); *at != b; at = &(*at)->next) {
    }
    *at = b->next;
    pace_release(&b->pace);
    memset(b, 0, sizeof(*b));
    return b;
}

static struct token_bucket *touch(struct token_buckets *bs, struct shard *s,
                                  struct token_bucket **chain, const struct token_bucket_key *key)
{
    struct token_bucket *b = find_client_bucket(*chain, key);

    if (b != NULL) {
        list_remove(&b->used);
    } else {
        b = spare(bs, s);
        b->key = *key;
        b->next = *chain;
        *chain = b;
    }
    list_push_back(&s->used, &b->used);
    return b;
}

/* What n requests take at that rate. */
static uint64_t requests_us(const struct token_bucket_rate *rate, unsigned n)
{
    uint64_t step_us, all_us;

    CHECK(rate->per_s > 0);
    step_us = (uint64_t)(1e6 / rate->per_s);
    return mul_u64(step_us > 0 ? step_us : 1, n, &all_us) ? all_us : UINT64_MAX / 4;
}

void token_buckets_spend(struct token_buckets *bs, const struct token_bucket_key *key,
                         const struct token_bucket_rate *rate, uint64_t now_ms,
                         struct token_bucket_decision *out)
{
    uint64_t now_us = now_ms * 1000, step_us = requests_us(rate, 1), ahead_us;
    uint64_t most_us = requests_us(rate, rate->burst);
    struct shard *s;
    struct token_bucket **chain = chain_of(bs, key, &s), *b;

    CHECK(rate->burst >= 1);
    lock_take(&s->lock);
    b = touch(bs, s, chain, key);
    ahead_us = b->arrival_us > now_us ? b->arrival_us - now_us : 0;
    out->pass = ahead_us + step_us <= most_us;
    out->wait_us = out->pass ? 0 : ahead_us + step_us - most_us;
    if (out->pass) {
        ahead_us += step_us;
        b->arrival_us = now_us + ahead_us;
    }
    lock_drop(&s->lock);
    out->remaining = ahead_us < most_us ? (most_us - ahead_us) / step_us : 0;
    out->reset_us = ahead_us;
}

void token_buckets_owe(struct token_buckets *bs, const struct token_bucket_key *key,
                       const struct token_bucket_rate *rate, uint64_t now_ms, unsigned n)
{
    uint64_t now_us = now_ms * 1000, all_us = requests_us(rate, n);
    struct shard *s;
    struct token_bucket **chain = chain_of(bs, key, &s), *b;

    lock_take(&s->lock);
    b = touch(bs, s, chain, key);
    b->arrival_us = max_u64(b->arrival_us, now_us) + all_us;
    lock_drop(&s->lock);
}

struct pace *token_buckets_pace(struct token_buckets *bs, const struct token_bucket_key *key,
                                uint64_t rate_bytes_per_s)
{
    struct shard *s;
    struct token_bucket **chain = chain_of(bs, key, &s), *b;
    struct pace *p;

    lock_take(&s->lock);
    b = touch(bs, s, chain, key);
    if (b->pace != NULL && b->rate_bytes_per_s != rate_bytes_per_s) {
        pace_release(&b->pace);
    }
    if (b->pace == NULL) {
        b->pace = pace_new(rate_bytes_per_s);
        b->rate_bytes_per_s = rate_bytes_per_s;
    }
    p = pace_hold(b->pace);
    lock_drop(&s->lock);
    return p;
}

bool token_buckets_connect(struct token_buckets *bs, const struct token_bucket_key *key,
                           uint32_t most)
{
    struct shard *s;
    struct token_bucket **chain = chain_of(bs, key, &s), *b;
    bool pass;

    lock_take(&s->lock);
    b = touch(bs, s, chain, key);
    pass = b->connections < most;
    b->connections += pass;
    lock_drop(&s->lock);
    return pass;
}

void token_buckets_disconnect(struct token_buckets *bs, const struct token_bucket_key *key)
{
    struct shard *s;
    struct token_bucket **chain = chain_of(bs, key, &s), *b;

    lock_take(&s->lock);
    b = find_client_bucket(*chain, key);
    if (b != NULL && b->connections > 0) {
        b->connections--; /* absent when the table was full of others with connections */
    }
    lock_drop(&s->lock);
}

void token_buckets_forget(struct token_buckets *bs)
{
    for (unsigned i = 0; i < bs->shards; i++) {
        struct shard *s = &bs->shard[i];
        lock_take(&s->lock);
        for (unsigned k = 0; k < s->count; k++) {
            s->all[k].arrival_us = 0;
            pace_release(&s->all[k].pace);
        }
        lock_drop(&s->lock);
    }
}

void token_buckets_close(struct token_buckets **bp)
{
    struct token_buckets *bs = *bp;

    *bp = NULL;
    if (bs == NULL) {
        return;
    }
    for (unsigned i = 0; i < bs->shards; i++) {
        for (unsigned k = 0; k < bs->shard[i].count; k++) {
            pace_release(&bs->shard[i].all[k].pace);
        }
        lock_fini(&bs->shard[i].lock);
        free(bs->shard[i].head);
        free(bs->shard[i].all);
    }
    free(bs);
}
