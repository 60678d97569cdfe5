#include "common/base/lasting.h"

enum lasting_line lasting_check(struct lasting *l, bool there, uint64_t now_ms)
{
    bool began = there && !l->lasts;

    if (!there && (!l->lasts || now_ms - l->seen_ms < LASTING_OVER_MS)) {
        return LASTING_NONE;
    }
    if (!there) {
        l->lasts = false;
        return LASTING_OVER;
    }
    l->seen_ms = now_ms;
    if (!began && now_ms - l->line_ms < LASTING_AGAIN_MS) {
        return LASTING_NONE;
    }
    l->since_ms = began ? now_ms : l->since_ms;
    l->line_ms = now_ms;
    l->lasts = true;
    return began ? LASTING_BEGINS : LASTING_LASTS;
}
