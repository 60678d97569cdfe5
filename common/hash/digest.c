#include "common/hash/digest.h"

#include <stdio.h>
#include <stdlib.h>

#include "common/base/endian.h"
#include "common/codec/base64.h"
#include "common/hash/sha256.h"
#include "common/os/newfile.h"

struct hasher {
    struct sha256 sum; /* its part: the chunk at hand, from the second on */
    struct digest *chunk;
    size_t nchunks;
    size_t room;
    bool whole_only;
};

void digest_of(struct slice bytes, struct digest *out)
{
    sha256_of(bytes.p, bytes.n, out->b);
}

bool digest_eq(const struct digest *a, const struct digest *b)
{
    return memcmp(a->b, b->b, DIGEST_BYTES) == 0;
}

bool digest_is_zero(const struct digest *d)
{
    static const struct digest zero;
    return digest_eq(d, &zero);
}

bool digest_parse(struct slice hex, struct digest *out)
{
    return slice_hex(hex, out->b, DIGEST_BYTES);
}

void digest_format(const struct digest *d, char out[DIGEST_HEX + 1])
{
    static const char hex[] = "0123456789abcdef";
    for (int i = 0; i < DIGEST_BYTES; i++) {
        out[2 * i] = hex[d->b[i] >> 4];
        out[2 * i + 1] = hex[d->b[i] & 15];
    }
    out[DIGEST_HEX] = '\0';
}

void digest_repr(const struct digest *d, char out[64])
{
    char b64[48];
    base64_encode(d->b, DIGEST_BYTES, b64);
    snprintf(out, 64, "sha-256=:%s:", b64);
}

bool digest_from_field(struct slice value, struct digest *out)
{
    while (value.n != 0) {
        struct slice item = slice_trim(slice_cut(&value, ','));
        struct slice name = slice_cut(&item, '=');
        size_t n;

        if (!slice_ieq(name, SLICE("sha-256"))) {
            continue;
        }
        if (item.n >= 2 && item.p[0] == ':' && item.p[item.n - 1] == ':') {
            item = slice_first(slice_from(item, 1), item.n - 2);
        }
        if (item.n == 44 && base64_decode(item, out->b, DIGEST_BYTES, &n) && n == DIGEST_BYTES) {
            return true;
        }
    }
    return false;
}

int digest_of_fd(int fd, uint64_t size_bytes, struct digest *out, struct err *e)
{
    struct hasher *h = hasher_new();
    int rc = hasher_add_file(h, fd, size_bytes, e);

    if (rc == 0) {
        hasher_final(h, out);
    }
    hasher_free(&h);
    return rc;
}

struct hasher *hasher_new(void)
{
    struct hasher *h = NEW(struct hasher);
    sha256_init(&h->sum, sha256_best());
    return h;
}

struct hasher *hasher_new_whole(void)
{
    struct hasher *h = hasher_new();
    h->whole_only = true;
    return h;
}

struct hasher *hasher_copy(const struct hasher *from)
{
    struct hasher *h = NEW(struct hasher);

    *h = *from;
    sha256_copy(&from->sum, &h->sum);
    h->chunk = NULL;
    h->room = from->nchunks;
    if (h->room != 0) {
        h->chunk = mem_array(h->room, sizeof h->chunk[0]);
        memcpy(h->chunk, from->chunk, h->room * sizeof h->chunk[0]);
    }
    return h;
}

static struct digest *push_chunk(struct hasher *h)
{
    if (h->nchunks == h->room) {
        h->room = h->room != 0 ? h->room * 2 : 8;
        h->chunk = realloc(h->chunk, h->room * sizeof h->chunk[0]);
        CHECK(h->chunk != NULL);
    }
    return &h->chunk[h->nchunks++];
}

/* Up to one chunk only the whole is hashed: its digest is the chunk's. What lies beyond is taken
 * into two; small objects, nearly all there are, never are. */
static void end_chunk(struct hasher *h)
{
    struct digest *d = push_chunk(h);

    if (h->sum.parted) {
        sha256_part_end(&h->sum, d->b);
    } else {
        sha256_so_far(&h->sum, d->b);
    }
}

