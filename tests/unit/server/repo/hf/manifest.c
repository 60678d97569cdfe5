#include "server/repo/hf/manifest.h"

#include "server/repo/hf/info.h"
#include "tests/harness/ask.h"

#define OID1 "1111111111111111111111111111111111111111"
#define SHA2 "2222222222222222222222222222222222222222222222222222222222222222"
#define URL  "https://hub.example/api/models/org/name/tree/main?recursive=true"

static const char page1[] =
    "[{\"type\":\"file\",\"oid\":\"" OID1 "\",\"size\":7,\"path\":\"b.json\",\"xetHash\":\"55\"},"
    "{\"type\":\"directory\",\"oid\":\"" OID1 "\",\"size\":0,\"path\":\"a\"}]";
static const char page2[] =
    "[{\"type\":\"file\",\"oid\":\"" OID1
    "\",\"size\":134,\"path\":\"a/w.bin\",\"lfs\":{\"oid\":\"" SHA2
    "\",\"size\":5000000000,\"pointerSize\":134},\"xetHash\":\"55\"},"
    "{\"type\":\"file\",\"oid\":\"" OID1 "\",\"size\":3,\"path\":\"a/../../x\"},"
    "{\"type\":\"file\",\"oid\":\"" OID1 "\",\"size\":3,\"path\":\"a.txt\"},"
    "{\"type\":\"directory\",\"oid\":\"" OID1 "\",\"path\":\"a/d\"},"
    "{\"type\":\"file\",\"oid\":\"" OID1 "\",\"size\":9,\"path\":\"a/d/x\\u00fc\"}]";

static void open_both(struct buf *b, struct manifest *m)
{
    *b = BUF_INIT(1 << 20);
    assert_int_equal(manifest_add(slice_str(page1), SLICE(URL), true, false, b, NULL), 0);
    assert_int_equal(manifest_add(slice_str(page2), SLICE("x"), false, true, b, NULL), 0);
    assert_true(manifest_open(buf_slice(b), m));
}

static void pages_become_one(void **state)
{
    struct manifest_entry e;
    struct manifest m;
    struct buf b;

    (void)state;
    open_both(&b, &m);
    assert_slice(m.id, "org/name");
    assert_int_equal(m.count, 6);
    assert_true(manifest_find(&m, SLICE("a/w.bin"), &e));
    assert_true(e.lfs && !e.folder && e.size_bytes == 5000000000);
    assert_int_equal(e.sha256.b[0], 0x22);
    assert_true(manifest_find(&m, SLICE("b.json"), &e));
    assert_true(!e.lfs && e.size_bytes == 7 && e.oid.b[0] == 0x11);
    assert_true(manifest_find(&m, SLICE("a"), &e) && e.folder);
    assert_true(manifest_find(&m, SLICE("a/d/x\xc3\xbc"), &e));
    assert_false(manifest_find(&m, SLICE("a/"), &e));
    assert_false(manifest_find(&m, SLICE("zzz"), &e));
    assert_false(manifest_find(&m, SLICE(""), &e));
    assert_true(manifest_smallest(&m, &e));
    assert_slice(e.path, "a.txt");
    buf_free(&b);
}

static void list(const struct manifest *m, const char *folder, bool recursive, const char *lookup)
{
    struct buf b = BUF_INIT(1 << 16);
    struct slice rest;
    struct buf names = BUF_INIT(1 << 16);

    assert_int_equal(manifest_list(m, slice_str(folder), recursive, UINT64_MAX, &b), 0);
    assert_null(memmem(b.p, b.n, "xet", 3));
    rest = buf_slice(&b);
    for (const char *at; (at = memmem(rest.p, rest.n, "\"path\":\"", 8)) != NULL;) {
        rest = slice_from(rest, (size_t)(at - rest.p) + 8);
        buf_adds(&names, slice_cut(&rest, '"'));
        buf_byte(&names, ' ');
    }
    assert_slice(buf_slice(&names), lookup);
    buf_free(&names);
    buf_free(&b);
}

static void listings(void **state)
{
    struct buf none = BUF_INIT(100);
    struct manifest m;
    struct buf b;

    (void)state;
    open_both(&b, &m);
    list(&m, "", false, "a a.txt b.json ");
    list(&m, "", true, "a a.txt a/d a/d/x\xc3\xbc a/w.bin b.json ");
    list(&m, "a", false, "a/d a/w.bin ");
    list(&m, "a/d", true, "a/d/x\xc3\xbc ");
    assert_int_equal(manifest_list(&m, SLICE("b.json"), false, UINT64_MAX, &none), E_NOTFOUND);
    assert_int_equal(manifest_list(&m, SLICE("x"), true, UINT64_MAX, &none), E_NOTFOUND);
    assert_true(manifest_has_folder(&m, SLICE("")) && manifest_has_folder(&m, SLICE("a/d")));
    assert_false(manifest_has_folder(&m, SLICE("b.json")) || manifest_has_folder(&m, SLICE("x")) ||
                 manifest_has_folder(&m, SLICE("zz")));
    buf_free(&none);
    buf_free(&b);
}

