/* Branches that are rolled back: found in any case of letters, and told in a Hub's list of
 * branches. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "server/repo/hf/hf.h"

#define OLD "0123456789012345678901234567890123456789"

static void put(struct hf *state, const char *branch)
{
    struct held *h = held_new();

    held_add(h, &(struct held_branch){.type = SLICE("models"),
                                      .id = SLICE("Org/Name"),
                                      .branch = slice_str(branch),
                                      .commit = SLICE(OLD)});
    held_put(state, h);
}

static void found(void **s)
{
    struct hf state = {.service = false};

    (void)s;
    assert_null(held_find(&state, SLICE("models"), SLICE("org/name"), SLICE("main")));
    put(&state, "main");
    assert_true(slice_eqs(
        held_find(&state, SLICE("models"), SLICE("org/name"), SLICE("main"))->commit, OLD));
    assert_null(held_find(&state, SLICE("datasets"), SLICE("org/name"), SLICE("main")));
    assert_null(held_find(&state, SLICE("models"), SLICE("org/name"), SLICE("Main")));
    assert_null(held_find(&state, SLICE("models"), SLICE("org/names"), SLICE("main")));
    put(&state, "dev"); /* a table takes the place of the former one */
    assert_null(held_find(&state, SLICE("models"), SLICE("org/name"), SLICE("main")));
    assert_non_null(held_find(&state, SLICE("models"), SLICE("org/name"), SLICE("dev")));
    held_free_all(&state);
    assert_null(held_find(&state, SLICE("models"), SLICE("org/name"), SLICE("dev")));
}

static void refs(void **s)
{
    static const char *const others[] = {"",
                                         "[]",
                                         "{",
                                         "{\"branches\": 5}",
                                         "{\"branches\": [5, {}, {\"name\": 7}]}",
                                         "{\"branches\": [{\"name\": \"dev\"}]}"};
    struct hf state = {.service = false};
    struct buf out = BUF_INIT(4096);

    (void)s;
    assert_false(held_refs(&state, SLICE("models"), SLICE("org/name"),
                           SLICE("{\"branches\": [{\"name\": \"main\"}]}"), &out));
    put(&state, "main");
    for (size_t i = 0; i < ARRAY_LEN(others); i++) {
        assert_false(
            held_refs(&state, SLICE("models"), SLICE("org/name"), slice_str(others[i]), &out));
    }
    assert_int_equal(out.n, 0);
    assert_true(held_refs(&state, SLICE("models"), SLICE("org/name"),
                          SLICE("{\"branches\":[{\"name\":\"main\",\"targetCommit\":\"x\"}],"
                                "\"converts\":[]}"),
                          &out));
    assert_string_equal(buf_cstr(&out),
                        "{\"branches\":[{\"name\":\"main\",\"targetCommit\":\"" OLD "\"}],"
                        "\"converts\":[]}");
    buf_free(&out);
    held_free_all(&state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(found), cmocka_unit_test(refs)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
