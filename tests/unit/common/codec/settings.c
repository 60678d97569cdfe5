#include "common/codec/settings.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "common/codec/nearest.h"

enum { FILE_ITSELF, SHIP, CARGO, CREW };

static const struct settings_key in_file[] = {{"name", false}};
static const struct settings_key in_ship[] = {{"flags", true}, {"speed", false}};
static const struct settings_key in_cargo[] = {{"what", false}};
static const struct settings_key in_crew[] = {{"captain", false}};
static const struct settings_section sections[] = {
    [FILE_ITSELF] = {"", 0, SETTINGS_ONCE, in_file, ARRAY_LEN(in_file)},
    [SHIP] = {"ship", 0, SETTINGS_TITLED, in_ship, ARRAY_LEN(in_ship)},
    [CARGO] = {"cargo", SHIP, SETTINGS_MANY, in_cargo, ARRAY_LEN(in_cargo)},
    [CREW] = {"crew", SHIP, SETTINGS_ONCE, in_crew, ARRAY_LEN(in_crew)},
};

static struct settings_grammar grammar(void)
{
    return (struct settings_grammar){.sections = sections,
                                     .nsections = ARRAY_LEN(sections),
                                     .manual = "ship(5)",
                                     .absent = "build one"};
}

static char folder[] = "/tmp/settings.XXXXXX";
static char before[PATH_MAX];

static int setup(void **state)
{
    (void)state;
    return getcwd(before, sizeof before) == NULL || mkdtemp(folder) == NULL || chdir(folder) == -1;
}

static int teardown(void **state)
{
    (void)state;
    unlink("f");
    return chdir(before) == -1 || rmdir(folder) == -1;
}

static int read_text(const struct settings_grammar *g, const char *text, struct arena *a,
                     struct settings_node **out, struct err *e)
{
    FILE *f = fopen("f", "w");

    assert_non_null(f);
    fputs(text, f);
    fclose(f);
    return settings_read(g, "f", a, out, e);
}

static void test_a_tree_with_places(void **state)
{
    const struct settings_grammar g = grammar();
    struct arena a = {0};
    struct settings_node *root;
    struct settings_node *ship;
    struct settings_node *none;
    struct err e = {0};

    (void)state;
    if (read_text(&g,
                  "# a comment\nname = fleet\nship \"a\" {\n  flags = {red, \"white\"}\n"
                  "  cargo { what = 'salt' } cargo { }\n}\nship \"b\" { flags = {} }\n",
                  &a, &root, &e) != 0) {
        fail_msg("%s", e.text);
    }
    assert_string_equal(settings_given(root, "name")->text, "fleet");
    assert_int_equal(settings_where(root, "name").line, 2);
    ship = root->child;
    assert_int_equal(ship->section, SHIP);
    assert_string_equal(ship->title, "a");
    assert_string_equal(settings_given(ship, "flags")->next->text, "white");
    assert_int_equal(settings_where(ship, "flags").line, 4);
    assert_int_equal(settings_where(ship, "speed").line, 3); /* the section's */
    assert_string_equal(settings_given(ship->child, "what")->text, "salt");
    assert_null(settings_given(ship->child->next, "what"));
    assert_null(settings_given(ship->next, "flags"));
    assert_true(settings_written(ship->next, "flags"));
    assert_false(settings_written(ship->next, "speed"));
    none = settings_empty(ship, CARGO, &a);
    assert_int_equal(none->section, CARGO);
    assert_null(settings_given(none, "what"));
    arena_fini(&a);
}

