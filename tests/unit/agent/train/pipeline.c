/* What comes out of a pipeline: the same whatever the threads, and what encoding each document as a
 * whole gives. */
#include "agent/train/pipeline.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>

#include "kernels/philox.h"
#include "common/os/newfile.h"

enum { BLOCK = 4 << 10, KIB = 1 << 10 }; /* many blocks of little text: sanitizers are slow */

static char dir[40];
static struct tokenizer *tokenizer;
static struct encoder *encoder;

static int begin(void **state)
{
    const char *source = getenv("MIRROR_SOURCE");
    char path[512];

    (void)state;
    snprintf(path, sizeof path, "%s/tests/unit/agent/train/golden/gpt2.json",
             source != NULL ? source : ".");
    snprintf(dir, sizeof dir, "/tmp/pipeline.XXXXXX");
    if (mkdtemp(dir) == NULL || tokenizer_open(path, &tokenizer, NULL) != 0) {
        return 1;
    }
    encoder = encoder_open(tokenizer, false);
    return 0;
}

static int end(void **state)
{
    (void)state;
    encoder_close(&encoder);
    tokenizer_close(&tokenizer);
    return dir_remove_tree(dir, NULL);
}

static void write_file(const char *name, struct slice bytes)
{
    char path[128];
    FILE *f;

    snprintf(path, sizeof path, "%s/%s", dir, name);
    f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes.p, 1, bytes.n, f), bytes.n);
    assert_int_equal(fclose(f), 0);
}

struct result {
    struct buf tokens;
    uint64_t documents;
    uint64_t blocks;
    uint64_t hash; /* of the documents' hashes and places */
    int rc;
    struct err e;
};

static struct result run(const char *pattern, unsigned threads, int64_t end_of_text)
{
    const struct encode_options o = {
        .tokenizer = tokenizer, .end_of_text = end_of_text, .field = SLICE("text")};
    struct result r = {.tokens = BUF_INIT(64 << 20)};
    char path[128], *paths[] = {path};
    const struct encoded *x;
    struct pipeline *p;
    struct feed *f;
    uint64_t taken;

    snprintf(path, sizeof path, "%s/%s", dir, pattern);
    assert_int_equal(feed_open(paths, 1, "*", tokenizer, &f, NULL), 0);
    feed_set_block(f, BLOCK);
    p = pipeline_open(f, &o, threads);
    while ((r.rc = pipeline_next(p, &x, &taken, &r.e)) == 0 && x != NULL) {
        for (size_t i = 0; i < x->documents; i++) {
            r.hash = r.hash * 31 + x->document[i].hash + r.tokens.n + x->document[i].at;
        }
        r.documents += x->documents;
        r.blocks++;
        buf_adds(&r.tokens, buf_slice(&x->tokens));
    }
    pipeline_close(&p);
    feed_close(&f);
    return r;
}

static void check_same(const char *pattern, struct slice want, uint64_t documents)
{
    struct result one = run(pattern, 1, tokenizer_end_of_text(tokenizer));

    struct result many = run(pattern, 4, tokenizer_end_of_text(tokenizer));

    assert_int_equal(many.rc, 0);
    assert_true(slice_eq(buf_slice(&many.tokens), buf_slice(&one.tokens)));
    assert_int_equal(many.hash, one.hash);
    buf_free(&many.tokens);
    assert_true(slice_eq(buf_slice(&one.tokens), want));
    assert_int_equal(one.documents, documents);
    buf_free(&one.tokens);
}

/* A document's tokens as two bytes each, the end-of-text token behind them. */
static void add_document(struct slice text, struct buf *out)
{
    uint32_t *token = mem_array(text.n + 2, sizeof *token), end_id;
    size_t n;

    end_id = (uint32_t)tokenizer_end_of_text(tokenizer);
    assert_int_equal(encoder_add(encoder, text, token, &n, NULL), 0);
    if (n == 0 || token[n - 1] != end_id) {
        token[n++] = end_id;
    }
    for (size_t i = 0; i < n; i++) {
        buf_byte(out, (uint8_t)token[i]);
        buf_byte(out, (uint8_t)(token[i] >> 8));
    }
    free(token);
}

static void add_words(struct buf *text, uint64_t seed, size_t bytes)
{
    static const char *const piece[] = {
        "word",        "it's", " ", "  ", "\n", "\n\n", ".", " 12345", "\xe4\xb8\xad\xe6\x96\x87",
        "\xe3\x80\x82"};

    for (uint64_t i = 0; text->n < bytes; i++) {
        buf_str(text, piece[philox_at(seed, 9, i).v[0] % ARRAY_LEN(piece)]);
    }
}

