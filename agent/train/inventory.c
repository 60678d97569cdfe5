#include "agent/train/inventory.h"

#include <stdlib.h>

#include "agent/train/weights.h"

const char *inventory_verdict_name(enum inventory_verdict v)
{
    static const char *const name[] = {
        [INVENTORY_FITS] = "fits",
        [INVENTORY_MISSING] = "missing",
        [INVENTORY_SHAPE] = "another shape",
        [INVENTORY_TYPE] = "a type that is not read",
        [INVENTORY_SUPERFLUOUS] = "superfluous",
    };

    return name[v];
}

static void add_inventory_tensor(struct inventory *v, const struct st_tensor *found,
                                 const struct hub_tensor *want)
{
    enum inventory_verdict verdict = found == NULL                      ? INVENTORY_MISSING
                                     : want == NULL                     ? INVENTORY_SUPERFLUOUS
                                     : !weights_same_shape(want, found) ? INVENTORY_SHAPE
                                     : !weights_same_type(found)        ? INVENTORY_TYPE
                                                                        : INVENTORY_FITS;

    v->row[v->rows++] = (struct inventory_row){found, want, verdict};
    v->count[verdict]++;
}

static int by_address(const void *a, const void *b)
{
    uintptr_t x = (uintptr_t)((const struct inventory_row *)a)->found;
    uintptr_t y = (uintptr_t)((const struct inventory_row *)b)->found;

    return (x > y) - (x < y);
}

/* What the files have and no tensor of the model's was found to be. */
static void add_superfluous(struct inventory *v)
{
    size_t wanted = v->rows, all = tensorset_count(v->set);
    struct inventory_row *known = mem_array(wanted + 1, sizeof *known);

    memcpy(known, v->row, wanted * sizeof *known);
    qsort(known, wanted, sizeof *known, by_address);
    for (size_t i = 0; i < all; i++) {
        const struct inventory_row key = {.found = tensorset_at(v->set, i)};

        if (key.found != NULL && bsearch(&key, known, wanted, sizeof key, by_address) == NULL) {
            add_inventory_tensor(v, key.found, NULL);
        }
    }
    free(known);
}

int inventory_open(const char *dir, const struct layout *l, struct inventory **out, struct err *e)
{
    struct inventory *v = NEW(struct inventory);
    int rc = tensorset_open(dir, "model", &v->set, e);

    *out = NULL;
    if (rc != 0) {
        inventory_close(&v);
        return rc;
    }
    v->row = mem_array((size_t)l->hubs + tensorset_count(v->set), sizeof *v->row);
    for (int i = 0; i < l->hubs; i++) {
        const struct safetensors *unused;

        add_inventory_tensor(v, weights_find(v->set, "", l->hub[i].name, &unused), &l->hub[i]);
    }
    add_superfluous(v);
    *out = v;
    return 0;
}

void inventory_close(struct inventory **ip)
{
    struct inventory *v = *ip;

    if (v == NULL) {
        return;
    }
    *ip = NULL;
    tensorset_close(&v->set);
    free(v->row);
    free(v);
}
