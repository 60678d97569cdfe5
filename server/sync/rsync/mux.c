#include "server/sync/rsync/mux.h"

#include "common/base/endian.h"

enum { MUX_BASE = 7 };

void mux_init(struct mux *m)
{
    *m = (struct mux){.text = BUF_INIT(MUX_TEXT_MAX)};
}

void mux_fini(struct mux *m)
{
    buf_free(&m->text);
}

static bool is_known_code(unsigned code)
{
    return code <= MUX_STATS || code == MUX_IO_ERROR || code == MUX_IO_TIMEOUT ||
           code == MUX_NOOP || code == MUX_ERROR_EXIT ||
           (code >= MUX_SUCCESS && code <= MUX_NO_SEND);
}

static int begin_mux_piece(struct mux *m, struct err *e)
{
    unsigned top = m->head[3];
    size_t n = (size_t)le_get(m->head, 3);

    if (top < MUX_BASE || !is_known_code(top - MUX_BASE)) {
        return err_set(e, E_PROTOCOL, "the peer sent a frame of unknown kind %d",
                       (int)top - MUX_BASE);
    }
    m->code = (enum mux_code)(top - MUX_BASE);
    m->left = n;
    m->reported = false;
    if (m->code != MUX_DATA && n > MUX_TEXT_MAX) {
        return err_set(e, E_PROTOCOL, "the peer sent a message that is too long: %zu bytes", n);
    }
    buf_clear(&m->text);
    return 0;
}

static size_t take_some(struct slice *in, size_t n)
{
    size_t got = in->n < n ? in->n : n;
    *in = slice_from(*in, got);
    return got;
}

int mux_next(struct mux *m, struct slice *in, struct mux_piece *out, struct err *e)
{
    for (;;) {
        const char *p = in->p;
        size_t got;

        if (m->head_n < MUX_HEAD) {
            if (in->n == 0) {
                return 0;
            }
            m->head[m->head_n++] = (uint8_t)*p;
            *in = slice_from(*in, 1);
            if (m->head_n == MUX_HEAD) {
                int rc = begin_mux_piece(m, e);
                if (rc != 0) {
                    return rc;
                }
            }
            continue;
        }
        if (m->left == 0) {
            m->head_n = 0;
            if (m->code == MUX_DATA || m->reported) {
                continue;
            }
            *out = (struct mux_piece){m->code, buf_slice(&m->text)};
            m->reported = true;
            return 1;
        }
        if (in->n == 0) {
            return 0;
        }
        got = take_some(in, m->left);
        m->left -= got;
        if (m->code == MUX_DATA) {
            *out = (struct mux_piece){MUX_DATA, slice_of(p, got)};
            return 1;
        }
        buf_add(&m->text, p, got);
    }
}

/* The text of a message is passed on when it is complete: until then it is not read. */
bool mux_between(const struct mux *m)
{
    return m->head_n == 0 ||
           (m->head_n == MUX_HEAD && m->left == 0 && (m->code == MUX_DATA || m->reported));
}

static void put_mux_head(struct buf *b, enum mux_code code, size_t n)
{
    buf_le(b, 3, n);
    buf_byte(b, (uint8_t)(MUX_BASE + code));
}

void mux_put(struct buf *b, enum mux_code code, struct slice bytes)
{
    do {
        size_t n = bytes.n < MUX_DATA_MAX ? bytes.n : MUX_DATA_MAX;
        put_mux_head(b, code, n);
        buf_add(b, bytes.p, n);
        bytes = slice_from(bytes, n);
    } while (bytes.n > 0);
}
