/* A checkpoint, with a checksum that is right: what another node or a damaged bucket could have
 * written. The first byte says whether the rest is a head or the rows of a part. What is read can
 * be written again, and is the same. */
#include <stdlib.h>

#include "server/cluster/checkpoint_format.h"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

struct again {
    struct checkpoint_rows rows;
    struct buf part;
};

static int write_row(void *arg, const struct checkpoint_row *r, struct err *e)
{
    struct again *a = arg;

    CHECK(checkpoint_row_write(&a->rows, r, &a->part, e) == 0);
    return 0;
}

static void try_rows(struct slice bytes)
{
    struct checkpoint_rows rows = CHECKPOINT_ROWS_INIT;
    struct again a = {CHECKPOINT_ROWS_INIT, BUF_INIT(CHECKPOINT_PART_BYTES_MAX)};
    struct err e = {0};
    int rc = checkpoint_rows_read(&rows, bytes, write_row, &a, &e);

    CHECK(rc == 0 || (rc == E_CORRUPT && e.text[0] != '\0'));
    CHECK(rows.count == a.rows.count);
    CHECK(rc == 0 ? slice_eq(buf_slice(&a.part), bytes) : slice_starts(bytes, buf_slice(&a.part)));
    checkpoint_rows_free(&rows);
    checkpoint_rows_free(&a.rows);
    buf_free(&a.part);
}

static void write_again(const struct checkpoint_head *h, struct slice bytes)
{
    struct buf commits = BUF_INIT(CHECKPOINT_HEAD_BYTES_MAX);
    struct buf parts = BUF_INIT(CHECKPOINT_HEAD_BYTES_MAX);
    struct buf out = BUF_INIT(CHECKPOINT_HEAD_BYTES_MAX);
    struct checkpoint_head copy = *h;
    struct log_entry_author a;
    struct checkpoint_part p;

    while (checkpoint_commit_next(&copy.commits, &a)) {
        checkpoint_commit_write(&a, &commits);
    }
    while (checkpoint_part_next(&copy.parts, &p)) {
        checkpoint_part_write(&p, &parts);
    }
    copy.commits = buf_slice(&commits);
    copy.parts = buf_slice(&parts);
    CHECK(checkpoint_head_write(&copy, &out, NULL) == 0);
    CHECK(slice_eq(buf_slice(&out), bytes));
    buf_free(&commits);
    buf_free(&parts);
    buf_free(&out);
}

static void try_head(const uint8_t *p, size_t n)
{
    struct buf b = BUF_INIT(CHECKPOINT_HEAD_BYTES_MAX + DIGEST_BYTES);
    struct checkpoint_head h;
    struct err e = {0};
    struct digest d;
    int rc;

    buf_add(&b, p, n);
    digest_of(buf_slice(&b), &d);
    buf_add(&b, d.b, DIGEST_BYTES);
    rc = checkpoint_head_read(buf_slice(&b), &h, &e);
    CHECK(rc == 0 || rc == E_CORRUPT || rc == E_UNSUPPORTED);
    CHECK(rc == 0 || e.text[0] != '\0');
    if (rc == 0) {
        write_again(&h, buf_slice(&b));
    }
    buf_free(&b);
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
    if (n != 0 && p[0] == 0) {
        try_rows(slice_of(p + 1, n - 1));
    } else if (n != 0) {
        try_head(p + 1, n - 1);
    }
    return 0;
}
