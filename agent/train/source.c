#include "agent/train/source.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

enum { PACKED_BYTES = 1 << 18 };

enum packing { PLAIN, GZIP, ZSTD };

struct source {
    const char *path; /* borrowed */
    int fd;
    enum packing packing;
    uint64_t taken;
    z_stream gzip;
    ZSTD_DStream *zstd;
    bool open; /* inside of a member or frame */
    bool any;  /* there was one */
    bool ended;
    size_t at; /* of packed[0..have) */
    size_t have;
    uint8_t packed[PACKED_BYTES];
};

static const struct {
    struct slice end;
    enum packing packing;
} ends[] = {{SLICE(".gz"), GZIP}, {SLICE(".zst"), ZSTD}};

static enum packing packing_of(const char *path, struct slice *name)
{
    *name = slice_str(path);
    for (size_t i = 0; i < ARRAY_LEN(ends); i++) {
        if (slice_ends(*name, ends[i].end)) {
            name->n -= ends[i].end.n;
            return ends[i].packing;
        }
    }
    return PLAIN;
}

struct slice source_name(const char *path)
{
    struct slice name;

    (void)packing_of(path, &name);
    return name;
}

uint64_t source_taken(const struct source *s)
{
    return s->taken;
}

int source_open(const char *path, struct source **out, struct err *e)
{
    struct source *s = NEW(struct source);
    struct slice name;
    int rc = 0;

    *out = NULL;
    s->path = path;
    s->packing = packing_of(path, &name);
    s->fd = open(path, O_RDONLY | O_CLOEXEC);
    if (s->fd == -1) {
        rc = err_sys(e, "%s", path);
        goto out;
    }
    (void)posix_fadvise(s->fd, 0, 0, POSIX_FADV_SEQUENTIAL);
    if (s->packing == GZIP) {
        CHECK(inflateInit2(&s->gzip, MAX_WBITS + 16) == Z_OK);
    } else if (s->packing == ZSTD) {
        s->zstd = ZSTD_createDStream();
        CHECK(s->zstd != NULL);
    }
    *out = s;
    s = NULL;
out:
    source_close(&s);
    return rc;
}

void source_close(struct source **sp)
{
    struct source *s = *sp;

    if (s != NULL) {
        *sp = NULL;
        if (s->fd != -1) {
            close(s->fd);
        }
        if (s->packing == GZIP) {
            inflateEnd(&s->gzip);
        }
        ZSTD_freeDStream(s->zstd);
        free(s);
    }
}

static int read_source_file(struct source *s, void *p, size_t room, size_t *n, struct err *e)
{
    ssize_t got;

    do {
        got = read(s->fd, p, room);
    } while (got == -1 && errno == EINTR);
    if (got == -1) {
        return err_sys(e, "%s", s->path);
    }
    *n = (size_t)got;
    s->taken += *n;
    return 0;
}

static int damaged(const struct source *s, const char *why, struct err *e)
{
    return err_set(e, E_CORRUPT, "%s: %s", s->path, why != NULL ? why : "damaged");
}

/* One turn of zlib's: what is packed at s->at, into p. */
static int turn_gzip(struct source *s, void *p, size_t room, size_t *n, struct err *e)
{
    int rc;

    s->gzip.next_in = s->packed + s->at;
    s->gzip.avail_in = (uInt)(s->have - s->at);
    s->gzip.next_out = p;
    s->gzip.avail_out = (uInt)min_u64(room, UINT_MAX);
    rc = inflate(&s->gzip, Z_NO_FLUSH);
    *n = (size_t)min_u64(room, UINT_MAX) - s->gzip.avail_out;
    s->at = s->have - s->gzip.avail_in;
    s->open = rc != Z_STREAM_END;
    if (rc == Z_STREAM_END) {
        rc = inflateReset(&s->gzip);
    }
    return rc == Z_OK || rc == Z_BUF_ERROR ? 0 : damaged(s, s->gzip.msg, e);
}

static int turn_zstd(struct source *s, void *p, size_t room, size_t *n, struct err *e)
{
    ZSTD_inBuffer in = {s->packed, s->have, s->at};
    ZSTD_outBuffer to = {p, room, 0};
    size_t left = ZSTD_decompressStream(s->zstd, &to, &in);

    *n = to.pos;
    s->at = in.pos;
    s->open = left != 0;
    return ZSTD_isError(left) ? damaged(s, ZSTD_getErrorName(left), e) : 0;
}

int source_read(struct source *s, void *p, size_t room, size_t *n, struct err *e)
{
    int rc = 0;

    *n = 0;
    if (s->packing == PLAIN) {
        return read_source_file(s, p, room, n, e);
    }
    while (rc == 0 && *n == 0) {
        if (s->at == s->have && !s->ended) {
            s->at = 0;
            rc = read_source_file(s, s->packed, sizeof s->packed, &s->have, e);
            s->ended = rc == 0 && s->have == 0;
        }
        if (rc != 0 || (s->ended && !s->open)) {
            break;
        }
        /* At the end of the file the unpacker may still hold some. */
        rc = s->packing == GZIP ? turn_gzip(s, p, room, n, e) : turn_zstd(s, p, room, n, e);
        s->any = true;
        if (rc == 0 && *n == 0 && s->ended && s->open) {
            rc = damaged(s, "ends early", e);
        }
    }
    return rc == 0 && *n == 0 && !s->any ? damaged(s, "is empty and not a compressed file", e) : rc;
}
