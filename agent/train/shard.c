#include "agent/train/shard.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/endian.h"
#include "common/os/newfile.h"

static const char magic[8] = "mrdtoken"; /* all eight bytes, no NUL */

/* llm.c's two, and what their tokens are. */
static const struct foreign {
    uint32_t magic, version, token_bytes, vocab;
    const char *tokenizer;
} foreign[] = {
    {20240520, 1, 2, 50257, "gpt2"},
    {20240801, 7, 4, 128256, "llama3"},
};

enum { FOREIGN_HEADER_BYTES = 1024, PIECE_BYTES = 1 << 16 };

uint32_t shard_token_bytes(uint32_t vocab)
{
    return vocab <= 256 ? 1 : vocab <= 65536 ? 2 : 4;
}

/* --- the header ------------------------------------------------------------------------------- */

void shard_header(const struct shard *s, uint8_t out[SHARD_HEADER_BYTES])
{
    memset(out, 0, SHARD_HEADER_BYTES);
    memcpy(out, magic, sizeof magic);
    le_put(out + 8, 4, SHARD_VERSION);
    le_put(out + 12, 4, shard_token_bytes(s->vocab));
    le_put(out + 16, 8, s->tokens);
    le_put(out + 24, 4, s->vocab);
    memcpy(out + 32, s->digest.b, DIGEST_BYTES);
    memcpy(out + 64, s->tokenizer, SHARD_NAME_BYTES);
    memcpy(out + 96, s->identity.b, DIGEST_BYTES);
}

/* The name is printed. */
static bool is_shard_name(const char name[SHARD_NAME_BYTES])
{
    size_t n = strnlen(name, SHARD_NAME_BYTES);

    for (size_t i = 0; i < n; i++) {
        if (!((name[i] >= 'a' && name[i] <= 'z') || (name[i] >= '0' && name[i] <= '9') ||
              name[i] == '-' || name[i] == '_')) {
            return false;
        }
    }
    return n < SHARD_NAME_BYTES;
}

static int parse_ours(const uint8_t *p, struct shard *s, struct err *e)
{
    if (le_get(p + 8, 4) != SHARD_VERSION) {
        return err_set(
            e, E_CORRUPT,
            "the token shard has version %llu, but this program reads version %d; run trainer "
            "tokenize again",
            (unsigned long long)le_get(p + 8, 4), SHARD_VERSION);
    }
    s->head_bytes = SHARD_HEADER_BYTES;
    s->token_bytes = (uint32_t)le_get(p + 12, 4);
    s->tokens = le_get(p + 16, 8);
    s->vocab = (uint32_t)le_get(p + 24, 4);
    memcpy(s->digest.b, p + 32, DIGEST_BYTES);
    memcpy(s->tokenizer, p + 64, SHARD_NAME_BYTES);
    memcpy(s->identity.b, p + 96, DIGEST_BYTES);
    if (s->vocab == 0 || s->vocab > INT32_MAX || s->token_bytes != shard_token_bytes(s->vocab) ||
        !is_shard_name(s->tokenizer)) {
        return err_set(e, E_CORRUPT, "the header of the shard is damaged");
    }
    return 0;
}

static int parse_foreign(struct slice head, struct shard *s, struct err *e)
{
    const uint8_t *p = (const uint8_t *)head.p;

    for (size_t i = 0; head.n >= FOREIGN_HEADER_BYTES && i < ARRAY_LEN(foreign); i++) {
        const struct foreign *f = &foreign[i];

        if (le_get(p, 4) != f->magic) {
            continue;
        }
        if (le_get(p + 4, 4) != f->version || le_get(p + 8, 4) > INT32_MAX) {
            return err_set(e, E_CORRUPT,
                           "a shard of llm.c of version %llu instead of %u, or damaged",
                           (unsigned long long)le_get(p + 4, 4), f->version);
        }
        s->head_bytes = FOREIGN_HEADER_BYTES;
        s->token_bytes = f->token_bytes;
        s->tokens = le_get(p + 8, 4);
        s->vocab = f->vocab;
        memcpy(s->tokenizer, f->tokenizer, strlen(f->tokenizer));
        return 0;
    }
    return err_set(e, E_CORRUPT, "not a token shard; make one with `trainer tokenize`");
}

