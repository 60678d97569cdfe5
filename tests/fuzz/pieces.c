/* A list of pieces from a stranger: decodes or not; what decodes tiles its file, and can be put
 * together with itself. */
#include "server/store/pieces.h"
#include "server/sync/mirrord/patch.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct slice first = slice_of(data, size), second;
    struct pieces lookup, have;
    struct patch patch;
    uint64_t at = 0;

    second = first;
    if (size > 1) { /* two lists, cut where the first byte says */
        size_t n = (size - 1) * data[0] / 255;
        first = slice_of(data + 1, n);
        second = slice_of(data + 1 + n, size - 1 - n);
    }
    if (pieces_decode(first, &lookup, NULL) != 0) {
        return 0;
    }
    if (pieces_decode(second, &have, NULL) != 0) {
        (void)!pieces_decode(first, &have, NULL);
    }
    patch_make(&lookup, &have, &patch);
    for (size_t i = 0; i < patch.count; i++) {
        const struct stretch *s = &patch.stretch[i];
        CHECK(s->off == at && s->end > at);
        CHECK(!s->here || s->from + (s->end - s->off) <= have.size_bytes);
        at = s->end;
    }
    CHECK(at == lookup.size_bytes && patch.here_bytes + patch.fetch_bytes == at);
    patch_free(&patch);
    pieces_free(&lookup);
    pieces_free(&have);
    return 0;
}
