#include "agent/train/bpe.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>

#include "kernels/philox.h"

enum { MERGES = 300, VOCAB = 256 + MERGES, LONGEST = 400 };

/* Merges of tokens drawn at random from few letters: every kind of overlap and tie. Two merges
 * never make the same. */
static struct bpe *random_bpe(uint64_t seed, uint32_t pair[MERGES][2], uint32_t *merges)
{
    struct bpe *b = bpe_new(VOCAB, MERGES, false);
    char bytes[2 * BPE_MAX_TOKEN];

    *merges = 0;
    for (int i = 0; i < 256; i++) {
        bytes[0] = (char)i;
        bpe_token(b, (uint32_t)i, slice_of(bytes, 1), true);
    }
    for (uint32_t i = 0; i < MERGES; i++) {
        struct philox r = philox_at(seed, 1, i);
        uint32_t known = 3 + *merges, side[2];
        struct slice left, right;
        bool again = false;

        for (int s = 0; s < 2; s++) {
            side[s] = r.v[s] % known;
            side[s] = side[s] < 3 ? 'a' + side[s] : 256 + side[s] - 3;
        }
        left = bpe_bytes(b, side[0]);
        right = bpe_bytes(b, side[1]);
        if (left.n + right.n > 40) {
            continue;
        }
        for (uint32_t k = 0; k < *merges; k++) {
            again = again || (pair[k][0] == side[0] && pair[k][1] == side[1]);
        }
        if (again) {
            continue;
        }
        memcpy(bytes, left.p, left.n);
        memcpy(bytes + left.n, right.p, right.n);
        bpe_token(b, 256 + *merges, slice_of(bytes, left.n + right.n), true);
        bpe_merge(b, side[0], side[1], 256 + *merges);
        pair[*merges][0] = side[0];
        pair[(*merges)++][1] = side[1];
    }
    assert_int_equal(bpe_check(b, NULL), 0);
    return b;
}

/* The meaning: again and again the leftmost pair of the lowest rank, until none is left. */
static size_t by_the_book(uint32_t pair[MERGES][2], uint32_t merges, struct slice word,
                          uint32_t *out)
{
    size_t n = word.n;

    for (size_t i = 0; i < n; i++) {
        out[i] = (uint8_t)word.p[i];
    }
    for (;;) {
        uint32_t best = merges;
        size_t at = 0;

        for (size_t i = 0; i + 1 < n; i++) {
            for (uint32_t k = 0; k < best; k++) {
                if (out[i] == pair[k][0] && out[i + 1] == pair[k][1]) {
                    best = k;
                    at = i;
                }
            }
        }
        if (best == merges) {
            return n;
        }
        out[at] = 256 + best;
        n--;
        memmove(out + at + 1, out + at + 2, (n - at - 1) * sizeof *out);
    }
}

static void test_as_by_the_book(void **state)
{
    static uint32_t pair[MERGES][2], want[LONGEST], got[LONGEST];

    (void)state;
    for (uint64_t seed = 0; seed < 8; seed++) {
        uint32_t merges;
        struct bpe *b = random_bpe(seed, pair, &merges);
        struct bpe_coder *c = bpe_coder_open(b);

        for (uint32_t i = 0; i < 60; i++) {
            char word[LONGEST];
            size_t n = philox_at(seed, 2, i).v[0] % (i % 6 == 0 ? LONGEST : 25), wanted;

            for (size_t k = 0; k < n; k++) {
                word[k] = (char)('a' + philox_at(seed, i + 3, k).v[0] % (i % 3 + 2));
            }
            wanted = by_the_book(pair, merges, slice_of(word, n), want);
            for (int twice = 0; twice < 2 && n > 0;
                 twice++) { /* the second time it is remembered */
                assert_int_equal(bpe_word(c, slice_of(word, n), got), wanted);
                assert_memory_equal(got, want, wanted * sizeof *want);
            }
        }
        bpe_coder_close(&c);
        bpe_free(&b);
    }
}

/* Joining by searching the whole word each time would take an hour. */
static void test_long_words(void **state)
{
    enum { N = 1 << 20 };
    static uint32_t pair[MERGES][2];
    uint32_t merges, *out = mem_array(N, sizeof *out);
    struct bpe *b = random_bpe(1, pair, &merges);
    struct bpe_coder *c = bpe_coder_open(b);
    char *word = mem_array(N, 1);

    (void)state;
    for (int letters = 1; letters <= 3; letters += 2) {
        size_t n, sum = 0;

        for (size_t i = 0; i < N; i++) {
            word[i] = (char)('a' + (i * 2654435761u >> 16) % (unsigned)letters);
        }
        n = bpe_word(c, slice_of(word, N), out);
        for (size_t i = 0; i < n; i++) {
            struct slice token = bpe_bytes(b, out[i]);

            assert_memory_equal(word + sum, token.p, token.n);
            sum += token.n;
        }
        assert_int_equal(sum, N);
        assert_true(n < N);
    }
    bpe_coder_close(&c);
    bpe_free(&b);
    free(word);
    free(out);
}

static void test_whole_words(void **state)
{
    struct bpe *b = bpe_new(258, 0, true);
    struct bpe_coder *c;
    struct err e;
    uint32_t out[5];

    (void)state;
    for (uint32_t i = 0; i < 255; i++) {
        char byte = (char)i;

        bpe_token(b, i, slice_of(&byte, 1), true);
    }
    bpe_token(b, 255, SLICE("\xff"), false); /* text of its own */
    bpe_token(b, 256, SLICE("abc"), true);
    bpe_token(b, 257, SLICE("xyz"), false);
    assert_int_equal(bpe_check(b, &e), E_UNSUPPORTED);
    assert_non_null(strstr(e.text, "0xff"));
    c = bpe_coder_open(b);
    assert_int_equal(bpe_word(c, SLICE("abc"), out), 1);
    assert_int_equal(out[0], 256);
    assert_int_equal(bpe_word(c, SLICE("abcd"), out), 4);
    assert_int_equal(bpe_word(c, SLICE("xyz"), out), 3);
    bpe_coder_close(&c);
    bpe_free(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_as_by_the_book),
        cmocka_unit_test(test_long_words),
        cmocka_unit_test(test_whole_words),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
