/* What of a folder is published: the newest checkpoint at the top, and beside it what only the
 * folder has. */
#include "agent/publish/files.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "common/os/newfile.h"

static void put(const char *dir, const char *name, const char *text)
{
    char path[PATH_MAX];
    FILE *f;

    snprintf(path, sizeof path, "%s/%s", dir, name);
    f = fopen(path, "w");
    assert_non_null(f);
    assert_true(fputs(text, f) >= 0);
    assert_int_equal(fclose(f), 0);
}

static const struct publish_file *find(const struct publish_files *f, const char *name)
{
    const struct publish_file *hit = NULL;

    for (size_t i = 0; i < f->n; i++) {
        if (slice_eqs(f->at[i].name, name)) {
            assert_null(hit); /* once */
            hit = &f->at[i];
        }
    }
    return hit;
}

static void a_checkpoints_file_goes_before_its_namesake(void **state)
{
    char dir[] = "/tmp/publish.XXXXXX";
    char path[PATH_MAX];
    struct publish_files f;

    (void)state;
    assert_non_null(mkdtemp(dir));
    put(dir, "config.json", "of the folder");
    put(dir, "metrics.jsonl", "{}");
    put(dir, "zz.txt", "z");
    put(dir, "half.partial", "no");
    for (int step = 9; step <= 10; step++) {
        snprintf(path, sizeof path, "%s/checkpoint-%d", dir, step);
        assert_int_equal(mkdir(path, 0755), 0);
        put(path, "model.safetensors", "weights");
        put(path, "config.json", step == 10 ? "new" : "older");
    }
    assert_int_equal(publish_files_list(dir, NULL, &f, NULL), 0);
    assert_int_equal(f.n, 4);
    assert_non_null(find(&f, "model.safetensors"));
    assert_non_null(find(&f, "metrics.jsonl"));
    assert_non_null(find(&f, "zz.txt"));
    assert_int_equal(find(&f, "config.json")->size_bytes, 3);
    publish_files_fini(&f);
    assert_int_equal(dir_remove_tree(dir, NULL), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_checkpoints_file_goes_before_its_namesake),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
