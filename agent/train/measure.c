#include "agent/train/measure.h"

#include <stdlib.h>

int measure(struct model *m, const struct data *d, int64_t batch, int64_t batches,
            struct measured *out, struct err *e)
{
    uint64_t windows = data_count(d), limit;
    size_t room = (size_t)(batch * m->seq);
    int32_t *token = mem_array(room, sizeof *token), *target = mem_array(room, sizeof *target);
    double total = 0;
    int rc = 0;

    CHECK(batch <= m->batch);
    if (data_vocab(d) > (uint64_t)m->config.vocab) {
        rc = err_set(e, E_INVALID, "the data have a vocabulary of %u, the model only %lld",
                     data_vocab(d), (long long)m->config.vocab);
    }
    if (batches > 0 && mul_u64((uint64_t)batches, (uint64_t)batch, &limit)) {
        windows = min_u64(windows, limit);
    }
    for (uint64_t w = 0; rc == 0 && w < windows; w += (uint64_t)batch) {
        int64_t n = (int64_t)min_u64((uint64_t)batch, windows - w);
        double sum = 0;

        for (int64_t b = 0; rc == 0 && b < n; b++) {
            rc = data_window(d, w + (uint64_t)b, token + b * m->seq, target + b * m->seq, e);
        }
        if (rc == 0) {
            model_begin(m);
            model_measure(m, token, target, n, m->seq);
            rc = model_loss(m, &sum, e);
            total += sum;
        }
    }
    *out = (struct measured){.windows = windows, .tokens = windows * (uint64_t)m->seq};
    out->loss = total / (double)out->tokens;
    free(token);
    free(target);
    return rc;
}
