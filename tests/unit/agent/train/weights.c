#include "agent/train/weights.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include <cmocka.h>

#include "agent/train/tensorfiles.h"
#include "agent/train/tensorset.h"
#include "common/os/newfile.h"

static char dir[32];

static int begin(void **state)
{
    (void)state;
    snprintf(dir, sizeof dir, "/tmp/weights.XXXXXX");
    assert_non_null(mkdtemp(dir));
    return 0;
}

static int end(void **state)
{
    (void)state;
    return dir_remove_tree(dir, NULL);
}

static void write_text(const char *name, const char *text)
{
    char path[128];
    FILE *f;

    snprintf(path, sizeof path, "%s/%s", dir, name);
    f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(text, 1, strlen(text), f), strlen(text));
    assert_int_equal(fclose(f), 0);
}

/* A number that says where it is from: which tensor, which element of it on the Hub. */
static float mark(int hub, int64_t row, int64_t col)
{
    return (float)(hub * 100000 + row * 100 + col);
}

static float *marked(const struct layout *l)
{
    float *whole = mem_array((size_t)l->size, sizeof *whole);

    for (int i = 0; i < l->hubs; i++) {
        const struct hub_tensor *h = &l->hub[i];
        const struct tensor *t = &l->tensor[h->tensor];

        for (int64_t r = 0; r < h->rows; r++) {
            for (int64_t c = 0; c < h->cols; c++) {
                whole[t->offset + (h->first_row + r) * h->cols + c] = mark(i, r, c);
            }
        }
    }
    return whole;
}

static void expect_on_the_hub(const struct layout *l, const char *prefix)
{
    struct tensorset *s;

    assert_int_equal(tensorset_open(dir, "model", &s, NULL), 0);
    for (int i = 0; i < l->hubs; i++) {
        const struct hub_tensor *h = &l->hub[i];
        const struct st_tensor *t;
        const struct safetensors *in;
        char name[128], *data;

        snprintf(name, sizeof name, "%s%s", prefix, h->name);
        t = tensorset_find(s, slice_str(name), &in);
        assert_non_null(t);
        data = mem_new(t->size_bytes);
        assert_int_equal(safetensors_read(in, t, 0, data, t->size_bytes, NULL), 0);
        assert_int_equal(t->rank, h->matrix ? 2 : 1);
        assert_int_equal(t->shape[0], h->transposed ? h->cols : h->rows);
        for (int64_t r = 0; r < h->rows; r++) {
            for (int64_t c = 0; c < h->cols; c++) {
                float got;

                memcpy(&got, data + 4 * (h->transposed ? c * h->rows + r : r * h->cols + c), 4);
                assert_true(got == mark(i, r, c));
            }
        }
        free(data);
    }
    tensorset_close(&s);
}

static void expect_loaded(const struct model_config *c, const char *prefix, const float *whole)
{
    struct model *m;
    const struct model_options o = {.dt = DT_F32, .world = 1};
    struct weights_part part;
    struct err e;
    float *got;

    assert_int_equal(model_open(c, kops_cpu(), &o, &m, &e), 0);
    assert_int_equal(model_reserve(m, 1, 1, &e), 0);
    part = (struct weights_part){prefix, m->param, {0, 1}, DT_F32};
    assert_int_equal(weights_load(m, &part, 1, dir, "model", NULL, &e), 0);
    got = (float *)(void *)m->param;
    for (int64_t i = 0; i < m->layout.size; i++) {
        assert_true(got[i] == whole[i]);
    }
    model_close(&m);
}

static int read_copy(void *arg, int64_t offset, int64_t n, float *out, struct err *e)
{
    (void)e;
    memcpy(out, (const float *)arg + offset, (size_t)n * sizeof *out);
    return 0;
}

/* All files, as so many ranks write them. */
static void write_files(const struct layout *l, float *whole, int writers, uint64_t split_bytes,
                        size_t want)
{
    const struct tensor_source source = {"", read_copy, whole};
    struct buf index = BUF_INIT(1 << 20);
    struct tensor_files *f;
    char name[NAME_MAX];

    tensor_files_whole(l, &source, 1, "model", writers, 1, split_bytes, &f);
    assert_int_equal(tensor_files_count(f), want);
    for (size_t i = 0; i < want; i++) {
        assert_int_equal(tensor_files_write(f, i, dir, NULL), 0);
    }
    tensor_files_index(f, name, &index);
    assert_int_equal(index.n > 0, want > 1);
    if (want > 1) {
        assert_string_equal(name, "model.safetensors.index.json");
        write_text(name, buf_cstr(&index));
    }
    buf_free(&index);
    tensor_files_close(&f);
}

