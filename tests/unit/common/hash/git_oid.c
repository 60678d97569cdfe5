#include "common/hash/git_oid.h"

#include <stdio.h>
#include <unistd.h>

#include "tests/harness/ask.h"

/* What `git hash-object` says. */
static void as_git_says(void **state)
{
    static const struct {
        const char *text, *hex;
    } row[] = {
        {"", "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391"},
        {"hello\n", "ce013625030ba8dba906f756967f9e9ca394464a"},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(row); i++) {
        char hex[GIT_OID_HEX + 1];
        struct git_oid got;
        struct git_oid want;
        FILE *f = tmpfile();
        assert_non_null(f);
        assert_true(fputs(row[i].text, f) >= 0 && fflush(f) == 0);
        assert_int_equal(git_oid_of_fd(fileno(f), strlen(row[i].text), &got, NULL), 0);
        git_oid_format(&got, hex);
        assert_string_equal(hex, row[i].hex);
        assert_true(git_oid_parse(slice_str(row[i].hex), &want) && git_oid_eq(&got, &want));
        fclose(f);
    }
    assert_false(git_oid_parse(SLICE("e69de29b"), &(struct git_oid){0}));
}

TESTS(cmocka_unit_test(as_git_says))
