/* An entry of a cluster's log, with a checksum that is right: what another node or a damaged bucket
 * could have written. What is read can be written again, and is the same. */
#include <stdlib.h>

#include "server/cluster/log_entry.h"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

static void write_again(const struct log_entry *en, struct slice bytes)
{
    struct slice batch[LOG_ENTRY_BATCHES_MAX], rest = en->steps, steps;
    struct buf out = BUF_INIT(LOG_ENTRY_BYTES_MAX);
    struct log_entry_step st;
    struct digest own;
    size_t n = 0;

    while (log_entry_batch_next(&rest, &steps)) {
        CHECK(n < LOG_ENTRY_BATCHES_MAX);
        batch[n++] = steps;
        while (log_entry_step_next(&steps, &st)) {
            CHECK(st.op >= LOG_ENTRY_PUT && st.op <= LOG_ENTRY_REQUIRE_VALUE);
        }
        CHECK(steps.n == 0);
    }
    CHECK(rest.n == 0 && n == en->batches);
    CHECK(log_entry_write(en->seq, &en->before, &en->author, batch, n, &out, &own, NULL) == 0);
    CHECK(slice_eq(buf_slice(&out), bytes) && digest_eq(&own, &en->own));
    buf_free(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
    struct buf b = BUF_INIT(LOG_ENTRY_BYTES_MAX + DIGEST_BYTES);
    struct err e = {0};
    struct digest d;
    struct log_entry en;
    int rc;

    buf_add(&b, p, n);
    digest_of(buf_slice(&b), &d);
    buf_add(&b, d.b, DIGEST_BYTES);
    rc = log_entry_read(buf_slice(&b), &en, &e);
    CHECK(rc == 0 || rc == E_CORRUPT || rc == E_UNSUPPORTED);
    CHECK(rc == 0 || e.text[0] != '\0');
    if (rc == 0) {
        write_again(&en, buf_slice(&b));
    }
    buf_free(&b);
    return 0;
}
