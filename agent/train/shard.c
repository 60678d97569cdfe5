#include "agent/train/shard.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static const char magic[8] = "mrdtoken"; /* all eight bytes, no NUL */

static uint64_t get(const uint8_t *p, int bytes)
{
    uint64_t v = 0;

    for (int i = bytes - 1; i >= 0; i--) {
        v = v << 8 | p[i];
    }
    return v;
}

static void put(uint8_t *p, int bytes, uint64_t v)
{
    for (int i = 0; i < bytes; i++, v >>= 8) {
        p[i] = (uint8_t)v;
    }
}

uint32_t shard_token_bytes(uint32_t vocab)
{
    return vocab <= 256 ? 1 : vocab <= 65536 ? 2 : 4;
}

void shard_header(uint64_t tokens, uint32_t vocab, const char *tokenizer, const struct digest *d,
                  uint8_t out[SHARD_HEADER_BYTES])
{
    memset(out, 0, SHARD_HEADER_BYTES);
    memcpy(out, magic, sizeof magic);
    put(out + 8, 4, SHARD_VERSION);
    put(out + 12, 4, shard_token_bytes(vocab));
    put(out + 16, 8, tokens);
    put(out + 24, 4, vocab);
    memcpy(out + 32, d->b, DIGEST_BYTES);
    CHECK(strlen(tokenizer) < SHARD_NAME_BYTES);
    memcpy(out + 64, tokenizer, strlen(tokenizer));
}

static int read_header(struct shard *s, const char *path, struct err *e)
{
    const uint8_t *p = s->map;
    uint64_t body;

    if (memcmp(p, magic, sizeof magic) != 0) {
        return err_set(e, E_CORRUPT, "%s: not a token shard; `trainer tokenize` makes them", path);
    }
    if (get(p + 8, 4) != SHARD_VERSION) {
        return err_set(e, E_CORRUPT, "%s: a token shard of version %llu; this program reads %d",
                       path, (unsigned long long)get(p + 8, 4), SHARD_VERSION);
    }
    s->token_bytes = (uint32_t)get(p + 12, 4);
    s->tokens = get(p + 16, 8);
    s->vocab = (uint32_t)get(p + 24, 4);
    memcpy(s->digest.b, p + 32, DIGEST_BYTES);
    memcpy(s->tokenizer, p + 64, SHARD_NAME_BYTES);
    if (s->vocab == 0 || s->vocab > INT32_MAX || s->token_bytes != shard_token_bytes(s->vocab) ||
        s->tokenizer[SHARD_NAME_BYTES - 1] != '\0') {
        return err_set(e, E_CORRUPT, "%s: damaged header", path);
    }
    if (!mul_u64(s->tokens, s->token_bytes, &body) || body != s->map_bytes - SHARD_HEADER_BYTES) {
        return err_set(e, E_CORRUPT, "%s: %llu tokens promised, the file's length differs", path,
                       (unsigned long long)s->tokens);
    }
    return 0;
}

int shard_open(const char *path, struct shard *out, struct err *e)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    struct stat st;
    void *map;
    int rc;

    *out = (struct shard){0};
    if (fd == -1 || fstat(fd, &st) == -1) {
        rc = err_sys(e, "%s", path);
        goto out;
    }
    if (!S_ISREG(st.st_mode) || st.st_size < SHARD_HEADER_BYTES) {
        rc = err_set(e, E_CORRUPT, "%s: not a token shard; `trainer tokenize` makes them", path);
        goto out;
    }
    map = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_SHARED, fd, 0);
    if (map == MAP_FAILED) {
        rc = err_sys(e, "%s: mmap", path);
        goto out;
    }
    out->map = map;
    out->map_bytes = (size_t)st.st_size;
    rc = read_header(out, path, e);
out:
    if (rc != 0) {
        shard_close(out);
    }
    if (fd != -1) {
        close(fd);
    }
    return rc;
}

void shard_close(struct shard *s)
{
    if (s->map != NULL) {
        munmap((void *)(uintptr_t)s->map, s->map_bytes);
    }
    *s = (struct shard){0};
}

int shard_read(const struct shard *s, uint64_t at, size_t n, int32_t *out, struct err *e)
{
    const uint8_t *p = s->map + SHARD_HEADER_BYTES + at * s->token_bytes;

    CHECK(at <= s->tokens && n <= s->tokens - at);
    for (size_t i = 0; i < n; i++, p += s->token_bytes) {
        uint64_t token = get(p, (int)s->token_bytes);

        if (token >= s->vocab) {
            return err_set(e, E_CORRUPT, "token %llu at %llu is beyond the vocabulary of %u",
                           (unsigned long long)token, (unsigned long long)(at + i), s->vocab);
        }
        out[i] = (int32_t)token;
    }
    return 0;
}

int shard_verify(const struct shard *s, struct err *e)
{
    struct digest got;

    digest_of(slice_of(s->map + SHARD_HEADER_BYTES, s->map_bytes - SHARD_HEADER_BYTES), &got);
    return digest_eq(&got, &s->digest)
               ? 0
               : err_set(e, E_CORRUPT, "the tokens differ from the header's SHA-256");
}
