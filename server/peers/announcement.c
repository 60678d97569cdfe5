#include "server/peers/announcement.h"

#include <arpa/inet.h>
#include <stdlib.h>

#include "common/codec/base64.h"
#include "common/codec/jread.h"
#include "common/codec/jwrite.h"

/* Padding that fits decodes to less: this is what can come of a body. */
enum { HAVE_MAX = ANNOUNCEMENT_BYTES / 4 * 3 };

static int read_port(const json_t *o, uint16_t *out, struct err *e)
{
    uint64_t port;

    if (!jread_u64(o, "port", &port) || port > UINT16_MAX) {
        return err_set(e, E_INVALID,
                       "invalid \"port\": it is a number from 1 to 65535, or 0 for a node that "
                       "serves no chunks");
    }
    *out = (uint16_t)port;
    return 0;
}

static int read_take(const json_t *o, unsigned *out, struct err *e)
{
    const json_t *v = json_object_get(o, "take");
    uint64_t take = 0;

    if (v != NULL && (!jread_count(v, &take) || take > ANNOUNCEMENT_TAKE_MAX)) {
        return err_set(e, E_INVALID, "invalid \"take\": it is a number from 0 to %d",
                       ANNOUNCEMENT_TAKE_MAX);
    }
    *out = (unsigned)take;
    return 0;
}

static int read_have(const json_t *o, struct node_announcement *out, struct err *e)
{
    struct slice text = jread_text(o, "have");

    if (text.p != NULL) {
        out->have = mem_array(text.n / 4 * 3 + 1, 1);
        if (base64_decode(text, out->have, HAVE_MAX, &out->have_bytes)) {
            return 0;
        }
    }
    return err_set(e, E_INVALID,
                   "invalid \"have\": it is a bitmap in base64 with padding, where bit 7 of "
                   "byte 0 is chunk 0");
}

static int read_leave(const json_t *o, bool *out, struct err *e)
{
    const json_t *v = json_object_get(o, "leave");

    *out = json_is_true(v);
    return v == NULL || json_is_boolean(v)
               ? 0
               : err_set(e, E_INVALID, "invalid \"leave\": it is true or false");
}

int announcement_read(struct slice body, struct node_announcement *out, struct err *e)
{
    json_t *o = jread_parse(body, JSON_REJECT_DUPLICATES, 4 * ANNOUNCEMENT_TAKE_MAX);
    int rc = 0;

    *out = (struct node_announcement){0};
    if (!json_is_object(o)) {
        rc = err_set(e, E_INVALID, "the body is not a JSON object");
    } else if (!slice_hex(jread_text(o, "id"), out->id, sizeof out->id)) {
        rc = err_set(e, E_INVALID, "invalid \"id\": it has 32 hex digits");
    } else {
        rc = read_leave(o, &out->leave, e);
    }
    if (rc == 0 && !out->leave) {
        rc = read_port(o, &out->port, e);
        rc = rc != 0 ? rc : read_take(o, &out->take, e);
        rc = rc != 0 ? rc : read_have(o, out, e);
    }
    json_decref(o);
    return rc;
}

void announcement_free(struct node_announcement *a)
{
    free(a->have);
    a->have = NULL;
    a->have_bytes = 0;
}

static void write_peer(const struct swarm_peer *p, struct buf *out)
{
    char text[INET6_ADDRSTRLEN];
    struct in6_addr six;

    memcpy(&six, p->address, sizeof six);
    if (IN6_IS_ADDR_V4MAPPED(&six)) {
        inet_ntop(AF_INET, p->address + 12, text, sizeof text);
    } else {
        inet_ntop(AF_INET6, &six, text, sizeof text);
    }
    jwrite_open(out, NULL, '{');
    jwrite_str(out, "address", text);
    jwrite_u64(out, "port", p->port);
    jwrite_close(out, '}');
}

void swarm_answer_write(const struct swarm_answer *a, struct buf *out)
{
    jwrite_open(out, NULL, '{');
    jwrite_hex(out, "key", a->key, sizeof a->key);
    jwrite_open(out, "take", '[');
    for (size_t i = 0; i < a->takes; i++) {
        jwrite_u64(out, NULL, a->take[i]);
    }
    jwrite_close(out, ']');
    jwrite_open(out, "peers", '[');
    for (size_t i = 0; i < a->peers; i++) {
        write_peer(&a->peer[i], out);
    }
    jwrite_close(out, ']');
    jwrite_u64(out, "swarm", a->members);
    jwrite_u64(out, "again_s", a->again_s);
    jwrite_close(out, '}');
    buf_byte(out, '\n');
}
