#include "server/cluster/checkpoint_format.h"

#include <inttypes.h>

#include "server/cluster/format.h"

#define MAGIC      SLICE("mrdckp01")
#define MAGIC_KIND SLICE("mrdckp")

enum {
    COMMIT_BYTES = LOG_ENTRY_NODE_BYTES + 8 + 8,
    PART_BYTES = 8 + DIGEST_BYTES,
};

/* --- the head's lists --- */

void checkpoint_commit_write(const struct log_entry_author *last, struct buf *commits)
{
    buf_add(commits, last->node, LOG_ENTRY_NODE_BYTES);
    buf_be(commits, 8, last->boot);
    buf_be(commits, 8, last->counter);
}

void checkpoint_part_write(const struct checkpoint_part *p, struct buf *parts)
{
    buf_be(parts, 8, p->size_bytes);
    buf_add(parts, p->digest.b, DIGEST_BYTES);
}

bool checkpoint_commit_next(struct slice *rest, struct log_entry_author *out)
{
    struct slice node;

    if (!slice_take(rest, LOG_ENTRY_NODE_BYTES, &node) || !slice_be(rest, 8, &out->boot) ||
        !slice_be(rest, 8, &out->counter)) {
        return false;
    }
    memcpy(out->node, node.p, LOG_ENTRY_NODE_BYTES);
    return true;
}

bool checkpoint_part_next(struct slice *rest, struct checkpoint_part *out)
{
    struct slice digest;

    if (!slice_be(rest, 8, &out->size_bytes) || !slice_take(rest, DIGEST_BYTES, &digest)) {
        return false;
    }
    memcpy(out->digest.b, digest.p, DIGEST_BYTES);
    return true;
}

static int check_lists(const struct checkpoint_head *h, struct err *e)
{
    struct slice commits = h->commits, parts = h->parts;
    struct log_entry_author last = {{0}, 0, 0}, next;
    struct checkpoint_part p;

    for (unsigned i = 0; checkpoint_commit_next(&commits, &next); i++) {
        if (i != 0 && memcmp(last.node, next.node, LOG_ENTRY_NODE_BYTES) >= 0) {
            return err_set(e, E_CORRUPT, "the checkpoint's last commits are not in order");
        }
        last = next;
    }
    while (checkpoint_part_next(&parts, &p)) {
        if (p.size_bytes == 0 || p.size_bytes > CHECKPOINT_PART_BYTES_MAX) {
            return err_set(e, E_CORRUPT, "a part of the checkpoint has %" PRIu64 " bytes",
                           p.size_bytes);
        }
    }
    return commits.n == 0 && parts.n == 0
               ? 0
               : err_set(e, E_CORRUPT, "a list of the checkpoint is truncated");
}

/* --- the head --- */

int checkpoint_head_write(const struct checkpoint_head *h, struct buf *out, struct err *e)
{
    struct digest d;
    int rc = check_lists(h, e);

    if (rc != 0) {
        return rc;
    }
    if (h->commits.n / COMMIT_BYTES > CHECKPOINT_COMMITS_MAX ||
        h->parts.n / PART_BYTES > CHECKPOINT_PARTS_MAX) {
        return err_set(e, E_TOOBIG, "a checkpoint has at most %d nodes and %d parts",
                       CHECKPOINT_COMMITS_MAX, CHECKPOINT_PARTS_MAX);
    }
    buf_clear(out);
    buf_adds(out, MAGIC);
    buf_be(out, 8, h->seq);
    buf_add(out, h->own.b, DIGEST_BYTES);
    buf_be(out, 8, h->rows);
    buf_be(out, 4, h->commits.n / COMMIT_BYTES);
    buf_adds(out, h->commits);
    buf_be(out, 4, h->parts.n / PART_BYTES);
    buf_adds(out, h->parts);
    digest_of(buf_slice(out), &d);
    buf_add(out, d.b, DIGEST_BYTES);
    return out->rc != 0 ? err_set(e, out->rc, "no room for the head of a checkpoint") : 0;
}

