#include "server/store/parked.h"

#include <stdlib.h>
#include <sys/stat.h>
#include <uthash.h>

#include "server/store/state.h"

struct parked {
    UT_hash_handle hh;
    uint64_t id;
    uint64_t bytes;
};

uint64_t parked_size(const struct stat *st)
{
    return min_u64((uint64_t)st->st_blocks * 512, (uint64_t)st->st_size);
}

/* Under space.lock. */
static void take(struct store *s, uint64_t id)
{
    struct parked *p;

    HASH_FIND(hh, s->parked, &id, sizeof id, p);
    if (p != NULL) {
        HASH_DEL(s->parked, p);
        s->space.parked_bytes -= p->bytes;
        free(p);
    }
}

void parked_add(struct store *s, uint64_t id, uint64_t bytes)
{
    struct parked *p = NEW(struct parked);

    p->id = id;
    p->bytes = bytes;
    lock_take(&s->space.lock);
    take(s, id);
    HASH_ADD(hh, s->parked, id, sizeof p->id, p);
    s->space.parked_bytes += bytes;
    lock_drop(&s->space.lock);
}

void parked_take(struct store *s, uint64_t id)
{
    lock_take(&s->space.lock);
    take(s, id);
    lock_drop(&s->space.lock);
}

void parked_fini(struct store *s)
{
    struct parked *p;
    struct parked *tmp;

    HASH_ITER(hh, s->parked, p, tmp)
    {
        HASH_DEL(s->parked, p);
        free(p);
    }
}
