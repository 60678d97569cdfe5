/* python_requirement.c - fuzzes requirements, their markers and versions, and files of
 * requirements: what is a version reads back from its normal form as the same one. */
#include "server/repo/python/distribution.h"
#include "server/repo/python/requirement.h"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

static void check_version(struct slice text)
{
    struct buf normal = BUF_INIT(1024);
    struct pyversion a, b;

    if (pyversion_parse(text, &a)) {
        pyversion_write(&a, &normal);
        CHECK(normal.rc == 0 && pyversion_parse(buf_slice(&normal), &b));
        CHECK(pyversion_cmp(&a, &b) == 0 && pyversion_cmp(&b, &a) == 0);
    }
    buf_free(&normal);
}

static int on_line(void *arg, struct slice line, struct err *e)
{
    struct arena a = {0};
    struct requirement r;
    struct pyenv env;
    bool yes;

    (void)arg;
    (void)e;
    CHECK(pyenv_init(&env, "3.11", "manylinux_2_28_x86_64"));
    if (requirement_parse(line, &a, &r, NULL) == 0) {
        struct pyversion v = {.part = {1, 2}, .parts = 2, .local = SLICE("")};
        CHECK(r.name.n != 0);
        (void)pyspecs_hold(&r.specs, &v, SLICE("1.2"));
        if (r.marker.p != NULL) {
            (void)!marker_eval(r.marker, &env, SLICE("x"), &yes, NULL);
        }
    }
    arena_fini(&a);
    return 0;
}

static void on_odd(void *arg, struct slice line)
{
    struct arena a = {0};
    struct distribution d;
    struct pyenv env;

    (void)arg;
    if (distribution_parse(line.n > 1 ? slice_from(line, 1) : line, SLICE("a"), &a, &d)) {
        CHECK(pyenv_init(&env, "3.11", "macosx_11_0_arm64"));
        (void)distribution_fits(&d, &env);
    }
    arena_fini(&a);
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
    struct slice text = slice_of(p, n), rest = text;
    struct requirements_events ev = {on_line, on_odd, NULL};

    for (int i = 0; i < 20 && rest.n != 0; i++) {
        check_version(slice_cut(&rest, '\n'));
    }
    if (memmem(text.p, text.n, "-r", 2) == NULL && memmem(text.p, text.n, "--req", 5) == NULL) {
        (void)!requirements_read(text, "x", &ev, NULL); /* opens no file of this machine's */
    }
    return 0;
}
