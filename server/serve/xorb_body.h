/* xorb_body.h - a body in Xet's chunk framing (server/repo/hf/xorb.h), made of one that gives the file's own bytes.
 *
 * owns     takes `inner`, which begins at the file's byte that is first in [first, end) and reaches at least as far
 * threads  one loop, as all bodies
 */
#ifndef SERVER_SERVE_XORB_BODY_H
#define SERVER_SERVE_XORB_BODY_H

#include "server/http/body.h"

/* [first, end) of the framed bytes of a file of plain_bytes. */
struct body *xorb_body_new(struct body *inner, uint64_t plain_bytes, uint64_t first, uint64_t end);

#endif
