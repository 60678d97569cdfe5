#include "common/xfer/xfer.h"

#include <arpa/inet.h>
#include <event2/event.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/x509_vfy.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "common/base/buf.h"
#include "common/base/list.h"
#include "common/codec/url.h"
#include "common/xfer/easy.h"
#include "common/xfer/dns_lookup.h"
#include "common/xfer/multi.h"
#include "common/xfer/psk.h"

struct head_parser {
    struct buf text; /* all lines, names in lower case */
    struct head_parser_field {
        size_t name_at, name_n, value_at, value_n;
    } * field;
    struct xfer_field *view;
    size_t nfields;
    size_t max_fields;
    int status;
    bool http2;
    bool no_body; /* HEAD */
    bool ended;   /* the final head is whole: what follows are trailers */
    bool has_length;
    bool chunked;
    bool coded; /* Transfer-Encoding stood there */
    uint64_t length_bytes;
};

/* --- the head of an answer ---
 *
 * The head of an answer, gathered line by line as libcurl hands it over; 1xx heads are swallowed.
 *
 * owns     head_parser_fini() frees; what head_parser_view() gives borrows from it
 * threads  one at a time
 * errors   E_PROTOCOL, E_TOOBIG
 */

static void head_parser_init(struct head_parser *a, size_t max_bytes, size_t max_fields,
                             bool head_only)
{
    *a = (struct head_parser){
        .text = BUF_INIT(max_bytes), .max_fields = max_fields, .no_body = head_only};
    a->field = mem_array(max_fields, sizeof a->field[0]);
}

static void head_parser_fini(struct head_parser *a)
{
    buf_free(&a->text);
    free(a->field);
    free(a->view);
    a->field = NULL;
    a->view = NULL;
}

/* A new head begins: after 100 Continue, say. */
static int status_line(struct head_parser *a, struct slice line, struct err *e)
{
    struct slice version = slice_cut(&line, ' ');
    uint64_t status;

    buf_clear(&a->text);
    a->nfields = 0;
    a->has_length = a->chunked = a->coded = false;
    a->http2 = slice_starts(version, SLICE("HTTP/2"));
    if (!slice_u64(slice_cut(&line, ' '), &status) || status < 100 || status > 599) {
        return err_set(e, E_PROTOCOL, "invalid status line");
    }
    a->status = (int)status;
    return 0;
}

static bool is_field_name_char(char c)
{
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') ||
           (c != '\0' && strchr("!#$%&'*+-.^_`|~", c) != NULL);
}

/* libcurl looks at the field only when the body comes, which is too late to tell a client. It would
 * undo compression, too; but nobody asked for any, and it does not see that the end of what was
 * compressed is missing. */
static int learn_coding(struct head_parser *a, struct slice value, struct err *e)
{
    struct slice rest = value;

    while (rest.n > 0) {
        struct slice coding = slice_trim(slice_cut(&rest, ','));
        bool chunked = slice_ieq(coding, SLICE("chunked"));
        if (coding.n > 0 && (!chunked || a->chunked) && !slice_ieq(coding, SLICE("identity"))) {
            return err_set(e, E_PROTOCOL, "unsupported Transfer-Encoding: " SLICE_FMT,
                           SLICE_ARG(slice_first(value, value.n < 40 ? value.n : 40)));
        }
        a->chunked = a->chunked || chunked;
    }
    a->coded = true;
    return 0;
}

static int learn_framing(struct head_parser *a, struct slice name, struct slice value,
                         struct err *e)
{
    uint64_t n;

    if (slice_eq(name, SLICE("content-length"))) {
        if (!slice_u64(value, &n) || (a->has_length && n != a->length_bytes)) {
            return err_set(e, E_PROTOCOL, "invalid Content-Length, or two that differ");
        }
        a->has_length = true;
        a->length_bytes = n;
    } else if (slice_eq(name, SLICE("transfer-encoding"))) {
        return learn_coding(a, value, e);
    }
    return 0;
}

