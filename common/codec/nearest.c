#include "common/codec/nearest.h"

/* Letters to change, add, drop or swap (Damerau, optimal string alignment); words are short. */
static unsigned distance(struct slice a, struct slice b)
{
    enum { WORD = 32 };
    unsigned row[3][WORD + 1];
    unsigned *before = row[0], *above = row[1], *here = row[2];

    if (a.n > WORD || b.n > WORD) {
        return UINT32_MAX;
    }
    for (unsigned j = 0; j <= b.n; j++) {
        above[j] = j;
    }
    for (unsigned i = 1; i <= a.n; i++) {
        unsigned *spare = before;
        here[0] = i;
        for (unsigned j = 1; j <= b.n; j++) {
            unsigned d = above[j - 1] + (a.p[i - 1] != b.p[j - 1]);
            d = d < above[j] + 1 ? d : above[j] + 1;
            d = d < here[j - 1] + 1 ? d : here[j - 1] + 1;
            if (i > 1 && j > 1 && a.p[i - 1] == b.p[j - 2] && a.p[i - 2] == b.p[j - 1] &&
                before[j - 2] + 1 < d) {
                d = before[j - 2] + 1;
            }
            here[j] = d;
        }
        before = above;
        above = here;
        here = spare;
    }
    return above[b.n];
}

const char *nearest_word(const char *const *words, size_t count, struct slice word)
{
    const char *best = NULL;
    unsigned best_d = word.n < 4 ? 2 : word.n < 8 ? 3 : 4; /* must be better than this */

    for (size_t i = 0; i < count; i++) {
        unsigned d = distance(word, slice_str(words[i]));
        if (d < best_d) {
            best_d = d;
            best = words[i];
        }
    }
    return best;
}
