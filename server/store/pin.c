#include "server/store/pin.h"

#include <stdlib.h>

#include "server/store/state.h"

enum { SCOPE_MAX = 4096, PIN_BYTES = 16 << 20 };

static int pin_put(struct store *s, struct slice scope, struct slice value, struct err *e)
{
    struct batch *b = batch_new();

    batch_put(b, TABLE_PIN, scope, value);
    return store_commit(s, &b, COMMIT_SYNC, e);
}

static bool is_scope(struct slice scope, struct slice owner)
{
    return scope.n != 0 && scope.n <= SCOPE_MAX && owner.n <= SCOPE_MAX &&
           slice_find(owner, '\0') < 0;
}

int pin_set(struct store *s, struct slice scope, struct slice owner, struct err *e)
{
    if (!is_scope(scope, owner)) {
        return err_set(e, E_INVALID, "the scope of a pin must be a repo or repo/prefix");
    }
    return pin_put(s, scope, owner, e);
}

/* owner NUL key NUL key NUL ... */
int pin_set_keys(struct store *s, struct slice scope, struct slice owner, const struct slice *keys,
                 size_t count, struct err *e)
{
    struct buf value = BUF_INIT(PIN_BYTES);
    int rc = 0;

    if (!is_scope(scope, owner) || count == 0) {
        return err_set(e, E_INVALID, "a pin needs a scope and at least one key");
    }
    buf_adds(&value, owner);
    buf_byte(&value, 0);
    for (size_t i = 0; i < count; i++) {
        CHECK(slice_find(keys[i], '\0') < 0);
        buf_adds(&value, keys[i]);
        buf_byte(&value, 0);
    }
    rc = value.rc != 0 ? err_set(e, E_TOOBIG,
                                 "the keys of a pin are longer than %d MiB; pin a prefix instead",
                                 PIN_BYTES >> 20)
                       : pin_put(s, scope, buf_slice(&value), e);
    buf_free(&value);
    return rc;
}

int pin_clear(struct store *s, struct slice scope, struct err *e)
{
    struct buf value = BUF_INIT(PIN_BYTES + SCOPE_MAX);
    int rc = kv_get(s->kv, TABLE_PIN, scope, &value, e);

    buf_free(&value);
    if (rc == 0) {
        struct batch *b = batch_new();
        batch_del(b, TABLE_PIN, scope);
        rc = store_commit(s, &b, COMMIT_SYNC, e);
    }
    return rc == E_NOTFOUND ? err_set(e, rc, "no such pin") : rc;
}

struct listing {
    int (*each)(void *arg, const struct pin_info *p);
    void *arg;
};

static int on_pin_row(void *arg, struct slice scope, struct slice value)
{
    struct listing *x = arg;
    struct pin_info p = {.scope = scope, .keys = value};

    p.owner = slice_cut(&p.keys, '\0');
    return x->each(x->arg, &p);
}

int pin_list(struct store *s, int (*each)(void *arg, const struct pin_info *p), void *arg,
             struct err *e)
{
    struct listing x = {each, arg};

    return kv_scan(s->kv, NULL, TABLE_PIN, SLICE_NONE, SLICE_NONE, on_pin_row, &x, e);
}

static uint64_t hash_of(struct slice repo, struct slice key)
{
    return slice_hash(repo) * 31 + slice_hash(key);
}

static void load_keys(struct pin_table *p, const struct pin_info *from)
{
    struct slice rest = from->scope, keys = from->keys;
    struct slice repo = slice_cut(&rest, '/');

    while (keys.n != 0) {
        set64_add(&p->keys, hash_of(repo, slice_cut(&keys, '\0')));
    }
}

static int load_pin(void *arg, const struct pin_info *from)
{
    struct pin_table *p = arg;

    if (from->keys.n != 0) {
        load_keys(p, from);
        return 0;
    }
    p->scope = realloc(p->scope, (p->count + 1) * sizeof p->scope[0]);
    CHECK(p->scope != NULL);
    p->scope[p->count++] = arena_copy(&p->arena, from->scope);
    return 0;
}

int pins_load(struct store *s, struct pin_table *out, struct err *e)
{
    *out = (struct pin_table){0};
    return pin_list(s, load_pin, out, e);
}

static bool covers(struct slice scope, struct slice repo, struct slice key)
{
    if (!slice_starts(scope, repo)) {
        return false;
    }
    scope = slice_from(scope, repo.n);
    if (scope.n == 0) {
        return true;
    }
    if (scope.p[0] != '/') {
        return false; /* another repo whose name begins with this one's */
    }
    scope = slice_from(scope, 1);
    if (key.n != 0 && key.p[0] == '/') {
        key = slice_from(key, 1);
    }
    return slice_starts(key, scope);
}

bool pins_cover(const struct pin_table *p, struct slice repo, struct slice key)
{
    for (size_t i = 0; i < p->count; i++) {
        if (covers(p->scope[i], repo, key)) {
            return true;
        }
    }
    return set64_has(&p->keys, hash_of(repo, slice_cut(&key, '\0')));
}

void pins_free(struct pin_table *p)
{
    free(p->scope);
    set64_free(&p->keys);
    arena_fini(&p->arena);
    *p = (struct pin_table){0};
}
