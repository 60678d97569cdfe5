#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "server/store/node.h"
#include "server/sync/mirrord/protocol.h"

#define HEX "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

static int read_head(const char *json, struct snap *out)
{
    return sync_head_read(slice_str(json), out, NULL);
}

static void test_heads(void **state)
{
    struct snap sn;

    (void)state;
    assert_int_equal(read_head("{\"version\":1,\"repo\":\"x\",\"seq\":7,\"root\":\"" HEX
                               "\",\"time\":5,\"entries\":3,\"bytes\":9}",
                               &sn),
                     0);
    assert_int_equal(sn.seq, 7);
    assert_int_equal(sn.entries, 3);
    assert_int_equal(sn.bytes, 9);
    assert_int_equal(sn.root.b[0], 1);
    assert_int_equal(read_head("", &sn), E_PROTOCOL);
    assert_int_equal(read_head("[1]", &sn), E_PROTOCOL);
    assert_int_equal(read_head("{\"version\":1}", &sn), E_PROTOCOL);
    assert_int_equal(read_head("{\"version\":2}", &sn), E_UNSUPPORTED);
    assert_int_equal(read_head("{\"version\":1,\"version\":1}", &sn), E_PROTOCOL);
    assert_int_equal(read_head("{\"version\":1,\"seq\":-7,\"root\":\"" HEX
                               "\",\"time\":5,\"entries\":3,\"bytes\":9}",
                               &sn),
                     E_PROTOCOL);
    assert_int_equal(read_head("{\"version\":1,\"seq\":7,\"root\":\"0123\",\"time\":5,"
                               "\"entries\":3,\"bytes\":9}",
                               &sn),
                     E_PROTOCOL);
}

static void test_frames(void **state)
{
    struct buf packed = BUF_INIT(2 * NODE_BYTES_MAX), out = BUF_INIT(NODE_BYTES_MAX);
    char bytes[5000];

    (void)state;
    memset(bytes, 'a', sizeof bytes);
    sync_node_pack(slice_of(bytes, sizeof bytes), &packed);
    assert_in_range(packed.n, 1, 200);
    assert_int_equal(sync_node_unpack(buf_slice(&packed), &out, NULL), 0);
    assert_int_equal(out.n, sizeof bytes);
    for (size_t n = 0; n < packed.n; n++) {
        buf_clear(&out);
        assert_int_not_equal(sync_node_unpack(slice_first(buf_slice(&packed), n), &out, NULL), 0);
    }
    /* one that says 4 GiB - 1 */
    assert_int_equal(
        sync_node_unpack(SLICE("\x28\xb5\x2f\xfd\xa0\xff\xff\xff\xff\x00\x00\x00"), &out, NULL),
        E_TOOBIG);
    buf_free(&packed);
    buf_free(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_heads),
        cmocka_unit_test(test_frames),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
