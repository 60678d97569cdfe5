/* url.c - fuzzes url_split(), url_resolve() and path_canonical() against their promises. */
#include "common/codec/url.h"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

static void canonical_is_stable(struct slice text)
{
    struct buf once = BUF_INIT(1 << 16);
    struct buf twice = BUF_INIT(1 << 16);

    if (path_canonical(text, &once, NULL) == 0) {
        struct slice c = buf_slice(&once);
        CHECK(memchr(c.p, '\0', c.n) == NULL && c.p[0] == '/');
        CHECK(memmem(c.p, c.n, "/../", 4) == NULL && !slice_ends(c, SLICE("/..")));
        CHECK(path_canonical(c, &twice, NULL) == 0 && slice_eq(c, buf_slice(&twice)));
    }
    buf_free(&once);
    buf_free(&twice);
}

static void resolved_is_a_url(struct slice text)
{
    struct buf out = BUF_INIT(1 << 20);
    struct buf again = BUF_INIT(1 << 20);
    struct url u;

    if (url_resolve(SLICE("http://a.example/b/c?d"), text, &out, NULL) == 0) {
        CHECK(url_split(buf_slice(&out), &u, NULL) == 0);
        url_write(&u, &again);
        CHECK(slice_eq(buf_slice(&out), buf_slice(&again)));
        CHECK(memmem(u.path.p, u.path.n, "/../", 4) == NULL);
    }
    buf_free(&out);
    buf_free(&again);
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
    struct slice text = slice_of(p, n);
    struct url u;

    if (url_split(text, &u, NULL) == 0) {
        CHECK(u.host.n > 0 && u.port != 0 && u.path.p[0] == '/');
    }
    canonical_is_stable(text);
    resolved_is_a_url(text);
    return 0;
}
