#include "server/http/h1_parse.h"

enum { CHUNK_OVERHEAD_MAX = 16 * 1024, CHUNK_DIGITS_MAX = 15 };

/* --- bytes (RFC 9110 5.6.2, 5.5) -------------------------------------------------------------- */

enum { TOKEN = 1, HOST = 2 };

static const unsigned char classes[256] = {
    ['0' ... '9'] = TOKEN | HOST,
    ['a' ... 'z'] = TOKEN | HOST,
    ['A' ... 'Z'] = TOKEN | HOST,
    ['-'] = TOKEN | HOST,
    ['.'] = TOKEN | HOST,
    ['_'] = TOKEN | HOST,
    ['~'] = TOKEN | HOST,
    ['%'] = TOKEN | HOST,
    ['!'] = TOKEN | HOST,
    ['$'] = TOKEN | HOST,
    ['&'] = TOKEN | HOST,
    ['\''] = TOKEN | HOST,
    ['*'] = TOKEN | HOST,
    ['+'] = TOKEN | HOST,
    ['#'] = TOKEN,
    ['^'] = TOKEN,
    ['`'] = TOKEN,
    ['|'] = TOKEN,
    ['('] = HOST,
    [')'] = HOST,
    [','] = HOST,
    [';'] = HOST,
    ['='] = HOST,
    [':'] = HOST,
    ['['] = HOST,
    [']'] = HOST,
};

static bool is_h1_token_char(unsigned char c)
{
    return (classes[c] & TOKEN) != 0;
}

static bool is_host(unsigned char c)
{
    return (classes[c] & HOST) != 0;
}

static bool is_value(unsigned char c)
{
    return c == '\t' || (c >= ' ' && c != 0x7f);
}

static bool is_target(unsigned char c)
{
    return c > ' ' && c != 0x7f && c != '#';
}

static bool all(struct slice s, bool (*is)(unsigned char c))
{
    for (size_t i = 0; i < s.n; i++) {
        if (!is((unsigned char)s.p[i])) {
            return false;
        }
    }
    return true;
}

bool h1_valid_target(struct slice target)
{
    return all(target, is_target);
}

bool h1_valid_host(struct slice host)
{
    struct slice name = host;
    ptrdiff_t colon;
    uint64_t port;

    if (!all(host, is_host) || host.n > 261) {
        return false;
    }
    if (host.n > 0 && host.p[0] == '[') {
        ptrdiff_t bracket = slice_find(host, ']');
        if (bracket < 3) {
            return false;
        }
        name = slice_from(host, (size_t)bracket + 1);
        colon = slice_find(name, ':');
        if (name.n > 0 && colon != 0) {
            return false;
        }
    } else {
        colon = slice_find(name, ':');
        if (slice_find(host, '[') >= 0 || slice_find(host, ']') >= 0) {
            return false;
        }
    }
    if (colon < 0 || (size_t)colon + 1 == name.n) { /* "host:" is legal (RFC 3986 3.2.3) */
        return true;
    }
    return slice_u64(slice_from(name, (size_t)colon + 1), &port) && port <= 65535;
}

/* --- where a head ends ------------------------------------------------------------------------ */

static int line_too_long(struct slice bytes, const struct h1_limits *limits)
{
    const char *lf = memchr(bytes.p, '\n', bytes.n);
    size_t first = lf != NULL ? (size_t)(lf - bytes.p) : bytes.n;

    return first > limits->uri_bytes + 64 ? -414 : -431;
}

ptrdiff_t h1_head_end(struct slice bytes, const struct h1_limits *limits, size_t *scanned)
{
    size_t at = *scanned; /* always the start of a line */

    for (;;) {
        const char *lf = at < bytes.n ? memchr(bytes.p + at, '\n', bytes.n - at) : NULL;
        size_t end;
        if (lf == NULL) {
            *scanned = at;
            return bytes.n > limits->header_bytes ? line_too_long(bytes, limits) : 0;
        }
        end = (size_t)(lf - bytes.p);
        if (end == at || bytes.p[end - 1] != '\r') {
            return -400; /* a bare LF: we and another parser would disagree about lines */
        }
        if (end + 1 > limits->header_bytes) {
            return line_too_long(bytes, limits);
        }
        if (end == at + 1 &&
            at > 2) { /* an empty line before the request line is forgiven (RFC 9112 2.2) */
            return (ptrdiff_t)end + 1;
        }
        if (end == at + 1 && at == 2) {
            return -400; /* one, not two */
        }
        at = end + 1;
    }
}

