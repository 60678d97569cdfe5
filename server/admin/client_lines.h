/* client_lines.h - the lines to copy into a repository's clients, with the server's own address
 * in them: for the page at '/'. Those of one repository are folded, and one client is selected at
 * a time.
 *
 * threads  any; no I/O
 */
#ifndef SERVER_ADMIN_CLIENT_LINES_H
#define SERVER_ADMIN_CLIENT_LINES_H

#include "server/repo/repo.h"

struct client_doors {
    struct slice base; /* "http://mirror:8080" */
    /* for TLS clients, "0.0.0.0:8443", or NULL: uploads carry tokens, so they use it */
    const char *tls;
    bool public;       /* clients trust its certificate without a CA file */
    const char *rsync; /* the listener for rsync clients, "0.0.0.0:873", or NULL */
};
void client_lines(struct buf *out, const struct repo *r, const struct client_doors *doors);

#endif
