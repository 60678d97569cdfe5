#include "server/sync/sshurl.h"

static int refuse_ssh_url(const char *why, struct err *e)
{
    return err_set(e, E_INVALID, "%s; write ssh://[user@]host[:port]/path/", why);
}

static bool is_word(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           (c != '\0' && strchr("._-", c) != NULL);
}

static bool all_of_word(struct slice s)
{
    for (size_t i = 0; i < s.n; i++) {
        if (!is_word(s.p[i])) {
            return false;
        }
    }
    return s.n > 0 && s.n <= 255 && s.p[0] != '-';
}

static bool is_ipv6_address(struct slice s)
{
    for (size_t i = 0; i < s.n; i++) {
        if (s.p[i] == '\0' || strchr("0123456789abcdefABCDEF:.", s.p[i]) == NULL) {
            return false;
        }
    }
    return s.n > 1 && s.n < 64;
}

static bool cut_host(struct slice *rest, struct ssh_url *out)
{
    struct slice whole = *rest;

    if (slice_starts(*rest, SLICE("["))) {
        struct slice inner = slice_from(*rest, 1);
        struct slice address = slice_cut(&inner, ']');
        if (slice_find(whole, ']') < 0) {
            return false;
        }
        out->host = slice_first(whole, address.n + 2);
        *rest = inner;
        if (rest->n > 0 && rest->p[0] != ':') {
            return false;
        }
        *rest = slice_from(*rest, rest->n > 0 ? 1 : 0);
        return is_ipv6_address(address);
    }
    out->host = slice_cut(rest, ':');
    return all_of_word(out->host);
}

static bool path_fits(struct slice path)
{
    for (size_t i = 0; i < path.n; i++) {
        if (!is_word(path.p[i]) && (uint8_t)path.p[i] < 0x80 &&
            (path.p[i] == '\0' || strchr("/~+,@%=:", path.p[i]) == NULL)) {
            return false;
        }
    }
    return slice_ends(path, SLICE("/")) && path.p[0] != '-' && path.n < 4096;
}

int ssh_url_parse(struct slice url, struct ssh_url *out, struct err *e)
{
    struct slice rest, authority, whole;
    uint64_t port = 0;

    *out = (struct ssh_url){.port = 0};
    if (!slice_starts(url, SLICE("ssh://"))) {
        return refuse_ssh_url("unknown scheme", e);
    }
    rest = whole = slice_from(url, strlen("ssh://"));
    authority = slice_cut(&rest, '/');
    if (slice_find(authority, '@') >= 0) {
        out->user = slice_cut(&authority, '@');
        if (!all_of_word(out->user)) {
            return refuse_ssh_url(slice_find(out->user, ':') >= 0
                                      ? "the URL has a password, but ssh needs a key"
                                      : "invalid user",
                                  e);
        }
    }
    if (!cut_host(&authority, out)) {
        return refuse_ssh_url("no host", e);
    }
    if (authority.n > 0) {
        if (!slice_u64(authority, &port) || port == 0 || port > 65535) {
            return refuse_ssh_url("invalid port", e);
        }
        out->port = (uint16_t)port;
    }
    /* From the '/' on; it was cut out. */
    out->path = slice_from(whole, whole.n - rest.n - (whole.n > rest.n));
    if (slice_starts(rest, SLICE("~/"))) {
        out->path = slice_from(rest, 2);
        out->path = out->path.n != 0 ? out->path : SLICE("./");
    }
    return path_fits(out->path)
               ? 0
               : refuse_ssh_url(
                     "the path does not end in '/', or has characters that a remote shell "
                     "would interpret",
                     e);
}
