#include "server/sync/rsync/accord.h"

#include <stdio.h>
#include <string.h>

#include "server/sync/rsync/varint.h"

enum { CARRY_MAX = 64 << 10, PATH_ROOM = 16 << 10 };

void accord_init(struct accord *a, const struct accord_terms *t)
{
    *a = (struct accord){.terms = *t, .path = BUF_INIT(PATH_ROOM), .carry = BUF_INIT(CARRY_MAX)};
    buf_adds(&a->path, t->path);
    greeting_init(&a->greeting, t->offer, t->module, t->user, t->password);
}

void accord_fini(struct accord *a)
{
    greeting_fini(&a->greeting);
    buf_free(&a->path);
    buf_free(&a->carry);
}

static void put_argument(struct buf *out, const char *text)
{
    buf_add(out, text, strlen(text) + 1);
}

static void put_arguments(struct accord *a, struct buf *out)
{
    char options[32];

    snprintf(options, sizeof options, "-lt%sre.LfxCI%su", a->terms.hard_links ? "H" : "",
             a->terms.plain ? "" : "v");
    put_argument(out, "--server");
    put_argument(out, "--sender");
    put_argument(out, options);
    put_argument(out, ".");
    buf_adds(out, a->terms.module);
    buf_byte(out, '/');
    buf_adds(out, buf_slice(&a->path));
    buf_byte(out, 0);
    put_argument(out, "");
}

static int feed_greeting(struct accord *a, struct slice *in, struct buf *out, struct err *e)
{
    int rc = greeting_feed(&a->greeting, in, e);

    buf_adds(out, buf_slice(&a->greeting.out));
    buf_clear(&a->greeting.out);
    if (rc != 0 || !a->greeting.done) {
        return rc;
    }
    put_arguments(a, out);
    a->greeted = true;
    return 0;
}

/* E_AGAIN: more bytes are needed. */
static int read_abilities(struct accord *a, struct get *g, struct buf *out, struct err *e)
{
    uint32_t compat = (uint32_t)get_varint(g);
    struct slice theirs;

    if (g->rc != 0) {
        return g->rc;
    }
    if ((compat & COMPAT_INC_RECURSE) != 0) {
        return err_set(e, E_PROTOCOL,
                       "the peer wants to list piece by piece, which we did not offer");
    }
    a->kind = CHECKSUM_MD5;
    if ((compat & COMPAT_VARINT) != 0) {
        if (a->compat == 0) {
            put_vstring(out, SLICE(CHECKSUM_OFFER));
        }
        a->compat = compat; /* said: not again */
        theirs = get_vstring(g);
        if (g->rc == 0 && !checksum_agree(SLICE(CHECKSUM_OFFER), theirs, &a->kind)) {
            return err_set(e, E_UNSUPPORTED, "the peer's checksums are '" SLICE_FMT "' alone",
                           SLICE_ARG(slice_first(theirs, theirs.n < 80 ? theirs.n : 80)));
        }
    }
    a->seed = get_int(g);
    a->compat = compat;
    return g->rc;
}

static int feed_abilities(struct accord *a, struct slice *in, struct buf *out, struct err *e)
{
    while (in->n > 0 && !a->done) { /* a byte at a time: what follows is framed */
        struct get g;
        int rc;
        buf_byte(&a->carry, (uint8_t)*in->p);
        *in = slice_from(*in, 1);
        g = get_from(buf_slice(&a->carry));
        rc = read_abilities(a, &g, out, e);
        if (rc != 0 && rc != E_AGAIN) {
            return g.rc == rc ? err_set(e, E_PROTOCOL, "the peer's abilities make no sense") : rc;
        }
        a->done = rc == 0;
    }
    return 0;
}

int accord_feed(struct accord *a, struct slice *in, struct buf *out, struct err *e)
{
    int rc = 0;

    while (rc == 0 && in->n > 0 && !a->greeted) {
        rc = feed_greeting(a, in, out, e);
    }
    return rc == 0 && a->greeted ? feed_abilities(a, in, out, e) : rc;
}
