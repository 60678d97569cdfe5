#include "server/rsync/sender.h"

#include <stdlib.h>
#include <zlib.h>
#include <zstd.h>

#include "common/base/log.h"
#include "common/codec/glob.h"
#include "server/sync/rsync/answer.h"
#include "server/sync/rsync/delta.h"
#include "server/sync/rsync/varint.h"

/* --- bytes as they travel ---
 *
 * Only literals exist here, so zlib and zlibx, which differ in what becomes of matches, are the
 * same. zlib: a raw stream a file, flushed at its end without the last four bytes. zstd: one stream
 * a session, flushed at each file's end. Compressed bytes stand behind two bytes, 0x40 and their
 * length; a zero ends the file.
 *
 * Compression is for strangers, so it is cheap: the lowest level, a window of 128 KiB at most. zstd
 * passes over what does not shrink at 5 GB/s. zlib does not: what its name says is compressed
 * already is stored, what turns out not to shrink is stored for a while, then tried again.
 *
 * source   RFC 1951 3.2.4 for what is stored
 */

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

static const char *const kind_names[LITERAL_KINDS] = {"none", "zstd", "zlibx", "zlib"};

bool literal_named(struct slice name, enum literal_kind *out)
{
    for (int k = 0; k < LITERAL_KINDS; k++) {
        if (slice_eqs(name, kind_names[k])) {
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

/* --- streams ---------------------------------------------------------------------------------- */

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

/* --- storing, instead of zlib's work ---------------------------------------------------------- */

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

static void put_stored(struct literal *l, struct slice bytes, struct buf *to)
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
        put_stored(l, bytes, to);
        return;
    }
    zlib_run(l, bytes, Z_NO_FLUSH, 0, to);
    l->whole = false;
    l->in += bytes.n;
    if (l->in >= TRIAL) {
        judge_trial(l, to);
    }
}

/* The client puts the four bytes of an empty stored block's lengths behind what it got: its head
 * must stand before. */
static void zlib_end(struct literal *l, struct buf *to)
{
    static const uint8_t head = 0;

    if (l->whole) {
        put_data(l, &head, 1, to);
    } else {
        zlib_run(l, SLICE_NONE, Z_SYNC_FLUSH, TAIL, to);
    }
}

/* --- a file ----------------------------------------------------------------------------------- */

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

enum { INDEX_DELETED = -3, DELETION_COUNTS = 5 };

/* --- what is asked for ------------------------------------------------------------------------ */

static int read_file_index(struct sender *s, int32_t *out, struct err *e)
{
    uint8_t bytes[6];
    size_t n = 0;

    for (;;) {
        struct index_coding coding = s->coming;
        struct get g;
        int rc = n < sizeof bytes ? stream_read(s->stream, bytes + n, 1, e)
                                  : err_set(e, E_PROTOCOL, "the client sent an invalid index");
        if (rc != 0) {
            return rc;
        }
        n++;
        g = get_from(slice_of(bytes, n));
        *out = get_index(&g, &coding);
        if (g.rc == 0) {
            s->coming = coding;
            return 0;
        }
        if (g.rc != E_AGAIN) {
            return err_set(e, E_PROTOCOL, "the client sent an invalid index");
        }
    }
}

struct request {
    int32_t index;
    uint16_t flags;
    uint8_t basis;
    uint8_t name_n[2];
    char name[LIST_PATH_MAX + 1];
    size_t name_bytes;
};

static int read_request(struct sender *s, struct request *r, struct err *e)
{
    uint8_t two[2];
    int rc = stream_read(s->stream, two, sizeof two, e);

    r->flags = (uint16_t)(two[0] | two[1] << 8);
    if (rc == 0 && (r->flags & ITEM_BASIS_FOLLOWS) != 0) {
        rc = stream_read(s->stream, &r->basis, 1, e);
    }
    r->name_bytes = 0;
    if (rc == 0 && (r->flags & ITEM_NAME_FOLLOWS) != 0) {
        rc = stream_read(s->stream, &two[0], 1, e);
        if (rc == 0 && (two[0] & 0x80) != 0) {
            rc = stream_read(s->stream, &two[1], 1, e);
            r->name_bytes = (size_t)(two[0] & 0x7f) << 8 | two[1];
        } else {
            r->name_bytes = two[0];
        }
        if (rc == 0 && r->name_bytes > LIST_PATH_MAX) {
            rc = err_set(e, E_PROTOCOL, "the client sent a name that is too long");
        }
        rc = rc != 0 ? rc : stream_read(s->stream, r->name, r->name_bytes, e);
    }
    return rc;
}

/* The client's blocks, read past. */
static int skip_sums(struct sender *s, struct err *e)
{
    uint8_t head[16];
    struct get g;
    struct sums_head h;
    int rc = stream_read(s->stream, head, sizeof head, e);

    if (rc != 0) {
        return rc;
    }
    g = get_from(slice_of(head, sizeof head));
    h = get_sums_head(&g, CHECKSUM_BYTES_MAX);
    if (g.rc != 0) {
        return err_set(e, E_PROTOCOL, "the client sent invalid block checksums");
    }
    return stream_skip(s->stream, (uint64_t)h.count * (4 + h.strong_bytes), e);
}

/* --- what is sent ----------------------------------------------------------------------------- */

static void echo(struct sender *s, const struct request *r)
{
    struct buf *b = stream_draft(s->stream);

    put_index(b, &s->going, r->index);
    put_short(b, r->flags);
    if ((r->flags & ITEM_BASIS_FOLLOWS) != 0) {
        buf_byte(b, r->basis);
    }
    if ((r->flags & ITEM_NAME_FOLLOWS) != 0) {
        put_vstring(b, slice_of(r->name, r->name_bytes));
    }
}

static int send_bytes(struct sender *s, struct slice path, struct blob *blob, struct err *e)
{
    uint64_t size = blob_size_bytes(blob);
    struct buf *b = stream_draft(s->stream);
    uint8_t digest[CHECKSUM_BYTES_MAX];
    int rc = 0;

    checksum_begin(&s->sum);
    literal_begin(&s->literal, path);
    for (uint64_t at = 0; at < size && rc == 0;) {
        size_t n = (size_t)min_u64(size - at, sizeof s->block);
        rc = blob_read(blob, at, s->block, n, e);
        if (rc != 0) {
            return rc;
        }
        checksum_add(&s->sum, slice_of(s->block, n));
        literal_add(&s->literal, slice_of(s->block, n), b);
        at += n;
        /* What compresses well, or goes to a fast client, is waited for nowhere. */
        rc = stream_goes_on(s->stream, e);
        rc = rc != 0 ? rc : stream_push(s->stream, e);
    }
    literal_end(&s->literal, b);
    checksum_end(&s->sum, digest);
    buf_add(b, digest, checksum_bytes(s->sum.kind));
    s->files++;
    s->bytes += size;
    return rc;
}

static int cannot_send(struct sender *s, int32_t index)
{
    struct buf number = BUF_INIT(4);

    put_int(&number, index);
    stream_message(s->stream, MUX_ERROR_XFER, SLICE("a file can no longer be read\n"));
    stream_message(s->stream, MUX_NO_SEND, buf_slice(&number));
    buf_free(&number);
    return 0;
}

static int answer_sender_index(struct sender *s, int32_t index, struct err *e)
{
    static const struct sums_head whole = {.count = 0};
    struct request r = {.index = index};
    const struct list_entry *en;
    struct blob *blob = NULL;
    struct slice path;
    char room[LIST_PATH_MAX + 1];
    int rc;

    if (index < 0 || (uint32_t)index >= s->view->count) {
        return err_set(e, E_PROTOCOL, "the client requested entry %d, but there are only %u",
                       (int)index, (unsigned)s->view->count);
    }
    rc = read_request(s, &r, e);
    if (rc != 0) {
        return rc;
    }
    if ((r.flags & ITEM_TRANSFER) == 0 || s->dry_run) {
        echo(s, &r);
        return stream_push(s->stream, e);
    }
    rc = skip_sums(s, e);
    if (rc != 0) {
        return rc;
    }
    en = view_at(s->view, (uint32_t)index);
    if (list_type(en) != LIST_FILE) {
        return err_set(e, E_PROTOCOL, "the client requested entry %d, which is not a file",
                       (int)index);
    }
    path = list_path(s->view->list, en, room);
    rc = listing_open(s->listing, path, &blob, e);
    if (rc != 0) {
        log_warn("rsync.unreadable", "module=%s path=%s error=%s %s", s->module, room, err_name(rc),
                 e->text);
        return cannot_send(s, index);
    }
    echo(s, &r);
    put_sums_head(stream_draft(s->stream), &whole);
    rc = send_bytes(s, path, blob, e);
    blob_release(&blob);
    return rc;
}

static int read_varint(struct sender *s, int32_t *out, struct err *e)
{
    uint8_t bytes[5];

    for (size_t n = 0; n < sizeof bytes; n++) {
        struct get g;
        int rc = stream_read(s->stream, bytes + n, 1, e);
        if (rc != 0) {
            return rc;
        }
        g = get_from(slice_of(bytes, n + 1));
        *out = get_varint(&g);
        if (g.rc == 0) {
            return 0;
        }
    }
    return err_set(e, E_PROTOCOL, "the client sent an invalid number");
}

/* How much was deleted, one process of the client's tells the other through us. */
static int pass_deletions(struct sender *s, struct err *e)
{
    put_index(stream_draft(s->stream), &s->going, INDEX_DELETED);
    for (int i = 0; i < DELETION_COUNTS; i++) {
        int32_t v = 0;
        int rc = read_varint(s, &v, e);
        if (rc != 0) {
            return rc;
        }
        put_varint(stream_draft(s->stream), v);
    }
    return 0;
}

static int answer_all(struct sender *s, struct err *e)
{
    unsigned phase = 0;
    int rc = 0;

    while (rc == 0 && phase < 3) {
        int32_t index;
        rc = read_file_index(s, &index, e);
        if (rc == 0 && index == INDEX_DONE) {
            phase++;
            put_index(stream_draft(s->stream), &s->going, INDEX_DONE);
        } else if (rc == 0 &&
                   index == INDEX_DELETED) { /* before a phase's end, or at the goodbye */
            rc = pass_deletions(s, e);
        } else if (rc == 0) {
            rc = answer_sender_index(s, index, e);
        }
    }
    return rc;
}

static int say_goodbye(struct sender *s, struct err *e)
{
    struct buf *b = stream_draft(s->stream);
    int32_t index;
    int rc;

    put_varlong(b, (int64_t)s->stream->received_bytes, 3);
    put_varlong(b, (int64_t)s->stream->sent_bytes, 3);
    put_varlong(b, (int64_t)view_size_bytes(s->view), 3);
    put_varlong(b, 1, 3);
    put_varlong(b, 1, 3);
    rc = read_file_index(s, &index, e);
    if (rc == 0 && index == INDEX_DELETED) {
        rc = pass_deletions(s, e);
        rc = rc != 0 ? rc : read_file_index(s, &index, e);
    }
    if (rc == 0 && index == INDEX_DONE && s->version >= 31) {
        put_index(b, &s->going, INDEX_DONE);
        rc = stream_flush(s->stream, e);
        if (rc == 0) { /* its last word; who has left by now had all */
            (void)!read_file_index(s, &index, NULL);
        }
    }
    return rc;
}

/* --- all of it -------------------------------------------------------------------------------- */

void sender_init(struct sender *s, struct stream *stream, enum checksum_kind kind,
                 enum literal_kind literal, struct slice skip)
{
    *s = (struct sender){.stream = stream, .coming = INDEX_CODING_INIT, .going = INDEX_CODING_INIT};
    checksum_init(&s->sum, kind);
    literal_init(&s->literal, literal, skip);
}

int sender_run(struct sender *s, struct err *e)
{
    int rc = answer_all(s, e);
    return rc != 0 ? rc : say_goodbye(s, e);
}

void sender_fini(struct sender *s)
{
    checksum_fini(&s->sum);
    literal_fini(&s->literal);
}
