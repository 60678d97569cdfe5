/* The golden files come from the `tokenizers` package: golden/make_tokenizers.py. */
#include "agent/train/tokenizer.h"

#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>

#include "kernels/philox.h"
#include "common/codec/utf8.h"

static const char *const names[] = {"gpt2", "llama3"};

static struct buf read_golden(const char *name)
{
    struct buf text = BUF_INIT(1 << 20);
    const char *source = getenv("MIRROR_SOURCE");
    char path[512];

    snprintf(path, sizeof path, "%s/tests/unit/agent/train/golden/%s.json",
             source != NULL ? source : ".", name);
    assert_int_equal(buf_read_file(&text, path, NULL), 0);
    return text;
}

static struct tokenizer *open_golden(const char *name)
{
    struct buf text = read_golden(name);
    struct tokenizer *t;
    struct err e = {0};

    if (tokenizer_parse(buf_slice(&text), &t, &e) != 0) {
        fail_msg("%s", e.text);
    }
    buf_free(&text);
    return t;
}

static size_t encode(struct encoder *x, struct slice text, uint32_t *out)
{
    size_t n;

    assert_int_equal(encoder_add(x, text, out, &n, NULL), 0);
    return n;
}

static void test_as_the_package(void **state)
{
    struct buf text = read_golden("tokens");
    json_t *rows = json_loadb(text.p, text.n, JSON_ALLOW_NUL, NULL), *row;
    size_t i, k;

    (void)state;
    assert_true(json_array_size(rows) > 100);
    for (size_t name = 0; name < ARRAY_LEN(names); name++) {
        struct tokenizer *t = open_golden(names[name]);
        struct encoder *x = encoder_open(t, false);

        json_array_foreach(rows, i, row)
        {
            const json_t *in = json_object_get(row, "text");
            const json_t *want = json_object_get(row, names[name]);
            struct slice s = slice_of(json_string_value(in), json_string_length(in));
            uint32_t *got = mem_array(s.n + 1, sizeof *got);
            struct buf back = BUF_INIT(1 << 16);
            size_t n = encode(x, s, got);

            for (k = 0; k < n && k < json_array_size(want); k++) {
                if (got[k] != json_integer_value(json_array_get(want, k))) {
                    fail_msg("%s, text %zu, token %zu: %u", names[name], i, k, got[k]);
                }
                buf_adds(&back, tokenizer_text(t, got[k]));
            }
            assert_int_equal(n, json_array_size(want));
            assert_true(slice_eq(buf_slice(&back), s));
            buf_free(&back);
            free(got);
        }
        encoder_close(&x);
        tokenizer_close(&t);
    }
    json_decref(rows);
    buf_free(&text);
}

/* Strings in which words, marks, blanks of all kinds, newlines, broken characters and added tokens
 * meet. */
static struct slice random_text(uint64_t seed, char *room, size_t pieces)
{
    static const char *const piece[] = {"a",
                                        "B",
                                        "7",
                                        "12",
                                        " ",
                                        " ",
                                        "  ",
                                        "\n",
                                        "\n",
                                        "\r",
                                        "\r\n",
                                        "\t",
                                        "!",
                                        ".",
                                        "'s",
                                        "'",
                                        "\xc3\xa9",
                                        "\xe4\xb8\xad",
                                        "\xe3\x80\x82",
                                        "\xe3\x80\x80",
                                        "\xc2\xa0",
                                        "\xe2\x80\x83",
                                        "\xf0\x9f\x98\x80",
                                        "\xff",
                                        "\xe2\x80",
                                        "<|endoftext|>",
                                        "<|tag|>",
                                        "<|"};
    size_t n = 0;

    for (size_t i = 0; i < pieces; i++) {
        const char *p = piece[philox_at(seed, 0, i).v[0] % ARRAY_LEN(piece)];

        memcpy(room + n, p, strlen(p));
        n += strlen(p);
    }
    return slice_of(room, n);
}

static size_t encode_raw(struct encoder *x, struct slice raw, uint32_t *out)
{
    struct buf text = BUF_INIT(1 << 16);
    size_t used, n;

    utf8_clean(raw, false, &text, &used);
    n = encode(x, buf_slice(&text), out);
    buf_free(&text);
    return n;
}

static void check_cuts(const struct tokenizer *t, struct encoder *x, struct slice text, int *cuts)
{
    uint32_t whole[2000], parts[2000];
    size_t n = encode_raw(x, text, whole);

    for (size_t end = text.n; end > 0; end--) { /* as if only so much were here yet */
        size_t at = tokenizer_cut(t, slice_first(text, end), 0), m;

        if (at == 0) {
            continue;
        }
        m = encode_raw(x, slice_first(text, at), parts);
        m += encode_raw(x, slice_from(text, at), parts + m);
        assert_int_equal(m, n);
        assert_memory_equal(parts, whole, n * sizeof *whole);
        ++*cuts;
    }
}

