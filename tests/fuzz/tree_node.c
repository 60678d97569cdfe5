/* A node of a tree from a stranger: decodes or not; what decodes is sorted, holds only valid paths,
 * and encodes to the same bytes again, so that a node has one name. */
#include "server/store/node.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct slice bytes = slice_of(data, size);
    struct buf again = BUF_INIT(NODE_BYTES_MAX);
    struct digest id;
    struct tree_node n;

    if (node_decode(bytes, &n, NULL) != 0) {
        return 0;
    }
    node_begin(&again);
    for (size_t i = 0; i < n.count; i++) {
        struct slice path = n.level == 0 ? n.entry[i].path : n.child[i].first;
        CHECK(tree_path_valid(path));
        CHECK(node_find(&n, path) == (ptrdiff_t)i);
        if (n.level == 0) {
            node_add_entry(&again, &n.entry[i]);
        } else {
            node_add_child(&again, &n.child[i]);
        }
    }
    node_name(&again, n.level, n.count, &id);
    CHECK(slice_eq(buf_slice(&again), bytes));
    buf_free(&again);
    node_free(&n);
    return 0;
}
