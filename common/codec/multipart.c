#include "common/codec/multipart.h"

#include "common/codec/url.h"

static int multipart_error(struct err *e, const char *what)
{
    return err_set(e, E_PROTOCOL, "the body is not a valid form: %s", what);
}

/* --- parameters: ; name=value, ; name="va\"lue" ----------------------------------------------- */

static bool is_mime_token_char(char c)
{
    return c > ' ' && c < 0x7f && strchr("()<>@,;:\\\"/[]?={}", c) == NULL;
}

static bool cut_quoted(struct slice *rest, struct arena *a, struct slice *out)
{
    char *to = arena_alloc(a, rest->n + 1);
    size_t n = 0, i = 1;

    for (; i < rest->n && rest->p[i] != '"'; i++) {
        i += rest->p[i] == '\\' && i + 1 < rest->n;
        if (rest->p[i] == '\0') {
            return false;
        }
        to[n++] = rest->p[i];
    }
    if (i >= rest->n) {
        return false;
    }
    *out = slice_of(to, n);
    *rest = slice_from(*rest, i + 1);
    return true;
}

/* 1: one was cut off; 0: there is none; -1: it cannot be read. */
static int next_parameter(struct slice *rest, struct arena *a, struct slice *name,
                          struct slice *value)
{
    size_t n = 0;

    *rest = slice_trim(*rest);
    if (rest->n == 0) {
        return 0;
    }
    if (rest->p[0] != ';') {
        return -1;
    }
    *rest = slice_trim(slice_from(*rest, 1));
    while (n < rest->n && is_mime_token_char(rest->p[n])) {
        n++;
    }
    *name = slice_first(*rest, n);
    *rest = slice_from(*rest, n);
    if (n == 0 || rest->n == 0 || rest->p[0] != '=') {
        return -1;
    }
    *rest = slice_from(*rest, 1);
    if (rest->n != 0 && rest->p[0] == '"') {
        return cut_quoted(rest, a, value) ? 1 : -1;
    }
    for (n = 0; n < rest->n && is_mime_token_char(rest->p[n]); n++) {
    }
    *value = slice_first(*rest, n);
    *rest = slice_from(*rest, n);
    return n != 0 ? 1 : -1;
}

/* "utf-8''na%20me" */
static bool extended(struct slice v, struct arena *a, struct slice *out)
{
    struct buf plain = BUF_INIT(MULTIPART_HEAD_BYTES);
    struct slice charset = slice_cut(&v, '\'');
    bool good;

    (void)slice_cut(&v, '\'');
    good = slice_ieq(charset, SLICE("utf-8")) && url_decode(v, &plain) && plain.rc == 0 &&
           slice_find(buf_slice(&plain), '\0') < 0;
    *out = arena_copy(a, buf_slice(&plain));
    buf_free(&plain);
    return good;
}

bool multipart_boundary(struct slice content_type, struct arena *a, struct slice *out)
{
    struct slice type = content_type, name, value;
    size_t n = 0;
    int more;

    while (n < type.n && type.p[n] != ';') {
        n++;
    }
    *out = SLICE_NONE;
    if (!slice_ieq(slice_trim(slice_first(type, n)), SLICE("multipart/form-data"))) {
        return false;
    }
    type = slice_from(type, n);
    while ((more = next_parameter(&type, a, &name, &value)) == 1) {
        if (slice_ieq(name, SLICE("boundary"))) {
            if (out->p != NULL) {
                return false;
            }
            *out = value;
        }
    }
    if (more < 0 || out->n == 0 || out->n > MULTIPART_BOUNDARY_MAX || out->p[out->n - 1] == ' ') {
        return false;
    }
    for (size_t i = 0; i < out->n; i++) {
        if (out->p[i] < ' ' || out->p[i] > '~') {
            return false;
        }
    }
    return true;
}

/* --- a part's head ---------------------------------------------------------------------------- */

static int read_disposition(struct slice v, struct arena *a, struct multipart_part *p,
                            struct err *e)
{
    struct slice name, value, wide = SLICE_NONE;
    size_t n = 0;
    int more;

