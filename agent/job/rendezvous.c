#include "agent/job/rendezvous.h"

#include <errno.h>
#include <stdio.h>
#include <sys/socket.h>

#include "common/hash/digest.h"

enum { NUMBERS = 12, BLOCK = 64, HEAD = 1 + 4 * NUMBERS };

/* --- the greeting ----------------------------------------------------------------------------- */

/* RFC 2104, of a key of 32 bytes. */
static void hmac(const struct digest *key, struct slice text, uint8_t out[RDZV_MAC])
{
    struct buf inner = BUF_INIT(512), outer = BUF_INIT(256);
    uint8_t pad[BLOCK];
    struct digest d;

    for (size_t i = 0; i < BLOCK; i++) {
        pad[i] = (i < DIGEST_BYTES ? key->b[i] : 0) ^ 0x36;
    }
    buf_add(&inner, pad, sizeof pad);
    buf_adds(&inner, text);
    digest_of(buf_slice(&inner), &d);
    for (size_t i = 0; i < BLOCK; i++) {
        pad[i] ^= 0x36 ^ 0x5c;
    }
    buf_add(&outer, pad, sizeof pad);
    buf_add(&outer, d.b, DIGEST_BYTES);
    digest_of(buf_slice(&outer), &d);
    memcpy(out, d.b, RDZV_MAC);
    buf_free(&inner);
    buf_free(&outer);
}

void rdzv_mac(const char *id, const char *role, const uint8_t service[RDZV_NONCE],
              const uint8_t agent[RDZV_NONCE], uint8_t out[RDZV_MAC])
{
    struct buf text = BUF_INIT(256);
    struct digest key;

    digest_of(slice_str(id), &key);
    buf_str(&text, role);
    buf_add(&text, service, RDZV_NONCE);
    buf_add(&text, agent, RDZV_NONCE);
    hmac(&key, buf_slice(&text), out);
    buf_free(&text);
}

bool rdzv_same(const uint8_t *a, const uint8_t *b, size_t n)
{
    uint8_t differs = 0;

    for (size_t i = 0; i < n; i++) {
        differs |= a[i] ^ b[i];
    }
    return differs == 0;
}

/* --- messages --------------------------------------------------------------------------------- */

static void numbers_of(struct rdzv_message *m, uint32_t *n[NUMBERS])
{
    uint32_t *const all[NUMBERS] = {&m->generation, &m->node,  &m->ranks,     &m->min,
                                    &m->max,        &m->code,  &m->by_signal, &m->allow_ms,
                                    &m->nodes,      &m->first, &m->world,     &m->port};

    memcpy(n, all, sizeof all);
}

void rdzv_encode(const struct rdzv_message *m, struct buf *out)
{
    struct rdzv_message copy = *m;
    size_t n = strnlen(m->text, sizeof m->text - 1);
    uint32_t *number[NUMBERS];

    numbers_of(&copy, number);
    buf_be(out, 2, HEAD + n);
    buf_be(out, 1, m->type);
    for (size_t i = 0; i < NUMBERS; i++) {
        buf_be(out, 4, *number[i]);
    }
    buf_add(out, m->text, n);
}

int rdzv_decode(struct buf *in, struct rdzv_message *out)
{
    struct slice rest = buf_slice(in), body;
    uint32_t *number[NUMBERS];
    uint64_t length, value;

    *out = (struct rdzv_message){0};
    if (!slice_be(&rest, 2, &length)) {
        return 0;
    }
    if (length < HEAD || length >= HEAD + RDZV_TEXT) {
        return E_PROTOCOL;
    }
    if (!slice_take(&rest, length, &body)) {
        return 0;
    }
    numbers_of(out, number);
    (void)!slice_be(&body, 1, &value); /* the length was checked */
    out->type = (enum rdzv_type)value;
    for (size_t i = 0; i < NUMBERS; i++) {
        (void)!slice_be(&body, 4, &value);
        *number[i] = (uint32_t)value;
    }
    memcpy(out->text, body.p, body.n);
    buf_drop(in, 2 + length);
    return 1;
}

int rdzv_receive(int fd, struct buf *in)
{
    char some[RDZV_BUFFER];

    while (in->n < RDZV_BUFFER) {
        ssize_t n = recv(fd, some, RDZV_BUFFER - in->n, MSG_DONTWAIT);

        if (n > 0) {
            buf_add(in, some, (size_t)n);
        } else if (n == 0 || (errno != EAGAIN && errno != EINTR)) {
            return E_NETWORK;
        } else if (errno == EAGAIN) {
            return 0;
        }
    }
    return 0;
}

int rdzv_send(int fd, const struct rdzv_message *m)
{
    struct buf b = BUF_INIT(512);
    bool sent;

    rdzv_encode(m, &b);
    sent = send(fd, b.p, b.n, MSG_NOSIGNAL | MSG_DONTWAIT) == (ssize_t)b.n;
    buf_free(&b);
    return sent ? 0 : E_NETWORK;
}
