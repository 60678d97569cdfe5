#include "server/http/body_memory.h"

#include <stdlib.h>

#include <uthash.h>

#include "common/os/lock.h"

enum { STEP_BYTES = 4 << 10, LARGE_STEP_BYTES = 64 << 10 };

struct body_holder {
    UT_hash_handle hh;
    uint64_t client;
    uint64_t bytes;
    struct list uses;
    struct list spares; /* of these, what nobody uses; or did lately: used last at the end */
};

struct body_memory {
    uint64_t bytes_max;
    struct lock lock; /* over all below */
    struct body_holder *holders;
    uint64_t ending_bytes;  /* of uses that were asked to end and have not yet */
    uint64_t leaving_bytes; /* of those, what was spare */
    struct body_memory_stats stats;
};

struct body_memory *body_memory_open(uint64_t bytes_max)
{
    struct body_memory *m = NEW(struct body_memory);

    m->bytes_max = bytes_max;
    lock_init(&m->lock, LOCK_BODY_MEMORY);
    return m;
}

void body_memory_close(struct body_memory **mp)
{
    struct body_memory *m = *mp;

    *mp = NULL;
    if (m != NULL) {
        CHECK(m->holders == NULL);
        lock_fini(&m->lock);
        free(m);
    }
}

/* --- on a loop: uses that are to end ---------------------------------------------------------- */

/* One that ends may take others with it. */
static void on_body_memory_message(struct message *l)
{
    struct body_port *p = CONTAINER_OF(l, struct body_port, message);
    struct list left, *n;

    atomic_store(&p->posted, false);
    list_init(&left);
    while ((n = list_pop_front(&p->uses)) != NULL) {
        list_push_back(&left, n);
    }
    while ((n = list_pop_front(&left)) != NULL) {
        struct body_use *u = LIST_ITEM(n, struct body_use, local);
        list_push_back(&p->uses, n);
        if (atomic_load(&u->ends)) {
            p->end(u);
        }
    }
}

void body_port_init(struct body_port *p, struct message_queue *mail,
                    void (*end)(struct body_use *u))
{
    *p = (struct body_port){.mail = mail, .end = end, .message.deliver = on_body_memory_message};
    list_init(&p->uses);
}

/* --- under the lock --------------------------------------------------------------------------- */

static struct body_holder *holder_of(struct body_memory *m, uint64_t client)
{
    struct body_holder *h = NULL;

    HASH_FIND(hh, m->holders, &client, sizeof client, h);
    if (h == NULL) {
        h = NEW(struct body_holder);
        h->client = client;
        list_init(&h->uses);
        list_init(&h->spares);
        HASH_ADD(hh, m->holders, client, sizeof h->client, h);
    }
    return h;
}

static void free_empty_holder(struct body_memory *m, struct body_holder *h)
{
    if (list_empty(&h->uses)) {
        HASH_DEL(m->holders, h);
        free(h);
    }
}

static void stay(struct body_memory *m, struct body_use *u)
{
    m->ending_bytes -= u->ends ? u->bytes : 0;
    m->leaving_bytes -= u->leaves ? u->bytes : 0;
    u->ends = u->leaves = false;
}

static void release_body_use(struct body_memory *m, struct body_use *u)
{
    struct body_holder *h = u->holder;

    list_remove(&u->node);
    list_remove_if(&u->spare);
    h->bytes -= u->bytes;
    m->stats.bytes -= u->bytes;
    stay(m, u);
    u->bytes = 0;
    u->holder = NULL;
    free_empty_holder(m, h);
}

static struct body_holder *largest(struct body_memory *m)
{
    struct body_holder *most = m->holders;

    for (struct body_holder *h = m->holders; h != NULL; h = h->hh.next) {
        most = h->bytes > most->bytes ? h : most;
    }
    return most;
}

static void end_use(struct body_memory *m, struct body_use *u)
{
    u->ends = true;
    m->ending_bytes += u->bytes;
    m->stats.ended++;
    if (!atomic_exchange(&u->port->posted, true)) {
        message_queue_post(u->port->mail, &u->port->message);
    }
}

static struct body_use *oldest_spare(struct body_holder *h)
{
    LIST_EACH (&h->spares, n) {
        struct body_use *u = LIST_ITEM(n, struct body_use, spare);
        if (u->kind == BODY_SPARE && !u->ends) {
            return u;
        }
    }
    return NULL;
}

