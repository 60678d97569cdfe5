#include "common/codec/glob.h"

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

static void patterns(void **state)
{
    static const struct {
        const char *pattern, *text;
        bool yes;
    } v[] = {
        {"*", "", true},
        {"*", "abc", true},
        {"*", "a/c", false},
        {"**", "a/c", true},
        {"a*c", "abbc", true},
        {"a*c", "ab/c", false},
        {"a**c", "ab/c", true},
        {"?", "/", false},
        {"?", "x", true},
        {"[a-c]x", "bx", true},
        {"[!a-c]x", "bx", false},
        {"[^a]", "b", true},
        {"[]]", "]", true},
        {"[a", "[a", true},
        {"\\*", "*", true},
        {"\\*", "x", false},
        {"a\\", "a\\", true},
        {"*.deb", "x.deb", true},
        {"*.deb", "x.deb.", false},
        {"*a*b*c*", "xaybzc", true},
        {"", "", true},
        {"", "a", false},
        {"[a-]", "-", true},
        {"[/]", "/", false},
        {"[[:digit:]a]x", "7x", true},
        {"[[:digit:]a]x", "ax", true},
        {"[![:digit:]]", "7", false},
        {"[[:upper:][:lower:]]", "q", true},
        {"[[:nothing:]", "t", true},
        {"[\\]]", "]", true},
        {"[a-\\c]", "b", true},
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(v); i++) {
        if (glob_match(slice_str(v[i].pattern), slice_str(v[i].text)) != v[i].yes) {
            fail_msg("%s against %s", v[i].pattern, v[i].text);
        }
    }
}

static void other_ways(void **state)
{
    static const struct {
        const char *pattern, *text;
        unsigned how;
        bool yes;
    } v[] = {
        {"a*c", "ab/c", GLOB_FLAT, true},
        {"?", "/", GLOB_FLAT, true},
        {"[!a]", "/", GLOB_FLAT, true},
        {"[/]x", "/x", GLOB_FLAT, true},
        {"\\*", "*", GLOB_FLAT, true},
        {"a*", "a/b", GLOB_STARS, true},
        {"a*b", "a/b/c", GLOB_STARS, false},
        {"[a]?\\*", "[a]?\\x/y", GLOB_STARS, true},
        {"[a]*", "a", GLOB_STARS, false},
        {"b**c", "a/b/x/c", GLOB_TAIL, true},
        {"b**c", "ab/x/c", GLOB_TAIL, false},
        {"*/", "c/x/", GLOB_TAIL, true},
        {"b", "a/b", GLOB_TAIL, true},
        {"a/b", "a/a/b", GLOB_TAIL, true},
        {"**a*b**c", "xa/axb/c", GLOB_TAIL, true},
        {"**a*b**c", "xa/ax/b/c", GLOB_TAIL, false},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(v); i++) {
        if (glob_match_how(slice_str(v[i].pattern), slice_str(v[i].text), v[i].how, NULL) !=
            v[i].yes) {
            fail_msg("%s against %s by %u", v[i].pattern, v[i].text, v[i].how);
        }
    }
}

/* n of `unit` from the beginning, then `end`. */
static struct slice many(char *room, size_t room_bytes, const char *unit, const char *end)
{
    size_t n = 0;

    while (n + strlen(unit) + strlen(end) <= room_bytes) {
        memcpy(room + n, unit, strlen(unit));
        n += strlen(unit);
    }
    memcpy(room + n, end, strlen(end));
    return slice_of(room, n + strlen(end));
}

/* No pattern costs more than its length for each byte of the text, whatever stands in it. */
static void patterns_that_would_take_for_ever(void **state)
{
    static const struct {
        const char *unit, *end; /* of the pattern */
        const char *text, *text_end;
        bool yes;
    } v[] = {
        {"*a", "*b", "a", "a", false},     {"*a", "*b", "a", "b", true},
        {"**a", "**b", "a", "a", false},   {"**/", "*b", "a/", "a", false},
        {"*[a-z]", "*b", "a", "a", false}, {"**a*/", "b", "aa/", "a", false},
        {"[", "*b", "a", "a", false},      {"[\\]", "*a*b", "[]", "a", false},
        {"*?", "*b", "a", "a", false},     {"[[:alpha:]", "*a*b", "[:", "a", false},
    };
    static char pattern_room[GLOB_PATTERN_MAX], text_room[4096];

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(v); i++) {
        struct slice pattern = many(pattern_room, 1000, v[i].unit, v[i].end);
        struct slice text = many(text_room, sizeof text_room, v[i].text, v[i].text_end);
        for (unsigned how = 0; how < 2 * GLOB_TAIL; how++) {
            uint64_t steps = 0;
            bool yes = glob_match_how(pattern, text, how, &steps);
            if (steps > 2 * (pattern.n + 1) * (text.n + 1)) {
                fail_msg("%zu bytes of %s by %u: %llu steps", pattern.n, v[i].unit, how,
                         (unsigned long long)steps);
            }
            assert_true(how != GLOB_PATH || yes == v[i].yes);
        }
    }
    memset(pattern_room, '*', sizeof pattern_room);
    assert_true(glob_match(slice_of(pattern_room, sizeof pattern_room), SLICE("a/b")));
    memset(pattern_room, '[', sizeof pattern_room);
    assert_false(glob_match(slice_of(pattern_room, sizeof pattern_room), SLICE("a")));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(patterns),
        cmocka_unit_test(other_ways),
        cmocka_unit_test(patterns_that_would_take_for_ever),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
