#include "server/gate/gate.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <xxhash.h>

#include "common/codec/base64.h"
#include "common/codec/network.h"
#include "common/os/clock.h"
#include "common/os/lock.h"
#include "server/gate/bucket.h"
#include "server/gate/scope.h"
#include "server/gate/token.h"

struct limits;

/* --- limits ---
 *
 * Which `limit` block a client falls under. Immutable, counted: a reload swaps the whole.
 *
 * threads  any
 */

struct limit {
    struct limit_conf conf;
    bool is_network;
    struct network network;
};

struct limits {
    _Atomic unsigned holds;
    struct arena arena;
    size_t count;
    struct limit limit[];
};

/* copies */
static struct limits *limits_new(const struct limit_conf *conf, size_t count)
{
    struct limits *ls = mem_new(sizeof(*ls) + count * sizeof(ls->limit[0]));

    ls->holds = 1;
    ls->count = count;
    for (size_t i = 0; i < count; i++) {
        struct slice title = slice_str(conf[i].title);
        ls->limit[i].conf = conf[i];
        ls->limit[i].conf.title = arena_cstr(&ls->arena, title);
        ls->limit[i].is_network = network_parse(title, &ls->limit[i].network);
    }
    return ls;
}

static struct limits *limits_hold(struct limits *ls)
{
    atomic_fetch_add(&ls->holds, 1);
    return ls;
}

static void limits_release(struct limits **lp)
{
    struct limits *ls = *lp;

    *lp = NULL;
    if (ls != NULL && atomic_fetch_sub(&ls->holds, 1) == 1) {
        arena_fini(&ls->arena);
        free(ls);
    }
}

/* The token's own, else the narrowest network's, else, without a token (name.n == 0), `anonymous`; or NULL. */
static const struct limit_conf *limits_find(const struct limits *ls, struct slice token_name,
                                            const uint8_t address[16])
{
    const struct limit *best = NULL, *anonymous = NULL;

    for (size_t i = 0; i < ls->count; i++) {
        const struct limit *l = &ls->limit[i];
        if (l->is_network) {
            if (network_has(&l->network, address) &&
                (best == NULL || l->network.bits > best->network.bits)) {
                best = l;
            }
        } else if (token_name.n > 0 && slice_eqs(token_name, l->conf.title)) {
            return &l->conf;
        } else if (strcmp(l->conf.title, "anonymous") == 0) {
            anonymous = l;
        }
    }
    if (best == NULL && token_name.n == 0) {
        best = anonymous;
    }
    return best != NULL ? &best->conf : NULL;
}

enum { BUCKET_SHARDS = 16, BUCKETS_PER_SHARD = 4096 };

struct gate {
    struct tokens *tokens;
    struct buckets *buckets;
    struct lock lock; /* guards `limits` and `proxies`, the pointers */
    struct limits *limits;
    struct proxies *proxies;
    _Atomic bool proxied; /* false: nobody is trusted, and nobody takes the lock */
    _Atomic bool limited; /* false: requests do not even take the lock */
    _Atomic bool plaintext_token;
    _Atomic uint32_t connections_max; /* of an address without a limit; 0: any */
    _Atomic uint64_t refused;         /* by a limit */
};

int gate_open(struct store *s, const struct limit_conf *limits, size_t count, bool plaintext_token,
              struct gate **out, struct err *e)
{
    struct gate *g = NEW(struct gate);
    int rc = tokens_open(s, &g->tokens, e);

    if (rc != 0) {
        free(g);
        return rc;
    }
    lock_init(&g->lock, LOCK_GATE);
    g->buckets = buckets_open(BUCKET_SHARDS, BUCKETS_PER_SHARD);
    gate_set_limits(g, limits, count, plaintext_token);
    *out = g;
    return 0;
}

void gate_set_limits(struct gate *g, const struct limit_conf *limits, size_t count,
                     bool plaintext_token)
{
    struct limits *fresh = limits_new(limits, count), *old;

    lock_take(&g->lock);
    old = g->limits;
    g->limits = fresh;
    lock_drop(&g->lock);
    limits_release(&old);
    atomic_store(&g->limited, count > 0);
    atomic_store(&g->plaintext_token, plaintext_token);
    buckets_forget(g->buckets);
}

void gate_set_connections(struct gate *g, uint32_t most)
{
    atomic_store(&g->connections_max, most);
}

void gate_set_proxies(struct gate *g, const char *const *networks, size_t count)
{
    struct proxies *fresh = proxies_new(networks, count), *old;

    lock_take(&g->lock);
    old = g->proxies;
    g->proxies = fresh;
    lock_drop(&g->lock);
    proxies_release(&old);
    atomic_store(&g->proxied, count > 0);
}

void gate_close(struct gate **gp)
{
    struct gate *g = *gp;

    *gp = NULL;
    if (g == NULL) {
        return;
    }
    tokens_close(&g->tokens);
    buckets_close(&g->buckets);
    limits_release(&g->limits);
    proxies_release(&g->proxies);
    lock_fini(&g->lock);
    free(g);
}

static struct limits *hold_limits(struct gate *g)
{
    struct limits *ls;

