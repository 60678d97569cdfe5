#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "server/sync/mirrord/patch.h"

enum { UNIT = 64 << 10 };

/* Pieces of UNIT bytes, named by letters. */
static struct pieces of(const char *letters)
{
    struct pieces p = {.count = strlen(letters), .size_bytes = strlen(letters) * (uint64_t)UNIT};

    p.piece = mem_array(p.count + 1, sizeof p.piece[0]);
    for (size_t i = 0; i < p.count; i++) {
        p.piece[i] = (struct blob_piece){.off = i * (uint64_t)UNIT, .n = UNIT};
        memset(p.piece[i].id, letters[i], PIECE_ID);
    }
    return p;
}

static void expect(const char *want, const char *have, const char *reported)
{
    struct pieces w = of(want), h = of(have);
    struct buf out = BUF_INIT(4096);
    struct patch p;

    patch_make(&w, &h, &p);
    for (size_t i = 0; i < p.count; i++) {
        const struct stretch *s = &p.stretch[i];
        buf_addf(&out, "%llu-%llu", (unsigned long long)(s->off / UNIT),
                 (unsigned long long)(s->end / UNIT));
        if (s->here) {
            buf_addf(&out, "<%llu", (unsigned long long)(s->from / UNIT));
        }
        buf_str(&out, " ");
    }
    assert_string_equal(buf_cstr(&out), reported);
    assert_int_equal(p.here_bytes + p.fetch_bytes, w.size_bytes);
    patch_free(&p);
    pieces_free(&w);
    pieces_free(&h);
    buf_free(&out);
}

static void test_what_is_here_is_copied(void **state)
{
    (void)state;
    expect("abcdefgh", "abcdefgh", "0-8<0 ");
    expect("abcdefgh", "", "0-8 ");
    expect("", "abc", "");
    expect("abcdeXfghij", "abcdefghij", "0-5<0 5-6 6-11<5 ");
    expect("fghijabcde", "abcdefghij", "0-5<5 5-10<0 ");
    expect("zzzzzzzz", "zz", "0-1<0 1-2<0 2-3<0 3-4<0 4-5<0 5-6<0 6-7<0 7-8<0 ");
}

/* Less than four pieces here (256 KiB) between two that must come are fetched along; at the ends
 * they are not. */
static void test_short_gaps_are_none(void **state)
{
    (void)state;
    expect("XabcY", "abc", "0-5 ");
    expect("XabcdY", "abcd", "0-1 1-5<0 5-6 ");
    expect("XcbaY", "abc", "0-5 ");
    expect("XdcbaY", "abcd", "0-1 1-2<3 2-3<2 3-4<1 4-5<0 5-6 ");
    expect("abcX", "abc", "0-3<0 3-4 ");
    expect("Xabc", "abc", "0-1 1-4<0 ");
    expect("XaYbZcdefW", "abcdef", "0-5 5-9<2 9-10 ");
}

static void test_what_pays(void **state)
{
    struct patch p = {.here_bytes = 1000, .fetch_bytes = 1000};

    (void)state;
    assert_true(patch_pays(&p, 99));
    assert_false(patch_pays(&p, 100));
    p.fetch_bytes = 20000;
    assert_false(patch_pays(&p, 1));
}

static void test_lists_decode_or_not(void **state)
{
    char list[52 + 3 * 20] = "mrdpcs01";
    struct pieces p;

    (void)state;
    list[14] = 0x41; /* 0x4101 bytes: 8 KiB, 8 KiB, 257 */
    list[15] = 1;
    list[51] = 3;
    list[54] = list[74] = 0x20;
    list[94] = list[95] = 1;
    assert_int_equal(pieces_decode(slice_of(list, sizeof list), &p, NULL), 0);
    assert_int_equal(p.count, 3);
    assert_int_equal(p.piece[2].off, 16384);
    pieces_free(&p);
    for (size_t n = 0; n < sizeof list; n++) {
        assert_int_equal(pieces_decode(slice_of(list, n), &p, NULL), E_CORRUPT);
    }
    list[54] = 0x1f; /* too short for one that is not the last */
    assert_int_equal(pieces_decode(slice_of(list, sizeof list), &p, NULL), E_CORRUPT);
    list[54] = 0x20;
    list[15] = 2; /* sizes do not add up */
    assert_int_equal(pieces_decode(slice_of(list, sizeof list), &p, NULL), E_CORRUPT);
    list[15] = 1;
    list[0] = 'x';
    assert_int_equal(pieces_decode(slice_of(list, sizeof list), &p, NULL), E_CORRUPT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_is_here_is_copied),
        cmocka_unit_test(test_short_gaps_are_none),
        cmocka_unit_test(test_what_pays),
        cmocka_unit_test(test_lists_decode_or_not),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