static int field_line(struct head_parser *a, struct slice line, struct err *e)
{
    ptrdiff_t colon = slice_find(line, ':');
    struct head_parser_field *f;
    struct slice value;
    char *name;

    if (colon <= 0) {
        return err_set(e, E_PROTOCOL, "a header line has no name");
    }
    if (a->nfields == a->max_fields) {
        return err_set(e, E_TOOBIG, "the response has more than %zu header fields", a->max_fields);
    }
    value = slice_trim(slice_from(line, (size_t)colon + 1));
    f = &a->field[a->nfields++];
    *f = (struct head_parser_field){a->text.n, (size_t)colon, a->text.n + (size_t)colon, value.n};
    buf_adds(&a->text, slice_first(line, (size_t)colon));
    buf_adds(&a->text, value);
    if (a->text.rc != 0) {
        return err_set(e, E_TOOBIG, "the response header is larger than %zu bytes", a->text.max);
    }
    name = a->text.p + f->name_at;
    for (size_t i = 0; i < f->name_n; i++) {
        if (name[i] >= 'A' && name[i] <= 'Z') {
            name[i] = (char)(name[i] + 32);
        }
        if (!is_field_name_char(name[i])) {
            return err_set(e, E_PROTOCOL, "a header name has an invalid byte: 0x%02x",
                           (uint8_t)name[i]);
        }
    }
    for (size_t i = 0; i < value.n; i++) {
        if (((uint8_t)value.p[i] < 0x20 && value.p[i] != '\t') || value.p[i] == 0x7f) {
            return err_set(e, E_PROTOCOL, "a header value has an invalid byte: 0x%02x",
                           (uint8_t)value.p[i]);
        }
    }
    return learn_framing(a, slice_of(name, f->name_n), value, e);
}

/* Sets *whole when this line ended the final head. Trailers are ignored. */
static int head_parser_line(struct head_parser *a, struct slice line, bool *whole, struct err *e)
{
    *whole = false;
    if (line.n > 0 && line.p[line.n - 1] == '\n') {
        line.n--;
    }
    if (line.n > 0 && line.p[line.n - 1] == '\r') {
        line.n--;
    }
    if (a->ended) {
        return 0;
    }
    if (slice_starts(line, SLICE("HTTP/"))) {
        return status_line(a, line, e);
    }
    if (a->status == 0) {
        return err_set(e, E_PROTOCOL, "the response header has no status line");
    }
    if (line.n != 0) {
        return field_line(a, line, e);
    }
    if (a->status == 101) {
        return err_set(e, E_PROTOCOL, "status 101 in response to a request without Upgrade");
    }
    a->ended = *whole = a->status >= 200;
    return 0;
}

static void head_parser_view(struct head_parser *a, struct xfer_head *out)
{
    bool empty = a->no_body || a->status == 204 || a->status == 304;

    free(a->view);
    a->view = mem_array(a->nfields + 1, sizeof a->view[0]);
    for (size_t i = 0; i < a->nfields; i++) {
        const struct head_parser_field *f = &a->field[i];
        a->view[i].name = slice_of(a->text.p + f->name_at, f->name_n);
        a->view[i].value = slice_of(a->text.p + f->value_at, f->value_n);
    }
    *out = (struct xfer_head){
        .status = a->status,
        /* Transfer-Encoding overrides Content-Length (RFC 9112 6.3). */
        .content_length = a->has_length && !a->coded ? a->length_bytes : XFER_UNKNOWN,
        .framed = empty || a->http2 || (a->coded ? a->chunked : a->has_length),
        .fields = a->view,
        .nfields = a->nfields,
    };
}

struct slice xfer_head_field(const struct xfer_head *h, const char *name)
{
    for (size_t i = 0; i < h->nfields; i++) {
        if (slice_eqs(h->fields[i].name, name)) {
            return h->fields[i].value;
        }
    }
    return SLICE_NONE;
}

_Static_assert((int)CURL_MAX_WRITE_SIZE <= (int)XFER_SLICE_MAX, "on_body's bound is libcurl's");

enum {
    XFER_MAGIC = 0x78666572,
    READ_BYTES = 256 << 10,
    CURL_SAYS_TOO_LARGE = 100 /* CURLE_TOO_LARGE of libcurl 8.6 */
};

struct xfer_loop {
    struct multi *multi;
    struct event *kick; /* work that may not be done inside a libcurl callback */
    struct list all;
    struct list kicked; /* to be started, resumed, or freed after a cancel */
    struct event_base *base;
    struct message_queue *box; /* of lookups; opened when first needed */
    struct xfer_limits limits;
};

