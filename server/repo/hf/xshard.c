#include "server/repo/hf/xshard.h"

#include <inttypes.h>
#include <stdio.h>

#include "common/base/endian.h"

enum {
    ROW = 48,
    HASH = 32,
    VERSION = 2,
    HAS_VERIFICATION = 1u << 31,
    HAS_METADATA = 1 << 30,
};

static const char magic[] = "HFRepoMetaData"; /* and more, which is the format's own */

static uint32_t u32_at(const uint8_t *p)
{
    return (uint32_t)le_get(p, 4);
}

static const uint8_t *cut_xshard_row(struct slice *rest)
{
    const uint8_t *p = (const uint8_t *)rest->p;

    if (rest->n < ROW) {
        return NULL;
    }
    *rest = slice_from(*rest, ROW);
    return p;
}

/* Hashes are four little-endian words, and are spelled word by word. */
static void spell(const uint8_t *hash, char out[XSHARD_HASH_HEX + 1])
{
    for (size_t i = 0; i < 4; i++) {
        snprintf(out + 16 * i, 17, "%016" PRIx64, le_get(hash + 8 * i, 8));
    }
}

static bool is_end(const uint8_t *head)
{
    for (size_t i = 0; i < HASH; i++) {
        if (head[i] != 0xff) {
            return false;
        }
    }
    return true;
}

/* False: cut short. */
static bool read_xshard_file(const uint8_t *head, struct slice *rest, struct xshard_file *out)
{
    uint32_t flags = u32_at(head + HASH);
    uint64_t terms = u32_at(head + HASH + 4);
    uint64_t skip = terms * ((flags & HAS_VERIFICATION) != 0 ? 2 : 1);
    char hex[XSHARD_HASH_HEX + 1];
    const uint8_t *metadata;

    *out = (struct xshard_file){.terms = (uint32_t)terms, .term = (const uint8_t *)rest->p};
    if (rest->n / ROW < skip) {
        return false;
    }
    *rest = slice_from(*rest, (size_t)skip * ROW);
    if ((flags & HAS_METADATA) == 0) {
        return true;
    }
    metadata = cut_xshard_row(rest);
    if (metadata == NULL) {
        return false;
    }
    spell(metadata, hex);
    return digest_parse(slice_str(hex), &out->sha256);
}

int xshard_each(struct slice bytes, int (*each)(void *arg, const struct xshard_file *f), void *arg,
                struct err *e)
{
    const uint8_t *head = cut_xshard_row(&bytes);
    struct xshard_file f;
    int rc = 0;

    if (head == NULL || memcmp(head, magic, sizeof magic) != 0 ||
        le_get(head + HASH, 8) != VERSION) {
        return err_set(e, E_PROTOCOL, "this is not a shard of version %d", VERSION);
    }
    while (rc == 0) {
        head = cut_xshard_row(&bytes);
        if (head == NULL) {
            return err_set(e, E_PROTOCOL, "the shard is truncated");
        }
        if (is_end(head)) {
            return 0;
        }
        if (!read_xshard_file(head, &bytes, &f)) {
            return err_set(e, E_PROTOCOL, "the shard is truncated within a file");
        }
        if (digest_is_zero(&f.sha256)) {
            return err_set(e, E_PROTOCOL, "the shard has no SHA-256 of a file");
        }
        rc = each(arg, &f);
    }
    return rc;
}

void xshard_term(const struct xshard_file *f, uint32_t i, struct xshard_term *out)
{
    const uint8_t *p = f->term + (size_t)i * ROW;

    spell(p, out->xorb);
    out->bytes = u32_at(p + HASH + 4);
    out->first = u32_at(p + HASH + 8);
    out->end = u32_at(p + HASH + 12);
}
