#include "server/cache/variant.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

static struct arena arena;

/* "name=value name" in order; a name alone: the request had none. */
static struct lookup lookup_of(const char *text)
{
    struct lookup_field *f = arena_alloc(&arena, VARIANT_FIELDS * sizeof *f);
    struct slice rest = slice_str(text);
    struct lookup w = {.forward = f};

    while (rest.n > 0) {
        struct slice value = slice_cut(&rest, ' ');
        bool has = slice_find(value, '=') >= 0;
        f[w.forwards].name = slice_cut(&value, '=');
        f[w.forwards].value = f[w.forwards].same = has ? value : SLICE_NONE;
        w.forwards++;
    }
    return w;
}

static struct slice tail_of(const struct lookup *w, const char *vary)
{
    struct http_field fields[] = {{SLICE("etag"), SLICE("accept")},
                                  {SLICE("vary"), slice_str(vary)}};

    return variant_of_answer(w, fields, ARRAY_LEN(fields), &arena);
}

static struct slice all_of(const struct lookup *w, const char *vary)
{
    struct http_field field = {SLICE("vary"), slice_str(vary)};

    return variant_of_all(w, &field, 1, &arena);
}

static int teardown(void **state)
{
    (void)state;
    arena_fini(&arena);
    return 0;
}

static void reported_by_what_vary_names(void **state)
{
    struct lookup w = lookup_of("accept=a/b accept-language x-kind=c:d");

    (void)state;
    assert_true(slice_eqs(tail_of(&w, "Accept"), "~accept:a/b\n"));
    assert_true(slice_eqs(tail_of(&w, " X-Kind ,accept-LANGUAGE,, Origin"),
                          "~accept-language\nx-kind:c:d\n"));
    assert_true(slice_eqs(tail_of(&w, "Accept-Encoding, Acc"), ""));
    assert_true(slice_eqs(all_of(&w, ""), "~accept:a/b\naccept-language\nx-kind:c:d\n"));
    assert_true(
        slice_eqs(variant_like(&w, SLICE("~accept:z\nx-other:y\n"), &arena), "~accept:a/b\n"));
}

static void reported_by_all_that_vary_names(void **state)
{
    struct lookup w = lookup_of("accept=a/b x-kind=1");
    struct lookup_field *f = arena_alloc(&arena, 2 * sizeof *f);
    struct lookup sent = w;

    (void)state;
    w.varies = sent.varies = true;
    assert_true(slice_eqs(tail_of(&w, "X-Zero, Accept,accept, User-Agent, Sec-Fetch-Mode"),
                          "~accept:a/b\nx-zero\n"));
    assert_true(
        slice_eqs(variant_like(&w, SLICE("~x-kind:2\nx-zero:1\n"), &arena), "~x-kind:1\nx-zero\n"));
    memcpy(f, w.forward, 2 * sizeof *f);
    f[0].sent = SENT_ONCE_NAMED;
    f[1].sent = NEVER_SENT;
    w.forward = f;
    assert_true(slice_eqs(all_of(&w, ""), ""));
    assert_true(slice_eqs(all_of(&w, "Accept, X-Zero"), "~accept:a/b\nx-zero\n"));
    sent.forward = variant_sent(&w, &arena);
    assert_true(slice_eqs(tail_of(&sent, "Accept, X-Kind"), "~accept\nx-kind:1\n"));
    w.forward = variant_send(&w, SLICE("~accept\n"), &arena);
    w.forward = variant_send(&w, SLICE("~x-zero\n"), &arena); /* what was named once stays named */
    sent.forward = variant_sent(&w, &arena);
    assert_true(sent.forward[0].sent == SENT && slice_eqs(sent.forward[0].value, "a/b"));
}

/* Whatever an origin calls a field: who asked for an answer is one of those that it is for. */
static void an_answer_matches_its_request(void **state)
{
    static const char *const varies[] = {"a:b",  "~foo", "a, ~foo", "foo, ~", "x y",
                                         "a:b:", ":",    "",        "\x7f"};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(varies); i++) {
        struct lookup w = lookup_of("a=1 foo=2 ~foo=3");
        w.varies = true;
        assert_true(vary_matches(tail_of(&w, varies[i]), &w));
        assert_true(variant_alike(tail_of(&w, varies[i]), tail_of(&w, varies[i])));
    }
}

static void suits_by_values_alone(void **state)
{
    static const struct {
        const char *lookup;
        bool suits;
    } cases[] = {
        {"accept=a/b x-kind", true},
        {"accept=a/b accept-language=de x-kind", true},
        {"accept=a/c x-kind", false},
        {"accept x-kind", false},
        {"accept=a/b x-kind=", false},
        {"accept=a/b x-kind=1", false},
        {"accept=a/b", true} /* x-kind is not forwarded any more: the origin gets none */,
        {"x-kind", false},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct lookup w = lookup_of(cases[i].lookup);
        if (vary_matches(SLICE("~accept:a/b\nx-kind\n"), &w) != cases[i].suits) {
            fail_msg("%s", cases[i].lookup);
        }
        assert_true(vary_matches(SLICE(""), &w));
    }
}

static void alike_by_names(void **state)
{
    (void)state;
    assert_true(variant_alike(SLICE(""), SLICE("")));
    assert_true(variant_alike(SLICE("~accept:a\nx\n"), SLICE("~accept\nx:1\n")));
    assert_false(variant_alike(SLICE("~accept:a\n"), SLICE("")));
    assert_false(variant_alike(SLICE("~accept:a\n"), SLICE("~accept:a\nx\n")));
    assert_false(variant_alike(SLICE("~accept:a\n"), SLICE("~accepts:a\n")));
}

/* A row of before the repo forwarded the field is for those without it. */
static void answers_as_its_vary_says(void **state)
{
    struct lookup with = lookup_of("accept=a/b"), without = lookup_of("accept");
    struct object o = {.fields = {{SLICE("vary"), SLICE("accept")}}, .nfields = 1};

    (void)state;
    assert_false(variant_answers(&o, SLICE(""), &with));
    assert_true(variant_answers(&o, SLICE(""), &without));
    assert_true(variant_answers(&o, SLICE("~accept:a/b\n"), &with));
    o.nfields = 0;
    assert_true(variant_answers(&o, SLICE(""), &with));
    assert_false(variant_answers(&o, SLICE("~accept:a/b\n"), &without));
}

static void keys_of_rows(void **state)
{
    struct buf b = BUF_INIT(100);

    (void)state;
    variant_key(&b, SLICE("repo\0a/b"), SLICE("~x:1\n"));
    assert_true(slice_eq(buf_slice(&b), SLICE("repo\0a/b\0~x:1\n")));
    assert_true(slice_eqs(variant_of_row(object_key_of_row(buf_slice(&b))), "~x:1\n"));
    buf_clear(&b);
    variant_key(&b, SLICE("repo\0~key"), SLICE(""));
    assert_true(slice_eq(buf_slice(&b), SLICE("repo\0~key")));
    assert_true(slice_eqs(variant_of_row(object_key_of_row(buf_slice(&b))), ""));
    assert_true(slice_eqs(variant_of_row(SLICE("key\0somebody")), ""));
    buf_free(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(reported_by_what_vary_names, teardown),
        cmocka_unit_test_teardown(reported_by_all_that_vary_names, teardown),
        cmocka_unit_test_teardown(an_answer_matches_its_request, teardown),
        cmocka_unit_test_teardown(suits_by_values_alone, teardown),
        cmocka_unit_test(alike_by_names),
        cmocka_unit_test_teardown(answers_as_its_vary_says, teardown),
        cmocka_unit_test(keys_of_rows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
