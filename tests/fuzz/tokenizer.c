/* tokenizer.c - fuzzes tokenizer.json: whatever is accepted encodes any text without loss, cut or
 * whole. */
#include <stdlib.h>

#include "agent/train/tokenizer.h"
#include "common/codec/utf8.h"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

static size_t encode(struct encoder *x, struct slice text, uint32_t *out)
{
    size_t n;

    CHECK(encoder_add(x, text, out, &n, NULL) == 0 && n <= text.n);
    return n;
}

static void try_text(const struct tokenizer *t, struct slice text)
{
    uint32_t *whole = mem_array(text.n + 1, sizeof *whole),
             *parts = mem_array(text.n + 1, sizeof *parts);
    struct encoder *x = encoder_open(t, false);
    size_t n = encode(x, text, whole), at = tokenizer_cut(t, text, 0), m, sum = 0;

    for (size_t i = 0; i < n; i++) {
        struct slice token = tokenizer_text(t, whole[i]);

        CHECK(token.n > 0 && token.n <= text.n - sum &&
              memcmp(text.p + sum, token.p, token.n) == 0);
        sum += token.n;
    }
    CHECK(sum == text.n && at < text.n);
    m = encode(x, slice_first(text, at), parts);
    m += encode(x, slice_from(text, at), parts + m);
    CHECK(m == n && memcmp(whole, parts, n * sizeof *whole) == 0);
    encoder_close(&x);
    free(whole);
    free(parts);
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
    struct slice fixed =
        SLICE("It's 12345  tokens\n\n <|a|> "
              "\xe4\xb8\xad\xe6\x96\x87\xe3\x80\x82\r\n\xf0\x9f\x98\x80 aaaaaaabab  ");
    struct buf text = BUF_INIT(1 << 20);
    struct tokenizer *t;
    size_t used;

    if (tokenizer_parse(slice_of(p, n), &t, NULL) == 0) {
        try_text(t, fixed);
        (void)utf8_clean(slice_of(p + n / 2, n - n / 2), false, &text, &used);
        try_text(t, buf_slice(&text));
        tokenizer_close(&t);
    }
    buf_free(&text);
    return 0;
}
