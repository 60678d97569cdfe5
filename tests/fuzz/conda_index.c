/* repodata.json of a stranger's channel, packed by the first byte, in two pieces: what it names are
 * file names, also where the rest is passed over; and what is left of it without its base_url can
 * be read again, and has none. */
#include "server/repo/conda/strip.h"
#include "server/store/tree.h"
#include "server/repo/conda/repodata.h"
#include "server/repo/unpack.h"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

static int on_file(void *arg, const struct repodata_file *f, struct err *e)
{
    (void)arg;
    (void)e;
    CHECK(tree_path_valid(f->name) && slice_find(f->name, '/') < 0);
    return 0;
}

static int feed(void *arg, struct slice bytes, struct err *e)
{
    return repodata_feed(arg, bytes, e);
}

static int on_base(void *arg, struct slice url, struct err *e)
{
    (void)url;
    (void)e;
    *(bool *)arg = true;
    return 0;
}

static int strip(void *arg, struct slice bytes, struct err *e)
{
    return strip_feed(arg, bytes, e);
}

static int read_as(enum packing how, struct slice all, size_t cut,
                   int (*fn)(void *arg, struct slice bytes, struct err *e), void *arg)
{
    struct unpack *u = unpack_open(how, fn, arg, 1 << 20);
    int rc = unpack_feed(u, slice_first(all, cut), NULL);

    rc = rc == 0 ? unpack_feed(u, slice_from(all, cut), NULL) : rc;
    rc = rc == 0 ? unpack_finish(u, NULL) : rc;
    unpack_close(&u);
    return rc;
}

static int read_index(enum packing how, struct slice all, size_t cut, bool lenient, bool *based)
{
    struct repodata_events ev = {
        .on_file = on_file, .arg = based, .on_base = lenient ? on_base : NULL, .lenient = lenient};
    struct repodata *r = repodata_open(&ev);
    int rc = read_as(how, all, cut, feed, r);

    rc = rc == 0 ? repodata_finish(r, NULL) : rc;
    repodata_close(&r);
    return rc;
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
    struct buf left = BUF_INIT(4 << 20);
    struct slice all;
    struct strip *s;
    bool based = false;
    size_t cut;
    int strict, lenient;

    if (n < 2) {
        return 0;
    }
    all = slice_of(p + 2, n - 2);
    cut = all.n * p[1] / 256;
    strict = read_index((enum packing)(p[0] % 5), all, cut, false, &based);
    lenient = read_index((enum packing)(p[0] % 5), all, cut, true, &based);
    CHECK(strict != 0 || (lenient == 0 && !based));
    s = strip_open(&left);
    if (read_as((enum packing)(p[0] % 5), all, cut, strip, s) == 0 && strip_finish(s, NULL) == 0 &&
        lenient == 0) {
        based = false;
        lenient = read_index(PACKING_NONE, buf_slice(&left), 0, true, &based);
        CHECK(lenient == 0 && !based);
    }
    strip_close(&s);
    buf_free(&left);
    return 0;
}
