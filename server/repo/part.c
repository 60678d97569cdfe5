#include "server/repo/part.h"

#include "common/codec/url.h"
#include "common/codec/weblink.h"

enum { URL_BYTES = 16384, MESSAGE_BYTES = 512 };

struct slice part_key(struct slice key, unsigned part, struct arena *a)
{
    return part == 0 ? key : arena_fmt(a, SLICE_FMT "+%u", SLICE_ARG(key), part);
}

bool part_is_of(struct slice part, struct slice key)
{
    return slice_eq(part, key) || (slice_starts(part, key) && part.p[key.n] == '+');
}

int part_next(const struct answer *a, unsigned part, struct arena *arena, struct slice *next,
              struct err *e)
{
    struct buf url = BUF_INIT(URL_BYTES);
    struct slice to = SLICE_NONE;
    int rc;

    *next = SLICE_NONE;
    for (size_t i = 0; i < a->nfields && to.p == NULL; i++) {
        if (slice_eqs(a->fields[i].name, "link")) { /* there may be several */
            to = weblink_next(a->fields[i].value);
        }
    }
    if (to.p == NULL) {
        return 0;
    }
    rc = part + 1 == GATHER_PARTS_MAX
             ? err_set(e, E_TOOBIG, "the origin's listing has more than %d parts", GATHER_PARTS_MAX)
             : url_resolve(a->url, to, &url, e);
    if (rc == 0) {
        *next = arena_copy(arena, buf_slice(&url));
    }
    buf_free(&url);
    return rc;
}

void part_note(const struct answer *a, struct fact *f)
{
    f->until_unix_s = min_u64(f->until_unix_s, a->fresh_until_unix_s);
    f->stale = f->stale || cache_state_is_stale(a->state);
    f->in_trouble = f->in_trouble || a->state == CACHE_STALE;
}

void part_refused(const struct answer *a, struct arena *arena, struct fact *f)
{
    struct slice code = answer_field(a, "x-error-code");
    struct slice message = answer_field(a, "x-error-message");

    message = message.p != NULL ? message : slice_str(a->why.text);
    f->rc = answer_rc(a);
    f->status = a->status;
    f->code = code.p != NULL ? arena_copy(arena, code) : SLICE_NONE;
    f->message = arena_copy(arena, slice_first(message, min_u64(message.n, MESSAGE_BYTES)));
}
