/* What a stranger's bucket says: pages of its list (an even first byte), its refusals, the query
 * that is signed, times. */
#include "common/codec/isotime.h"
#include "server/fetch/s3.h"
#include "server/fetch/s3_list.h"
#include "server/fetch/sigv4.h"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

static int on_object(void *arg, const struct s3_object *o, struct err *e)
{
    size_t *left = arg;

    CHECK(o->key.n != 0 && o->key.n <= S3_KEY_MAX);
    CHECK(o->etag.n == 0 || (o->etag.p[0] == '"' && o->etag.p[o->etag.n - 1] == '"'));
    CHECK(slice_find(o->etag, '\n') < 0);
    return (*left)-- == 0 ? err_set(e, E_TOOBIG, "enough") : 0;
}

static void read_page(struct slice doc, size_t stop_after)
{
    struct s3_list_events ev = {on_object, &stop_after};
    struct s3_list_page page;
    struct err e = {0};
    int rc = s3_list_read(doc, &ev, &page, &e);

    CHECK(rc == 0 || rc == E_INVALID || rc == E_TOOBIG);
    CHECK(rc == 0 || e.text[0] != '\0');
    CHECK(rc != 0 || !page.more || page.token[0] != '\0');
    CHECK(strlen(page.token) <= S3_TOKEN_MAX);
}

static void read_no(struct slice doc)
{
    struct s3_no no;

    s3_no_read(doc, slice_first(doc, doc.n < 50 ? doc.n : 50), &no);
    CHECK(strpbrk(no.code, "\r\n\"") == NULL && strpbrk(no.message, "\r\n\"") == NULL);
}

/* Its form is one: made again of itself it stays. */
static void read_query(struct slice raw)
{
    struct buf once = BUF_INIT(1 << 20), twice = BUF_INIT(1 << 20);

    if (sigv4_query(raw, &once)) {
        CHECK(sigv4_query(buf_slice(&once), &twice));
        CHECK(slice_eq(buf_slice(&once), buf_slice(&twice)));
    }
    buf_free(&once);
    buf_free(&twice);
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
    struct slice all;
    int64_t ns;

    if (n < 2) {
        return 0;
    }
    all = slice_of(p + 2, n - 2);
    if (p[0] % 2 == 0) {
        read_page(all, p[1]);
        return 0;
    }
    read_no(all);
    read_query(all);
    (void)!isotime_parse(all, &ns);
    return 0;
}
