#include "server/sync/proxy.h"

#include "common/codec/base64.h"
#include "common/codec/network.h"
#include "common/codec/url.h"

/* --- what it is called ------------------------------------------------------------------------ */

static bool cut_port(struct slice text, uint16_t *out)
{
    uint64_t n;

    if (!slice_u64(text, &n) || n == 0 || n > UINT16_MAX) {
        return false;
    }
    *out = (uint16_t)n;
    return true;
}

static bool cut_place(struct slice rest, struct proxy *out)
{
    bool written;

    if (slice_starts(rest, SLICE("["))) {
        ptrdiff_t end = slice_find(rest, ']');
        if (end < 0) {
            return false;
        }
        out->host = slice_of(rest.p + 1, (size_t)end - 1);
        rest = slice_from(rest, (size_t)end + 1);
        if (rest.n > 0 && rest.p[0] != ':') {
            return false;
        }
        written = rest.n > 0;
        rest = slice_from(rest, written ? 1 : 0);
    } else {
        written = slice_find(rest, ':') >= 0;
        out->host = slice_cut(&rest, ':');
    }
    return out->host.n > 0 && out->host.n <= DIAL_HOST_MAX &&
           (!written || cut_port(rest, &out->port));
}

/* Of no use inside a request line, nor in a name. */
static bool is_plain_proxy(struct slice s)
{
    for (size_t i = 0; i < s.n; i++) {
        if ((unsigned char)s.p[i] <= ' ' || (unsigned char)s.p[i] >= 0x7f) {
            return false;
        }
    }
    return true;
}

/* Behind "http://", if that is what it begins with. */
static int cut_scheme(struct slice *rest, struct err *e)
{
    const char *colon = memmem(rest->p, rest->n, "://", 3);
    struct slice scheme = SLICE("http");

    if (colon != NULL) {
        scheme = slice_first(*rest, (size_t)(colon - rest->p));
        *rest = slice_from(*rest, scheme.n + 3);
    }
    if (!slice_ieq(scheme, SLICE("http"))) {
        return err_set(e, E_UNSUPPORTED, "rsync supports only http:// proxies");
    }
    return 0;
}

int proxy_parse(struct slice text, struct proxy *out, struct err *e)
{
    struct slice rest = text;
    const char *at;
    int rc = cut_scheme(&rest, e);

    *out = (struct proxy){.user = SLICE_NONE, .port = PROXY_PORT};
    if (rc != 0) {
        return rc;
    }
    at = rest.n > 0 ? memrchr(rest.p, '@', rest.n) : NULL;
    if (at != NULL) {
        out->user = slice_first(rest, (size_t)(at - rest.p));
        rest = slice_from(rest, out->user.n + 1);
    }
    if (slice_ends(rest, SLICE("/"))) {
        rest = slice_first(rest, rest.n - 1);
    }
    if (!is_plain_proxy(text) || out->user.n > PROXY_USER_MAX || !cut_place(rest, out)) {
        return err_set(e, E_INVALID, "invalid proxy; write http://[user:password@]host:port");
    }
    return 0;
}

/* --- who goes there without it ---------------------------------------------------------------- */

static bool address_of(struct slice host, uint8_t out[16])
{
    struct network n;

    if (slice_find(host, '/') >= 0 || !network_parse(host, &n)) {
        return false;
    }
    memcpy(out, n.address, 16);
    return true;
}

static bool proxy_host_is_below(struct slice host, struct slice name)
{
    struct slice tail;

    while (slice_starts(name, SLICE("."))) {
        name = slice_from(name, 1);
    }
    if (name.n == 0 || name.n > host.n) {
        return false;
    }
    tail = slice_from(host, host.n - name.n);
    return slice_ieq(tail, name) && (tail.n == host.n || tail.p[-1] == '.');
}

bool proxy_avoids(const char *no_proxy, struct slice host)
{
    struct slice rest = slice_str(no_proxy);
    uint8_t address[16];
    bool is_address = address_of(host, address);

    while (rest.n > 0) {
        struct slice some = slice_cut(&rest, ',');
        while (some.n > 0) {
            struct slice one = slice_cut(&some, ' ');
            struct network n;
            if (slice_eqs(one, "*")) {
                return true;
            }
            if (is_address ? network_parse(one, &n) && network_has(&n, address)
                           : proxy_host_is_below(host, one)) {
                return true;
            }
        }
    }
    return false;
}

