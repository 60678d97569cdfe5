/* easy.h - what a caller wants, as a handle of libcurl: the request's URL, lines and method, whom to trust, how long to wait.
 *
 * owns     both *out and *lines are the caller's, *lines also when it fails; the handle points to the lines
 * errors   E_INVALID: no URL, field or range that can be
 */
#ifndef COMMON_XFER_EASY_H
#define COMMON_XFER_EASY_H

#include <curl/curl.h>
#include <limits.h>

#include "common/xfer/xfer.h"

enum { EASY_HOST = HOST_NAME_MAX + 64 };

/* host: "name:port", for messages; set as soon as it is known. */
MUST_USE int easy_open(const struct xfer_want *w, const char *user_agent, char host[EASY_HOST],
                       CURL **out, struct curl_slist **lines, struct err *e);

#endif