    while (n < v.n && is_mime_token_char(v.p[n])) {
        n++;
    }
    if (!slice_ieq(slice_first(v, n), SLICE("form-data"))) {
        return multipart_error(e, "a part is not form data");
    }
    v = slice_from(v, n);
    while ((more = next_parameter(&v, a, &name, &value)) == 1) {
        struct slice *to = slice_ieq(name, SLICE("name"))        ? &p->name
                           : slice_ieq(name, SLICE("filename"))  ? &p->filename
                           : slice_ieq(name, SLICE("filename*")) ? &wide
                                                                 : NULL;
        if (to != NULL && to->p != NULL) {
            return multipart_error(e, "a part has two names");
        }
        if (to != NULL) {
            *to = value;
        }
    }
    if (more < 0 || p->name.p == NULL) {
        return multipart_error(e, "a part has no name");
    }
    if (wide.p != NULL && !extended(wide, a, &p->filename)) {
        return multipart_error(e, "a file name is not UTF-8");
    }
    return 0;
}

static int read_head(struct multipart *m, struct err *e)
{
    struct slice rest = buf_slice(&m->head);
    struct multipart_part p = {{0}, {0}};
    struct arena a = {0};
    bool found = false;
    int rc = 0;

    while (rc == 0 && rest.n != 0) {
        struct slice line = slice_cut(&rest, '\n'), field = line;
        struct slice name;
        field.n -= field.n != 0; /* its CR */
        if (field.n == 0) {
            break;
        }
        if (slice_find(field, '\r') >= 0 || slice_find(field, ':') <= 0) {
            rc = multipart_error(e, "a part has an invalid header line");
            break;
        }
        name = slice_cut(&field, ':');
        if (!slice_ieq(name, SLICE("content-disposition"))) {
            /* Nobody speaks base64 here any more; taken as it stands it would be another file. */
            if (slice_ieq(name, SLICE("content-transfer-encoding")) &&
                !slice_ieq(slice_trim(field), SLICE("binary")) &&
                !slice_ieq(slice_trim(field), SLICE("8bit")) &&
                !slice_ieq(slice_trim(field), SLICE("7bit"))) {
                rc = multipart_error(e, "a part has an unsupported transfer encoding");
            }
            continue;
        }
        rc = found ? multipart_error(e, "a part has two names")
                   : read_disposition(slice_trim(field), &a, &p, e);
        found = true;
    }
    if (rc == 0 && !found) {
        rc = multipart_error(e, "a part has no name");
    }
    if (rc == 0 && ++m->parts > MULTIPART_PARTS_MAX) {
        rc = err_set(e, E_TOOBIG, "the form has more than %d fields", MULTIPART_PARTS_MAX);
    }
    rc = rc != 0 ? rc : m->ev->on_part(m->arg, &p, e);
    arena_fini(&a);
    return rc;
}

/* Takes of the bytes what belongs to the head. */
static int feed_head(struct multipart *m, struct slice *bytes, struct err *e)
{
    ptrdiff_t at = slice_find(*bytes, '\n');
    struct slice part = at < 0 ? *bytes : slice_first(*bytes, (size_t)at + 1);
    struct slice all;
    int rc;

    buf_adds(&m->head, part);
    *bytes = slice_from(*bytes, part.n);
    if (m->head.rc != 0) {
        return err_set(e, E_TOOBIG, "the header of a part is longer than %d bytes",
                       MULTIPART_HEAD_BYTES);
    }
    all = buf_slice(&m->head);
    if (at < 0) {
        return 0;
    }
    if (all.n < 2 || all.p[all.n - 2] != '\r') {
        return multipart_error(e, "a line does not end in CR LF");
    }
    if (all.n != 2 && !slice_ends(all, SLICE("\n\r\n"))) {
        return 0;
    }
    rc = read_head(m, e);
    buf_clear(&m->head);
    m->state = MULTIPART_DATA;
    return rc;
}

/* --- data, and what ends it ------------------------------------------------------------------- */

