#include "server/rsync/sender.h"

#include <stdlib.h>

#include "common/base/log.h"
#include "server/sync/rsync/answer.h"

enum { INDEX_DELETED = -3, DELETION_COUNTS = 5 };

/* --- what is asked for --------------------------------------------------------------------------------------------------- */

static int read_index(struct sender *s, int32_t *out, struct err *e)
{
    uint8_t bytes[6];
    size_t n = 0;

    for (;;) {
        struct index_coding coding = s->coming;
        struct get g;
        int rc = n < sizeof bytes ? stream_read(s->stream, bytes + n, 1, e)
                                  : err_set(e, E_PROTOCOL, "an index that cannot be");
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
            return err_set(e, E_PROTOCOL, "an index that cannot be");
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
            rc = err_set(e, E_PROTOCOL, "a name that cannot be");
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
        return err_set(e, E_PROTOCOL, "block sums that cannot be");
    }
    return stream_skip(s->stream, (uint64_t)h.count * (4 + h.strong_bytes), e);
}

/* --- what is sent ---------------------------------------------------------------------------------------------------------- */

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
    stream_message(s->stream, MUX_ERROR_XFER, SLICE("a file cannot be read any more\n"));
    stream_message(s->stream, MUX_NO_SEND, buf_slice(&number));
    buf_free(&number);
    return 0;
}

static int answer(struct sender *s, int32_t index, struct err *e)
{
    static const struct sums_head whole = {.count = 0};
    struct request r = {.index = index};
    const struct list_entry *en;
    struct blob *blob = NULL;
    struct slice path;
    char room[LIST_PATH_MAX + 1];
    int rc;

    if (index < 0 || (uint32_t)index >= s->view->count) {
        return err_set(e, E_PROTOCOL, "entry %d of %u is asked for", (int)index,
                       (unsigned)s->view->count);
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
        return err_set(e, E_PROTOCOL, "entry %d is no file", (int)index);
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
    return err_set(e, E_PROTOCOL, "a number that cannot be");
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
        rc = read_index(s, &index, e);
        if (rc == 0 && index == INDEX_DONE) {
            phase++;
            put_index(stream_draft(s->stream), &s->going, INDEX_DONE);
        } else if (rc == 0 &&
                   index == INDEX_DELETED) { /* before a phase's end, or at the goodbye */
            rc = pass_deletions(s, e);
        } else if (rc == 0) {
            rc = answer(s, index, e);
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
    rc = read_index(s, &index, e);
    if (rc == 0 && index == INDEX_DELETED) {
        rc = pass_deletions(s, e);
        rc = rc != 0 ? rc : read_index(s, &index, e);
    }
    if (rc == 0 && index == INDEX_DONE && s->version >= 31) {
        put_index(b, &s->going, INDEX_DONE);
        rc = stream_flush(s->stream, e);
        if (rc == 0) { /* its last word; who has left by now had all */
            (void)!read_index(s, &index, NULL);
        }
    }
    return rc;
}

/* --- all of it ------------------------------------------------------------------------------------------------------------ */

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
