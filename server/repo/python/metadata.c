#include "server/repo/python/metadata.h"

enum { REQUIRES_MAX = 10000 };

static bool is_metadata_blank(char c)
{
    return c == ' ' || c == '\t';
}

/* A field's line, and those that go on with a blank in front, which are left where they stand: none
 * that we read is folded in practice, and a requirement may hold a line's end where it may hold a
 * blank. */
static struct slice cut_field(struct slice *rest)
{
    struct slice line = slice_cut(rest, '\n');

    while (rest->n != 0 && is_metadata_blank(rest->p[0])) {
        struct slice more = slice_cut(rest, '\n');
        line.n = (size_t)(more.p + more.n - line.p);
    }
    line.n -= line.n != 0 && line.p[line.n - 1] == '\r';
    return line;
}

int metadata_read(struct slice text, const struct metadata_events *ev, struct slice *name,
                  struct slice *version, struct err *e)
{
    struct slice rest = text;
    size_t requires = 0;
    int rc = 0;

    *name = *version = SLICE_NONE;
    while (rc == 0 && rest.n != 0) {
        struct slice value = cut_field(&rest), field;
        if (value.n == 0) {
            break; /* the description follows */
        }
        if (slice_find(value, ':') <= 0) {
            return err_set(e, E_INVALID, "the metadata has an invalid line: \"%.*s\"",
                           (int)(value.n < 60 ? value.n : 60), value.p);
        }
        field = slice_cut(&value, ':');
        value = slice_trim(value);
        if (slice_ieq(field, SLICE("requires-dist"))) {
            rc = ++requires > REQUIRES_MAX
                     ? err_set(e, E_TOOBIG, "the metadata has more than %d requirements",
                               REQUIRES_MAX)
                     : ev->on_requires(ev->arg, value, e);
        } else if (slice_ieq(field, SLICE("name")) && name->p == NULL) {
            *name = value;
        } else if (slice_ieq(field, SLICE("version")) && version->p == NULL) {
            *version = value;
        }
    }
    return rc;
}
