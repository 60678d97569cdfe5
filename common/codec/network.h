/* network.h - addresses and CIDR blocks, v4 and v6 alike: an IPv4 address is compared as
 * ::ffff:a.b.c.d.
 *
 * threads  any
 */
#ifndef COMMON_CODEC_NETWORK_H
#define COMMON_CODEC_NETWORK_H

#include "common/base/slice.h"

struct network {
    uint8_t address[16];
    unsigned bits; /* 0 .. 128, the length of the prefix */
};

/* "10.0.0.0/8", "fd00::/8", "192.0.2.7"; false for anything else, and for bits set after the
 * mask. */
MUST_USE bool network_parse(struct slice text, struct network *out);
bool network_has(const struct network *n, const uint8_t address[16]);
bool address_is_loopback(const uint8_t address[16]);

#endif