static void round_trip(const char *shape, int writers, uint64_t split_bytes, size_t files)
{
    struct model_config c;
    struct layout l;
    float *whole;

    assert_int_equal(config_builtin(shape, &c, NULL), 0);
    layout_init(&l, &c, 1);
    whole = marked(&l);
    write_files(&l, whole, writers, split_bytes, files);
    expect_on_the_hub(&l, "");
    expect_loaded(&c, "", whole);
    free(whole);
    layout_fini(&l);
}

static void test_one_file(void **state)
{
    (void)state;
    round_trip("tiny-gpt2", 1, TENSOR_FILE_MOST_BYTES, 1);
    round_trip("tiny-llama", 1, TENSOR_FILE_MOST_BYTES, 1);
}

/* 30 kB of tensors in files of at most 8 kB, and the index. */
static void test_several_files(void **state)
{
    char path[128];

    (void)state;
    round_trip("tiny-gpt2", 1, 8000, 5);
    snprintf(path, sizeof path, "%s/model-00001-of-00005.safetensors", dir);
    assert_int_equal(access(path, F_OK), 0);
    snprintf(path, sizeof path, "%s/model.safetensors", dir);
    assert_int_equal(access(path, F_OK), -1);
}

static void test_files_of_several_writers(void **state)
{
    (void)state;
    round_trip("tiny-llama", 4, TENSOR_FILE_MOST_BYTES, 4);
}

static void test_hostile_indexes(void **state)
{
    static const char *const bad[] = {
        "",
        "[]",
        "{}",
        "{\"weight_map\":{}}",
        "{\"weight_map\":[]}",
        "{\"weight_map\":{\"a\":1}}",
        "{\"weight_map\":{\"a\":\"\"}}",
        "{\"weight_map\":{\"a\":\"/etc/passwd\"}}",
        "{\"weight_map\":{\"a\":\"../x.safetensors\"}}",
        "{\"weight_map\":{\"a\":\".safetensors\"}}",
        "{\"weight_map\":{\"a\":\"x.bin\"}}",
        "{\"weight_map\":{\"a\":\"x\\u0000.safetensors\"}}",
        "{\"weight_map\":{\"a\":\"x.safetensors\",\"a\":\"y.safetensors\"}}",
        "{\"weight_map\":{\"a\":\"x.safetensors\"}",
    };
    struct tensorset *s;

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        if (tensorset_parse_index(slice_str(bad[i]), NULL) != E_CORRUPT) {
            fail_msg("%s", bad[i]);
        }
    }
    assert_int_equal(tensorset_open(dir, "model", &s, NULL), E_NOTFOUND);
    write_text("model.safetensors.index.json", "{\"weight_map\":{\"a\":\"x.safetensors\"}}");
    assert_int_equal(tensorset_open(dir, "model", &s, NULL), E_NOTFOUND);
    write_text("x.safetensors", "short");
    assert_int_equal(tensorset_open(dir, "model", &s, NULL), E_CORRUPT);
}

/* A tensor is where the index says, or nowhere. */
static void test_an_index_binds(void **state)
{
    char a[8 + 80], b[8 + 80];
    const struct safetensors *data;
    struct tensorset *s;

    (void)state;
    snprintf(a, sizeof a, "%-80s",
             "{\"a\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}}");
    memmove(a + 8, a, 80);
    memcpy(a, "\x50\0\0\0\0\0\0", 8);
    memcpy(b, a, sizeof b);
    b[8 + 2] = 'b';
    for (int i = 0; i < 2; i++) {
        char path[64];
        FILE *f;

        snprintf(path, sizeof path, "%s/%c.safetensors", dir, "xy"[i]);
        f = fopen(path, "wb");
        assert_int_equal(fwrite(i == 0 ? a : b, 1, sizeof a, f), sizeof a);
        fclose(f);
    }
    write_text("model.safetensors.index.json",
               "{\"weight_map\":{\"a\":\"x.safetensors\",\"b\":\"x.safetensors\","
               "\"c\":\"y.safetensors\"}}");
    assert_int_equal(tensorset_open(dir, "model", &s, NULL), 0);
    assert_non_null(tensorset_find(s, SLICE("a"), &data));
    assert_null(tensorset_find(s, SLICE("b"), &data)); /* it is in y, the index says x */
    assert_null(tensorset_find(s, SLICE("d"), &data));
    tensorset_close(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_one_file, begin, end),
        cmocka_unit_test_setup_teardown(test_several_files, begin, end),
        cmocka_unit_test_setup_teardown(test_files_of_several_writers, begin, end),
        cmocka_unit_test_setup_teardown(test_hostile_indexes, begin, end),
        cmocka_unit_test_setup_teardown(test_an_index_binds, begin, end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