static int emit_part_bytes(struct multipart *m, struct slice bytes, struct err *e)
{
    if (bytes.n == 0) {
        return 0;
    }
    return m->state == MULTIPART_FRONT ? multipart_error(e, "it does not begin with its boundary")
                                       : m->ev->on_data(m->arg, bytes, e);
}

/* Goes on with a boundary that has begun. */
static int feed_line(struct multipart *m, struct slice *bytes, struct err *e)
{
    while (bytes->n != 0 && m->matched < m->line_bytes && bytes->p[0] == m->line[m->matched]) {
        m->matched++;
        *bytes = slice_from(*bytes, 1);
    }
    if (m->matched == m->line_bytes) {
        bool data = m->state == MULTIPART_DATA;
        m->matched = 0;
        m->state = MULTIPART_BEHIND;
        m->behind_bytes = 0;
        return data ? m->ev->on_part_end(m->arg, e) : 0;
    }
    if (bytes->n != 0) { /* it was none: its CR is the only one in it, so what came of it is data */
        size_t n = m->matched;
        m->matched = 0;
        return emit_part_bytes(m, slice_of(m->line, n), e);
    }
    return 0;
}

static int feed_data(struct multipart *m, struct slice *bytes, struct err *e)
{
    ptrdiff_t at;
    struct slice part;

    if (m->matched != 0) {
        return feed_line(m, bytes, e);
    }
    at = slice_find(*bytes, '\r');
    part = at < 0 ? *bytes : slice_first(*bytes, (size_t)at);
    *bytes = slice_from(*bytes, part.n + (at >= 0));
    m->matched = at >= 0;
    return emit_part_bytes(m, part, e);
}

static int feed_behind(struct multipart *m, struct slice *bytes, struct err *e)
{
    m->behind[m->behind_bytes++] = bytes->p[0];
    *bytes = slice_from(*bytes, 1);
    if (m->behind_bytes < 2) {
        return 0;
    }
    if (memcmp(m->behind, "--", 2) == 0) {
        m->state = MULTIPART_OVER;
    } else if (memcmp(m->behind, "\r\n", 2) == 0) {
        m->state = MULTIPART_HEAD;
    } else {
        return multipart_error(e, "a boundary is followed by other characters");
    }
    return 0;
}

/* --- all of it -------------------------------------------------------------------------------- */

void multipart_begin(struct multipart *m, struct slice boundary, const struct multipart_events *ev,
                     void *arg)
{
    CHECK(boundary.n != 0 && boundary.n <= MULTIPART_BOUNDARY_MAX);
    *m = (struct multipart){.ev = ev,
                            .arg = arg,
                            .line = "\r\n--",
                            .line_bytes = 4 + boundary.n,
                            .matched = 2, /* as if a line's end stood before the first byte */
                            .head = BUF_INIT(MULTIPART_HEAD_BYTES)};
    memcpy(m->line + 4, boundary.p, boundary.n);
}

int multipart_feed(struct multipart *m, struct slice bytes, struct err *e)
{
    int rc = 0;

    while (rc == 0 && bytes.n != 0) {
        switch (m->state) {
        case MULTIPART_FRONT:
        case MULTIPART_DATA:
            rc = feed_data(m, &bytes, e);
            break;
        case MULTIPART_BEHIND:
            rc = feed_behind(m, &bytes, e);
            break;
        case MULTIPART_HEAD:
            rc = feed_head(m, &bytes, e);
            break;
        case MULTIPART_OVER:
            /* A line's end is what most clients put there; anything else would be read by
             * nobody. */
            rc = bytes.p[0] == '\r' || bytes.p[0] == '\n'
                     ? 0
                     : multipart_error(e, "the last boundary is followed by other characters");
            bytes = slice_from(bytes, 1);
            break;
        }
    }
    return rc;
}

int multipart_end(const struct multipart *m, struct err *e)
{
    return m->state == MULTIPART_OVER ? 0 : multipart_error(e, "it ends before its last boundary");
}

void multipart_fini(struct multipart *m)
{
    buf_free(&m->head);
}
