/* easy.h - sets up a libcurl handle for a transfer: the request's URL, lines and method, the
 * trusted CAs, the time-outs.
 *
 * owns     *out and both lists are the caller's, the lists also after an error; the handle points
 *          to them. w->psk lives as long as the handle
 * errors   E_INVALID: an invalid URL, field or range
 */
#ifndef COMMON_XFER_EASY_H
#define COMMON_XFER_EASY_H

#include <curl/curl.h>
#include <limits.h>

#include "common/xfer/xfer.h"

enum { EASY_HOST = HOST_NAME_MAX + 64 };

/* host: "name:port", for messages; set as soon as it is known. lines[0]: the request's; lines[1]:
 * where to connect to. */
enum { EASY_LISTS = 2 };
MUST_USE int easy_open(const struct xfer_params *w, const char *user_agent, char host[EASY_HOST],
                       CURL **out, struct curl_slist *lines[EASY_LISTS], struct err *e);
/* Connects to that address, whatever host the URL names; to: lines[1]. */
void easy_connect_to(CURL *c, const struct sockaddr *sa, struct curl_slist **to);

#endif
