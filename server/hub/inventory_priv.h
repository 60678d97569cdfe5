/* inventory_priv.h - the three sources of an inventory, for inventory.c alone.
 *
 * The functions are those of inventory.h.
 *
 * owns     nothing: constant tables
 * threads  any; blocks
 */
#ifndef SERVER_HUB_INVENTORY_PRIV_H
#define SERVER_HUB_INVENTORY_PRIV_H

#include "server/hub/inventory.h"

struct inventory_ops {
    int (*repos)(const struct inventory_view *v, struct slice prefix,
                 int (*each)(void *arg, const struct inventory_repo *x), void *arg, struct err *e);
    int (*revisions)(const struct inventory_view *v, struct slice type, struct slice id,
                     int (*each)(void *arg, const struct inventory_revision *x), void *arg,
                     struct err *e);
    int (*files)(const struct inventory_view *v, struct slice type, struct slice id,
                 struct slice rev, struct arena *a, struct inventory_revision *about,
                 int (*each)(void *arg, const struct inventory_file *f), void *arg, struct err *e);
    /* NULL: the requested name is the repository's own */
    int (*id)(const struct inventory_view *v, struct slice type, struct slice id, struct arena *a,
              struct slice *out, struct err *e);
};
extern const struct inventory_ops inventory_pulled, inventory_synced, inventory_hosted;

/* Does the repository's name, as people write it, begin with prefix? */
bool inventory_shown(struct slice type, struct slice id, struct slice prefix);

#endif
