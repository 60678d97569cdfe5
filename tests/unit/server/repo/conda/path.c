#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "server/repo/conda/path.h"

#define ONES "1111111111111111111111111111111111111111111111111111111111111111"

static void what_a_path_names(void **state)
{
    static const struct {
        const char *path;
        enum conda_kind kind;
        bool optional;
        const char *folder, *name;
    } row[] = {
        {"linux-64/repodata.json", CONDA_INDEX, false, "linux-64/", "repodata.json"},
        {"forge/noarch/repodata.json.zst", CONDA_INDEX, true, "forge/noarch/", "repodata.json.zst"},
        {"noarch/repodata.json.bz2", CONDA_INDEX, true, "noarch/", "repodata.json.bz2"},
        {"noarch/current_repodata.json", CONDA_INDEX, true, "noarch/", "current_repodata.json"},
        {"noarch/repodata_shards.msgpack.zst", CONDA_INDEX, true, "noarch/",
         "repodata_shards.msgpack.zst"},
        {"channeldata.json", CONDA_INDEX, true, "", "channeldata.json"},
        {"noarch/patch_instructions.json", CONDA_INDEX, true, "noarch/", "patch_instructions.json"},
        {"", CONDA_INDEX, false, "", ""},
        {"noarch/", CONDA_INDEX, false, "noarch/", ""},
        {"noarch/a-1-0.conda", CONDA_PACKAGE, false, "noarch/", "a-1-0.conda"},
        {"noarch/a-1-0.tar.bz2", CONDA_PACKAGE, false, "noarch/", "a-1-0.tar.bz2"},
        {"noarch/a-1-0.conda.sig", CONDA_INDEX, true, "noarch/", "a-1-0.conda.sig"},
        {"noarch/shards/" ONES ".msgpack.zst", CONDA_SHARD, false, "noarch/shards/",
         ONES ".msgpack.zst"},
        {"noarch/shards/x" ONES ".msgpack.zst", CONDA_INDEX, true, "noarch/shards/",
         "x" ONES ".msgpack.zst"},
        {"noarch/shards/g" ONES ".msgpack", CONDA_INDEX, true, "noarch/shards/",
         "g" ONES ".msgpack"},
        {"noarch/repodata.jlap", CONDA_JLAP, false, "noarch/", "repodata.jlap"},
        {"noarch/repodata.json.jlap", CONDA_JLAP, false, "noarch/", "repodata.json.jlap"},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(row); i++) {
        struct conda_path p = conda_path_of(slice_str(row[i].path));
        assert_int_equal(p.kind, row[i].kind);
        assert_int_equal(p.optional, row[i].optional);
        assert_true(slice_eqs(p.folder, row[i].folder));
        assert_true(slice_eqs(p.name, row[i].name));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(what_a_path_names)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
