/* inventory_pages.h - /-/repos/<repo>/...: the pages of a repo's repositories
 * (admin/inventory_page.h), made where nobody waits for them. */
#ifndef SERVER_OWN_INVENTORY_PAGES_H
#define SERVER_OWN_INVENTORY_PAGES_H

#include "common/base/slice.h"

struct serve_loop;
struct exchange;
struct request_log;

/* path: behind INVENTORY_PAGES, raw. base: as links begin; lives as long as the exchange. */
void inventory_pages_answer(struct serve_loop *d, struct exchange *x, struct request_log *v,
                            struct slice path, struct slice base);

#endif