static void test_what_a_grammar_allows(void **state)
{
    struct settings_grammar g = grammar();
    struct arena a = {0};
    struct settings_node *root;
    struct err e;

    (void)state;
    assert_int_equal(read_text(&g, "nmae = x", &a, &root, &e), E_CONFIG);
    assert_string_equal(
        e.text, "f:1: unknown key \"nmae\": the file has no such key; did you mean \"name\"?");
    assert_int_equal(read_text(&g, "ship \"a\" {\nbananas = x }", &a, &root, &e), E_CONFIG);
    assert_string_equal(e.text,
                        "f:2: unknown key \"bananas\": section ship has no such key; see ship(5)");
    assert_int_equal(read_text(&g, "include(\"f\")", &a, &root, &e), E_CONFIG);
    assert_int_equal(read_text(&g, "name = \"one\ntwo\"", &a, &root, &e), E_CONFIG);
    g.long_texts = true;
    assert_int_equal(read_text(&g, "name = \"one\ntwo\"\nnmae = 1", &a, &root, &e), E_CONFIG);
    assert_int_equal(strncmp(e.text, "f:3: ", 5), 0);
    assert_int_equal(read_text(&g, "name = \"one\ntwo\"", &a, &root, &e), 0);
    assert_string_equal(settings_given(root, "name")->text, "one\ntwo");
    assert_int_equal(settings_read(&g, "absent", &a, &root, &e), E_CONFIG);
    assert_non_null(strstr(e.text, "build one"));
    arena_fini(&a);
}

static void test_how_often_sections_stand(void **state)
{
    const struct settings_grammar g = grammar();
    struct arena a = {0};
    struct settings_node *root;
    struct err e;

    (void)state;
    assert_int_equal(
        read_text(&g, "ship \"a\" { crew { } }\nship \"b\" { crew { } }", &a, &root, &e), 0);
    assert_int_equal(
        read_text(&g, "ship \"a\" {\ncrew { }\ncargo { }\ncargo { }\ncrew { }\n}", &a, &root, &e),
        E_CONFIG);
    assert_string_equal(e.text, "f:5: section crew appears again, first at f:2; merge the two");
    assert_int_equal(read_text(&g, "ship \"a\" { }\nship \"a\" { }", &a, &root, &e), E_CONFIG);
    assert_non_null(strstr(e.text, "is used twice"));
    assert_int_equal(read_text(&g, "name = a\nname = b", &a, &root, &e), E_CONFIG);
    assert_string_equal(e.text, "f:2: name is set twice, first at f:1; remove one of them");
    arena_fini(&a);
}

static void test_texts(void **state)
{
    const struct settings_grammar g = grammar();
    struct arena a = {0};
    struct settings_node *root;
    const char **flags;
    struct err e;
    size_t n;

    (void)state;
    assert_int_equal(
        read_text(&g, "ship \"a\" { flags = {red, white}\nspeed = slow }", &a, &root, &e), 0);
    assert_string_equal(settings_text(root->child, "speed", "fast"), "slow");
    assert_string_equal(settings_text(root, "name", "fleet"), "fleet");
    assert_null(settings_text(NULL, "name", NULL));
    flags = settings_texts(root->child, "flags", &a, &n);
    assert_int_equal(n, 2);
    assert_string_equal(flags[0], "red");
    assert_string_equal(flags[1], "white");
    assert_null(flags[2]);
    assert_int_equal(settings_bad(root->child, "speed", "is no number", &e), E_CONFIG);
    assert_string_equal(e.text, "f:2: speed = \"slow\": it is no number");
    arena_fini(&a);
}

static void test_words(void **state)
{
    static const char *const words[] = {"from", "sha256", "unpack"};
    static const char *const tls[] = {"tls_key", "tls", "tls_certificate"};
    bool on = false;

    (void)state;
    assert_string_equal(nearest_word(words, 3, SLICE("form")), "from");
    assert_string_equal(nearest_word(words, 3, SLICE("unpak")), "unpack");
    assert_null(nearest_word(words, 3, SLICE("bananas")));
    assert_string_equal(nearest_word(tls, 3, SLICE("tls_cert")), "tls_certificate");
    assert_string_equal(nearest_word(tls, 3, SLICE("tls_certificate_file")), "tls_certificate");
    assert_string_equal(nearest_word(tls, 3, SLICE("tls_keys")), "tls_key"); /* one letter */
    assert_string_equal(nearest_word(tls, 3, SLICE("tls_kye")), "tls_key");
    assert_null(nearest_word(tls, 3, SLICE("t")));
    assert_null(nearest_word(words, 0, SLICE("from")));
    assert_true(settings_truth("yes", &on) && on);
    assert_true(settings_truth("off", &on) && !on);
    assert_false(settings_truth("maybe", &on));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_tree_with_places),
        cmocka_unit_test(test_what_a_grammar_allows),
        cmocka_unit_test(test_how_often_sections_stand),
        cmocka_unit_test(test_texts),
        cmocka_unit_test(test_words),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
