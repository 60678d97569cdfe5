#include "server/admin/jo.h"

#include <inttypes.h>

#include "common/codec/jwrite.h"

/* The quoted text alone. */
static void quoted(struct buf *out, struct slice value)
{
    struct jwrite j = JWRITE_INTO(out);

    jwrite_text(&j, value);
}

static void lead_in(struct buf *out, const char *key)
{
    char last = out->n > 0 ? out->p[out->n - 1] : '{';

    if (last != '{' && last != '[' && last != '\n') {
        buf_byte(out, ',');
    }
    if (key != NULL) {
        quoted(out, slice_str(key));
        buf_byte(out, ':');
    }
}

void jo_open(struct buf *out, const char *key, char bracket)
{
    lead_in(out, key);
    buf_byte(out, (uint8_t)bracket);
}

void jo_shut(struct buf *out, char bracket)
{
    buf_byte(out, (uint8_t)bracket);
}

void jo_str(struct buf *out, const char *key, struct slice value)
{
    lead_in(out, key);
    quoted(out, value);
}

void jo_digest(struct buf *out, const char *key, const struct digest *d)
{
    char hex[DIGEST_HEX + 1];

    digest_format(d, hex);
    jo_str(out, key, slice_str(hex));
}

void jo_u64(struct buf *out, const char *key, uint64_t value)
{
    lead_in(out, key);
    buf_addf(out, "%" PRIu64, value);
}

void jo_ratio(struct buf *out, const char *key, double value)
{
    lead_in(out, key);
    buf_addf(out, "%.4f", value);
}

void jo_bool(struct buf *out, const char *key, bool value)
{
    lead_in(out, key);
    buf_str(out, value ? "true" : "false");
}

void jo_null(struct buf *out, const char *key)
{
    lead_in(out, key);
    buf_str(out, "null");
}

void jo_err(struct buf *out, const char *key, const struct err *e)
{
    struct jwrite j = JWRITE_INTO(out);

    lead_in(out, key);
    jwrite_err(&j, e);
}
