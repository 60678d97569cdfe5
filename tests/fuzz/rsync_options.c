/* rsync_options.c - fuzzes what a stranger's client sends before its list: arguments, then filter rules, then a path. */
#include "common/codec/filter.h"
#include "server/rsync/options.h"
#include "server/rsync/view.h"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

static struct file_list *small_list(void)
{
    static const char *const paths[] = {".", "a", "a/b", "a/c", "foo", "foo.bar", "foo.bar/x"};
    struct file_list *l = list_new((struct list_form){true, true, true}, LIST_LIMITS);

    for (size_t i = 0; i < ARRAY_LEN(paths); i++) {
        uint32_t mode = i < 2 || i == 5 ? 0040755 : 0100644;
        CHECK(list_add(l, slice_str(paths[i]), mode, 1, 1, SLICE_NONE, NULL) == 0);
    }
    CHECK(list_sort(l, NULL) == 0);
    return l;
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
    struct slice rest = slice_of(p, n);
    struct slice arguments = slice_cut(&rest, '\n');
    struct filter f = {.count = 0};
    struct options o;
    struct view v;
    struct file_list *l = small_list();
    char room[LIST_PATH_MAX + 1];

    (void)!options_parse(arguments, &o, NULL);
    while (rest.n > 0) {
        (void)!filter_add(&f, slice_cut(&rest, '\n'), NULL);
    }
    if (view_make(l, o.path, &o, &f, &v, NULL) == 0) {
        CHECK(v.count > 0 && v.count <= list_count(l));
        for (uint32_t i = 0; i < v.count; i++) {
            CHECK(list_name_valid(view_path(&v, i, room)));
        }
    }
    view_fini(&v);
    filter_fini(&f);
    list_free(&l);
    return 0;
}
