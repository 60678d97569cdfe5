#include "server/repo/forward.h"

#include <ctype.h>
#include <stdlib.h>

#include "common/hash/digest.h"
#include "server/cache/variant.h"
#include "server/repo/repo.h"

enum { NAME_BYTES = 64 };

/* --- which ones ------------------------------------------------------------------------------- */

static const struct {
    const char *name; /* with a '-' at the end: all that begin with it */
    const char *why;
} refused[] = {
    {"accept-encoding",
     "the cache stores bodies without a content coding, whatever a client accepts"},
    {"authorization", "the response to one client's credentials would be served to all"},
    {"cookie", "the response to one client's cookies would be served to all"},
    {"cookie2", "the response to one client's cookies would be served to all"},
    {"proxy-", "it applies between a client and this server only"},
    {"host", "this server sets it for the origin"},
    {"range", "this server makes the ranges itself"},
    {"if-", "this server evaluates the conditions itself"},
    {"cache-control", "this server handles it itself"},
    {"pragma", "this server handles it itself"},
    {"content-", "requests to this server have no body"},
    {"connection", "it applies to one connection"},
    {"keep-alive", "it applies to one connection"},
    {"te", "it applies to one connection"},
    {"trailer", "it applies to one connection"},
    {"transfer-encoding", "it applies to one connection"},
    {"upgrade", "it applies to one connection"},
    {"http2-settings", "it applies to one connection"},
    {"expect", "it applies to one request"},
    {"max-forwards", "it applies to one request"},
    {"via", "it names the client, not the resource"},
    {"forwarded", "it names the client, not the resource"},
    {"x-forwarded-", "it names the client, not the resource"},
    {"x-real-ip", "it names the client, not the resource"},
    {"x-client-ip", "it names the client, not the resource"},
    {"true-client-ip", "it names the client, not the resource"},
    {"x-host", "this server sets it for the origin"},
    {"x-original-", "some origins use it as the address"},
    {"x-rewrite-url", "some origins use it as the address"},
    {"x-http-method", "some origins use it as the method"},
    {"x-http-method-override", "some origins use it as the method"},
    {"x-method-override", "some origins use it as the method"},
    {"x-amz-", "the response to one client's credentials would be served to all"},
    {"x-goog-", "the response to one client's credentials would be served to all"},
    {"x-jfrog-art-api", "the response to one client's credentials would be served to all"},
    {"x-request-id", "it differs in each request"},
    {"date", "it differs in each request"},
};

/* By one of its words: there are more names for somebody's own than anybody could list. */
static bool is_secret(struct slice name)
{
    static const char *const words[] = {"token",  "key",      "apikey",  "auth",
                                        "secret", "password", "session", "signature"};

    while (name.n > 0) {
        size_t n = 0;
        while (n < name.n && name.p[n] != '-' && name.p[n] != '_') {
            n++;
        }
        for (size_t i = 0; i < ARRAY_LEN(words); i++) {
            if (slice_ieq(slice_first(name, n), slice_str(words[i]))) {
                return true;
            }
        }
        name = slice_from(name, min_u64(n + 1, name.n));
    }
    return false;
}

static bool is_forwarded_field_name(const char *name)
{
    for (const char *p = name; *p != '\0'; p++) {
        if (!isalnum((unsigned char)*p) && strchr("!#$%&'*+-.^_`|~", *p) == NULL) {
            return false;
        }
    }
    return *name != '\0';
}

const char *forward_refuses(const char *name)
{
    struct slice n = slice_str(name);

    if (!is_forwarded_field_name(name) || n.n > NAME_BYTES) {
        return "that is not a valid field name";
    }
    for (size_t i = 0; i < ARRAY_LEN(refused); i++) {
        struct slice r = slice_str(refused[i].name);
        if (slice_ieq(n, r) ||
            (slice_ends(r, SLICE("-")) && n.n > r.n && slice_ieq(slice_first(n, r.n), r))) {
            return refused[i].why;
        }
    }
    return is_secret(n) ? "the response to one client's credentials would be served to all" : NULL;
}

/* --- of one request --------------------------------------------------------------------------- */

static bool is_one_of(char c, const char *set)
{
    return c != '\0' && strchr(set, c) != NULL;
}

static bool is_field_blank(char c)
{
    return is_one_of(c, " \t");
}

/* Without blanks around what separates members; small letters where case means nothing: in names,
 * not in what a parameter is set to (RFC 9110 5.6.6). Quoted text stays. */
