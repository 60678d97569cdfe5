/* names.h - the hosts by which clients may name a registry in ?ns=: those in its `names`, else its
 * origin's own.
 *
 * owns     nothing: strings belong to conf or the arena
 * threads  any; pure
 */
#ifndef SERVER_REPO_OCI_NAMES_H
#define SERVER_REPO_OCI_NAMES_H

#include "server/repo/repo.h"

/* *out ends with NULL; its strings belong to conf or the arena. */
MUST_USE int oci_names(const struct repo_conf *conf, struct arena *a, const char ***out,
                       struct err *e);
/* True for the largest hub, which has several names, and images without an owner: "alpine" is
 * "library/alpine". */
bool oci_is_hub(const char *const *names);

#endif
