#include "server/fetch/refusal.h"

#include <stdlib.h>

enum { FIELDS_MAX = 64, BODY_MAX = 16 << 10 };

/* 412 and 416 speak of what was asked; a redirect that names a place is followed, but for one that names a region: what is
 * signed for here is worth nothing there. */
bool refusal_is(const struct xfer_head *h)
{
    if (h->status / 100 == 3) {
        return h->status != 304 && (xfer_head_field(h, "location").p == NULL ||
                                    xfer_head_field(h, "x-amz-bucket-region").p != NULL);
    }
    return h->status >= 400 && h->status != 412 && h->status != 416;
}

struct refusal *refusal_new(const struct xfer_head *h)
{
    struct refusal *r = NEW(struct refusal);
    size_t n = h->nfields < FIELDS_MAX ? h->nfields : FIELDS_MAX;
    struct xfer_field *field = arena_alloc(&r->arena, (n + 1) * sizeof *field);

    for (size_t i = 0; i < n; i++) {
        field[i].name = arena_copy(&r->arena, h->fields[i].name);
        field[i].value = arena_copy(&r->arena, h->fields[i].value);
    }
    r->head = *h;
    r->head.fields = field;
    r->head.nfields = n;
    r->head.content_length = 0;
    r->head.framed = true;
    r->body = BUF_INIT(BODY_MAX);
    return r;
}

void refusal_add(struct refusal *r, struct slice bytes)
{
    size_t room = BODY_MAX - r->body.n;

    buf_adds(&r->body, slice_first(bytes, bytes.n < room ? bytes.n : room));
}

int refusal_judge(struct refusal *r, const struct s3 *b, struct err *e)
{
    struct slice region = xfer_head_field(&r->head, "x-amz-bucket-region");

    s3_no_read(buf_slice(&r->body), region, &r->no);
    return s3_no_judge(b, r->head.status, &r->no, e);
}

void refusal_free(struct refusal **rp)
{
    struct refusal *r = *rp;

    *rp = NULL;
    if (r == NULL) {
        return;
    }
    buf_free(&r->body);
    arena_fini(&r->arena);
    free(r);
}
