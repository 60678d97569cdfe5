#include "server/request/disposition.h"

static bool name_ends_with(struct slice s, struct slice with)
{
    return s.n >= with.n && slice_ieq(slice_from(s, s.n - with.n), with);
}

static bool begins(struct slice s, struct slice with)
{
    return s.n >= with.n && slice_ieq(slice_first(s, with.n), with);
}

static bool is_html(struct slice type)
{
    return slice_ieq(type, SLICE("text/html")) || slice_ieq(type, SLICE("application/xhtml+xml"));
}

/* What a browser takes for a document of its own, beside HTML. */
static bool is_document(struct slice type)
{
    static const char *const types[] = {"application/hta",
                                        "application/pdf",
                                        "application/x-mimearchive",
                                        "application/x-shockwave-flash",
                                        "application/xml",
                                        "application/xml-dtd",
                                        "application/xslt+xml",
                                        "text/pdf",
                                        "text/x-server-parsed-html",
                                        "text/xml",
                                        "text/xsl"};

    for (size_t i = 0; i < ARRAY_LEN(types); i++) {
        if (slice_ieq(type, slice_str(types[i]))) {
            return true;
        }
    }
    return name_ends_with(type, SLICE("+xml")) || begins(type, SLICE("multipart/")) ||
           begins(type, SLICE("message/"));
}

struct slice disposition_of(struct slice type, struct slice said, bool page, struct arena *a)
{
    struct slice rest = said;
    struct slice bare = slice_trim(slice_cut(&type, ';'));
    ptrdiff_t comma = slice_find(bare, ',');

    /* Of "text/plain, text/html" browsers take the last: no type that we could judge. */
    if (comma < 0 && (is_html(bare) ? page : !is_document(bare))) {
        return said;
    }
    (void)slice_cut(&rest, ';');
    return rest.n != 0 ? arena_fmt(a, "attachment;" SLICE_FMT, SLICE_ARG(rest))
                       : SLICE("attachment");
}