struct xfer {
    uint32_t magic;
    struct list in_all;
    struct list in_kicked;
    struct xfer_loop *loop;
    /* its pointers are dead after open_easy() but for the body and the callbacks */
    struct xfer_params want;
    struct xfer_events ev;
    void *arg;
    CURL *easy; /* NULL: the want was bad */
    struct curl_slist *lines[EASY_LISTS];
    struct psk key;
    /* of the host's name, before a proxy is asked; NULL: none runs */
    struct dns_lookup *dns_lookup;
    struct head_parser answer;
    struct err why; /* set by a callback that ends the transfer, or by a bad want */
    uint64_t body_bytes;
    uint64_t sent_bytes;
    CURLcode code; /* once `complete` */
    bool added;    /* to the multi handle */
    bool paused;   /* for the caller */
    bool held;     /* libcurl keeps bytes back for us */
    bool starved;  /* libcurl waits for bytes of the request's body */
    bool fed;      /* they have come */
    bool complete; /* libcurl is done, the caller pauses */
    bool cancelled;
    char host[EASY_HOST];
    char curl_says[CURL_ERROR_SIZE];
};

static struct xfer *from_curl(void *p)
{
    struct xfer *x = p;
    CHECK(x->magic == XFER_MAGIC);
    return x;
}

static void kick(struct xfer *x)
{
    if (!list_linked(&x->in_kicked)) {
        list_push_back(&x->loop->kicked, &x->in_kicked);
    }
    event_active(x->loop->kick, EV_TIMEOUT, 0);
}

/* --- what libcurl calls ----------------------------------------------------------------------- */

static size_t on_header(char *p, size_t one, size_t n, void *arg)
{
    struct xfer *x = from_curl(arg);
    struct xfer_head head;
    bool whole;
    int rc;

    (void)one;
    if (x->cancelled || head_parser_line(&x->answer, slice_of(p, n), &whole, &x->why) != 0) {
        return 0;
    }
    if (whole) {
        head_parser_view(&x->answer, &head);
        rc = x->ev.on_head != NULL ? x->ev.on_head(x->arg, &head) : 0;
        if (rc != 0) {
            err_set(&x->why, rc, "%s: the response with status %d was refused", x->host,
                    head.status);
            return 0;
        }
    }
    return n;
}

static size_t on_write(char *p, size_t one, size_t n, void *arg)
{
    struct xfer *x = from_curl(arg);
    int rc;

    (void)one;
    if (x->cancelled) {
        return 0;
    }
    if (x->paused) { /* libcurl keeps these bytes and gives them again */
        x->held = true;
        return CURL_WRITEFUNC_PAUSE;
    }
    x->body_bytes += n;
    rc = x->ev.on_body != NULL ? x->ev.on_body(x->arg, slice_of(p, n)) : 0;
    if (rc < 0) {
        err_set(&x->why, rc, "%s: the body was refused", x->host);
        return 0;
    }
    x->paused = rc == XFER_PAUSE;
    return n;
}

static size_t on_curl_read(char *p, size_t one, size_t room, void *arg)
{
    struct xfer *x = from_curl(arg);
    bool chunked = x->want.body_bytes == XFER_UNKNOWN;
    size_t n = (size_t)min_u64(one * room, x->want.body_bytes - x->sent_bytes);

    if (x->cancelled) {
        return CURL_READFUNC_ABORT;
    }
    if (n == 0) {
        return 0;
    }
    if (x->want.body_read == NULL) {
        memcpy(p, x->want.body.p + x->sent_bytes, n);
    } else {
        ptrdiff_t got = x->want.body_read(x->arg, x->sent_bytes, p, n);
        if (got == XFER_NOT_YET) {
            x->starved = true;
            return CURL_READFUNC_PAUSE;
        }
        if (got == 0 && chunked) {
            return 0;
        }
        if (got <= 0) {
            err_set(&x->why, got < 0 ? (int)got : E_IO, "the data to send cannot be read");
            return CURL_READFUNC_ABORT;
        }
        CHECK((size_t)got <= n);
        n = (size_t)got;
    }
    x->sent_bytes += n;
    return n;
}

