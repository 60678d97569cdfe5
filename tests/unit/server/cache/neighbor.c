#include "server/cache/neighbor.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <cmocka.h>

static struct origin *origin;

static const struct lookup_field forward[] = {
    {SENT, SLICE("accept"), SLICE("text/html"), SLICE("text/html")},
    {NEVER_SENT, SLICE("x-none"), {NULL, 0}, {NULL, 0}},
};
static const struct slice targets[] = {SLICE("cdn-cache-control")};
static const struct lookup_reader reader = {"one", NULL, NULL, NULL, NULL, NULL};

/* Each number differs from all others. */
static struct lookup example(void)
{
    struct lookup w = {
        .repo = SLICE("data"),
        .key = SLICE("a/b"),
        .class = LOOKUP_MUTABLE,
        .origin = origin,
        .url = SLICE("https://origin.example/a/b"),
        .accept = SLICE("*/*"),
        .forward = forward,
        .forwards = ARRAY_LEN(forward),
        .varies = true,
        .authorization = SLICE("Bearer x"),
        .principal = SLICE("me"),
        .redirects = REDIRECTS_AT_HOME,
        .digest_known = true,
        .sum.kind = LOOKUP_SUM_GIT_OID,
        .repr_digest = REPR_DIGEST_ASKED,
        .size_bytes = 1001,
        .max_bytes = 1002,
        .no_html = true,
        .reader = &reader,
        .targets = targets,
        .ntargets = ARRAY_LEN(targets),
        .ttl_s = 1003,
        .neg_ttl_s = 1004,
        .refusal_ttl_s = 1005,
        .swr_s = SWR_LIKE_TTL,
        .sie_s = UINT32_MAX,
        .floor_s = 1006,
        .ruled = RULED_SIE,
        .since_unix_s = 1007,
        .errors = REFUSALS_END_KEPT | TROUBLE_IS_ABSENCE,
        .client = 1008,
        .request_cache_control = {.refresh = true, .max_age_s = 1009, .max_stale_s = 1010},
        .background = true,
        .stored = STORED_IS_DOUBTED,
        .patience_ms = 1011};

    memset(w.digest.b, 7, DIGEST_BYTES);
    memset(&w.sum.git_oid, 8, sizeof w.sum.git_oid);
    return w;
}

static void check_texts(const struct lookup *a, const struct lookup *b)
{
    assert_true(slice_eq(a->repo, b->repo) && slice_eq(a->key, b->key));
    assert_true(slice_eq(a->url, b->url) && a->via.p == NULL && slice_eq(a->accept, b->accept));
    assert_true(slice_eq(a->authorization, b->authorization));
    assert_true(slice_eq(a->principal, b->principal) && a->content.p == NULL);
    assert_int_equal(a->forwards, 2);
    assert_true(slice_eqs(a->forward[0].value, "text/html") && a->forward[1].value.p == NULL);
    assert_int_equal(a->forward[1].sent, NEVER_SENT);
    assert_true(a->ntargets == 1 && slice_eq(a->targets[0], targets[0]));
}

static void check_numbers(const struct lookup *a, const struct lookup *b)
{
    assert_true(a->class == b->class && a->redirects == b->redirects);
    assert_true(a->varies && a->digest_known && a->no_html && a->background &&
                a->stored == b->stored);
    assert_true(!a->document && a->repr_digest == b->repr_digest);
    assert_memory_equal(&a->digest, &b->digest, sizeof a->digest);
    assert_int_equal(a->sum.kind, b->sum.kind);
    assert_memory_equal(&a->sum.git_oid, &b->sum.git_oid, sizeof a->sum.git_oid);
    assert_true(a->size_bytes == b->size_bytes && a->max_bytes == b->max_bytes);
    assert_true(a->ttl_s == b->ttl_s && a->neg_ttl_s == b->neg_ttl_s);
    assert_true(a->refusal_ttl_s == b->refusal_ttl_s && a->swr_s == b->swr_s);
    assert_true(a->sie_s == b->sie_s && a->floor_s == b->floor_s && a->ruled == b->ruled);
    assert_true(a->since_unix_s == b->since_unix_s && a->client == b->client);
    assert_true(a->patience_ms == b->patience_ms);
    assert_true(a->request_cache_control.refresh && !a->request_cache_control.bounded);
    assert_int_equal(a->request_cache_control.max_age_s, 1009);
    assert_int_equal(a->request_cache_control.max_stale_s, 1010);
}

