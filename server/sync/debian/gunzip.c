#include <stdlib.h>
#include <zlib.h>

#include "server/sync/debian/packages.h"

enum { OUT_BYTES = 64 << 10, GZIP_WINDOW = 15 + 16 };

struct gunzip {
    z_stream z;
    int (*on_bytes)(void *arg, struct slice bytes, struct err *e);
    void *arg;
    uint64_t max_bytes, bytes;
    bool whole; /* a member has ended, and nothing of the next one was read */
    char out[OUT_BYTES];
};

struct gunzip *gunzip_open(int (*on_bytes)(void *arg, struct slice bytes, struct err *e), void *arg,
                           uint64_t max_bytes)
{
    struct gunzip *g = NEW(struct gunzip);

    g->on_bytes = on_bytes;
    g->arg = arg;
    g->max_bytes = max_bytes;
    CHECK(inflateInit2(&g->z, GZIP_WINDOW) == Z_OK);
    return g;
}

int gunzip_feed(struct gunzip *g, struct slice bytes, struct err *e)
{
    int rc = 0;

    CHECK(bytes.n <= UINT32_MAX);
    g->z.next_in = (Bytef *)(uintptr_t)bytes.p;
    g->z.avail_in = (uInt)bytes.n;
    g->z.avail_out = 1;
    while (rc == 0 && (g->z.avail_in > 0 || g->z.avail_out == 0)) {
        int z;
        size_t n;
        if (g->whole && g->z.avail_in > 0) {
            CHECK(inflateReset(&g->z) == Z_OK);
            g->whole = false;
        }
        g->z.next_out = (Bytef *)g->out;
        g->z.avail_out = OUT_BYTES;
        z = inflate(&g->z, Z_NO_FLUSH);
        if (z == Z_BUF_ERROR) {
            break; /* it had just filled the last one */
        }
        if (z != Z_OK && z != Z_STREAM_END) {
            return err_set(e, E_INVALID, "an index is no gzip file");
        }
        g->whole = z == Z_STREAM_END;
        n = OUT_BYTES - g->z.avail_out;
        g->bytes += n;
        if (g->bytes > g->max_bytes) {
            return err_set(e, E_TOOBIG, "an index unpacks to more than %llu bytes",
                           (unsigned long long)g->max_bytes);
        }
        rc = n != 0 ? g->on_bytes(g->arg, slice_of(g->out, n), e) : 0;
    }
    return rc;
}

int gunzip_finish(struct gunzip *g, struct err *e)
{
    return g->whole ? 0 : err_set(e, E_INVALID, "an index is cut");
}

void gunzip_close(struct gunzip **gp)
{
    struct gunzip *g = *gp;

    *gp = NULL;
    if (g != NULL) {
        inflateEnd(&g->z);
        free(g);
    }
}
