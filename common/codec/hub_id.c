#include "common/codec/hub_id.h"

enum { SEGMENT_MAX = 96, COMMIT_HEX = 40 };

bool hf_is_commit(struct slice rev)
{
    for (size_t i = 0; i < rev.n; i++) {
        char c = rev.p[i];
        if (!((c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'))) {
            return false;
        }
    }
    return rev.n == COMMIT_HEX;
}

bool hf_is_name(struct slice s)
{
    for (size_t i = 0; i < s.n; i++) {
        char c = s.p[i];
        if (!((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
              c == '.' || c == '_' || c == '-')) {
            return false;
        }
    }
    return s.n > 0 && s.n <= SEGMENT_MAX && !slice_eqs(s, ".") && !slice_eqs(s, "..");
}

bool hf_is_id(struct slice id)
{
    struct slice rest = id;
    struct slice first = slice_cut(&rest, '/');

    return hf_is_name(first) && (first.n == id.n || hf_is_name(rest));
}
