/* html.c - parses a simple page in HTML: anchors, their text, <base> and <meta>; all else is
 * skipped.
 *
 * It is a scanner of our own, in one pass whatever the input
 * (docs/decisions/0003-simple-pages-scanner.md). It follows the HTML standard where that decides
 * what is a tag: comments, text that is not markup (script, style, title...), quotes, character
 * references.
 */
#include <stdlib.h>

#include "common/codec/html.h"
#include "common/codec/utf8.h"
#include "server/repo/pypi/page.h"

enum { ATTRIBUTES_MAX = 48, VALUE_BYTES = 64 << 10, TEXT_BYTES = 4096 };

struct attribute {
    struct slice name;  /* as written */
    struct slice value; /* decoded, in the arena; p == NULL: none */
};

struct reader {
    struct page *page;
    struct slice rest;
    struct arena arena; /* of the tag or the anchor at hand */
    struct attribute attr[ATTRIBUTES_MAX];
    size_t attrs;
    bool open; /* an anchor is: its text is gathered */
    struct page_file file;
    struct buf more;
    struct buf text;
    int rc;
    struct err *e;
};

static bool is_html_space(char c)
{
    return c == ' ' || c == '\t' || c == '\n' || c == '\f' || c == '\r';
}

static bool is_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

/* --- character references --- */

static void utf8_add(struct buf *b, uint32_t c)
{
    char bytes[4];

    if (c == 0 || c > 0x10ffff || (c >= 0xd800 && c < 0xe000)) {
        c = 0xfffd;
    }
    buf_add(b, bytes, utf8_put(c, bytes));
}

/* s begins behind "&#". Bytes used, 0: not a reference. */
static size_t numeric_reference(struct slice s, struct buf *out)
{
    bool hex = s.n > 0 && (s.p[0] == 'x' || s.p[0] == 'X');
    size_t start = hex ? 1 : 0;
    size_t i = start;
    uint32_t c = 0;

    while (i < s.n) {
        char d = s.p[i];
        uint32_t v = d >= '0' && d <= '9'          ? (uint32_t)(d - '0')
                     : hex && d >= 'a' && d <= 'f' ? (uint32_t)(d - 'a' + 10)
                     : hex && d >= 'A' && d <= 'F' ? (uint32_t)(d - 'A' + 10)
                                                   : UINT32_MAX;
        if (v == UINT32_MAX) {
            break;
        }
        c = c > 0x10ffff ? c : c * (hex ? 16 : 10) + v;
        i++;
    }
    if (i == start) {
        return 0;
    }
    utf8_add(out, c);
    return i + (i < s.n && s.p[i] == ';');
}

/* s begins behind "&". The names that occur in pages of this kind; others stay as they are. */
static size_t named_reference(struct slice s, struct buf *out)
{
    static const struct {
        struct slice name;
        char c;
    } names[] = {{{"amp;", 4}, '&'},  {{"lt;", 3}, '<'},      {{"gt;", 3}, '>'},
                 {{"quot;", 5}, '"'}, {{"apos;", 5}, '\''},   {{"nbsp;", 5}, ' '},
                 {{"plus;", 5}, '+'}, {{"num;", 4}, '#'},     {{"colon;", 6}, ':'},
                 {{"sol;", 4}, '/'},  {{"period;", 7}, '.'},  {{"equals;", 7}, '='},
                 {{"Tab;", 4}, '\t'}, {{"NewLine;", 8}, '\n'}};

    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        if (slice_starts(s, names[i].name)) {
            buf_byte(out, (uint8_t)names[i].c);
            return names[i].name.n;
        }
    }
    return 0;
}

static void decode_html_entities(struct slice raw, struct buf *out)
{
    while (raw.n > 0) {
        ptrdiff_t amp = slice_find(raw, '&');
        size_t used;

        buf_adds(out, amp < 0 ? raw : slice_first(raw, (size_t)amp));
        if (amp < 0) {
            return;
        }
        raw = slice_from(raw, (size_t)amp + 1);
        if (raw.n > 0 && raw.p[0] == '#') {
            used = numeric_reference(slice_from(raw, 1), out);
            used += used != 0;
        } else {
            used = named_reference(raw, out);
        }
        if (used == 0) {
            buf_byte(out, '&');
        }
        raw = slice_from(raw, used);
    }
}

/* --- tags --- */

static void skip_space(struct slice *s)
{
    while (s->n > 0 && is_html_space(s->p[0])) {
        *s = slice_from(*s, 1);
    }
}

static struct slice take_until(struct slice *s, const char *stops)
{
    size_t n = 0;