static int on_seek(void *arg, curl_off_t offset, int whence)
{
    struct xfer *x = from_curl(arg);

    if (whence != SEEK_SET || offset < 0 || (uint64_t)offset > x->want.body_bytes) {
        return CURL_SEEKFUNC_CANTSEEK;
    }
    x->sent_bytes = (uint64_t)offset;
    return CURL_SEEKFUNC_OK;
}

/* Without this, a peer that has vanished would be noticed after 15 minutes of sending. */
static int on_new_socket(void *arg, curl_socket_t fd, curlsocktype purpose)
{
    struct xfer *x = from_curl(arg);
    unsigned ms = x->want.unacknowledged_ms;

    (void)purpose;
    (void)!setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &ms, sizeof ms);
    return CURL_SOCKOPT_OK;
}

static bool address_is_admitted(struct xfer *x, const struct sockaddr *sa)
{
    if (x->cancelled) {
        return false;
    }
    if (!x->want.admit(x->arg, sa)) {
        err_set(&x->why, E_DENIED,
                "%s: its address is in the internal network, and links from outside must not lead "
                "there",
                x->host);
        return false;
    }
    err_clear(&x->why); /* another address of the same name may have been refused before */
    return true;
}

static curl_socket_t on_socket(void *arg, curlsocktype purpose, struct curl_sockaddr *a)
{
    struct xfer *x = from_curl(arg);

    (void)purpose;
    return address_is_admitted(x, &a->addr)
               ? socket(a->family, a->socktype | SOCK_CLOEXEC, a->protocol)
               : CURL_SOCKET_BAD;
}

/* A kept connection may have been opened under another want's rule: ask again. */
static int on_connected(void *arg, char *ip, char *local_ip, int port, int local_port)
{
    struct xfer *x = from_curl(arg);
    struct sockaddr_in v4 = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    struct sockaddr_in6 v6 = {.sin6_family = AF_INET6, .sin6_port = htons((uint16_t)port)};
    char plain[INET6_ADDRSTRLEN];
    bool ok = false;

    (void)local_ip;
    (void)local_port;
    snprintf(plain, sizeof plain, "%.*s", (int)strcspn(ip, "%"), ip); /* "fe80::1%eth0" */
    if (inet_pton(AF_INET, plain, &v4.sin_addr) == 1) {
        ok = address_is_admitted(x, (const struct sockaddr *)&v4);
    } else if (inet_pton(AF_INET6, plain, &v6.sin6_addr) == 1) {
        ok = address_is_admitted(x, (const struct sockaddr *)&v6);
    }
    return ok ? CURL_PREREQFUNC_OK : CURL_PREREQFUNC_ABORT;
}

/* --- how it ended ----------------------------------------------------------------------------- */

static bool says(const struct xfer *x, const char *begin)
{
    return strncmp(x->curl_says, begin, strlen(begin)) == 0;
}

/* libcurl has bounds of its own: for a line of a head and for a trailer, both of which it reports
 * as a lack of memory, and for all heads of an answer together, 1xx included. */
static bool head_too_large(const struct xfer *x, CURLcode code)
{
    if (code == CURLE_RECV_ERROR) {
        return says(x, "Too large response headers") ||
               says(x, "Out of memory in chunked-encoding");
    }
    /* before the request has left, it is memory indeed */
    return xfer_has_sent(x) && (code == CURLE_OUT_OF_MEMORY || (int)code == CURL_SAYS_TOO_LARGE);
}

static int tell_too_large(const struct xfer *x, struct err *e)
{
    if (x->answer.ended) {
        return err_set(e, E_TOOBIG, "%s: the trailer of the response is too large", x->host);
    }
    if (x->answer.status / 100 == 1) {
        return err_set(e, E_TOOBIG, "%s: too many 1xx responses before the final one", x->host);
    }
    return err_set(e, E_TOOBIG, "%s: the header of the response is larger than %zu bytes", x->host,
                   x->loop->limits.head_bytes);
}

/* Self-signed, or of an authority that is not among ours; not a wrong name, nor one that has
 * expired. */
static bool issuer_unknown(const struct xfer *x)
{
    long result = X509_V_OK;

    curl_easy_getinfo(x->easy, CURLINFO_SSL_VERIFYRESULT, &result);
    return result == X509_V_ERR_DEPTH_ZERO_SELF_SIGNED_CERT ||
           result == X509_V_ERR_SELF_SIGNED_CERT_IN_CHAIN ||
           result == X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT_LOCALLY ||
           result == X509_V_ERR_UNABLE_TO_VERIFY_LEAF_SIGNATURE;
}

