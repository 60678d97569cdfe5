#include "agent/train/config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

#include "agent/train/layout.h"

static int parse(const char *json, struct model_config *c)
{
    return config_parse(slice_str(json), c, NULL);
}

#define GPT2(rest) "{\"model_type\":\"gpt2\"," rest "}"
#define SIZES      "\"n_layer\":2,\"n_head\":4,\"n_embd\":32,\"vocab_size\":100,\"n_positions\":16"

static void test_the_hubs_file(void **state)
{
    struct model_config c;

    (void)state;
    assert_int_equal(parse(GPT2(SIZES ",\"n_inner\":null,\"layer_norm_epsilon\":1e-6"), &c), 0);
    assert_true(c.layers == 2 && c.head_dim == 8 && c.ffn == 128 && c.context == 16);
    assert_true(c.norm_eps == 1e-6 && c.init_std == 0.02);
    assert_int_equal(config_padded_vocab(&c), 128);
}

static void test_written_and_read_back(void **state)
{
    struct buf text = BUF_INIT(1 << 16);
    struct model_config a, b;

    (void)state;
    assert_int_equal(config_builtin("gpt2-124m", &a, NULL), 0);
    config_format(&a, &text);
    assert_int_equal(config_parse(buf_slice(&text), &b, NULL), 0);
    assert_memory_equal(&a, &b, sizeof a);
    buf_free(&text);
}

static void test_refused(void **state)
{
    static const struct {
        const char *json;
        int rc;
    } bad[] = {
        {"", E_CONFIG},
        {"[]", E_CONFIG},
        {"{\"model_type\":\"gpt2\"", E_CONFIG},
        {"{}", E_UNSUPPORTED},
        {"{\"model_type\":\"llama\"}", E_UNSUPPORTED},
        {GPT2("\"n_layer\":2"), E_CONFIG},
        {GPT2(SIZES ",\"n_layer\":3"), E_CONFIG}, /* twice */
        {GPT2(SIZES ",\"activation_function\":\"relu\""), E_UNSUPPORTED},
        {GPT2(SIZES ",\"scale_attn_by_inverse_layer_idx\":true"), E_UNSUPPORTED},
        {GPT2(SIZES ",\"tie_word_embeddings\":false"), E_UNSUPPORTED},
        {GPT2("\"n_layer\":2,\"n_head\":3,\"n_embd\":32,\"vocab_size\":9,\"n_positions\":9"),
         E_CONFIG},
        {GPT2("\"n_layer\":2,\"n_head\":1,\"n_embd\":512,\"vocab_size\":9,\"n_positions\":9"),
         E_UNSUPPORTED},
        {GPT2("\"n_layer\":-2,\"n_head\":1,\"n_embd\":8,\"vocab_size\":9,\"n_positions\":9"),
         E_CONFIG},
        {GPT2("\"n_layer\":1e3,\"n_head\":1,\"n_embd\":8,\"vocab_size\":9,\"n_positions\":9"),
         E_CONFIG},
        {GPT2("\"n_layer\":9223372036854775807,\"n_head\":1,\"n_embd\":8,\"vocab_size\":9,"
              "\"n_positions\":9"),
         E_CONFIG},
        {GPT2(
             "\"n_layer\":1,\"n_head\":1,\"n_embd\":8,\"vocab_size\":99999999999,\"n_positions\":9"),
         E_CONFIG},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        struct model_config c;

        if (parse(bad[i].json, &c) != bad[i].rc) {
            fail_msg("%s", bad[i].json);
        }
    }
}

static void test_sizes_of_the_family(void **state)
{
    static const struct {
        const char *name;
        int64_t parameters;
    } known[] = {{"gpt2-124m", 124439808},
                 {"gpt2-350m", 354823168},
                 {"gpt2-774m", 774030080},
                 {"gpt2-1558m", 1557611200}};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(known); i++) {
        struct model_config c;
        struct layout l;

        assert_int_equal(config_builtin(known[i].name, &c, NULL), 0);
        layout_init(&l, &c, 3);
        assert_int_equal(l.parameters, known[i].parameters);
        for (int t = 0; t < l.tensors; t++) {
            assert_int_equal(l.tensor[t].offset % 64, 0);
        }
        for (int g = 0; g < l.groups; g++) {
            assert_int_equal(l.group[g].size % (3 * 64), 0);
        }
        layout_fini(&l);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_hubs_file),
        cmocka_unit_test(test_written_and_read_back),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_sizes_of_the_family),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
