/* names.h - what clients may call a registry by ?ns=: the hosts in its `names`, else its origin's
 * own.
 *
 * threads  any; pure
 */
#ifndef SERVER_REPO_OCI_NAMES_H
#define SERVER_REPO_OCI_NAMES_H

#include "server/repo/repo.h"

/* NULL at the end; its strings are conf's or the arena's. */
MUST_USE int oci_names(const struct repo_conf *conf, struct arena *a, const char ***out,
                       struct err *e);
/* The largest hub has several, and images there without an owner: "alpine" is "library/alpine". */
bool oci_is_hub(const char *const *names);

#endif
