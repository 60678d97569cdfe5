#include "server/store/pin.h"

#include <stdlib.h>

#include "server/store/state.h"

int pin_set(struct store *s, struct slice scope, struct slice owner, struct err *e)
{
    struct batch *b;

    if (scope.n == 0 || scope.n > 4096 || owner.n > 4096) {
        return err_set(e, E_INVALID, "a pin's scope is a repo or repo/prefix");
    }
    b = batch_new();
    batch_put(b, TABLE_PIN, scope, owner);
    return store_commit(s, &b, COMMIT_SYNC, e);
}

int pin_clear(struct store *s, struct slice scope, struct err *e)
{
    struct buf owner = BUF_INIT(8192);
    int rc = kv_get(s->kv, TABLE_PIN, scope, &owner, e);

    buf_free(&owner);
    if (rc == 0) {
        struct batch *b = batch_new();
        batch_del(b, TABLE_PIN, scope);
        rc = store_commit(s, &b, COMMIT_SYNC, e);
    }
    return rc == E_NOTFOUND ? err_set(e, rc, "no such pin") : rc;
}

int pin_list(struct store *s, int (*each)(void *arg, struct slice scope, struct slice owner),
             void *arg, struct err *e)
{
    return kv_scan(s->kv, NULL, TABLE_PIN, SLICE_NONE, SLICE_NONE, each, arg, e);
}

static int load_pin(void *arg, struct slice scope, struct slice owner)
{
    struct pins *p = arg;

    (void)owner;
    p->scope = realloc(p->scope, (p->count + 1) * sizeof p->scope[0]);
    CHECK(p->scope != NULL);
    p->scope[p->count++] = arena_copy(&p->arena, scope);
    return 0;
}

int pins_load(struct store *s, struct pins *out, struct err *e)
{
    *out = (struct pins){0};
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

bool pins_cover(const struct pins *p, struct slice repo, struct slice key)
{
    for (size_t i = 0; i < p->count; i++) {
        if (covers(p->scope[i], repo, key)) {
            return true;
        }
    }
    return false;
}

void pins_free(struct pins *p)
{
    free(p->scope);
    arena_fini(&p->arena);
    *p = (struct pins){0};
}
