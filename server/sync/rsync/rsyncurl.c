#include "server/sync/rsync/rsyncurl.h"

#include "server/sync/rsync/list.h"

static int refuse_rsync_url(struct slice url, const char *why, struct err *e)
{
    return err_set(e, E_INVALID, SLICE_FMT ": %s; write rsync://host[:port]/module/path/",
                   SLICE_ARG(slice_first(url, url.n < 120 ? url.n : 120)), why);
}

static bool cut_host(struct slice authority, struct rsync_url *out)
{
    struct slice rest = authority;
    uint64_t port;

    if (slice_find(authority, '@') >= 0) {
        out->user = slice_cut(&rest, '@');
    }
    if (slice_starts(rest, SLICE("["))) {
        rest = slice_from(rest, 1);
        out->host = slice_cut(&rest, ']');
        if (rest.n > 0 && rest.p[0] != ':') {
            return false;
        }
        rest = slice_from(rest, rest.n > 0 ? 1 : 0);
    } else {
        out->host = slice_cut(&rest, ':');
    }
    if (rest.n > 0) {
        if (!slice_u64(rest, &port) || port == 0 || port > 65535) {
            return false;
        }
        out->port = (uint16_t)port;
    }
    return out->host.n > 0 && slice_find(out->host, '\0') < 0;
}

int rsync_url_parse(struct slice url, struct rsync_url *out, struct err *e)
{
    struct slice rest = url;

    *out = (struct rsync_url){.port = RSYNC_PORT};
    if (slice_starts(url, SLICE("rsyncs://"))) {
        out->tls = true;
        out->port = RSYNCS_PORT;
        rest = slice_from(url, strlen("rsyncs://"));
    } else if (slice_starts(url, SLICE("rsync://"))) {
        rest = slice_from(url, strlen("rsync://"));
    } else {
        return refuse_rsync_url(url, "unknown scheme", e);
    }
    if (slice_find(url, '\n') >= 0 || slice_find(url, '\0') >= 0 || slice_find(url, '\r') >= 0) {
        return refuse_rsync_url(url, "a control character in the URL", e);
    }
    if (!cut_host(slice_cut(&rest, '/'), out)) {
        return refuse_rsync_url(url, "no host", e);
    }
    out->module = slice_cut(&rest, '/');
    out->path = rest;
    if (out->module.n == 0 || out->module.n > 255) {
        return refuse_rsync_url(url, "no module", e);
    }
    if (rest.n > 0 &&
        (!slice_ends(rest, SLICE("/")) || !list_name_valid(slice_first(rest, rest.n - 1)))) {
        return refuse_rsync_url(url, "invalid path", e);
    }
    return 0;
}
