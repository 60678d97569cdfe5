/* stock_pages.h - /-/repos/<repo>/...: the pages of a repo's repositories (admin/stock_page.h), made where nobody waits for them. */
#ifndef SERVER_OWN_STOCK_PAGES_H
#define SERVER_OWN_STOCK_PAGES_H

#include "common/base/slice.h"

struct desk;
struct exchange;
struct visit;

/* path: behind STOCK_PAGES, raw. base: as links begin; lives as long as the exchange. */
void stock_pages_answer(struct desk *d, struct exchange *x, struct visit *v, struct slice path,
                        struct slice base);

#endif
