#include "server/cluster/format.h"

#include <inttypes.h>

/* Tests build a mirrord that reads one more. */
#ifndef CLUSTER_FORMAT
#    define CLUSTER_FORMAT FORMAT_FIRST
#endif

#define KEY SLICE("")

enum { ROW_BYTES_MAX = 20 };

uint64_t format_newest(void)
{
    return CLUSTER_FORMAT;
}

static int parse(struct slice value, uint64_t *out, struct err *e)
{
    if (!slice_u64(value, out) || *out < FORMAT_FIRST) {
        return err_set(e, E_CORRUPT, "the row of the cluster's format cannot be decoded");
    }
    return *out <= format_newest()
               ? 0
               : err_set(e, E_UNSUPPORTED,
                         "the cluster has format %" PRIu64
                         "; this version of mirrord reads formats up to %" PRIu64
                         ": upgrade this mirror",
                         *out, format_newest());
}

int format_check(struct slice value, struct err *e)
{
    uint64_t format;

    return parse(value, &format, e);
}

int format_refuse(const char *what, struct slice is, struct slice known, struct err *e)
{
    return err_set(e, E_UNSUPPORTED,
                   "%s has a format of a later version, " SLICE_FMT
                   "; this version of mirrord reads " SLICE_FMT ": upgrade this mirror",
                   what, SLICE_ARG(is), SLICE_ARG(known));
}

int format_read(struct store *s, uint64_t *out, struct err *e)
{
    struct buf row = BUF_INIT(ROW_BYTES_MAX);
    int rc = store_get(s, TABLE_FORMAT, KEY, &row, e);

    *out = FORMAT_FIRST;
    rc = rc == 0 ? parse(buf_slice(&row), out, e) : rc;
    buf_free(&row);
    return rc == E_NOTFOUND ? 0 : rc;
}

int format_raise(struct store *s, uint64_t from, uint64_t to, struct err *e)
{
    struct buf row = BUF_INIT(ROW_BYTES_MAX), next = BUF_INIT(ROW_BYTES_MAX);
    struct batch *b = batch_new();
    int rc;

    buf_addf(&row, "%" PRIu64, from);
    buf_addf(&next, "%" PRIu64, to);
    if (from == FORMAT_FIRST) {
        batch_require_absent(b, TABLE_FORMAT, KEY);
    } else {
        batch_require_value(b, TABLE_FORMAT, KEY, buf_slice(&row));
    }
    batch_put(b, TABLE_FORMAT, KEY, buf_slice(&next));
    rc = store_commit(s, &b, COMMIT_SYNC, e);
    buf_free(&row);
    buf_free(&next);
    return rc;
}
