#include "server/fetch/s3_list.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "server/fetch/s3_xml.h"

struct seen {
    struct buf text;
    int rc; /* to answer */
};

static int on_object(void *arg, const struct s3_object *o, struct err *e)
{
    struct seen *s = arg;

    buf_addf(&s->text, "[" SLICE_FMT "|%lld|%lld|" SLICE_FMT "]", SLICE_ARG(o->key),
             (long long)o->size_bytes, (long long)o->mtime_ns, SLICE_ARG(o->etag));
    return s->rc != 0 ? err_set(e, s->rc, "enough") : 0;
}

static int page(const char *doc, struct s3_list_page *p, const char *objects)
{
    struct seen s = {.text = BUF_INIT(64 << 10)};
    struct s3_list_events ev = {on_object, &s};
    struct err e = {0};
    int rc = s3_list_read(slice_str(doc), &ev, p, &e);

    assert_true(rc == 0 || e.text[0] != '\0');
    if (objects != NULL) {
        assert_string_equal(buf_cstr(&s.text), objects);
    }
    buf_free(&s.text);
    return rc;
}

#define LIST(inner)                                                                                \
    "<?xml version=\"1.0\" encoding=\"UTF-8\"?><ListBucketResult>" inner "</ListBucketResult>"
#define OBJECT(key) "<Contents><Key>" key "</Key><Size>1</Size></Contents>"

static void a_page_as_aws_writes_it(void **state)
{
    struct s3_list_page p;

    (void)state;
    assert_int_equal(
        page("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
             "<ListBucketResult xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"><Name>b</Name>"
             "<Prefix>a+b/</Prefix><NextContinuationToken>1/x+y==</NextContinuationToken>"
             "<KeyCount>2</KeyCount><EncodingType>url</EncodingType><MaxKeys>2</MaxKeys>"
             "<IsTruncated>true</IsTruncated><Contents><Key>a+b/c%2Bd%25</Key>"
             "<LastModified>2013-05-24T00:00:00.250Z</LastModified>"
             "<ETag>&quot;9b2cf535f27731c974343645a3985328-2&quot;</ETag>"
             "<ChecksumAlgorithm>SHA256</ChecksumAlgorithm><Size>434234</Size>"
             "<Owner><ID>Key</ID><DisplayName>x</DisplayName></Owner>"
             "<StorageClass>STANDARD</StorageClass></Contents>"
             "<Contents><Key>a+b/%00</Key><ETag>bare</ETag></Contents></ListBucketResult>",
             &p, NULL),
        0);
    assert_true(p.more);
    assert_string_equal(p.token, "1/x+y==");
    assert_int_equal(p.objects, 2);
    assert_int_equal(
        page(LIST("<Contents><Key>a+b/c%2Bd%25</Key><LastModified>2013-05-24T00:00:00.250Z"
                  "</LastModified><ETag>&quot;9b-2&quot;</ETag><Size>434234</Size></Contents>"
                  "<Contents><Key>x</Key><ETag>bare</ETag></Contents>"
                  "<EncodingType>url</EncodingType>"),
             &p,
             "[a b/c+d%|434234|1369353600250000000|\"9b-2\"][x|-1|-9223372036854775808|\"bare\"]"),
        0);
    assert_false(p.more);
}

static void keys_are_raw_unless_the_page_says_otherwise(void **state)
{
    struct s3_list_page p;

    (void)state;
    assert_int_equal(
        page(LIST(OBJECT("a+b%20&amp;&#233;")), &p, "[a+b%20&\xc3\xa9|1|-9223372036854775808|]"),
        0);
    assert_int_equal(page(LIST("<EncodingType>url</EncodingType>" OBJECT("bad%2") OBJECT("%zz")
                                   OBJECT("") OBJECT("good")),
                          &p, "[good|1|-9223372036854775808|]"),
                     0);
    assert_int_equal(p.left_out, 3);
    assert_int_equal(p.objects, 4);
}

