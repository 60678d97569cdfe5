/* tree.h - what hosted trees answer: a file's blob, a folder's listing. */
#ifndef SERVER_REQUEST_TREE_H
#define SERVER_REQUEST_TREE_H

#include "server/request/request.h"

void tree_send_file(struct request *c);    /* executes a PLAN_BLOB */
void tree_send_listing(struct request *c); /* a PLAN_LIST */

#endif
