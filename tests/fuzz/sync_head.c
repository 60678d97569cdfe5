/* What a core says: a head, a node's frame. */
#include "server/store/node.h"
#include "server/sync/mirrord/protocol.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct slice bytes = slice_of(data, size);
    struct buf out = BUF_INIT(NODE_BYTES_MAX), again = BUF_INIT(2 * NODE_BYTES_MAX);
    struct snap sn;
    struct tree_node n;

    (void)!sync_head_read(bytes, &sn, NULL);
    if (sync_node_unpack(bytes, &out, NULL) == 0) {
        CHECK(out.n <= NODE_BYTES_MAX);
        if (node_decode(buf_slice(&out), &n, NULL) == 0) {
            node_free(&n);
        }
    }
    buf_clear(&out);
    sync_node_pack(bytes, &again);
    CHECK(sync_node_unpack(buf_slice(&again), &out, NULL) == 0 && slice_eq(buf_slice(&out), bytes));
    buf_free(&out);
    buf_free(&again);
    return 0;
}