int shard_parse(struct slice head, uint64_t file_bytes, struct shard *out, struct err *e)
{
    bool ours = head.n >= SHARD_HEADER_BYTES && memcmp(head.p, magic, sizeof magic) == 0;
    uint64_t body;
    int rc;

    *out = (struct shard){.fd = -1};
    rc = ours ? parse_ours((const uint8_t *)head.p, out, e) : parse_foreign(head, out, e);
    if (rc == 0 &&
        (!mul_u64(out->tokens, out->token_bytes, &body) || body != file_bytes - out->head_bytes)) {
        rc = err_set(
            e, E_CORRUPT,
            "the header says %llu tokens, but the length of the file differs; the file may be "
            "truncated",
            (unsigned long long)out->tokens);
    }
    return rc;
}

bool shard_alike(const struct shard *a, const struct shard *b)
{
    bool known = !digest_is_zero(&a->identity) && !digest_is_zero(&b->identity);

    return a->vocab == b->vocab && strcmp(a->tokenizer, b->tokenizer) == 0 &&
           (!known || digest_eq(&a->identity, &b->identity));
}

/* --- reading ---------------------------------------------------------------------------------- */

int shard_open(const char *path, struct shard *out, struct err *e)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* nobody may ever write to a FIFO */
    uint8_t head[SHARD_HEAD_MAX];
    size_t n = 0;
    struct stat st;
    int rc = 0;

    *out = (struct shard){.fd = -1};
    if (fd == -1 || fstat(fd, &st) == -1) {
        rc = err_sys(e, "%s", path);
        goto out;
    }
    if (S_ISREG(st.st_mode)) {
        n = (size_t)min_u64((uint64_t)st.st_size, sizeof head);
        rc = fd_pread_all(fd, head, n, 0, e);
    }
    rc = rc != 0 ? rc : shard_parse(slice_of(head, n), (uint64_t)st.st_size, out, e);
    if (rc != 0) {
        err_prefix(e, "%s", path);
        goto out;
    }
    out->fd = fd;
    out->path = mem_strdup(path);
    return 0;
out:
    if (fd != -1) {
        close(fd);
    }
    return rc;
}

void shard_close(struct shard *s)
{
    if (s->path != NULL) {
        close(s->fd);
        free(s->path);
    }
    *s = (struct shard){.fd = -1};
}

/* Widens n tokens; true when all are in the vocabulary, else *at is the first that is not. */
static bool widen_shard_tokens(const struct shard *s, const uint8_t *p, size_t n, int32_t *out,
                               size_t *at)
{
    for (size_t i = 0; i < n; i++, p += s->token_bytes) {
        uint64_t token = le_get(p, s->token_bytes);

        if (token >= s->vocab) {
            *at = i;
            return false;
        }
        out[i] = (int32_t)token;
    }
    return true;
}

/* Up to PIECE_BYTES of tokens, as they lie in the file and widened. */
static int read_piece(const struct shard *s, uint64_t at, size_t n, uint8_t *piece, int32_t *out,
                      struct err *e)
{
    size_t bad;
    int rc = fd_pread_all(s->fd, piece, n * s->token_bytes, s->head_bytes + at * s->token_bytes, e);

    if (rc != 0) {
        return err_prefix(e, "%s", s->path);
    }
    if (!widen_shard_tokens(s, piece, n, out, &bad)) {
        return err_set(e, E_CORRUPT, "%s: token %llu exceeds the vocabulary of %u", s->path,
                       (unsigned long long)(at + bad), s->vocab);
    }
    return 0;
}

