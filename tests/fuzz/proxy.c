/* proxy.c - fuzzes a proxy's name, the hosts that avoid it, its answer: what is read borrows from
 * the text, and an answer ends where it ends however much has come. */
#include "server/sync/proxy.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

static void answer(struct slice in)
{
    size_t used = 0, less = 0;
    int rc = proxy_answer(in, &used, NULL);

    if (rc != E_AGAIN && used != 0) {
        CHECK(used <= in.n);
        CHECK(proxy_answer(slice_first(in, used), &less, NULL) == rc && less == used);
        CHECK(used > PROXY_ANSWER_MAX ||
              proxy_answer(slice_first(in, used - 1), &less, NULL) == E_AGAIN);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
    struct slice text = slice_of(p, n);
    struct buf ask = BUF_INIT(8192);
    struct buf list = BUF_INIT(8192);
    struct proxy way;

    answer(text);
    if (proxy_parse(text, &way, NULL) == 0) {
        CHECK(way.host.n > 0 && way.host.n <= DIAL_HOST_MAX && way.port != 0);
        (void)!proxy_ask(&way, way.host, way.port, &ask, NULL);
        buf_adds(&list, text);
        (void)proxy_avoids(buf_cstr(&list), way.host);
    }
    buf_free(&list);
    buf_free(&ask);
    return 0;
}
