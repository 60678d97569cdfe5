#include "server/cache/freshness.h"

#include "common/codec/httpdate.h"
#include "common/codec/structured.h"
#include "server/cache/variant.h"

enum { HEURISTIC_MAX_S = 86400, TTL_MAX_S = 10 * 365 * 86400, CLOCK_SLACK_S = 60 };

enum { NO_STORE = 1, NO_CACHE = 2, PRIVATE = 4, MUST_REVALIDATE = 8, MUST_UNDERSTAND = 16 };

struct control { /* Cache-Control, all lines of it */
    bool seen, bad;
    unsigned says; /* directives without a value: a set */
    bool has_max_age, has_s_maxage;
    uint64_t max_age_s, s_maxage_s, swr_s, sie_s;
};

/* 1*DIGIT, maybe quoted; too large is "for ever" (RFC 9111 1.2.2). */
static bool seconds(struct slice v, uint64_t *out)
{
    if (v.n >= 2 && v.p[0] == '"' && v.p[v.n - 1] == '"') {
        v = slice_of(v.p + 1, v.n - 2);
    }
    for (size_t i = 0; i < v.n; i++) {
        if (v.p[i] < '0' || v.p[i] > '9') {
            return false;
        }
    }
    if (v.n == 0) {
        return false;
    }
    if (!slice_u64(v, out) || *out > TTL_MAX_S) {
        *out = TTL_MAX_S;
    }
    return true;
}

static void set_seconds(struct control *c, bool *has, uint64_t *to, struct slice value)
{
    uint64_t s;

    if (!seconds(value, &s) || (*has && *to != s)) {
        c->bad = true; /* invalid or contradicting: stale */
        return;
    }
    *has = true;
    *to = s;
}

static void read_directive(struct control *c, struct slice name, struct slice value)
{
    bool seen = false;

    if (slice_ieq(name, SLICE("no-store"))) {
        c->says |= NO_STORE;
    } else if (slice_ieq(name, SLICE("no-cache"))) {
        c->says |= value.p == NULL ? NO_CACHE : 0; /* with field names: freshness_withholds() */
    } else if (slice_ieq(name, SLICE("private"))) {
        c->says |= PRIVATE;
    } else if (slice_ieq(name, SLICE("must-understand"))) {
        c->says |= MUST_UNDERSTAND;
    } else if (slice_ieq(name, SLICE("must-revalidate")) ||
               slice_ieq(name, SLICE("proxy-revalidate"))) {
        c->says |= MUST_REVALIDATE;
    } else if (slice_ieq(name, SLICE("max-age"))) {
        set_seconds(c, &c->has_max_age, &c->max_age_s, value);
    } else if (slice_ieq(name, SLICE("s-maxage"))) {
        set_seconds(c, &c->has_s_maxage, &c->s_maxage_s, value);
    } else if (slice_ieq(name, SLICE("stale-while-revalidate"))) {
        set_seconds(c, &seen, &c->swr_s, value);
    } else if (slice_ieq(name, SLICE("stale-if-error"))) {
        set_seconds(c, &seen, &c->sie_s, value);
    }
}

/* Cuts at the next comma outside quotes. */
static struct slice next_member(struct slice *rest)
{
    bool quoted = false;

    for (size_t i = 0; i < rest->n; i++) {
        if (rest->p[i] == '"') {
            quoted = !quoted;
        } else if (rest->p[i] == ',' && !quoted) {
            struct slice head = slice_first(*rest, i);
            *rest = slice_from(*rest, i + 1);
            return slice_trim(head);
        }
    }
    struct slice all = *rest;
    *rest = SLICE_NONE;
    return slice_trim(all);
}

struct directive {
    struct slice name;
    /* p == NULL: there is none, or blanks stand beside the '=', which makes a lifetime invalid */
    struct slice value;
};

static struct directive next_directive(struct slice *line)
{
    struct slice value = next_member(line);
    bool has_value = slice_find(value, '=') >= 0;
    struct slice name = slice_cut(&value, '=');
    bool spaced = name.n != slice_trim(name).n || value.n != slice_trim(value).n;

    return (struct directive){slice_trim(name), has_value && !spaced ? value : SLICE_NONE};
}

static void read_control(struct control *c, struct slice line)
{
    c->seen = true;
    while (line.n > 0) {
        struct directive d = next_directive(&line);
        read_directive(c, d.name, d.value);
    }
}

