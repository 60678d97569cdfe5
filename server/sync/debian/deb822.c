#include "server/sync/debian/deb822.h"

enum { LINE_MAX_BYTES = 1 << 20, FIELD_MAX_BYTES = 256 };

void deb822_init(struct deb822 *d, const struct deb822_events *ev)
{
    *d = (struct deb822){
        .ev = *ev, .line = BUF_INIT(LINE_MAX_BYTES), .field = BUF_INIT(FIELD_MAX_BYTES)};
}

void deb822_fini(struct deb822 *d)
{
    buf_free(&d->line);
    buf_free(&d->field);
}

static int end_stanza(struct deb822 *d, struct err *e)
{
    bool any = d->any;

    d->any = false;
    buf_clear(&d->field);
    return any ? d->ev.on_end(d->ev.arg, e) : 0;
}

static int take_deb822_line(struct deb822 *d, struct slice line, struct err *e)
{
    struct slice value;
    ptrdiff_t colon;

    if (line.n != 0 && line.p[line.n - 1] == '\r') {
        line.n--;
    }
    value = slice_trim(line);
    if (value.n == 0) {
        return end_stanza(d, e);
    }
    if (line.p[0] == '#') {
        return 0;
    }
    if (line.p[0] == ' ' || line.p[0] == '\t') {
        return d->field.n == 0 ? err_set(e, E_INVALID, "the index begins with a continuation line")
                               : d->ev.on_line(d->ev.arg, buf_slice(&d->field), false, value, e);
    }
    colon = slice_find(line, ':');
    if (colon <= 0 || colon >= FIELD_MAX_BYTES) {
        return err_set(e, E_INVALID, "the index has a line without a field name");
    }
    buf_clear(&d->field);
    buf_add(&d->field, line.p, (size_t)colon);
    d->any = true;
    return d->ev.on_line(d->ev.arg, buf_slice(&d->field), true,
                         slice_trim(slice_from(line, (size_t)colon + 1)), e);
}

int deb822_feed(struct deb822 *d, struct slice bytes, struct err *e)
{
    int rc = 0;

    while (rc == 0 && bytes.n != 0) {
        ptrdiff_t end = slice_find(bytes, '\n');
        struct slice part = end < 0 ? bytes : slice_first(bytes, (size_t)end);
        bytes = slice_from(bytes, part.n + (end >= 0));
        if (d->line.n != 0 || end < 0) {
            buf_adds(&d->line, part);
            if (d->line.rc != 0) {
                return err_set(e, E_TOOBIG, "the index has a line of more than %d bytes",
                               LINE_MAX_BYTES);
            }
        }
        if (end >= 0) {
            rc = take_deb822_line(d, d->line.n != 0 ? buf_slice(&d->line) : part, e);
            buf_clear(&d->line);
        }
    }
    return rc;
}

int deb822_finish(struct deb822 *d, struct err *e)
{
    int rc = d->line.n != 0 ? take_deb822_line(d, buf_slice(&d->line), e) : 0;

    buf_clear(&d->line);
    return rc != 0 ? rc : end_stanza(d, e);
}