void hasher_add(struct hasher *h, const void *p, size_t n)
{
    const char *at = p;

    while (n > 0) {
        uint64_t left = h->whole_only ? n : CHUNK_BYTES - h->sum.count % CHUNK_BYTES;
        size_t step = (size_t)min_u64(n, left);

        if (!h->whole_only && !h->sum.parted && h->nchunks > 0) {
            sha256_part_begin(&h->sum);
        }
        sha256_add(&h->sum, at, step);
        if (!h->whole_only && step == left) {
            end_chunk(h);
        }
        at += step;
        n -= step;
    }
}

int hasher_add_file(struct hasher *h, int fd, uint64_t upto, struct err *e)
{
    enum { STEP = 256 << 10 };
    char *room = mem_new(STEP);
    int rc = 0;

    while (rc == 0 && hasher_count(h) < upto) {
        size_t n = (size_t)min_u64(STEP, upto - hasher_count(h));
        rc = fd_pread_all(fd, room, n, hasher_count(h), e);
        if (rc == 0) {
            hasher_add(h, room, n);
        }
    }
    free(room);
    return rc;
}

uint64_t hasher_count(const struct hasher *h)
{
    return h->sum.count;
}

void hasher_so_far(const struct hasher *h, struct digest *out)
{
    sha256_so_far(&h->sum, out->b);
}

void hasher_final(struct hasher *h, struct digest *out)
{
    sha256_so_far(&h->sum, out->b);
    if (!h->whole_only && h->sum.count % CHUNK_BYTES != 0) {
        end_chunk(h);
    }
}

const struct digest *hasher_chunks(const struct hasher *h, size_t *count)
{
    *count = h->nchunks;
    return h->chunk;
}

void hasher_free(struct hasher **hp)
{
    struct hasher *h = *hp;

    if (h == NULL) {
        return;
    }
    *hp = NULL;
    sha256_fini(&h->sum);
    free(h->chunk);
    free(h);
}

enum { CHUNKS_HEAD = 8 + 4 + 4 + 8 + DIGEST_BYTES };

void chunks_encode(const struct digest *whole, uint64_t size_bytes, const struct digest *chunk,
                   size_t count, struct buf *out)
{
    buf_str(out, "mrdchnk1");
    buf_be(out, 4, 23);
    buf_be(out, 4, count);
    buf_be(out, 8, size_bytes);
    buf_add(out, whole->b, DIGEST_BYTES);
    buf_add(out, chunk, count * sizeof chunk[0]);
}

int chunks_decode(struct slice bytes, struct chunk_list *out, struct err *e)
{
    uint64_t log2;
    uint64_t count;

    *out = (struct chunk_list){0};
    if (bytes.n < CHUNKS_HEAD || memcmp(bytes.p, "mrdchnk1", 8) != 0) {
        return err_set(e, E_INVALID, "not a valid chunk list");
    }
    log2 = be_get(bytes.p + 8, 4);
    count = be_get(bytes.p + 12, 4);
    out->size_bytes = be_get(bytes.p + 16, 8);
    if (log2 < 16 || log2 > 30) {
        return err_set(e, E_INVALID, "the chunk list has an invalid chunk size: 2^%u bytes",
                       (unsigned)log2);
    }
    out->chunk_bytes = (uint64_t)1 << log2;
    if (out->size_bytes > UINT64_MAX / 2 ||
        count != (out->size_bytes + out->chunk_bytes - 1) >> log2 ||
        bytes.n != CHUNKS_HEAD + count * DIGEST_BYTES) {
        return err_set(e, E_INVALID,
                       "the chunk list is inconsistent: count, size and length do not match");
    }
    memcpy(out->whole.b, bytes.p + 24, DIGEST_BYTES);
    out->count = (size_t)count;
    out->chunk = mem_array(out->count, sizeof out->chunk[0]);
    memcpy(out->chunk, bytes.p + CHUNKS_HEAD, count * DIGEST_BYTES);
    return 0;
}

void chunks_free(struct chunk_list *c)
{
    free(c->chunk);
    *c = (struct chunk_list){0};
}
