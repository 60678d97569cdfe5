#define PCRE2_CODE_UNIT_WIDTH 8
#include "server/repo/rule.h"

#include <limits.h>
#include <pcre2.h>
#include <stdlib.h>

/* A path takes a plain pattern some hundred steps; one that needs more is made to hurt. */
enum { MATCH_LIMIT = 100000, HEAP_LIMIT_KIB = 1024, STATUS_MAPS_MAX = 8 };
enum { NEG_TTL_S = 60, FLOOR_S = 5 };

struct compiled {
    pcre2_code *code;
    struct rule rule;
    struct status_map map[STATUS_MAPS_MAX];
};

struct rules {
    pcre2_match_context *limits; /* read only after it is made: shared by all threads */
    size_t count;
    struct compiled list[];
};

static const struct rule last_rule = {
    .built_in = true,
    .class = RULE_MUTABLE,
    .ttl_s = TTL_ORIGIN,
    .neg_ttl_s = NEG_TTL_S,
    .sie_s = UINT32_MAX,
    .floor_s = FLOOR_S,
};
static const struct rule deny_rule = {.class = RULE_DENY};

static int rule_class_parse(const char *text, enum rule_class *out)
{
    static const char *const name[] = {"immutable", "mutable", "deny"};

    for (size_t i = 0; text != NULL && i < ARRAY_LEN(name); i++) {
        if (strcmp(text, name[i]) == 0) {
            *out = (enum rule_class)i;
            return 0;
        }
    }
    *out = RULE_MUTABLE;
    return text == NULL ? 0 : E_CONFIG;
}

static int rule_digest_parse(const char *text, enum rule_digest *out)
{
    static const char *const name[] = {"none", "path", "header"};

    for (size_t i = 0; text != NULL && i < ARRAY_LEN(name); i++) {
        if (strcmp(text, name[i]) == 0) {
            *out = (enum rule_digest)i;
            return 0;
        }
    }
    *out = DIGEST_NONE;
    return text == NULL ? 0 : E_CONFIG;
}

static bool parse_status(struct slice s, int *out)
{
    uint64_t n;

    if (!slice_u64(s, &n) || n < 400 || n > 599) {
        return false;
    }
    *out = (int)n;
    return true;
}

/* "403:404 410:404" */
static int parse_status_map(const char *text, struct compiled *c)
{
    struct slice rest = slice_str(text);

    while (rest.n > 0) {
        struct slice to = slice_cut(&rest, ' ');
        struct slice from = slice_cut(&to, ':');
        struct status_map *m = &c->map[c->rule.status_maps];

        if (from.n == 0 && to.n == 0) {
            continue;
        }
        if (c->rule.status_maps == STATUS_MAPS_MAX || !parse_status(from, &m->from) ||
            !parse_status(to, &m->to)) {
            return E_CONFIG;
        }
        c->rule.status_maps++;
    }
    c->rule.status_map = c->rule.status_maps != 0 ? c->map : NULL;
    return 0;
}

static uint32_t seconds_or(int64_t set_s, uint32_t otherwise)
{
    return set_s < 0 ? otherwise : (uint32_t)min_u64((uint64_t)set_s, UINT32_MAX - 1);
}

static int compile(const struct rule_conf *conf, struct compiled *c, struct err *e)
{
    PCRE2_UCHAR text[128];
    PCRE2_SIZE at = 0;
    int64_t swr_s;
    int code = 0;

    c->rule = last_rule;
    c->rule.built_in = false;
    c->rule.ttl_s = seconds_or(conf->ttl_s, TTL_ORIGIN);
    c->rule.neg_ttl_s = seconds_or(conf->neg_ttl_s, NEG_TTL_S);
    swr_s = conf->stale_while_s >= 0 ? conf->stale_while_s : conf->swr_s;
    c->rule.swr_s = seconds_or(swr_s, 0);
    c->rule.sie_s = seconds_or(conf->sie_s, UINT32_MAX);
    c->rule.floor_s = seconds_or(conf->floor_s, FLOOR_S);
    c->rule.ruled = (conf->neg_ttl_s >= 0 ? RULED_NEG_TTL : 0U) | (swr_s >= 0 ? RULED_SWR : 0U) |
                    (conf->sie_s >= 0 ? RULED_SIE : 0U) | (conf->floor_s >= 0 ? RULED_FLOOR : 0U);
    if (rule_class_parse(conf->class, &c->rule.class) != 0) {
        return err_set(e, E_CONFIG,
                       "rule '%s': class \"%s\" is invalid; use immutable, mutable or deny",
                       conf->pattern, conf->class);
    }
    if (rule_digest_parse(conf->digest_from, &c->rule.digest_from) != 0) {
        return err_set(e, E_CONFIG,
                       "rule '%s': digest_from \"%s\" is invalid; use none, path or header",
                       conf->pattern, conf->digest_from);
    }
    if (parse_status_map(conf->status_map, c) != 0) {
        return err_set(e, E_CONFIG,
                       "rule '%s': status_map \"%s\" is invalid; write it as \"403:404 410:404\"",
                       conf->pattern, conf->status_map);
    }
    /* Paths are bytes: no UTF; \C and (*UTF) in a pattern are refused with it. */
    c->code = pcre2_compile((PCRE2_SPTR)conf->pattern, PCRE2_ZERO_TERMINATED,
                            PCRE2_NEVER_UTF | PCRE2_DOLLAR_ENDONLY | PCRE2_NEVER_BACKSLASH_C, &code,
                            &at, NULL);
    if (c->code == NULL) {
        pcre2_get_error_message(code, text, sizeof text);
        return err_set(e, E_CONFIG, "rule '%s': %s at byte %zu of the pattern", conf->pattern,
                       (char *)text, (size_t)at);
    }
    /* Where JIT is missing or declines, the interpreter gives the same answers. */
    (void)pcre2_jit_compile(c->code, PCRE2_JIT_COMPLETE);
    return 0;
}

