/* inside.h - recognizes addresses and host names of the internal network, which no page, link or
 * redirect of an origin may lead to.
 *
 * owns     nothing
 * threads  any; nothing is looked up
 */
#ifndef SERVER_FETCH_INSIDE_H
#define SERVER_FETCH_INSIDE_H

#include <sys/socket.h>

#include "common/base/slice.h"

/* True for loopback, private, link-local, metadata and multicast addresses, and for any that is not
 * an internet address. */
bool address_is_inside(const struct sockaddr *sa);

enum { HOST_TEXT = 254 };
/* host: a URL's host, without brackets. True for localhost and names below it (RFC 6761), and for
 * an internal address in each spelling that resolvers accept (inet_aton(3): 127.1, 0177.0.0.1,
 * 0x7f000001, 2130706433), also with a trailing dot. */
bool host_is_inside(struct slice host);
/* True for a name that the public DNS cannot have, so that a proxy would find it in its own
 * network: a single label, or one below local (RFC 6762), home.arpa (RFC 8375), internal or
 * localdomain. */
bool host_is_private(struct slice host);

#endif
