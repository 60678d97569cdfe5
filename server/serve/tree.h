/* tree.h - what hosted trees answer: a file's blob, a folder's listing. */
#ifndef SERVER_SERVE_TREE_H
#define SERVER_SERVE_TREE_H

#include "server/serve/call.h"

void tree_send_file(struct call *c);    /* executes a PLAN_BLOB */
void tree_send_listing(struct call *c); /* a PLAN_LIST */

#endif