int proxy_choose(const char *proxy, const char *no_proxy, struct slice host, struct proxy *out,
                 bool *through, struct err *e)
{
    *through = proxy != NULL && *proxy != '\0' && !proxy_avoids(no_proxy, host);
    return *through ? proxy_parse(slice_str(proxy), out, e) : 0;
}

/* --- the way ---------------------------------------------------------------------------------- */

static void add_place(struct slice host, uint16_t port, struct buf *out)
{
    bool ipv6 = slice_find(host, ':') >= 0;

    buf_addf(out, "%s" SLICE_FMT "%s:%u", ipv6 ? "[" : "", SLICE_ARG(host), ipv6 ? "]" : "",
             (unsigned)port);
}

int proxy_ask(const struct proxy *p, struct slice host, uint16_t port, struct buf *out,
              struct err *e)
{
    struct buf user = BUF_INIT(PROXY_USER_MAX);
    char coded[BASE64_ROOM(PROXY_USER_MAX)];
    int rc = 0;

    if (!is_plain_proxy(host)) {
        return err_set(e, E_INVALID, "invalid host name");
    }
    buf_str(out, "CONNECT ");
    add_place(host, port, out);
    buf_str(out, " HTTP/1.1\r\nHost: ");
    add_place(host, port, out);
    if (p->user.p != NULL) {
        if (url_decode(p->user, &user)) {
            base64_encode(user.p, user.n, coded);
            buf_addf(out, "\r\nProxy-Authorization: Basic %s", coded);
        } else {
            rc = err_set(e, E_INVALID, "the proxy's user has an invalid %% escape");
        }
    }
    buf_str(out, "\r\n\r\n");
    buf_free(&user);
    return rc;
}

/* The length of the answer's head with the empty line behind it; 0: it has not ended yet. */
static size_t head_length(struct slice in)
{
    for (size_t i = 0; i < in.n; i++) {
        struct slice rest = slice_from(in, i);
        if (slice_starts(rest, SLICE("\n\r\n"))) {
            return i + 3;
        }
        if (slice_starts(rest, SLICE("\n\n"))) {
            return i + 2;
        }
    }
    return 0;
}

/* "HTTP/1.1 407 Proxy Authentication Required" -> 407; 0: no such line. */
static unsigned status_of(struct slice head, struct slice *words)
{
    struct slice line = slice_cut(&head, '\n');
    uint64_t status;

    if (!slice_starts(line, SLICE("HTTP/1."))) {
        return 0;
    }
    slice_cut(&line, ' ');
    line = slice_trim(line);
    if (slice_ends(line, SLICE("\r"))) {
        line = slice_trim(slice_first(line, line.n - 1));
    }
    *words = line;
    return slice_u64(slice_cut(&line, ' '), &status) && status >= 100 && status <= 999
               ? (unsigned)status
               : 0;
}

/* As much of it as can stand in a sentence. */
static struct slice readable(struct slice words)
{
    size_t n = 0;

    while (n < words.n && n < 80 && words.p[n] >= ' ' && words.p[n] < 0x7f) {
        n++;
    }
    return slice_first(words, n);
}

int proxy_answer(struct slice in, size_t *used, struct err *e)
{
    size_t n = head_length(in);
    struct slice words = SLICE_NONE;
    unsigned status;

    if (n == 0) {
        return in.n < PROXY_ANSWER_MAX
                   ? E_AGAIN
                   : err_set(e, E_NETWORK, "the head of the proxy's response is too long");
    }
    status = status_of(slice_first(in, n), &words);
    *used = n;
    if (status >= 200 && status <= 299) {
        return 0;
    }
    if (status == 0) {
        return err_set(e, E_NETWORK, "the proxy's response is not HTTP/1");
    }
    return err_set(e, status == 403 || status == 407 ? E_DENIED : E_NETWORK,
                   "the proxy answers " SLICE_FMT "%s", SLICE_ARG(readable(words)),
                   status == 407 ? "; set user and password in `proxy`" : "");
}
