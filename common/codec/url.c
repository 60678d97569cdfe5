#include "common/codec/url.h"

#include "common/base/ascii.h"

enum { HOST_MAX = 253, URL_MAX = 64 << 10 };

/* RFC 3986 2.3 */
static bool is_unreserved(char c)
{
    return ascii_is_alpha(c) || ascii_is_digit(c) || c == '-' || c == '.' || c == '_' || c == '~';
}

static bool is_blank_or_wide(char c)
{
    return c == ' ' || (uint8_t)c >= 0x80 || (c != '\0' && strchr("\"<>\\^`{|}", c) != NULL);
}

static bool is_control(char c)
{
    return (uint8_t)c < 0x20 || c == 0x7f;
}

static int check_bytes(struct slice text, struct err *e)
{
    if (text.n > URL_MAX) {
        return err_set(e, E_INVALID, "the URL is too long: %zu bytes", text.n);
    }
    for (size_t i = 0; i < text.n; i++) {
        if (is_control(text.p[i]) || text.p[i] == ' ' || (uint8_t)text.p[i] >= 0x80 ||
            text.p[i] == '\\') {
            return err_set(e, E_INVALID, "the URL has an invalid byte 0x%02x at position %zu",
                           (uint8_t)text.p[i], i);
        }
    }
    return 0;
}

static bool host_ok(struct slice host, bool ipv6)
{
    if (host.n == 0 || host.n > HOST_MAX) {
        return false;
    }
    for (size_t i = 0; i < host.n; i++) {
        char c = host.p[i];
        bool ok = ipv6 ? ascii_is_digit(c) || c == ':' || c == '.' || (c >= 'a' && c <= 'f') ||
                             (c >= 'A' && c <= 'F')
                       : ascii_is_alpha(c) || ascii_is_digit(c) || c == '-' || c == '.' || c == '_';
        if (!ok) {
            return false;
        }
    }
    return true;
}

/* "host", "host:port", "[::1]:port" */
static bool split_authority(struct slice text, struct url *u)
{
    struct slice port;
    uint64_t number;

    if (text.n > 0 && text.p[0] == '[') {
        ptrdiff_t end = slice_find(text, ']');
        if (end < 0) {
            return false;
        }
        u->ipv6 = true;
        u->host = slice_first(slice_from(text, 1), (size_t)end - 1);
        port = slice_from(text, (size_t)end + 1);
        if (port.n > 0 && port.p[0] != ':') {
            return false;
        }
    } else {
        ptrdiff_t colon = slice_find(text, ':');
        u->host = colon < 0 ? text : slice_first(text, (size_t)colon);
        port = colon < 0 ? SLICE_NONE : slice_from(text, (size_t)colon);
    }
    u->port = u->tls ? 443 : 80;
    if (port.n > 1) {
        if (!slice_u64(slice_from(port, 1), &number) || number == 0 || number > UINT16_MAX) {
            return false;
        }
        u->port = (uint16_t)number;
    }
    return host_ok(u->host, u->ipv6);
}

/* Length of "scheme" when text begins with "scheme:", else 0. */
static size_t scheme_length(struct slice text)
{
    size_t n = 0;

    if (text.n == 0 || !ascii_is_alpha(text.p[0])) {
        return 0;
    }
    while (n < text.n && (ascii_is_alpha(text.p[n]) || ascii_is_digit(text.p[n]) ||
                          text.p[n] == '+' || text.p[n] == '-' || text.p[n] == '.')) {
        n++;
    }
    return n < text.n && text.p[n] == ':' ? n : 0;
}

static struct slice without_fragment(struct slice text)
{
    return slice_cut(&text, '#');
}

int url_split(struct slice text, struct url *out, struct err *e)
{
    size_t n = scheme_length(text);
    struct slice scheme = slice_first(text, n);
    struct slice rest;
    size_t end = 0;
    ptrdiff_t query;
    int rc = check_bytes(text, e);

    *out = (struct url){0};
    if (rc != 0) {
        return rc;
    }
    if (n == 0) {
        return err_set(e, E_INVALID, "not a URL: the scheme is missing");
    }
    out->tls = slice_ieq(scheme, SLICE("https"));
    if (!out->tls && !slice_ieq(scheme, SLICE("http"))) {
        return err_set(e, E_UNSUPPORTED,
                       "scheme \"" SLICE_FMT "\" is not supported; use http or https",
                       SLICE_ARG(slice_first(scheme, scheme.n < 16 ? scheme.n : 16)));
    }
    rest = without_fragment(slice_from(text, n + 1));
    if (!slice_starts(rest, SLICE("//"))) {
        return err_set(e, E_INVALID, "not a URL: the host is missing");
    }
    rest = slice_from(rest, 2);
    while (end < rest.n && rest.p[end] != '/' && rest.p[end] != '?') {
        end++;
    }
    if (slice_find(slice_first(rest, end), '@') >= 0) {
        return err_set(e, E_INVALID, "the URL has a user name, which is not allowed");
    }
    if (!split_authority(slice_first(rest, end), out)) {
        return err_set(e, E_INVALID, "the URL has an invalid host or port");
    }
    rest = slice_from(rest, end);
    query = slice_find(rest, '?');
    out->path = query < 0 ? rest : slice_first(rest, (size_t)query);
    out->query = query < 0 ? SLICE_NONE : slice_from(rest, (size_t)query + 1);
    if (out->path.n == 0) {
        out->path = SLICE("/");
    }
    return 0;
}

