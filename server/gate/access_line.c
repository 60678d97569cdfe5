#include "server/gate/access_line.h"

#include <math.h>
#include <netinet/in.h>
#include <stdio.h>
#include <time.h>

#include "server/gate/gate.h"

enum {
    VALUE_BYTES = 1 << 10, /* longest value, escapes included */
    VALUE_ROOM = VALUE_BYTES + TOKEN_SHOWN + 2,
    VALUES = 9, /* of bytes from outside, in the longest form */
};

_Static_assert(VALUES *VALUE_ROOM + 1024 <= ACCESS_LINE_BYTES, "every line fits");

/* --- pieces: each writes at `to` and returns where it ended --- */

static inline char *put_access_text(char *to, struct slice s)
{
    if (s.n > 0) {
        memcpy(to, s.p, s.n);
    }
    return to + s.n;
}

static inline char *put_byte(char *to, char c)
{
    *to = c;
    return to + 1;
}

static char *put_u64(char *to, uint64_t v)
{
    char room[U64_DIGITS];

    return put_access_text(to, slice_of_u64(room, v));
}

/* So many digits, with zeros in front. */
static char *put_digits(char *to, unsigned digits, unsigned v)
{
    for (unsigned i = digits; i-- > 0; v /= 10) {
        to[i] = (char)('0' + v % 10);
    }
    return to + digits;
}

/* As printf's "%.3f" of (double)ns / 1e6 has it: a half is rounded as the binary fraction lies, an
 * exact one to even. */
static char *put_ms(char *to, uint64_t ns)
{
    uint64_t us = ns / 1000, rest = ns % 1000;

    if (rest == 500) {
        double quotient = (double)ns / 1e6;
        double beyond = fma(quotient, 1e6, -(double)ns);
        us += beyond > 0 || (beyond == 0 && us % 2 == 1);
    } else {
        us += rest > 500;
    }
    to = put_u64(to, us / 1000);
    return put_digits(put_byte(to, '.'), 3, (unsigned)(us % 1000));
}

static char *put_hex(char *to, unsigned v)
{
    bool begun = false;

    for (int shift = 12; shift >= 0; shift -= 4) {
        unsigned digit = v >> shift & 15;
        begun = begun || digit != 0 || shift == 0;
        if (begun) {
            to = put_byte(to, "0123456789abcdef"[digit]);
        }
    }
    return to;
}

static char *put_ipv4(char *to, const uint8_t address[4])
{
    for (unsigned i = 0; i < 4; i++) {
        to = put_u64(i > 0 ? put_byte(to, '.') : to, address[i]);
    }
    return to;
}

/* The first of the longest runs of zero words, two at least; *n 0: there is none. */
static unsigned longest_zeros(const unsigned word[8], unsigned *n)
{
    unsigned best = 0;

    *n = 0;
    for (unsigned i = 0; i < 8;) {
        unsigned end = i;
        while (end < 8 && word[end] == 0) {
            end++;
        }
        if (end - i > 1 && end - i > *n) {
            best = i;
            *n = end - i;
        }
        i = end > i ? end : i + 1;
    }
    return best;
}

/* As inet_ntop() and RFC 5952 have it. */
static char *put_ipv6(char *to, const uint8_t address[16])
{
    unsigned word[8], zeros_n, zeros;

    for (unsigned i = 0; i < 8; i++) {
        word[i] = (unsigned)address[2 * i] << 8 | address[2 * i + 1];
    }
    zeros = longest_zeros(word, &zeros_n);
    for (unsigned i = 0; i < 8; i++) {
        if (zeros_n > 0 && i == zeros) {
            to = put_byte(to, ':');
            i += zeros_n - 1;
            if (i == 7) {
                to = put_byte(to, ':');
            }
            continue;
        }
        to = i > 0 ? put_byte(to, ':') : to;
        if (i == 6 && zeros_n > 0 && zeros == 0 &&
            (zeros_n == 6 || (zeros_n == 5 && word[5] == 0xffff))) {
            return put_ipv4(to, address + 12);
        }
        to = put_hex(to, word[i]);
    }
    return to;
}

