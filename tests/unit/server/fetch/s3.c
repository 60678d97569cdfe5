#include "server/fetch/s3.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

static const struct s3_request get = {.method = XFER_GET}, head = {.method = XFER_HEAD};

static int open_bucket(const struct origin_settings *set, struct s3 **b, const char *url)
{
    struct buf got = BUF_INIT(4096);
    struct err e = {0};
    int rc = s3_open(set, b, &got, &e);

    if (rc == 0) {
        assert_string_equal(buf_cstr(&got), url);
    } else {
        assert_null(strstr(e.text, "hush"));
        assert_null(*b);
    }
    buf_free(&got);
    return rc;
}

static void url_is(const char *origin, const char *endpoint, const char *region,
                   const char *addressing, const char *url)
{
    struct origin_settings set = {
        .url = origin, .endpoint = endpoint, .region = region, .addressing = addressing};
    struct s3 *b = NULL;

    assert_int_equal(open_bucket(&set, &b, url), 0);
    s3_close(&b);
}

static void a_bucket_has_its_url(void **state)
{
    (void)state;
    url_is("s3://b", NULL, NULL, NULL, "https://b.s3.us-east-1.amazonaws.com/");
    url_is("s3://b/", NULL, "eu-west-1", NULL, "https://b.s3.eu-west-1.amazonaws.com/");
    url_is("s3://b/p", NULL, "cn-north-1", NULL, "https://b.s3.cn-north-1.amazonaws.com.cn/p/");
    url_is("s3://my.bucket/p/", NULL, NULL, NULL,
           "https://s3.us-east-1.amazonaws.com/my.bucket/p/");
    url_is("s3://b/p q/100%/+", "http://[fd00::1]:9000", NULL, NULL,
           "http://[fd00::1]:9000/b/p%20q/100%25/%2B/");
    url_is("s3://b", "https://minio.example:9000/", NULL, NULL, "https://minio.example:9000/b/");
    url_is("s3://b/x", "https://minio.example:443", NULL, "virtual", "https://b.minio.example/x/");
    url_is("s3://B_1/x//y", "https://minio.example", "default", NULL,
           "https://minio.example/B_1/x//y/");
    url_is("s3://b", NULL, NULL, "path", "https://s3.us-east-1.amazonaws.com/b/");
}

static void settings_that_cannot_be(void **state)
{
    static const struct origin_settings bad[] = {
        {.url = "s3://"},
        {.url = "s3:///p"},
        {.url = "s3://a:hush@b/"},
        {.url = "s3://b:9000/"},
        {.url = "s3://..", .endpoint = "https://e.example"},
        {.url = "s3://b/../c"},
        {.url = "s3://b/a/./c"},
        {.url = "s3://b", .region = "eu west"},
        {.url = "s3://b", .region = "evil.example/"},
        {.url = "s3://b", .region = ""},
        {.url = "s3://b", .endpoint = "https://e.example/path"},
        {.url = "s3://b", .endpoint = "e.example"},
        {.url = "s3://B_1", .endpoint = "https://e.example", .addressing = "virtual"},
        {.url = "s3://B_1"},
        {.url = "s3://b", .endpoint = "http://[::1]:9000", .addressing = "virtual"},
        {.url = "s3://b", .authorization = "Bearer hush"},
        {.url = "s3://b", .authorization = "Bearer hush:"},
        {.url = "s3://b", .authorization = "Bearer :hush"},
        {.url = "s3://b", .authorization = "Basic hush:x"},
        {.url = "s3://b", .authorization = "Bearer a/b:hush"},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        struct s3 *b = NULL;
        assert_int_equal(open_bucket(&bad[i], &b, ""), E_CONFIG);
    }
}

static void an_identity_is_that_of_its_place(void **state)
{
    struct origin_settings set = {.url = "s3://b/p", .endpoint = "https://one.example"};
    const char *before[] = {"https://one.example/b/p/"};
    struct origin *a = NULL, *b = NULL;

    (void)state;
    assert_int_equal(origin_new("r", &set, &a, NULL), 0);
    set.endpoint = "https://two.example";
    set.moved_from = before;
    set.moved_from_count = 1;
    assert_int_equal(origin_new("r", &set, &b, NULL), 0);
    assert_int_not_equal(origin_identity(a), origin_identity(b));
    assert_true(origin_owns(b, origin_identity(a)));
    assert_false(origin_owns(a, origin_identity(b)));
    assert_string_equal(origin_bucket(a)->name, "b");
    assert_string_equal(origin_bucket(a)->prefix, "p/");
    assert_string_equal(origin_bucket(a)->url, "https://one.example/b/");
    origin_free(&a);
    origin_free(&b);
}

/* --- requests --- */

static bool has(const struct slice *line, size_t n, const char *start)
{
    for (size_t i = 0; i < n; i++) {
        if (slice_starts(line[i], slice_str(start))) {
            return true;
        }
    }
    return false;
}

