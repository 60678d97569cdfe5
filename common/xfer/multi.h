/* multi.h - libcurl's multi handle on a libevent loop: its sockets and its timer become events,
 * and ended transfers are reported.
 *
 * owns     the multi handle and its events; borrows `base`; easy handles are the caller's, who
 *          removes those that it added
 * events   on_end() once for each handle whose transfer libcurl has ended, on the loop, with
 *          libcurl off the stack: there it may be removed. Not inside any call of this page
 * threads  all on the loop's thread
 */
#ifndef COMMON_XFER_MULTI_H
#define COMMON_XFER_MULTI_H

#include <curl/curl.h>

#include "common/base/check.h"

struct event_base;
struct multi;

/* private: CURLOPT_PRIVATE of the handle. */
struct multi *multi_open(struct event_base *base, unsigned connections, unsigned host_connections,
                         void (*on_end)(void *private, CURLcode code));
void multi_close(struct multi **mp); /* without handles, and not from a callback of libcurl */

void multi_add(struct multi *m, CURL *easy);
void multi_remove(struct multi *m, CURL *easy);

#endif