static char *put_client(char *to, const struct sockaddr_storage *peer)
{
    uint8_t address[ADDRESS_BYTES];

    address_of(peer, address);
    switch (peer->ss_family) {
    case AF_INET:
        return put_ipv4(to, address + 12);
    case AF_INET6:
        return put_ipv6(to, address);
    default:
        return put_byte(to, '-');
    }
}

/* Stays as it is wherever it stands; an 'm' may begin a token. */
static inline bool is_plain_byte(uint8_t c)
{
    return c >= ' ' && c < 0x7f && c != '"' && c != '\\' && c != 'm';
}

/* The same of eight bytes at once (Anderson, Bit Twiddling Hacks: "Determine if a word has a zero
 * byte", "a byte less than n"). */
static inline bool all_plain(uint64_t w)
{
    const uint64_t ones = ~UINT64_C(0) / 255, tops = ones * 128;
    uint64_t quote = w ^ ones * '"', backslash = w ^ ones * '\\', m = w ^ ones * 'm';
    uint64_t outside = (w - ones * ' ') | (w + ones) | w;
    uint64_t special =
        ((quote - ones) & ~quote) | ((backslash - ones) & ~backslash) | ((m - ones) & ~m);

    return ((outside | special) & tops) == 0;
}

static size_t token_at(struct slice s)
{
    return s.n > TOKEN_SHOWN && s.p[1] == 'r' ? token_bytes(s) : 0;
}

/* Bytes from outside: printable ASCII stays, but of tokens their id (whoever errs in a repo's name
 * has theirs in a path that nobody takes it out of), all else becomes \u00XX (json) or \xXX
 * (combined). Cut at VALUE_BYTES. */
static char *put_escaped(char *to, struct slice s, bool json)
{
    const char *cut = to + VALUE_BYTES - 8;

    for (size_t i = 0; i < s.n; i++) {
        uint8_t c = (uint8_t)s.p[i];
        size_t token;

        if (to > cut) {
            return put_access_text(to, SLICE("..."));
        }
        if (s.n - i >= 8 && to + 7 <= cut) {
            uint64_t w;
            memcpy(&w, s.p + i, 8);
            if (all_plain(w)) {
                memcpy(to, &w, 8);
                to += 8;
                i += 7;
                continue;
            }
        }
        if (is_plain_byte(c)) {
            to = put_byte(to, (char)c);
        } else if (c == 'm') {
            token = token_at(slice_from(s, i));
            if (token > TOKEN_SHOWN) {
                to = put_access_text(to, slice_of(s.p + i, TOKEN_SHOWN));
                to = put_access_text(to, SLICE("..."));
                i += token - 1;
            } else {
                to = put_byte(to, 'm');
            }
        } else if (c == '"' || c == '\\') {
            to = put_byte(put_byte(to, '\\'), (char)c);
        } else {
            to = put_access_text(to, json ? SLICE("\\u00") : SLICE("\\x"));
            to = put_byte(to, "0123456789abcdef"[c >> 4]);
            to = put_byte(to, "0123456789abcdef"[c & 15]);
        }
    }
    return to;
}

/* --- lines --- */

static void tell_second(struct access_second *second, uint64_t unix_s)
{
    static const char month[] = "JanFebMarAprMayJunJulAugSepOctNovDec";
    time_t s = (time_t)unix_s;
    struct tm tm;

    if (second->unix_s == unix_s && second->iso[0] != '\0') {
        return;
    }
    gmtime_r(&s, &tm);
    second->unix_s = unix_s;
    snprintf(second->iso, sizeof second->iso, "%04d-%02d-%02dT%02d:%02d:%02d", tm.tm_year + 1900,
             tm.tm_mon + 1, tm.tm_mday, tm.tm_hour, tm.tm_min, tm.tm_sec);
    snprintf(second->clf, sizeof second->clf, "%02d/%.3s/%04d:%02d:%02d:%02d +0000", tm.tm_mday,
             month + tm.tm_mon * 3, tm.tm_year + 1900, tm.tm_hour, tm.tm_min, tm.tm_sec);
}

static struct slice protocol_text(const struct access_entry *en)
{
    if (en->protocol != NULL) {
        return slice_str(en->protocol);
    }
    switch (en->req->version) {
    case HTTP_10:
        return SLICE("HTTP/1.0");
    case HTTP_11:
        return SLICE("HTTP/1.1");
    case HTTP_2:
        return SLICE("HTTP/2");
    }
    return SLICE_NONE;
}

