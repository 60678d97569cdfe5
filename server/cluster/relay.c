#include "server/cluster/relay.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/base/buf.h"
#include "common/base/endian.h"
#include "common/hash/digest.h"
#include "common/os/clock.h"
#include "common/os/lock.h"

enum { SIGNED_BYTES = 128 << 10, RESTS_MAX = 16 };

struct rest {
    char node[MEMBER_ID_ROOM];
    uint64_t until_ms;
};

struct relay {
    char *secret;
    char node[MEMBER_ID_ROOM];
    struct members *members;
    struct lock lock; /* LOCK_LEAF; guards what follows */
    struct rest rest[RESTS_MAX];
    unsigned next_rest;
};

struct relay *relay_open(const char *secret, const char *node, struct members *m)
{
    struct relay *r = NEW(struct relay);

    r->secret = mem_strdup(secret);
    snprintf(r->node, sizeof r->node, "%s", node);
    r->members = m;
    lock_init(&r->lock, LOCK_LEAF);
    return r;
}

void relay_close(struct relay **rp)
{
    struct relay *r = *rp;

    *rp = NULL;
    if (r != NULL) {
        lock_fini(&r->lock);
        OPENSSL_cleanse(r->secret, strlen(r->secret));
        free(r->secret);
        free(r);
    }
}

/* --- where --- */

struct slice relay_digits(const struct relay *r)
{
    return slice_of(r->node, RELAY_ID);
}

enum relay_place relay_of_upload(struct relay *r, struct slice id, struct member *to)
{
    struct slice digits = slice_first(id, min_u64(id.n, RELAY_ID));

    if (digits.n < RELAY_ID || slice_eq(digits, relay_digits(r))) {
        return RELAY_HERE;
    }
    switch (members_find(r->members, digits, to)) {
    case MEMBER_ALIVE:
        return to->address[0] != '\0' ? RELAY_THERE : RELAY_HERE;
    case MEMBER_AWAY:
        return RELAY_AWAY;
    case MEMBER_UNKNOWN:
        break;
    }
    return RELAY_HERE;
}

bool relay_is_alive(struct relay *r, const char *node)
{
    struct member m;

    return members_find(r->members, slice_str(node), &m) == MEMBER_ALIVE;
}

static bool rests(struct relay *r, const char *node, uint64_t now_ms)
{
    bool yes = false;

    lock_take(&r->lock);
    for (size_t i = 0; i < RESTS_MAX; i++) {
        yes = yes || (r->rest[i].until_ms > now_ms && strcmp(r->rest[i].node, node) == 0);
    }
    lock_drop(&r->lock);
    return yes;
}

void relay_failed(struct relay *r, const char *node, uint64_t now_ms)
{
    struct rest *x;

    lock_take(&r->lock);
    x = &r->rest[r->next_rest++ % RESTS_MAX];
    x->until_ms = now_ms + RELAY_REST_MS;
    snprintf(x->node, sizeof x->node, "%s", node);
    lock_drop(&r->lock);
}

static uint64_t weight_of(const char *node, struct slice repo, struct slice tree)
{
    struct buf text = BUF_INIT(4096);
    struct digest d;

    buf_addf(&text, "%s ", node);
    buf_adds(&text, repo);
    buf_byte(&text, 0);
    buf_adds(&text, tree);
    digest_of(buf_slice(&text), &d);
    buf_free(&text);
    return be_get(d.b, 8);
}

static bool takes_uploads(struct relay *r, const struct member *m)
{
    return m->alive && m->state == MEMBER_READY && m->address[0] != '\0' &&
           !rests(r, m->node, clock_now_ms());
}

enum relay_place relay_of_tree(struct relay *r, struct slice repo, struct slice tree,
                               struct member *to)
{
    struct member *m = mem_array(1 + MEMBERS_MAX, sizeof *m);
    size_t n = members_all(r->members, m, 1 + MEMBERS_MAX); /* this mirror is the first */
    uint64_t best = m[0].state == MEMBER_READY ? weight_of(r->node, repo, tree) : 0;
    enum relay_place place = RELAY_HERE;

