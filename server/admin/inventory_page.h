/* inventory_page.h - pages about the repositories of a Hub and of our own: which there are, and of
 * one what is here of it.
 *
 * They work without scripts. What they tell is what everybody sees (stock.h); whom a token lets see
 * less, `may` judges.
 *
 * threads  any; blocks
 * errors   E_NOTFOUND: no such repository or revision is known here
 */
#ifndef SERVER_ADMIN_INVENTORY_PAGE_H
#define SERVER_ADMIN_INVENTORY_PAGE_H

#include "server/hub/inventory.h"

#define INVENTORY_PAGES "/-/repos/" /* <repo>/ and <repo>/[<type>/]<id> */

struct inventory_page {
    struct inventory_view view;
    struct slice base; /* "http://mirror:8080": as the page was reached */
    /* Of the list: */
    struct slice search; /* decoded; "" for all */
    bool (*may)(void *arg, struct slice type, struct slice id);
    void *arg;
    /* Of one: */
    struct slice type, id;
    struct slice rev; /* p == NULL: main */
    uint64_t page;    /* from 0 on, of both */
    uint64_t now_unix_s;
};

MUST_USE int inventory_page_list(const struct inventory_page *p, struct buf *out, struct err *e);
MUST_USE int inventory_page_one(const struct inventory_page *p, struct buf *out, struct err *e);

#endif
