#include "server/http/h1_parse.h"

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>
#include <stdlib.h>

static const struct h1_limits limits = {.header_bytes = 4096, .header_fields = 8, .uri_bytes = 256};

/* Whole heads, each on a copy of its own size so that a sanitizer sees any byte too far. */
static int parse(const char *text, struct h1_head *head, struct http_field *fields, char **kept)
{
    struct slice s = slice_str(text);
    size_t scanned = 0;
    ptrdiff_t end = h1_head_end(s, &limits, &scanned);
    char *copy;

    if (end <= 0) {
        *kept = NULL;
        return (int)end;
    }
    copy = malloc((size_t)end);
    assert_non_null(copy);
    memcpy(copy, text, (size_t)end);
    *kept = copy;
    return h1_parse_head(copy, (size_t)end, &limits, head, fields);
}

static void parses_a_head(void **state)
{
    struct http_field fields[8];
    struct h1_head h;
    char *kept;

    (void)state;
    assert_int_equal(
        parse("PUT http://Ex.org/a?b HTTP/1.1\r\nHOST: ex.ORG\r\nX-A:\t 1 \r\nContent-Length: 7\r\n"
              "Expect: 100-Continue\r\nConnection: a, Close\r\nX-B:\r\n\r\nbody",
              &h, fields, &kept),
        0);
    assert_true(slice_eqs(h.method, "PUT") && slice_eqs(h.target, "/a?b") &&
                slice_eqs(h.host, "Ex.org"));
    assert_int_equal(h.framing, H1_LENGTH);
    assert_int_equal(h.content_length, 7);
    assert_true(h.expect_continue && !h.keep_alive && h.version == HTTP_11);
    assert_int_equal(h.nfields, 2);
    assert_true(slice_eqs(fields[0].name, "x-a") && slice_eqs(fields[0].value, "1"));
    assert_true(slice_eqs(fields[1].name, "x-b") && fields[1].value.n == 0);
    free(kept);
}

static void finds_the_end_in_any_pieces(void **state)
{
    static const char text[] = "\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\nrest";
    size_t scanned = 0;

    (void)state;
    for (size_t n = 0; n < sizeof text - 5; n++) {
        char *piece = malloc(n + 1);
        assert_non_null(piece);
        memcpy(piece, text, n);
        assert_int_equal(h1_head_end(slice_of(piece, n), &limits, &scanned), 0);
        free(piece);
    }
    assert_int_equal(h1_head_end(slice_of(text, sizeof text - 1), &limits, &scanned),
                     (int)sizeof text - 1 - 4);
}

static void refuses(void **state)
{
    static const struct {
        const char *text;
        int status;
    } bad[] = {
        {"\n", -400},
        {"GET / HTTP/1.1\nHost: a\r\n\r\n", -400},
        {"\r\n\r\n", -400},
        {"GET / HTTP/1.1\r\n\r\n", -400},
        {"GET / HTTP/1.1\r\nHost:\r\nHost:\r\n\r\n", -400},
        {"GET / HTTP/1.1\r\nHost: a:99999\r\n\r\n", -400},
        {"GET / HTTP/1.1\r\nHost: [::1\r\n\r\n", -400},
        {"GET / HTTP/1.1\r\nHost: a]\r\n\r\n", -400},
        {"GET http:/// HTTP/1.1\r\nHost: a\r\n\r\n", -400},
        {"GET http://a?b HTTP/1.1\r\nHost: a\r\n\r\n", -400},
        {"GET ftp://a/ HTTP/1.1\r\nHost: a\r\n\r\n", -400},
        {"G(T / HTTP/1.1\r\nHost: a\r\n\r\n", -400},
        {"GET / HTTP/1.1 \r\nHost: a\r\n\r\n", -400},
        {"GET / HTTP/1,1\r\nHost: a\r\n\r\n", -400},
        {"GET / HTTP/3.0\r\nHost: a\r\n\r\n", -505},
        {"GET / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: \x0b"
         "chunked\r\n\r\n",
         -400},
        {"GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 9223372036854775808\r\n\r\n", -400},
        {"GET / HTTP/1.1\r\nHost: a\r\nX: \x7f\r\n\r\n", -400},
        {"GET / HTTP/1.1\r\nHost: a\r\nX\t: 1\r\n\r\n", -400},
        {"GET / HTTP/1.1\r\na:\r\na:\r\na:\r\na:\r\na:\r\na:\r\na:\r\na:\r\na:\r\n\r\n", -431},
    };
    struct http_field fields[8];
    struct h1_head h;
    char *kept;

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        int rc = parse(bad[i].text, &h, fields, &kept);
        if (rc != bad[i].status) {
            fail_msg("%zu: %d, not %d: %s", i, rc, bad[i].status, bad[i].text);
        }
        free(kept);
    }
}

