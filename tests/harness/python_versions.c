/* python_versions.c - what we make of Python versions and specifiers, for a test that asks
 * `packaging` the same.
 *
 * Lines of "v TAB version", "c TAB version TAB version", "s TAB specifiers TAB version", "m TAB
 * marker"; each gives one line back. */
#include <stdio.h>

#include "server/repo/python/marker.h"
#include "server/repo/python/version.h"

static void answer(char kind, struct slice a, struct slice b)
{
    struct buf out = BUF_INIT(4096);
    struct arena arena = {0};
    struct pyversion x, y;
    struct pyspecs specs;
    struct pyenv env;
    bool yes;

    buf_str(&out, "error");
    if (kind == 'v' && pyversion_parse(a, &x)) {
        buf_clear(&out);
        pyversion_write(&x, &out);
    } else if (kind == 'c' && pyversion_parse(a, &x) && pyversion_parse(b, &y)) {
        int c = pyversion_cmp(&x, &y);
        buf_clear(&out);
        buf_addf(&out, "%d", (c > 0) - (c < 0));
    } else if (kind == 's' && pyspecs_parse(a, &arena, &specs, NULL) == 0 &&
               pyversion_parse(b, &x)) {
        buf_clear(&out);
        buf_addf(&out, "%d", pyspecs_hold(&specs, &x, b));
    } else if (kind == 'm' && pyenv_init(&env, "3.11", "manylinux_2_28_x86_64") &&
               marker_eval(a, &env, SLICE(""), &yes, NULL) == 0) {
        buf_clear(&out);
        buf_addf(&out, "%d", yes);
    }
    puts(buf_cstr(&out));
    arena_fini(&arena);
    buf_free(&out);
}

int main(void)
{
    char line[4096];

    while (fgets(line, sizeof line, stdin) != NULL) {
        struct slice rest = slice_str(line);
        struct slice kind, a;
        rest.n -= rest.n != 0 && rest.p[rest.n - 1] == '\n';
        kind = slice_cut(&rest, '\t');
        a = slice_cut(&rest, '\t');
        answer(kind.n != 0 ? kind.p[0] : ' ', a, rest);
    }
    return 0;
}
