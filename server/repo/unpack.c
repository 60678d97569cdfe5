#include "server/repo/unpack.h"

#include <bzlib.h>
#include <lzma.h>
#include <stdlib.h>
#include <zlib.h>
#include <zstd.h>

enum { OUT_BYTES = 64 << 10, GZIP_WINDOW = 15 + 16, ZSTD_WINDOW_LOG = 27 };
#define XZ_MEMORY ((uint64_t)160 << 20)

enum step { STEP_MORE, STEP_END, STEP_BROKEN };

struct unpack {
    enum packing how;
    union {
        z_stream gzip;
        lzma_stream xz;
        bz_stream bzip2;
        ZSTD_DStream *zstd;
    } with;
    int (*on_bytes)(void *arg, struct slice bytes, struct err *e);
    void *arg;
    uint64_t max_bytes, bytes;
    bool whole; /* a member has ended, and nothing of the next one was read */
    char out[OUT_BYTES];
};

enum packing packing_of(struct slice name, struct slice *bare)
{
    static const struct {
        const char *ending;
        enum packing how;
    } known[] = {{".gz", PACKING_GZIP},
                 {".xz", PACKING_XZ},
                 {".zst", PACKING_ZSTD},
                 {".bz2", PACKING_BZIP2}};

    for (size_t i = 0; i < ARRAY_LEN(known); i++) {
        if (slice_ends(name, slice_str(known[i].ending))) {
            name.n -= strlen(known[i].ending);
            if (bare != NULL) {
                *bare = name;
            }
            return known[i].how;
        }
    }
    if (bare != NULL) {
        *bare = name;
    }
    return PACKING_NONE;
}

static void open_unpacker(struct unpack *u)
{
    bool fine = true;

    switch (u->how) {
    case PACKING_NONE:
        break;
    case PACKING_GZIP:
        fine = inflateInit2(&u->with.gzip, GZIP_WINDOW) == Z_OK;
        break;
    case PACKING_XZ:
        u->with.xz = (lzma_stream)LZMA_STREAM_INIT;
        fine = lzma_stream_decoder(&u->with.xz, XZ_MEMORY, 0) == LZMA_OK;
        break;
    case PACKING_ZSTD:
        u->with.zstd = ZSTD_createDStream();
        fine = u->with.zstd != NULL && !ZSTD_isError(ZSTD_DCtx_setParameter(
                                           u->with.zstd, ZSTD_d_windowLogMax, ZSTD_WINDOW_LOG));
        break;
    case PACKING_BZIP2:
        fine = BZ2_bzDecompressInit(&u->with.bzip2, 0, 0) == BZ_OK;
        break;
    }
    CHECK(fine); /* else memory is out */
}

static void close_unpacker(struct unpack *u)
{
    switch (u->how) {
    case PACKING_NONE:
        break;
    case PACKING_GZIP:
        inflateEnd(&u->with.gzip);
        break;
    case PACKING_XZ:
        lzma_end(&u->with.xz);
        break;
    case PACKING_ZSTD:
        ZSTD_freeDStream(u->with.zstd);
        break;
    case PACKING_BZIP2:
        BZ2_bzDecompressEnd(&u->with.bzip2);
        break;
    }
    memset(&u->with, 0, sizeof u->with);
}

struct unpack *unpack_open(enum packing how,
                           int (*on_bytes)(void *arg, struct slice bytes, struct err *e), void *arg,
                           uint64_t max_bytes)
{
    struct unpack *u = NEW(struct unpack);

    u->how = how;
    u->on_bytes = on_bytes;
    u->arg = arg;
    u->max_bytes = max_bytes;
    u->whole = how == PACKING_NONE;
    open_unpacker(u);
    return u;
}

/* --- one call of each library: moves *in, fills out from its start --- */

static enum step step_gzip(struct unpack *u, struct slice *in, size_t *made)
{
    z_stream *z = &u->with.gzip;
    int rc;

    z->next_in = (Bytef *)(uintptr_t)in->p;
    z->avail_in = (uInt)in->n;
    z->next_out = (Bytef *)u->out;
    z->avail_out = OUT_BYTES;
    rc = inflate(z, Z_NO_FLUSH);
    *in = slice_from(*in, in->n - z->avail_in);
    *made = OUT_BYTES - z->avail_out;
    return rc == Z_STREAM_END                ? STEP_END
           : rc == Z_OK || rc == Z_BUF_ERROR ? STEP_MORE
                                             : STEP_BROKEN;
}

