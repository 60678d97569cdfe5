#include "server/sync/rsync/answer.h"

enum { ANSWER_NAME_MAX = 4095 };

void answer_reader_init(struct answer_reader *a, size_t digest_bytes)
{
    *a = (struct answer_reader){.coding = INDEX_CODING_INIT, .digest_bytes = digest_bytes};
}

/* What was read stands; or nothing happened yet, or it cannot be. */
static int finish_get(const struct get *g, struct slice *in, int event, struct err *e)
{
    if (g->rc == E_AGAIN) {
        return ANSWER_MORE;
    }
    if (g->rc != 0) {
        return err_set(e, E_PROTOCOL, "the peer's response has an invalid number");
    }
    *in = slice_of(g->p, g->n);
    return event;
}

static int at_index(struct answer_reader *a, struct slice *in, struct err *e)
{
    struct get g = get_from(*in);
    struct index_coding coding = a->coding;
    int32_t index = get_index(&g, &coding);
    uint16_t flags;
    struct sums_head head;
    int event;

    if (g.rc == 0 && index == INDEX_DONE) {
        return finish_get(&g, in, ANSWER_PHASE, e);
    }
    flags = get_short(&g);
    if (g.rc == 0 && (index < 0 || (flags & ITEM_TRANSFER) == 0)) {
        return err_set(e, E_PROTOCOL, "the peer's response has an invalid index or flags: %d, 0x%x",
                       (int)index, (unsigned)flags);
    }
    if (g.rc == 0 && (flags & ITEM_BASIS_FOLLOWS) != 0) {
        get_byte(&g);
    }
    if (g.rc == 0 && (flags & ITEM_NAME_FOLLOWS) != 0) {
        /* Of a basis of its choice: we have our own. */
        if (get_vstring(&g).n > ANSWER_NAME_MAX) {
            g.rc = E_PROTOCOL;
        }
    }
    head = get_sums_head(&g, a->digest_bytes);
    event = finish_get(&g, in, ANSWER_BEGIN, e);
    if (event == ANSWER_BEGIN) {
        a->coding = coding;
        a->index = index;
        a->head = head;
        a->at = ANSWER_AT_TOKEN;
    }
    return event;
}

static int at_token(struct answer_reader *a, struct slice *in, struct err *e)
{
    struct get g = get_from(*in);
    int32_t token = get_int(&g);
    int event;

    if (g.rc == 0 && token < 0 && ~(uint32_t)token >= a->head.count) {
        return err_set(e, E_PROTOCOL, "the peer refers to block %u, but there are only %u",
                       (unsigned)~(uint32_t)token, (unsigned)a->head.count);
    }
    event = finish_get(&g, in, token < 0 ? ANSWER_BLOCK : ANSWER_LITERAL, e);
    if (event == ANSWER_MORE || event < 0) {
        return event;
    }
    if (token < 0) {
        a->block = ~(uint32_t)token;
        return ANSWER_BLOCK;
    }
    a->left = (uint32_t)token;
    a->at = token == 0 ? ANSWER_AT_DIGEST : ANSWER_AT_LITERAL;
    return answer_next(a, in, e);
}

static int at_literal(struct answer_reader *a, struct slice *in)
{
    size_t n = in->n < a->left ? in->n : a->left;

    if (n == 0) {
        return ANSWER_MORE;
    }
    a->bytes = slice_first(*in, n);
    *in = slice_from(*in, n);
    a->left -= (uint32_t)n;
    if (a->left == 0) {
        a->at = ANSWER_AT_TOKEN;
    }
    return ANSWER_LITERAL;
}

static int at_digest(struct answer_reader *a, struct slice *in)
{
    if (in->n < a->digest_bytes) {
        return ANSWER_MORE;
    }
    memcpy(a->digest, in->p, a->digest_bytes);
    *in = slice_from(*in, a->digest_bytes);
    a->at = ANSWER_AT_INDEX;
    return ANSWER_END;
}

int answer_next(struct answer_reader *a, struct slice *in, struct err *e)
{
    switch (a->at) {
    case ANSWER_AT_INDEX:
        return at_index(a, in, e);
    case ANSWER_AT_TOKEN:
        return at_token(a, in, e);
    case ANSWER_AT_LITERAL:
        return at_literal(a, in);
    case ANSWER_AT_DIGEST:
        return at_digest(a, in);
    }
    return ANSWER_MORE;
}
