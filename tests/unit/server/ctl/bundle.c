#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/os/newfile.h"
#include "server/ctl/bundle_in.h"
#include "server/ctl/bundle_out.h"

#define COMMIT "0123456789abcdef0123456789abcdef01234567"

static struct bundle_file file_of(const char *path, const char *bytes)
{
    struct bundle_file f = {.path = path, .size_bytes = strlen(bytes)};

    digest_of(slice_str(bytes), &f.sha256);
    return f;
}

static const char *const texts[][2] = {{"a.json", "{}"},
                                       {"sub/b", "bytes"},
                                       {"sub/same", "{}"},
                                       {"sub/\xc3\xbc \\ #", "odd"},
                                       {"z", ""}};

static void fill(struct bundle *b, const char *rev)
{
    struct bundle_revision *r = bundle_add(b);

    r->type = "models";
    r->id = "org/name";
    r->revision = rev;
    r->commit = COMMIT;
    r->repo = "hf";
    r->seen_unix_s = 7;
    r->info = file_of(NULL, "info");
    r->tree = file_of(NULL, "tree");
    r->file = mem_array(ARRAY_LEN(texts), sizeof *r->file);
    for (; r->files < ARRAY_LEN(texts); r->files++) {
        r->file[r->files] = file_of(texts[r->files][0], texts[r->files][1]);
    }
}

static void test_written_and_read(void **state)
{
    struct buf out = BUF_INIT(1 << 20), again = BUF_INIT(1 << 20), sums = BUF_INIT(1 << 20);
    struct bundle b = {0}, c;
    struct digest d, e;

    (void)state;
    fill(&b, "main");
    fill(&b, "refs/pr/1"); /* of the same commit: its files are the same items */
    b.revision[0].names[b.revision[0].names_count++] = "name";
    assert_int_equal(bundle_index(&b, NULL), 0);
    assert_int_equal(HASH_COUNT(b.items), 3 + 3 + 5);
    bundle_write(&b, &out);
    assert_int_equal(bundle_read(buf_slice(&out), &c, NULL), 0);
    bundle_write(&c, &again);
    assert_true(slice_eq(buf_slice(&out), buf_slice(&again)));
    assert_string_equal(c.revision[0].names[0], "name");
    assert_non_null(bundle_find(&c, SLICE("hub/models--org--name/refs/refs/pr/1")));
    assert_non_null(
        bundle_find(&c, SLICE("hub/models--org--name/snapshots/" COMMIT "/sub/b"))->next);
    digest_of(buf_slice(&out), &d);
    bundle_sums(&b, &d, &sums);
    assert_true(bundle_sums_read(buf_slice(&sums), &e) && digest_eq(&d, &e));
    assert_false(bundle_sums_read(slice_from(buf_slice(&sums), 1), &e));
    bundle_free(&b);
    bundle_free(&c);
    buf_free(&out);
    buf_free(&again);
    buf_free(&sums);
}

static void test_names_that_none_can_be(void **state)
{
    static const char *const paths[] = {"../x", "/x", "a/../b", "a//b", "a/", "", ".", "a\nb"};
    struct buf out = BUF_INIT(1 << 20);
    struct bundle b = {0}, c;

    (void)state;
    fill(&b, "main");
    for (size_t i = 0; i < ARRAY_LEN(paths); i++) {
        b.revision[0].file[1].path = paths[i];
        buf_clear(&out);
        bundle_write(&b, &out);
        assert_int_equal(bundle_read(buf_slice(&out), &c, NULL), E_INVALID);
    }
    b.revision[0].file[1].path = b.revision[0].file[0].path;
    buf_clear(&out);
    bundle_write(&b, &out);
    assert_int_equal(bundle_read(buf_slice(&out), &c, NULL), E_INVALID); /* twice */
    bundle_free(&b);
    buf_free(&out);
}

/* Others write manifests, too: then it is unknown, as where none stands. */
static void test_a_time_before_all_time(void **state)
{
    struct buf out = BUF_INIT(1 << 20);
    struct bundle b = {0}, c;
    char *made;

    (void)state;
    fill(&b, "main");
    b.made_unix_s = 77;
    bundle_write(&b, &out);
    made = strstr(buf_cstr(&out), "77");
    assert_non_null(made);
    memcpy(made, "-7", 2);
    assert_int_equal(bundle_read(buf_slice(&out), &c, NULL), 0);
    assert_int_equal(c.made_unix_s, 0);
    bundle_free(&b);
    bundle_free(&c);
    buf_free(&out);
}