static void what_breaks_a_field_is_no_etag(void **state)
{
    struct s3_list_page p;

    (void)state;
    assert_int_equal(
        page(LIST("<Contents><Key>k</Key><ETag>\"a\nb\"</ETag></Contents>"
                  "<Contents><Key>k</Key><ETag>\"a\"b\"</ETag></Contents>"
                  "<Contents><Key>k</Key><ETag>\"\"</ETag></Contents>"
                  "<Contents><Key>k</Key><Size>-1</Size></Contents>"
                  "<Contents><Key>k</Key><Size>99999999999999999999</Size></Contents>"),
             &p,
             "[k|-1|-9223372036854775808|][k|-1|-9223372036854775808|]"
             "[k|-1|-9223372036854775808|][k|-1|-9223372036854775808|]"
             "[k|-1|-9223372036854775808|]"),
        0);
}

static void pages_that_are_none(void **state)
{
    static const char *const bad[] = {
        "",
        "<",
        "<html></html>",
        "<Error><Code>x</Code></Error>",
        "<ListBucketResult>",
        LIST("<IsTruncated>true</IsTruncated>"),
        LIST("<IsTruncated>true</IsTruncated><NextContinuationToken></NextContinuationToken>"),
        LIST("<NextMarker>x</NextMarker><IsTruncated> True </IsTruncated>"),
        LIST("\xff"),
        "<!DOCTYPE ListBucketResult><ListBucketResult></ListBucketResult>",
        "<!DOCTYPE a [<!ENTITY x \"y\">]><ListBucketResult><Contents><Key>&x;</Key></Contents>"
        "</ListBucketResult>",
        LIST("&undefined;"),
        LIST("<a><a><a><a><a><a><a><a><a><a><a><a><a><a><a><a></a></a></a></a></a></a></a></a></a>"
             "</a></a></a></a></a></a></a>"),
    };
    struct s3_list_page p;

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        assert_int_equal(page(bad[i], &p, ""), E_INVALID);
    }
}

static void texts_and_tokens_have_bounds(void **state)
{
    struct buf doc = BUF_INIT(1 << 20);
    struct s3_list_page p;

    (void)state;
    buf_str(&doc, "<ListBucketResult><Contents><Key>");
    for (int i = 0; i < S3_KEY_MAX + 1; i++) {
        buf_byte(&doc, 'k');
    }
    buf_str(&doc, "</Key></Contents></ListBucketResult>");
    assert_int_equal(page(buf_cstr(&doc), &p, ""), 0);
    assert_int_equal(p.left_out, 1);
    buf_clear(&doc);
    buf_str(&doc, "<ListBucketResult><NextContinuationToken>");
    for (int i = 0; i < S3_TOKEN_MAX + 1; i++) {
        buf_byte(&doc, 't');
    }
    buf_str(&doc, "</NextContinuationToken></ListBucketResult>");
    assert_int_equal(page(buf_cstr(&doc), &p, ""), E_INVALID);
    buf_clear(&doc);
    buf_str(&doc, "<ListBucketResult><Name>");
    for (int i = 0; i < S3_XML_TEXT + 1; i++) {
        buf_byte(&doc, 'n');
    }
    buf_str(&doc, "</Name></ListBucketResult>");
    assert_int_equal(page(buf_cstr(&doc), &p, ""), E_INVALID);
    buf_free(&doc);
}

static void who_takes_the_objects_may_end_it(void **state)
{
    struct seen s = {.text = BUF_INIT(64), .rc = E_TOOBIG};
    struct s3_list_events ev = {on_object, &s};
    struct s3_list_page p;
    struct err e = {0};

    (void)state;
    assert_int_equal(s3_list_read(SLICE(LIST(OBJECT("a") OBJECT("b"))), &ev, &p, &e), E_TOOBIG);
    assert_string_equal(e.text, "enough");
    assert_string_equal(buf_cstr(&s.text), "[a|1|-9223372036854775808|]");
    buf_free(&s.text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_page_as_aws_writes_it),
        cmocka_unit_test(keys_are_raw_unless_the_page_says_otherwise),
        cmocka_unit_test(what_breaks_a_field_is_no_etag),
        cmocka_unit_test(pages_that_are_none),
        cmocka_unit_test(texts_and_tokens_have_bounds),
        cmocka_unit_test(who_takes_the_objects_may_end_it),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
