#include "server/gate/gate.h"

#include <inttypes.h>
#include <jansson.h>
#include <openssl/crypto.h>
#include <openssl/rand.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <xxhash.h>
#include <zlib.h>

#include "common/base/list.h"
#include "common/base/log.h"
#include "common/codec/base64.h"
#include "common/codec/network.h"
#include "common/os/clock.h"
#include "common/os/lock.h"
#include "server/gate/token_bucket.h"
#include "server/gate/scope.h"

struct tokens;

static void tokens_close(struct tokens **tp);

struct gate {
    struct tokens *tokens;
    struct token_buckets *token_buckets;
    struct lock lock; /* guards `limits` and `proxies`, the pointers */
    struct limits *limits;
    struct proxies *proxies;
    _Atomic bool proxied; /* false: nobody is trusted, and nobody takes the lock */
    _Atomic bool limited; /* false: requests do not even take the lock */
    _Atomic bool plaintext_token;
    _Atomic uint32_t mirrors;         /* gate_share() */
    _Atomic uint32_t connections_max; /* of an address without a limit; 0: any */
    _Atomic uint64_t refused;         /* by a limit */
    bool (*fresh)(void *arg);         /* NULL: it is always known which tokens were revoked */
    void *fresh_arg;
};

/* --- tokens ---
 *
 * The tokens of this server: all of them in memory, and in TABLE_TOKEN by the SHA-256 of their
 * text.
 *
 * "mrd_" 8 hex digits (the id, not secret) "_" 43 letters and digits (256 bits) "_" 8 hex digits
 * (CRC-32 of all that precedes): so a scanner finds one that leaked, and a typing error can be
 * distinguished from a foreign token.
 *
 * owns     a token found is held: token_release()
 * threads  any; tokens_open and changes block (the store) */

enum {
    ID_HEX = 8,
    SECRET_AT = 4 + ID_HEX + 1,
    SECRET_LETTERS = 43, /* of 62: 256 bits */
    CRC_AT = SECRET_AT + SECRET_LETTERS + 1,
    TEXT_BYTES = CRC_AT + 8,
    NAME_MAX_BYTES = 64,
    SCOPES_MAX = 32,
    REVOKE_TRIES = 100,
};

struct token {
    struct list node;
    _Atomic unsigned holds; /* one is the table's */
    struct digest digest;
    struct arena arena;
    char id[ID_HEX + 1];
    struct slice name; /* NUL behind it */
    const char **scopes;
    size_t scopes_count;
    uint64_t created_unix_s, expires_unix_s;
    _Atomic uint64_t last_used_unix_s;
};

struct tokens {
    struct store *store;
    struct lock
        reading;      /* LOCK_TOKENS: one reading of the rows at a time, so the last one counts */
    struct lock lock; /* guards what follows: changes; and loops while they look one up */
    struct list all;
};

/* --- one token --- */

static struct token *token_new(const struct digest *digest, const char *id, struct slice name,
                               size_t scopes)
{
    struct token *t = NEW(struct token);

    t->holds = 1;
    t->digest = *digest;
    snprintf(t->id, sizeof(t->id), "%.8s", id);
    t->name = slice_str(arena_cstr(&t->arena, name));
    t->scopes = arena_alloc(&t->arena, (scopes + 1) * sizeof(char *));
    return t;
}

static void scope_add(struct token *t, const char *scope)
{
    t->scopes[t->scopes_count++] = arena_cstr(&t->arena, slice_str(scope));
}

static struct token *token_hold(struct token *t)
{
    atomic_fetch_add(&t->holds, 1);
    return t;
}

static void token_release(struct token **tp)
{
    struct token *t = *tp;

    *tp = NULL;
    if (t != NULL && atomic_fetch_sub(&t->holds, 1) == 1) {
        arena_fini(&t->arena);
        free(t);
    }
}

static struct slice token_name(const struct token *t)
{
    return t->name;
}

const char *token_id(const struct token *t)
{
    return t->id;
}

/* The i-th of its scopes; p == NULL: it has fewer. */
static struct slice token_scope(const struct token *t, size_t i)
{
    return i < t->scopes_count ? slice_str(t->scopes[i]) : SLICE_NONE;
}

