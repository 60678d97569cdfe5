/* An answer of many files, cut anywhere into pieces: read, or refused; the same however it is cut,
 * never more records than were asked for, none longer than one can be, and bytes as many as its
 * head said. */
#include "common/base/endian.h"
#include "common/codec/blob_batch.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct reported {
    size_t records, whole;
    uint64_t bytes, sum;
    int end;
};

static void read_all(struct slice answer, size_t asked, size_t step_bytes, struct reported *out)
{
    struct blob_batch_reader r;
    uint64_t left = 0;

    *out = (struct reported){0};
    blob_batch_reader_init(&r, asked);
    while (out->end == 0 && answer.n != 0) {
        struct slice piece = slice_first(answer, answer.n < step_bytes ? answer.n : step_bytes),
                     some;
        int step;
        answer = slice_from(answer, piece.n);
        while ((step = blob_batch_next(&r, &piece, &some, NULL)) != BLOB_BATCH_NEED && step > 0) {
            if (step == BLOB_BATCH_RECORD) {
                CHECK(left == 0 && ++out->records <= asked);
                out->sum = out->sum * 31 + r.n;
                left = r.n == BLOB_BATCH_ABSENT || r.n == BLOB_BATCH_ALONE ? 0 : r.n;
                CHECK(left <= BLOB_BATCH_BLOB_MAX);
            } else if (step == BLOB_BATCH_SOME) {
                CHECK(some.n != 0 && some.n <= left);
                left -= some.n;
                out->bytes += some.n;
            } else {
                CHECK(step == BLOB_BATCH_WHOLE && left == 0);
                out->whole++;
            }
        }
        CHECK(step < 0 || piece.n == 0);
        out->end = step < 0 ? step : 0;
    }
    if (out->end == 0) {
        out->end = blob_batch_between(&r) ? 1 : 2;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct reported whole, cut;
    struct slice answer;

    if (size < 3) {
        return 0;
    }
    answer = slice_of(data + 3, size - 3);
    read_all(answer, be_get(data, 2) % BLOB_BATCH_COUNT_MAX + 1, answer.n + 1, &whole);
    read_all(answer, be_get(data, 2) % BLOB_BATCH_COUNT_MAX + 1, (size_t)data[2] % 37 + 1, &cut);
    CHECK(whole.records == cut.records && whole.whole == cut.whole && whole.bytes == cut.bytes &&
          whole.sum == cut.sum && whole.end == cut.end);
    return 0;
}
