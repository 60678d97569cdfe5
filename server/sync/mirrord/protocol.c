#include "server/sync/mirrord/protocol.h"

#include <jansson.h>
#include <zstd.h>

#include "common/codec/jread.h"
#include "server/store/node.h"

enum { PACK_LEVEL = 3 };

int sync_head_read(struct slice json, struct snap *out, struct err *e)
{
    json_t *doc = json.n <= SYNC_WIRE_HEAD_MAX
                      ? json_loadb(json.p, json.n, JSON_REJECT_DUPLICATES, NULL)
                      : NULL;
    uint64_t version = 0;
    int rc = 0;

    *out = (struct snap){0};
    if (doc == NULL || !jread_u64(doc, "version", &version)) {
        rc = err_set(e, E_PROTOCOL, "its head is not that of a mirrord");
    } else if (version != SYNC_WIRE_VERSION) {
        rc = err_set(e, E_UNSUPPORTED,
                     "its head has version %llu, but only version %d is supported; upgrade "
                     "the older mirrord",
                     (unsigned long long)version, SYNC_WIRE_VERSION);
    } else if (!jread_u64(doc, "seq", &out->seq) || !jread_u64(doc, "time", &out->created_unix_s) ||
               !jread_u64(doc, "entries", &out->entries) || !jread_u64(doc, "bytes", &out->bytes) ||
               !digest_parse(jread_text(doc, "root"), &out->root)) {
        rc = err_set(e, E_PROTOCOL, "its head cannot be parsed");
    }
    json_decref(doc);
    return rc;
}

void sync_node_pack(struct slice encoding, struct buf *out)
{
    size_t room = ZSTD_compressBound(encoding.n), n;
    char *p = mem_new(room);

    n = ZSTD_compress(p, room, encoding.p, encoding.n, PACK_LEVEL);
    CHECK(!ZSTD_isError(n)); /* there is room for any result */
    buf_add(out, p, n);
    free(p);
}

int sync_node_unpack(struct slice frame, struct buf *out, struct err *e)
{
    unsigned long long size = ZSTD_getFrameContentSize(frame.p, frame.n);
    size_t n;
    char *p;

    if (size == ZSTD_CONTENTSIZE_UNKNOWN || size == ZSTD_CONTENTSIZE_ERROR) {
        return err_set(e, E_PROTOCOL, "a node is not in a zstd frame, or its frame has no size");
    }
    if (size > NODE_BYTES_MAX) {
        return err_set(e, E_TOOBIG, "a node is too large: %llu bytes", size);
    }
    p = mem_new((size_t)size + 1);
    n = ZSTD_decompress(p, (size_t)size, frame.p, frame.n);
    if (!ZSTD_isError(n) && n == size) {
        buf_add(out, p, n);
    }
    free(p);
    return ZSTD_isError(n) || n != size
               ? err_set(e, E_PROTOCOL, "the zstd frame of a node is damaged")
               : out->rc;
}
