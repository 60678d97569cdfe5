/* own.h - the usual frontend: finds the repository by the first part of the path, and answers the
 * paths that belong to no repository: health, metrics, the pages, digests.
 *
 * threads  as request/: the loop of the connection
 */
#ifndef SERVER_OWN_OWN_H
#define SERVER_OWN_OWN_H

#include "server/request/frontend.h"

struct admin_deps;
struct hub_deps;
struct lifecycle;
struct texts;
struct own { /* what the pages show */
    const struct admin_deps *admin;
    const struct hub_deps *hub;
    struct lifecycle *lifecycle;
    struct texts *texts;
};
struct own *own_open(const struct admin_deps *admin, const struct hub_deps *hub,
                     struct lifecycle *l);
void own_close(struct own **op); /* NULL is fine; after serve_close() */

extern const struct frontend frontend_front;

#endif
