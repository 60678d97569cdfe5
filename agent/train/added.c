#include "agent/train/added.h"

#include <stdlib.h>

#include "common/base/arena.h"

struct added {
    struct arena arena;
    /* sorted by text, so that those with a common beginning are neighbours */
    struct added_token *token;
    size_t n;
    size_t longest;
    bool begins[256]; /* some text begins with this byte */
    bool holds[256];  /* some text holds this byte behind its first */
};

static int by_text(const void *a, const void *b)
{
    const struct added_token *x = a, *y = b;

    return slice_cmp(x->text, y->text);
}

bool added_open(const struct added_token *token, size_t n, struct added **out)
{
    struct added *a = NEW(struct added);
    bool once = true;

    a->n = n;
    a->token = mem_array(n + 1, sizeof *a->token);
    for (size_t i = 0; i < n; i++) {
        CHECK(token[i].text.n > 0 && token[i].text.n <= ADDED_MAX_BYTES);
        a->token[i] = token[i];
        a->token[i].text = arena_copy(&a->arena, token[i].text);
        a->longest = token[i].text.n > a->longest ? token[i].text.n : a->longest;
        a->begins[(uint8_t)token[i].text.p[0]] = true;
        for (size_t at = 1; at < token[i].text.n; at++) {
            a->holds[(uint8_t)token[i].text.p[at]] = true;
        }
    }
    qsort(a->token, n, sizeof *a->token, by_text);
    for (size_t i = 1; i < n; i++) {
        once = once && !slice_eq(a->token[i - 1].text, a->token[i].text);
    }
    if (!once) {
        added_close(&a);
    }
    *out = a;
    return once;
}

void added_close(struct added **ap)
{
    struct added *a = *ap;

    if (a != NULL) {
        *ap = NULL;
        arena_fini(&a->arena);
        free(a->token);
        free(a);
    }
}

/* The first of token[low..high), which agree in `depth` bytes, whose next byte is at least c; the
 * end when none is. */
static size_t first_from(const struct added *a, size_t low, size_t high, size_t depth, unsigned c)
{
    while (low < high) {
        size_t mid = low + (high - low) / 2;
        struct slice text = a->token[mid].text;

        if (text.n <= depth || (uint8_t)text.p[depth] < c) {
            low = mid + 1;
        } else {
            high = mid;
        }
    }
    return low;
}

/* The longest that `text` begins with. */
static const struct added_token *longest_at(const struct added *a, struct slice text, bool ordinary)
{
    size_t low = 0, high = a->n;
    const struct added_token *found = NULL;

    for (size_t depth = 0; depth < text.n && low < high; depth++) {
        unsigned c = (uint8_t)text.p[depth];

        low = first_from(a, low, high, depth, c);
        high = first_from(a, low, high, depth, c + 1);
        if (low < high && a->token[low].text.n == depth + 1 &&
            !(ordinary && a->token[low].special)) {
            found = &a->token[low];
        }
    }
    return found;
}

const struct added_token *added_find(const struct added *a, struct slice text, size_t from,
                                     bool ordinary, size_t *at)
{
    for (size_t i = from; a->n > 0 && i < text.n; i++) {
        if (a->begins[(uint8_t)text.p[i]]) {
            const struct added_token *found = longest_at(a, slice_from(text, i), ordinary);

            if (found != NULL) {
                *at = i;
                return found;
            }
        }
    }
    return NULL;
}

size_t added_longest(const struct added *a)
{
    return a->longest;
}

bool added_spans(const struct added *a, struct slice text, size_t at)
{
    size_t back = a->longest < at ? a->longest : at;

    if (at == text.n || !a->holds[(uint8_t)text.p[at]]) {
        return false;
    }
    for (size_t i = at - back; i < at; i++) {
        const struct added_token *found =
            a->begins[(uint8_t)text.p[i]] ? longest_at(a, slice_from(text, i), false) : NULL;

        if (found != NULL && found->text.n > at - i) {
            return true;
        }
    }
    return false;
}
