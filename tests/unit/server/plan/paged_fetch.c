#include "server/plan/paged_fetch.h"

#include "tests/harness/ask.h"

#define PAGE "https://hub.example/api/models/a/b/tree/0?recursive=true"

static struct answer with_links(struct http_field *fields, size_t n)
{
    return (struct answer){.status = 200, .url = SLICE(PAGE), .fields = fields, .nfields = n};
}

static void names(void **state)
{
    struct slice key = SLICE("api/models/a/b/tree/0");
    struct arena a = {0};

    (void)state;
    assert_true(slice_eq(part_key(key, 0, &a), key));
    assert_true(slice_eqs(part_key(key, 12, &a), "api/models/a/b/tree/0+12"));
    assert_true(part_is_of(key, key));
    assert_true(part_is_of(part_key(key, 1, &a), key));
    assert_false(part_is_of(SLICE("api/models/a/b/tree/01"), key));
    assert_true(part_is_of(part_key(SLICE("api/a?b=c"), 1, &a), SLICE("api/a?b=c")));
    assert_false(part_is_of(SLICE("api/a?b=c+1"), SLICE("api/a?b=c"))); /* a client's own query */
    assert_false(part_is_of(SLICE("api/models/a/b"), key));
    arena_fini(&a);
}

static void the_next(void **state)
{
    struct http_field fields[] = {{SLICE("link"), SLICE("</about>; rel=\"help\"")},
                                  {SLICE("link"), SLICE("<?cursor=x>; rel=\"next\"")}};
    struct answer last = with_links(fields, 1), more = with_links(fields, 2);
    struct arena a = {0};
    struct slice next;

    (void)state;
    assert_int_equal(part_next(&last, 0, &a, &next, NULL), 0);
    assert_null(next.p);
    assert_int_equal(part_next(&more, 0, &a, &next, NULL), 0);
    assert_true(slice_eqs(next, "https://hub.example/api/models/a/b/tree/0?cursor=x"));
    assert_int_equal(part_next(&more, PAGED_FETCH_PARTS_MAX - 1, &a, &next, NULL), E_TOOBIG);
    assert_null(next.p);
    arena_fini(&a);
}

static void a_no(void **state)
{
    struct http_field fields[] = {{SLICE("x-error-code"), SLICE("GatedRepo")},
                                  {SLICE("x-error-message"), SLICE("ask for it")}};
    static const struct {
        int status, code, rc;
    } row[] = {{404, 0, E_NOTFOUND}, {410, 0, E_NOTFOUND},        {401, 0, E_DENIED},
               {403, 0, E_DENIED},   {503, E_TIMEOUT, E_TIMEOUT}, {500, 0, E_NETWORK}};
    struct arena a = {0};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(row); i++) {
        struct answer said = {.status = row[i].status,
                              .fields = fields,
                              .nfields = 2,
                              .why = {.code = row[i].code, .text = "no answer"}};
        struct result f = {0};
        part_refused(&said, &a, &f);
        assert_int_equal(f.rc, row[i].rc);
        assert_int_equal(f.status, row[i].status);
        assert_true(slice_eqs(f.code, "GatedRepo") && slice_eqs(f.message, "ask for it"));
        said.nfields = 0;
        f = (struct result){0};
        part_refused(&said, &a, &f);
        assert_true(f.code.p == NULL && slice_eqs(f.message, "no answer"));
    }
    arena_fini(&a);
}

TESTS(cmocka_unit_test(names), cmocka_unit_test(the_next), cmocka_unit_test(a_no))
