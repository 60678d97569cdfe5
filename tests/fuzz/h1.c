/* h1.c - fuzzes the HTTP/1 parser against its promises: pieces or whole, the verdict is one;
 * nothing dangerous passes. */
#include "server/http/h1_parse.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

enum { FIELDS_MAX = 20 };

static const struct h1_limits limits = {
    .header_bytes = 4096, .header_fields = FIELDS_MAX, .uri_bytes = 512};

static bool clean(struct slice s, bool blanks)
{
    for (size_t i = 0; i < s.n; i++) {
        unsigned char c = (unsigned char)s.p[i];
        if (c == 0x7f || (c < ' ' && c != '\t') || (!blanks && c <= ' ')) {
            return false;
        }
    }
    return true;
}

static void check_head(const struct h1_head *h, const struct http_field *fields)
{
    CHECK(h->target.n > 0 && h->target.p[0] == '/' && clean(h->target, false));
    CHECK(h->method.n > 0 && clean(h->method, false) && clean(h->host, false));
    CHECK(h->nfields <= FIELDS_MAX);
    CHECK(h->framing == H1_LENGTH ? h->content_length > 0 : true);
    for (size_t i = 0; i < h->nfields; i++) {
        CHECK(fields[i].name.n > 0 && clean(fields[i].name, false) && clean(fields[i].value, true));
        CHECK(!slice_eqs(fields[i].name, "host") && !slice_eqs(fields[i].name, "content-length") &&
              !slice_eqs(fields[i].name, "transfer-encoding"));
    }
}

static ptrdiff_t head_end_in_pieces(struct slice all)
{
    size_t scanned = 0;
    ptrdiff_t end = 0;

    for (size_t n = 0; n <= all.n && end == 0; n++) {
        end = h1_head_end(slice_first(all, n), &limits, &scanned);
    }
    return end;
}

static void fuzz_head(struct slice all)
{
    struct http_field fields[FIELDS_MAX];
    struct h1_head head;
    size_t scanned = 0;
    ptrdiff_t end = h1_head_end(all, &limits, &scanned);
    char *copy;

    /* A refusal may come earlier in pieces, with another status; an end never differs. */
    if (all.n < 8192) {
        ptrdiff_t again = head_end_in_pieces(all);
        CHECK(end > 0 ? again == end : again <= 0);
    }
    if (end <= 0) {
        return;
    }
    copy = malloc((size_t)end);
    CHECK(copy != NULL);
    memcpy(copy, all.p, (size_t)end);
    if (h1_parse_head(copy, (size_t)end, &limits, &head, fields) == 0) {
        check_head(&head, fields);
    }
    free(copy);
}

struct decoded {
    char bytes[8192];
    size_t n;
    int rc;
    size_t used;
};

static void decode(struct slice all, size_t step, struct decoded *d)
{
    struct h1_chunks c = {.left = 0};

    d->n = d->used = 0;
    d->rc = 0;
    while (d->used < all.n && d->rc == 0) {
        size_t piece = (size_t)min_u64(step, all.n - d->used);
        struct slice data;
        size_t used;
        d->rc = h1_chunks_feed(&c, slice_of(all.p + d->used, piece), &used, &data);
        CHECK(used <= piece && (used > 0 || d->rc != 0));
        CHECK(data.n == 0 ||
              (data.p >= all.p + d->used && data.p + data.n <= all.p + d->used + used));
        CHECK(d->n + data.n <= sizeof d->bytes);
        if (data.n > 0) {
            memcpy(d->bytes + d->n, data.p, data.n);
        }
        d->n += data.n;
        d->used += used;
    }
}

static void fuzz_chunks(struct slice all)
{
    static struct decoded whole;
    static struct decoded pieces;

    if (all.n > sizeof whole.bytes) {
        return;
    }
    decode(all, all.n, &whole);
    decode(all, 1, &pieces);
    CHECK(whole.rc == pieces.rc);
    if (whole.rc >= 0) {
        CHECK(whole.n == pieces.n && whole.used == pieces.used &&
              memcmp(whole.bytes, pieces.bytes, whole.n) == 0);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
    fuzz_head(slice_of(p, n));
    fuzz_chunks(slice_of(p, n));
    return 0;
}
