#include "agent/train/tboard.h"

#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include <cmocka.h>

static void expect(const struct buf *b, const char *hex)
{
    uint8_t want[256];
    struct slice s = slice_str(hex);

    assert_int_equal(b->n, s.n / 2);
    assert_true(slice_hex(s, want, s.n / 2));
    assert_memory_equal(b->p, want, s.n / 2);
}

/* Records as tensorflow writes them. */
static void test_version_record(void **state)
{
    struct buf event = BUF_INIT(1024), record = BUF_INIT(1024);

    (void)state;
    tboard_version_event(0, &event);
    expect(&event, "0900000000000000001a0d627261696e2e4576656e743a32");
    tboard_record(buf_slice(&event), &record);
    expect(&record, "1800000000000000a37f4b22"
                    "0900000000000000001a0d627261696e2e4576656e743a32"
                    "eedf28a3");
    buf_free(&event);
    buf_free(&record);
}

static void test_scalar_record(void **state)
{
    const struct tboard_scalar loss = {"loss", 1.5};
    struct buf event = BUF_INIT(1024), record = BUF_INIT(1024);

    (void)state;
    tboard_scalar_event(0, 1, &loss, 1, &event);
    tboard_record(buf_slice(&event), &record);
    expect(&record, "1a00000000000000129bd82d"
                    "09000000000000000010012a0d0a0b0a046c6f7373150000c03f"
                    "22a53114");
    buf_free(&event);
    buf_free(&record);
}

static void test_long_step_takes_a_long_varint(void **state)
{
    const struct tboard_scalar x = {"x", 0};
    struct buf event = BUF_INIT(1024);

    (void)state;
    tboard_scalar_event(0, 300, &x, 1, &event);
    expect(&event, "09000000000000000010ac022a0a0a080a01781500000000");
    buf_free(&event);
}

/* SessionLog.START: tensorboard drops what it read of this step and later ones. */
static void test_start_record(void **state)
{
    struct buf event = BUF_INIT(1024);

    (void)state;
    tboard_start_event(0, 21, &event);
    expect(&event, "09000000000000000010153a020801");
    buf_free(&event);
}

static void test_file(void **state)
{
    const struct tboard_scalar loss = {"loss", 1.5};
    char dir[] = "/tmp/tboard.XXXXXX", path[600] = "";
    struct buf text = BUF_INIT(4096);
    struct tboard *t;
    struct dirent *ent;
    DIR *d;

    (void)state;
    assert_non_null(mkdtemp(dir));
    assert_int_equal(tboard_open(dir, 12.5, 1, &t, NULL), 0);
    tboard_add(t, 0, 1, &loss, 1);
    assert_int_equal(tboard_close(&t, NULL), 0);
    assert_null(t);
    d = opendir(dir);
    while ((ent = readdir(d)) != NULL) {
        if (ent->d_name[0] != '.') {
            assert_int_equal(strncmp(ent->d_name, "events.out.tfevents.12.", 23), 0);
            snprintf(path, sizeof path, "%s/%s", dir, ent->d_name);
        }
    }
    closedir(d);
    assert_int_equal(buf_read_file(&text, path, NULL), 0);
    assert_int_equal(text.n, 40 + 31 + 42);
    unlink(path);
    rmdir(dir);
    assert_true(tboard_open(dir, 0, 1, &t, NULL) != 0);
    buf_free(&text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_version_record), cmocka_unit_test(test_scalar_record),
        cmocka_unit_test(test_start_record),   cmocka_unit_test(test_long_step_takes_a_long_varint),
        cmocka_unit_test(test_file),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
