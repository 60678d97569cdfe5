#include "server/repo/hf/held.h"

#include <jansson.h>
#include <stdlib.h>

#include "common/codec/jread.h"
#include "common/codec/jwrite.h"
#include "server/repo/hf/hf.h"

struct held *held_new(void)
{
    return NEW(struct held);
}

void held_add(struct held *h, const struct held_branch *b)
{
    h->at = realloc(h->at, (h->count + 1) * sizeof h->at[0]);
    CHECK(h->at != NULL);
    h->at[h->count++] = (struct held_branch){.type = arena_copy(&h->arena, b->type),
                                             .id = arena_copy(&h->arena, b->id),
                                             .branch = arena_copy(&h->arena, b->branch),
                                             .commit = arena_copy(&h->arena, b->commit),
                                             .since_unix_s = b->since_unix_s};
}

void held_put(struct hf *state, struct held *h)
{
    h->older = atomic_load(&state->held);
    atomic_store(&state->held, h);
}

void held_free_all(struct hf *state)
{
    struct held *h = atomic_exchange(&state->held, NULL);

    while (h != NULL) {
        struct held *older = h->older;
        arena_fini(&h->arena);
        free(h->at);
        free(h);
        h = older;
    }
}

const struct held_branch *held_find(const struct hf *state, struct slice type, struct slice id,
                                    struct slice branch)
{
    const struct held *h = atomic_load_explicit(&state->held, memory_order_acquire);

    for (size_t i = 0; h != NULL && i < h->count; i++) {
        const struct held_branch *b = &h->at[i];
        if (slice_eq(b->type, type) && slice_ieq(b->id, id) && slice_eq(b->branch, branch)) {
            return b;
        }
    }
    return NULL;
}

bool held_refs(const struct hf *state, struct slice type, struct slice id, struct slice json,
               struct buf *out)
{
    json_t *v, *one;
    bool any = false;
    size_t i;

    if (atomic_load_explicit(&state->held, memory_order_acquire) == NULL) {
        return false;
    }
    v = json_loadb(json.p != NULL ? json.p : "", json.n, JSON_ALLOW_NUL, NULL);
    json_array_foreach(json_object_get(v, "branches"), i, one)
    {
        struct slice name = jread_text(one, "name");
        const struct held_branch *b = name.p != NULL ? held_find(state, type, id, name) : NULL;
        if (b != NULL) {
            any = true;
            (void)json_object_set_new(one, "targetCommit", json_stringn(b->commit.p, b->commit.n));
        }
    }
    any = any && json_dump_callback(v, jwrite_dumped, out, JSON_COMPACT) == 0;
    json_decref(v);
    return any;
}
