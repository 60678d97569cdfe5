#include "server/cluster/rendezvous.h"

#include <math.h>
#include <string.h>

#include "common/base/endian.h"
#include "common/hash/sha256.h"

double rendezvous_score(const char *node, uint32_t weight, struct slice key)
{
    struct sha256 h;
    uint8_t d[SHA256_BYTES];

    sha256_init(&h, sha256_best());
    sha256_add(&h, node, strlen(node) + 1);
    sha256_add(&h, key.p, key.n);
    sha256_so_far(&h, d);
    sha256_fini(&h);
    return weight / -log((double)((be_get(d, 8) >> 11) + 1) / 9007199254740994.0); /* 2^53 + 2 */
}
