#include "server/repo/oci/names.h"

#include "common/codec/url.h"

static const char *const hub_names[] = {"docker.io", "index.docker.io", "registry-1.docker.io"};

static bool is_hub_name(struct slice name)
{
    for (size_t i = 0; i < ARRAY_LEN(hub_names); i++) {
        if (slice_ieq(name, slice_str(hub_names[i]))) {
            return true;
        }
    }
    return false;
}

bool oci_is_hub(const char *const *names)
{
    for (; names != NULL && *names != NULL; names++) {
        if (is_hub_name(slice_str(*names))) {
            return true;
        }
    }
    return false;
}

/* "host", or "host:5000" where the port is not the scheme's own. */
static int host_of_registry(const char *url, struct arena *a, struct slice *out, struct err *e)
{
    struct buf text = BUF_INIT(1024);
    struct url u;
    int rc = url_split(slice_str(url), &u, e);

    if (rc == 0) {
        url_write_origin(&u, &text);
        rc = text.rc;
    }
    if (rc == 0) {
        struct slice host = slice_from(buf_slice(&text), u.tls ? 8 : 7);
        *out = arena_fmt(a, SLICE_FMT, SLICE_ARG(host));
    }
    buf_free(&text);
    return rc;
}

int oci_names(const struct repo_conf *conf, struct arena *a, const char ***out, struct err *e)
{
    const char **names =
        arena_alloc(a, (conf->names_count + ARRAY_LEN(hub_names) + 1) * sizeof *names);
    struct slice host;
    int rc;

    *out = names;
    if (conf->names_set) {
        for (size_t i = 0; i < conf->names_count; i++) {
            names[i] = conf->names[i];
        }
        return 0;
    }
    rc = host_of_registry(conf->origin.url, a, &host, e);
    if (rc == 0 && is_hub_name(host)) {
        memcpy(names, hub_names, sizeof hub_names);
    } else if (rc == 0) {
        names[0] = host.p;
    }
    return rc;
}