/* --- the request line ------------------------------------------------------------------------- */

static int parse_version(struct slice v, enum http_version *out)
{
    if (slice_eqs(v, "HTTP/1.1")) {
        *out = HTTP_11;
    } else if (slice_eqs(v, "HTTP/1.0")) {
        *out = HTTP_10;
    } else {
        bool shaped = v.n == 8 && slice_starts(v, SLICE("HTTP/")) && v.p[6] == '.' &&
                      v.p[5] >= '0' && v.p[5] <= '9' && v.p[7] >= '0' && v.p[7] <= '9';
        return shaped ? -505 : -400;
    }
    return 0;
}

static bool starts_without_case(struct slice s, struct slice prefix)
{
    return s.n >= prefix.n && slice_ieq(slice_first(s, prefix.n), prefix);
}

/* http://host/path -> /path, and the host it names. */
static int reduce_target(struct h1_head *h, struct slice *absolute_host)
{
    struct slice t = h->target;
    size_t skip = starts_without_case(t, SLICE("http://"))    ? 7
                  : starts_without_case(t, SLICE("https://")) ? 8
                                                              : 0;
    size_t end;

    if (t.n > 0 && t.p[0] == '/') {
        return 0;
    }
    if (skip == 0) {
        return slice_eqs(t, "*") ? -501 : -400;
    }
    t = slice_from(t, skip);
    for (end = 0; end < t.n && t.p[end] != '/' && t.p[end] != '?'; end++) {
    }
    *absolute_host = slice_first(t, end);
    h->target = slice_from(t, end);
    if (h->target.n == 0) {
        h->target = SLICE("/");
    }
    /* "http://host?query": no way to write its origin-form without a copy, and nobody sends it. */
    return h->target.p[0] == '/' && absolute_host->n > 0 ? 0 : -400;
}

static int parse_request_line(struct slice line, const struct h1_limits *limits, struct h1_head *h,
                              struct slice *absolute_host)
{
    struct slice rest = line;
    int rc;

    h->method = slice_cut(&rest, ' ');
    h->target = slice_cut(&rest, ' ');
    if (h->method.n == 0 || h->method.n > 32 || !all(h->method, is_h1_token_char) ||
        h->target.n == 0 || !all(h->target, is_target)) {
        return -400;
    }
    rc = parse_version(rest, &h->version);
    if (rc != 0) {
        return rc;
    }
    if (h->target.n > limits->uri_bytes) {
        return -414;
    }
    return slice_eqs(h->method, "CONNECT") ? -400 : reduce_target(h, absolute_host);
}

/* --- fields ----------------------------------------------------------------------------------- */

struct seen {
    bool host, length, coding;
    bool close, keep_alive;
};

static void see_connection(struct slice value, struct seen *seen)
{
    while (value.n > 0) {
        struct slice token = slice_trim(slice_cut(&value, ','));
        seen->close = seen->close || slice_ieq(token, SLICE("close"));
        seen->keep_alive = seen->keep_alive || slice_ieq(token, SLICE("keep-alive"));
    }
}

/* Fields that are ours: 1 when it is one (the pipeline does not see it), 0 when not, or a
 * refusal. */