static int tell_tls(const struct xfer *x, struct err *e)
{
    const char *hint = x->want.no_issuer;

    return hint != NULL && issuer_unknown(x)
               ? err_set(e, E_NETWORK, "%s: TLS: %.80s; %s", x->host, x->curl_says, hint)
               : err_set(e, E_NETWORK, "%s: TLS: %.120s", x->host, x->curl_says);
}

enum { PROXY_BYTES = 128 };

/* " to the proxy host:port", for instance. Its URL may have a password, which is left out, whatever
 * bytes it has: all that stands before the last '@' may be of it. */
static void proxy_named(const struct xfer *x, const char *words, char out[PROXY_BYTES])
{
    const char *scheme = strstr(x->want.proxy, "://");
    const char *from = scheme != NULL ? scheme + 3 : x->want.proxy;
    const char *at = strrchr(from, '@');

    from = at != NULL ? at + 1 : from;
    snprintf(out, PROXY_BYTES, "%s the proxy %.*s", words, (int)strcspn(from, "/?#"), from);
}

/* libcurl's sentence names the host that it tried to connect to, but for one that timed out. */
static void to_proxy(const struct xfer *x, bool timed_out, char out[PROXY_BYTES])
{
    char direct[EASY_HOST + sizeof "Failed to connect to  port "];
    size_t host = (size_t)(strrchr(x->host, ':') - x->host);

    out[0] = '\0';
    snprintf(direct, sizeof direct, "Failed to connect to %.*s port ", (int)host, x->host);
    if (x->want.proxy != NULL && !says(x, direct)) {
        proxy_named(x, timed_out && x->want.no_proxy != NULL ? " to it or to" : " to", out);
    }
}

static int explain_no_connection(const struct xfer *x, struct err *e)
{
    char proxy[PROXY_BYTES];
    long number = 0;

    to_proxy(x, false, proxy);
    curl_easy_getinfo(x->easy, CURLINFO_OS_ERRNO, &number);
    if (number == 0) {
        return err_set(e, E_NETWORK, "%s: cannot connect%s", x->host, proxy);
    }
    return err_set(e, E_NETWORK, "%s: cannot connect%s: %s", x->host, proxy, strerror((int)number));
}

/* Before the origin is reached through it. */
static int explain_no_connection_in_time(const struct xfer *x, struct err *e)
{
    char proxy[PROXY_BYTES];
    long port = 0;

    curl_easy_getinfo(x->easy, CURLINFO_LOCAL_PORT, &port); /* 0: no connection, to nobody */
    if (x->want.proxy != NULL && port != 0) {
        proxy_named(x, "", proxy);
        return err_set(e, E_TIMEOUT, "%s:%s did not answer in time", x->host, proxy);
    }
    to_proxy(x, true, proxy);
    return err_set(e, E_TIMEOUT, "%s: cannot connect%s: timed out", x->host, proxy);
}

static int explain_no_answer(const struct xfer *x, struct err *e)
{
    char proxy[PROXY_BYTES] = "";

    if (x->want.proxy != NULL && x->want.no_proxy == NULL) {
        proxy_named(x, ", through", proxy);
    }
    return err_set(e, E_TIMEOUT, "%s: no response in time%s", x->host, proxy);
}

static int explain_timeout(const struct xfer *x, struct err *e)
{
    curl_off_t connected_us = 0;

    if (x->answer.ended) {
        return err_set(e, E_TIMEOUT, "%s: too slow, canceled after %" PRIu64 " bytes", x->host,
                       x->body_bytes);
    }
    if (says(x, "Resolving timed out")) {
        return err_set(e, E_TIMEOUT, "%s: the name was not resolved in time", x->host);
    }
    curl_easy_getinfo(x->easy, CURLINFO_CONNECT_TIME_T, &connected_us);
    if (connected_us == 0) {
        return explain_no_connection_in_time(x, e);
    }
    return explain_no_answer(x, e);
}

