/* tree.h - answers for hosted trees: a file's blob, a folder's listing.
 *
 * threads  the loop of the request
 */
#ifndef SERVER_REQUEST_TREE_H
#define SERVER_REQUEST_TREE_H

#include "server/request/request.h"

void tree_send_file(struct request *c);    /* executes a PLAN_BLOB */
void tree_send_listing(struct request *c); /* a PLAN_LIST */

#endif
