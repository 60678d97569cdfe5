/* kmsg.c - any bytes as the kernel's log, as lists of CPUs and as what a node must have: parsed or
 * not, never worse. */
#include <stdlib.h>

#include "agent/preflight/expect.h"
#include "agent/preflight/kmsg.h"
#include "agent/preflight/sight.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct slice rest = slice_of(data, size);
    struct expect x;
    char *word;

    while (rest.n > 0) {
        struct slice line = slice_cut(&rest, '\n');
        struct err e = {0};
        struct kmsg k;
        uint64_t bits;

        if (kmsg_parse(line, &k)) {
            CHECK(k.number <= 1000000 &&
                  strspn(k.device, "0123456789abcdefABCDEF:.") == strlen(k.device));
        }
        (void)list_has(line, 7);
        word = mem_new(line.n + 1);
        memcpy(word, line.p, line.n);
        expect_init(&x);
        if (expect_word(word, &x, &e) != 0) {
            CHECK(e.code == E_USAGE && e.text[0] != '\0');
        }
        if (expect_names(word, &bits, &e) == 0) {
            CHECK(bits != 0);
        }
        CHECK(version_cmp(word, word) == 0);
        free(word);
    }
    return 0;
}
