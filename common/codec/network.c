#include "common/codec/network.h"

#include <arpa/inet.h>
#include <netinet/in.h>

static const uint8_t v4_prefix[12] = {[10] = 0xff, [11] = 0xff};

bool network_parse(struct slice text, struct network *out)
{
    struct slice bits = text, host = slice_cut(&bits, '/');
    bool v4 = slice_find(host, ':') < 0;
    unsigned most = v4 ? 32 : 128;
    uint64_t n = most;
    char z[INET6_ADDRSTRLEN];

    if (host.n == 0 || host.n >= sizeof(z)) {
        return false;
    }
    memcpy(z, host.p, host.n);
    z[host.n] = '\0';
    if (strlen(z) != host.n || (host.n < text.n && !slice_u64(bits, &n)) || n > most) {
        return false;
    }
    memcpy(out->address, v4_prefix, sizeof(v4_prefix));
    if (inet_pton(v4 ? AF_INET : AF_INET6, z, v4 ? out->address + 12 : out->address) != 1) {
        return false;
    }
    out->bits = (unsigned)n + 128 - most;
    for (unsigned i = out->bits; i < 128; i++) {
        if ((out->address[i / 8] & (0x80 >> i % 8)) != 0) {
            return false; /* 10.0.0.1/8 says two things: ask which */
        }
    }
    return true;
}

bool network_has(const struct network *n, const uint8_t address[16])
{
    unsigned bytes = n->bits / 8, rest = n->bits % 8;

    if (memcmp(n->address, address, bytes) != 0) {
        return false;
    }
    return rest == 0 || (n->address[bytes] ^ address[bytes]) >> (8 - rest) == 0;
}

bool address_is_loopback(const uint8_t address[16])
{
    static const uint8_t one[16] = {[15] = 1};

    return memcmp(address, one, 16) == 0 ||
           (memcmp(address, v4_prefix, sizeof(v4_prefix)) == 0 && address[12] == 127);
}
