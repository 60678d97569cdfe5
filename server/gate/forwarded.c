#include "server/gate/forwarded.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "common/base/check.h"
#include "common/codec/network.h"
#include "server/http/h1_parse.h"

struct proxies {
    _Atomic unsigned holds;
    size_t count;
    struct network network[];
};

struct proxies *proxies_new(const char *const *texts, size_t count)
{
    struct proxies *ps = mem_new(sizeof *ps + count * sizeof ps->network[0]);

    ps->holds = 1;
    for (size_t i = 0; i < count; i++) {
        ps->count += network_parse(slice_str(texts[i]), &ps->network[ps->count]);
    }
    return ps;
}

struct proxies *proxies_hold(struct proxies *ps)
{
    atomic_fetch_add(&ps->holds, 1);
    return ps;
}

void proxies_release(struct proxies **pp)
{
    struct proxies *ps = *pp;

    *pp = NULL;
    if (ps != NULL && atomic_fetch_sub(&ps->holds, 1) == 1) {
        free(ps);
    }
}

bool proxies_have(const struct proxies *ps, const struct sockaddr_storage *peer)
{
    uint8_t address[16];

    address_of(peer, address);
    for (size_t i = 0; i < ps->count; i++) {
        if (network_has(&ps->network[i], address)) {
            return true;
        }
    }
    return false;
}

/* --- pieces of the fields --- */

/* What stands behind the last `mark`; list keeps what is before it. */
static struct slice cut_last_hop(struct slice *list, char mark)
{
    size_t at = list->n;
    struct slice last;

    while (at > 0 && list->p[at - 1] != mark) {
        at--;
    }
    last = slice_from(*list, at);
    *list = slice_first(*list, at > 0 ? at - 1 : 0);
    return slice_trim(last);
}

static struct slice unquoted(struct slice s)
{
    return s.n >= 2 && s.p[0] == '"' && s.p[s.n - 1] == '"' ? slice_of(s.p + 1, s.n - 2) : s;
}

/* "192.0.2.1", "192.0.2.1:80", "2001:db8::1", "[2001:db8::1]:80"; the port is of no interest. */
static bool parse_node(struct slice s, struct sockaddr_storage *out)
{
    struct sockaddr_in *v4 = (struct sockaddr_in *)out;
    struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)out;
    struct slice rest = s;
    struct slice host = slice_cut(&rest, ':');
    char z[INET6_ADDRSTRLEN];

    if (s.n > 0 && s.p[0] == '[') {
        rest = slice_from(s, 1);
        host = slice_cut(&rest, ']');
    } else if (slice_find(rest, ':') >= 0) {
        host = s; /* more than one colon: an address without brackets */
    }
    if (host.n == 0 || host.n >= sizeof z || memchr(host.p, '\0', host.n) != NULL) {
        return false;
    }
    memcpy(z, host.p, host.n);
    z[host.n] = '\0';
    memset(out, 0, sizeof *out);
    if (inet_pton(AF_INET, z, &v4->sin_addr) == 1) {
        out->ss_family = AF_INET;
    } else if (inet_pton(AF_INET6, z, &v6->sin6_addr) == 1) {
        out->ss_family = AF_INET6;
    }
    return out->ss_family != 0;
}

static void take_scheme(struct slice s, struct forwarded *out)
{
    out->tls = slice_ieq(s, SLICE("https")) || (out->tls && !slice_ieq(s, SLICE("http")));
}

static void take_host(struct slice s, struct forwarded *out)
{
    if (s.n != 0 && h1_valid_host(s)) {
        out->host = s;
    }
}

/* One step away from us. False: who is behind that one is not to be believed, or not said. */
static bool step_out(const struct proxies *ps, struct slice node, struct forwarded *out)
{
    struct sockaddr_storage peer;

    if (!parse_node(node, &peer)) {
        return false;
    }
    out->peer = peer;
    return proxies_have(ps, &peer);
}

/* --- the two forms --- */

static void read_forwarded(const struct proxies *ps, struct slice list, struct forwarded *out)
{
    bool on = true;

    while (on && list.n != 0) {
        struct slice element = cut_last_hop(&list, ',');
        struct slice node = SLICE_NONE;
        while (element.n != 0) {
            struct slice value = slice_trim(slice_cut(&element, ';'));
            struct slice name = slice_trim(slice_cut(&value, '='));
            value = unquoted(slice_trim(value));
            if (slice_ieq(name, SLICE("for"))) {
                node = value;
            } else if (slice_ieq(name, SLICE("proto"))) {
                take_scheme(value, out);
            } else if (slice_ieq(name, SLICE("host"))) {
                take_host(value, out);
            }
        }
        on = step_out(ps, node, out);
    }
}

bool forwarded_read(const struct proxies *ps, const struct http_req *r, struct forwarded *out)
{
    struct slice nodes, scheme, host;

    if (!proxies_have(ps, r->peer)) {
        return false;
    }
    *out = (struct forwarded){.peer = *r->peer, .tls = r->tls, .host = r->host};
    nodes = http_req_list(r, "x-forwarded-for");
    scheme = http_req_list(r, "x-forwarded-proto");
    host = http_req_list(r, "x-forwarded-host");
    if (nodes.p == NULL && scheme.p == NULL && host.p == NULL) {
        read_forwarded(ps, http_req_list(r, "forwarded"), out);
        return true;
    }
    while (nodes.n != 0 && step_out(ps, cut_last_hop(&nodes, ','), out)) {
    }
    take_scheme(cut_last_hop(&scheme, ','), out);
    take_host(cut_last_hop(&host, ','), out);
    return true;
}
