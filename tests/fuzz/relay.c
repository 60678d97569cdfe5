/* relay.c - fuzzes the field of a request that another mirror passes on. After an "s" comes what is
 * signed; anything else is the whole field. */
#include "server/cluster/relay.h"
#include "server/cluster/signature.h"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

#define NODE "0123456789abcdef0123456789abcdef"

static struct http_field fields[] = {{SLICE(RELAY_FIELD), {NULL, 0}}};
static struct sockaddr_storage nobody;
static const struct http_req request = {.method_text = SLICE("PUT"),
                                        .target = SLICE("/models/me/x"),
                                        .host = SLICE("mirror.example"),
                                        .peer = &nobody,
                                        .fields = fields,
                                        .nfields = 1};

/* As relay_sign(), with any text in front of the signature. */
static void sign(struct slice hop, struct buf *out)
{
    const struct slice parts[] = {request.method_text, request.target, request.host, hop,
                                  SLICE("")};
    struct buf text = BUF_INIT(1 << 20);
    char hex[SIGNATURE_ROOM];

    for (size_t i = 0; i < ARRAY_LEN(parts); i++) {
        buf_addf(&text, "%zu ", parts[i].n);
        buf_adds(&text, parts[i]);
    }
    signature_make("secret", "hop", buf_slice(&text), hex);
    buf_adds(out, hop);
    buf_byte(out, ' ');
    buf_str(out, hex);
    buf_free(&text);
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
    static struct relay *r;
    struct buf value = BUF_INIT(1 << 20);
    struct sockaddr_storage peer;
    bool is_signed = n > 0 && p[0] == 's', tls;

    if (r == NULL) {
        r = relay_open("secret", NODE, NULL);
    }
    if (is_signed) {
        sign(slice_of(p + 1, n - 1), &value);
    } else {
        buf_add(&value, p, n);
    }
    fields[0].value = buf_slice(&value);
    if (relay_read(r, &request, &peer, &tls)) {
        CHECK(is_signed && slice_starts(buf_slice(&value), SLICE("1 ")));
        CHECK(peer.ss_family == AF_INET || peer.ss_family == AF_INET6);
    }
    buf_free(&value);
    return 0;
}
