#include "server/cache/request_cache_control.h"

static bool is(struct slice name, const char *what)
{
    return slice_ieq(name, slice_str(what));
}

static bool seconds(struct slice v, uint32_t *out)
{
    uint64_t n;

    if (v.n >= 2 && v.p[0] == '"' && v.p[v.n - 1] == '"') {
        v = slice_of(v.p + 1, v.n - 2);
    }
    if (v.n == 0 || v.n > 18 || !slice_u64(v, &n)) {
        return false;
    }
    *out = (uint32_t)min_u64(n, UINT32_MAX);
    return true;
}

static void read_one(struct slice name, struct slice value, struct request_cache_control *d)
{
    if (is(name, "no-cache")) {
        d->refresh = true;
    } else if (is(name, "only-if-cached")) {
        d->only_cached = true;
    } else if (is(name, "max-age")) {
        d->bounded = seconds(value, &d->max_age_s) || d->bounded;
        d->refresh = d->refresh || (d->bounded && d->max_age_s == 0);
    } else if (is(name, "min-fresh")) {
        (void)seconds(value, &d->min_fresh_s);
    } else if (is(name, "max-stale") && (value.p == NULL || !seconds(value, &d->max_stale_s))) {
        d->max_stale_s = value.p == NULL ? UINT32_MAX : 0;
    }
}

void request_cache_control_read(const struct http_req *req, struct request_cache_control *out)
{
    struct slice list = http_req_list(req, "cache-control");

    *out = (struct request_cache_control){0};
    while (list.n != 0) {
        struct slice value = slice_cut(&list, ',');
        bool has_value = slice_find(value, '=') >= 0;
        struct slice name = slice_trim(slice_cut(&value, '='));
        read_one(name, has_value ? slice_trim(value) : SLICE_NONE, out);
    }
}

bool request_cache_control_refuses(const struct request_cache_control *d, uint64_t age_s,
                                   uint64_t fresh_s)
{
    return (d->bounded && age_s > d->max_age_s) || fresh_s < d->min_fresh_s;
}
