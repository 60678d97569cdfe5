/* What another node asks of us. */
#include "agent/peers/give.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct inbound_peer_request r;

    if (inbound_peer_read(slice_of(data, size), &r)) {
        CHECK(r.digest_hex.n == DIGEST_HEX && (!r.have || r.chunk == 0));
    }
    return 0;
}