/* In a quoted list of field names, as no-cache and private may have one. */
static bool list_names(struct slice list, struct slice name)
{
    if (list.n < 2 || list.p[0] != '"' || list.p[list.n - 1] != '"') {
        return false;
    }
    list = slice_of(list.p + 1, list.n - 2);
    while (list.n > 0) {
        if (slice_ieq(slice_trim(slice_cut(&list, ',')), name)) {
            return true;
        }
    }
    return false;
}

bool freshness_withholds(const struct http_field *fields, size_t nfields, struct slice name)
{
    for (size_t i = 0; i < nfields; i++) {
        struct slice line = fields[i].value;
        if (!slice_eq(fields[i].name, SLICE("cache-control")) || slice_find(line, '"') < 0) {
            continue;
        }
        while (line.n > 0) {
            struct directive d = next_directive(&line);
            if ((slice_ieq(d.name, SLICE("no-cache")) || slice_ieq(d.name, SLICE("private"))) &&
                list_names(d.value, name)) {
                return true;
            }
        }
    }
    return false;
}

/* --- targeted fields (RFC 9213) --------------------------------------------------------------- */

static bool is_lifetime(struct slice name)
{
    return slice_eq(name, SLICE("max-age")) || slice_eq(name, SLICE("s-maxage")) ||
           slice_eq(name, SLICE("stale-while-revalidate")) ||
           slice_eq(name, SLICE("stale-if-error"));
}

static void read_targeted_directive(struct control *c, const struct structured_member *m)
{
    char digits[U64_DIGITS];

    /* Of two with the same key the last one counts. */
    c->has_max_age = c->has_max_age && !slice_eq(m->key, SLICE("max-age"));
    c->has_s_maxage = c->has_s_maxage && !slice_eq(m->key, SLICE("s-maxage"));
    if (m->kind == STRUCTURED_BOOLEAN && m->boolean && !is_lifetime(m->key)) {
        read_directive(c, m->key, SLICE_NONE);
    } else if (m->kind == STRUCTURED_STRING && !is_lifetime(m->key)) {
        read_directive(c, m->key, SLICE("")); /* a list of field names */
    } else if (m->kind == STRUCTURED_INTEGER && m->integer >= 0 && is_lifetime(m->key)) {
        read_directive(c, m->key, slice_of_u64(digits, (uint64_t)m->integer));
    } else if (is_lifetime(m->key)) {
        c->bad = true;
    }
}

/* False: the answer has no such field, or it is empty, or it is no dictionary. */
static bool read_target(const struct http_field *fields, size_t nfields, struct slice name,
                        struct control *out)
{
    *out = (struct control){0};
    for (size_t i = 0; i < nfields; i++) {
        struct slice line = fields[i].value;
        struct structured_member m;
        int rc = 0;
        while (slice_eq(fields[i].name, name) && (rc = structured_next(&line, &m)) == 1) {
            out->seen = true;
            read_targeted_directive(out, &m);
        }
        if (rc < 0) {
            return false;
        }
    }
    return out->seen;
}

static bool read_targets(const struct http_field *fields, size_t nfields, const struct lookup *w,
                         struct control *out)
{
    for (size_t i = 0; w != NULL && i < w->ntargets; i++) {
        if (read_target(fields, nfields, w->targets[i], out)) {
            return true;
        }
    }
    return false;
}

static bool obeys_cdn(const struct lookup *w)
{
    for (size_t i = 0; w != NULL && i < w->ntargets; i++) {
        if (slice_eq(w->targets[i], SLICE("cdn-cache-control"))) {
            return true;
        }
    }
    return false;
}

/* --- all of it -------------------------------------------------------------------------------- */

/* RFC 9111 5.1: the first counts of a list or of several lines, and what is no number does not.
 * What a parameter follows is read as the number: too old is the safe side. */
static bool read_age(struct slice value, uint64_t *out)
{
    struct slice first = slice_cut(&value, ',');

    return seconds(slice_trim(slice_cut(&first, ';')), out);
}

/* A life of its own that the origin gives its CDN, for a repo that does not obey that field: this
 * mirror is not the origin's CDN, and nobody purges it. What is allowed there for longer is not
 * allowed here; what is not even allowed there, or for less, is not here either. */
