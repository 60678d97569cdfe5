#include "common/codec/form.h"

#include "common/codec/url.h"

bool form_next(struct slice *rest, struct slice *name, struct slice *value)
{
    if (rest->n == 0) {
        return false;
    }
    *value = slice_cut(rest, '&');
    *name = slice_cut(value, '=');
    return true;
}

bool form_within(struct slice form, size_t max)
{
    size_t count = 0;

    while (count <= max && form.n != 0) {
        slice_cut(&form, '&');
        count++;
    }
    return count <= max;
}

struct slice form_value(struct slice raw, size_t max, struct arena *a)
{
    struct buf b = BUF_INIT(max);
    struct slice out = SLICE_NONE;
    char *plain;

    if (raw.n > 3 * max) {
        return SLICE_NONE;
    }
    plain = arena_cstr(a, raw);
    for (size_t i = 0; i < raw.n; i++) {
        plain[i] = plain[i] == '+' ? ' ' : plain[i];
    }
    if (url_decode(slice_of(plain, raw.n), &b) && b.rc == 0) {
        out = arena_copy(a, slice_of(b.p != NULL ? b.p : "", b.n));
    }
    buf_free(&b);
    return out;
}

struct slice form_find(struct slice *rest, const char *name, size_t max, struct arena *a)
{
    struct slice key, raw;

    while (form_next(rest, &key, &raw)) {
        struct slice value = slice_eqs(key, name) ? form_value(raw, max, a) : SLICE_NONE;
        if (value.p != NULL) {
            return value;
        }
    }
    return SLICE_NONE;
}
