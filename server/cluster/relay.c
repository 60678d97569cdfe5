#include "server/cluster/relay.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <openssl/crypto.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/base/buf.h"
#include "common/base/endian.h"
#include "common/hash/digest.h"
#include "common/os/clock.h"
#include "common/os/lock.h"
#include "server/cluster/loop_pool.h"
#include "server/cluster/rendezvous.h"
#include "server/cluster/rests.h"
#include "server/cluster/signature.h"

enum {
    LENGTH_ROOM = 24,
    ABSENT_MAX = 1024,
    ABSENT_MS = 30000,
    WAITING_MAX = 4, /* each holds a thread */
};

struct relay {
    char *secret;
    char node[MEMBER_ID_ROOM];
    struct members *members;
    struct loop_pool *loops;
    struct lock lock; /* LOCK_LEAF; guards what follows */
    struct rests rests;
    unsigned waiting; /* for a mirror to come back */
    struct relay_stats stats;
    struct {
        uint64_t key; /* hashed */
        uint64_t until_ms;
    } absent[ABSENT_MAX]; /* by the key's hash */
};

struct relay *relay_open(const char *secret, const char *node, struct members *m)
{
    struct relay *r = NEW(struct relay);

    r->secret = mem_strdup(secret);
    snprintf(r->node, sizeof r->node, "%s", node);
    r->members = m;
    r->loops = loop_pool_open();
    lock_init(&r->lock, LOCK_LEAF);
    return r;
}

void relay_close(struct relay **rp)
{
    struct relay *r = *rp;

    *rp = NULL;
    if (r != NULL) {
        loop_pool_close(&r->loops);
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
    return members_is_alive(r->members, node);
}

static bool rests(struct relay *r, const char *node, uint64_t now_ms)
{
    bool yes;

    lock_take(&r->lock);
    yes = rests_has(&r->rests, node, now_ms);
    lock_drop(&r->lock);
    return yes;
}

void relay_failed(struct relay *r, const char *node, uint64_t now_ms)
{
    lock_take(&r->lock);
    rests_add(&r->rests, node, now_ms, RELAY_REST_MS);
    lock_drop(&r->lock);
}

void relay_heard(struct relay *r, const char *node)
{
    lock_take(&r->lock);
    rests_end(&r->rests, node);
    lock_drop(&r->lock);
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
    struct buf key = BUF_INIT(repo.n + 1 + tree.n);
    enum relay_place place = RELAY_HERE;
    double best;

    buf_adds(&key, repo);
    buf_byte(&key, 0);
    buf_adds(&key, tree);
    best = m[0].state == MEMBER_READY ? rendezvous_score(r->node, m[0].weight, buf_slice(&key)) : 0;
    for (size_t i = 1; i < n; i++) {
        double score = rendezvous_score(m[i].node, m[i].weight, buf_slice(&key));
        if (score > best && takes_uploads(r, &m[i])) {
            best = score;
            *to = m[i];
            place = RELAY_THERE;
        }
    }
    buf_free(&key);
    free(m);
    return place;
}

size_t relay_others(struct relay *r, struct member *out, size_t room)
{
    size_t n = members_others(r->members, out, room), kept = 0;

    for (size_t i = 0; i < n; i++) {
        if (out[i].address[0] != '\0' && !rests(r, out[i].node, clock_now_ms())) {
            out[kept++] = out[i];
        }
    }
    return kept;
}

bool relay_knows_others(struct relay *r)
{
    return members_are_known(r->members);
}

size_t relay_recent(struct relay *r, struct member *out, size_t room)
{
    return members_recent(r->members, out, room);
}

bool relay_may_wait(struct relay *r)
{
    return members_state(r->members) == MEMBER_READY;
}

bool relay_wait_begin(struct relay *r)
{
    bool may = relay_may_wait(r);

    lock_take(&r->lock);
    may = may && r->waiting < WAITING_MAX;
    r->waiting += may;
    lock_drop(&r->lock);
    return may;
}

void relay_wait_end(struct relay *r)
{
    lock_take(&r->lock);
    r->waiting--;
    lock_drop(&r->lock);
}

struct loop_pool *relay_loops(struct relay *r)
{
    return r->loops;
}

void relay_count(struct relay *r, const struct relay_stats *more)
{
    lock_take(&r->lock);
    r->stats.sent += more->sent;
    r->stats.received += more->received;
    r->stats.failed += more->failed;
    lock_drop(&r->lock);
}

void relay_stats(struct relay *r, struct relay_stats *out)
{
    lock_take(&r->lock);
    *out = r->stats;
    lock_drop(&r->lock);
}

/* --- what nobody has --- */

static uint64_t hash_of_key(struct slice key)
{
    struct digest d;

    digest_of(key, &d);
    return be_get(d.b, 8);
}

bool relay_is_absent(struct relay *r, struct slice key)
{
    uint64_t hash = hash_of_key(key);
    bool yes;

    lock_take(&r->lock);
    yes = r->absent[hash % ABSENT_MAX].key == hash &&
          r->absent[hash % ABSENT_MAX].until_ms > clock_now_ms();
    lock_drop(&r->lock);
    return yes;
}

void relay_note_absent(struct relay *r, struct slice key)
{
    uint64_t hash = hash_of_key(key);

    lock_take(&r->lock);
    r->absent[hash % ABSENT_MAX].key = hash;
    r->absent[hash % ABSENT_MAX].until_ms = clock_now_ms() + ABSENT_MS;
    lock_drop(&r->lock);
}

/* --- the signature --- */

#define PURPOSE "hop"

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

/* What is signed: no part can become another one's. A stranger's head may be large. */
static void write_signed(const struct http_req *req, struct slice target, struct slice hop,
                         struct buf *out)
{
    const struct slice parts[] = {req->method_text, target, req->host, hop,
                                  http_req_field(req, "authorization")};

    *out = BUF_INIT(0);
    for (size_t i = 0; i < ARRAY_LEN(parts); i++) {
        out->max += LENGTH_ROOM + parts[i].n;
    }
    for (size_t i = 0; i < ARRAY_LEN(parts); i++) {
        buf_addf(out, "%zu ", parts[i].n);
        buf_adds(out, parts[i]);
    }
    CHECK(out->rc == 0);
}

void relay_sign(const struct relay *r, const struct http_req *req, struct slice target,
                char out[RELAY_FIELD_ROOM])
{
    char hop[HOP_WORD_ROOM], hex[SIGNATURE_ROOM];
    struct buf text;

    write_hop(req->peer, req->tls, hop);
    write_signed(req, target, slice_str(hop), &text);
    signature_make(r->secret, PURPOSE, buf_slice(&text), hex);
    buf_free(&text);
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
    struct buf text;
    bool is_ours;

    if (!slice_eqs(version, "1") || rest.n != SIGNATURE_ROOM - 1) {
        return false;
    }
    write_signed(req, req->target, slice_first(value, value.n - SIGNATURE_ROOM), &text);
    is_ours = signature_is(r->secret, PURPOSE, buf_slice(&text), rest);
    buf_free(&text);
    if (!is_ours) {
        return false;
    }
    *tls = slice_eqs(scheme, "https");
    return parse_address(address, peer);
}
