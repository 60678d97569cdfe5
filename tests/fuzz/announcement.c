/* What a node says of a file: read, or refused; what is read fits its bounds, and what a swarm of
 * 100 chunks answers to it, time going on, is JSON that says nothing which cannot be. The first
 * byte says how many members say it. */
#include <jansson.h>

#include "server/peers/peers.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { CHUNKS = 100 };

static void check_answer(const struct swarm_answer *a)
{
    struct buf out = BUF_INIT(64 << 10);
    json_t *o;

    for (size_t i = 0; i < a->takes; i++) {
        CHECK(a->take[i] < CHUNKS);
        for (size_t k = 0; k < i; k++) {
            CHECK(a->take[k] != a->take[i]);
        }
    }
    swarm_answer_write(a, &out);
    o = json_loadb(out.p, out.n, JSON_REJECT_DUPLICATES, NULL);
    CHECK(out.rc == 0 && json_array_size(json_object_get(o, "take")) == a->takes &&
          json_array_size(json_object_get(o, "peers")) == a->peers && a->peers < a->members);
    json_decref(o);
    buf_free(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const struct peers_settings rules = {.again_s = 1, .lease_s = 1, .members = 5};
    const struct digest d = {{1}};
    uint8_t from[SWARM_ADDRESS] = {[10] = 0xff, [11] = 0xff, [12] = 10};
    struct peers *p;
    struct node_announcement a;
    struct err e = {0};
    uint64_t now_ms = 0;

    if (size == 0) {
        return 0;
    }
    if (announcement_read(slice_of(data + 1, size - 1), &a, &e) != 0) {
        CHECK(e.code == E_INVALID && e.text[0] != '\0');
        announcement_free(&a);
        return 0;
    }
    CHECK(a.take <= ANNOUNCEMENT_TAKE_MAX && (a.have != NULL) == !a.leave);
    p = peers_open(&rules);
    for (unsigned i = 0; i < data[0] % 16u + 1; i++) {
        struct swarm_answer out;
        bool began;
        from[15] = a.id[0] ^= (uint8_t)(i % 7);
        if (peers_announce(p, &d, CHUNKS * CHUNK_BYTES, 1, &a, from, now_ms, &out, &began, &e) ==
                0 &&
            !a.leave) {
            struct swarm_view v;
            check_answer(&out);
            CHECK(peers_look(p, now_ms, &v, 1) == 1);
            CHECK(v.count.had + v.count.asked <= CHUNKS && v.count.members <= rules.members);
        }
        now_ms += 300;
    }
    peers_close(&p);
    announcement_free(&a);
    return 0;
}