static void what_is_signed_is_what_is_sent(void **state)
{
    struct origin_settings set = {.url = "s3://b",
                                  .endpoint = "http://h.example:9000",
                                  .authorization = "Bearer AK:s/e+c=:to/k+en=="};
    struct buf url = BUF_INIT(4096);
    struct slice lines[ORIGIN_LINES];
    struct arena a = {0};
    struct s3 *b = NULL;
    size_t n = 0;

    (void)state;
    assert_int_equal(open_bucket(&set, &b, "http://h.example:9000/b/"), 0);
    assert_string_equal(b->token, "to/k+en==");
    buf_str(&url, "http://h.example:9000/b/x=(1)+%2b%7E//%e4?z=1&a=b/c&up");
    assert_int_equal(s3_sign(b, &get, 1369353600, &url, &a, lines, &n, NULL), 0);
    assert_string_equal(buf_cstr(&url),
                        "http://h.example:9000/b/x%3D%281%29%2B%2B~//%E4?a=b%2Fc&up=&z=1");
    assert_int_equal(n, 5);
    assert_true(has(lines, n, "x-amz-date: 20130524T000000Z"));
    assert_true(has(lines, n, "x-amz-security-token: to/k+en=="));
    assert_true(has(lines, n, "x-amz-content-sha256: e3b0c442"));
    assert_true(has(lines, n,
                    "Authorization: AWS4-HMAC-SHA256 "
                    "Credential=AK/20130524/us-east-1/s3/aws4_request, SignedHeaders="
                    "host;x-amz-checksum-mode;x-amz-content-sha256;x-amz-date;x-amz-security-"
                    "token, Signature="));
    buf_clear(&url);
    buf_str(&url, "http://h.example:9000/b/%zz");
    assert_int_equal(s3_sign(b, &get, 0, &url, &a, lines, &n, NULL), E_INVALID);
    s3_close(&b);
    buf_free(&url);
    arena_fini(&a);
}

static void a_body_and_conditions_are_signed(void **state)
{
    static const struct http_field more[] = {{{"if-none-match", 13}, {"*", 1}}};
    struct s3_request put = {XFER_PUT, SLICE("abcd"), more, 1};
    struct origin_settings set = {
        .url = "s3://b", .endpoint = "http://h.example:9000", .authorization = "AK:sk"};
    struct buf url = BUF_INIT(4096);
    struct slice lines[S3_LINES];
    struct arena a = {0};
    struct s3 *b = NULL;
    size_t n = 0;

    (void)state;
    assert_int_equal(open_bucket(&set, &b, "http://h.example:9000/b/"), 0);
    buf_str(&url, "http://h.example:9000/b/log");
    assert_int_equal(s3_sign(b, &put, 1369353600, &url, &a, lines, &n, NULL), 0);
    assert_int_equal(n, 4);
    assert_true(has(lines, n, "x-amz-content-sha256: abcd"));
    assert_true(has(lines, n, "if-none-match: *"));
    assert_true(has(lines, n,
                    "Authorization: AWS4-HMAC-SHA256 Credential=AK/20130524/us-east-1/s3/"
                    "aws4_request, SignedHeaders=host;if-none-match;x-amz-content-sha256;"
                    "x-amz-date, Signature="));
    s3_close(&b);
    buf_free(&url);
    arena_fini(&a);
}

static void without_keys_nothing_is_added(void **state)
{
    struct origin_settings set = {.url = "s3://b"};
    struct buf url = BUF_INIT(4096);
    struct slice lines[ORIGIN_LINES];
    struct arena a = {0};
    struct s3 *b = NULL;
    size_t n = 1;

    (void)state;
    assert_int_equal(open_bucket(&set, &b, "https://b.s3.us-east-1.amazonaws.com/"), 0);
    buf_str(&url, "https://b.s3.us-east-1.amazonaws.com/x?b&a");
    assert_int_equal(s3_sign(b, &head, 0, &url, &a, lines, &n, NULL), 0);
    assert_int_equal(n, 0);
    assert_string_equal(buf_cstr(&url), "https://b.s3.us-east-1.amazonaws.com/x?b&a");
    s3_close(&b);
    buf_free(&url);
}

static void a_checksum_is_of_the_object_or_none(void **state)
{
    struct slice full = SLICE("47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=");
    struct digest d, want;

    (void)state;
    digest_of(SLICE(""), &want);
    assert_true(s3_checksum(full, SLICE_NONE, &d) && digest_eq(&d, &want));
    assert_true(s3_checksum(full, SLICE("FULL_OBJECT"), &d));
    assert_false(s3_checksum(full, SLICE("COMPOSITE"), &d));
    assert_false(
        s3_checksum(SLICE("47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=-3"), SLICE_NONE, &d));
    assert_false(s3_checksum(SLICE("47DEQpj8"), SLICE_NONE, &d));
    assert_false(s3_checksum(SLICE(""), SLICE_NONE, &d));
}

