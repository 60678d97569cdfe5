/* cross_site.h - does a web page of somebody else write here with its reader's login?
 *
 * A browser sends the Basic credentials that it holds for this server with any request that any page makes, so a page of
 * another web origin could write as its reader (CSRF). Browsers say where a request comes from: Sec-Fetch-Site, over TLS and
 * to loopback, and Origin with every write. Programs say neither, and Bearer tokens are not sent by themselves.
 *
 * threads  any
 * source   W3C Fetch Metadata; RFC 6454; the same rules as net/http.CrossOriginProtection of Go
 */
#ifndef SERVER_GATE_CROSS_SITE_H
#define SERVER_GATE_CROSS_SITE_H

#include "server/http/msg.h"

/* public_url: what clients call us, beside the host that they asked; or NULL. */
bool cross_site_write(const struct http_req *r, const char *public_url);

#endif