static void broken_pages(void **state)
{
    static const char *const row[] = {
        "",
        "{}",
        "[",
        "[{\"type\":\"file\",\"path\":\"a\",\"size\":1}]",
        "[{\"type\":\"file\",\"path\":\"a\",\"oid\":\"" OID1 "\"}]",
        "[{\"type\":\"file\",\"path\":\"a\",\"oid\":\"" OID1 "\",\"size\":-1}]",
        "[{\"type\":\"file\",\"path\":\"a\",\"oid\":\"" OID1 "\",\"size\":1,\"lfs\":{}}]",
        "[{\"type\":\"file\",\"path\":\"a\",\"oid\":\"" OID1 "\",\"size\":1},"
        "{\"type\":\"file\",\"path\":\"a\",\"oid\":\"" OID1 "\",\"size\":1}]",
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(row); i++) {
        struct buf b = BUF_INIT(1 << 16);
        if (manifest_add(slice_str(row[i]), SLICE(URL), true, true, &b, NULL) == 0) {
            fail_msg("%s was taken", row[i]);
        }
        buf_free(&b);
    }
}

static void an_empty_commit(void **state)
{
    struct buf b = BUF_INIT(1 << 16);
    struct buf out = BUF_INIT(16);
    struct manifest_entry e;
    struct manifest m;

    (void)state;
    assert_int_equal(manifest_add(SLICE("[]"), SLICE(""), true, true, &b, NULL), 0);
    assert_true(manifest_open(buf_slice(&b), &m));
    assert_int_equal(m.count, 0);
    assert_false(manifest_smallest(&m, &e));
    assert_int_equal(manifest_list(&m, SLICE(""), true, UINT64_MAX, &out), 0);
    assert_slice(buf_slice(&out), "[]");
    assert_false(manifest_open(SLICE("short"), &m));
    buf_free(&out);
    buf_free(&b);
}

/* Everybody may read those: nobody's right shows on them. */
static void no_right_is_tried_on_a_card(void **state)
{
    static const char cards[] =
        "[{\"type\":\"file\",\"oid\":\"" OID1 "\",\"size\":1,\"path\":\"README.md\"},"
        "{\"type\":\"file\",\"oid\":\"" OID1 "\",\"size\":2,\"path\":\".gitattributes\"},"
        "{\"type\":\"file\",\"oid\":\"" OID1 "\",\"size\":3,\"path\":\"a/README.md\"}";
    static const char other[] =
        ",{\"type\":\"file\",\"oid\":\"" OID1 "\",\"size\":9,\"path\":\"README.md.bin\"}";
    struct manifest_entry e;
    struct manifest m;

    (void)state;
    for (int more = 0; more <= 1; more++) {
        struct buf page = BUF_INIT(1 << 16), b = BUF_INIT(1 << 16);
        buf_addf(&page, "%s%s]", cards, more == 1 ? other : "");
        assert_int_equal(manifest_add(buf_slice(&page), SLICE(""), true, true, &b, NULL), 0);
        assert_true(manifest_open(buf_slice(&b), &m));
        assert_int_equal(manifest_smallest(&m, &e), more == 1);
        assert_true(more == 0 || slice_eqs(e.path, "README.md.bin"));
        buf_free(&page);
        buf_free(&b);
    }
}

static void what_leads_to_the_hubs_store_stays(void **state)
{
    struct buf b = BUF_INIT(1 << 16);

    (void)state;
    assert_int_equal(
        json_join(SLICE("{\"casUrl\":\"u\",\"accessToken\":\"t\",\"exp\":1}"), true, &b, NULL), 0);
    assert_slice(buf_slice(&b), "{\"exp\":1}");
    buf_clear(&b);
    assert_int_equal(
        json_join(SLICE("{\"auth\":{\"accessToken\":{\"role\":\"read\"}}}"), true, &b, NULL), 0);
    assert_slice(buf_slice(&b), "{\"auth\":{\"accessToken\":{\"role\":\"read\"}}}");
    buf_clear(&b);
    assert_int_equal(info_about(SLICE("{\"id\":\"a/b\",\"xetEnabled\":true}"), &b, NULL), 0);
    assert_slice(buf_slice(&b), "{\"id\":\"a/b\"}");
    assert_int_equal(info_about(SLICE("{\"token\":\"t\"}"), &b, NULL), E_PROTOCOL);
    assert_int_equal(info_about(SLICE("[\"https://hub/x.parquet\"]"), &b, NULL), E_PROTOCOL);
    assert_int_equal(right_read(SLICE("{}"), NULL), 0);
    assert_int_equal(right_read(SLICE(""), NULL), 0);
    assert_int_equal(right_read(SLICE(" <html>"), NULL), E_PROTOCOL);
    buf_free(&b);
}