    lock_take(&g->lock);
    ls = limits_hold(g->limits);
    lock_drop(&g->lock);
    return ls;
}

/* NULL: there are none. */
static struct proxies *hold_proxies(struct gate *g)
{
    struct proxies *ps = NULL;

    if (atomic_load_explicit(&g->proxied, memory_order_relaxed)) {
        lock_take(&g->lock);
        ps = proxies_hold(g->proxies);
        lock_drop(&g->lock);
    }
    return ps;
}

/* --- who asks --- */

bool gate_client(struct gate *g, const struct http_req *r, struct forwarded *out)
{
    struct proxies *ps = hold_proxies(g);
    bool known = ps != NULL && forwarded_read(ps, r, out);

    proxies_release(&ps);
    return known;
}

/* The token in an Authorization value; n == 0 when it holds none of ours. Basic's text is decoded into `room`. */
static struct slice token_in(struct slice value, char *room, size_t room_bytes)
{
    struct slice rest = value, scheme = slice_cut(&rest, ' ');
    size_t n;

    rest = slice_trim(rest);
    if (slice_ieq(scheme, SLICE("basic"))) {
        if (!base64_decode(rest, room, room_bytes, &n)) {
            return SLICE_NONE;
        }
        rest = slice_of(room, n);
        (void)slice_cut(&rest, ':'); /* the user's name may be any: pip and twine say __token__ */
    } else if (!slice_ieq(scheme, SLICE("bearer")) && !slice_ieq(scheme, SLICE("token"))) {
        return SLICE_NONE;
    }
    return token_shaped(rest) ? rest : SLICE_NONE;
}

static bool on_loopback(const struct http_req *r)
{
    uint8_t address[16];

    address_of(r->peer, address);
    return address_is_loopback(address);
}

static struct principal principal_of(struct token *t)
{
    const char *id = token_id(t);

    /* Hashes and addresses may meet: then two clients have one share. */
    return (struct principal){
        .name = token_name(t), .token = t, .client = XXH3_64bits(id, strlen(id)) | 1};
}

int gate_identify(struct gate *g, const struct http_req *r, struct principal *who, struct err *e)
{
    char room[256];
    struct token *t = NULL;
    struct slice text;
    int rc;

    *who = (struct principal){.name = SLICE(""), .client = client_of(r->peer)};
    text = token_in(http_req_field(r, "authorization"), room, sizeof(room));
    if (text.n == 0) {
        return 0;
    }
    if (!r->tls && !atomic_load(&g->plaintext_token) && !on_loopback(r)) {
        rc = err_set(e, E_DENIED,
                     "the token came over plain HTTP, others can read it there, use https:// (and "
                     "have this token revoked)");
        goto out;
    }
    rc = tokens_find(g->tokens, text, clock_unix_s(), &t, e);
    if (rc == 0) {
        *who = principal_of(t);
    }
out:
    explicit_bzero(room, sizeof(room));
    return rc;
}

void gate_token_text(const struct http_req *r, char secret[TOKEN_TEXT])
{
    char room[256];
    struct slice text = token_in(http_req_field(r, "authorization"), room, sizeof(room));

    text = slice_first(text, min_u64(text.n, TOKEN_TEXT - 1));
    memcpy(secret, text.n != 0 ? text.p : "", text.n);
    secret[text.n] = '\0';
    explicit_bzero(room, sizeof(room));
}

int gate_named(struct gate *g, struct slice name, struct principal *who, struct err *e)
{
    struct token *t = NULL;
    int rc = tokens_named(g->tokens, name, clock_unix_s(), &t, e);

    *who = rc == 0 ? principal_of(t) : (struct principal){.name = SLICE("")};
    return rc;
}

/* A principal's token is const for all others: only its count changes. */
static struct token *token_of(const struct principal *who)
{
    return (struct token *)(uintptr_t)who->token;
}

void gate_hold(struct gate *g, const struct principal *who, struct principal *out)
{
    (void)g;
    *out = *who;
    if (who->token != NULL) {
        out->token = token_hold(token_of(who));
    }
}

void gate_release(struct gate *g, struct principal *who)
{
    struct token *t = token_of(who);

    (void)g;
    token_release(&t);
    *who = (struct principal){.name = SLICE("")};
}

bool gate_allows(const struct principal *who, const char *right, struct slice subject)
{
    return who->token != NULL && token_gives(who->token, slice_str(right), subject);
}

bool gate_reaches(const struct principal *who, const char *right, struct slice repo, size_t *at,
                  struct slice *prefix)
{
    struct slice scope;

    while (who->token != NULL && (scope = token_scope(who->token, *at)).p != NULL) {
        ++*at;
        if (scope_reaches(scope, slice_str(right), repo, prefix)) {
            return true;
        }
    }
    return false;
}

/* --- how fast --- */

/* A client of IPv6 has a whole /64 to choose addresses from. */
static void key_of_address(const uint8_t address[16], struct bucket_key *out)
{
    static const uint8_t v4_prefix[12] = {[10] = 0xff, [11] = 0xff};

    *out = (struct bucket_key){.b = {'a'}};
    memcpy(out->b + 1, address, memcmp(address, v4_prefix, sizeof(v4_prefix)) == 0 ? 16 : 8);
}

