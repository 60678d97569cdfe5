#include "common/codec/hostlist.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

static void test_the_first_host(void **state)
{
    static const struct {
        const char *list, *first;
    } good[] = {{"n1", "n1"},
                {"n1,n2", "n1"},
                {"gpu[01-04,07],login2", "gpu01"},
                {"gpu[7]", "gpu7"},
                {"gpu[7,9]-ib", "gpu7-ib"},
                {"rack[1-2]n[03-4].x.org,y", "rack1n03.x.org"}};
    static const char *const bad[] = {"",    ",n1",     "n[",      "n[1-2", "n[]", "n[a]", "n[-1]",
                                      "n 1", "n[1;2]x", "$(x),n1", "n/1",   "[",   "n]"};
    char name[HOSTLIST_NAME];
    char text[600];

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(good); i++) {
        assert_true(hostlist_first(slice_str(good[i].list), name));
        assert_string_equal(name, good[i].first);
    }
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        assert_false(hostlist_first(slice_str(bad[i]), name));
    }
    memset(text, 'n', sizeof text);
    assert_false(hostlist_first(slice_of(text, sizeof text), name));
    assert_true(hostlist_first(slice_of(text, HOSTLIST_NAME - 1), name));
    assert_false(hostlist_first(slice_of(text, HOSTLIST_NAME), name));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_first_host),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