static void test_a_cut_changes_nothing(void **state)
{
    char room[1000];

    (void)state;
    for (size_t name = 0; name < ARRAY_LEN(names); name++) {
        struct tokenizer *t = open_golden(names[name]);
        struct encoder *x = encoder_open(t, false);
        int cuts = 0;

        for (uint64_t seed = 0; seed < 400; seed++) {
            check_cuts(t, x, random_text(seed, room, 1 + seed % 40), &cuts);
        }
        assert_true(cuts > 1000);
        encoder_close(&x);
        tokenizer_close(&t);
    }
}

static void test_special_tokens_as_text(void **state)
{
    struct tokenizer *t = open_golden("gpt2");
    struct encoder *marks = encoder_open(t, false), *ordinary = encoder_open(t, true);
    const struct slice text = SLICE("<|endoftext|><|tag|>");
    uint32_t out[32];
    size_t n;

    (void)state;
    assert_int_equal(encode(marks, text, out), 2);
    assert_int_equal(out[0], tokenizer_end_of_text(t));
    n = encode(ordinary, text, out);
    assert_true(n > 3 && out[n - 1] == tokenizer_added(t, SLICE("<|tag|>")));
    for (size_t i = 0; i < n; i++) {
        assert_int_not_equal(out[i], tokenizer_end_of_text(t));
    }
    encoder_close(&marks);
    encoder_close(&ordinary);
    tokenizer_close(&t);
}

static void test_what_it_knows(void **state)
{
    struct tokenizer *t = open_golden("llama3"), *bytes;
    size_t n;

    (void)state;
    assert_int_equal(tokenizer_vocab(t), 704);
    assert_string_equal(tokenizer_name(t), "llama3");
    assert_int_equal(tokenizer_end_of_text(t), tokenizer_added(t, SLICE("<|end_of_text|>")));
    assert_int_equal(*tokenizer_before(t, &n), tokenizer_added(t, SLICE("<|begin_of_text|>")));
    assert_int_equal(n, 1);
    tokenizer_behind(t, &n);
    assert_int_equal(n, 0);
    assert_null(tokenizer_text(t, 704).p);
    assert_int_equal(tokenizer_open(NULL, &bytes, NULL), 0);
    assert_int_equal(tokenizer_vocab(bytes), 256);
    assert_int_equal(tokenizer_end_of_text(bytes), -1);
    assert_false(digest_eq(tokenizer_identity(t), tokenizer_identity(bytes)));
    tokenizer_close(&bytes);
    tokenizer_close(&t);
}

/* --- hostile and foreign files ---------------------------------------------------------------- */

/* The golden file with `from` replaced by `to`, once. */
static int parse_changed(const char *name, const char *from, const char *to, struct tokenizer **t,
                         struct err *e)
{
    struct buf text = read_golden(name), changed = BUF_INIT(1 << 20);
    const char *at = strstr(buf_cstr(&text), from);
    int rc;

    assert_non_null(at);
    buf_add(&changed, text.p, (size_t)(at - text.p));
    buf_str(&changed, to);
    buf_str(&changed, at + strlen(from));
    rc = tokenizer_parse(buf_slice(&changed), t, e);
    buf_free(&text);
    buf_free(&changed);
    return rc;
}

