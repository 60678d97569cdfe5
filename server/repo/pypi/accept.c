#include "server/repo/pypi/accept.h"

#include "common/base/buf.h"
#include "common/codec/url.h"
#include "server/http/msg.h"

enum { FORMATS = 4 };

static const struct {
    const char *name, *type, *latest;
} formats[FORMATS] = {
    [PAGE_NONE] = {"", "", ""},
    [PAGE_JSON] = {"json", "application/vnd.pypi.simple.v1+json",
                   "application/vnd.pypi.simple.latest+json"},
    [PAGE_HTML] = {"html", "application/vnd.pypi.simple.v1+html",
                   "application/vnd.pypi.simple.latest+html"},
    [PAGE_TEXT] = {"text", "text/html", "text/html"},
};

struct slice page_format_type(enum page_format f)
{
    return slice_str(formats[f].type);
}

struct slice page_format_name(enum page_format f)
{
    return slice_str(formats[f].name);
}

enum page_format page_format_named(struct slice name)
{
    for (int f = PAGE_JSON; f < FORMATS; f++) {
        if (slice_eqs(name, formats[f].name)) {
            return (enum page_format)f;
        }
    }
    return PAGE_NONE;
}

static enum page_format format_of_type(struct slice type)
{
    for (int f = PAGE_JSON; f < FORMATS; f++) {
        if (slice_ieq(type, slice_str(formats[f].type)) ||
            slice_ieq(type, slice_str(formats[f].latest))) {
            return (enum page_format)f;
        }
    }
    return PAGE_NONE;
}

static enum page_format format_of_query(struct slice query, bool *said)
{
    *said = false;
    while (query.n != 0) {
        struct slice value = slice_cut(&query, '&');
        struct buf plain = BUF_INIT(256);
        enum page_format f = PAGE_NONE;

        if (!slice_eq(slice_cut(&value, '='), SLICE("format"))) {
            continue;
        }
        *said = true;
        if (url_decode(value, &plain)) {
            f = format_of_type(buf_slice(&plain));
        }
        buf_free(&plain);
        return f;
    }
    return PAGE_NONE;
}

/* The heaviest; of equals JSON, which says most. */
static enum page_format heaviest(const int q[FORMATS])
{
    enum page_format best = PAGE_NONE;

    for (int f = PAGE_JSON; f < FORMATS; f++) {
        if (q[f] > 0 && (best == PAGE_NONE || q[f] > q[best])) {
            best = (enum page_format)f;
        }
    }
    return best;
}

enum page_format page_format_of(struct slice accept, struct slice query)
{
    int named[FORMATS] = {0, -1, -1, -1}; /* -1: not named */
    int any = 0;                          /* the best of the wildcards */
    bool said;
    enum page_format f = format_of_query(query, &said);

    if (said) {
        return f;
    }
    if (slice_trim(accept).n == 0) {
        return PAGE_TEXT;
    }
    while (accept.n != 0) {
        struct slice params = slice_cut(&accept, ',');
        struct slice type = slice_trim(slice_cut(&params, ';'));
        int q = http_weight(params);

        f = format_of_type(type);
        if (f != PAGE_NONE) {
            named[f] = q > named[f] ? q : named[f];
        } else if (slice_eq(type, SLICE("*/*")) || slice_ieq(type, SLICE("text/*"))) {
            any = q > any ? q : any;
        }
    }
    f = heaviest(named);
    /* A wildcard alone, or one that outweighs what was named: what any browser shows, unless that
     * was named with less. */
    if (any > 0 && named[PAGE_TEXT] == -1 && (f == PAGE_NONE || any > named[f])) {
        return PAGE_TEXT;
    }
    return f;
}