static bool take_list(struct slice *rest, size_t max, size_t bytes, struct slice *out)
{
    uint64_t n;

    return slice_be(rest, 4, &n) && n <= max && slice_take(rest, n * bytes, out);
}

int checkpoint_head_read(struct slice bytes, struct checkpoint_head *out, struct err *e)
{
    struct slice rest = bytes, own;
    struct digest d;

    *out = (struct checkpoint_head){0};
    if (!slice_starts(bytes, MAGIC_KIND) || bytes.n < MAGIC.n + DIGEST_BYTES ||
        bytes.n > CHECKPOINT_HEAD_BYTES_MAX) {
        return err_set(e, E_CORRUPT, "these %zu bytes are not the head of a checkpoint", bytes.n);
    }
    rest.n -= DIGEST_BYTES;
    digest_of(rest, &d);
    if (memcmp(d.b, rest.p + rest.n, DIGEST_BYTES) != 0) {
        return err_set(e, E_CORRUPT, "the checkpoint's checksum does not match its bytes");
    }
    if (!slice_starts(bytes, MAGIC)) {
        return format_refuse("the checkpoint", slice_first(bytes, MAGIC.n), MAGIC, e);
    }
    rest = slice_from(rest, MAGIC.n);
    if (!slice_be(&rest, 8, &out->seq) || !slice_take(&rest, DIGEST_BYTES, &own) ||
        !slice_be(&rest, 8, &out->rows) ||
        !take_list(&rest, CHECKPOINT_COMMITS_MAX, COMMIT_BYTES, &out->commits) ||
        !take_list(&rest, CHECKPOINT_PARTS_MAX, PART_BYTES, &out->parts) || rest.n != 0) {
        return err_set(e, E_CORRUPT, "the head of the checkpoint is truncated");
    }
    memcpy(out->own.b, own.p, DIGEST_BYTES);
    return check_lists(out, e);
}

/* --- rows --- */

size_t checkpoint_row_bytes(const struct checkpoint_row *r)
{
    return 1 + 2 + r->key.n + 4 + r->value.n;
}

/* Whether the row may come next; it is then the last one. */
static bool advance(struct checkpoint_rows *rows, const struct checkpoint_row *r)
{
    if (rows->count != 0 &&
        (r->table < rows->table ||
         (r->table == rows->table && slice_cmp(buf_slice(&rows->key), r->key) >= 0))) {
        return false;
    }
    rows->count++;
    rows->table = r->table;
    buf_clear(&rows->key);
    buf_adds(&rows->key, r->key);
    return true;
}

int checkpoint_row_write(struct checkpoint_rows *rows, const struct checkpoint_row *r,
                         struct buf *part, struct err *e)
{
    if (r->key.n > UINT16_MAX || part->n + checkpoint_row_bytes(r) > CHECKPOINT_PART_BYTES_MAX) {
        return err_set(e, E_TOOBIG, "the row does not fit into a part of a checkpoint");
    }
    if (!advance(rows, r)) {
        return err_set(e, E_CORRUPT, "the rows of a checkpoint are not in order");
    }
    buf_byte(part, r->table);
    buf_counted(part, 2, r->key);
    buf_counted(part, 4, r->value);
    return part->rc != 0 ? err_set(e, part->rc, "no room for a row of a checkpoint") : 0;
}

int checkpoint_rows_read(struct checkpoint_rows *rows, struct slice part,
                         int (*each)(void *arg, const struct checkpoint_row *r, struct err *e),
                         void *arg, struct err *e)
{
    struct checkpoint_row r;
    uint64_t table;
    int rc = 0;

    while (rc == 0 && part.n != 0) {
        if (!slice_be(&part, 1, &table) || !slice_counted(&part, 2, &r.key) ||
            !slice_counted(&part, 4, &r.value)) {
            return err_set(e, E_CORRUPT, "a row of the checkpoint is truncated");
        }
        r.table = (uint8_t)table;
        if (!advance(rows, &r)) {
            return err_set(e, E_CORRUPT, "the rows of the checkpoint are not in order");
        }
        rc = each(arg, &r, e);
    }
    return rc;
}

void checkpoint_rows_free(struct checkpoint_rows *rows)
{
    buf_free(&rows->key);
}