static void test_refused(void **state)
{
    static const struct {
        const char *name, *from, *to;
        int rc;
        const char *says;
    } bad[] = {
        {"gpt2", "\"normalizer\":null", "\"normalizer\":{\"type\":\"NFC\"}", E_UNSUPPORTED, "NFC"},
        {"gpt2", "\"add_prefix_space\":false", "\"add_prefix_space\":true", E_UNSUPPORTED,
         "add_prefix_space"},
        {"gpt2", "\"pre_tokenizer\":{\"type\":\"ByteLevel\"",
         "\"pre_tokenizer\":{\"type\":\"Metaspace\"", E_UNSUPPORTED, "Metaspace"},
        {"gpt2", "\"pre_tokenizer\":", "\"other\":", E_UNSUPPORTED, "no pre-tokenizer"},
        {"gpt2", "\"dropout\":null", "\"dropout\":0.1", E_UNSUPPORTED, "dropout"},
        {"gpt2", "\"dropout\":null", "\"type\":\"Unigram\"", E_UNSUPPORTED, "Unigram"},
        {"gpt2", "\"end_of_word_suffix\":null", "\"end_of_word_suffix\":\"</w>\"", E_UNSUPPORTED,
         "end_of_word_suffix"},
        {"gpt2", "\"lstrip\":false", "\"lstrip\":true", E_UNSUPPORTED, "lstrip"},
        {"gpt2", "\"type\":\"ByteLevel\",\"add_prefix_space\":true,\"trim_offsets\":false",
         "\"type\":\"BertProcessing\"", E_UNSUPPORTED, "BertProcessing"},
        {"llama3", "\\\\p{N}{1,3}", "\\\\p{N}{1,4}", E_UNSUPPORTED, "a pattern other than"},
        {"llama3", "Isolated", "Removed", E_UNSUPPORTED, "Isolated"},
        {"llama3", "\"use_regex\":false", "\"use_regex\":true", E_UNSUPPORTED, "use_regex"},
        {"llama3", "\"decoder\":{\"type\":\"ByteLevel\"", "\"decoder\":{\"type\":\"Fuse\"",
         E_UNSUPPORTED, "Fuse"},
        {"gpt2", "\"vocab\":", "\"words\":", E_CORRUPT, "vocab"},
        {"gpt2", "\"merges\":[", "\"merges\":[\"a\",", E_CORRUPT, "merge 0"},
        {"gpt2", "\"merges\":[", "\"merges\":[\"a b c\",", E_CORRUPT, "merge 0"},
        {"gpt2", "\"merges\":[", "\"merges\":[\"~ ~\",", E_CORRUPT, "not a token"},
        {"llama3", "\"merges\":[", "\"merges\":[[\"a\"],", E_CORRUPT, "merge 0"},
        {"llama3", "\"merges\":[", "\"merges\":[7,", E_CORRUPT, "merge 0"},
        {"gpt2", "\"!\":0", "\"!\":1", E_CORRUPT, "same id"},
        {"gpt2", "\"!\":0", "\"!\":-1", E_CORRUPT, "id"},
        {"gpt2", "\"!\":0", "\"!\":4000000000", E_CORRUPT, "ids"},
        {"gpt2", "\"!\":0", "\"!\":700", E_CORRUPT, "ids"},
        {"gpt2", "\"!\":0", "\"!\":\"0\"", E_CORRUPT, "id"},
        {"gpt2", "\"~\":", "\"~~~~~\":", E_UNSUPPORTED, "0x7e"},
        {"gpt2", "{\"id\":700", "{\"id\":7", E_UNSUPPORTED, "next free id"},
        {"gpt2", "{\"id\":701", "{\"id\":702", E_UNSUPPORTED, "next free id"},
        {"gpt2", "\"content\":\"<|tag|>\"", "\"content\":\"\"", E_CORRUPT, "empty"},
        {"gpt2", "\"content\":\"<|tag|>\"", "\"content\":\"<|tag\\u0000\"", E_CORRUPT, "line 1"},
        {"llama3", "\"special_tokens\":{\"<|", "\"special_tokens\":{\"<", E_CORRUPT, "template"},
        {"llama3", "{\"Sequence\":{\"id\":\"A\",\"type_id\":0}}",
         "{\"Sequence\":{\"id\":\"B\",\"type_id\":0}}", E_CORRUPT, "template"},
        {"llama3", "\"ids\":[701]", "\"ids\":[9999]", E_CORRUPT, "template"},
        {"gpt2", "{\"version\"", "[\"version\"", E_CORRUPT, "line 1"},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        struct tokenizer *t = NULL;
        struct err e = {0};

        if (parse_changed(bad[i].name, bad[i].from, bad[i].to, &t, &e) != bad[i].rc ||
            strstr(e.text, bad[i].says) == NULL) {
            fail_msg("%zu: %s -> %s: %d, %s", i, bad[i].from, bad[i].to, e.code, e.text);
        }
    }
}

static void test_truncated(void **state)
{
    struct buf text = read_golden("llama3");

    (void)state;
    for (size_t n = 0; n + 1 < text.n; n = n * 3 / 2 + 1) {
        struct tokenizer *t;

        assert_int_equal(tokenizer_parse(slice_of(text.p, n), &t, NULL), E_CORRUPT);
    }
    buf_free(&text);
}

/* The identity is of the meaning, not of the spelling. */
static void test_identity(void **state)
{
    static const struct {
        const char *from, *to;
        bool same;
    } change[] = {
        {"\"version\":\"1.0\",", "\"version\":\"1.0\",\n  ", true},
        {"\"dropout\":null", "\"type\":\"BPE\",\"dropout\":0.0", true},
        {"\"truncation\":null", "\"truncation\":{\"max_length\":9}", true},
        {"\"single_word\":false,", "", true},
        {"<|tag|>", "<|Tag|>", false},
        {"\"special\":true", "\"special\":false", false},
        {"\"!\":0,\"\\\"\":1", "\"!\":1,\"\\\"\":0", false},
        {"\"dropout\":null", "\"ignore_merges\":true", false},
    };
    struct tokenizer *plain = open_golden("gpt2");

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(change); i++) {
        struct tokenizer *t = NULL;

        assert_int_equal(parse_changed("gpt2", change[i].from, change[i].to, &t, NULL), 0);
        if (digest_eq(tokenizer_identity(t), tokenizer_identity(plain)) != change[i].same) {
            fail_msg("%s -> %s", change[i].from, change[i].to);
        }
        tokenizer_close(&t);
    }
    tokenizer_close(&plain);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_as_the_package),
        cmocka_unit_test(test_a_cut_changes_nothing),
        cmocka_unit_test(test_special_tokens_as_text),
        cmocka_unit_test(test_what_it_knows),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_truncated),
        cmocka_unit_test(test_identity),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