static char *put_status(char *to, int status)
{
    return put_u64(status < 0 ? put_byte(to, '-') : to, (uint64_t)(status < 0 ? -status : status));
}

static inline char *put_value(char *to, struct slice lead, struct slice value)
{
    return put_byte(put_escaped(put_access_text(to, lead), value, true), '"');
}

/* The path without the query: signatures and keys travel there. */
static char *put_json(char *to, const struct access_second *second, const struct access_entry *en,
                      unsigned ms)
{
    const struct http_req *r = en->req;

    to = put_access_text(put_access_text(to, SLICE("{\"ts\":\"")), slice_of(second->iso, 19));
    to = put_digits(put_byte(to, '.'), 3, ms);
    to = put_access_text(put_access_text(to, SLICE("Z\",\"id\":\"")), slice_str(r->id));
    to = put_client(put_access_text(to, SLICE("\",\"client\":\"")), r->peer);
    to = put_value(to, SLICE("\",\"principal\":\""), en->who != NULL ? en->who->name : SLICE_NONE);
    to = put_value(to, SLICE(",\"method\":\""), r->method_text);
    to = put_value(to, SLICE(",\"host\":\""), r->host);
    to = put_value(to, SLICE(",\"path\":\""), r->path);
    to = put_access_text(put_access_text(to, SLICE(",\"proto\":\"")), protocol_text(en));
    to = put_access_text(to, r->tls ? SLICE("\",\"tls\":true") : SLICE("\",\"tls\":false"));
    to = put_status(put_access_text(to, SLICE(",\"status\":")), en->status);
    to = put_u64(put_access_text(to, SLICE(",\"bytes\":")), en->bytes);
    to = put_access_text(to,
                         en->complete ? SLICE(",\"complete\":true") : SLICE(",\"complete\":false"));
    to = put_ms(put_access_text(to, SLICE(",\"dur_ms\":")), en->took_ns);
    to = put_ms(put_access_text(to, SLICE(",\"ttfb_ms\":")), en->first_ns);
    to = put_value(to, SLICE(",\"cache\":\""), slice_str(en->cache));
    to = put_value(to, SLICE(",\"repo\":\""), en->repo);
    to = put_value(to, SLICE(",\"range\":\""), http_req_field(r, "range"));
    to = put_value(to, SLICE(",\"ua\":\""), http_req_field(r, "user-agent"));
    if (en->protocol != NULL) {
        to = put_value(to, SLICE(",\"outcome\":\""), slice_str(en->outcome));
        to = put_u64(put_access_text(to, SLICE(",\"files\":")), en->files);
    }
    return put_access_text(to, SLICE("}\n"));
}

static char *put_or_dash(char *to, struct slice s)
{
    return put_escaped(to, s.n > 0 ? s : SLICE("-"), false);
}

static char *put_combined(char *to, const struct access_second *second,
                          const struct access_entry *en)
{
    const struct http_req *r = en->req;

    to = put_access_text(put_client(to, r->peer), SLICE(" - "));
    to = put_or_dash(to, en->who != NULL ? en->who->name : SLICE_NONE);
    to = put_access_text(put_access_text(to, SLICE(" [")), slice_of(second->clf, 26));
    to = put_escaped(put_access_text(to, SLICE("] \"")), r->method_text, false);
    to = put_escaped(put_byte(to, ' '), r->path, false);
    to = put_access_text(put_byte(to, ' '), protocol_text(en));
    to = put_status(put_access_text(to, SLICE("\" ")), en->status);
    to = put_u64(put_byte(to, ' '), en->bytes);
    to = put_or_dash(put_access_text(to, SLICE(" \"")), http_req_field(r, "referer"));
    to = put_or_dash(put_access_text(to, SLICE("\" \"")), http_req_field(r, "user-agent"));
    return put_access_text(to, SLICE("\"\n"));
}

struct slice access_line(char room[ACCESS_LINE_BYTES], struct access_second *second, bool json,
                         const struct access_entry *en, uint64_t unix_ms)
{
    char *end;

    tell_second(second, unix_ms / 1000);
    end = json ? put_json(room, second, en, (unsigned)(unix_ms % 1000))
               : put_combined(room, second, en);
    return slice_of(room, (size_t)(end - room));
}
