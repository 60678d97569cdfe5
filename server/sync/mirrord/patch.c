#include "server/sync/mirrord/patch.h"

#include <stdlib.h>

#include "common/base/endian.h"

/* --- which piece lies where in the former version --- */

struct index {
    const struct pieces *have;
    uint32_t *slot; /* number of a piece and 1; 0: free */
    size_t mask;
};

static void index_open(struct index *x, const struct pieces *have)
{
    size_t room = 16;

    while (room < 2 * have->count) {
        room *= 2;
    }
    *x = (struct index){.have = have, .slot = mem_array(room, sizeof x->slot[0]), .mask = room - 1};
    for (size_t i = 0; i < have->count; i++) {
        size_t at = (size_t)be_get(have->piece[i].id, 8) & x->mask;
        /* A run of equal pieces (zeros) would be walked through for each of them: the first will
         * do. */
        while (x->slot[at] != 0 &&
               memcmp(have->piece[x->slot[at] - 1].id, have->piece[i].id, PIECE_ID) != 0) {
            at = (at + 1) & x->mask;
        }
        x->slot[at] = x->slot[at] != 0 ? x->slot[at] : (uint32_t)i + 1;
    }
}

static const struct blob_piece *find_same_piece(const struct index *x, const struct blob_piece *p)
{
    size_t at = (size_t)be_get(p->id, 8) & x->mask;

    for (; x->slot[at] != 0; at = (at + 1) & x->mask) {
        const struct blob_piece *got = &x->have->piece[x->slot[at] - 1];
        if (memcmp(got->id, p->id, PIECE_ID) == 0) {
            return got->n == p->n ? got : NULL;
        }
    }
    return NULL;
}

/* --- stretches --- */

static void add_patch_piece(struct patch *out, const struct blob_piece *p,
                            const struct blob_piece *got)
{
    struct stretch *last = out->count != 0 ? &out->stretch[out->count - 1] : NULL;

    if (last != NULL && last->here == (got != NULL) &&
        (got == NULL || last->from + (last->end - last->off) == got->off)) {
        last->end += p->n;
        return;
    }
    out->stretch[out->count++] = (struct stretch){.off = p->off,
                                                  .end = p->off + p->n,
                                                  .here = got != NULL,
                                                  .from = got != NULL ? got->off : 0};
}

/* The first from i on that must come. */
static size_t next_coming(const struct patch *p, size_t i)
{
    while (i < p->count && p->stretch[i].here) {
        i++;
    }
    return i;
}

/* Short gaps between two that must come are no gaps. Several stretches may make one, when they lie
 * apart in the former version. */
static void join_patch_pieces(struct patch *p)
{
    size_t n = 0;

    for (size_t i = 0; i < p->count; i++) {
        struct stretch *last = n != 0 ? &p->stretch[n - 1] : NULL;
        if (last != NULL && !last->here && p->stretch[i].here) {
            size_t next = next_coming(p, i);
            if (next < p->count && p->stretch[next].off - p->stretch[i].off < PATCH_GAP) {
                last->end = p->stretch[next].end;
                i = next;
                continue;
            }
        }
        p->stretch[n++] = p->stretch[i];
    }
    p->count = n;
}

void patch_make(const struct pieces *want, const struct pieces *have, struct patch *out)
{
    struct index x;

    *out = (struct patch){.stretch = mem_array(want->count + 1, sizeof out->stretch[0])};
    index_open(&x, have);
    for (size_t i = 0; i < want->count; i++) {
        add_patch_piece(out, &want->piece[i], find_same_piece(&x, &want->piece[i]));
    }
    free(x.slot);
    join_patch_pieces(out);
    for (size_t i = 0; i < out->count; i++) {
        *(out->stretch[i].here ? &out->here_bytes : &out->fetch_bytes) +=
            out->stretch[i].end - out->stretch[i].off;
    }
}

void patch_free(struct patch *p)
{
    free(p->stretch);
    p->stretch = NULL;
    p->count = 0;
}

bool patch_pays(const struct patch *p, uint64_t list_bytes)
{
    return p->here_bytes / 10 > list_bytes &&
           p->here_bytes >= (p->here_bytes + p->fetch_bytes) / 20;
}
