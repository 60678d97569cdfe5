#include "server/repo/hf/catalog.h"

#include "server/repo/hf/info.h"
#include "tests/harness/ask.h"

#define A32 "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
#define B32 "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"

static const char page1[] =
    "[{\"type\":\"file\",\"path\":\"d/b\",\"size\":2,\"xetHash\":\"" A32 B32 "\"},"
    "{\"type\":\"directory\",\"path\":\"d\"},"
    "{\"type\":\"file\",\"path\":\"none\",\"size\":3,\"xetHash\":null},"
    "{\"type\":\"file\",\"path\":\"hidden\",\"size\":3,\"xetHash\":\"**\"},"
    "{\"type\":\"file\",\"path\":\"../x\",\"size\":3}]";
static const char page2[] =
    "[{\"type\":\"file\",\"path\":\"a\",\"size\":1,\"xetHash\":\"" B32 A32 "\"},"
    "{\"type\":\"file\",\"path\":\"d/b\",\"size\":2,\"xetHash\":\"" A32 B32 "\"}]";

static struct slice catalog_of(struct buf *b, enum catalog_order order)
{
    *b = BUF_INIT(1 << 16);
    assert_int_equal(catalog_add(slice_str(page1), order, true, false, b, NULL), 0);
    assert_int_equal(catalog_add(slice_str(page2), order, false, true, b, NULL), 0);
    return buf_slice(b);
}

static void files_are_found_by_path(void **state)
{
    struct catalog_file f;
    struct buf b;
    struct slice c = catalog_of(&b, CATALOG_BY_PATH);

    (void)state;
    assert_true(catalog_find(c, SLICE("a"), &f) && f.named && f.size_bytes == 1);
    assert_int_equal(f.hash.b[0], 0xbb);
    assert_true(catalog_find(c, SLICE("d/b"), &f) && f.named && f.size_bytes == 2);
    assert_true(catalog_find(c, SLICE("none"), &f) && !f.named);
    assert_true(catalog_find(c, SLICE("hidden"), &f) && !f.named);
    assert_false(catalog_find(c, SLICE("d"), &f));
    assert_false(catalog_find(c, SLICE("zz"), &f));
    assert_false(catalog_find(c, SLICE("../x"), &f));
    buf_free(&b);
}

static void words_are_those_that_clients_are_reported(void **state)
{
    static const char page[] =
        "[{\"type\":\"file\",\"path\":\"a\",\"size\":1,\"xetHash\":\"" A32 B32
        "\"},{\"type\":\"file\",\"path\":\"b/c\",\"size\":2}]";
    struct buf b = BUF_INIT(1 << 16);
    struct catalog_file f;
    struct slice c;

    (void)state;
    for (int hashes = 0; hashes < 2; hashes++) {
        assert_int_equal(catalog_add(slice_str(page),
                                     hashes ? CATALOG_OF_WORDS : CATALOG_OF_WORDS_WITHOUT_HASHES,
                                     true, true, &b, NULL),
                         0);
        c = buf_slice(&b);
        assert_true(catalog_find(c, SLICE("a"), &f));
        assert_true(f.named && f.size_bytes == 1);
        assert_non_null(memmem(f.words.p, f.words.n, "\"path\":\"a\"", 10));
        assert_int_equal(memmem(f.words.p, f.words.n, A32 B32, 64) != NULL, hashes);
        assert_true(catalog_find(c, SLICE("b/c"), &f));
        assert_non_null(memmem(f.words.p, f.words.n, "\"xetHash\":null", 14));
        assert_true(catalog_reaches(c, SLICE("a0")) && catalog_reaches(c, SLICE("b/c")));
        assert_false(catalog_reaches(c, SLICE("b/d")));
    }
    buf_free(&b);
    assert_false(catalog_reaches(catalog_of(&b, CATALOG_BY_PATH), SLICE("a"))); /* in no order */
    buf_free(&b);
    assert_false(catalog_reaches(SLICE(""), SLICE("a")));
}

static void files_are_found_by_hash(void **state)
{
    struct catalog_file f;
    struct digest d;
    struct buf b;
    struct slice c = catalog_of(&b, CATALOG_BY_HASH);

    (void)state;
    assert_true(digest_parse(SLICE(A32 B32), &d) && catalog_find_hash(c, &d, &f));
    assert_slice(f.path, "d/b");
    assert_true(digest_parse(SLICE(B32 A32), &d) && catalog_find_hash(c, &d, &f));
    assert_slice(f.path, "a");
    assert_true(digest_parse(SLICE(A32 A32), &d));
    assert_false(catalog_find_hash(c, &d, &f));
    memset(&d, 0, sizeof d); /* of files without a hash */
    assert_false(catalog_find_hash(c, &d, &f));
    buf_free(&b);
}