    for (size_t i = 1; i < n; i++) {
        uint64_t weight = weight_of(m[i].node, repo, tree);
        if (weight > best && takes_uploads(r, &m[i])) {
            best = weight;
            *to = m[i];
            place = RELAY_THERE;
        }
    }
    free(m);
    return place;
}

/* --- the signature --- */

enum { HOP_WORD_ROOM = INET6_ADDRSTRLEN + 16 };

/* "1 <address> <scheme>" */
static void write_hop(const struct sockaddr_storage *peer, bool tls, char out[HOP_WORD_ROOM])
{
    char address[INET6_ADDRSTRLEN] = "::";

    if (peer->ss_family == AF_INET) {
        inet_ntop(AF_INET, &((const struct sockaddr_in *)peer)->sin_addr, address, sizeof address);
    } else if (peer->ss_family == AF_INET6) {
        inet_ntop(AF_INET6, &((const struct sockaddr_in6 *)peer)->sin6_addr, address,
                  sizeof address);
    }
    snprintf(out, HOP_WORD_ROOM, "1 %s %s", address, tls ? "https" : "http");
}

static void sign_hop(const struct relay *r, const struct http_req *req, struct slice target,
                     struct slice hop, char hex[DIGEST_HEX + 1])
{
    const struct slice parts[] = {SLICE("hop"), req->method_text,
                                  target,       req->host,
                                  hop,          http_req_field(req, "authorization")};
    struct buf text = BUF_INIT(SIGNED_BYTES);
    struct digest d = {{0}};
    unsigned n = DIGEST_BYTES;

    for (size_t i = 0; i < ARRAY_LEN(parts); i++) {
        buf_addf(&text, "%zu ", parts[i].n); /* so that no part can become another one's */
        buf_adds(&text, parts[i]);
    }
    CHECK(text.rc == 0); /* a request's head is smaller */
    CHECK(HMAC(EVP_sha256(), r->secret, (int)strlen(r->secret), (const unsigned char *)text.p,
               text.n, d.b, &n) != NULL);
    digest_format(&d, hex);
    buf_free(&text);
}

void relay_sign(const struct relay *r, const struct http_req *req, struct slice target,
                char out[RELAY_FIELD_ROOM])
{
    char hop[HOP_WORD_ROOM], hex[DIGEST_HEX + 1];

    write_hop(req->peer, req->tls, hop);
    sign_hop(r, req, target, slice_str(hop), hex);
    snprintf(out, RELAY_FIELD_ROOM, "%s %s", hop, hex);
}

static bool parse_address(struct slice text, struct sockaddr_storage *out)
{
    struct sockaddr_in *v4 = (struct sockaddr_in *)out;
    struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)out;
    char z[INET6_ADDRSTRLEN];

    memset(out, 0, sizeof *out);
    if (text.n >= sizeof z) {
        return false;
    }
    snprintf(z, sizeof z, SLICE_FMT, SLICE_ARG(text));
    if (inet_pton(AF_INET, z, &v4->sin_addr) == 1) {
        out->ss_family = AF_INET;
    } else if (inet_pton(AF_INET6, z, &v6->sin6_addr) == 1) {
        out->ss_family = AF_INET6;
    }
    return out->ss_family != 0;
}

bool relay_read(const struct relay *r, const struct http_req *req, struct sockaddr_storage *peer,
                bool *tls)
{
    struct slice value = http_req_field(req, RELAY_FIELD);
    struct slice rest = value, version = slice_cut(&rest, ' '), address = slice_cut(&rest, ' '),
                 scheme = slice_cut(&rest, ' ');
    char hex[DIGEST_HEX + 1];

    if (!slice_eqs(version, "1") || rest.n != DIGEST_HEX) {
        return false;
    }
    sign_hop(r, req, req->target, slice_first(value, value.n - DIGEST_HEX - 1), hex);
    if (CRYPTO_memcmp(rest.p, hex, DIGEST_HEX) != 0) {
        return false;
    }
    *tls = slice_eqs(scheme, "https");
    return parse_address(address, peer);
}