static bool in_token(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '-';
}

size_t token_bytes(struct slice s)
{
    uint8_t id[4];
    size_t n = 0;

    if (s.n <= TOKEN_SHOWN || memcmp(s.p, "mrd", 3) != 0 || (s.p[3] != '_' && s.p[3] != '-') ||
        !slice_hex(slice_of(s.p + 4, 8), id, sizeof id) || (s.p[12] != '_' && s.p[12] != '-')) {
        return 0;
    }
    while (n < s.n && in_token(s.p[n])) {
        n++;
    }
    return n;
}

static bool token_gives(const struct token *t, struct slice right, struct slice subject)
{
    for (size_t i = 0; i < t->scopes_count; i++) {
        if (scope_gives(slice_str(t->scopes[i]), right, subject)) {
            return true;
        }
    }
    return false;
}

/* --- rows: {"id":"..","name":"..","scopes":[..],"created":n,"expires":n} --- */

static char *row_write(const struct token *t)
{
    json_t *scopes = json_array();
    json_t *row;
    char *text;

    for (size_t i = 0; i < t->scopes_count; i++) {
        json_array_append_new(scopes, json_string(t->scopes[i]));
    }
    row = json_pack("{s:s, s:s%, s:o, s:I, s:I}", "id", t->id, "name", t->name.p, t->name.n,
                    "scopes", scopes, "created", (json_int_t)t->created_unix_s, "expires",
                    (json_int_t)t->expires_unix_s);
    text = json_dumps(row, JSON_COMPACT);
    json_decref(row);
    CHECK(text != NULL);
    return text;
}

static struct token *row_read(struct slice key, struct slice value)
{
    json_t *row = json_loadb(value.p, value.n, 0, NULL), *scopes = NULL;
    const char *id = NULL, *name = NULL;
    json_int_t created = 0, expires = 0;
    struct token *t = NULL;
    struct digest d;

    if (key.n != DIGEST_BYTES || row == NULL ||
        json_unpack(row, "{s:s, s:s, s:o, s:I, s:I}", "id", &id, "name", &name, "scopes", &scopes,
                    "created", &created, "expires", &expires) != 0 ||
        strlen(id) != ID_HEX || !json_is_array(scopes)) {
        goto out;
    }
    memcpy(d.b, key.p, DIGEST_BYTES);
    t = token_new(&d, id, slice_str(name), json_array_size(scopes));
    t->created_unix_s = (uint64_t)created;
    t->expires_unix_s = (uint64_t)expires;
    for (size_t i = 0; i < json_array_size(scopes); i++) {
        const char *scope = json_string_value(json_array_get(scopes, i));
        if (scope != NULL) {
            scope_add(t, scope);
        }
    }
out:
    json_decref(row);
    return t;
}

/* --- the table --- */

static int on_token_row(void *arg, struct slice key, struct slice value)
{
    struct tokens *ts = arg;
    struct token *t = row_read(key, value);

    if (t == NULL) {
        log_error("token.damaged", "the row of a token cannot be read; the token is refused");
        return 0;
    }
    list_push_back(&ts->all, &t->node);
    return 0;
}

static int tokens_open(struct store *s, struct tokens **out, struct err *e)
{
    struct tokens *ts = NEW(struct tokens);
    int rc;

    ts->store = s;
    lock_init(&ts->reading, LOCK_TOKENS);
    lock_init(&ts->lock, LOCK_GATE);
    list_init(&ts->all);
    rc = store_scan(s, TABLE_TOKEN, SLICE_NONE, SLICE_NONE, on_token_row, ts, e);
    if (rc != 0) {
        tokens_close(&ts);
        return rc;
    }
    *out = ts;
    return 0;
}

static void free_token_fields(struct token *t)
{
    list_remove(&t->node);
    token_release(&t);
}

/* Under the lock. A token that stays keeps when it was last used. */
static void take_tokens(struct tokens *ts, struct tokens *from)
{
    LIST_EACH (&from->all, it) {
        struct token *t = LIST_ITEM(it, struct token, node);
        LIST_EACH (&ts->all, old) {
            const struct token *was = LIST_ITEM(old, struct token, node);
            if (digest_eq(&was->digest, &t->digest)) {
                t->last_used_unix_s = was->last_used_unix_s;
            }
        }
    }
    LIST_EACH (&ts->all, it) {
        free_token_fields(LIST_ITEM(it, struct token, node));
    }
    while (!list_empty(&from->all)) {
        list_push_back(&ts->all, list_pop_front(&from->all));
    }
}

