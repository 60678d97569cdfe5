/* inventory.h - compares the tensors of a model's files with those that its configuration
 * requires.
 *
 * Every tensor of either side is one row, in the model's order and then the files'.
 * weights_load() ignores superfluous tensors, and refuses the folder if one is missing or wrong.
 *
 * owns     the rows and the files they point into; borrowed until inventory_close()
 * errors   tensorset_open()'s
 */
#ifndef AGENT_TRAIN_INVENTORY_H
#define AGENT_TRAIN_INVENTORY_H

#include "agent/train/layout.h"
#include "agent/train/tensorset.h"

enum inventory_verdict {
    INVENTORY_FITS,
    INVENTORY_MISSING,
    INVENTORY_SHAPE, /* differs from the configuration's */
    INVENTORY_TYPE,  /* one that is not read */
    INVENTORY_SUPERFLUOUS,
    INVENTORY_VERDICTS
};

struct inventory_row {
    const struct st_tensor *found; /* NULL: missing */
    const struct hub_tensor *want; /* NULL: superfluous */
    enum inventory_verdict verdict;
};

struct inventory {
    struct tensorset *set;
    struct inventory_row *row;
    size_t rows;
    size_t count[INVENTORY_VERDICTS];
};

MUST_USE int inventory_open(const char *dir, const struct layout *l, struct inventory **out,
                            struct err *e);
void inventory_close(struct inventory **ip); /* NULL is fine */
const char *inventory_verdict_name(enum inventory_verdict v);

#endif