static struct slice squeeze(struct slice s, const char *separators, bool small, struct arena *a)
{
    char *to = arena_alloc(a, s.n + 1);
    bool quoted = false;
    bool value = false; /* of a parameter */
    size_t n = 0;

    for (size_t i = 0; i < s.n; i++) {
        char c = s.p[i];
        bool parts = !quoted && is_one_of(c, separators);
        if (c == '"') {
            quoted = !quoted;
        } else if (quoted && c == '\\' && i + 1 < s.n) {
            to[n++] = c;
            c = s.p[++i];
        }
        while (parts && n > 0 && is_field_blank(to[n - 1])) {
            n--;
        }
        if (!quoted && is_field_blank(c) && (n == 0 || is_one_of(to[n - 1], separators))) {
            continue;
        }
        value = !parts && (value || (!quoted && c == '='));
        to[n++] = small && !quoted && !value ? (char)tolower((unsigned char)c) : c;
    }
    while (n > 0 && is_field_blank(to[n - 1])) {
        n--;
    }
    return slice_of(to, n);
}

struct slice forward_same(struct slice name, struct slice value, struct arena *a)
{
    bool types = slice_eqs(name, "accept");
    bool taste = types || slice_eqs(name, "accept-language") || slice_eqs(name, "accept-charset");
    struct slice s = squeeze(value, taste ? ",;" : ",", taste, a);

    if (s.n == 0 || (taste && slice_eqs(s, types ? "*/*" : "*"))) {
        return SLICE_NONE;
    }
    return s;
}

static struct slice held_by(struct slice name, struct slice value, struct arena *a)
{
    struct slice same = forward_same(name, value, a);
    struct digest d;
    char hex[DIGEST_HEX + 1];

    if (same.n <= VARIANT_VALUE) {
        return same;
    }
    digest_of(same, &d);
    digest_format(&d, hex);
    return arena_copy(a, slice_first(slice_str(hex), VARIANT_VALUE));
}

static bool is_known(const struct lookup_field *f, size_t n, struct slice name)
{
    for (size_t i = 0; i < n; i++) {
        if (slice_eq(f[i].name, name)) {
            return true;
        }
    }
    return false;
}

/* Fields of the client that the repo does not forward, though an answer may vary by them. */
static size_t read_others(const struct http_req *req, struct lookup_field *f, size_t n)
{
    size_t most = n + VARIANT_NAMES;

    for (size_t i = 0; i < req->nfields && n < most; i++) {
        struct slice name = req->fields[i].name;
        struct slice text = arena_copy(req->arena, name); /* ends with a NUL */
        if (name.n > NAME_BYTES || variant_ignores(name) || forward_refuses(text.p) != NULL ||
            is_known(f, n, name)) {
            continue;
        }
        struct slice value = http_req_list(req, text.p);
        struct slice same = held_by(name, value, req->arena);
        bool taste = slice_eqs(name, "accept") || slice_eqs(name, "accept-language");
        if (same.p != NULL) {
            f[n++] = (struct lookup_field){
                .sent = taste && value.n <= VARIANT_VALUES / 2 ? SENT_ONCE_NAMED : NEVER_SENT,
                .name = name,
                .value = value,
                .same = same,
            };
        }
    }
    return n;
}

static int by_field_name(const void *a, const void *b)
{
    const struct lookup_field *x = a;
    const struct lookup_field *y = b;

    return slice_cmp(x->name, y->name);
}

bool forward_read(const struct repo *r, const struct http_req *req, struct lookup *w)
{
    struct lookup_field *f = arena_alloc(req->arena, (r->forwards + VARIANT_NAMES) * sizeof *f);
    size_t bytes = 0;

    for (size_t i = 0; i < r->forwards; i++) {
        struct slice value = http_req_list(req, r->forward[i]);
        f[i].sent = SENT;
        f[i].name = slice_str(r->forward[i]);
        f[i].same = value.p != NULL ? forward_same(f[i].name, value, req->arena) : SLICE_NONE;
        f[i].value = f[i].same.p != NULL ? value : SLICE_NONE;
        bytes += value.n;
    }
    w->forward = f;
    w->forwards = r->forwards;
    if (w->varies) {
        w->forwards = read_others(req, f, r->forwards);
        qsort(f, w->forwards, sizeof *f, by_field_name);
    }
    return bytes <= VARIANT_VALUES;
}
