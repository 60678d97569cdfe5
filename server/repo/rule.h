/* rule.h - the rules of a repo: PCRE2 on the path below it, the first match wins
 * (docs/protocols/generic.md).
 *
 * rule '\.tar\.gz$' { class = immutable ttl = 10m neg_ttl = 60s stale_while = 1h sie = 7d
 * digest_from = "path" status_map = "403:404" } Without a match: mutable, the origin's freshness,
 * else 60 s. What is matched is the canonical path without the leading '/' and without the query. A
 * path that makes PCRE2 give up (its match limit) is denied: rules may be there to forbid.
 */
#ifndef SERVER_REPO_RULE_H
#define SERVER_REPO_RULE_H

#include "server/cache/lookup.h"

enum rule_class { RULE_IMMUTABLE, RULE_MUTABLE, RULE_DENY };
enum rule_digest {
    DIGEST_NONE,
    DIGEST_PATH /* 64 hex digits in the path */,
    DIGEST_HEADER /* origin's Repr-Digest */
};

struct rule_conf { /* as read; -1 and NULL: not set */
    const char *pattern;
    const char *class; /* immutable | mutable | deny */
    int64_t ttl_s, neg_ttl_s, stale_while_s, swr_s /* its older name */, sie_s, floor_s;
    const char *digest_from; /* none | path | header */
    const char *status_map;  /* "403:404 410:404" */
};

struct rules;
MUST_USE int rules_compile(const struct rule_conf *conf, size_t count, struct rules **out,
                           struct err *e);
void rules_free(struct rules **rp);

struct rule {
    /* the last one: no rule of the configuration matched, an adapter may know better */
    bool built_in;
    enum rule_class class;
    enum rule_digest digest_from;
    uint32_t ttl_s, neg_ttl_s, swr_s, sie_s, floor_s; /* as in struct lookup */
    unsigned ruled;                                   /* RULED_ bits of these: said by the rule */
    const struct status_map *status_map;
    size_t status_maps;
};
/* Never NULL: the built-in last rule matches everything. rs may be NULL. Thread-safe. */
const struct rule *rules_match(const struct rules *rs, struct slice path);
/* Copies ttl, neg_ttl, swr, sie, floor, status map and class into a want; finds a digest in the
 * path when the rule says so. */
void rule_apply(const struct rule *r, struct slice path, struct lookup *w);

#endif