static int explain_curl_code(struct xfer *x, CURLcode code, struct err *e)
{
    uint64_t length = x->answer.has_length ? x->answer.length_bytes : 0;
    char proxy[PROXY_BYTES];

    if (code == CURLE_OK) {
        return x->answer.ended ? 0 : err_set(e, E_PROTOCOL, "%s: no response", x->host);
    }
    if (x->why.code != 0) { /* ours: libcurl only knows that a callback said no */
        *e = x->why;
        return e->code;
    }
    if (head_too_large(x, code)) {
        return tell_too_large(x, e);
    }
    switch ((int)code) {
    case CURLE_COULDNT_RESOLVE_HOST:
        return err_set(e, E_NETWORK, "%s: the name does not resolve", x->host);
    case CURLE_COULDNT_RESOLVE_PROXY:
        proxy_named(x, "the name of", proxy);
        return err_set(e, E_NETWORK, "%s: %s does not resolve", x->host, proxy);
    case CURLE_COULDNT_CONNECT:
        return explain_no_connection(x, e);
    case CURLE_OPERATION_TIMEDOUT:
        return explain_timeout(x, e);
    case CURLE_PARTIAL_FILE:
        return x->answer.coded || !x->answer.has_length
                   ? err_set(e, E_NETWORK, "%s: the body ended early, after %" PRIu64 " bytes",
                             x->host, x->body_bytes)
                   : err_set(e, E_NETWORK,
                             "%s: the body ended early, after %" PRIu64 " of %" PRIu64 " bytes",
                             x->host, x->body_bytes, length);
    case CURLE_GOT_NOTHING:
    case CURLE_RECV_ERROR:
    case CURLE_SEND_ERROR:
    case CURLE_HTTP2_STREAM:
        return err_set(e, E_NETWORK, "%s: the connection broke after %" PRIu64 " bytes", x->host,
                       x->body_bytes);
    case CURLE_PEER_FAILED_VERIFICATION:
    case CURLE_SSL_CONNECT_ERROR:
    case CURLE_SSL_CACERT_BADFILE:
        return tell_tls(x, e);
    case CURLE_BAD_CONTENT_ENCODING:
        return err_set(e, E_PROTOCOL, "%s: the body does not match its Transfer-Encoding", x->host);
    case CURLE_WEIRD_SERVER_REPLY:
    case CURLE_HTTP2:
    case CURLE_UNSUPPORTED_PROTOCOL: /* "Received HTTP/0.9 when not allowed" */
        return err_set(e, E_PROTOCOL, "%s: the response is not valid HTTP", x->host);
    default:
        return err_set(e, E_NETWORK, "%s: %s", x->host, curl_easy_strerror(code));
    }
}

static void xfer_free(struct xfer *x)
{
    dns_lookup_cancel(&x->dns_lookup);
    list_remove(&x->in_all);
    list_remove_if(&x->in_kicked);
    if (x->added) {
        multi_remove(x->loop->multi, x->easy);
    }
    curl_easy_cleanup(x->easy);
    curl_slist_free_all(x->lines[0]);
    curl_slist_free_all(x->lines[1]);
    head_parser_fini(&x->answer);
    x->magic = 0;
    explicit_bzero(&x->key, sizeof x->key);
    free(x);
}

static void finish_xfer(struct xfer *x, CURLcode code)
{
    struct err why = {0};
    int rc;

    if (x->paused && code == CURLE_OK) {
        x->complete = true; /* xfer_resume() brings it back here */
        x->code = code;
        return;
    }
    rc = x->easy == NULL ? (why = x->why).code : explain_curl_code(x, code, &why);
    x->cancelled = true; /* a cancel from inside on_done has nothing left to do */
    x->ev.on_done(x->arg, rc, &why, x->body_bytes);
    xfer_free(x);
}

static void on_xfer_end(void *private, CURLcode code)
{
    struct xfer *x = from_curl(private);

    if (!x->cancelled) { /* a cancelled one waits in `kicked` to be freed */
        finish_xfer(x, code);
    }
}

/* --- the loop --------------------------------------------------------------------------------- */

static void resume_now(struct xfer *x)
{
    CURLcode code = CURLE_OK;

    if ((x->held && !x->paused) || (x->starved && x->fed)) {
        x->held = x->starved = x->fed = false;
        code = curl_easy_pause(x->easy, CURLPAUSE_CONT); /* may call on_write and on_curl_read */
    }
    if (x->cancelled) {
        xfer_free(x);
    } else if (code != CURLE_OK) { /* libcurl would go on as if nothing had happened */
        finish_xfer(x, code);
    } else if (x->complete && !x->paused) {
        finish_xfer(x, x->code);
    }
}