static int take_own(const struct http_field *f, struct h1_head *h, struct seen *seen)
{
    if (slice_eqs(f->name, "host")) {
        if (seen->host || !h1_valid_host(f->value)) {
            return -400;
        }
        seen->host = true;
        h->host = f->value;
    } else if (slice_eqs(f->name, "content-length")) {
        if (seen->length || !slice_u64(f->value, &h->content_length) ||
            h->content_length > INT64_MAX) {
            return -400; /* also "5, 5": a list is refused, even of equals */
        }
        seen->length = true;
    } else if (slice_eqs(f->name, "transfer-encoding")) {
        if (seen->coding || !slice_ieq(f->value, SLICE("chunked")) || h->version != HTTP_11) {
            return -400;
        }
        seen->coding = true;
    } else if (slice_eqs(f->name, "connection")) {
        see_connection(f->value, seen);
    } else if (slice_eqs(f->name, "expect")) {
        if (!slice_ieq(f->value, SLICE("100-continue"))) {
            return -417;
        }
        h->expect_continue = h->version == HTTP_11;
    } else {
        return slice_eqs(f->name, "keep-alive") || slice_eqs(f->name, "proxy-connection") ||
               slice_eqs(f->name, "te") || slice_eqs(f->name, "trailer") ||
               slice_eqs(f->name, "upgrade");
    }
    return 1;
}

static int parse_field(char *line, size_t n, struct http_field *f)
{
    size_t name = 0;

    while (name < n && is_h1_token_char((unsigned char)line[name])) {
        if (line[name] >= 'A' && line[name] <= 'Z') {
            line[name] = (char)(line[name] + 32);
        }
        name++;
    }
    /* No colon right after the name: a blank before it, a folded line, a control byte, or no field
     * at all. */
    if (name == 0 || name == n || line[name] != ':') {
        return -400;
    }
    f->name = slice_of(line, name);
    f->value = slice_trim(slice_of(line + name + 1, n - name - 1));
    return all(f->value, is_value) ? 0 : -400;
}

static int check_h1_framing(struct h1_head *h, const struct seen *seen, struct slice absolute_host)
{
    if ((seen->length && seen->coding) || (!seen->host && h->version == HTTP_11)) {
        return -400;
    }
    if (absolute_host.n > 0) {
        if (!h1_valid_host(absolute_host) || (seen->host && !slice_ieq(absolute_host, h->host))) {
            return -400;
        }
        h->host = absolute_host;
    }
    h->framing = seen->coding                            ? H1_CHUNKED
                 : seen->length && h->content_length > 0 ? H1_LENGTH
                                                         : H1_NO_BODY;
    h->keep_alive = !seen->close && (h->version == HTTP_11 || seen->keep_alive);
    h->expect_continue = h->expect_continue && h->framing != H1_NO_BODY;
    return 0;
}

int h1_parse_head(char *bytes, size_t n, const struct h1_limits *limits, struct h1_head *head,
                  struct http_field *fields)
{
    struct seen seen = {false, false, false, false, false};
    struct slice absolute_host = SLICE_NONE;
    char *end = bytes + n;
    char *line = bytes;
    size_t count = 0;
    bool first = true;

    *head = (struct h1_head){.nfields = 0};
    if (n >= 2 && bytes[0] == '\r' && bytes[1] == '\n') {
        line += 2;
    }
    while (line < end) {
        char *lf = memchr(line, '\n', (size_t)(end - line));
        size_t len;
        int rc;
        if (lf == NULL || lf == line || lf[-1] != '\r') {
            return -400;
        }
        len = (size_t)(lf - line) - 1;
        if (len == 0) {
            break;
        }
        if (first) {
            rc = parse_request_line(slice_of(line, len), limits, head, &absolute_host);
            first = false;
        } else {
            if (count++ == limits->header_fields) {
                return -431;
            }
            rc = parse_field(line, len, &fields[head->nfields]);
            if (rc == 0) {
                rc = take_own(&fields[head->nfields], head, &seen);
                head->nfields += rc == 0;
            }
        }
        if (rc < 0) {
            return rc;
        }
        line = lf + 1;
    }
    return first ? -400 : check_h1_framing(head, &seen, absolute_host);
}

/* --- chunked bodies (RFC 9112 7.1) ------------------------------------------------------------ */