static void an_empty_bucket_has_no_file(void **state)
{
    struct buf b = BUF_INIT(1 << 16);
    struct catalog_file f;

    (void)state;
    assert_int_equal(catalog_add(SLICE("[]"), CATALOG_BY_PATH, true, true, &b, NULL), 0);
    assert_false(catalog_find(buf_slice(&b), SLICE("a"), &f));
    assert_false(catalog_find(SLICE(""), SLICE("a"), &f));
    buf_free(&b);
}

static void the_last_upload_is_known(void **state)
{
    static const char *const pages[] = {
        "[{\"type\":\"file\",\"path\":\"b\",\"size\":1,"
        "\"uploadedAt\":\"2026-01-02T03:04:06.789Z\"}]",
        "[{\"type\":\"file\",\"path\":\"a\",\"size\":1,"
        "\"uploadedAt\":\"2026-01-02T03:04:05.000Z\"},"
        "{\"type\":\"file\",\"path\":\"c\",\"size\":1,\"uploadedAt\":\"soon\"},"
        "{\"type\":\"file\",\"path\":\"d\",\"size\":1}]"};
    struct buf catalog = BUF_INIT(1 << 16), uploads = BUF_INIT(1 << 16), none;

    (void)state;
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(
            catalog_add(slice_str(pages[i]), CATALOG_BY_PATH, i == 0, i == 1, &catalog, NULL), 0);
        assert_int_equal(uploads_add(slice_str(pages[i]), i == 0, &uploads, NULL), 0);
    }
    assert_int_equal(catalog_uploaded_unix_s(buf_slice(&catalog)), 1767323046);
    assert_int_equal(uploads_unix_s(buf_slice(&uploads)), 1767323046);
    assert_int_equal(uploads_add(SLICE("[]"), true, &uploads, NULL), 0);
    assert_int_equal(uploads_unix_s(buf_slice(&uploads)), 0);
    assert_int_equal(uploads_add(SLICE("{"), true, &uploads, NULL), E_PROTOCOL);
    assert_int_equal(catalog_uploaded_unix_s(catalog_of(&none, CATALOG_BY_HASH)), 0);
    assert_int_equal(catalog_uploaded_unix_s(SLICE("")), 0);
    assert_int_equal(uploads_unix_s(SLICE("")), 0);
    buf_free(&catalog);
    buf_free(&uploads);
    buf_free(&none);
}

static void broken_listings_are_refused(void **state)
{
    static const char *const broken[] = {"", "{}", "[{\"type\":\"file\",\"path\":\"a\"}]"};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(broken); i++) {
        struct buf b = BUF_INIT(1 << 16);
        assert_int_equal(catalog_add(slice_str(broken[i]), CATALOG_BY_PATH, true, true, &b, NULL),
                         E_PROTOCOL);
        buf_free(&b);
    }
}

static void clients_are_reported_hashes_and_nothing_else(void **state)
{
    static const char doc[] =
        "[{\"type\":\"file\",\"path\":\"a\",\"xetHash\":\"" A32 B32
        "\",\"casUrl\":\"x\",\"accessToken\":\"x\"},"
        "{\"type\":\"file\",\"path\":\"b\",\"xetHash\":\"short\"},"
        "{\"type\":\"directory\",\"path\":\"c\",\"xetHash\":\"" A32 B32 "\"}]";
    struct buf b = BUF_INIT(1 << 16);

    (void)state;
    assert_int_equal(json_bucket(slice_str(doc), true, true, &b, NULL), 0);
    assert_slice(buf_slice(&b), "[{\"type\":\"file\",\"path\":\"a\",\"xetHash\":\"" A32 B32
                                "\"},{\"type\":\"file\",\"path\":\"b\",\"xetHash\":null},"
                                "{\"type\":\"directory\",\"path\":\"c\"}]");
    buf_clear(&b);
    assert_int_equal(json_bucket(slice_str(doc), false, true, &b, NULL), 0);
    assert_true(
        slice_starts(buf_slice(&b), SLICE("[{\"type\":\"file\",\"path\":\"a\",\"xetHash\":null}")));
    buf_free(&b);
}

TESTS(cmocka_unit_test(files_are_found_by_path), cmocka_unit_test(files_are_found_by_hash),
      cmocka_unit_test(words_are_those_that_clients_are_reported),
      cmocka_unit_test(an_empty_bucket_has_no_file), cmocka_unit_test(the_last_upload_is_known),
      cmocka_unit_test(broken_listings_are_refused),
      cmocka_unit_test(clients_are_reported_hashes_and_nothing_else))
