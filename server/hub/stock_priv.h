/* stock_priv.h - the three ways to know what is here, for stock.c alone. Functions as in stock.h. */
#ifndef SERVER_HUB_STOCK_PRIV_H
#define SERVER_HUB_STOCK_PRIV_H

#include "server/hub/stock.h"

struct stock_ops {
    int (*repos)(const struct stock_view *v, struct slice prefix,
                 int (*each)(void *arg, const struct stock_repo *x), void *arg, struct err *e);
    int (*revisions)(const struct stock_view *v, struct slice type, struct slice id,
                     int (*each)(void *arg, const struct stock_revision *x), void *arg,
                     struct err *e);
    int (*files)(const struct stock_view *v, struct slice type, struct slice id, struct slice rev,
                 struct arena *a, struct stock_revision *about,
                 int (*each)(void *arg, const struct stock_file *f), void *arg, struct err *e);
    /* NULL: whatever was asked for is the repository's own name */
    int (*id)(const struct stock_view *v, struct slice type, struct slice id, struct arena *a,
              struct slice *out, struct err *e);
};
extern const struct stock_ops stock_pulled, stock_synced, stock_hosted;

/* Does the repository's name, as people write it, begin so? */
bool stock_shown(struct slice type, struct slice id, struct slice prefix);

#endif
