/* inventory_page.h - pages about Hub and hosted repositories: which there are, and what of one is
 * here.
 *
 * They work without scripts. They show what is public (inventory.h); `may` decides what a token
 * hides.
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
    struct slice base; /* "http://mirror:8080": the address by which the page was requested */
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
