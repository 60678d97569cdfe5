#include "agent/train/state.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <cmocka.h>

static struct train_state some_state(void)
{
    struct train_state s = {.step = 300,
                            .updates = 298,
                            .samples = 1200,
                            .tokens = UINT64_C(9007199254740993), /* no double holds it */
                            .seed = 7,
                            .seq = 8,
                            .windows = 99,
                            .dtype = "fp16",
                            .scaler = {.scale = 32768, .good = 17}};

    for (int i = 0; i < 300; i++) {
        outlier_add(&s.loss, 1.0 / (i + 3));
    }
    outlier_add(&s.norm, 0.1);
    return s;
}

static void test_written_and_read_back(void **state)
{
    struct train_state a = some_state(), b;
    struct buf text = BUF_INIT(1 << 16), again = BUF_INIT(1 << 16);

    (void)state;
    memset(a.data.b, 0x5a, sizeof a.data.b); /* may be absent, as the tokenizer's and the recipe */
    a.recipe = (struct recipe){
        .schedule = {0.1, 1.0 / 3, 0, 300}, .batch = 4, .accum = 1, .ranks = 2, .tp = 2};
    state_format(&a, &text);
    assert_int_equal(state_parse(buf_slice(&text), &b, NULL), 0);
    state_format(&b, &again);
    assert_true(slice_eq(buf_slice(&text), buf_slice(&again)));
    assert_memory_equal(&a.loss, &b.loss, sizeof a.loss);
    assert_memory_equal(&a.recipe, &b.recipe, sizeof a.recipe);
    assert_true(b.tokens == a.tokens && b.norm.window[0] == 0.1 && digest_eq(&a.data, &b.data) &&
                b.scaler.good == 17);
    a.recipe.tp = 1;
    buf_clear(&text);
    state_format(&a, &text);
    assert_int_equal(state_parse(buf_slice(&text), &b, NULL), 0);
    assert_int_equal(b.recipe.tp, 1);
    a.recipe.tp = 0; /* as in checkpoints of before, which do not say it */
    buf_clear(&text);
    state_format(&a, &text);
    assert_null(strstr(buf_cstr(&text), "\"tp\""));
    assert_int_equal(state_parse(buf_slice(&text), &b, NULL), 0);
    assert_int_equal(b.recipe.tp, 0);
    buf_free(&text);
    buf_free(&again);
}

/* Cut anywhere, and with any member gone, it is refused. */
static void test_damaged(void **state)
{
    struct train_state a = some_state(), b;
    struct buf text = BUF_INIT(1 << 16);
    static const char *const bad[] = {
        "", "null", "[]", "{\"version\":1}", "{\"version\":2}", "{\"version\":3,\"step\":1}"};

    (void)state;
    state_format(&a, &text);
    for (size_t n = 0; n + 2 < text.n; n++) {
        assert_int_equal(state_parse(slice_of(text.p, n), &b, NULL), E_CORRUPT);
    }
    for (size_t i = 0; i < text.n; i++) {
        if (text.p[i] == ':') { /* no member of that name any more */
            char keep = text.p[i - 2];

            text.p[i - 2] = '?';
            assert_int_equal(state_parse(buf_slice(&text), &b, NULL), E_CORRUPT);
            text.p[i - 2] = keep;
        }
    }
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        assert_int_equal(state_parse(slice_str(bad[i]), &b, NULL), E_CORRUPT);
    }
    buf_free(&text);
}

/* Counters that no run has: what counts on would lead out of a window. */
static void test_absurd_counters(void **state)
{
    static const char *const change[][2] = {
        {"\"losses\":{\"count\":300", "\"losses\":{\"count\":9223372036854775807"},
        {"\"losses\":{\"count\":300", "\"losses\":{\"count\":301"},
        {"\"step\":300", "\"step\":9223372036854775807"},
        {"\"good_steps\":17", "\"good_steps\":301"},
        {"\"seq\":8", "\"seq\":9223372036854775807"},
        {"\"loss_scale\":32768", "\"loss_scale\":0"},
    };
    struct train_state a = some_state(), b;
    struct buf text = BUF_INIT(1 << 16);

    (void)state;
    state_format(&a, &text);
    for (size_t i = 0; i < ARRAY_LEN(change); i++) {
        struct buf other = BUF_INIT(1 << 16);
        const char *whole = buf_cstr(&text), *at = strstr(whole, change[i][0]);

        assert_non_null(at);
        buf_addf(&other, "%.*s%s%s", (int)(at - whole), whole, change[i][1],
                 at + strlen(change[i][0]));
        assert_int_equal(state_parse(buf_slice(&other), &b, NULL), E_CORRUPT);
        buf_free(&other);
    }
    buf_free(&text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_written_and_read_back),
        cmocka_unit_test(test_damaged),
        cmocka_unit_test(test_absurd_counters),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