static uint64_t cdn_life(const struct control *cdn, uint64_t life_s)
{
    if (!cdn->seen || cdn->bad) {
        return life_s;
    }
    if ((cdn->says & NO_CACHE) != 0) {
        return 0;
    }
    return cdn->has_max_age ? min_u64(life_s, cdn->max_age_s) : life_s;
}

void freshness_read(const struct http_field *fields, size_t nfields, const struct lookup *w,
                    uint64_t now, uint32_t ttl_s, struct freshness *out)
{
    struct control c = {0};
    struct control cdn = {0};
    struct control target;
    uint64_t date = now;
    uint64_t expires = 0;
    uint64_t modified = 0;
    uint64_t age = 0;
    uint64_t life;
    bool has_expires = false;
    bool has_age = false;
    bool vary_all = false;
    size_t varies = 0;

    for (size_t i = 0; i < nfields; i++) {
        struct slice name = fields[i].name;
        struct slice value = slice_trim(fields[i].value);
        if (slice_eq(name, SLICE("cache-control"))) {
            read_control(&c, value);
        } else if (slice_eq(name, SLICE("cdn-cache-control"))) {
            read_control(&cdn, value);
        } else if (slice_eq(name, SLICE("expires"))) {
            if (has_expires || !httpdate_parse(value, now, &expires)) {
                expires = 0; /* "0" and other non-dates: in the past */
            }
            has_expires = true;
        } else if (slice_eq(name, SLICE("date"))) {
            date = httpdate_parse(value, now, &date) ? date : now;
        } else if (slice_eq(name, SLICE("last-modified"))) {
            modified = httpdate_parse(value, now, &modified) ? modified : 0;
        } else if (slice_eq(name, SLICE("age")) && !has_age) {
            age = read_age(value, &age) ? age : 0;
            has_age = true;
        } else if (slice_eq(name, SLICE("vary"))) {
            struct slice rest = value;
            while (rest.n > 0) {
                vary_all = slice_eq(slice_trim(slice_cut(&rest, ',')), SLICE("*")) ||
                           ++varies > VARIANT_NAMES || vary_all;
            }
        }
    }
    if (read_targets(fields, nfields, w, &target)) {
        c = target;
        has_expires = false;
        cdn.seen = false;
    }
    if (obeys_cdn(w) || !cdn.seen) {
        cdn = (struct control){0};
    }
    age = max_u64(age, now > date ? now - date : 0);
    if (c.bad || (c.says & NO_CACHE) != 0) {
        life = 0;
    } else if (c.has_s_maxage) {
        life = c.s_maxage_s;
    } else if (c.has_max_age) {
        life = c.max_age_s;
    } else if (has_expires) {
        life = expires > date ? min_u64(expires - date, TTL_MAX_S) : 0;
    } else if (modified > 0 && modified < date) {
        life = min_u64((date - modified) / 10, HEURISTIC_MAX_S);
        life = max_u64(life, 1);
    } else {
        life = (uint64_t)ttl_s + age; /* ours, not the origin's: it counts from now */
    }
    life = cdn_life(&cdn, life);
    *out = (struct freshness){
        .no_store = (c.says & (NO_STORE | MUST_UNDERSTAND)) == NO_STORE ||
                    (c.says & PRIVATE) != 0 || vary_all ||
                    (!cdn.bad && (cdn.says & (NO_STORE | PRIVATE)) != 0),
        .forbidden = (c.says & NO_STORE) != 0,
        .reported =
            c.bad || (c.says & NO_CACHE) != 0 || c.has_s_maxage || c.has_max_age || has_expires,
        .must_revalidate = (c.says & (MUST_REVALIDATE | NO_CACHE)) != 0 || c.has_s_maxage ||
                           (cdn.says & NO_CACHE) != 0,
        .age_s = age,
        .fresh_until_unix_s = life > age ? now + (life - age) : now,
        .swr_s = (uint32_t)min_u64(c.swr_s, OBJECT_CARRIED_S - 1),
        .sie_s = (uint32_t)c.sie_s,
    };
}

bool object_answers(const struct object *o, const struct lookup *w)
{
    return w->digest_known ? digest_eq(&w->digest, &o->digest) : origin_owns(w->origin, o->origin);
}

bool freshness_keeps(const struct freshness *f, const struct lookup *w)
{
    return w->class == LOOKUP_IMMUTABLE || w->ttl_s != TTL_ORIGIN || !f->no_store;
}

