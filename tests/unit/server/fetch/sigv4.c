#include "server/fetch/sigv4.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

/* The keys and the time of AWS' own examples. */
static const struct sigv4_keys keys = {{"AKIAIOSFODNN7EXAMPLE", 20},
                                       {"wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", 40},
                                       {"us-east-1", 9},
                                       {"s3", 2}};
enum { MAY_24_2013 = 1369353600 };

#define F(name, value)                                                                             \
    {                                                                                              \
        SLICE(name), SLICE(value)                                                                  \
    }
#define HOST  F("host", "examplebucket.s3.amazonaws.com")
#define DATE  F("x-amz-date", "20130524T000000Z")
#define EMPTY F("x-amz-content-sha256", SIGV4_EMPTY_PAYLOAD)

static void expect(const struct sigv4_request *r, const char *names, const char *signature)
{
    struct buf got = BUF_INIT(1024), want = BUF_INIT(1024);
    struct err e;

    buf_addf(&want,
             "AWS4-HMAC-SHA256 Credential=AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request, "
             "SignedHeaders=%s, Signature=%s",
             names, signature);
    assert_int_equal(sigv4_sign(&keys, r, MAY_24_2013, &got, &e), 0);
    assert_string_equal(buf_cstr(&got), buf_cstr(&want));
    buf_free(&got);
    buf_free(&want);
}

static void signs_as_aws_does_in_its_examples(void **state)
{
    struct http_field ranged[] = {HOST, F("range", "bytes=0-9"), EMPTY, DATE};
    struct http_field plain[] = {DATE, EMPTY, HOST}; /* in any order */
    struct http_field put[] = {
        F("date", "Fri, 24 May 2013 00:00:00 GMT"), HOST, DATE,
        F("x-amz-content-sha256",
          "44ce7dd67c959e0d3524ffac1771dfbba87d2b6b4b4e99e42034a8b803f8b072"),
        F("x-amz-storage-class", "REDUCED_REDUNDANCY")};
    struct sigv4_request r = {SLICE("GET"), SLICE("/test.txt"), SLICE(""),
                              ranged,       ARRAY_LEN(ranged),  SLICE(SIGV4_EMPTY_PAYLOAD)};

    (void)state;
    expect(&r, "host;range;x-amz-content-sha256;x-amz-date",
           "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41");
    r = (struct sigv4_request){SLICE("GET"), SLICE("/"),       SLICE("lifecycle="),
                               plain,        ARRAY_LEN(plain), SLICE(SIGV4_EMPTY_PAYLOAD)};
    expect(&r, "host;x-amz-content-sha256;x-amz-date",
           "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543");
    r.query = SLICE("max-keys=2&prefix=J");
    expect(&r, "host;x-amz-content-sha256;x-amz-date",
           "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7");
    r = (struct sigv4_request){
        SLICE("PUT"),   SLICE("/test%24file.text"),
        SLICE(""),      put,
        ARRAY_LEN(put), SLICE("44ce7dd67c959e0d3524ffac1771dfbba87d2b6b4b4e99e42034a8b803f8b072")};
    expect(&r, "date;host;x-amz-content-sha256;x-amz-date;x-amz-storage-class",
           "98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd");
}

static void query_is(const char *raw, const char *want)
{
    struct buf b = BUF_INIT(4096);

    assert_true(sigv4_query(slice_str(raw), &b));
    assert_string_equal(buf_cstr(&b), want);
    buf_free(&b);
}

static void a_query_has_one_form(void **state)
{
    struct buf b = BUF_INIT(64);

    (void)state;
    query_is("", "");
    query_is("uploads", "uploads=");
    query_is("prefix=a/b&list-type=2&delimiter=/", "delimiter=%2F&list-type=2&prefix=a%2Fb");
    query_is("b=2&b=1&a", "a=&b=1&b=2");
    query_is("k=%7e%2d&k2=a+b", "k=~-&k2=a%2Bb");
    query_is("continuation-token=1%2B%2f%3D%3D", "continuation-token=1%2B%2F%3D%3D");
    query_is("a=b=c", "a=b%3Dc");
    query_is("&&x=", "x=");
    assert_false(sigv4_query(slice_str("a=%zz"), &b));
    assert_false(sigv4_query(slice_str("a=%4"), &b));
    buf_free(&b);
    assert_false(
        sigv4_query(slice_str("a&a&a&a&a&a&a&a&a&a&a&a&a&a&a&a&a&a&a&a&a&a&a&a&a&a&a&a&a&a&a&"
                              "a&a&a&a&a&a"),
                    &b));
    buf_free(&b);
}

static void dates_have_the_basic_form(void **state)
{
    char date[SIGV4_DATE_ROOM];

    (void)state;
    sigv4_date(MAY_24_2013, date);
    assert_string_equal(date, "20130524T000000Z");
    sigv4_date(0, date);
    assert_string_equal(date, "19700101T000000Z");
    sigv4_date(UINT64_MAX, date);
    assert_string_equal(date, "99991231T235959Z");
}

static void blanks_in_values_do_not_count(void **state)
{
    struct http_field neat[] = {HOST, DATE, EMPTY, F("x-amz-meta-a", "one two")};
    struct http_field loose[] = {HOST, DATE, EMPTY, F("x-amz-meta-a", "  one   two ")};
    struct sigv4_request r = {SLICE("GET"), SLICE("/"),      SLICE(""),
                              neat,         ARRAY_LEN(neat), SLICE(SIGV4_EMPTY_PAYLOAD)};
    struct buf a = BUF_INIT(1024), b = BUF_INIT(1024);

    (void)state;
    assert_int_equal(sigv4_sign(&keys, &r, MAY_24_2013, &a, NULL), 0);
    r.fields = loose;
    assert_int_equal(sigv4_sign(&keys, &r, MAY_24_2013, &b, NULL), 0);
    assert_string_equal(buf_cstr(&a), buf_cstr(&b));
    buf_free(&a);
    buf_free(&b);
    r.nfields = 0;
    assert_int_equal(sigv4_sign(&keys, &r, MAY_24_2013, &a, NULL), E_TOOBIG);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(signs_as_aws_does_in_its_examples),
        cmocka_unit_test(a_query_has_one_form),
        cmocka_unit_test(dates_have_the_basic_form),
        cmocka_unit_test(blanks_in_values_do_not_count),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
