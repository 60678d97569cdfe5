#include "common/codec/jread.h"

/* Each value stands behind one of these, or is alone. In a text that is no JSON the count is wrong,
 * and of no consequence. */
static bool values_within(struct slice text, size_t most)
{
    bool quoted = false;

    for (size_t i = 0; i < text.n; i++) {
        char c = text.p[i];
        if (c == '"') {
            quoted = !quoted;
        } else if (quoted) {
            i += c == '\\';
        } else if ((c == ',' || c == '{' || c == '[') && most-- == 0) {
            return false;
        }
    }
    return true;
}

json_t *jread_parse(struct slice text, size_t flags, size_t values_max)
{
    return text.n != 0 && values_within(text, values_max) ? json_loadb(text.p, text.n, flags, NULL)
                                                          : NULL;
}

size_t jread_values_of(size_t text_bytes)
{
    enum { USUAL_BYTES = 16, SOME = 1000000 };

    return text_bytes / USUAL_BYTES + SOME;
}

struct slice jread_slice(const json_t *v)
{
    return json_is_string(v) ? slice_of(json_string_value(v), json_string_length(v)) : SLICE_NONE;
}

bool jread_count(const json_t *v, uint64_t *out)
{
    if (!json_is_integer(v) || json_integer_value(v) < 0) {
        return false;
    }
    *out = (uint64_t)json_integer_value(v);
    return true;
}

struct slice jread_text(const json_t *o, const char *key)
{
    return jread_slice(json_object_get(o, key));
}

bool jread_u64(const json_t *o, const char *key, uint64_t *out)
{
    return jread_count(json_object_get(o, key), out);
}
