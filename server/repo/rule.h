/* rule.h - the rules of a repo: PCRE2 on the path below it, the first match counts
 * (docs/protocols/generic.md).
 *
 *   rule '\.tar\.gz$' { class = immutable ttl = 10m neg_ttl = 60s stale_while = 1h sie = 7d
 *                       digest_from = "path" status_map = "403:404" }
 *
 * A path without a match is mutable and has the origin's freshness, else 60 s. Rules match the
 * canonical path without the leading '/' and without the query. A path on which PCRE2 gives up (its
 * match limit) is denied, because rules may be there to forbid.
 *
 * owns     rules_free() frees the compiled rules
 * threads  any
 * errors   rules_compile(): E_CONFIG
 */
#ifndef SERVER_REPO_RULE_H
#define SERVER_REPO_RULE_H

#include "server/cache/lookup.h"

enum rule_class { RULE_IMMUTABLE, RULE_MUTABLE, RULE_DENY };
enum rule_digest {
    DIGEST_NONE,
    DIGEST_PATH /* 64 hex digits in the path */,
    DIGEST_HEADER /* the origin's Repr-Digest */
};

struct rule_conf { /* as parsed; -1 and NULL: not set */
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
    /* The last one: no configured rule matched, and an adapter may choose other values. */
    bool built_in;
    enum rule_class class;
    enum rule_digest digest_from;
    uint32_t ttl_s, neg_ttl_s, swr_s, sie_s, floor_s; /* as in struct lookup */
    unsigned ruled;                                   /* RULED_ bits of those that the rule sets */
    const struct status_map *status_map;
    size_t status_maps;
};
/* Never NULL: the built-in last rule matches everything. rs may be NULL. Any thread. */
const struct rule *rules_match(const struct rules *rs, struct slice path);
/* Copies ttl, neg_ttl, swr, sie, floor, status map and class into a lookup. Takes a digest from the
 * path when the rule says so. */
void rule_apply(const struct rule *r, struct slice path, struct lookup *w);

#endif
