/* repo.h - turns a repository's section into its struct: its name, its protocol and origin, its
 * rules; first each setting (value.h), then the checks across settings.
 *
 * threads  any; reads the files that settings name
 * errors   E_CONFIG: "file:line: what, why, what to do"
 */
#ifndef SERVER_CONF_REPO_H
#define SERVER_CONF_REPO_H

#include "server/conf/conf.h"
#include "server/conf/schema.h"

MUST_USE int section_repo(struct settings_node *nd, struct repo_conf *r, struct arena *a,
                          struct err *e);

#endif