static void accepts_hosts(void **state)
{
    static const char *const good[] = {"",      "a",           "a:",     "a:80", "127.0.0.1:1",
                                       "[::1]", "[::1]:65535", "a_b.c~d"};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(good); i++) {
        assert_true(h1_valid_host(slice_str(good[i])));
    }
}

/* Feeds in pieces of `step` bytes; the data comes out the same. */
static int decode(const char *text, size_t step, char *out, size_t *out_n)
{
    struct h1_chunks c = {0};
    size_t n = strlen(text);
    size_t at = 0;
    int rc = 0;

    *out_n = 0;
    while (at < n && rc == 0) {
        size_t piece = n - at < step ? n - at : step;
        size_t used;
        struct slice data;
        rc = h1_chunks_feed(&c, slice_of(text + at, piece), &used, &data);
        assert_true(used > 0 || rc != 0);
        if (data.n > 0) {
            memcpy(out + *out_n, data.p, data.n);
            *out_n += data.n;
        }
        at += used;
    }
    return rc;
}

static void decodes_chunks(void **state)
{
    static const char text[] = "5;a=\"b\"\r\nhello\r\nA \r\n0123456789\r\n3 ;a=b\r\nabc\r\n000\r\n"
                               "X: y\r\nZ:\r\n\r\nNEXT";
    char out[64];
    size_t n;

    (void)state;
    for (size_t step = 1; step < sizeof text; step++) {
        assert_int_equal(decode(text, step, out, &n), 1);
        assert_int_equal(n, 18);
        assert_memory_equal(out, "hello0123456789abc", 18);
    }
}

static void refuses_chunks(void **state)
{
    static const char *const bad[] = {"g\r\n",
                                      "\r\n",
                                      " 5\r\n",
                                      "5\n",
                                      "5\r\r\n",
                                      "5\r\nhelloX",
                                      "1\r\naX",
                                      "1000000000000000\r\n",
                                      "5 junk\r\nhello\r\n",
                                      "0 x\r\n\r\n",
                                      "5\tx;a=b\r\n",
                                      "5 5\r\n",
                                      "0\r\n X: folded\r\n\r\n",
                                      "0\r\nno colon\r\n\r\n",
                                      "0\r\nX\r\n\r\n",
                                      "0\r\nX : y\r\n\r\n",
                                      "0\r\nX: y\r\nZ\r\n\r\n",
                                      "0\r\n: y\r\n\r\n",
                                      "0\r\n\n",
                                      "5;\x01\r\n"};
    char out[64];
    size_t n;

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        if (decode(bad[i], 1, out, &n) != -400) {
            fail_msg("%zu was taken: %s", i, bad[i]);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parses_a_head),  cmocka_unit_test(finds_the_end_in_any_pieces),
        cmocka_unit_test(refuses),        cmocka_unit_test(accepts_hosts),
        cmocka_unit_test(decodes_chunks), cmocka_unit_test(refuses_chunks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