static enum step step_xz(struct unpack *u, struct slice *in, size_t *made)
{
    lzma_stream *x = &u->with.xz;
    lzma_ret rc;

    x->next_in = (const uint8_t *)in->p;
    x->avail_in = in->n;
    x->next_out = (uint8_t *)u->out;
    x->avail_out = OUT_BYTES;
    rc = lzma_code(x, LZMA_RUN);
    *in = slice_from(*in, in->n - x->avail_in);
    *made = OUT_BYTES - x->avail_out;
    return rc == LZMA_STREAM_END                   ? STEP_END
           : rc == LZMA_OK || rc == LZMA_BUF_ERROR ? STEP_MORE
                                                   : STEP_BROKEN;
}

static enum step step_zstd(struct unpack *u, struct slice *in, size_t *made)
{
    ZSTD_inBuffer from = {in->p, in->n, 0};
    ZSTD_outBuffer to = {u->out, OUT_BYTES, 0};
    size_t rc = ZSTD_decompressStream(u->with.zstd, &to, &from);

    *in = slice_from(*in, from.pos);
    *made = to.pos;
    return ZSTD_isError(rc) ? STEP_BROKEN : rc == 0 ? STEP_END : STEP_MORE;
}

static enum step step_bzip2(struct unpack *u, struct slice *in, size_t *made)
{
    bz_stream *b = &u->with.bzip2;
    int rc;

    b->next_in = (char *)(uintptr_t)in->p;
    b->avail_in = (unsigned)in->n;
    b->next_out = u->out;
    b->avail_out = OUT_BYTES;
    rc = BZ2_bzDecompress(b);
    *in = slice_from(*in, in->n - b->avail_in);
    *made = OUT_BYTES - b->avail_out;
    return rc == BZ_STREAM_END ? STEP_END : rc == BZ_OK ? STEP_MORE : STEP_BROKEN;
}

static enum step step_unpack(struct unpack *u, struct slice *in, size_t *made)
{
    switch (u->how) {
    case PACKING_GZIP:
        return step_gzip(u, in, made);
    case PACKING_XZ:
        return step_xz(u, in, made);
    case PACKING_ZSTD:
        return step_zstd(u, in, made);
    case PACKING_BZIP2:
        return step_bzip2(u, in, made);
    case PACKING_NONE:
        break;
    }
    return STEP_BROKEN;
}

static int give_unpacked_bytes(struct unpack *u, struct slice bytes, struct err *e)
{
    if (bytes.n > u->max_bytes - u->bytes) {
        return err_set(e, E_TOOBIG, "the unpacked index is larger than %llu bytes",
                       (unsigned long long)u->max_bytes);
    }
    u->bytes += bytes.n;
    return bytes.n != 0 ? u->on_bytes(u->arg, bytes, e) : 0;
}

int unpack_feed(struct unpack *u, struct slice bytes, struct err *e)
{
    int rc = 0;

    CHECK(bytes.n <= UINT32_MAX);
    if (u->how == PACKING_NONE) {
        return give_unpacked_bytes(u, bytes, e);
    }
    while (rc == 0 && bytes.n != 0) {
        size_t made;
        do { /* a full buffer may leave more behind it than the input shows */
            enum step s;
            size_t left = bytes.n;
            if (u->whole && bytes.n != 0) {
                close_unpacker(u);
                open_unpacker(u);
                u->whole = false;
            }
            s = step_unpack(u, &bytes, &made);
            if (s == STEP_BROKEN || (s == STEP_MORE && made == 0 && left != 0 && bytes.n == left)) {
                return err_set(e, E_INVALID, "the index is not compressed as its name says");
            }
            u->whole = s == STEP_END;
            rc = give_unpacked_bytes(u, slice_of(u->out, made), e);
        } while (rc == 0 && made == OUT_BYTES && !u->whole);
    }
    return rc;
}

int unpack_finish(struct unpack *u, struct err *e)
{
    return u->whole ? 0 : err_set(e, E_INVALID, "the index is truncated");
}

void unpack_close(struct unpack **up)
{
    struct unpack *u = *up;

    *up = NULL;
    if (u != NULL) {
        close_unpacker(u);
        free(u);
    }
}