int shard_read(const struct shard *s, uint64_t at, size_t n, int32_t *out, struct err *e)
{
    uint8_t piece[PIECE_BYTES];
    int rc = 0;

    CHECK(at <= s->tokens && n <= s->tokens - at);
    while (rc == 0 && n > 0) {
        size_t some = (size_t)min_u64(n, PIECE_BYTES / s->token_bytes);

        rc = read_piece(s, at, some, piece, out, e);
        at += some;
        out += some;
        n -= some;
    }
    return rc;
}

void shard_expect(const struct shard *s, uint64_t at, size_t n)
{
    (void)posix_fadvise(s->fd, (off_t)(s->head_bytes + at * s->token_bytes),
                        (off_t)(n * s->token_bytes), POSIX_FADV_WILLNEED);
}

int shard_verify(const struct shard *s, struct err *e)
{
    uint8_t *piece = mem_new(PIECE_BYTES);
    int32_t *wide = mem_array(PIECE_BYTES, sizeof *wide);
    struct hasher *h = hasher_new_whole();
    struct digest got;
    int rc = 0;

    for (uint64_t at = 0; rc == 0 && at < s->tokens;) {
        size_t some = (size_t)min_u64(s->tokens - at, PIECE_BYTES / s->token_bytes);

        rc = read_piece(s, at, some, piece, wide, e);
        hasher_add(h, piece, some * s->token_bytes);
        at += some;
    }
    hasher_final(h, &got);
    if (rc == 0 && !digest_is_zero(&s->digest) && !digest_eq(&got, &s->digest)) {
        rc = err_set(e, E_CORRUPT,
                     "%s: the SHA-256 of the tokens differs from the header's; the file is damaged",
                     s->path);
    }
    hasher_free(&h);
    free(piece);
    free(wide);
    return rc;
}

/* --- writing ---------------------------------------------------------------------------------- */

struct shard_writer {
    struct shard about;
    struct newfile *file;
    struct hasher *hash;
};

int shard_create(const char *path, const struct shard *about, struct shard_writer **out,
                 struct err *e)
{
    static const uint8_t later[SHARD_HEADER_BYTES];
    struct shard_writer *w = NEW(struct shard_writer);
    int rc = newfile_open(path, 0644, &w->file, e);

    *out = NULL;
    if (rc != 0) {
        free(w);
        return rc;
    }
    w->about = *about;
    w->about.tokens = 0;
    w->about.token_bytes = shard_token_bytes(about->vocab);
    w->hash = hasher_new_whole();
    newfile_write(w->file, later, sizeof later);
    *out = w;
    return 0;
}

int shard_write(struct shard_writer *w, const void *tokens, size_t bytes, struct err *e)
{
    CHECK(bytes % w->about.token_bytes == 0);
    newfile_write(w->file, tokens, bytes);
    hasher_add(w->hash, tokens, bytes);
    w->about.tokens += bytes / w->about.token_bytes;
    return newfile_check(w->file, e);
}

uint64_t shard_written(const struct shard_writer *w)
{
    return w->about.tokens;
}

int shard_commit(struct shard_writer **wp, struct shard *made, struct err *e)
{
    struct shard_writer *w = *wp;
    uint8_t header[SHARD_HEADER_BYTES];
    int rc;

    hasher_final(w->hash, &w->about.digest);
    shard_header(&w->about, header);
    if (made != NULL) {
        *made = w->about;
    }
    rc = fd_pwrite_all(newfile_fd(w->file), header, sizeof header, 0, e);
    rc = rc != 0 ? rc : newfile_commit(&w->file, e);
    shard_abort(wp);
    return rc;
}

void shard_abort(struct shard_writer **wp)
{
    struct shard_writer *w = *wp;

    if (w != NULL) {
        *wp = NULL;
        newfile_abort(&w->file);
        hasher_free(&w->hash);
        free(w);
    }
}