void url_write_origin(const struct url *u, struct buf *out)
{
    buf_str(out, u->tls ? "https://" : "http://");
    buf_str(out, u->ipv6 ? "[" : "");
    buf_adds(out, u->host);
    buf_str(out, u->ipv6 ? "]" : "");
    if (u->port != (u->tls ? 443 : 80)) {
        buf_addf(out, ":%u", u->port);
    }
}

void url_write(const struct url *u, struct buf *out)
{
    url_write_origin(u, out);
    buf_adds(out, u->path);
    if (u->query.p != NULL) {
        buf_byte(out, '?');
        buf_adds(out, u->query);
    }
}

bool url_same_host(const struct url *a, const struct url *b)
{
    return a->tls == b->tls && a->port == b->port && slice_ieq(a->host, b->host);
}

/* RFC 3986 5.2.4, over whole segments; appends to out, which holds what must stay in front. */
static void remove_dots(struct slice path, struct buf *out)
{
    size_t base = out->n;

    while (path.n > 0) {
        struct slice seg;
        bool last;

        path = slice_from(path, 1); /* the '/' in front of the segment */
        last = slice_find(path, '/') < 0;
        seg = slice_cut(&path, '/');
        if (slice_eq(seg, SLICE("..")) || slice_eq(seg, SLICE("."))) {
            while (seg.n == 2 && out->n > base && out->p[--out->n] != '/') {
            }
            if (last) {
                buf_byte(out, '/');
            }
        } else {
            buf_byte(out, '/');
            buf_adds(out, seg);
        }
        if (!last) {
            path = slice_of(path.p - 1, path.n + 1); /* the '/' that slice_cut took */
        }
    }
}

static int clean_ref(struct slice ref, struct buf *out, struct err *e)
{
    ref = without_fragment(slice_trim(ref));
    for (size_t i = 0; i < ref.n; i++) {
        if (is_control(ref.p[i])) {
            return err_set(e, E_INVALID, "the link has a control byte");
        }
        if (is_blank_or_wide(ref.p[i])) {
            buf_addf(out, "%%%02X", (uint8_t)ref.p[i]);
        } else {
            buf_byte(out, (uint8_t)ref.p[i]);
        }
    }
    return out->rc != 0 ? err_set(e, E_INVALID, "the link is longer than %d bytes", URL_MAX) : 0;
}

/* ref has no scheme: what stands in front of its path comes from base. */
static void resolve_relative(const struct url *base, struct slice ref, struct buf *out)
{
    ptrdiff_t q = slice_find(ref, '?');
    struct slice path = q < 0 ? ref : slice_first(ref, (size_t)q);
    struct slice query = q < 0 ? SLICE_NONE : slice_from(ref, (size_t)q);
    struct buf merged = BUF_INIT(2 * URL_MAX);

    url_write_origin(base, out);
    if (path.n == 0) {
        buf_adds(out, base->path);
        if (query.p == NULL && base->query.p != NULL) {
            buf_byte(out, '?');
            buf_adds(out, base->query);
        }
    } else {
        if (path.p[0] != '/') {
            buf_adds(&merged, slice_first(base->path, slice_behind(base->path, '/')));
        }
        buf_adds(&merged, path);
        remove_dots(buf_slice(&merged), out);
    }
    buf_adds(out, query);
    buf_free(&merged);
}

int url_resolve(struct slice base, struct slice ref, struct buf *out, struct err *e)
{
    struct buf clean = BUF_INIT(URL_MAX);
    struct buf whole = BUF_INIT(URL_MAX);
    struct url b;
    struct url u;
    int rc = url_split(base, &b, e);

    if (rc != 0) {
        return rc;
    }
    rc = clean_ref(ref, &clean, e);
    if (rc != 0) {
        goto out;
    }
    if (scheme_length(buf_slice(&clean)) != 0) {
        buf_adds(&whole, buf_slice(&clean));
    } else if (slice_starts(buf_slice(&clean), SLICE("//"))) {
        buf_str(&whole, b.tls ? "https:" : "http:");
        buf_adds(&whole, buf_slice(&clean));
    } else {
        resolve_relative(&b, buf_slice(&clean), &whole);
    }
    if (whole.rc != 0) {
        rc = err_set(e, E_INVALID, "the link is longer than %d bytes", URL_MAX);
        goto out;
    }
    rc = url_split(buf_slice(&whole), &u, e);
    if (rc == 0) {
        struct slice path = u.path;
        url_write_origin(&u, out);
        remove_dots(path, out);
        if (u.query.p != NULL) {
            buf_byte(out, '?');
            buf_adds(out, u.query);
        }
        rc = out->rc != 0 ? err_set(e, E_TOOBIG, "the link is longer than %zu bytes", out->max) : 0;
    }
out:
    buf_free(&clean);
    buf_free(&whole);
    return rc;
}