static void test_a_long_document(void **state)
{
    struct buf text = BUF_INIT(16 << 20), want = BUF_INIT(64 << 20);
    struct result r;

    (void)state;
    add_words(&text, 1, 100 * KIB);
    add_document(buf_slice(&text), &want);
    write_file("long.txt", buf_slice(&text));
    check_same("long.txt", buf_slice(&want), 1);
    r = run("long.txt", 2, tokenizer_end_of_text(tokenizer));
    assert_true(r.blocks >= 20); /* or nothing was shown */
    buf_free(&r.tokens);
    buf_free(&text);
    buf_free(&want);
}

/* One word of more than a block: never cut. */
static void test_a_long_word(void **state)
{
    struct buf text = BUF_INIT(16 << 20), want = BUF_INIT(64 << 20);

    (void)state;
    for (uint32_t i = 0; i < 3 * BLOCK; i++) {
        buf_byte(&text, (uint8_t)('a' + i * i % 7));
    }
    buf_str(&text, " and on");
    add_document(buf_slice(&text), &want);
    write_file("word.txt", buf_slice(&text));
    check_same("word.txt", buf_slice(&want), 1);
    buf_free(&text);
    buf_free(&want);
}

static void test_marks_end_documents(void **state)
{
    struct buf want = BUF_INIT(1 << 20);

    (void)state;
    write_file("marks.txt", SLICE("one<|endoftext|>\ntwo<|endoftext|><|endoftext|>three"));
    add_document(SLICE("one<|endoftext|>\ntwo<|endoftext|><|endoftext|>three"), &want);
    check_same("marks.txt", buf_slice(&want), 4);
    buf_clear(&want);
    write_file("marks.txt", SLICE("one<|endoftext|>"));
    add_document(SLICE("one"), &want);
    check_same("marks.txt", buf_slice(&want), 1);
    write_file("marks.txt", SLICE(""));
    check_same("marks.txt", SLICE_NONE, 0);
    buf_free(&want);
}

static void test_lines(void **state)
{
    struct buf text = BUF_INIT(16 << 20), want = BUF_INIT(64 << 20);

    (void)state;
    for (unsigned i = 0; i < 1500; i++) {
        char line[64];
        int n = snprintf(line, sizeof line, "document %u: it's\n", i * i);

        add_document(slice_of(line, (size_t)n), &want);
        buf_addf(&text, "{\"id\":%u,\"text\":\"%.*s\\n\",\"score\":0.5}\r\n%s", i, n - 1, line,
                 i % 100 == 0 ? "\n" : "");
    }
    buf_str(&text, "{\"text\":\"\"}\n{\"text\":\"no newline\"}");
    add_document(SLICE("no newline"), &want);
    assert_true(text.n > 4 * BLOCK);
    write_file("lines.jsonl", buf_slice(&text));
    check_same("lines.jsonl", buf_slice(&want), 1501);
    buf_free(&text);
    buf_free(&want);
}

/* The first in the order of the text, however the threads ran. */
static void test_the_first_error(void **state)
{
    struct buf text = BUF_INIT(16 << 20);

    (void)state;
    for (unsigned i = 1; i <= 5000; i++) {
        buf_str(&text, i % 2500 == 1500 ? "{\"text\":7}\n" : "{\"text\":\"some words\"}\n");
    }
    write_file("bad.jsonl", buf_slice(&text));
    for (unsigned threads = 1; threads <= 4; threads += 3) {
        struct result r = run("bad.jsonl", threads, tokenizer_end_of_text(tokenizer));

        assert_int_equal(r.rc, E_CORRUPT);
        assert_non_null(strstr(r.e.text, "bad.jsonl:1500: the object has no string \"text\""));
        buf_free(&r.tokens);
    }
    buf_free(&text);
}

/* Closed in the middle: threads that still have work must end. */
static void test_given_up(void **state)
{
    const struct encode_options o = {
        .tokenizer = tokenizer, .end_of_text = -1, .field = SLICE("text")};
    struct buf text = BUF_INIT(16 << 20);
    char path[128], *paths[] = {path};

    (void)state;
    add_words(&text, 2, 100 * KIB);
    write_file("long.txt", buf_slice(&text));
    snprintf(path, sizeof path, "%s/long.txt", dir);
    for (int blocks = 0; blocks < 3; blocks++) {
        const struct encoded *x;
        struct pipeline *p;
        struct feed *f;
        uint64_t taken;

        assert_int_equal(feed_open(paths, 1, "*", tokenizer, &f, NULL), 0);
        feed_set_block(f, BLOCK);
        p = pipeline_open(f, &o, 1);
        for (int i = 0; i < blocks; i++) {
            assert_int_equal(pipeline_next(p, &x, &taken, NULL), 0);
        }
        pipeline_close(&p);
        feed_close(&f);
    }
    buf_free(&text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_long_document),     cmocka_unit_test(test_a_long_word),
        cmocka_unit_test(test_marks_end_documents), cmocka_unit_test(test_lines),
        cmocka_unit_test(test_the_first_error),     cmocka_unit_test(test_given_up),
    };
    return cmocka_run_group_tests(tests, begin, end);
}
