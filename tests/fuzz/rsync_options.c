/* rsync_options.c - fuzzes what a stranger's client sends before its list: arguments, then filter
 * rules, then a path; or, with --files-from, names. */
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
    list_set_leader(l, 3, 2);
    list_set_leader(l, 6, 2);
    CHECK(list_sort(l, NULL) == 0);
    return l;
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
    struct slice rest = slice_of(p, n);
    struct slice arguments = slice_cut(&rest, '\n');
    struct filter f = {.count = 0};
    struct client_options o;
    struct budget budget = {.max = 0};
    struct view v;
    struct ask a;
    struct file_list *l = small_list();
    char room[LIST_PATH_MAX + 1], before[LIST_PATH_MAX + 1];
    size_t before_n = 0;
    bool before_folder = false;

    (void)!options_parse(arguments, &o, NULL);
    while (rest.n > 0) {
        (void)!filter_add(&f, slice_cut(&rest, '\n'), NULL);
    }
    view_init(&v, l, &budget);
    if (o.names && ask_path(slice_cut(&o.paths, '\0'), &o, &a, NULL) == 0 && a.pattern.n == 0) {
        struct ask one;
        while (o.paths.n > 0) {
            if (ask_name(&a, slice_cut(&o.paths, '\0'), &o, &one, NULL) == 0) {
                (void)!view_add_name(&v, &one, &o, &f, NULL);
            }
        }
        CHECK(view_settle(&v, NULL) == 0);
    }
    while (!o.names && o.paths.n > 0) {
        if (ask_path(slice_cut(&o.paths, '\0'), &o, &a, NULL) == 0) {
            (void)!view_add(&v, &a, &o, &f, NULL);
        }
    }
    for (uint32_t i = 0; i < v.count; i++) {
        struct slice path = view_path(&v, i, room);
        bool is_folder = list_type(view_at(&v, i)) == LIST_FOLDER;
        CHECK(list_name_valid(path));
        CHECK(view_link(&v, i) < (int32_t)i);
        /* In order, each once. */
        CHECK(i == 0 ||
              list_compare(slice_of(before, before_n), before_folder, path, is_folder) < 0);
        memcpy(before, path.p, path.n);
        before_n = path.n;
        before_folder = is_folder;
    }
    view_fini(&v);
    filter_fini(&f);
    list_free(&l);
    return 0;
}
