/* rendezvous.c - any bytes as what an agent tells another, and as a list of hosts: parsed or not,
 * never worse. */
#include "agent/job/rendezvous.h"
#include "common/codec/hostlist.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct buf in = BUF_INIT(1 << 20), again = BUF_INIT(1 << 10);
    struct rdzv_message m, same;
    char host[HOSTLIST_NAME];

    buf_add(&in, data, size);
    while (rdzv_decode(&in, &m) == 1) {
        CHECK(m.text[RDZV_TEXT - 1] == '\0');
        buf_clear(&again);
        rdzv_encode(&m, &again);
        CHECK(rdzv_decode(&again, &same) == 1 && same.type == m.type && same.port == m.port);
    }
    if (hostlist_first(slice_of(data, size), host)) {
        CHECK(host[0] != '\0' && strlen(host) < HOSTLIST_NAME &&
              strpbrk(host, "[], /;$\n") == NULL);
    }
    buf_free(&in);
    buf_free(&again);
    return 0;
}