/* The rows decide: after a commit of ours, whatever came of it, and after one of another mirror. */
static int tokens_reload(struct tokens *ts, struct err *e)
{
    struct tokens *now;
    int rc;

    lock_take(&ts->reading);
    rc = tokens_open(ts->store, &now, e);
    if (rc == 0) {
        lock_take(&ts->lock);
        take_tokens(ts, now);
        lock_drop(&ts->lock);
        tokens_close(&now);
    }
    lock_drop(&ts->reading);
    return rc;
}

static void tokens_close(struct tokens **tp)
{
    struct tokens *ts = *tp;

    *tp = NULL;
    if (ts == NULL) {
        return;
    }
    LIST_EACH (&ts->all, it) {
        free_token_fields(LIST_ITEM(it, struct token, node));
    }
    lock_fini(&ts->lock);
    lock_fini(&ts->reading);
    free(ts);
}

/* Begins as ours do. */
static bool token_shaped(struct slice text)
{
    return slice_starts(text, SLICE("mrd_"));
}

static bool crc_holds(struct slice text)
{
    char crc[9];

    snprintf(crc, sizeof(crc), "%08lx", crc32(0, (const Bytef *)text.p, CRC_AT - 1));
    return memcmp(text.p + CRC_AT, crc, 8) == 0;
}

/* E_DENIED with a reason that tells a stranger nothing about which tokens exist. */
static int tokens_find(struct tokens *ts, struct slice text, uint64_t now_unix_s,
                       struct token **out, struct err *e)
{
    struct token *found = NULL;
    struct digest d;

    if (text.n != TEXT_BYTES || !crc_holds(text)) {
        return err_set(e, E_DENIED,
                       "the token is incomplete or has a typo: its checksum does not match; "
                       "copy it again");
    }
    digest_of(text, &d);
    lock_take(&ts->lock);
    LIST_EACH (&ts->all, it) {
        struct token *t = LIST_ITEM(it, struct token, node);
        /* The id is no secret; what proves the rest is compared in constant time. */
        if (memcmp(t->id, text.p + 4, ID_HEX) == 0 &&
            CRYPTO_memcmp(t->digest.b, d.b, DIGEST_BYTES) == 0) {
            found = token_hold(t);
        }
    }
    lock_drop(&ts->lock);
    if (found == NULL) {
        return err_set(e, E_DENIED,
                       "the token is unknown: it was revoked or belongs to another server; ask "
                       "for a new one");
    }
    if (found->expires_unix_s != 0 && found->expires_unix_s <= now_unix_s) {
        token_release(&found);
        return err_set(e, E_DENIED, "the token has expired; ask for a new one");
    }
    atomic_store_explicit(&found->last_used_unix_s, now_unix_s, memory_order_relaxed);
    *out = found;
    return 0;
}

/* --- changes --- */

static struct token *find_token_by_name(struct tokens *ts, struct slice name)
{
    LIST_EACH (&ts->all, it) {
        struct token *t = LIST_ITEM(it, struct token, node);
        if (slice_eq(t->name, name)) {
            return t;
        }
    }
    return NULL;
}

/* Whoever else proved that it is who that token names. E_NOTFOUND: there is none, or it has
 * expired. */
static int tokens_named(struct tokens *ts, struct slice name, uint64_t now_unix_s,
                        struct token **out, struct err *e)
{
    struct token *t;

    lock_take(&ts->lock);
    t = find_token_by_name(ts, name);
    if (t != NULL && t->expires_unix_s != 0 && t->expires_unix_s <= now_unix_s) {
        t = NULL;
    }
    if (t != NULL) {
        token_hold(t);
    }
    lock_drop(&ts->lock);
    if (t == NULL) {
        return err_set(e, E_NOTFOUND, "no valid token has that name");
    }
    atomic_store_explicit(&t->last_used_unix_s, now_unix_s, memory_order_relaxed);
    *out = t;
    return 0;
}

