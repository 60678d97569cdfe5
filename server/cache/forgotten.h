/* forgotten.h - what was removed or expired here lately, or arrived damaged. Another mirror may
 * still have it, and must not answer from that when it is asked instead of the origin
 * (neighbor.h).
 *
 * The latest FORGOTTEN_MAX removals are remembered for FORGOTTEN_S.
 *
 * owns     copies of the keys
 * threads  the fetch thread
 */
#ifndef SERVER_CACHE_FORGOTTEN_H
#define SERVER_CACHE_FORGOTTEN_H

#include "common/base/slice.h"

enum { FORGOTTEN_MAX = 64, FORGOTTEN_S = 3600 };

enum forgetting {
    FORGOT_NOTHING,
    FORGOT_FRESHNESS, /* it is confirmed before it is served */
    FORGOT_BYTES,     /* it is fetched anew */
    FORGOT_NEIGHBORS, /* they gave wrong bytes: none of them is asked */
};

struct forgotten_keys {
    struct {
        char *key;
        size_t n;
        bool below; /* all keys that begin so */
        enum forgetting how;
        uint64_t unix_s;
    } of[FORGOTTEN_MAX];
    unsigned next;
};

void forgotten_add(struct forgotten_keys *f, struct slice object_key, bool below,
                   enum forgetting how, uint64_t now_unix_s);
/* What became after that time of what arrived then; 0: there is nothing. */
enum forgetting forgotten_since(const struct forgotten_keys *f, struct slice object_key,
                                uint64_t arrived_unix_s, uint64_t now_unix_s);
void forgotten_free(struct forgotten_keys *f);

#endif
