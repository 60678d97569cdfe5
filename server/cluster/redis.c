#include "server/cluster/redis.h"

#include <inttypes.h>

void redis_command(struct buf *out, const struct slice *word, size_t n)
{
    buf_addf(out, "*%zu\r\n", n);
    for (size_t i = 0; i < n; i++) {
        buf_addf(out, "$%zu\r\n", word[i].n);
        buf_adds(out, word[i]);
        buf_str(out, "\r\n");
    }
}

/* The bytes up to the end of a line, without it. 0: it has no end yet. */
static int read_line(struct slice *in, struct slice *line)
{
    ptrdiff_t end = slice_find(*in, '\n');

    if (end < 0) {
        return 0;
    }
    if (end == 0 || in->p[end - 1] != '\r') {
        return E_INVALID;
    }
    *line = slice_first(*in, (size_t)end - 1);
    *in = slice_from(*in, (size_t)end + 1);
    return 1;
}

/* "$5\r\nhello\r\n", whose first line was read. "$-1" is an absent text. */
static int read_bulk(struct slice *in, struct slice length, struct slice *out)
{
    struct slice end;
    uint64_t n;

    *out = SLICE_NONE;
    if (slice_eqs(length, "-1")) {
        return 1;
    }
    if (!slice_u64(length, &n)) {
        return E_INVALID;
    }
    if (in->n < 2 || n > in->n - 2) {
        return 0;
    }
    *out = slice_first(*in, (size_t)n);
    end = slice_first(slice_from(*in, (size_t)n), 2);
    *in = slice_from(*in, (size_t)n + 2);
    return slice_eqs(end, "\r\n") ? 1 : E_INVALID;
}

/* Anything but an array. */
static int read_item(struct slice *in, char *type, struct slice *out)
{
    struct slice line;
    int rc = read_line(in, &line);

    if (rc != 1 || line.n == 0) {
        return rc != 1 ? rc : E_INVALID;
    }
    *type = line.p[0];
    *out = slice_from(line, 1);
    switch (*type) {
    case '+':
    case '-':
    case ':':
    case '*':
        return 1;
    case '$':
        return read_bulk(in, *out, out);
    default:
        return E_INVALID;
    }
}

int redis_reply_read(struct slice *in, struct redis_reply *out)
{
    struct slice rest = *in;
    uint64_t items;
    char type;
    int rc;

    *out = (struct redis_reply){0};
    rc = read_item(&rest, &out->type, &out->text);
    if (rc == 1 && out->type == '*') {
        if (!slice_u64(out->text, &items) || items > REDIS_ITEMS_MAX) {
            return E_INVALID;
        }
        for (; rc == 1 && out->items < items; out->items++) {
            rc = read_item(&rest, &type, &out->item[out->items]);
            if (rc == 1 && type == '*') {
                return E_INVALID;
            }
        }
    }
    if (rc == 1) {
        *in = rest;
    }
    return rc;
}