    while (n < s->n && !is_html_space(s->p[n]) &&
           (s->p[n] == '\0' || strchr(stops, s->p[n]) == NULL)) {
        n++;
    }
    *s = slice_from(*s, n);
    return slice_of(s->p - n, n);
}

static struct slice take_value(struct slice *s)
{
    struct slice v;

    if (s->n > 0 && (s->p[0] == '"' || s->p[0] == '\'')) {
        char quote = s->p[0];
        *s = slice_from(*s, 1);
        return slice_cut(s, quote);
    }
    v = take_until(s, ">");
    return v;
}

static void add_attribute(struct reader *r, struct slice name, struct slice value)
{
    struct buf plain = BUF_INIT(VALUE_BYTES);

    if (r->attrs == ATTRIBUTES_MAX || name.n == 0) {
        return;
    }
    for (size_t i = 0; i < r->attrs; i++) {
        if (slice_ieq(r->attr[i].name, name)) {
            return; /* the first of a name counts */
        }
    }
    if (value.p != NULL) {
        decode_html_entities(value, &plain);
        value = plain.rc == 0
                    ? arena_copy(&r->arena, slice_of(plain.n != 0 ? plain.p : "", plain.n))
                    : SLICE_NONE;
    }
    r->attr[r->attrs++] = (struct attribute){name, value};
    buf_free(&plain);
}

/* From behind a tag's name to behind its '>'. */
static void read_attributes(struct reader *r)
{
    struct slice *s = &r->rest;

    r->attrs = 0;
    for (;;) {
        struct slice name;
        struct slice value = SLICE_NONE;

        while (s->n > 0 && (is_html_space(s->p[0]) || s->p[0] == '/')) {
            *s = slice_from(*s, 1);
        }
        if (s->n == 0) {
            return;
        }
        if (s->p[0] == '>') {
            *s = slice_from(*s, 1);
            return;
        }
        if (s->p[0] == '=') { /* a name may begin with it, as the standard has it */
            *s = slice_from(*s, 1);
            continue;
        }
        name = take_until(s, "/>=");
        skip_space(s);
        if (s->n > 0 && s->p[0] == '=') {
            *s = slice_from(*s, 1);
            skip_space(s);
            value = take_value(s);
        }
        add_attribute(r, name, value);
    }
}

static struct slice attr(const struct reader *r, const char *name)
{
    for (size_t i = 0; i < r->attrs; i++) {
        if (slice_ieq(r->attr[i].name, slice_str(name))) {
            return r->attr[i].value.p != NULL ? r->attr[i].value : SLICE("");
        }
    }
    return SLICE_NONE;
}

/* --- what tags mean --- */

static void end_anchor(struct reader *r)
{
    if (r->open) {
        r->file.more = buf_slice(&r->more);
        page_anchor(r->page, &r->file, buf_slice(&r->text));
        r->open = false;
    }
}

/* Attributes that a later PEP may add: data-<letters>, carried from HTML to HTML. */
static void keep_more(struct reader *r)
{
    static const char *const known[] = {"data-requires-python", "data-yanked", "data-core-metadata",
                                        "data-dist-info-metadata", "data-gpg-sig"};

    buf_clear(&r->more);
    for (size_t i = 0; i < r->attrs; i++) {
        struct slice name = r->attr[i].name;
        bool keep = name.n > 5 && name.n <= 64 && slice_ieq(slice_first(name, 5), SLICE("data-"));

        for (size_t k = 0; keep && k < ARRAY_LEN(known); k++) {
            keep = !slice_ieq(name, slice_str(known[k]));
        }
        for (size_t k = 0; keep && k < name.n; k++) {
            keep =
                is_letter(name.p[k]) || name.p[k] == '-' || (name.p[k] >= '0' && name.p[k] <= '9');
        }
        if (keep) {
            buf_byte(&r->more, ' ');
            buf_adds(&r->more, name);
            buf_str(&r->more, "=\"");
            html_escape(r->attr[i].value, &r->more);
            buf_byte(&r->more, '"');
        }
    }
}

static void begin_anchor(struct reader *r)
{
    struct slice metadata = attr(r, "data-core-metadata");

    if (attr(r, "href").p == NULL) {
        return;
    }
    if (metadata.p == NULL) {
        metadata = attr(r, "data-dist-info-metadata");
    }
    r->file = (struct page_file){
        .href = attr(r, "href"),
        .requires_python = attr(r, "data-requires-python"),
        .gpg_sig = attr(r, "data-gpg-sig"),
        .upload_time = attr(r, "data-upload-time"),
        .metadata = slice_eq(metadata, SLICE("false")) ? SLICE_NONE : metadata,
        .yanked = attr(r, "data-yanked").p != NULL,
        .yanked_why = attr(r, "data-yanked"),
        .size_bytes = LENGTH_UNKNOWN,
    };
    keep_more(r);
    buf_clear(&r->text);
    r->open = true;
}

