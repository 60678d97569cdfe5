/* What a mirror of a cluster announces of itself, of any version or damaged: what is read has its
 * bounds, and can be written and read again. */
#include "server/cluster/member_document.h"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

static void check_bounds(const struct member_document *d)
{
    CHECK(strnlen(d->member.address, MEMBER_ADDRESS_ROOM) < MEMBER_ADDRESS_ROOM);
    CHECK(strnlen(d->member.version, sizeof d->member.version) < sizeof d->member.version);
    CHECK(strnlen(d->boot, MEMBER_BOOT_ROOM) < MEMBER_BOOT_ROOM);
    CHECK(d->member.state <= MEMBER_LEFT && d->member.node[0] == '\0');
    CHECK(d->member.weight >= 1 && d->member.weight <= MEMBER_WEIGHT_MAX);
    CHECK(d->pauses <= MEMBER_PAUSES_MAX);
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
    struct buf again = BUF_INIT(MEMBER_DOCUMENT_BYTES);
    struct member_document d, same;

    if (n <= MEMBER_DOCUMENT_BYTES && member_document_read(slice_of(p, n), &d)) {
        check_bounds(&d);
        member_document_write(&d, &again);
        CHECK(again.rc == 0 && member_document_read(buf_slice(&again), &same));
        CHECK(strcmp(d.member.address, same.member.address) == 0 && strcmp(d.boot, same.boot) == 0);
        CHECK(strcmp(d.member.version, same.member.version) == 0);
        CHECK(d.beat == same.beat && d.member.applied == same.member.applied);
        CHECK(d.member.format == same.member.format && d.member.state == same.member.state);
        CHECK(d.member.weight == same.member.weight && d.member.stopped == same.member.stopped);
        CHECK(d.pauses == same.pauses);
        for (size_t i = 0; i < d.pauses; i++) {
            CHECK(d.pause[i].origin == same.pause[i].origin);
            CHECK(d.pause[i].until_unix_s == same.pause[i].until_unix_s);
        }
    } else if (n <= MEMBER_DOCUMENT_BYTES) {
        CHECK(d.member.weight == 1 && d.pauses == 0 && d.boot[0] == '\0');
    }
    buf_free(&again);
    return 0;
}