/* --- refusals --- */

static int judge(int status, const char *body, const char *region, struct err *e)
{
    struct origin_settings set = {.url = "s3://b"};
    struct s3_no no;
    struct s3 *b = NULL;
    int rc;

    assert_int_equal(open_bucket(&set, &b, "https://b.s3.us-east-1.amazonaws.com/"), 0);
    s3_no_read(slice_str(body), slice_str(region), &no);
    rc = s3_no_judge(b, status, &no, e);
    s3_close(&b);
    return rc;
}

#define ERROR_OF(code) "<?xml version=\"1.0\"?><Error><Code>" code "</Code><Message>why</Message>"

static void refusals_of_the_bucket_and_of_an_object(void **state)
{
    struct err e = {0};

    (void)state;
    assert_int_equal(judge(403, ERROR_OF("AccessDenied") "</Error>", NULL, &e), 0);
    assert_int_equal(judge(404, ERROR_OF("NoSuchKey") "</Error>", NULL, &e), 0);
    assert_int_equal(judge(503, ERROR_OF("SlowDown") "</Error>", NULL, &e), 0);
    assert_int_equal(judge(403, "", NULL, &e), 0);
    assert_int_equal(judge(403, "<html><Code>NoSuchBucket</Code></html>", NULL, &e), 0);
    assert_int_equal(judge(404, ERROR_OF("NoSuchBucket") "</Error>", NULL, &e), E_CONFIG);
    assert_int_equal(judge(403, ERROR_OF("SignatureDoesNotMatch"), NULL, &e), E_DENIED);
    assert_non_null(strstr(e.text, "SignatureDoesNotMatch: why"));
    assert_int_equal(judge(400, ERROR_OF("ExpiredToken") "</Error>", NULL, &e), E_DENIED);
    assert_int_equal(judge(403, ERROR_OF("RequestTimeTooSkewed") "</Error>", NULL, &e), E_DENIED);
    assert_int_equal(
        judge(400, ERROR_OF("AuthorizationHeaderMalformed") "<Region>eu-west-1</Region></Error>",
              NULL, &e),
        E_CONFIG);
    assert_non_null(strstr(e.text, "region = \"eu-west-1\""));
    assert_int_equal(judge(301, "", "eu-west-2", &e), E_CONFIG);
    assert_non_null(strstr(e.text, "region = \"eu-west-2\""));
    assert_int_equal(judge(400, "", "eu-west-2", &e), E_CONFIG); /* a HEAD's: no body */
    assert_int_equal(judge(301, ERROR_OF("PermanentRedirect") "</Error>", NULL, &e), E_CONFIG);
    assert_int_equal(judge(403, ERROR_OF("AccessDenied") "</Error>", "us-east-1", &e), 0);
}

static void what_a_stranger_says_is_shown_as_text(void **state)
{
    struct s3_no no;

    (void)state;
    s3_no_read(SLICE("<Error><Code>A\nB\"\xc3\xa4</Code><Deep><Code>no</Code></Deep></Error>"),
               SLICE("eu\r\nx"), &no);
    assert_string_equal(no.code, "A B   ");
    assert_string_equal(no.region, "eu  x");
    s3_no_read(SLICE("<!DOCTYPE x [<!ENTITY a \"b\">]><Error><Code>&a;</Code></Error>"), SLICE_NONE,
               &no);
    assert_string_equal(no.code, "");
}

static void which_answers_are_refusals(void **state)
{
    static const struct {
        int status;
        const char *field;
        bool is;
    } cases[] = {{200, NULL, false},       {304, NULL, false}, {412, NULL, false},
                 {416, NULL, false},       {403, NULL, true},  {404, NULL, true},
                 {307, "location", false}, {301, NULL, true},  {307, "x-amz-bucket-region", true}};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct xfer_field f[2] = {{SLICE("location"), SLICE("https://x.example/")}};
        struct xfer_head h = {.status = cases[i].status, .fields = f};
        h.nfields = cases[i].field != NULL;
        if (h.nfields != 0 && strcmp(cases[i].field, "location") != 0) {
            f[h.nfields++] = (struct xfer_field){slice_str(cases[i].field), SLICE("eu-west-1")};
        }
        assert_int_equal(s3_is_no(&h), cases[i].is);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_bucket_has_its_url),
        cmocka_unit_test(settings_that_cannot_be),
        cmocka_unit_test(an_identity_is_that_of_its_place),
        cmocka_unit_test(what_is_signed_is_what_is_sent),
        cmocka_unit_test(a_body_and_conditions_are_signed),
        cmocka_unit_test(without_keys_nothing_is_added),
        cmocka_unit_test(a_checksum_is_of_the_object_or_none),
        cmocka_unit_test(refusals_of_the_bucket_and_of_an_object),
        cmocka_unit_test(what_a_stranger_says_is_shown_as_text),
        cmocka_unit_test(which_answers_are_refusals),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
