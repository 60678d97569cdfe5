/* called.h - how another system names some bytes: by SHA-256, as this one does, by SHA-512, or by
 * neither. */
#ifndef COMMON_HASH_CALLED_H
#define COMMON_HASH_CALLED_H

#include "common/hash/digest.h"
#include "common/hash/sha512.h"

enum called_by { CALLED_NOT, CALLED_SHA256, CALLED_SHA512 };

struct called {
    enum called_by by;
    struct digest sha256; /* CALLED_SHA256 */
    struct sha512 sha512; /* CALLED_SHA512 */
};

#endif
