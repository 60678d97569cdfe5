/* How repositories are named on the command line: "[REPO/][TYPE/]ID[@REV]". */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "server/hub/inventory.h"

static const struct repo_ops hf = {.name = "hf"}, hosted = {.name = "hosted"},
                             other = {.name = "pypi"};
static struct repo hub = {.name = "hf", .ops = &hf}, second = {.name = "two", .ops = &hf},
                   ours = {.name = "models", .ops = &hosted},
                   pypi = {.name = "pypi", .ops = &other};

static int read_name(struct repo **repos, size_t count, const char *repo, const char *text,
                     struct inventory_name *out)
{
    struct repo_set rs = {.repo = repos, .count = count};
    struct err e;

    return inventory_name_read(&rs, slice_str(repo), slice_str(text), out, &e);
}

static void one_hub(void **state)
{
    static const struct {
        const char *repo, *text, *in, *type, *id, *rev;
    } good[] = {
        {NULL, "org/name", "hf", "models", "org/name", NULL},
        {NULL, "gpt2@v1", "hf", "models", "gpt2", "v1"},
        {NULL, "hf/gpt2", "hf", "models", "gpt2", NULL},
        {NULL, "hf/org/name@refs/pr/1", "hf", "models", "org/name", "refs/pr/1"},
        {NULL, "datasets/org/name", "hf", "datasets", "org/name", NULL},
        {NULL, "hf/spaces/org/name", "hf", "spaces", "org/name", NULL},
        {NULL, "models/me/m@v7", "models", "models", "me/m", "v7"}, /* the repo of that name */
        {"hf", "models/me/m", "hf", "models", "me/m", NULL},
        {"hf", "hf/name", "hf", "models", "hf/name", NULL},
        {NULL, "pypi/name", "hf", "models", "pypi/name", NULL}, /* no repo of a Hub */
    };
    struct repo *repos[] = {&pypi, &hub, &ours};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(good); i++) {
        struct inventory_name n;
        assert_int_equal(read_name(repos, 3, good[i].repo, good[i].text, &n), 0);
        assert_string_equal(n.repo->name, good[i].in);
        assert_true(slice_eqs(n.type, good[i].type));
        assert_true(slice_eqs(n.id, good[i].id));
        assert_true(good[i].rev == NULL ? n.rev.p == NULL : slice_eqs(n.rev, good[i].rev));
    }
}

static void bad_ones(void **state)
{
    struct repo *repos[] = {&pypi, &hub, &second}, *none[] = {&pypi}, *only[] = {&ours};
    struct inventory_name n;

    (void)state;
    assert_int_equal(read_name(repos, 3, NULL, "org/name", &n), E_USAGE); /* which one? */
    assert_int_equal(read_name(repos, 3, NULL, "two/org/name", &n), 0);
    assert_int_equal(read_name(none, 1, NULL, "org/name", &n), E_NOTFOUND);
    assert_int_equal(read_name(only, 1, NULL, "me/m", &n), 0);
    assert_int_equal(read_name(repos, 3, "pypi", "org/name", &n), E_NOTFOUND);
    for (size_t i = 0; i < 5; i++) {
        static const char *const texts[] = {"", "../x", "a/b/c", "org/name@", "org/na me"};
        assert_int_equal(read_name(repos, 2, "hf", texts[i], &n), E_INVALID);
    }
}

/* What to write instead stands in the sentence. */
static void what_was_meant(void **state)
{
    static const struct {
        const char *repo, *text, *says;
    } row[] = {
        {NULL, "org/name", "(hf, two); put the name of one in front: hf/org/name"},
        {"gpt2", "main", "revision main of gpt2 is written gpt2@main"},
    };
    struct repo *repos[] = {&pypi, &hub, &second, &ours};
    struct repo_set rs = {.repo = repos, .count = 4};
    struct inventory_name n;
    struct err e;

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(row); i++) {
        assert_int_not_equal(
            inventory_name_read(&rs, slice_str(row[i].repo), slice_str(row[i].text), &n, &e), 0);
        if (strstr(e.text, row[i].says) == NULL) {
            fail_msg("\"%s\" is not in \"%s\"", row[i].says, e.text);
        }
    }
    assert_int_not_equal(inventory_name_read(&rs, SLICE("none"), SLICE("org/set"), &n, &e), 0);
    assert_null(strstr(e.text, "is written"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(one_hub), cmocka_unit_test(bad_ones),
                                       cmocka_unit_test(what_was_meant)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