static void a_lookup_arrives_as_it_was(void **state)
{
    struct buf text = BUF_INIT(NEIGHBOR_TEXT_MAX);
    struct lookup w = example();
    struct neighbor_asked got;
    struct arena a = {0};

    (void)state;
    assert_true(neighbor_text(&w, false, PARENT_IS_UNKNOWN, &text));
    assert_true(neighbor_lookup(buf_slice(&text), &a, &got));
    check_texts(&got.lookup, &w);
    check_numbers(&got.lookup, &w);
    assert_true(got.origin == origin_identity(origin) && slice_eqs(got.reader, "one"));
    assert_int_equal(got.lookup.asker, NEIGHBOR_ASKS);
    assert_int_equal(got.lookup.errors, REFUSALS_END_KEPT); /* the rest is the asker's own affair */
    assert_true(got.lookup.origin == NULL && got.lookup.hint_end == LENGTH_UNKNOWN);
    buf_clear(&text);
    assert_int_equal(got.lookup.parent, PARENT_IS_UNKNOWN);
    assert_true(neighbor_text(&w, true, PARENT_IS_DEAD, &text));
    assert_true(neighbor_lookup(buf_slice(&text), &a, &got));
    assert_int_equal(got.lookup.asker, NEIGHBOR_ASKS_HELD);
    assert_int_equal(got.lookup.parent, PARENT_IS_DEAD);
    arena_fini(&a);
    buf_free(&text);
}

static void a_damaged_one_is_refused(void **state)
{
    struct buf text = BUF_INIT(NEIGHBOR_TEXT_MAX);
    struct lookup w = example();
    struct neighbor_asked got;
    struct arena a = {0};

    (void)state;
    assert_true(neighbor_text(&w, false, PARENT_IS_UNKNOWN, &text));
    for (size_t n = 0; n < text.n; n += 4) { /* cut off between bytes */
        assert_false(neighbor_lookup(slice_of(text.p, n), &a, &got));
    }
    text.p[0] ^= 1; /* another version */
    assert_false(neighbor_lookup(buf_slice(&text), &a, &got));
    assert_false(neighbor_lookup(SLICE("!"), &a, &got));
    arena_fini(&a);
    buf_free(&text);
}

static void one_that_is_too_long_is_not_sent(void **state)
{
    struct buf text = BUF_INIT(NEIGHBOR_TEXT_MAX);
    char *key = mem_new(NEIGHBOR_TEXT_MAX);
    struct lookup w = example();

    (void)state;
    memset(key, 'k', NEIGHBOR_TEXT_MAX);
    w.key = slice_of(key, NEIGHBOR_TEXT_MAX);
    assert_false(neighbor_text(&w, false, PARENT_IS_UNKNOWN, &text));
    free(key);
    buf_free(&text);
}

static int open_origin(void **state)
{
    const struct origin_settings set = {.url = "https://origin.example/"};
    struct err e;

    (void)state;
    return origin_new("t", &set, &origin, &e);
}

static int close_origin(void **state)
{
    (void)state;
    origin_free(&origin);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_lookup_arrives_as_it_was),
        cmocka_unit_test(a_damaged_one_is_refused),
        cmocka_unit_test(one_that_is_too_long_is_not_sent),
    };
    return cmocka_run_group_tests(tests, open_origin, close_origin);
}
