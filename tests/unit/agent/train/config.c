#include "agent/train/config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <cmocka.h>

#include "agent/train/layout.h"

static int parse(const char *json, struct model_config *c)
{
    return config_parse(slice_str(json), c, NULL);
}

#define GPT2(rest)  "{\"model_type\":\"gpt2\"," rest "}"
#define LLAMA(rest) "{\"model_type\":\"llama\"," rest "}"
#define SIZES       "\"n_layer\":2,\"n_head\":4,\"n_embd\":32,\"vocab_size\":100,\"n_positions\":16"

static void test_the_hubs_file(void **state)
{
    struct model_config c;

    (void)state;
    assert_int_equal(parse(GPT2(SIZES ",\"n_inner\":null,\"layer_norm_epsilon\":1e-6"), &c), 0);
    assert_true(c.layers == 2 && c.head_dim == 8 && c.ffn == 128 && c.context == 16);
    assert_true(c.norm_eps == 1e-6 && c.init_std == 0.02);
    assert_int_equal(config_padded_vocab(&c), 128);
}

#define LLAMA_SIZES                                                                                \
    "\"num_hidden_layers\":2,\"num_attention_heads\":4,\"num_key_value_heads\":2,"                 \
    "\"hidden_size\":32,\"intermediate_size\":48,\"vocab_size\":100,"                              \
    "\"max_position_embeddings\":16"
#define LLAMA3_ROPE                                                                                \
    "\"factor\":8.0,\"low_freq_factor\":1,\"high_freq_factor\":4.0,"                               \
    "\"original_max_position_embeddings\":8192"

static void test_llamas_file(void **state)
{
    struct model_config c;

    (void)state;
    assert_int_equal(parse(LLAMA(LLAMA_SIZES ",\"rope_scaling\":null,\"head_dim\":null,"
                                             "\"eos_token_id\":[7,8],\"hidden_act\":\"silu\""),
                           &c),
                     0);
    assert_true(c.norm == NORM_RMS && c.mlp == MLP_SWIGLU && c.position == POSITION_ROPE);
    assert_true(c.kv_heads == 2 && c.head_dim == 8 && c.ffn == 48 && c.context == 16);
    assert_true(!c.tied && !c.attention_bias && !c.mlp_bias);
    assert_true(c.norm_eps == 1e-6 && c.rope_theta == 10000 && c.rope_scaling.factor == 0);
    assert_true(c.bos == -1 && c.eos_count == 2 && c.eos[0] == 7 && c.eos[1] == 8);
    assert_int_equal(parse(LLAMA(LLAMA_SIZES ",\"head_dim\":16,\"tie_word_embeddings\":true,"
                                             "\"attention_bias\":true,\"mlp_bias\":true"),
                           &c),
                     0);
    assert_true(c.head_dim == 16 && c.tied && c.attention_bias && c.mlp_bias);
}

/* The same thing as older and as newer files say it. */
static void test_rope_scaling(void **state)
{
    static const char *const same[] = {
        LLAMA(LLAMA_SIZES ",\"rope_theta\":500000.0,"
                          "\"rope_scaling\":{\"rope_type\":\"llama3\"," LLAMA3_ROPE "}"),
        LLAMA(LLAMA_SIZES ",\"rope_theta\":500000,"
                          "\"rope_scaling\":{\"type\":\"llama3\"," LLAMA3_ROPE "}"),
        LLAMA(LLAMA_SIZES ",\"rope_parameters\":{\"rope_theta\":5e5,"
                          "\"rope_type\":\"llama3\"," LLAMA3_ROPE "}"),
    };
    struct model_config c;

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(same); i++) {
        assert_int_equal(parse(same[i], &c), 0);
        assert_true(c.rope_theta == 500000 && c.rope_scaling.factor == 8);
        assert_true(c.rope_scaling.low == 1 && c.rope_scaling.high == 4);
        assert_int_equal(c.rope_scaling.context, 8192);
    }
    assert_int_equal(
        parse(LLAMA(LLAMA_SIZES
                    ",\"rope_parameters\":{\"rope_type\":\"default\",\"rope_theta\":1e4}"),
              &c),
        0);
    assert_true(c.rope_theta == 10000 && c.rope_scaling.factor == 0);
}