static void key_of_token(const struct token *t, struct bucket_key *out)
{
    *out = (struct bucket_key){.b = {'t'}};
    memcpy(out->b + 1, token_id(t), strlen(token_id(t)));
}

/* The limit that counts, with what holds it, and whose bucket; NULL: none does. */
static const struct limit_conf *limit_of(struct gate *g, const struct principal *who,
                                         const struct sockaddr_storage *peer,
                                         struct bucket_key *key, struct limits **ls)
{
    uint8_t address[16];

    *ls = NULL;
    if (!atomic_load_explicit(&g->limited, memory_order_relaxed)) {
        return NULL;
    }
    address_of(peer, address);
    if (who->token != NULL) {
        key_of_token(who->token, key);
    } else {
        key_of_address(address, key);
    }
    *ls = hold_limits(g);
    return limits_find(*ls, who->name, address);
}

void gate_spend(struct gate *g, const struct principal *who, const struct sockaddr_storage *peer,
                uint64_t now_ms, struct gate_verdict *out)
{
    struct limits *ls;
    struct bucket_verdict v;
    struct bucket_key key;
    const struct limit_conf *limit = limit_of(g, who, peer, &key, &ls);

    *out = (struct gate_verdict){.pass = true};
    if (limit == NULL) {
        goto out;
    }
    if (limit->requests_per_s > 0) {
        buckets_spend(g->buckets, &key, &(struct bucket_rate){limit->requests_per_s, limit->burst},
                      now_ms, &v);
        out->pass = v.pass;
        if (!v.pass) {
            atomic_fetch_add_explicit(&g->refused, 1, memory_order_relaxed);
        }
        out->limit = limit->burst;
        out->remaining = v.remaining;
        out->reset_s = (v.reset_us + 999999) / 1000000;
        out->retry_after_s = v.pass ? 0 : (uint32_t)((v.wait_us + 999999) / 1000000);
    }
    if (limit->rate_bytes_per_s > 0 && out->pass) {
        out->pace = buckets_pace(g->buckets, &key, limit->rate_bytes_per_s);
    }
out:
    limits_release(&ls);
}

void gate_owe(struct gate *g, const struct principal *who, const struct sockaddr_storage *peer,
              uint64_t now_ms, unsigned n)
{
    struct limits *ls;
    struct bucket_key key;
    const struct limit_conf *limit = limit_of(g, who, peer, &key, &ls);

    if (limit != NULL && limit->requests_per_s > 0 && n != 0) {
        buckets_owe(g->buckets, &key, &(struct bucket_rate){limit->requests_per_s, limit->burst},
                    now_ms, n);
    }
    limits_release(&ls);
}

uint64_t gate_limited(struct gate *g)
{
    return atomic_load_explicit(&g->refused, memory_order_relaxed);
}

/* Connections are an address's: who is behind one is not known before its first request. */
static uint32_t connections_of(struct gate *g, const uint8_t address[16])
{
    struct limits *ls = hold_limits(g);
    const struct limit_conf *limit = limits_find(ls, SLICE(""), address);
    uint32_t most = limit != NULL ? limit->connections : 0;

    limits_release(&ls);
    most = most > 0 ? most : atomic_load_explicit(&g->connections_max, memory_order_relaxed);
    return most > 0 ? most : UINT32_MAX;
}

uint32_t gate_most_connections(struct gate *g, const struct sockaddr_storage *peer)
{
    uint8_t address[16];

    address_of(peer, address);
    return connections_of(g, address);
}

bool gate_connect(struct gate *g, const struct sockaddr_storage *peer)
{
    struct proxies *ps = hold_proxies(g);
    bool proxy = ps != NULL && proxies_have(ps, peer);
    struct bucket_key key;
    uint8_t address[16];

    proxies_release(&ps);
    /* Counted without a limit too: one may come with a reload, and each of these ends in gate_disconnect(). */
    address_of(peer, address);
    key_of_address(address, &key);
    return buckets_connect(g->buckets, &key, proxy ? UINT32_MAX : connections_of(g, address));
}

void gate_disconnect(struct gate *g, const struct sockaddr_storage *peer)
{
    struct bucket_key key;
    uint8_t address[16];

    address_of(peer, address);
    key_of_address(address, &key);
    buckets_disconnect(g->buckets, &key);
}

/* --- tokens --- */

int token_create(struct gate *g, struct slice name, const char *const *scopes, size_t count,
                 uint64_t expires_unix_s, char secret[TOKEN_TEXT], struct err *e)
{
    return tokens_create(g->tokens, name, scopes, count, clock_unix_s(), expires_unix_s, secret, e);
}

int token_revoke(struct gate *g, struct slice name, struct err *e)
{
    return tokens_revoke(g->tokens, name, e);
}

void token_each(struct gate *g, void (*each)(void *arg, const struct token_info *t), void *arg)
{
    tokens_each(g->tokens, each, arg);
}