static int name_check(struct slice name, struct err *e)
{
    static const char letters[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";
    bool ok = name.n > 0 && name.n <= NAME_MAX_BYTES && !slice_eqs(name, "anonymous");

    for (size_t i = 0; i < name.n && ok; i++) {
        ok = name.p[i] != '\0' && strchr(letters, name.p[i]) != NULL;
    }
    if (!ok) {
        return err_set(e, E_INVALID,
                       "the name is invalid, because logs and limits contain it; use 1 to %d "
                       "letters, digits, '.', '_' and '-', but not \"anonymous\"",
                       NAME_MAX_BYTES);
    }
    return 0;
}

static void text_make(char out[TOKEN_TEXT])
{
    static const char letters[] = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    uint8_t r;
    uint32_t id;
    size_t n;

    CHECK(RAND_bytes((unsigned char *)&id, sizeof(id)) == 1);
    n = (size_t)snprintf(out, TOKEN_TEXT, "mrd_%08" PRIx32 "_", id);
    while (n < SECRET_AT + SECRET_LETTERS) {
        CHECK(RAND_priv_bytes(&r, 1) == 1);
        if (r < 62 * 4) { /* the rest would favour the first letters */
            out[n++] = letters[r % 62];
        }
    }
    snprintf(out + n, TOKEN_TEXT - n, "_%08lx", crc32(0, (const Bytef *)out, (uInt)n));
}

/* The rows of a name: one, but for what was created before names were checked. */
struct named {
    struct slice name;
    struct batch *b; /* gets their removal; or NULL */
    size_t count;
};

static int on_named_row(void *arg, struct slice key, struct slice value)
{
    struct named *n = arg;
    struct token *t = row_read(key, value);

    if (t != NULL && slice_eq(t->name, n->name)) {
        n->count++;
        if (n->b != NULL) {
            batch_require_value(n->b, TABLE_TOKEN, key, value);
            batch_del(n->b, TABLE_TOKEN, key);
        }
    }
    token_release(&t);
    return 0;
}

/* When the token is committed: another mirror may have created one of that name. */
static int name_is_free(struct store *s, void *arg, struct err *e)
{
    struct named n = {.name = *(const struct slice *)arg};
    int rc = store_scan(s, TABLE_TOKEN, SLICE_NONE, SLICE_NONE, on_named_row, &n, e);

    return rc != 0 || n.count == 0
               ? rc
               : err_set(e, E_EXISTS,
                         "a token \"" SLICE_FMT "\" exists already; revoke it or choose another "
                         "name",
                         SLICE_ARG(n.name));
}

int token_create(struct gate *g, struct slice name, const char *const *scopes, size_t count,
                 uint64_t expires_unix_s, char secret[TOKEN_TEXT], struct err *e)
{
    struct tokens *ts = g->tokens;
    uint64_t now_unix_s = clock_unix_s();
    struct token *t = NULL;
    struct batch *b = NULL;
    struct slice key;
    struct digest d;
    char *row = NULL;
    int rc = name_check(name, e);

    if (rc == 0 && (count == 0 || count > SCOPES_MAX)) {
        rc = err_set(e, E_INVALID, "a token has 1 to %d scopes; write one such as read:*",
                     SCOPES_MAX);
    }
    for (size_t i = 0; i < count && rc == 0; i++) {
        rc = scope_check(slice_str(scopes[i]), e);
    }
    if (rc != 0) {
        return rc;
    }
    text_make(secret);
    digest_of(slice_str(secret), &d);
    t = token_new(&d, secret + 4, name, count);
    t->created_unix_s = now_unix_s;
    t->expires_unix_s = expires_unix_s;
    for (size_t i = 0; i < count; i++) {
        scope_add(t, scopes[i]);
    }
    row = row_write(t);
    key = slice_of(d.b, DIGEST_BYTES);
    b = batch_new();
    batch_require_absent(b, TABLE_TOKEN, key);
    batch_put(b, TABLE_TOKEN, key, slice_str(row));
    batch_check(b, name_is_free, &name);
    rc = store_commit(ts->store, &b, COMMIT_SYNC, e);
    rc = rc != 0 ? rc : tokens_reload(ts, e);
    if (rc != 0) {
        explicit_bzero(secret, TOKEN_TEXT);
    }
    token_release(&t);
    free(row);
    return rc;
}

static int revoke_once(struct tokens *ts, struct slice name, struct err *e)
{
    struct named n = {.name = name, .b = batch_new()};
    int rc = store_scan(ts->store, TABLE_TOKEN, SLICE_NONE, SLICE_NONE, on_named_row, &n, e);

    if (rc == 0 && n.count == 0) {
        rc = err_set(e, E_NOTFOUND, "there is no token \"" SLICE_FMT "\"; see `mirrorctl token ls`",
                     SLICE_ARG(name));
    }
    rc = rc != 0 ? rc : store_commit(ts->store, &n.b, COMMIT_SYNC, e);
    batch_free(&n.b);
    return rc;
}

int token_revoke(struct gate *g, struct slice name, struct err *e)
{
    struct tokens *ts = g->tokens;
    struct token *t;
    int rc = E_CHANGED, read;

    lock_take(&ts->lock);
    while ((t = find_token_by_name(ts, name)) != NULL) {
        free_token_fields(t); /* refused from here on, whatever the disk says */
    }
    lock_drop(&ts->lock);
    /* Another mirror may have revoked it, and created another one of the name. */
    for (int i = 0; rc == E_CHANGED && i < REVOKE_TRIES; i++) {
        rc = revoke_once(ts, name, e);
    }
    /* If that failed, it is shown again, so that it is revoked again and not forgotten. */
    read = tokens_reload(ts, rc == 0 ? e : NULL);
    return rc != 0 ? rc : read;
}

void token_each(struct gate *g, void (*each)(void *arg, const struct token_info *t), void *arg)
{
    struct tokens *ts = g->tokens;

    lock_take(&ts->lock);
    LIST_EACH (&ts->all, it) {
        struct token *t = LIST_ITEM(it, struct token, node);
        struct token_info info = {
            .name = t->name.p,
            .id = t->id,
            .scopes = t->scopes,
            .scopes_count = t->scopes_count,
            .created_unix_s = t->created_unix_s,
            .expires_unix_s = t->expires_unix_s,
            .last_used_unix_s = atomic_load_explicit(&t->last_used_unix_s, memory_order_relaxed),
        };
        each(arg, &info);
    }
    lock_drop(&ts->lock);
}

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

/* The token's own, else the narrowest network's, else, without a token (name.n == 0), `anonymous`;
 * or NULL. */
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

enum { TOKEN_BUCKET_SHARDS = 16, TOKEN_BUCKETS_PER_SHARD = 4096 };

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
    g->token_buckets = token_buckets_open(TOKEN_BUCKET_SHARDS, TOKEN_BUCKETS_PER_SHARD);
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
    token_buckets_forget(g->token_buckets);
}

