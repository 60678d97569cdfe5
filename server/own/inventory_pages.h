/* inventory_pages.h - answers /-/repos/<repo>/...: the pages about a repository's contents
 * (admin/inventory_page.h), made on a thread that may block. */
#ifndef SERVER_OWN_INVENTORY_PAGES_H
#define SERVER_OWN_INVENTORY_PAGES_H

#include "common/base/slice.h"

struct serve_loop;
struct exchange;
struct request_log;

/* path: what follows INVENTORY_PAGES, raw. base: the beginning of links; lives as long as the
 * exchange. */
void inventory_pages_answer(struct serve_loop *d, struct exchange *x, struct request_log *v,
                            struct slice path, struct slice base);

#endif
