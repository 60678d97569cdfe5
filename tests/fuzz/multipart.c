/* multipart.c - fuzzes the reader of forms: whole and in pieces it says the same, and what it tells
 * stands in the body, in order. */
#include "common/codec/multipart.h"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

enum { ROOM = 1 << 20 };

struct heard {
    struct buf log;
    size_t parts, data_bytes;
    bool within;
};

static int on_part(void *arg, const struct multipart_part *p, struct err *e)
{
    struct heard *h = arg;

    (void)e;
    CHECK(!h->within && ++h->parts <= MULTIPART_PARTS_MAX);
    CHECK(p->name.p != NULL && p->name.n <= MULTIPART_HEAD_BYTES &&
          p->filename.n <= MULTIPART_HEAD_BYTES);
    h->within = true;
    buf_str(&h->log, "\n[");
    buf_adds(&h->log, p->name);
    buf_str(&h->log, "|");
    buf_adds(&h->log, p->filename);
    return 0;
}

static int on_data(void *arg, struct slice bytes, struct err *e)
{
    struct heard *h = arg;

    (void)e;
    CHECK(h->within && bytes.n != 0);
    h->data_bytes += bytes.n;
    buf_adds(&h->log, bytes);
    return 0;
}

static int on_part_end(void *arg, struct err *e)
{
    struct heard *h = arg;

    (void)e;
    CHECK(h->within);
    h->within = false;
    buf_str(&h->log, "]");
    return 0;
}

static int read_in(struct slice body, struct slice boundary, size_t piece, struct heard *h)
{
    static const struct multipart_events events = {on_part, on_data, on_part_end};
    struct multipart m;
    int rc = 0;

    *h = (struct heard){.log = BUF_INIT(ROOM)};
    multipart_begin(&m, boundary, &events, h);
    while (rc == 0 && body.n != 0) {
        size_t now = body.n < piece ? body.n : piece;
        rc = multipart_feed(&m, slice_first(body, now), NULL);
        body = slice_from(body, now);
    }
    rc = rc == 0 ? multipart_end(&m, NULL) : rc;
    CHECK(rc != 0 || !h->within);
    multipart_fini(&m);
    return rc;
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
    struct slice body = slice_of(p, n), type = slice_cut(&body, '\n'), boundary;
    struct arena a = {0};
    struct heard whole, pieces;
    size_t piece = n % 7 + 1;
    int rc;

    if (n > ROOM / 4) {
        return 0;
    }
    if (!multipart_boundary(type, &a, &boundary)) {
        boundary = SLICE("xyz");
    }
    rc = read_in(body, boundary, n, &whole);
    CHECK(rc == 0 || rc == E_PROTOCOL || rc == E_TOOBIG);
    CHECK(whole.data_bytes <= body.n);
    CHECK(read_in(body, boundary, piece, &pieces) == rc);
    CHECK(rc != 0 || slice_eq(buf_slice(&whole.log), buf_slice(&pieces.log)));
    buf_free(&whole.log);
    buf_free(&pieces.log);
    arena_fini(&a);
    return 0;
}