void gate_share(struct gate *g, uint32_t mirrors)
{
    atomic_store_explicit(&g->mirrors, mirrors, memory_order_relaxed);
}

/* This mirror's part of what all mirrors of a cluster allow together; 0 stays 0. */
static uint64_t limit_share(struct gate *g, uint64_t all)
{
    uint32_t mirrors = atomic_load_explicit(&g->mirrors, memory_order_relaxed);

    return mirrors < 2 ? all : (all + mirrors - 1) / mirrors;
}

static struct token_bucket_rate rate_share(struct gate *g, const struct limit_conf *l)
{
    uint32_t mirrors = atomic_load_explicit(&g->mirrors, memory_order_relaxed);

    return (struct token_bucket_rate){l->requests_per_s / (mirrors < 2 ? 1 : mirrors),
                                      (uint32_t)limit_share(g, l->burst)};
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
    token_buckets_close(&g->token_buckets);
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

/* The token in an Authorization value; n == 0 when it holds none of ours. Basic's text is decoded
 * into `room`. */
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
    if (g->fresh != NULL && !g->fresh(g->fresh_arg)) {
        rc = err_set(e, E_AGAIN,
                     "this mirror cannot reach its cluster's bucket, so it does not know which "
                     "tokens were revoked; try again, or ask another mirror");
        goto out;
    }
    if (!r->tls && !atomic_load(&g->plaintext_token) && !on_loopback(r)) {
        rc = err_set(e, E_DENIED,
                     "the token came over plain HTTP, where others can read it; use https:// "
                     "and have this token revoked");
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

int gate_reload_tokens(struct gate *g, struct err *e)
{
    return tokens_reload(g->tokens, e);
}

void gate_set_fresh(struct gate *g, bool (*fresh)(void *arg), void *arg)
{
    g->fresh_arg = arg;
    g->fresh = fresh;
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
    int rc = g->fresh == NULL || g->fresh(g->fresh_arg)
                 ? tokens_named(g->tokens, name, clock_unix_s(), &t, e)
                 : err_set(e, E_NOTFOUND, "it is not known which tokens were revoked");

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
static void key_of_address(const uint8_t address[16], struct token_bucket_key *out)
{
    static const uint8_t v4_prefix[12] = {[10] = 0xff, [11] = 0xff};

    *out = (struct token_bucket_key){.b = {'a'}};
    memcpy(out->b + 1, address, memcmp(address, v4_prefix, sizeof(v4_prefix)) == 0 ? 16 : 8);
}

static void key_of_token(const struct token *t, struct token_bucket_key *out)
{
    *out = (struct token_bucket_key){.b = {'t'}};
    memcpy(out->b + 1, token_id(t), strlen(token_id(t)));
}

/* The limit that counts, with what holds it, and whose bucket; NULL: none does. */
static const struct limit_conf *limit_of(struct gate *g, const struct principal *who,
                                         const struct sockaddr_storage *peer,
                                         struct token_bucket_key *key, struct limits **ls)
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
                uint64_t now_ms, struct gate_decision *out)
{
    struct limits *ls;
    struct token_bucket_decision v;
    struct token_bucket_key key;
    const struct limit_conf *limit = limit_of(g, who, peer, &key, &ls);
    struct token_bucket_rate rate;

    *out = (struct gate_decision){.pass = true};
    if (limit == NULL) {
        goto out;
    }
    if (limit->requests_per_s > 0) {
        rate = rate_share(g, limit);
        token_buckets_spend(g->token_buckets, &key, &rate, now_ms, &v);
        out->pass = v.pass;
        if (!v.pass) {
            atomic_fetch_add_explicit(&g->refused, 1, memory_order_relaxed);
        }
        out->limit = rate.burst;
        out->remaining = v.remaining;
        out->reset_s = (v.reset_us + 999999) / 1000000;
        out->retry_after_s = v.pass ? 0 : (uint32_t)((v.wait_us + 999999) / 1000000);
    }
    if (limit->rate_bytes_per_s > 0 && out->pass) {
        out->pace =
            token_buckets_pace(g->token_buckets, &key, limit_share(g, limit->rate_bytes_per_s));
    }
out:
    limits_release(&ls);
}

void gate_owe(struct gate *g, const struct principal *who, const struct sockaddr_storage *peer,
              uint64_t now_ms, unsigned n)
{
    struct limits *ls;
    struct token_bucket_key key;
    const struct limit_conf *limit = limit_of(g, who, peer, &key, &ls);

    if (limit != NULL && limit->requests_per_s > 0 && n != 0) {
        struct token_bucket_rate rate = rate_share(g, limit);
        token_buckets_owe(g->token_buckets, &key, &rate, now_ms, n);
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
    uint32_t most = limit != NULL ? (uint32_t)limit_share(g, limit->connections) : 0;

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
    struct token_bucket_key key;
    uint8_t address[16];

    proxies_release(&ps);
    /* Counted without a limit too: one may come with a reload, and each of these ends in
     * gate_disconnect(). */
    address_of(peer, address);
    key_of_address(address, &key);
    return token_buckets_connect(g->token_buckets, &key,
                                 proxy ? UINT32_MAX : connections_of(g, address));
}

void gate_disconnect(struct gate *g, const struct sockaddr_storage *peer)
{
    struct token_bucket_key key;
    uint8_t address[16];

    address_of(peer, address);
    key_of_address(address, &key);
    token_buckets_disconnect(g->token_buckets, &key);
}
