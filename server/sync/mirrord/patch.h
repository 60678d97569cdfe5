/* patch.h - how a file is put together from its former version and what must come, by the lists of
 * their pieces.
 *
 * What lies in both is copied; a gap between two stretches that must come is fetched along when it
 * is shorter than PATCH_GAP: a request costs more than that.
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
    uint64_t from; /* where it lies in the former one, when it is here */
};

struct patch {
    struct stretch *stretch; /* one behind the other, the whole file */
    size_t count;
    uint64_t here_bytes, fetch_bytes;
};

void patch_make(const struct pieces *want, const struct pieces *have, struct patch *out);
void patch_free(struct patch *p);
/* Worth it: a twentieth of the file is here, and ten times what the list cost. */
bool patch_pays(const struct patch *p, uint64_t list_bytes);

#endif
