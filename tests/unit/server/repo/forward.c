#include "server/repo/forward.h"

#include <stdlib.h>

#include "server/cache/variant.h"
#include "tests/harness/ask.h"

static void names_that_are_refused(void **state)
{
    static const char *const bad[] = {"",
                                      "a b",
                                      "Host",
                                      "cookie",
                                      "COOKIE",
                                      "If-Match",
                                      "if-none-match",
                                      "Proxy-Authorization",
                                      "Range",
                                      "TE",
                                      "Content-Type",
                                      "X-Forwarded-For",
                                      "Ac:ept",
                                      "Via",
                                      "Authorization",
                                      "accept-Encoding",
                                      "X-Api-Key",
                                      "Private-Token",
                                      "x-auth-token",
                                      "X-Amz-Date",
                                      "X-Goog-Signature",
                                      "PRIVATE_TOKEN",
                                      "X-JFrog-Art-Api",
                                      "X-HTTP-Method-Override",
                                      "X-Original-URL",
                                      "X-Rewrite-URL",
                                      "X-Host",
                                      "True-Client-IP",
                                      "apikey"};
    static const char *const good[] = {
        "Accept",   "accept-language", "X-Kind",      "Origin", "Iffy",       "Vary",
        "Keyboard", "X-Author",        "X-Tokenizer", "If",     "User-Agent", "Tea",
        "Ranges",   "Hostname",        "X-Forwarded"};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        if (forward_refuses(bad[i]) == NULL) {
            fail_msg("%s", bad[i]);
        }
    }
    for (size_t i = 0; i < ARRAY_LEN(good); i++) {
        if (forward_refuses(good[i]) != NULL) {
            fail_msg("%s: %s", good[i], forward_refuses(good[i]));
        }
    }
}

static void what_means_the_same(void **state)
{
    static const struct {
        const char *name, *value, *same; /* NULL: as if there were none */
    } cases[] = {
        {"accept", "Text/HTML , a/b;Q=0.5 ;v=\"A , B\"", "text/html,a/b;q=0.5;v=\"A , B\""},
        {"accept", "a/b;v=\"x\\\" , Y\" , C", "a/b;v=\"x\\\" , Y\",c"},
        {"accept", "A/B;Profile=Big;Q=0.5", "a/b;profile=Big;q=0.5"},
        {"accept", "A/B; v = X , C/D", "a/b;v = X,c/d"},
        {"accept", "*/*", NULL},
        {"accept", "*/* , a/b", "*/*,a/b"},
        {"accept", "", NULL},
        {"accept", "*", "*"},
        {"accept-language", "eN ,\tDe", "en,de"},
        {"accept-language", "de, en", "de,en"},
        {"accept-language", "*", NULL},
        {"x-kind", "Small, b ;C", "Small,b ;C"},
        {"x-kind", "*", "*"},
        {"x-kind", "a  b", "a  b"},
        {"x-kind", "\"open , quote", "\"open , quote"},
        {"x-kind", "\"ends in \\", "\"ends in \\"},
    };
    struct arena a = {0};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct slice got = forward_same(slice_str(cases[i].name), slice_str(cases[i].value), &a);
        if (cases[i].same == NULL ? got.p != NULL
                                  : got.p == NULL || !slice_eqs(got, cases[i].same)) {
            fail_msg("%s: %s: " SLICE_FMT, cases[i].name, cases[i].value, SLICE_ARG(got));
        }
    }
    arena_fini(&a);
}

static void what_a_request_says(void **state)
{
    static const char *const names[] = {"X-Kind", "Accept"};
    struct repo_conf conf = {.name = "data",
                             .protocol = "generic",
                             .origin.url = "http://data.example/",
                             .anonymous_read = true,
                             .forward = names,
                             .forward_count = 2,
                             .source = "test:1"};
    struct lookup w = {0};
    struct ask k;
    char *large = mem_new(VARIANT_VALUES + 1);

    (void)state;
    ask_open_conf(&k, &conf);
    k.field[0] = (struct http_field){SLICE("accept"), SLICE("A/b")};
    k.field[1] = (struct http_field){SLICE("other"), SLICE("no")};
    k.field[2] = (struct http_field){SLICE("accept"), SLICE("c/d")};
    k.req = (struct http_req){.fields = k.field, .nfields = 3, .arena = &k.arena};
    assert_true(forward_read(k.repo, &k.req, &w));
    assert_int_equal(w.forwards, 2);
    assert_true(slice_eqs(w.forward[0].name, "accept"));
    assert_true(slice_eqs(w.forward[0].value, "A/b, c/d"));
    assert_true(slice_eqs(w.forward[0].same, "a/b,c/d"));
    assert_true(slice_eqs(w.forward[1].name, "x-kind"));
    assert_null(w.forward[1].value.p);
    assert_null(w.forward[1].same.p);
    memset(large, 'x', VARIANT_VALUES + 1);
    k.field[1] = (struct http_field){SLICE("x-kind"), slice_of(large, VARIANT_VALUES + 1)};
    assert_false(forward_read(k.repo, &k.req, &w));
    free(large);
    arena_fini(&k.arena);
    repo_close(&k.repo);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_that_are_refused),
        cmocka_unit_test(what_means_the_same),
        cmocka_unit_test(what_a_request_says),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