static void test_written_and_read_back(void **state)
{
    static const char *const shapes[] = {"gpt2-124m", "tiny-gpt2", "llama-1b", "llama-8b",
                                         "tiny-llama"};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(shapes); i++) {
        struct buf text = BUF_INIT(1 << 16), again = BUF_INIT(1 << 16);
        struct model_config a, b;

        assert_int_equal(config_builtin(shapes[i], &a, NULL), 0);
        a.bos = -1;
        a.eos_count = i % 3;
        a.eos[1] = 3;
        config_format(&a, &text);
        assert_int_equal(config_parse(buf_slice(&text), &b, NULL), 0);
        config_format(&b, &again);
        assert_true(slice_eq(buf_slice(&text), buf_slice(&again)));
        assert_true(b.eos_count == a.eos_count && memcmp(a.eos, b.eos, i % 3 * sizeof *a.eos) == 0);
        assert_true(a.hidden == b.hidden && a.kv_heads == b.kv_heads && a.tied == b.tied);
        assert_true(a.rope_scaling.factor == b.rope_scaling.factor);
        buf_free(&text);
        buf_free(&again);
    }
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
        {"{\"model_type\":\"mistral\"}", E_UNSUPPORTED},
        {"{\"model_type\":\"llama\"}", E_CONFIG},
        {GPT2("\"n_layer\":2"), E_CONFIG},
        {GPT2(SIZES ",\"n_layer\":3"), E_CONFIG}, /* twice */
        {GPT2(SIZES ",\"activation_function\":\"relu\""), E_UNSUPPORTED},
        {GPT2(SIZES ",\"scale_attn_by_inverse_layer_idx\":true"), E_UNSUPPORTED},
        {GPT2(SIZES ",\"tie_word_embeddings\":1"), E_CONFIG},
        {GPT2(SIZES ",\"layer_norm_epsilon\":0"), E_CONFIG},
        {GPT2(SIZES ",\"layer_norm_epsilon\":\"x\""), E_CONFIG},
        {GPT2(SIZES ",\"quantization_config\":{}"), E_UNSUPPORTED},
        {LLAMA(LLAMA_SIZES ",\"hidden_act\":\"gelu\""), E_UNSUPPORTED},
        {LLAMA(LLAMA_SIZES ",\"num_key_value_heads\":3"), E_CONFIG}, /* twice */
        {LLAMA(LLAMA_SIZES ",\"head_dim\":7"), E_CONFIG},
        {LLAMA(LLAMA_SIZES ",\"head_dim\":512"), E_CONFIG},
        {LLAMA(LLAMA_SIZES ",\"rope_theta\":-1"), E_CONFIG},
        {LLAMA(LLAMA_SIZES ",\"rope_scaling\":7"), E_CONFIG},
        {LLAMA(LLAMA_SIZES ",\"rope_scaling\":{\"type\":\"yarn\",\"factor\":4}"), E_UNSUPPORTED},
        {LLAMA(LLAMA_SIZES ",\"rope_scaling\":{\"rope_type\":\"llama3\",\"factor\":4}"), E_CONFIG},
        {LLAMA(LLAMA_SIZES ",\"rope_parameters\":{\"partial_rotary_factor\":0.5}"), E_UNSUPPORTED},
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
        {GPT2("\"n_layer\":1,\"n_head\":1,\"n_embd\":8,\"vocab_size\":99999999999,"
              "\"n_positions\":9"),
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
    } known[] = {{"gpt2-124m", 124439808},   {"gpt2-350m", 354823168}, {"gpt2-774m", 774030080},
                 {"gpt2-1558m", 1557611200}, {"llama-1b", 1235814400}, {"llama-8b", 8030261248}};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(known); i++) {
        struct model_config c;
        struct layout l;

        assert_int_equal(config_builtin(known[i].name, &c, NULL), 0);
        layout_init(&l, &c, 3);
        assert_int_equal(l.parameters, known[i].parameters);
        for (int t = 0; t < l.tensors; t++) {
            assert_int_equal(l.tensor[t].offset % 128, 0);
        }
        for (int g = 0; g < l.groups; g++) {
            assert_int_equal(l.group[g].size % (3 * 128), 0);
        }
        layout_fini(&l);
    }
}