/* --- the way through a proxy ------------------------------------------------------------------ */

/* The proxy may have one family of addresses alone, and we do not see which: IPv4 is the one that
 * it will have. */
static const struct sockaddr *choose_address(struct xfer *x, const struct addrinfo *found)
{
    const struct sockaddr *six = NULL;

    for (const struct addrinfo *a = found; a != NULL; a = a->ai_next) {
        if (!address_is_admitted(x, a->ai_addr)) {
            continue;
        }
        if (a->ai_family == AF_INET) {
            return a->ai_addr;
        }
        six = six != NULL ? six : a->ai_addr;
    }
    if (six != NULL) {
        err_clear(&x->why);
    }
    return six;
}

static void on_looked_up(void *arg, struct addrinfo *found, const char *why)
{
    struct xfer *x = arg;
    const struct sockaddr *sa = choose_address(x, found);

    (void)why;
    x->dns_lookup = NULL;
    if (x->cancelled) {
        ; /* it waits in `kicked` to be freed */
    } else if (sa == NULL) {
        finish_xfer(x,
                    CURLE_COULDNT_RESOLVE_HOST); /* x->why says more where an address was refused */
    } else {
        easy_connect_to(x->easy, sa, &x->lines[1]);
        kick(x);
    }
    if (found != NULL) {
        freeaddrinfo(found);
    }
}

static void look_up(struct xfer *x, struct slice url)
{
    struct xfer_loop *l = x->loop;
    struct url u;

    if (l->box == NULL) {
        l->box = message_queue_open(l->base);
    }
    (void)!url_split(url, &u, NULL); /* open_easy() has taken it */
    x->dns_lookup = dns_lookup_start(l->box, u.host, u.port, on_looked_up, x);
}

static void on_kick(evutil_socket_t fd, short what, void *arg)
{
    struct xfer_loop *l = arg;
    struct list batch;
    struct list *n;

    (void)fd;
    (void)what;
    list_init(&batch);
    while ((n = list_pop_front(&l->kicked)) != NULL) {
        list_push_back(&batch, n);
    }
    while ((n = list_pop_front(&batch)) != NULL) {
        struct xfer *x = LIST_ITEM(n, struct xfer, in_kicked);
        if (x->cancelled) {
            xfer_free(x);
        } else if (x->easy == NULL) {
            finish_xfer(x, CURLE_URL_MALFORMAT);
        } else if (!x->added) {
            x->added = true;
            multi_add(l->multi, x->easy);
        } else {
            resume_now(x);
        }
    }
}

struct xfer_loop *xfer_loop_open(struct event_base *base, const struct xfer_limits *limits)
{
    struct xfer_loop *l = NEW(struct xfer_loop);
    struct xfer_limits *lim = &l->limits;

    *lim = limits != NULL ? *limits : (struct xfer_limits){0};
    lim->connections = lim->connections != 0 ? lim->connections : 64;
    lim->host_connections = lim->host_connections != 0 ? lim->host_connections : 16;
    lim->head_fields = lim->head_fields != 0 ? lim->head_fields : 200;
    lim->head_bytes = lim->head_bytes != 0 ? lim->head_bytes : 64 << 10;
    lim->user_agent = lim->user_agent != NULL ? lim->user_agent : "mirrord/" MIRROR_VERSION;
    list_init(&l->all);
    list_init(&l->kicked);
    l->base = base;
    l->kick = event_new(base, -1, 0, on_kick, l);
    l->multi = multi_open(base, lim->connections, lim->host_connections, on_xfer_end);
    CHECK(l->kick != NULL);
    return l;
}

void xfer_loop_close(struct xfer_loop **lp)
{
    struct xfer_loop *l = *lp;

    if (l == NULL) {
        return;
    }
    *lp = NULL;
    LIST_EACH (&l->all, n) {
        xfer_free(LIST_ITEM(n, struct xfer, in_all));
    }
    message_queue_close(&l->box);
    multi_close(&l->multi);
    event_free(l->kick);
    free(l);
}

