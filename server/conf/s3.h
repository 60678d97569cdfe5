/* s3.h - origins by s3, as a repo's settings say them.
 *
 * errors   E_CONFIG names the line
 */
#ifndef SERVER_CONF_S3_H
#define SERVER_CONF_S3_H

#include "server/conf/schema.h"
#include "server/repo/repo.h"

bool s3_origin_is(const char *url); /* s3://; NULL is not */
/* Whether its settings make an origin of this URL, that of `key` or another with the same keys. */
MUST_USE int s3_origin_try(const struct settings_node *nd, const struct repo_conf *r,
                           const char *key, const char *url, struct err *e);
/* Settings that are for such an origin alone, and the origin itself. */
MUST_USE int s3_origin_check(const struct settings_node *nd, const struct repo_conf *r,
                             struct err *e);

#endif