/* Slices of all tensor parallel ranks have every element of the Hub's tensors once, and those that
 * are copied on each rank. */
static void expect_all_there(const struct model_config *c, int ranks)
{
    struct layout whole;

    layout_init(&whole, c, 2);
    for (int h = 0; h < whole.hubs; h++) {
        const struct hub_tensor *hub = &whole.hub[h];
        char *seen = mem_new((size_t)(hub->rows * hub->cols));
        bool copied = whole.tensor[hub->tensor].copied;

        memset(seen, 0, (size_t)(hub->rows * hub->cols));
        for (int rank = 0; rank < ranks; rank++) {
            struct layout l;

            layout_init_cut(&l, c, 2, rank, ranks);
            assert_int_equal(l.parameters, whole.parameters);
            for (int i = 0; i < l.slices; i++) {
                const struct hub_slice *s = &l.slice[i];
                const struct tensor *t = &l.tensor[s->tensor];

                if (s->hub != h) {
                    continue;
                }
                assert_int_equal(t->whole_offset, whole.tensor[s->tensor].offset);
                assert_int_equal(s->cols, t->cols);
                assert_true(s->offset >= t->offset &&
                            s->offset + s->rows * s->cols <= t->offset + t->used_rows * t->cols);
                for (int64_t r = s->row0; r < s->row0 + s->rows; r++) {
                    for (int64_t at = s->col0; at < s->col0 + s->cols; at++) {
                        seen[r * hub->cols + at]++;
                    }
                }
            }
            layout_fini(&l);
        }
        for (int64_t i = 0; i < hub->rows * hub->cols; i++) {
            assert_int_equal(seen[i], copied ? ranks : 1);
        }
        free(seen);
    }
    layout_fini(&whole);
}

static void test_tensor_parallel_layouts(void **state)
{
    static const char *const shapes[] = {"tiny-gpt2", "tiny-llama"};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(shapes); i++) {
        struct model_config c;
        struct layout one, other;
        struct err e;

        assert_int_equal(config_builtin(shapes[i], &c, NULL), 0);
        expect_all_there(&c, 1);
        expect_all_there(&c, 2);
        c.vocab = 301;
        c.heads = c.kv_heads = 4;
        expect_all_there(&c, 4);
        layout_init_cut(&one, &c, 3, 0, 4);
        layout_init_cut(&other, &c, 3, 3, 4);
        assert_int_equal(one.size, other.size); /* offsets are the same on all */
        for (int t = 0; t < one.tensors; t++) {
            assert_int_equal(one.tensor[t].offset, other.tensor[t].offset);
        }
        layout_fini(&one);
        layout_fini(&other);
        assert_int_equal(layout_can_cut(&c, 4, NULL), 0);
        c.kv_heads = 2;
        assert_int_equal(layout_can_cut(&c, 2, NULL), 0);
        assert_int_equal(layout_can_cut(&c, 4, &e), E_USAGE);
        assert_string_equal(
            e.text,
            "--tp 4: the model's 2 key and value heads cannot be divided evenly by this number "
            "of ranks");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_hubs_file),
        cmocka_unit_test(test_llamas_file),
        cmocka_unit_test(test_rope_scaling),
        cmocka_unit_test(test_written_and_read_back),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_sizes_of_the_family),
        cmocka_unit_test(test_tensor_parallel_layouts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