/* --- one transfer ----------------------------------------------------------------------------- */

static void set_callbacks(struct xfer *x)
{
    CURL *c = x->easy;

    curl_easy_setopt(c, CURLOPT_PRIVATE, x);
    curl_easy_setopt(c, CURLOPT_ERRORBUFFER, x->curl_says);
    curl_easy_setopt(c, CURLOPT_BUFFERSIZE, (long)READ_BYTES);
    curl_easy_setopt(c, CURLOPT_UPLOAD_BUFFERSIZE, (long)READ_BYTES);
    curl_easy_setopt(c, CURLOPT_HEADERFUNCTION, on_header);
    curl_easy_setopt(c, CURLOPT_HEADERDATA, x);
    curl_easy_setopt(c, CURLOPT_WRITEFUNCTION, on_write);
    curl_easy_setopt(c, CURLOPT_WRITEDATA, x);
    curl_easy_setopt(c, CURLOPT_READFUNCTION, on_curl_read);
    curl_easy_setopt(c, CURLOPT_READDATA, x);
    curl_easy_setopt(c, CURLOPT_SEEKFUNCTION, on_seek);
    curl_easy_setopt(c, CURLOPT_SEEKDATA, x);
    if (x->want.unacknowledged_ms != 0) {
        curl_easy_setopt(c, CURLOPT_SOCKOPTFUNCTION, on_new_socket);
        curl_easy_setopt(c, CURLOPT_SOCKOPTDATA, x);
    }
    if (x->want.admit != NULL && x->want.proxy == NULL) {
        curl_easy_setopt(c, CURLOPT_OPENSOCKETFUNCTION, on_socket);
        curl_easy_setopt(c, CURLOPT_OPENSOCKETDATA, x);
        curl_easy_setopt(c, CURLOPT_PREREQFUNCTION, on_connected);
        curl_easy_setopt(c, CURLOPT_PREREQDATA, x);
    }
}

static bool needs_lookup(const struct xfer_params *w)
{
    return w->proxy != NULL && w->proxy_resolve && w->admit != NULL && w->no_proxy == NULL &&
           w->connect_to == NULL;
}

static int open_easy(struct xfer *x)
{
    int rc = easy_open(&x->want, x->loop->limits.user_agent, x->host, &x->easy, x->lines, &x->why);

    if (rc == 0) {
        set_callbacks(x);
    }
    return rc;
}

struct xfer *xfer_start(struct xfer_loop *l, const struct xfer_params *w,
                        const struct xfer_events *ev, void *arg)
{
    struct xfer *x = NEW(struct xfer);

    CHECK(ev->on_done != NULL);
    x->magic = XFER_MAGIC;
    x->loop = l;
    x->want = *w;
    x->ev = *ev;
    x->arg = arg;
    if (w->psk != NULL) { /* the caller's may be gone while a cancelled transfer still connects */
        x->key = *w->psk;
        x->want.psk = &x->key;
    }
    if (w->body_read == NULL) {
        x->want.body_bytes = w->body.n;
    }
    list_push_back(&l->all, &x->in_all);
    head_parser_init(&x->answer, l->limits.head_bytes, l->limits.head_fields,
                     w->method == XFER_HEAD);
    if (open_easy(x) != 0) {
        x->easy = NULL; /* on_done will tell */
    } else if (needs_lookup(w)) {
        look_up(x, w->url);
        return x;
    }
    kick(x);
    return x;
}

void xfer_resume(struct xfer *x)
{
    if (x->paused) {
        x->paused = false;
        kick(x);
    }
}

bool xfer_has_sent(const struct xfer *x)
{
    long sent = 0;

    return x->easy != NULL &&
           curl_easy_getinfo(x->easy, CURLINFO_REQUEST_SIZE, &sent) == CURLE_OK && sent > 0;
}

void xfer_feed(struct xfer *x)
{
    if (x->starved) {
        x->fed = true;
        kick(x);
    }
}

void xfer_cancel(struct xfer **xp)
{
    struct xfer *x = *xp;

    if (x == NULL || x->cancelled) {
        *xp = NULL;
        return;
    }
    *xp = NULL;
    x->cancelled = true;
    kick(x); /* always later: it may stand on libcurl's stack, or on the stack of its own event */
}
