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

/* Fewer letters than this at the start of a word say little about it. */
enum { START_MIN = 3 };

/* The shortest word that begins with `start`. */
static const char *completed(const char *const *words, size_t count, struct slice start)
{
    const char *best = NULL;

    for (size_t i = 0; i < count && start.n >= START_MIN; i++) {
        if (slice_starts(slice_str(words[i]), start) &&
            (best == NULL || strlen(words[i]) < strlen(best))) {
            best = words[i];
        }
    }
    return best;
}

/* The longest word that `word` begins with. */
static const char *shortened(const char *const *words, size_t count, struct slice word)
{
    const char *best = NULL;

    for (size_t i = 0; i < count; i++) {
        size_t n = strlen(words[i]);
        if (n >= START_MIN && slice_starts(word, slice_str(words[i])) &&
            (best == NULL || n > strlen(best))) {
            best = words[i];
        }
    }
    return best;
}

/* A slip of one letter is more likely than an abbreviation, and that more likely than several
 * slips. */
const char *nearest_word(const char *const *words, size_t count, struct slice word)
{
    const char *best = NULL, *longer = completed(words, count, word);
    unsigned best_d = word.n < 4 ? 2 : word.n < 8 ? 3 : 4; /* must be better than this */

    for (size_t i = 0; i < count; i++) {
        unsigned d = distance(word, slice_str(words[i]));
        if (d < best_d) {
            best_d = d;
            best = words[i];
        }
    }
    if (longer != NULL && best_d > 1) {
        return longer;
    }
    return best != NULL ? best : shortened(words, count, word);
}
