/* own.h - the front entrance: repos by the first part of a path, and the paths that are ours, not a repo's: health, metrics, the
 * pages, digests.
 *
 * threads  as serve/: the loop of the connection
 */
#ifndef SERVER_OWN_OWN_H
#define SERVER_OWN_OWN_H

#include "server/serve/entrance.h"

struct admin_parts;
struct hub_parts;
struct lifecycle;
struct texts;
struct own { /* what the pages show */
    const struct admin_parts *admin;
    const struct hub_parts *hub;
    struct lifecycle *lifecycle;
    struct texts *texts;
};
struct own *own_open(const struct admin_parts *admin, const struct hub_parts *hub,
                     struct lifecycle *l);
void own_close(struct own **op); /* NULL is fine; after serve_close() */

extern const struct entrance entrance_front;

#endif