static void what_the_hub_says_of_a_repo(void **state)
{
    static const char doc[] = "{\"id\":\"org/name\",\"sha\":\"" OID1
                              "\",\"private\":false,\"gated\":\"auto\",\"xetEnabled\":true,"
                              "\"siblings\":[{\"rfilename\":\"a\",\"xetHash\":\"5\"}]}";
    struct buf b = BUF_INIT(1 << 16);
    struct repo_info info;

    (void)state;
    assert_int_equal(info_make(slice_str(doc), &b, NULL), 0);
    assert_true(info_read(buf_slice(&b), &info));
    assert_slice(info.id, "org/name");
    assert_slice(info.commit, OID1);
    assert_true(info.closed && !info.private);
    assert_slice(info.json,
                 "{\"id\":\"org/name\",\"sha\":\"" OID1
                 "\",\"private\":false,\"gated\":\"auto\",\"siblings\":[{\"rfilename\":\"a\"}]}");
    buf_clear(&b);
    assert_int_equal(info_make(SLICE("{\"id\":\"../x\",\"sha\":\"" OID1 "\"}"), &b, NULL),
                     E_PROTOCOL);
    assert_int_equal(info_make(SLICE("[1]"), &b, NULL), E_PROTOCOL);
    assert_false(info_read(SLICE("x"), &info));
    buf_free(&b);
}

static void lists_are_joined(void **state)
{
    static const char *const parts[][4] = {
        {"[1,2]", "[3]", NULL, "[1,2,3]"},
        {"[]", "[3]", NULL, "[3]"},
        {"[1]", "[]", "[{\"xetHash\":1,\"a\":[]}]", "[1,{\"a\":[]}]"},
        {"[]", "[]", NULL, "[]"},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(parts); i++) {
        struct buf b = BUF_INIT(1000);
        for (int j = 0; j < 3 && parts[i][j] != NULL; j++) {
            assert_int_equal(json_join(slice_str(parts[i][j]), j == 0, &b, NULL), 0);
        }
        assert_slice(buf_slice(&b), parts[i][3]);
        assert_int_equal(json_join(SLICE("{}"), false, &b, NULL), E_PROTOCOL);
        buf_free(&b);
    }
}

/* In any order, some twice, some not there. */
static void many_objects_in_one_walk(void **state)
{
    enum { FILES = 100, WANTED = 2 * FILES };
    struct manifest_wanted wanted[WANTED], *sorted[WANTED];
    struct buf page = BUF_INIT(1 << 20), b = BUF_INIT(1 << 20);
    struct manifest_entry one;
    struct manifest m;

    (void)state;
    for (unsigned i = 0; i < FILES; i++) { /* two files of each content */
        buf_addf(&page,
                 "%c{\"type\":\"file\",\"oid\":\"" OID1
                 "\",\"size\":134,\"path\":\"%03u\",\"lfs\":{\"oid\":\"%064x\",\"size\":%u}}",
                 i == 0 ? '[' : ',', i, i / 2 * 7919 % 50, i / 2);
    }
    buf_byte(&page, ']');
    assert_int_equal(manifest_add(buf_slice(&page), SLICE(URL), true, true, &b, NULL), 0);
    assert_true(manifest_open(buf_slice(&b), &m));
    for (unsigned i = 0; i < WANTED; i++) {
        wanted[i] = (struct manifest_wanted){.found = false};
        wanted[i].sha256.b[DIGEST_BYTES - 1] = (uint8_t)(i * 13 % 75);
        sorted[i] = &wanted[i];
    }
    manifest_find_all_lfs(&m, sorted, WANTED);
    for (unsigned i = 0; i < WANTED; i++) {
        assert_int_equal(wanted[i].found, manifest_find_lfs(&m, &wanted[i].sha256, &one));
        assert_int_equal(wanted[i].found, i * 13 % 75 < 50);
        if (wanted[i].found) {
            assert_true(slice_eq(wanted[i].file.path, one.path));
        }
    }
    manifest_find_all_lfs(&m, sorted, 0);
    buf_free(&page);
    buf_free(&b);
}

TESTS(cmocka_unit_test(pages_become_one), cmocka_unit_test(listings),
      cmocka_unit_test(broken_pages), cmocka_unit_test(an_empty_commit),
      cmocka_unit_test(no_right_is_tried_on_a_card),
      cmocka_unit_test(what_leads_to_the_hubs_store_stays),
      cmocka_unit_test(what_the_hub_says_of_a_repo), cmocka_unit_test(lists_are_joined),
      cmocka_unit_test(many_objects_in_one_walk))
