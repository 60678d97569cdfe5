#include "agent/peers/announcement.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>

#include "agent/peers/bits.h"
#include "common/codec/base64.h"
#include "common/codec/jread.h"
#include "common/codec/jwrite.h"

enum { AGAIN_MIN_S = 1, AGAIN_MAX_S = 300 };

void announcement_write(const struct announcement *a, struct buf *out)
{
    size_t n = BITS_BYTES(a->count);
    char *text = mem_new(BASE64_ROOM(n));

    base64_encode(a->have, n, text);
    jwrite_open(out, NULL, '{');
    jwrite_hex(out, "id", a->id, SWARM_ID_BYTES);
    jwrite_u64(out, "port", a->port);
    jwrite_str(out, "have", text);
    jwrite_u64(out, "take", a->take);
    jwrite_close(out, '}');
    free(text);
}

void announcement_leave(const uint8_t id[SWARM_ID_BYTES], struct buf *out)
{
    jwrite_open(out, NULL, '{');
    jwrite_hex(out, "id", id, SWARM_ID_BYTES);
    jwrite_bool(out, "leave", true);
    jwrite_close(out, '}');
}

static bool read_peer(const json_t *p, char out[ADDRESS_ROOM])
{
    struct slice text = jread_text(p, "address");
    char address[INET6_ADDRSTRLEN];
    struct in6_addr bytes;
    uint64_t port = 0;

    if (text.n == 0 || text.n >= sizeof address || !jread_u64(p, "port", &port) || port == 0 ||
        port > UINT16_MAX || memchr(text.p, '\0', text.n) != NULL) {
        return false;
    }
    memcpy(address, text.p, text.n);
    address[text.n] = '\0';
    if (inet_pton(AF_INET, address, &bytes) == 1) {
        snprintf(out, ADDRESS_ROOM, "%s:%u", address, (unsigned)port);
        return true;
    }
    if (inet_pton(AF_INET6, address, &bytes) == 1) {
        snprintf(out, ADDRESS_ROOM, "[%s]:%u", address, (unsigned)port);
        return true;
    }
    return false;
}

static void read_take(const json_t *list, size_t count, struct reported *out)
{
    for (size_t i = 0; i < json_array_size(list) && out->ntake < TAKE_MAX; i++) {
        uint64_t chunk;
        if (jread_count(json_array_get(list, i), &chunk) && chunk < count) {
            out->take[out->ntake++] = (size_t)chunk;
        }
    }
}

static int read_doc(const json_t *doc, size_t count, struct reported *out, struct err *e)
{
    const json_t *peers = json_object_get(doc, "peers");
    uint64_t again_s = AGAIN_MIN_S;

    if (!slice_hex(jread_text(doc, "key"), out->key, PSK_KEY_BYTES)) {
        return err_set(e, E_PROTOCOL, "the mirror's list of peers has no key");
    }
    out->members = 1;
    (void)jread_u64(doc, "swarm", &out->members);
    (void)jread_u64(doc, "again_s", &again_s);
    out->again_ms = 1000 * (again_s < AGAIN_MIN_S   ? AGAIN_MIN_S
                            : again_s > AGAIN_MAX_S ? AGAIN_MAX_S
                                                    : again_s);
    read_take(json_object_get(doc, "take"), count, out);
    for (size_t i = 0; i < json_array_size(peers) && out->npeers < REPORTED_PEERS_MAX; i++) {
        out->npeers += read_peer(json_array_get(peers, i), out->peer[out->npeers]);
    }
    return 0;
}

int reported_read(struct slice text, size_t count, struct reported *out, struct err *e)
{
    json_t *doc = json_loadb(text.p != NULL ? text.p : "", text.n, JSON_ALLOW_NUL, NULL);
    int rc;

    *out = (struct reported){0};
    rc = read_doc(doc, count, out, e);
    json_decref(doc);
    return rc;
}