uint64_t freshness_until(const struct object *o, const struct lookup *w)
{
    if (w->class == LOOKUP_IMMUTABLE) {
        return UINT64_MAX;
    }
    return w->ttl_s == TTL_ORIGIN ? o->fresh_until_unix_s : o->validated_unix_s + w->ttl_s;
}

/* A ttl of ours, a rule's or an adapter's, has taken the word from the origin. */
static bool origin_is_heard(const struct lookup *w)
{
    return w->ttl_s == TTL_ORIGIN;
}

static bool origin_forbids_stale(const struct object *o, const struct lookup *w)
{
    return o->must_revalidate && origin_is_heard(w);
}

/* How long it was fresh for. */
static uint32_t life_s(const struct object *o, const struct lookup *w, uint64_t until)
{
    return w->ttl_s != TTL_ORIGIN
               ? w->ttl_s
               : (uint32_t)min_u64(until - min_u64(until, o->validated_unix_s), TTL_MAX_S);
}

static uint64_t stale_until(uint64_t fresh_until, uint32_t rule_s, uint32_t origin_s)
{
    uint64_t sum;

    return rule_s == UINT32_MAX ||
                   !add_u64(fresh_until, rule_s > origin_s ? rule_s : origin_s, &sum)
               ? UINT64_MAX
               : sum;
}

/* For how long it may be given while the origin is asked, beyond what the want allows. */
static uint32_t extra_swr_s(const struct object *o, const struct lookup *w)
{
    bool carried = o->swr_s == OBJECT_CARRIED_S;

    return carried || (origin_is_heard(w) && (w->ruled & RULED_SWR) == 0) ? o->swr_s : 0;
}

/* Fresh for the origin, but not for the client (RFC 9111 5.2.1)? */
static bool client_wants_newer(const struct object *o, const struct lookup *w, uint64_t until,
                               uint64_t now)
{
    uint64_t age_s = o->age_s + (now - min_u64(now, o->validated_unix_s));

    return w->request_cache_control.refresh ||
           request_cache_control_refuses(&w->request_cache_control, age_s,
                                         until - min_u64(until, now));
}

enum verdict_fresh freshness_judge(const struct object *o, const struct lookup *w, uint64_t now)
{
    uint64_t until = freshness_until(o, w);
    uint32_t while_s = w->swr_s != SWR_LIKE_TTL ? w->swr_s : life_s(o, w, until);
    bool heard = now >= o->validated_unix_s + w->floor_s; /* the client's Cache-Control counts */

    if (w->stored == STORED_IS_DOUBTED && !w->digest_known) {
        return STALE;
    }
    if (w->class == LOOKUP_IMMUTABLE) {
        /* Whatever the client says: pip sends no-cache with every 10 KiB of a wheel. */
        return FRESH;
    }
    if (o->must_ask || o->validated_unix_s < w->since_unix_s) {
        return STALE;
    }
    if (o->validated_unix_s > now + CLOCK_SLACK_S) {
        /* The clock has been set back: nothing that it dated may count as fresh until then. */
        return STALE;
    }
    if (heard && client_wants_newer(o, w, until, now)) {
        return STALE;
    }
    if (now < until) {
        return FRESH;
    }
    if (!origin_forbids_stale(o, w) &&
        !(heard && (w->request_cache_control.refresh || w->request_cache_control.bounded)) &&
        now < stale_until(until, (uint32_t)max_u64(while_s, w->request_cache_control.max_stale_s),
                          extra_swr_s(o, w))) {
        return STALE_OK;
    }
    return STALE;
}

bool freshness_allows_stale_on_error(const struct object *o, const struct lookup *w, uint64_t now)
{
    return !origin_forbids_stale(o, w) &&
           now < stale_until(freshness_until(o, w), w->sie_s,
                             origin_is_heard(w) && (w->ruled & RULED_SIE) == 0 ? o->sie_s : 0);
}

bool freshness_allows_stale_on_delay(const struct object *o, const struct lookup *w, uint64_t now)
{
    bool heard = now >= o->validated_unix_s + w->floor_s;

    return !o->must_ask && o->validated_unix_s >= w->since_unix_s &&
           !(heard && (w->request_cache_control.refresh || w->request_cache_control.bounded)) &&
           freshness_allows_stale_on_error(o, w, now);
}
