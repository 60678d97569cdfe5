#include "common/codec/jread.h"

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
