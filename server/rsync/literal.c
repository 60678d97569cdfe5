#include "server/rsync/literal.h"

#include <stdlib.h>
#include <zlib.h>
#include <zstd.h>

#include "common/codec/glob.h"
#include "server/sync/rsync/delta.h"
#include "server/sync/rsync/varint.h"

enum {
    TOKEN_BYTES_MAX = 16383,
    TOKEN_DATA = 0x40,
    ROOM_BYTES = 32 << 10,
    TAIL = 4,            /* the empty stored block at a flush's end, without its head */
    TRIAL = 256 << 10,   /* bytes after which it is seen whether they shrink */
    PATIENCE = 16,       /* pieces: 512 KiB */
    PATIENCE_MAX = 1024, /* 32 MiB */
    LEVEL = 1,
    WINDOW_LOG = 17,
    ZLIB_MEMORY = 8,
    NAME_MAX_BYTES = 32, /* of an ending */
};

static const char *const names[LITERAL_KINDS] = {"none", "zstd", "zlibx", "zlib"};

bool literal_named(struct slice name, enum literal_kind *out)
{
    for (int k = 0; k < LITERAL_KINDS; k++) {
        if (slice_eqs(name, names[k])) {
            *out = (enum literal_kind)k;
            return true;
        }
    }
    return false;
}

bool literal_agree(struct slice clients, enum literal_kind *out)
{
    while (clients.n > 0) {
        if (literal_named(slice_cut(&clients, ' '), out)) {
            return true;
        }
    }
    return false;
}

/* --- streams ------------------------------------------------------------------------------------------------------------- */

static bool is_zlib(const struct literal *l)
{
    return l->kind == LITERAL_ZLIB || l->kind == LITERAL_ZLIBX;
}

void literal_init(struct literal *l, enum literal_kind kind, struct slice skip)
{
    *l = (struct literal){.kind = kind, .skip = skip};
    if (kind == LITERAL_PLAIN) {
        return;
    }
    l->room = mem_array(ROOM_BYTES, 1);
    if (is_zlib(l)) {
        z_stream *z = NEW(z_stream);
        l->stream = z;
        CHECK(deflateInit2(z, LEVEL, Z_DEFLATED, -MAX_WBITS, ZLIB_MEMORY, Z_DEFAULT_STRATEGY) ==
              Z_OK);
    } else {
        l->stream = ZSTD_createCCtx();
        CHECK(l->stream != NULL);
        CHECK(!ZSTD_isError(ZSTD_CCtx_setParameter(l->stream, ZSTD_c_compressionLevel, LEVEL)));
        CHECK(!ZSTD_isError(ZSTD_CCtx_setParameter(l->stream, ZSTD_c_windowLog, WINDOW_LOG)));
    }
}

void literal_fini(struct literal *l)
{
    if (l->stream != NULL && is_zlib(l)) {
        deflateEnd(l->stream);
        free(l->stream);
    } else {
        ZSTD_freeCCtx(l->stream);
    }
    l->stream = NULL;
    free(l->room);
    l->room = NULL;
}

static void put_data(struct literal *l, const void *bytes, size_t n, struct buf *to)
{
    const uint8_t *p = bytes;

    l->out += n;
    while (n > 0) {
        size_t some = n < TOKEN_BYTES_MAX ? n : TOKEN_BYTES_MAX;
        buf_byte(to, (uint8_t)(TOKEN_DATA | some >> 8));
        buf_byte(to, (uint8_t)some);
        buf_add(to, p, some);
        p += some;
        n -= some;
    }
}

static void zstd_run(struct literal *l, struct slice bytes, ZSTD_EndDirective how, struct buf *to)
{
    ZSTD_inBuffer in = {bytes.p, bytes.n, 0};
    size_t left;

    do {
        ZSTD_outBuffer out = {l->room, ROOM_BYTES, 0};
        left = ZSTD_compressStream2(l->stream, &out, &in, how);
        CHECK(!ZSTD_isError(left)); /* it has all the memory that it needs, or none at all */
        put_data(l, l->room, out.pos, to);
    } while (in.pos < in.size || (how != ZSTD_e_continue && left > 0));
}

