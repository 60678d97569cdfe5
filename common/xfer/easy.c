#include "common/xfer/easy.h"

#include <arpa/inet.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/codec/url.h"
#include "common/xfer/psk.h"

static bool line_ok(struct slice line)
{
    return slice_find(line, ':') > 0 && slice_find(line, '\r') < 0 && slice_find(line, '\n') < 0 &&
           slice_find(line, '\0') < 0;
}

static void add_curl_line(struct curl_slist **lines, const char *text)
{
    struct curl_slist *more = curl_slist_append(*lines, text);

    CHECK(more != NULL);
    *lines = more;
}

static int add_header_line(struct curl_slist **lines, struct slice line, const char *host,
                           struct err *e)
{
    char *text;

    if (!line_ok(line)) {
        return err_set(e, E_INVALID, "%s: invalid request header field", host);
    }
    text = strndup(line.p, line.n);
    CHECK(text != NULL);
    add_curl_line(lines, text);
    free(text);
    return 0;
}

static int add_lines(const struct xfer_params *w, const char *host, struct curl_slist **lines,
                     struct err *e)
{
    bool names_type = false;
    char range[64];

    for (size_t i = 0; i < w->nfields; i++) {
        struct slice rest = w->fields[i];
        int rc = add_header_line(lines, rest, host, e);
        if (rc != 0) {
            return rc;
        }
        names_type = names_type || slice_ieq(slice_cut(&rest, ':'), SLICE("Content-Type"));
    }
    if (w->ranged && w->range_last < w->range_first) {
        return err_set(e, E_INVALID, "%s: the range ends before it begins", host);
    }
    if (w->ranged) {
        snprintf(range, sizeof range, "Range: bytes=%" PRIu64 "-%" PRIu64, w->range_first,
                 w->range_last);
        add_curl_line(lines, range);
    }
    /* Expect would cost a second at servers that ignore it; libcurl's own Content-Type would be a
     * form's. */
    add_curl_line(lines, "Expect:");
    if (w->method == XFER_POST && !names_type) {
        add_curl_line(lines, "Content-Type:");
    }
    add_curl_line(lines, "Accept-Encoding: identity");
    return 0;
}

static curl_off_t body_bytes(const struct xfer_params *w)
{
    return w->body_read == NULL            ? (curl_off_t)w->body.n
           : w->body_bytes == XFER_UNKNOWN ? -1
                                           : (curl_off_t)w->body_bytes;
}

/* libcurl sends such a body chunked if its length is unknown. */
static void set_upload(CURL *c, const struct xfer_params *w, const char *method)
{
    curl_easy_setopt(c, CURLOPT_UPLOAD, 1L);
    curl_easy_setopt(c, CURLOPT_CUSTOMREQUEST, method);
    curl_easy_setopt(c, CURLOPT_INFILESIZE_LARGE, body_bytes(w));
}

static void set_method(CURL *c, const struct xfer_params *w)
{
    switch (w->method) {
    case XFER_GET:
        break;
    case XFER_HEAD:
        curl_easy_setopt(c, CURLOPT_NOBODY, 1L);
        break;
    case XFER_PUT:
        set_upload(c, w, "PUT");
        break;
    case XFER_PATCH:
        set_upload(c, w, "PATCH");
        break;
    case XFER_POST:
        if (body_bytes(w) < 0) {
            set_upload(c, w, "POST");
            break;
        }
        curl_easy_setopt(c, CURLOPT_POST, 1L);
        curl_easy_setopt(c, CURLOPT_POSTFIELDSIZE_LARGE, body_bytes(w));
        break;
    case XFER_DELETE:
        curl_easy_setopt(c, CURLOPT_CUSTOMREQUEST, "DELETE");
        break;
    }
}

