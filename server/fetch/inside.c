#include "server/fetch/inside.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include "common/base/endian.h"

/* The nets that a page from outside must not lead to. 192.0.2/24, 198.51.100/24 and 203.0.113/24
 * are not among them: closed networks map registries there (docs/security.md). */
static const struct {
    uint32_t net;
    int bits;
} inside4[] = {
    {0x00000000, 8},  /* this host */
    {0x0a000000, 8},  /* private */
    {0x64400000, 10}, /* carrier-grade NAT; metadata of some clouds */
    {0x7f000000, 8},  /* loopback */
    {0xa9fe0000, 16}, /* link-local; metadata of the others */
    {0xac100000, 12}, /* private */
    {0xc0000000, 24}, /* protocol assignments */
    {0xc0a80000, 16}, /* private */
    {0xe0000000, 3},  /* multicast, reserved, broadcast */
};

static bool inside_v4(uint32_t a)
{
    for (size_t i = 0; i < ARRAY_LEN(inside4); i++) {
        if ((a ^ inside4[i].net) >> (32 - inside4[i].bits) == 0) {
            return true;
        }
    }
    return false;
}

static uint32_t v4_at(const uint8_t *p)
{
    return (uint32_t)be_get(p, 4);
}

static bool inside_v6(const uint8_t *a)
{
    static const uint8_t zero[12];
    static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};
    static const uint8_t translated[12] = {[8] = 0xff, [9] = 0xff}; /* RFC 7915 */
    static const uint8_t isatap[4] = {0x00, 0x00, 0x5e, 0xfe};      /* RFC 5214, but for one bit */
    static const uint8_t nat64[12] = {0x00, 0x64, 0xff, 0x9b};
    static const uint8_t nat64_local[6] = {0x00, 0x64, 0xff, 0x9b, 0x00, 0x01};
    static const uint8_t teredo[4] = {0x20, 0x01};

    if (memcmp(a, zero, 12) == 0 || memcmp(a, mapped, 12) == 0 || memcmp(a, translated, 12) == 0 ||
        memcmp(a, nat64, 12) == 0) {
        return memcmp(a, zero, 12) == 0 || inside_v4(v4_at(a + 12)); /* ::, ::1, v4-compatible */
    }
    if (a[0] == 0x20 && a[1] == 0x02) { /* 6to4 carries a v4 address */
        return inside_v4(v4_at(a + 2));
    }
    if ((a[8] & 0xfd) == isatap[0] && memcmp(a + 9, isatap + 1, 3) == 0 &&
        inside_v4(v4_at(a + 12))) {
        return true;
    }
    return (a[0] & 0xfe) == 0xfc ||                   /* unique local */
           (a[0] == 0xfe && (a[1] & 0x80) == 0x80) || /* link-local, site-local */
           a[0] == 0xff ||                            /* multicast */
           memcmp(a, nat64_local, sizeof nat64_local) ==
               0 ||                               /* RFC 8215: leads where we cannot see */
           memcmp(a, teredo, sizeof teredo) == 0; /* a v4 address in disguise */
}

bool address_is_inside(const struct sockaddr *sa)
{
    if (sa->sa_family == AF_INET) {
        return inside_v4(ntohl(((const struct sockaddr_in *)(const void *)sa)->sin_addr.s_addr));
    }
    if (sa->sa_family == AF_INET6) {
        return inside_v6(((const struct sockaddr_in6 *)(const void *)sa)->sin6_addr.s6_addr);
    }
    return true;
}

/* --- what is written where a name stands ------------------------------------------------------ */

static bool literal_is_inside(const char *host)
{
    struct sockaddr_in6 v6 = {.sin6_family = AF_INET6};
    struct sockaddr_in v4 = {.sin_family = AF_INET};

    if (strchr(host, ':') != NULL) { /* one that nobody can read is nobody's to send on */
        return inet_pton(AF_INET6, host, &v6.sin6_addr) != 1 ||
               address_is_inside((const struct sockaddr *)&v6);
    }
    return inet_aton(host, &v4.sin_addr) != 0 && address_is_inside((const struct sockaddr *)&v4);
}

static bool host_is_below(struct slice host, struct slice name)
{
    struct slice tail = slice_from(host, host.n > name.n ? host.n - name.n : 0);

    return slice_ieq(tail, name) && (tail.n == host.n || tail.p[-1] == '.');
}

/* The root's dot at the end: the same host. */
static struct slice without_dots(struct slice host)
{
    while (slice_ends(host, SLICE("."))) {
        host.n--;
    }
    return host;
}

bool host_is_inside(struct slice host)
{
    char text[HOST_TEXT];

    host = without_dots(host);
    if (host.n == 0 || host.n >= sizeof text) {
        return true;
    }
    memcpy(text, host.p, host.n);
    text[host.n] = '\0';
    return host_is_below(host, SLICE("localhost")) ||
           slice_ieq(host, SLICE("localhost.localdomain")) ||
           slice_ieq(host, SLICE("ip6-localhost")) || slice_ieq(host, SLICE("ip6-loopback")) ||
           literal_is_inside(text);
}

bool host_is_private(struct slice host)
{
    host = without_dots(host);
    return (slice_find(host, '.') < 0 && slice_find(host, ':') < 0) ||
           host_is_below(host, SLICE("internal")) || host_is_below(host, SLICE("local")) ||
           host_is_below(host, SLICE("localdomain")) || host_is_below(host, SLICE("home.arpa")) ||
           host_is_below(host, SLICE("lan")) || host_is_below(host, SLICE("home")) ||
           host_is_below(host, SLICE("corp")) || host_is_below(host, SLICE("intranet"));
}