static void percent_encode(struct slice raw, bool slash_stays, struct buf *out)
{
    for (size_t i = 0; i < raw.n; i++) {
        if (is_unreserved(raw.p[i]) || (slash_stays && raw.p[i] == '/')) {
            buf_byte(out, (uint8_t)raw.p[i]);
        } else {
            buf_addf(out, "%%%02X", (uint8_t)raw.p[i]);
        }
    }
}

void url_encode(struct slice raw, struct buf *out)
{
    percent_encode(raw, false, out);
}

void url_encode_path(struct slice raw, struct buf *out)
{
    percent_encode(raw, true, out);
}

/* The byte at *i, decoded; *i moves behind it. False on a bad escape. */
static bool next_byte(struct slice text, size_t *i, char *out, bool *escaped)
{
    uint8_t c;

    *escaped = text.p[*i] == '%';
    if (!*escaped) {
        *out = text.p[(*i)++];
        return true;
    }
    if (text.n - *i < 3 || !slice_hex(slice_of(text.p + *i + 1, 2), &c, 1)) {
        return false;
    }
    *i += 3;
    *out = (char)c;
    return true;
}

static struct slice encoded(struct slice raw, bool slash_stays, struct arena *a)
{
    struct buf b = BUF_INIT(3 * raw.n);
    struct slice out;

    percent_encode(raw, slash_stays, &b);
    out = arena_copy(a, slice_of(b.p != NULL ? b.p : "", b.n));
    buf_free(&b);
    return out;
}

struct slice url_encoded(struct slice raw, struct arena *a)
{
    return encoded(raw, false, a);
}

struct slice url_encoded_path(struct slice raw, struct arena *a)
{
    return encoded(raw, true, a);
}

bool url_decode(struct slice text, struct buf *out)
{
    for (size_t i = 0; i < text.n;) {
        char c;
        bool escaped;

        if (!next_byte(text, &i, &c, &escaped)) {
            return false;
        }
        buf_byte(out, (uint8_t)c);
    }
    return true;
}

/* '.' and '..' between any two separators, written or encoded. */
static bool has_dot_segment(struct slice path)
{
    size_t start = 0;

    for (size_t i = 0; i <= path.n; i++) {
        bool slash = i < path.n && path.p[i] == '/';
        bool encoded = i + 3 <= path.n && memcmp(path.p + i, "%2F", 3) == 0;

        if (i == path.n || slash || encoded) {
            struct slice seg = slice_of(path.p + start, i - start);
            if (slice_eq(seg, SLICE(".")) || slice_eq(seg, SLICE(".."))) {
                return true;
            }
            start = i + (encoded ? 3 : 1);
            i = start - 1;
        }
    }
    return false;
}

int path_canonical(struct slice raw, struct buf *out, struct err *e)
{
    size_t base = out->n;

    if (raw.n == 0 || raw.p[0] != '/') {
        return err_set(e, E_INVALID, "the path does not begin with '/'");
    }
    for (size_t i = 0; i < raw.n;) {
        char c;
        bool escaped;

        if (!next_byte(raw, &i, &c, &escaped)) {
            return err_set(e, E_INVALID, "the path has an invalid %%-escape");
        }
        if (is_control(c)) {
            return err_set(e, E_INVALID, "the path has a control byte: 0x%02x", (uint8_t)c);
        }
        if (escaped && (c == '/' || c == '%')) {
            buf_str(out, c == '/' ? "%2F" : "%25");
        } else {
            buf_byte(out, (uint8_t)c);
        }
    }
    if (out->rc != 0) {
        return err_set(e, E_TOOBIG, "the path is longer than %zu bytes", out->max);
    }
    if (has_dot_segment(slice_of(out->p + base, out->n - base))) {
        return err_set(e, E_INVALID, "the path has a '.' or '..' segment");
    }
    return 0;
}

void url_hide_queries(char *text)
{
    enum { DOTS = 3 };
    char *out = text;

    for (const char *at = text; *at != '\0';) {
        size_t n;
        *out++ = *at++;
        if (out[-1] != '?') {
            continue;
        }
        n = strcspn(at, " \t\n");
        while (n > 0 && strchr(":,;.)\"'?", at[n - 1]) != NULL) {
            n--; /* the sentence's own */
        }
        for (size_t i = 0; i < n && i < DOTS; i++) {
            *out++ = '.';
        }
        at += n;
    }
    *out = '\0';
}