static void set_peer(CURL *c, const struct xfer_params *w)
{
    curl_easy_setopt(c, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(c, CURLOPT_PATH_AS_IS, 1L);
    curl_easy_setopt(c, CURLOPT_HTTP_VERSION,
                     (long)(w->http2 ? CURL_HTTP_VERSION_2TLS : CURL_HTTP_VERSION_1_1));
    curl_easy_setopt(c, CURLOPT_PIPEWAIT, w->http2 ? 1L : 0L);
    curl_easy_setopt(c, CURLOPT_SSLVERSION, (long)CURL_SSLVERSION_TLSv1_2);
    if (w->ca_file != NULL) {
        curl_easy_setopt(c, CURLOPT_CAINFO, w->ca_file);
        curl_easy_setopt(c, CURLOPT_CAPATH, NULL); /* instead of the system's, not beside them */
    }
    /* "" and not NULL: NULL would let the environment decide. */
    curl_easy_setopt(c, CURLOPT_PROXY, w->proxy != NULL ? w->proxy : "");
    curl_easy_setopt(c, CURLOPT_NOPROXY, w->no_proxy != NULL ? w->no_proxy : "");
    curl_easy_setopt(c, CURLOPT_SUPPRESS_CONNECT_HEADERS, 1L);
    curl_easy_setopt(c, CURLOPT_TCP_KEEPALIVE, 1L);
    curl_easy_setopt(c, CURLOPT_FRESH_CONNECT, w->own_connection ? 1L : 0L);
    curl_easy_setopt(c, CURLOPT_FORBID_REUSE, w->own_connection ? 1L : 0L);
}

static CURLcode on_context(CURL *c, void *ctx, void *psk)
{
    (void)c;
    psk_client(ctx, psk);
    return CURLE_OK;
}

/* libcurl is set to accept any certificate, and psk_client() to accept none: it would otherwise
 * require one. */
static void set_psk(CURL *c, const struct psk *p)
{
    curl_easy_setopt(c, CURLOPT_SSLVERSION, (long)CURL_SSLVERSION_TLSv1_3);
    curl_easy_setopt(c, CURLOPT_SSL_VERIFYPEER, 0L);
    curl_easy_setopt(c, CURLOPT_SSL_VERIFYHOST, 0L);
    curl_easy_setopt(c, CURLOPT_SSL_SESSIONID_CACHE, 0L);
    curl_easy_setopt(c, CURLOPT_SSL_CTX_FUNCTION, on_context);
    curl_easy_setopt(c, CURLOPT_SSL_CTX_DATA, (void *)(uintptr_t)p);
}

void easy_connect_to(CURL *c, const struct sockaddr *sa, struct curl_slist **to)
{
    const struct sockaddr_in *v4 = (const void *)sa;
    const struct sockaddr_in6 *v6 = (const void *)sa;
    char plain[INET6_ADDRSTRLEN] = "", text[INET6_ADDRSTRLEN + 8];
    bool six = sa->sa_family == AF_INET6;

    inet_ntop(sa->sa_family, six ? (const void *)&v6->sin6_addr : &v4->sin_addr, plain,
              sizeof plain);
    snprintf(text, sizeof text, six ? "::[%s]:" : "::%s:", plain);
    add_curl_line(to, text);
    curl_easy_setopt(c, CURLOPT_CONNECT_TO, *to);
}

static void set_way(CURL *c, const struct xfer_params *w, struct curl_slist **to)
{
    char text[EASY_HOST + 2];

    if (w->connect_to != NULL) {
        snprintf(text, sizeof text, "::%s", w->connect_to);
        add_curl_line(to, text);
        curl_easy_setopt(c, CURLOPT_CONNECT_TO, *to);
    }
    if (w->psk != NULL) {
        set_psk(c, w->psk);
    }
}

static void set_patience(CURL *c, const struct xfer_params *w)
{
    curl_easy_setopt(c, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(c, CURLOPT_QUICK_EXIT, 1L); /* a name still looked up is not waited for */
    curl_easy_setopt(c, CURLOPT_CONNECTTIMEOUT_MS,
                     (long)(w->connect_timeout_ms != 0 ? w->connect_timeout_ms : 10000));
    curl_easy_setopt(c, CURLOPT_LOW_SPEED_TIME,
                     (long)(w->idle_timeout_s != 0 ? w->idle_timeout_s : 60));
    curl_easy_setopt(c, CURLOPT_LOW_SPEED_LIMIT,
                     (long)(w->idle_bytes_per_s != 0 ? w->idle_bytes_per_s : 1));
}

int easy_open(const struct xfer_params *w, const char *user_agent, char host[EASY_HOST], CURL **out,
              struct curl_slist *lines[EASY_LISTS], struct err *e)
{
    struct buf text = BUF_INIT(64 << 10);
    struct url u;
    CURL *c;
    int rc = url_split(w->url, &u, e);

    *out = NULL;
    lines[0] = lines[1] = NULL;
    if (rc != 0) {
        return rc;
    }
    snprintf(host, EASY_HOST, "%s" SLICE_FMT "%s:%u", u.ipv6 ? "[" : "", SLICE_ARG(u.host),
             u.ipv6 ? "]" : "", u.port);
    if (w->connect_to != NULL) {
        snprintf(host, EASY_HOST, "%s", w->connect_to);
    }
    rc = add_lines(w, host, &lines[0], e);
    if (rc != 0) {
        return rc;
    }
    c = curl_easy_init();
    CHECK(c != NULL);
    url_write(&u, &text);
    curl_easy_setopt(c, CURLOPT_URL, buf_cstr(&text));
    buf_free(&text);
    curl_easy_setopt(c, CURLOPT_HTTPHEADER, lines[0]);
    curl_easy_setopt(c, CURLOPT_USERAGENT, user_agent);
    set_method(c, w);
    set_peer(c, w);
    set_way(c, w, &lines[1]);
    set_patience(c, w);
    *out = c;
    return 0;
}
