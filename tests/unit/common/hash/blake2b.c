#include "common/hash/blake2b.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

static void hex_of(const char *bytes, size_t n, size_t piece, size_t out_bytes, char *hex)
{
    struct blake2b b;
    uint8_t out[64];

    blake2b_init(&b, out_bytes);
    for (size_t at = 0; at < n; at += piece) {
        blake2b_add(&b, slice_of(bytes + at, n - at < piece ? n - at : piece));
    }
    blake2b_final(&b, out);
    for (size_t i = 0; i < out_bytes; i++) {
        snprintf(hex + 2 * i, 3, "%02x", out[i]);
    }
}

/* Byte i is 7 i + 3; the digests are those of another implementation. */
static void test_lengths(void **state)
{
    static const struct {
        size_t n;
        const char *hex;
    } row[] = {
        {0, "0e5751c026e543b2e8ab2eb06099daa1d1e5df47778f7787faab45cdf12fe3a8"},
        {1, "e88bd757ad5b9bedf372d8d3f0cf6c962a469db61a265f6418e1ffed86da29ec"},
        {127, "c9ae3859964b35f04c54b36d33cf299d7290ee621005d28e51598a943560aaaa"},
        {128, "f0501d06597880592bc49234eef100ec1ff349058d0e9d9b753504e24af86dd6"},
        {129, "a34a4e1e03c541dfbf3099c4b6c143c022ced65c28bd7e8a10e0a098461aecf0"},
        {255, "f2d64a40e9412a3414161ff6250075225418fd7c271c1123e162e1bca0de9f93"},
        {256, "d93ebb9c802f5630ab22516fd82b6c21bc8bd551d531349b715f046ed11ed871"},
        {257, "4ce481b24d387422d2bc2baa03d1afd55a1327939ff537c71eb9b38709268649"},
        {1000, "d62b6c768ce1afc8367e0498ab2f8e3f7c178c35b1429f14c4604b545d200f52"},
    };
    char bytes[1000], hex[129];

    (void)state;
    for (size_t i = 0; i < sizeof bytes; i++) {
        bytes[i] = (char)(7 * i + 3);
    }
    for (size_t i = 0; i < ARRAY_LEN(row); i++) {
        for (size_t piece = 1; piece < 300; piece++) {
            hex_of(bytes, row[i].n, piece, BLAKE2B_256_BYTES, hex);
            assert_string_equal(hex, row[i].hex);
        }
    }
}

/* RFC 7693, appendix A */
static void test_rfc(void **state)
{
    char hex[129];

    (void)state;
    hex_of("abc", 3, 3, 64, hex);
    assert_string_equal(hex, "ba80a53f981c4d0d6a2797b69f12f6e94c212f14685ac4b74b12bb6fdbffa2d1"
                             "7d87c5392aab792dc252d5de4533cc9518d38aa8dbf1925ab92386edd4009923");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_lengths), cmocka_unit_test(test_rfc)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