/* Skips what is text up to the end tag, not markup. */
static void skip_raw(struct reader *r, struct slice name)
{
    struct slice s = r->rest;

    while (s.n > 0) {
        ptrdiff_t lt = slice_find(s, '<');
        if (lt < 0) {
            break;
        }
        s = slice_from(s, (size_t)lt);
        if (s.n > name.n + 2 && s.p[1] == '/' && slice_ieq(slice_of(s.p + 2, name.n), name) &&
            !is_letter(s.p[name.n + 2])) {
            r->rest = s;
            return;
        }
        s = slice_from(s, 1);
    }
    r->rest = slice_from(r->rest, r->rest.n);
}

static void start_tag(struct reader *r, struct slice name)
{
    static const char *const raw[] = {"script", "style",   "title",    "textarea", "xmp",
                                      "iframe", "noembed", "noframes", "plaintext"};

    if (slice_ieq(name, SLICE("a"))) {
        begin_anchor(r);
    } else if (slice_ieq(name, SLICE("base")) && attr(r, "href").p != NULL) {
        links_base(&r->page->links, attr(r, "href"));
    } else if (slice_ieq(name, SLICE("meta")) && attr(r, "name").p != NULL) {
        r->rc = page_meta(r->page, attr(r, "name"), attr(r, "content"), r->e);
    }
    for (size_t i = 0; i < ARRAY_LEN(raw); i++) {
        if (slice_ieq(name, slice_str(raw[i]))) {
            skip_raw(r, name);
        }
    }
}

static void read_tag(struct reader *r)
{
    bool end = r->rest.p[1] == '/';
    struct slice name;

    r->rest = slice_from(r->rest, end ? 2 : 1);
    name = take_until(&r->rest, "/>");
    if (slice_ieq(name, SLICE("a"))) {
        end_anchor(r); /* also where a new one begins: anchors do not nest */
    }
    if (!r->open) {
        arena_reset(&r->arena);
    }
    read_attributes(r);
    if (!end) {
        start_tag(r, name);
    }
}

/* "<!--...-->", "<!...>", "<?...>", "</...>" without a name */
static void skip_declaration(struct reader *r)
{
    static const char end[] = "-->";

    if (slice_starts(r->rest, SLICE("<!--"))) {
        /* From behind "<!": "<!-->" is a comment as well. */
        const char *at = memmem(r->rest.p + 2, r->rest.n - 2, end, 3);
        r->rest = at != NULL ? slice_from(r->rest, (size_t)(at + 3 - r->rest.p))
                             : slice_from(r->rest, r->rest.n);
        return;
    }
    slice_cut(&r->rest, '>');
}

static void read_text(struct reader *r)
{
    ptrdiff_t lt = slice_find(r->rest.n > 1 ? slice_from(r->rest, 1) : SLICE_NONE, '<');
    size_t n = lt < 0 ? r->rest.n : (size_t)lt + 1;

    if (r->open && r->text.n < TEXT_BYTES) {
        decode_html_entities(slice_first(r->rest, n < TEXT_BYTES ? n : TEXT_BYTES), &r->text);
    }
    r->rest = slice_from(r->rest, n);
}

int page_read_html(struct page *p, struct slice doc, struct err *e)
{
    struct reader r = {.page = p,
                       .rest = doc,
                       .e = e,
                       .more = BUF_INIT(VALUE_BYTES * 4),
                       .text = BUF_INIT(TEXT_BYTES * 4)};

    while (r.rest.n > 0 && r.rc == 0) {
        char next = r.rest.n > 1 ? r.rest.p[1] : '\0';

        if (r.rest.p[0] != '<') {
            read_text(&r);
        } else if (is_letter(next) || (next == '/' && r.rest.n > 2 && is_letter(r.rest.p[2]))) {
            read_tag(&r);
        } else if (next == '!' || next == '?' || next == '/') {
            skip_declaration(&r);
        } else {
            read_text(&r);
        }
    }
    if (r.rc == 0) {
        end_anchor(&r);
    }
    arena_fini(&r.arena);
    buf_free(&r.more);
    buf_free(&r.text);
    return r.rc;
}
