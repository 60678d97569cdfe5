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
        {"6,1234,5678901234,-;NVRM: Xid (PCI:0000:3b:00): 79, pid=1234, name=python, "
         "GPU has fallen off the bus.",
         {KMSG_XID, 5678901234, 79, false, "0000:3b:00"}},
        {"4,1,2,-,caller=T12;NVRM: Xid (PCI:0009:01:00): 119, "
         "Timeout after 45s of waiting for RPC response",
         {KMSG_XID, 2, 119, false, "0009:01:00"}},
        {"3,1,7,-;nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 20034, Fatal, Link 46 LTSSM Fault Up",
         {KMSG_SXID, 7, 20034, true, "0000:c1:00.0"}},
        {"3,1,7,-;nvidia-nvswitch0: SXid (PCI:0000:07:00.0): 12028, Non-fatal, Link 32 egress",
         {KMSG_SXID, 7, 12028, false, "0000:07:00.0"}},
        {"3,1,8,-;NVRM: fallen off the bus and is not responding to commands.",
         {KMSG_OFF_BUS, 8, 0, false, ""}},
        {"3,1,9,-;NVRM: GPU 0000:01:00.0: RmInitAdapter failed! (0x22:0x56:894)",
         {KMSG_NO_START, 9, 0, false, "0000:01:00.0"}},
        {"3,1,9,-;NVRM: GPU 0000:3b:00.0: GPU has fallen off the bus.",
         {KMSG_OFF_BUS, 9, 0, false, "0000:3b:00.0"}},
        {"3,1,9,-;NVRM: The NVIDIA GPU 0000:3b:00.0\\x0aNVRM: installed in this system has\\x0a"
         "NVRM: fallen off the bus",
         {KMSG_OFF_BUS, 9, 0, false, "0000:3b:00.0"}},
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
        "6,1,2,-;NVRM: Xid (PCI:zz): 48, x",
        "6,1,2,-;NVRM: Xid (PCI:): 48, x",
        "6,1,2,-;NVRM: Xid (0000:3b:00): 48, x",
        "6,1,2,-;NVRM: Xid (PCI:0000:3b:00) x): 48, x",
        "x,1,2,-;NVRM: fallen off the bus",
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

/* Names of programs (15 bytes) and of files, which a user chooses, in lines that the kernel writes
 * when theirs crash. */
static void test_lines_that_users_make(void **state)
{
    static const char *const forged[] = {
        "6,1,2,-;SXid (PCI:0000:[77]: segfault at 0 ip 1 sp 2 error 4 in "
        "SXid (PCI:0000:3b:00): 20034, Fatal[400000+1000]",
        "6,1,2,-;a.out[77]: segfault at 0 ip 1 sp 2 error 4 in "
        "NVRM: Xid (PCI:0000:3b:00): 79[400000+1000]",
        "6,1,2,-;NVRM: Xid (PCI:[77]: segfault at 0 ip 1 sp 2 error 4 in "
        "0000:3b:00): 79[400000+1000]",
        "6,1,2,-;NVRM: Xid (PCI:[77] bad frame in rt_sigreturn frame:1 ip:2 sp:3 orax:4 in "
        "0000:3b:00): 79[400000+1000]",
        "6,1,2,-;NVRM: GPU 0:0.0[77]: unhandled exception: x in RmInitAdapter failed[400000+1000]",
        "6,1,2,-;NVRM: GPU 0:0.0[77] bad frame in x frame:1 in fallen off the bus[400000+1000]",
        "6,1,2,-;NVRM: GPU 0:0.0 invoked oom-killer: RmInitAdapter failed",
        "6,1,2,-;NVRM: The NVIDI[77]: unhandled exception: x in fallen off the bus[400000+1000]",
        "6,1,2,-;NVRM: [77]: unhandled exception: x in fallen off the bus[400000+1000]",
        "6,1,2,-;traps: NVRM: Xid[77] trap invalid opcode ip:1 sp:2 error:0 in "
        "NVRM: Xid (PCI:0000:3b:00): 79[400000+1000]",
        "6,1,2,-;nvidia-nvswitch[7] bad frame in x frame:1 in : "
        "SXid (PCI:0000:c1:00.0): 20034, Fatal[400000+1000]",
        "6,1,2,-;nvidia-nvswitch: SXid (PCI:0000:c1:00.0): 20034, Fatal",
        "6,1,2,-;my words: NVRM: Xid (PCI:0000:3b:00): 79, pid=1",
        "12,1,2,-;NVRM: Xid (PCI:0000:3b:00): 79, written by a program",
        "30,1,2,-;NVRM: fallen off the bus",
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(forged); i++) {
        struct kmsg k;
        if (kmsg_parse(slice_str(forged[i]), &k)) {
            fail_msg("%s", forged[i]);
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
        cmocka_unit_test(test_lines_that_users_make),
        cmocka_unit_test(test_whose_fault),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
