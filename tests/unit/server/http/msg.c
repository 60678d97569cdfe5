#include "server/http/msg.h"

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

#include "server/http/body.h"

static void fields(void **state)
{
    struct arena arena = {NULL, 0};
    const struct http_field f[] = {
        {{"accept", 6}, {"a", 1}}, {{"x", 1}, {"", 0}}, {{"accept", 6}, {"b;q=1", 5}}};
    const struct http_req r = {.fields = f, .nfields = 3, .arena = &arena};

    (void)state;
    assert_true(slice_eqs(http_req_field(&r, "accept"), "a"));
    assert_true(slice_eqs(http_req_list(&r, "accept"), "a, b;q=1"));
    assert_true(http_req_field(&r, "x").p != NULL && http_req_field(&r, "x").n == 0);
    assert_null(http_req_list(&r, "y").p);
    arena_fini(&arena);
}

/* A client that repeats a field a thousand times costs what it sent, not the square of it. */
static void a_long_list(void **state)
{
    enum { COUNT = 1000 };
    struct arena arena = {NULL, 0};
    struct http_field f[COUNT];
    const struct http_req r = {.fields = f, .nfields = COUNT, .arena = &arena};

    (void)state;
    for (size_t i = 0; i < COUNT; i++) {
        f[i] = (struct http_field){SLICE("cache-control"), SLICE("no-cache=x")};
    }
    assert_int_equal(http_req_list(&r, "cache-control").n, COUNT * 12 - 2);
    assert_in_range(arena.used_bytes, 1, COUNT * 12 + 16);
    arena_fini(&arena);
}

static void replies(void **state)
{
    struct arena arena = {NULL, 0};
    struct http_reply r = {.status = 200};
    char longer[2000];

    (void)state;
    memset(longer, 'l', sizeof longer - 1);
    longer[sizeof longer - 1] = '\0';
    reply_addf(&r, &arena, "a", "%d", 7);
    reply_addf(&r, &arena, "b", "%s", longer);
    assert_true(slice_eqs(r.fields[0].value, "7") && slice_eqs(r.fields[1].value, longer));
    assert_string_equal(http_reason(206), "Partial Content");
    assert_string_equal(http_reason(299), "Status");
    arena_fini(&arena);
}

static void methods(void **state)
{
    (void)state;
    assert_int_equal(method_of(SLICE("GET")), METHOD_GET);
    assert_int_equal(method_of(SLICE("OPTIONS")), METHOD_OPTIONS);
    assert_int_equal(method_of(SLICE("get")), METHOD_OTHER);
    assert_int_equal(method_of(SLICE("")), METHOD_OTHER);
}

static void memory_bodies(void **state)
{
    char text[] = "hello";
    struct body *b = body_of_bytes(slice_str(text));
    struct body *none = body_of_bytes(SLICE_NONE);

    (void)state;
    text[0] = 'X';
    assert_true(b->end == 5 && b->fd == -1 && b->ops->poll == NULL);
    assert_memory_equal(b->bytes, "hello", 5);
    assert_int_equal(none->end, 0);
    body_close(&b);
    body_close(&b);
    body_close(&none);
    assert_null(b);
}

static void weights(void **state)
{
    struct slice list =
        SLICE("text/html, a/b;level=1;q=0.25, Application/JSON ; Q=0.5,*/*;q=x, none/n;q=0");

    (void)state;
    assert_int_equal(http_weight_of(list, SLICE("text/html")), 1000);
    assert_int_equal(http_weight_of(list, SLICE("a/b")), 250);
    assert_int_equal(http_weight_of(list, SLICE("application/json")), 500);
    assert_int_equal(http_weight_of(list, SLICE("*/*")),
                     1000); /* a weight that cannot be read is none */
    assert_int_equal(http_weight_of(list, SLICE("none/n")), 0);
    assert_int_equal(http_weight_of(list, SLICE("text/plain")), WEIGHT_NONE);
    assert_int_equal(http_weight_of(SLICE_NONE, SLICE("a/b")), WEIGHT_NONE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(fields),  cmocka_unit_test(a_long_list),
                                       cmocka_unit_test(replies), cmocka_unit_test(methods),
                                       cmocka_unit_test(weights), cmocka_unit_test(memory_bodies)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
