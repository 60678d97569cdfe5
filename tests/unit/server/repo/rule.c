#include "tests/harness/ask.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#define RULE(...)                                                                                  \
    (&(struct rule_conf){.ttl_s = -1,                                                              \
                         .neg_ttl_s = -1,                                                          \
                         .stale_while_s = -1,                                                      \
                         .swr_s = -1,                                                              \
                         .sie_s = -1,                                                              \
                         .floor_s = -1,                                                            \
                         __VA_ARGS__})

static int compile_one(const struct rule_conf *c, struct err *e)
{
    struct rules *rs = NULL;
    int rc = rules_compile(c, 1, &rs, e);

    assert_true((rc == 0) == (rs != NULL));
    rules_free(&rs);
    return rc;
}

static void first_match_wins(void **state)
{
    struct rule_conf conf[] = {
        *RULE(.pattern = "^private/", .class = "deny"),
        *RULE(.pattern = "\\.tar\\.gz$", .class = "immutable"),
        {.pattern = "^old/",
         .ttl_s = -1,
         .neg_ttl_s = -1,
         .stale_while_s = -1,
         .swr_s = 2,
         .sie_s = -1,
         .floor_s = -1},
        {.pattern = "",
         .ttl_s = 10,
         .neg_ttl_s = 0,
         .stale_while_s = 3,
         .swr_s = 2,
         .sie_s = 4,
         .floor_s = 300},
    };
    struct rules *rs;
    const struct rule *r;

    (void)state;
    assert_int_equal(rules_compile(conf, ARRAY_LEN(conf), &rs, NULL), 0);
    assert_int_equal(rules_match(rs, SLICE("private/a.tar.gz"))->class, RULE_DENY);
    r = rules_match(rs, SLICE("x/a.tar.gz"));
    assert_int_equal(r->class, RULE_IMMUTABLE);
    assert_false(r->built_in);
    assert_int_equal(r->floor_s, 5);
    assert_int_equal(r->ruled & (RULED_FLOOR | RULED_SWR), 0);
    r = rules_match(rs, SLICE("old/x")); /* by the older name */
    assert_true((r->ruled & RULED_SWR) != 0 && r->swr_s == 2);
    r = rules_match(rs, SLICE("x"));
    assert_int_equal(r->ruled & (RULED_FLOOR | RULED_SWR), RULED_FLOOR | RULED_SWR);
    assert_int_equal(r->class, RULE_MUTABLE);
    assert_int_equal(r->ttl_s, 10);
    assert_int_equal(r->neg_ttl_s, 0);
    assert_int_equal(r->floor_s, 300);
    assert_int_equal(r->swr_s, 3);
    assert_int_equal(r->sie_s, 4);
    assert_false(rules_match(rs, SLICE_NONE)->built_in);
    rules_free(&rs);
}

static void without_a_match_the_origin_decides(void **state)
{
    struct lookup w = {0};
    const struct rule *r = rules_match(NULL, SLICE("a"));

    (void)state;
    assert_true(r->built_in);
    rule_apply(r, SLICE("a"), &w);
    assert_int_equal(w.class, LOOKUP_MUTABLE);
    assert_int_equal(w.ttl_s, TTL_ORIGIN);
    assert_int_equal(w.sie_s, UINT32_MAX);
    assert_int_equal(w.floor_s, 5);
    assert_null(w.status_map);
}

static void digest_of_a_path(void **state)
{
    static const char hex[] = "00112233445566778899AABBCCDDEEFF00112233445566778899aabbccddeeff";
    struct rules *rs;
    char path[512];
    struct lookup w = {0};
    char got[DIGEST_HEX + 1];

    (void)state;
    assert_int_equal(
        rules_compile(RULE(.pattern = "by-hash", .class = "immutable", .digest_from = "path"), 1,
                      &rs, NULL),
        0);
    snprintf(path, sizeof path, "by-hash/SHA256/%s", hex);
    rule_apply(rules_match(rs, slice_str(path)), slice_str(path), &w);
    assert_true(w.digest_known);
    digest_format(&w.digest, got);
    assert_string_equal(got, "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff");

    w = (struct lookup){0}; /* SHA-512, MD5: no digest of ours */
    snprintf(path, sizeof path, "by-hash/SHA512/%s%s", hex, hex);
    rule_apply(rules_match(rs, slice_str(path)), slice_str(path), &w);
    assert_false(w.digest_known);
    rule_apply(rules_match(rs, SLICE("by-hash/MD5Sum/00ff")), SLICE("by-hash/MD5Sum/00ff"), &w);
    assert_false(w.digest_known);
    rules_free(&rs);
}

