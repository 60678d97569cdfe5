/* say.h - plans' answers in the words of registries.
 *
 * threads  any; everything is made in the arena that is given
 */
#ifndef SERVER_REPO_OCI_SAY_H
#define SERVER_REPO_OCI_SAY_H

#include "server/repo/oci/code.h"
#include "server/repo/plan.h"

/* A no, with its code's usual status; a 405 names GET and HEAD. message: what, why, what to do. */
void oci_say(struct plan *p, enum oci_code c, struct slice message, struct arena *a);
/* What every answer has. */
void oci_fields(const struct http_req *req, struct plan *p, struct arena *a);

#endif
