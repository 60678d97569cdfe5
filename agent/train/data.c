#include "agent/train/data.h"

#include <glob.h>
#include <stdlib.h>

#include "common/base/endian.h"
#include "common/os/descriptor.h"
#include "kernels/philox.h"

enum { FEISTEL_ROUNDS = 6 };

struct data {
    struct shard *shard;
    uint64_t *first; /* of each shard: the number of its first window */
    size_t shards;
    uint64_t windows;
    uint64_t tokens;
    int64_t seq;
    uint64_t seed;
};

uint64_t permute(uint64_t i, uint64_t n, uint64_t key)
{
    unsigned half = 1;

    CHECK(i < n);
    while (half < 32 && (UINT64_C(1) << (2 * half)) < n) {
        half++;
    }
    uint64_t mask = (UINT64_C(1) << half) - 1;

    /* The network permutes 4^half >= n numbers, fewer than 4 n; walking on from those beyond n
     * stays a bijection. */
    do {
        uint64_t left = i >> half, right = i & mask;

        for (int r = 0; r < FEISTEL_ROUNDS; r++) {
            uint64_t mixed = left ^ (philox_at(key, (uint64_t)r, right).v[0] & mask);

            left = right;
            right = mixed;
        }
        i = left << half | right;
    } while (i >= n);
    return i;
}

static int add_shard(struct data *d, const char *path, struct err *e)
{
    struct shard *s = &d->shard[d->shards];
    int rc = shard_open(path, s, e);

    if (rc != 0) {
        return rc;
    }
    d->shards++;
    if (!shard_alike(s, &d->shard[0])) {
        return err_set(e, E_INVALID, "%s: made with another tokenizer than the previous shard",
                       path);
    }
    d->first[d->shards - 1] = d->windows;
    d->windows += s->tokens == 0 ? 0 : (s->tokens - 1) / (uint64_t)d->seq;
    d->tokens += s->tokens;
    return 0;
}

int data_open(const char *pattern, int64_t seq, uint64_t seed, struct data **out, struct err *e)
{
    struct data *d = NEW(struct data);
    glob_t files = {0};
    int rc = 0;

    CHECK(seq >= 1);
    *out = NULL;
    *d = (struct data){.seq = seq, .seed = seed};
    if (glob(pattern, GLOB_BRACE | GLOB_TILDE, NULL, &files) != 0) {
        rc = err_set(e, E_NOTFOUND, "%s: no file matches", pattern);
        goto out;
    }
    /* A shard is an open file, and large corpora have more than the usual 1,024. */
    descriptor_allow(files.gl_pathc);
    d->shard = mem_array(files.gl_pathc, sizeof *d->shard);
    d->first = mem_array(files.gl_pathc, sizeof *d->first);
    for (size_t i = 0; rc == 0 && i < files.gl_pathc; i++) {
        rc = add_shard(d, files.gl_pathv[i], e);
    }
    if (rc == 0 && d->windows == 0) {
        rc =
            err_set(e, E_INVALID, "%s: %llu tokens are not enough for one window of --seq %lld + 1",
                    pattern, (unsigned long long)d->tokens, (long long)seq);
    }
    if (rc == 0) {
        *out = d;
        d = NULL;
    }
out:
    globfree(&files);
    data_close(&d);
    return rc;
}

void data_close(struct data **dp)
{
    struct data *d = *dp;

    if (d == NULL) {
        return;
    }
    *dp = NULL;
    for (size_t i = 0; i < d->shards; i++) {
        shard_close(&d->shard[i]);
    }
    free(d->shard);
    free(d->first);
    free(d);
}

uint64_t data_count(const struct data *d)
{
    return d->windows;
}

uint32_t data_vocab(const struct data *d)
{
    return d->shard[0].vocab;
}

const struct digest *data_tokenizer(const struct data *d)
{
    for (size_t i = 0; i < d->shards; i++) {
        if (!digest_is_zero(&d->shard[i].identity)) {
            return &d->shard[i].identity;
        }
    }
    return &d->shard[0].identity;
}

void data_identity(const struct data *d, struct digest *out)
{
    struct hasher *h = hasher_new_whole();

    for (size_t i = 0; i < d->shards; i++) {
        uint8_t tokens[8];

        le_put(tokens, sizeof tokens, d->shard[i].tokens);
        hasher_add(h, tokens, sizeof tokens);
        hasher_add(h, d->shard[i].digest.b, DIGEST_BYTES);
    }
    hasher_final(h, out);
    hasher_free(&h);
}

char *data_folder(const struct data *d)
{
    char *folder = mem_strdup(d->shard[0].path);
    char *slash = strrchr(folder, '/');

    if (slash == NULL) {
        memcpy(folder, ".", sizeof "."); /* a path has a byte at least */
    } else {
        slash[slash == folder] = '\0';
    }
    return folder;
}

/* The shard that holds a window, and where in it. */
static const struct shard *find_window(const struct data *d, uint64_t index, uint64_t *at)
{
    size_t low = 0, high = d->shards;

    CHECK(index < d->windows);
    while (high - low > 1) { /* the last shard whose first window is not beyond index */
        size_t mid = low + (high - low) / 2;

        if (d->first[mid] <= index) {
            low = mid;
        } else {
            high = mid;
        }
    }
    *at = (index - d->first[low]) * (uint64_t)d->seq;
    return &d->shard[low];
}

int data_window(const struct data *d, uint64_t index, int32_t *token, int32_t *target,
                struct err *e)
{
    size_t seq = (size_t)d->seq;
    uint64_t at;
    const struct shard *s = find_window(d, index, &at);
    int rc = shard_read(s, at, 1, token, e);

    rc = rc != 0 ? rc : shard_read(s, at + 1, seq, target, e);
    if (rc == 0) {
        memcpy(token + 1, target, (seq - 1) * sizeof *token);
    }
    return rc;
}

/* Which window a sample is: another order each epoch. */
static uint64_t window_of(const struct data *d, uint64_t number)
{
    struct philox key = philox_at(d->seed, UINT64_C(0x64617461) << 32, number / d->windows);

    return permute(number % d->windows, d->windows, (uint64_t)key.v[0] << 32 | key.v[1]);
}

int data_sample(const struct data *d, uint64_t number, int32_t *token, int32_t *target,
                struct err *e)
{
    return data_window(d, window_of(d, number), token, target, e);
}

void data_expect(const struct data *d, uint64_t number)
{
    uint64_t at;
    const struct shard *s = find_window(d, window_of(d, number), &at);

    shard_expect(s, at, (size_t)d->seq + 1);
}
