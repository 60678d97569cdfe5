#include "server/cluster/log_entry.h"

#include <inttypes.h>

#include "server/cluster/format.h"

#define MAGIC      SLICE("mrdlog01")
#define MAGIC_KIND SLICE("mrdlog")

/* --- steps --- */

void log_entry_step_write(const struct log_entry_step *st, struct buf *batch)
{
    buf_byte(batch, (uint8_t)st->op);
    buf_byte(batch, st->table);
    buf_counted(batch, 2, st->key);
    buf_counted(batch, 4, st->value);
}

static bool step_take(struct slice *rest, struct log_entry_step *out)
{
    uint64_t op, table;

    if (!slice_be(rest, 1, &op) || !slice_be(rest, 1, &table) ||
        !slice_counted(rest, 2, &out->key) || !slice_counted(rest, 4, &out->value) ||
        op < LOG_ENTRY_PUT || op > LOG_ENTRY_REQUIRE_VALUE) {
        return false;
    }
    out->op = (enum log_entry_op)op;
    out->table = (uint8_t)table;
    return (op == LOG_ENTRY_PUT || op == LOG_ENTRY_REQUIRE_VALUE) || out->value.n == 0;
}

bool log_entry_step_next(struct slice *batch, struct log_entry_step *out)
{
    return batch->n != 0 && step_take(batch, out);
}

/* --- batches --- */

bool log_entry_batch_next(struct slice *rest, struct slice *batch)
{
    return rest->n != 0 && slice_counted(rest, 4, batch);
}

static int check_batches(struct slice steps, uint32_t batches, struct err *e)
{
    struct slice batch;
    struct log_entry_step st;
    uint32_t n = 0;

    while (steps.n != 0) {
        if (!slice_counted(&steps, 4, &batch)) {
            return err_set(e, E_CORRUPT, "the entry's batch %" PRIu32 " is truncated", n);
        }
        while (batch.n != 0) {
            if (!step_take(&batch, &st)) {
                return err_set(e, E_CORRUPT, "the entry's batch %" PRIu32 " has an invalid step",
                               n);
            }
        }
        n++;
    }
    return n == batches && n <= LOG_ENTRY_BATCHES_MAX
               ? 0
               : err_set(e, E_CORRUPT, "the entry has %" PRIu32 " batches, but names %" PRIu32, n,
                         batches);
}

int log_entry_write(uint64_t seq, const struct digest *before, const struct log_entry_author *by,
                    const struct slice *batch, size_t n, struct buf *out, struct digest *own,
                    struct err *e)
{
    int rc;

    CHECK(n <= LOG_ENTRY_BATCHES_MAX);
    buf_clear(out);
    buf_adds(out, MAGIC);
    buf_be(out, 8, seq);
    buf_add(out, before->b, DIGEST_BYTES);
    buf_add(out, by->node, LOG_ENTRY_NODE_BYTES);
    buf_be(out, 8, by->boot);
    buf_be(out, 8, by->counter);
    buf_be(out, 4, n);
    for (size_t i = 0; i < n; i++) {
        buf_counted(out, 4, batch[i]);
    }
    if (out->rc != 0 || out->n + DIGEST_BYTES > LOG_ENTRY_BYTES_MAX) {
        return err_set(e, E_TOOBIG, "an entry of the log has at most %d bytes",
                       LOG_ENTRY_BYTES_MAX);
    }
    rc = check_batches(slice_from(buf_slice(out), LOG_ENTRY_HEAD_BYTES), (uint32_t)n, e);
    if (rc != 0) {
        return rc;
    }
    digest_of(buf_slice(out), own);
    buf_add(out, own->b, DIGEST_BYTES);
    return out->rc != 0 ? err_set(e, out->rc, "out of memory for an entry of the log") : 0;
}

static bool take_head(struct slice rest, struct log_entry *out)
{
    struct slice before, node;
    uint64_t batches;

    if (!slice_be(&rest, 8, &out->seq) || !slice_take(&rest, DIGEST_BYTES, &before) ||
        !slice_take(&rest, LOG_ENTRY_NODE_BYTES, &node) || !slice_be(&rest, 8, &out->author.boot) ||
        !slice_be(&rest, 8, &out->author.counter) || !slice_be(&rest, 4, &batches)) {
        return false;
    }
    memcpy(out->before.b, before.p, DIGEST_BYTES);
    memcpy(out->author.node, node.p, LOG_ENTRY_NODE_BYTES);
    out->batches = (uint32_t)batches;
    out->steps = rest;
    return true;
}

int log_entry_read(struct slice bytes, struct log_entry *out, struct err *e)
{
    struct slice all = bytes;

    *out = (struct log_entry){0};
    if (!slice_starts(bytes, MAGIC_KIND) || bytes.n < LOG_ENTRY_HEAD_BYTES + DIGEST_BYTES ||
        bytes.n > LOG_ENTRY_BYTES_MAX) {
        return err_set(e, E_CORRUPT, "these %zu bytes are not an entry of the log", bytes.n);
    }
    all.n -= DIGEST_BYTES;
    digest_of(all, &out->own);
    if (memcmp(out->own.b, all.p + all.n, DIGEST_BYTES) != 0) {
        return err_set(e, E_CORRUPT, "the entry's checksum does not match its bytes");
    }
    if (!slice_starts(bytes, MAGIC)) {
        return format_refuse("the entry", slice_first(bytes, MAGIC.n), MAGIC, e);
    }
    if (!take_head(slice_from(all, MAGIC.n), out)) {
        return err_set(e, E_CORRUPT, "the entry's head is truncated");
    }
    return check_batches(out->steps, out->batches, e);
}
