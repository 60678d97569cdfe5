#include "common/codec/multipart.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

enum { ROOM = 1 << 20, FAR = 12345 };

struct heard {
    struct buf log;
    size_t parts;
    bool within;
    int stop; /* on_part's answer */
};

static int on_part(void *arg, const struct multipart_part *p, struct err *e)
{
    struct heard *h = arg;

    assert_false(h->within);
    h->within = true;
    h->parts++;
    buf_addf(&h->log, "[" SLICE_FMT, SLICE_ARG(p->name));
    if (p->filename.p != NULL) {
        buf_addf(&h->log, "|" SLICE_FMT, SLICE_ARG(p->filename));
    }
    buf_str(&h->log, "=");
    return h->stop != 0 ? err_set(e, h->stop, "enough") : 0;
}

static int on_data(void *arg, struct slice bytes, struct err *e)
{
    struct heard *h = arg;

    (void)e;
    assert_true(h->within && bytes.n != 0);
    buf_adds(&h->log, bytes);
    return 0;
}

static int on_part_end(void *arg, struct err *e)
{
    struct heard *h = arg;

    (void)e;
    assert_true(h->within);
    h->within = false;
    buf_str(&h->log, "]");
    return 0;
}

static const struct multipart_events events = {on_part, on_data, on_part_end};

/* In pieces of so many bytes. */
static int read_in(struct slice body, size_t piece, struct heard *h)
{
    struct multipart m;
    int rc = 0;

    *h = (struct heard){.log = BUF_INIT(ROOM), .stop = h->stop};
    multipart_begin(&m, SLICE("xyz"), &events, h);
    while (rc == 0 && body.n != 0) {
        size_t n = body.n < piece ? body.n : piece;
        rc = multipart_feed(&m, slice_first(body, n), NULL);
        body = slice_from(body, n);
    }
    rc = rc == 0 ? multipart_end(&m, NULL) : rc;
    multipart_fini(&m);
    return rc;
}

#define PART(head, data) "--xyz\r\n" head "\r\n\r\n" data "\r\n"
#define FIELD(name)      "Content-Disposition: form-data; name=\"" name "\""

static void test_bodies(void **state)
{
    static const struct {
        const char *body, *heard; /* NULL: refused */
    } row[] = {
        {PART(FIELD("a"), "1") "--xyz--", "[a=1]"},
        {PART(FIELD("a"), "1") "--xyz--\r\n", "[a=1]"},
        {PART(FIELD("a"), "") PART(FIELD("b"), "2\r\n") "--xyz--\r\n", "[a=][b=2\r\n]"},
        {PART("content-disposition:form-data;name=a;filename=\"x y.whl\"\r\nContent-Type: q/r",
              "\r\r\n-\r\n--xy\r\n--xyY--xyz") "--xyz--\r\n",
         "[a|x y.whl=\r\r\n-\r\n--xy\r\n--xyY--xyz]"},
        {PART("Content-Disposition: form-data; name=\"a\\\"b\\\\c\"", "1") "--xyz--",
         "[a\"b\\c=1]"},
        {PART("Content-Disposition: form-data; name=a; filename=no; filename*=UTF-8''p%2B1.whl",
              "1") "--xyz--",
         "[a|p+1.whl=1]"},
        {PART(FIELD("a") "\r\nContent-Transfer-Encoding: binary", "1") "--xyz--", "[a=1]"},
        {"", NULL},
        {"--xyz--", ""},
        {"--xyz", NULL},
        {"--xyz\r\n", NULL},
        {"\r\n" PART(FIELD("a"), "1") "--xyz--", NULL},
        {"preamble\r\n" PART(FIELD("a"), "1") "--xyz--", NULL},
        {PART(FIELD("a"), "1"), NULL},
        {PART(FIELD("a"), "1") "--xyz", NULL},
        {PART(FIELD("a"), "1") "--xyz-", NULL},
        {PART(FIELD("a"), "1") "--xyz--more", NULL},
        {PART(FIELD("a"), "1") "--xyz \r\n", NULL},
        {PART(FIELD("a"), "1\r\n--xyzzy\r\n2") "--xyz--", NULL}, /* begins like the boundary */
        {"--xyz\n" FIELD("a") "\n\n1\n--xyz--", NULL},
        {"--xyz\r\n" FIELD("a") "\n\r\n1\r\n--xyz--", NULL},
        {"--xyz\r\n\r\n1\r\n--xyz--", NULL},
        {PART("Content-Type: a/b", "1") "--xyz--", NULL},
        {PART("Content-Disposition: form-data", "1") "--xyz--", NULL},
        {PART("Content-Disposition: attachment; name=a", "1") "--xyz--", NULL},
        {PART(FIELD("a") "; name=b", "1") "--xyz--", NULL},
        {PART(FIELD("a") "\r\n" FIELD("b"), "1") "--xyz--", NULL},
        {PART(FIELD("a") "; filename=\"x", "1") "--xyz--", NULL},
        {PART(FIELD("a") "; filename*=latin1''x", "1") "--xyz--", NULL},
        {PART(FIELD("a") "; filename*=utf-8''%00", "1") "--xyz--", NULL},
        {PART(FIELD("a") "\r\n folded", "1") "--xyz--", NULL},
        {PART(FIELD("a") "\r\nContent-Transfer-Encoding: base64", "MQ==") "--xyz--", NULL},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(row); i++) {
        for (size_t piece = 1; piece < 100; piece++) {
            struct heard h = {0};
            int rc = read_in(slice_str(row[i].body), piece, &h);
            if (row[i].heard == NULL ? rc != E_PROTOCOL
                                     : rc != 0 || !slice_eqs(buf_slice(&h.log), row[i].heard)) {
                fail_msg("row %zu in pieces of %zu: %d, " SLICE_FMT, i, piece, rc,
                         SLICE_ARG(buf_slice(&h.log)));
            }
            buf_free(&h.log);
        }
    }
}

