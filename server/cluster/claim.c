#include "server/cluster/claim.h"

#include <stdio.h>
#include <stdlib.h>

#include "common/base/endian.h"

struct claims {
    struct store *store;
    struct members *members;
    uint8_t node[CLAIM_NODE_BYTES];
    char name[MEMBER_ADDRESS_ROOM];
};

struct claims *claims_open(struct store *s, struct members *m, const char *node, const char *name)
{
    struct claims *c = NEW(struct claims);

    c->store = s;
    c->members = m;
    CHECK(slice_hex(slice_str(node), c->node, sizeof c->node));
    snprintf(c->name, sizeof c->name, "%s", name);
    return c;
}

void claims_close(struct claims **cp)
{
    free(*cp);
    *cp = NULL;
}

const char *claims_self(const struct claims *c)
{
    return c->name;
}

static bool has_gone(struct claims *c, const struct held_claim *row)
{
    char node[MEMBER_ID_ROOM];

    for (size_t i = 0; i < CLAIM_NODE_BYTES; i++) {
        snprintf(node + 2 * i, 3, "%02x", row->row[i]);
    }
    return members_is_gone(c->members, node);
}

int claim_look(struct claims *c, struct slice what, struct claim_look *out, struct err *e)
{
    struct buf row = BUF_INIT(256);
    int rc = store_get(c->store, TABLE_CLAIM, what, &row, e);

    *out = (struct claim_look){.state = CLAIM_FREE};
    if (rc == 0 && row.n != CLAIM_BYTES) {
        rc = err_set(e, E_CORRUPT, "the row of a claim has %zu bytes", row.n);
    } else if (rc == 0) {
        out->row.held = true;
        memcpy(out->row.row, row.p, CLAIM_BYTES);
        out->number = be_get(row.p + CLAIM_NODE_BYTES, 8);
        out->state = memcmp(row.p, c->node, CLAIM_NODE_BYTES) == 0 ? CLAIM_OURS
                     : has_gone(c, &out->row)                      ? CLAIM_ABANDONED
                                                                   : CLAIM_THEIRS;
    }
    buf_free(&row);
    return rc == E_NOTFOUND ? 0 : rc;
}

static struct slice row_of(const struct held_claim *x)
{
    return (struct slice){(const char *)x->row, CLAIM_BYTES};
}

int claim_take(struct claims *c, struct slice what, uint64_t number, struct batch *b,
               struct held_claim *out, struct err *e)
{
    struct buf row = BUF_INIT(CLAIM_BYTES);
    struct claim_look now;
    int rc = claim_look(c, what, &now, e);

    if (rc == 0 && now.state == CLAIM_THEIRS) {
        rc = err_set(e, E_BUSY, "another mirror has claimed \"" SLICE_FMT "\"", SLICE_ARG(what));
    }
    if (rc != 0) {
        return rc;
    }
    if (now.state == CLAIM_FREE) {
        batch_require_absent(b, TABLE_CLAIM, what);
    } else {
        claim_require(b, what, &now.row);
    }
    buf_add(&row, c->node, CLAIM_NODE_BYTES);
    buf_be(&row, 8, number);
    out->held = true;
    memcpy(out->row, row.p, CLAIM_BYTES);
    batch_put(b, TABLE_CLAIM, what, buf_slice(&row));
    buf_free(&row);
    return 0;
}

void claim_require(struct batch *b, struct slice what, const struct held_claim *held)
{
    batch_require_value(b, TABLE_CLAIM, what, row_of(held));
}

void claim_end(struct batch *b, struct slice what, const struct held_claim *held)
{
    claim_require(b, what, held);
    batch_del(b, TABLE_CLAIM, what);
}
