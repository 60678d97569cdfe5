/* client_lines.h - what to copy into clients of a repo, with the server's own address in it: for
 * the page at '/'. A repo's are folded; of its clients one is chosen at a time.
 *
 * threads  any; no I/O
 */
#ifndef SERVER_ADMIN_CLIENT_LINES_H
#define SERVER_ADMIN_CLIENT_LINES_H

#include "server/repo/repo.h"

struct client_doors {
    struct slice base; /* "http://mirror:8080" */
    /* where clients come in by TLS, "0.0.0.0:8443", or NULL: uploads have tokens, and go there */
    const char *tls;
    bool public;       /* its certificate needs no file of authorities */
    const char *rsync; /* where rsync clients come in, "0.0.0.0:873", or NULL */
};
void client_lines(struct buf *out, const struct repo *r, const struct client_doors *doors);

#endif
