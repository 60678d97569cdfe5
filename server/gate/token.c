#include "server/gate/token.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include <jansson.h>
#include <openssl/crypto.h>
#include <openssl/rand.h>
#include <zlib.h>

#include "common/base/list.h"
#include "common/base/log.h"
#include "common/os/lock.h"
#include "server/gate/scope.h"

enum {
    ID_HEX = 8,
    SECRET_AT = 4 + ID_HEX + 1,
    SECRET_LETTERS = 43, /* of 62: 256 bits */
    CRC_AT = SECRET_AT + SECRET_LETTERS + 1,
    TEXT_BYTES = CRC_AT + 8,
    NAME_MAX_BYTES = 64,
    SCOPES_MAX = 32,
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
    struct lock lock; /* guards `all`: changes; and loops while they look one up */
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

struct token *token_hold(struct token *t)
{
    atomic_fetch_add(&t->holds, 1);
    return t;
}

void token_release(struct token **tp)
{
    struct token *t = *tp;

    *tp = NULL;
    if (t != NULL && atomic_fetch_sub(&t->holds, 1) == 1) {
        arena_fini(&t->arena);
        free(t);
    }
}

struct slice token_name(const struct token *t)
{
    return t->name;
}

const char *token_id(const struct token *t)
{
    return t->id;
}

struct slice token_scope(const struct token *t, size_t i)
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

bool token_gives(const struct token *t, struct slice right, struct slice subject)
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

static int on_row(void *arg, struct slice key, struct slice value)
{
    struct tokens *ts = arg;
    struct token *t = row_read(key, value);

    if (t == NULL) {
        log_error("token.damaged", "its row cannot be read: that token is refused");
        return 0;
    }
    list_push_back(&ts->all, &t->node);
    return 0;
}

int tokens_open(struct store *s, struct tokens **out, struct err *e)
{
    struct tokens *ts = NEW(struct tokens);
    int rc;

    ts->store = s;
    lock_init(&ts->lock, LOCK_GATE);
    list_init(&ts->all);
    rc = store_scan(s, TABLE_TOKEN, SLICE_NONE, SLICE_NONE, on_row, ts, e);
    if (rc != 0) {
        tokens_close(&ts);
        return rc;
    }
    *out = ts;
    return 0;
}

static void drop(struct token *t)
{
    list_remove(&t->node);
    token_release(&t);
}

void tokens_close(struct tokens **tp)
{
    struct tokens *ts = *tp;

    *tp = NULL;
    if (ts == NULL) {
        return;
    }
    LIST_EACH (&ts->all, it) {
        drop(LIST_ITEM(it, struct token, node));
    }
    lock_fini(&ts->lock);
    free(ts);
}

bool token_shaped(struct slice text)
{
    return slice_starts(text, SLICE("mrd_"));
}

static bool crc_holds(struct slice text)
{
    char crc[9];

    snprintf(crc, sizeof(crc), "%08lx", crc32(0, (const Bytef *)text.p, CRC_AT - 1));
    return memcmp(text.p + CRC_AT, crc, 8) == 0;
}

int tokens_find(struct tokens *ts, struct slice text, uint64_t now_unix_s, struct token **out,
                struct err *e)
{
    struct token *found = NULL;
    struct digest d;

    if (text.n != TEXT_BYTES || !crc_holds(text)) {
        return err_set(e, E_DENIED,
                       "the token is not whole, its checksum differs, copy it once more");
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
                       "the token is unknown, it was revoked or is another server's, "
                       "ask for a new one");
    }
    if (found->expires_unix_s != 0 && found->expires_unix_s <= now_unix_s) {
        token_release(&found);
        return err_set(e, E_DENIED, "the token has expired, ask for a new one");
    }
    atomic_store_explicit(&found->last_used_unix_s, now_unix_s, memory_order_relaxed);
    *out = found;
    return 0;
}

/* --- changes --- */

static struct token *by_name(struct tokens *ts, struct slice name)
{
    LIST_EACH (&ts->all, it) {
        struct token *t = LIST_ITEM(it, struct token, node);
        if (slice_eq(t->name, name)) {
            return t;
        }
    }
    return NULL;
}

int tokens_named(struct tokens *ts, struct slice name, uint64_t now_unix_s, struct token **out,
                 struct err *e)
{
    struct token *t;

    lock_take(&ts->lock);
    t = by_name(ts, name);
    if (t != NULL && t->expires_unix_s != 0 && t->expires_unix_s <= now_unix_s) {
        t = NULL;
    }
    if (t != NULL) {
        token_hold(t);
    }
    lock_drop(&ts->lock);
    if (t == NULL) {
        return err_set(e, E_NOTFOUND, "no token of that name is good");
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
                       "the name does not serve, it stands in logs and limits, use up to %d "
                       "letters, digits, '.', '_' and '-', not \"anonymous\"",
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

int tokens_create(struct tokens *ts, struct slice name, const char *const *scopes, size_t count,
                  uint64_t now_unix_s, uint64_t expires_unix_s, char secret[TOKEN_TEXT],
                  struct err *e)
{
    struct token *t = NULL;
    struct batch *b = NULL;
    struct slice key;
    struct digest d;
    char *row = NULL;
    bool taken;
    int rc = name_check(name, e);

    if (rc == 0 && (count == 0 || count > SCOPES_MAX)) {
        rc = err_set(e, E_INVALID, "a token has between 1 and %d scopes, write one such as read:*",
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
    /* In the table before it is durable, so that two of one name cannot both pass; its holder does not have it yet. */
    lock_take(&ts->lock);
    taken = by_name(ts, name) != NULL;
    if (!taken) {
        list_push_back(&ts->all, &t->node);
    }
    lock_drop(&ts->lock);
    if (taken) {
        rc = err_set(e, E_EXISTS,
                     "a token \"" SLICE_FMT "\" exists, names are unique, revoke it or "
                     "choose another",
                     SLICE_ARG(name));
        goto out;
    }
    rc = store_commit(ts->store, &b, COMMIT_SYNC, e);
    if (rc != 0) {
        lock_take(&ts->lock);
        list_remove(&t->node);
        lock_drop(&ts->lock);
        goto out;
    }
    t = NULL;
out:
    if (rc != 0) {
        explicit_bzero(secret, TOKEN_TEXT);
    }
    token_release(&t);
    batch_free(&b);
    free(row);
    return rc;
}

int tokens_revoke(struct tokens *ts, struct slice name, struct err *e)
{
    struct batch *b = NULL;
    struct token *t;
    int rc;

    lock_take(&ts->lock);
    t = by_name(ts, name);
    if (t != NULL) {
        list_remove(&t->node); /* refused from here on, whatever the disk says */
    }
    lock_drop(&ts->lock);
    if (t == NULL) {
        return err_set(e, E_NOTFOUND,
                       "there is no token \"" SLICE_FMT "\", see `mirrorctl token ls`",
                       SLICE_ARG(name));
    }
    b = batch_new();
    batch_del(b, TABLE_TOKEN, slice_of(t->digest.b, DIGEST_BYTES));
    rc = store_commit(ts->store, &b, COMMIT_SYNC, e);
    if (rc != 0) {
        /* Still on disk: keep showing it, so that it is revoked again and not forgotten. */
        lock_take(&ts->lock);
        list_push_back(&ts->all, &t->node);
        lock_drop(&ts->lock);
        return rc;
    }
    token_release(&t);
    return 0;
}

void tokens_each(struct tokens *ts, void (*each)(void *arg, const struct token_info *t), void *arg)
{
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