static void status_maps(void **state)
{
    struct rules *rs;
    struct lookup w = {0};

    (void)state;
    assert_int_equal(
        rules_compile(RULE(.pattern = ".", .status_map = "403:404  410:404"), 1, &rs, NULL), 0);
    rule_apply(rules_match(rs, SLICE("a")), SLICE("a"), &w);
    assert_int_equal(w.status_maps, 2);
    assert_int_equal(w.status_map[1].from, 410);
    assert_int_equal(w.status_map[1].to, 404);
    rules_free(&rs);
    for (size_t i = 0; i < 5; i++) {
        static const char *const bad[] = {
            "403", "403:", "a:b", "403:200",
            "403:404 403:404 403:404 403:404 403:404 403:404 403:404 403:404 403:404"};
        assert_int_equal(compile_one(RULE(.pattern = ".", .status_map = bad[i]), NULL), E_CONFIG);
    }
}

static void wrong_rules_say_why(void **state)
{
    struct err e = {0};

    (void)state;
    assert_int_equal(compile_one(RULE(.pattern = "a("), &e), E_CONFIG);
    assert_non_null(strstr(e.text, "rule 'a('"));
    assert_int_equal(compile_one(RULE(.pattern = "a", .class = "forever"), &e), E_CONFIG);
    assert_int_equal(compile_one(RULE(.pattern = "a", .digest_from = "md5"), &e), E_CONFIG);
    assert_int_equal(compile_one(RULE(.pattern = "(*UTF)a"), &e), E_CONFIG);
    assert_int_equal(compile_one(RULE(.pattern = "\\C"), &e), E_CONFIG);
}

static void a_path_that_hurts_is_denied(void **state)
{
    struct rules *rs;
    char path[64];

    (void)state;
    assert_int_equal(rules_compile(RULE(.pattern = "^(a+)+$", .class = "immutable"), 1, &rs, NULL),
                     0);
    memset(path, 'a', sizeof path);
    assert_int_equal(rules_match(rs, slice_of(path, 40))->class, RULE_IMMUTABLE);
    path[sizeof path - 1] = '!';
    assert_int_equal(rules_match(rs, slice_of(path, sizeof path))->class, RULE_DENY);
    rules_free(&rs);
}

static void paths_are_bytes(void **state)
{
    struct rules *rs;

    (void)state;
    assert_int_equal(rules_compile(RULE(.pattern = "^x.y$", .class = "immutable"), 1, &rs, NULL),
                     0);
    assert_int_equal(rules_match(rs, SLICE("x\xffy"))->class, RULE_IMMUTABLE);
    assert_true(
        rules_match(rs, SLICE("xay\n"))->built_in); /* '$' is the end, not a newline before it */
    rules_free(&rs);
}

static void *match_often(void *arg)
{
    for (int i = 0; i < 2000; i++) {
        CHECK(rules_match(arg, SLICE("a/b/c.tar.gz"))->class == RULE_IMMUTABLE);
    }
    return NULL;
}

static void threads_share_rules(void **state)
{
    struct rules *rs;
    pthread_t t[4];

    (void)state;
    assert_int_equal(
        rules_compile(RULE(.pattern = "\\.tar\\.gz$", .class = "immutable"), 1, &rs, NULL), 0);
    for (size_t i = 0; i < ARRAY_LEN(t); i++) {
        assert_int_equal(pthread_create(&t[i], NULL, match_often, rs), 0);
    }
    for (size_t i = 0; i < ARRAY_LEN(t); i++) {
        pthread_join(t[i], NULL);
    }
    rules_free(&rs);
}

TESTS(cmocka_unit_test(first_match_wins), cmocka_unit_test(without_a_match_the_origin_decides),
      cmocka_unit_test(digest_of_a_path), cmocka_unit_test(status_maps),
      cmocka_unit_test(wrong_rules_say_why), cmocka_unit_test(a_path_that_hurts_is_denied),
      cmocka_unit_test(paths_are_bytes), cmocka_unit_test(threads_share_rules))