int rules_compile(const struct rule_conf *conf, size_t count, struct rules **out, struct err *e)
{
    struct rules *rs = mem_new(sizeof *rs + count * sizeof rs->list[0]);
    int rc = 0;

    *out = NULL;
    rs->limits = pcre2_match_context_create(NULL);
    CHECK(rs->limits != NULL);
    pcre2_set_match_limit(rs->limits, MATCH_LIMIT);
    pcre2_set_heap_limit(rs->limits, HEAP_LIMIT_KIB);
    while (rc == 0 && rs->count < count) {
        rc = compile(&conf[rs->count], &rs->list[rs->count], e);
        rs->count++;
    }
    if (rc == 0) {
        *out = rs;
        rs = NULL;
    }
    rules_free(&rs);
    return rc;
}

void rules_free(struct rules **rp)
{
    struct rules *rs = *rp;

    *rp = NULL;
    if (rs == NULL) {
        return;
    }
    for (size_t i = 0; i < rs->count; i++) {
        pcre2_code_free(rs->list[i].code);
    }
    pcre2_match_context_free(rs->limits);
    free(rs);
}

const struct rule *rules_match(const struct rules *rs, struct slice path)
{
    const struct rule *found = &last_rule;
    pcre2_match_data *md;

    if (rs == NULL || rs->count == 0) {
        return found;
    }
    md = pcre2_match_data_create(1, NULL);
    CHECK(md != NULL);
    for (size_t i = 0; i < rs->count; i++) {
        int rc = pcre2_match(rs->list[i].code, (PCRE2_SPTR)(path.n != 0 ? path.p : ""), path.n, 0,
                             0, md, rs->limits);
        if (rc != PCRE2_ERROR_NOMATCH) {
            found = rc >= 0 ? &rs->list[i].rule : &deny_rule;
            break;
        }
    }
    pcre2_match_data_free(md);
    return found;
}

static bool is_hex(char c)
{
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
}

/* The last run of exactly 64 hex digits: a SHA-512 is no SHA-256. */
static bool digest_in_path(struct slice path, struct digest *out)
{
    bool found = false;

    for (size_t i = 0; i < path.n;) {
        size_t n = 0;
        while (i + n < path.n && is_hex(path.p[i + n])) {
            n++;
        }
        if (n == DIGEST_HEX) {
            found = digest_parse(slice_of(path.p + i, n), out);
        }
        i += n + 1;
    }
    return found;
}

void rule_apply(const struct rule *r, struct slice path, struct lookup *w)
{
    w->class = r->class == RULE_IMMUTABLE ? LOOKUP_IMMUTABLE : LOOKUP_MUTABLE;
    w->ttl_s = r->ttl_s;
    w->neg_ttl_s = r->neg_ttl_s;
    w->swr_s = r->swr_s;
    w->sie_s = r->sie_s;
    w->floor_s = r->floor_s;
    w->ruled = r->ruled;
    w->status_map = r->status_map;
    w->status_maps = r->status_maps;
    w->repr_digest = r->digest_from == DIGEST_HEADER ? REPR_DIGEST_CHECKED : REPR_DIGEST_IGNORED;
    if (r->digest_from == DIGEST_PATH && digest_in_path(path, &w->digest)) {
        w->digest_known = true;
    }
}