/* hold: so many bytes of the end are not sent. */
static void zlib_run(struct literal *l, struct slice bytes, int how, size_t hold, struct buf *to)
{
    z_stream *z = l->stream;
    size_t kept = 0;

    z->next_in = (z_const Bytef *)(uintptr_t)bytes.p;
    z->avail_in = (uInt)bytes.n;
    for (;;) {
        size_t n;
        z->next_out = l->room + kept;
        z->avail_out = (uInt)(ROOM_BYTES - kept);
        CHECK(deflate(z, how) != Z_STREAM_ERROR);
        n = ROOM_BYTES - z->avail_out;
        CHECK(n >= hold);
        put_data(l, l->room, n - hold, to);
        if (z->avail_out != 0) {
            return;
        }
        memmove(l->room, l->room + n - hold, hold);
        kept = hold;
    }
}

/* --- storing, instead of zlib's work ------------------------------------------------------------------------------------- */

static bool ending_has(const struct literal *l, struct slice path)
{
    struct slice rest = l->skip;
    struct slice end = delta_ending(path);

    if (delta_compressed(path)) {
        return true;
    }
    while (rest.n > 0 && end.n <= NAME_MAX_BYTES) {
        struct slice pattern = slice_cut(&rest, '/');
        if (pattern.n > 0 && pattern.n <= NAME_MAX_BYTES && glob_match(pattern, end)) {
            return true;
        }
    }
    return false;
}

static void store(struct literal *l, struct slice bytes, struct buf *to)
{
    uint8_t head[5] = {0, (uint8_t)bytes.n, (uint8_t)(bytes.n >> 8), (uint8_t)~bytes.n,
                       (uint8_t)(~bytes.n >> 8)};

    put_data(l, head, sizeof head, to);
    put_data(l, bytes.p, bytes.n, to);
}

static void begin_trial(struct literal *l)
{
    l->stored = false;
    l->in = l->out = 0;
    CHECK(deflateReset(l->stream) == Z_OK); /* nothing of before the stored bytes is referred to */
}

static void judge_trial(struct literal *l, struct buf *to)
{
    zlib_run(l, SLICE_NONE, Z_SYNC_FLUSH, 0, to);
    l->whole = true;
    if (l->out > l->in - l->in / 16) {
        l->stored = true;
        l->wait = l->patience;
        l->patience = l->patience < PATIENCE_MAX ? l->patience * 2 : PATIENCE_MAX;
    } else {
        l->patience = PATIENCE;
    }
    l->in = l->out = 0;
}

static void zlib_add(struct literal *l, struct slice bytes, struct buf *to)
{
    if (l->stored && !l->named && l->wait-- == 0) {
        begin_trial(l);
    }
    if (l->stored) {
        store(l, bytes, to);
        return;
    }
    zlib_run(l, bytes, Z_NO_FLUSH, 0, to);
    l->whole = false;
    l->in += bytes.n;
    if (l->in >= TRIAL) {
        judge_trial(l, to);
    }
}

/* The client puts the four bytes of an empty stored block's lengths behind what it got: its head must stand before. */
static void zlib_end(struct literal *l, struct buf *to)
{
    static const uint8_t head = 0;

    if (l->whole) {
        put_data(l, &head, 1, to);
    } else {
        zlib_run(l, SLICE_NONE, Z_SYNC_FLUSH, TAIL, to);
    }
}

/* --- a file ---------------------------------------------------------------------------------------------------------------- */

void literal_begin(struct literal *l, struct slice path)
{
    l->any = false;
    l->whole = true;
    if (is_zlib(l)) {
        l->patience = PATIENCE;
        l->named = ending_has(l, path);
        begin_trial(l);
        l->stored = l->named;
    }
}

void literal_add(struct literal *l, struct slice bytes, struct buf *to)
{
    CHECK(bytes.n > 0 && bytes.n <= LITERAL_PIECE);
    switch (l->kind) {
    case LITERAL_PLAIN:
        put_int(to, (int32_t)bytes.n);
        buf_adds(to, bytes);
        break;
    case LITERAL_ZSTD:
        zstd_run(l, bytes, ZSTD_e_continue, to);
        break;
    case LITERAL_ZLIBX:
    case LITERAL_ZLIB:
        zlib_add(l, bytes, to);
        break;
    }
    l->any = true;
}

void literal_end(struct literal *l, struct buf *to)
{
    if (l->kind == LITERAL_PLAIN) {
        put_int(to, 0);
        return;
    }
    if (l->any && l->kind == LITERAL_ZSTD) {
        zstd_run(l, SLICE_NONE, ZSTD_e_flush, to);
    } else if (l->any) {
        zlib_end(l, to);
    }
    buf_byte(to, 0);
}
