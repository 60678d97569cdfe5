#include "agent/preflight/kmsg.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

static void test_lines_of_drivers(void **state)
{
    static const struct {
        const char *line;
        struct kmsg is;
    } good[] = {
        {"6,1234,5678901234,-;NVRM: Xid (PCI:0000:3b:00): 79, pid=1234, name=python, GPU has fallen off the bus.",
         {KMSG_XID, 5678901234, 79, false, "0000:3b:00"}},
        {"4,1,2,-;NVRM: Xid (0000:03:00): 14, Channel 00000001",
         {KMSG_XID, 2, 14, false, "0000:03:00"}},
        {"4,1,2,-,caller=T12;NVRM: Xid (PCI:0009:01:00): 119, Timeout after 45s of waiting for RPC response",
         {KMSG_XID, 2, 119, false, "0009:01:00"}},
        {"3,1,7,-;nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 20034, Fatal, Link 46 LTSSM Fault Up",
         {KMSG_SXID, 7, 20034, true, "0000:c1:00.0"}},
        {"3,1,7,-;nvidia-nvswitch0: SXid (PCI:0000:07:00.0): 12028, Non-fatal, Link 32 egress",
         {KMSG_SXID, 7, 12028, false, "0000:07:00.0"}},
        {"3,1,8,-;NVRM: fallen off the bus and is not responding to commands.",
         {KMSG_OFF_BUS, 8, 0, false, ""}},
        {"3,1,9,-;NVRM: GPU 0000:01:00.0: RmInitAdapter failed! (0x22:0x56:894)",
         {KMSG_NO_START, 9, 0, false, "0000:01:00.0"}},
        {"3,1,9,-;NVRM: Xid (PCI:zz): 48, x", {KMSG_XID, 9, 48, false, ""}},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(good); i++) {
        struct kmsg k;
        if (!kmsg_parse(slice_str(good[i].line), &k)) {
            fail_msg("%s", good[i].line);
        }
        assert_int_equal(k.kind, good[i].is.kind);
        assert_int_equal(k.at_us, good[i].is.at_us);
        assert_int_equal(k.number, good[i].is.number);
        assert_int_equal(k.fatal, good[i].is.fatal);
        assert_string_equal(k.device, good[i].is.device);
    }
}

static void test_other_lines(void **state)
{
    static const char *const other[] = {
        "",
        ";",
        " SUBSYSTEM=pci",
        "6,1,2,-;",
        "6,1,2,-;Linux version 6.8",
        "6,1,x,-;NVRM: Xid (PCI:0000:3b:00): 79",
        "NVRM: Xid (PCI:0000:3b:00): 79, without a head",
        "6,1,2,-;NVRM: Xid",
        "6,1,2,-;NVRM: Xid (PCI:0000:3b:00)",
        "6,1,2,-;NVRM: Xid (PCI:0000:3b:00): ",
        "6,1,2,-;NVRM: Xid (PCI:0000:3b:00): many",
        "6,1,2,-;NVRM: Xid (PCI:0000:3b:00): 99999999999999999999",
        "6,1,2,-;Xid (PCI:0000:3b:00): 79",
        "6,1,2,-;NVRM: loading NVIDIA UNIX Open Kernel Module",
        "6,1,2,-;user wrote: fallen off the bus",
        "6,1,2;NVRM: fallen off the buss",
        "6,1;NVRM: fallen off the bus",
        " 6,1,2,-;NVRM: fallen off the bus",
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(other); i++) {
        struct kmsg k;
        bool is = kmsg_parse(slice_str(other[i]), &k);
        if (is != (i == 15)) { /* a record without flags is one */
            fail_msg("%s", other[i]);
        }
    }
}

static void test_whose_fault(void **state)
{
    bool node;

    (void)state;
    assert_non_null(xid_what(79, &node));
    assert_true(node);
    assert_non_null(xid_what(31, &node));
    assert_false(node);
    assert_non_null(xid_what(63, &node));
    assert_false(node);
    assert_null(xid_what(4000, &node));
    assert_false(node);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lines_of_drivers),
        cmocka_unit_test(test_other_lines),
        cmocka_unit_test(test_whose_fault),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