/* Of the client that holds most, of those that have any, the one that was used longest ago. */
static struct body_use *next_spare(struct body_memory *m)
{
    struct body_use *next = NULL;

    for (struct body_holder *h = m->holders; h != NULL; h = h->hh.next) {
        if (next == NULL || h->bytes > next->holder->bytes) {
            struct body_use *u = oldest_spare(h);
            next = u != NULL ? u : next;
        }
    }
    return next;
}

static void end_spares(struct body_memory *m, uint64_t more, uint64_t bytes_max)
{
    struct body_use *u;

    while (m->stats.bytes - m->ending_bytes + more > bytes_max && (u = next_spare(m)) != NULL) {
        end_use(m, u);
        list_remove(&u->spare); /* the next look begins behind it */
        u->leaves = true;
        m->leaving_bytes += u->bytes;
    }
}

/* The largest use that may end and is not about to. */
static void end_one(struct body_memory *m, struct body_holder *h)
{
    struct body_use *most = NULL;

    LIST_EACH (&h->uses, n) {
        struct body_use *u = LIST_ITEM(n, struct body_use, node);
        if (u->kind == BODY_MAY_END && !u->ends && (most == NULL || u->bytes > most->bytes)) {
            most = u;
        }
    }
    if (most != NULL) {
        end_use(m, most);
    }
}

static bool body_fits_memory(struct body_memory *m, const struct body_holder *h,
                             enum body_kind kind, uint64_t more)
{
    uint64_t bytes_max = kind == BODY_CAN_WAIT ? m->bytes_max / 4 * 3 : m->bytes_max;
    struct body_holder *most;

    if (m->stats.bytes + more <= bytes_max) {
        return true;
    }
    end_spares(m, more, bytes_max);
    if (m->stats.bytes - m->leaving_bytes + more <= bytes_max) {
        return m->stats.bytes + more <= 2 * m->bytes_max;
    }
    most = largest(m);
    if (most == h || h->bytes + more > most->bytes) {
        return false;
    }
    if (m->stats.bytes - m->ending_bytes + more > bytes_max) {
        end_one(m, most);
    }
    return m->stats.bytes + more <= 2 * m->bytes_max;
}

/* --- the outside ------------------------------------------------------------------------------ */

bool body_memory_hold(struct body_memory *m, struct body_port *p, struct body_use *u,
                      uint64_t client, enum body_kind kind, size_t bytes)
{
    size_t step = bytes < LARGE_STEP_BYTES ? STEP_BYTES : LARGE_STEP_BYTES;
    size_t steps = (bytes + step - 1) / step * step;
    size_t more = steps > u->bytes ? steps - u->bytes : 0;
    struct body_holder *h;
    bool yes;

    atomic_store_explicit(&u->kind, kind, memory_order_relaxed);
    if (more == 0 && kind != BODY_SPARE) {
        return true;
    }
    lock_take(&m->lock);
    h = holder_of(m, client);
    yes = more == 0 || body_fits_memory(m, h, kind, more);
    if (yes && u->holder == NULL) {
        u->holder = h;
        u->port = p; /* from here on another loop may end it */
        list_push_back(&h->uses, &u->node);
    }
    if (yes) {
        CHECK(u->holder == h);
        u->bytes += more;
        m->ending_bytes += u->ends ? more : 0;
        m->leaving_bytes += u->leaves ? more : 0;
        h->bytes += more;
        m->stats.bytes += more;
        if (kind == BODY_SPARE && u->bytes != 0) {
            list_remove_if(&u->spare);
            list_push_back(&h->spares, &u->spare);
        }
    } else {
        m->stats.refused++;
    }
    if (kind == BODY_SPARE) {
        end_spares(m, 0, m->bytes_max); /* others may have waited for it */
    }
    free_empty_holder(m, h);
    lock_drop(&m->lock);
    if (yes && !list_linked(&u->local)) {
        list_push_back(&p->uses, &u->local);
    }
    return yes;
}

void body_memory_drop(struct body_memory *m, struct body_use *u)
{
    if (u->holder == NULL) {
        return;
    }
    lock_take(&m->lock);
    release_body_use(m, u);
    lock_drop(&m->lock);
    list_remove(&u->local);
}

void body_memory_spare(struct body_memory *m, struct body_use *u)
{
    lock_take(&m->lock);
    stay(m, u);
    lock_drop(&m->lock);
}

void body_memory_stats(struct body_memory *m, struct body_memory_stats *out)
{
    lock_take(&m->lock);
    *out = m->stats;
    lock_drop(&m->lock);
}