/* --- out and in --- */

static void none(void *arg, uint64_t n)
{
    *(uint64_t *)arg += n;
}

static int fd_of(const char *bytes)
{
    FILE *f = tmpfile();
    int fd;

    fputs(bytes, f);
    fflush(f);
    fd = dup(fileno(f));
    fclose(f);
    return fd;
}

static const char *bytes_of(const struct bundle_item *it)
{
    if (it->kind != ITEM_FILE) {
        return it->kind == ITEM_REF ? COMMIT : it->kind == ITEM_INFO ? "info" : "tree";
    }
    for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
        if (strcmp(it->file, texts[i][0]) == 0) {
            return texts[i][1];
        }
    }
    return "";
}

static void carry(const char *to)
{
    struct buf manifest = BUF_INIT(1 << 20), sums = BUF_INIT(1 << 20);
    const struct bundle_item *first = NULL;
    struct bundle_out *o;
    struct bundle b = {0};
    uint64_t done = 0;
    struct digest d;
    struct err e = {0};

    fill(&b, "main");
    assert_int_equal(bundle_index(&b, &e), 0);
    bundle_write(&b, &manifest);
    digest_of(buf_slice(&manifest), &d);
    bundle_sums(&b, &d, &sums);
    assert_int_equal(bundle_out_open(to, true, &o, &e), 0);
    o->on_bytes = none;
    o->arg = &done;
    o->deep = true;
    assert_int_equal(o->ops->begin(o, buf_slice(&manifest), buf_slice(&sums), &e), 0);
    for (const struct bundle_item *it = b.items; it != NULL; it = it->hh.next) {
        bool same = it->file != NULL && strcmp(it->file, "sub/same") == 0;
        int fd = fd_of(bytes_of(it));
        assert_false(o->ops->has(o, it));
        assert_int_equal(same ? o->ops->again(o, it, first, &e) : o->ops->file(o, it, fd, &e), 0);
        close(fd);
        first = it->file != NULL && strcmp(it->file, "a.json") == 0 ? it : first;
    }
    assert_int_equal(o->ops->finish(o, buf_slice(&manifest), buf_slice(&sums), &e), 0);
    bundle_out_close(&o);
    bundle_free(&b);
    buf_free(&manifest);
    buf_free(&sums);
}

static void take(const char *from)
{
    struct bundle_item *it, *as;
    struct bundle_in *in;
    struct bundle b;
    struct digest d;
    struct err e = {0};
    size_t count = 0;

    assert_int_equal(bundle_in_open(from, &in, &e), 0);
    assert_int_equal(bundle_in_manifest(in, NULL, &b, &d, &e), 0);
    while (bundle_in_next(in, &it, &as, &e) == 0 && it != NULL) {
        struct buf out = BUF_INIT(1 << 20);
        count++;
        if (as == NULL) {
            assert_int_equal(bundle_in_bytes(in, it, &out, &e), 0);
            assert_true(slice_eq(buf_slice(&out), slice_str(bytes_of(it))));
        } else {
            assert_string_equal(it->file, "sub/same");
            assert_string_equal(as->file, "a.json");
        }
        buf_free(&out);
    }
    assert_int_equal(e.code, 0);
    assert_int_equal(count, 8);
    bundle_in_close(&in);
    bundle_free(&b);
}

static void test_there_and_back(void **state)
{
    char folder[] = "/tmp/bundle-XXXXXX", path[64];

    (void)state;
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/x.tar", folder);
    carry(path);
    take(path);
    snprintf(path, sizeof path, "%s/x", folder);
    carry(path);
    take(path);
    assert_int_equal(dir_remove_tree(folder, NULL), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_written_and_read),
        cmocka_unit_test(test_names_that_none_can_be),
        cmocka_unit_test(test_a_time_before_all_time),
        cmocka_unit_test(test_there_and_back),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