static void test_bounds(void **state)
{
    struct buf body = BUF_INIT(64 << 20);
    struct heard h = {0};

    (void)state;
    buf_str(&body, "--xyz\r\n" FIELD("a") "\r\nX: ");
    memset(buf_room(&body, MULTIPART_HEAD_BYTES), 'x', MULTIPART_HEAD_BYTES);
    buf_grew(&body, MULTIPART_HEAD_BYTES);
    assert_int_equal(read_in(buf_slice(&body), 1000, &h), E_TOOBIG);
    buf_free(&h.log);
    buf_clear(&body);
    for (size_t i = 0; i <= MULTIPART_PARTS_MAX; i++) {
        buf_str(&body, PART(FIELD("a"), ""));
    }
    assert_int_equal(read_in(buf_slice(&body), 1 << 16, &h), E_TOOBIG);
    assert_int_equal(h.parts, MULTIPART_PARTS_MAX);
    buf_free(&h.log);
    buf_free(&body);
}

static void test_events_end_it(void **state)
{
    struct heard h = {.stop = E_DENIED};

    (void)state;
    assert_int_equal(read_in(SLICE(PART(FIELD("a"), "1") "--xyz--"), FAR, &h), E_DENIED);
    assert_int_equal(h.parts, 1);
    buf_free(&h.log);
}

static void test_boundary(void **state)
{
    static const struct {
        const char *type, *boundary; /* NULL: none */
    } row[] = {
        {"multipart/form-data; boundary=abc", "abc"},
        {"Multipart/Form-Data;charset=x;  BOUNDARY=\"a b'(c\"", "a b'(c"},
        {"multipart/form-data", NULL},
        {"multipart/form-data; boundary=", NULL},
        {"multipart/form-data; boundary=\"\"", NULL},
        {"multipart/form-data; boundary=\"a \"", NULL},
        {"multipart/form-data; boundary=a; boundary=b", NULL},
        {"multipart/form-data; boundary=a b", NULL},
        {"multipart/form-data; boundary=\"a\x01\"", NULL},
        {"multipart/form-data; boundary=\"\xc3\xa4\"", NULL},
        {"multipart/form-data boundary=a", NULL},
        {"multipart/mixed; boundary=a", NULL},
        {"multipart/form-data; boundary="
         "0123456789012345678901234567890123456789012345678901234567890123456789",
         "0123456789012345678901234567890123456789012345678901234567890123456789"},
        {"multipart/form-data; boundary="
         "01234567890123456789012345678901234567890123456789012345678901234567890",
         NULL},
    };
    struct arena a = {0};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(row); i++) {
        struct slice got;
        bool there = multipart_boundary(slice_str(row[i].type), &a, &got);
        if (there != (row[i].boundary != NULL) || (there && !slice_eqs(got, row[i].boundary))) {
            fail_msg("%s", row[i].type);
        }
    }
    arena_fini(&a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bodies),
        cmocka_unit_test(test_bounds),
        cmocka_unit_test(test_events_end_it),
        cmocka_unit_test(test_boundary),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
