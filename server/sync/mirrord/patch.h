/* patch.h - plans how to build a file from its former version and downloaded ranges, by comparing
 * the piece lists of both.
 *
 * Pieces that are in both are copied. A gap between two ranges to download is downloaded with
 * them if it is shorter than PATCH_GAP: another request costs more.
 *
 * owns     patch_free()
 * threads  any; plain memory
 */
#ifndef SERVER_SYNC_MIRRORD_PATCH_H
#define SERVER_SYNC_MIRRORD_PATCH_H

#include "server/store/pieces.h"

enum { PATCH_GAP = 256 << 10 };

struct stretch {
    uint64_t off, end; /* of the new file */
    bool here;
    uint64_t from; /* its offset in the former version, when it is here */
};

struct patch {
    struct stretch *stretch; /* consecutive, the whole file */
    size_t count;
    uint64_t here_bytes, fetch_bytes;
};

void patch_make(const struct pieces *want, const struct pieces *have, struct patch *out);
void patch_free(struct patch *p);
/* True when it is worth it: a twentieth of the file is here, and ten times what the list cost. */
bool patch_pays(const struct patch *p, uint64_t list_bytes);

#endif