static int hex_digit(unsigned char c)
{
    if (c >= '0' && c <= '9') {
        return c - '0';
    }
    c |= 0x20;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static int overhead(struct h1_chunks *c)
{
    return ++c->overhead > CHUNK_OVERHEAD_MAX ? -400 : 0;
}

/* Blanks may stand before ';', and some senders pad the size with them; "5 junk" is no size to any
 * two parsers alike. */
static int after_size(struct h1_chunks *c, unsigned char b)
{
    if (b == '\r') {
        c->state = CHUNK_SIZE_LF;
    } else if (b == ';') {
        c->state = CHUNK_EXTENSION;
    } else if (b == ' ' || b == '\t') {
        c->state = CHUNK_SIZE_BLANK;
        return overhead(c);
    } else {
        return -400;
    }
    return 0;
}

static int expect(struct h1_chunks *c, unsigned char b, unsigned char want,
                  enum h1_chunk_state next)
{
    c->state = next;
    return b == want ? 0 : -400;
}

/* One byte outside of data. */
static int step_h1_chunk(struct h1_chunks *c, unsigned char b)
{
    int digit;

    switch (c->state) {
    case CHUNK_SIZE_FIRST:
        c->left = 0;
        c->digits = 0;
        c->state = CHUNK_SIZE;
        if (hex_digit(b) < 0) {
            return -400;
        }
        __attribute__((fallthrough));
    case CHUNK_SIZE:
        digit = hex_digit(b);
        if (digit < 0) {
            return after_size(c, b);
        }
        if (++c->digits > CHUNK_DIGITS_MAX) {
            return -400;
        }
        c->left = c->left << 4 | (uint64_t)digit;
        return 0;
    case CHUNK_SIZE_BLANK:
        return after_size(c, b);
    case CHUNK_EXTENSION:
        if (b == '\r') {
            c->state = CHUNK_SIZE_LF;
            return 0;
        }
        return is_value(b) ? overhead(c) : -400;
    case CHUNK_SIZE_LF:
        return expect(c, b, '\n', c->left > 0 ? CHUNK_DATA : CHUNK_TRAILER_FIRST);
    case CHUNK_DATA_CR:
        return expect(c, b, '\r', CHUNK_DATA_LF);
    case CHUNK_DATA_LF:
        return expect(c, b, '\n', CHUNK_SIZE_FIRST);
    case CHUNK_TRAILER_FIRST:
        if (b == '\r') {
            c->state = CHUNK_END_LF;
            return 0;
        }
        c->state = CHUNK_TRAILER_NAME;
        return is_h1_token_char(b) ? overhead(c) : -400;
    case CHUNK_TRAILER_NAME:
        if (b == ':') {
            c->state = CHUNK_TRAILER;
        }
        return b == ':' || is_h1_token_char(b) ? overhead(c) : -400;
    case CHUNK_TRAILER: /* trailers are dropped, whatever they say */
        if (b == '\r') {
            c->state = CHUNK_TRAILER_LF;
            return 0;
        }
        return is_value(b) ? overhead(c) : -400;
    case CHUNK_TRAILER_LF:
        return expect(c, b, '\n', CHUNK_TRAILER_FIRST);
    case CHUNK_END_LF:
        return expect(c, b, '\n', CHUNK_DONE);
    case CHUNK_DATA:
    case CHUNK_DONE:
        break;
    }
    return 0;
}

int h1_chunks_feed(struct h1_chunks *c, struct slice bytes, size_t *used, struct slice *data)
{
    size_t i = 0;
    int rc = 0;

    *data = SLICE_NONE;
    while (i < bytes.n && c->state != CHUNK_DATA && c->state != CHUNK_DONE && rc == 0) {
        rc = step_h1_chunk(c, (unsigned char)bytes.p[i++]);
    }
    if (rc == 0 && c->state == CHUNK_DATA && i < bytes.n) {
        size_t n = (size_t)min_u64(c->left, bytes.n - i);
        *data = slice_of(bytes.p + i, n);
        i += n;
        c->left -= n;
        if (c->left == 0) {
            c->state = CHUNK_DATA_CR;
        }
    }
    *used = i;
    return rc != 0 ? rc : c->state == CHUNK_DONE;
}
