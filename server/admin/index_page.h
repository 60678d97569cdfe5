/* index_page.h - /-/: the pages and documents that the daemon itself answers with, as links.
 *
 * threads  any; no I/O
 */
#ifndef SERVER_ADMIN_INDEX_PAGE_H
#define SERVER_ADMIN_INDEX_PAGE_H

#include "server/live/repo_set.h"

void index_page(const struct repo_set *set, struct buf *out);

#endif
