/* shard.c - fuzzes the headers of token shards: what is accepted fills the file exactly. */
#include "agent/train/shard.h"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
    uint64_t file_bytes = 0;
    struct shard s;

    if (n < sizeof file_bytes) {
        return 0;
    }
    memcpy(&file_bytes, p + n - sizeof file_bytes, sizeof file_bytes); /* behind the header */
    n -= sizeof file_bytes;
    n = n < SHARD_HEAD_MAX ? n : SHARD_HEAD_MAX;
    file_bytes = file_bytes < n ? n : file_bytes;
    if (shard_parse(slice_of(p, n), file_bytes, &s, NULL) == 0) {
        uint8_t again[SHARD_HEADER_BYTES];
        struct shard t;

        CHECK(s.vocab > 0 && s.vocab <= INT32_MAX && s.token_bytes >= 1 && s.token_bytes <= 4);
        CHECK(file_bytes - s.head_bytes == s.tokens * s.token_bytes && s.tokens <= file_bytes);
        CHECK(strlen(s.tokenizer) < SHARD_NAME_BYTES);
        shard_header(&s, again);
        CHECK(shard_parse(slice_of(again, sizeof again),
                          SHARD_HEADER_BYTES + s.tokens * shard_token_bytes(s.vocab), &t,
                          NULL) == 0);
        CHECK(shard_alike(&s, &t) && t.tokens == s.tokens);
    }
    return 0;
}
