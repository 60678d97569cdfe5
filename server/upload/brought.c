#include "server/upload/brought.h"

#include <stdio.h>

#include "server/upload/offer.h"

enum { WHAT_BYTES = 8 + DIGEST_HEX + 1 };

static struct slice what_of(const struct digest *d, char out[WHAT_BYTES])
{
    char hex[DIGEST_HEX + 1];

    digest_format(d, hex);
    snprintf(out, WHAT_BYTES, "brought/%s", hex);
    return slice_str(out);
}

void brought_put(const struct session *s, const struct digest *d, uint64_t size_bytes,
                 struct batch *b)
{
    struct session_file f = {.sealed = true, .bytes = size_bytes, .digest = *d};
    char what[WHAT_BYTES];

    session_file_put(s, BROUGHT_FILE, &f, b);
    session_hold(s, SLICE_NONE, d, b);
    offer_remember(s, what_of(d, what), b);
}

void brought_key(struct buf *out, struct slice repo, struct slice name, const struct digest *d)
{
    char what[WHAT_BYTES];

    offer_remembered_key(repo, name, what_of(d, what), out);
}

void brought_forget(struct store *store, const struct session *s, const struct digest *d,
                    struct batch *b)
{
    char what[WHAT_BYTES];

    offer_forget(store, s, what_of(d, what), b);
}
