#include "agent/peers/gift.h"

#include <fcntl.h>
#include <openssl/crypto.h>
#include <stdlib.h>
#include <unistd.h>

#include "agent/peers/bits.h"
#include "common/base/list.h"
#include "common/os/lock.h"

struct gifts {
    struct lock lock; /* over all gifts, too */
    struct list all;
};

struct gift {
    struct list node; /* of no list once it is withdrawn */
    struct gifts *gifts;
    unsigned refs;
    char hex[DIGEST_HEX + 1];
    uint64_t size_bytes;
    size_t count;
    int fd;
    bool keyed;
    bool withdrawn;
    uint8_t key[PSK_KEY_BYTES];
    uint8_t *bits;
};

struct gifts *gifts_open(void)
{
    struct gifts *g = NEW(struct gifts);

    lock_init(&g->lock, LOCK_GIFTS);
    list_init(&g->all);
    return g;
}

void gifts_close(struct gifts **gp)
{
    struct gifts *g = *gp;

    if (g != NULL) {
        *gp = NULL;
        CHECK(list_empty(&g->all));
        lock_fini(&g->lock);
        free(g);
    }
}

int gifts_offer(struct gifts *g, const struct digest *d, uint64_t size_bytes, int fd,
                struct gift **out, struct err *e)
{
    struct gift *x;
    int own = fcntl(fd, F_DUPFD_CLOEXEC, 0);

    *out = NULL;
    if (own == -1) {
        return err_sys(e, "dup");
    }
    x = NEW(struct gift);
    x->gifts = g;
    x->refs = 1;
    x->fd = own;
    x->size_bytes = size_bytes;
    x->count = (size_t)((size_bytes + CHUNK_BYTES - 1) / CHUNK_BYTES);
    x->bits = mem_array(BITS_BYTES(x->count) + 1, 1);
    digest_format(d, x->hex);
    lock_take(&g->lock);
    list_push_back(&g->all, &x->node);
    lock_drop(&g->lock);
    *out = x;
    return 0;
}

void gift_key(struct gift *x, const uint8_t key[PSK_KEY_BYTES])
{
    lock_take(&x->gifts->lock);
    memcpy(x->key, key, sizeof x->key);
    x->keyed = true;
    lock_drop(&x->gifts->lock);
}

void gift_chunk(struct gift *x, size_t i, bool there)
{
    CHECK(i < x->count);
    lock_take(&x->gifts->lock);
    bits_set(x->bits, i, there);
    lock_drop(&x->gifts->lock);
}

void gift_withdraw(struct gift *x)
{
    lock_take(&x->gifts->lock);
    x->withdrawn = true;
    list_remove_if(&x->node);
    lock_drop(&x->gifts->lock);
}

void gift_drop(struct gift **xp)
{
    struct gift *x = *xp;
    struct gifts *g;
    bool last;

    if (x == NULL) {
        return;
    }
    *xp = NULL;
    g = x->gifts;
    lock_take(&g->lock);
    last = --x->refs == 0;
    if (last) {
        list_remove_if(&x->node);
    }
    lock_drop(&g->lock);
    if (last) {
        close(x->fd);
        OPENSSL_cleanse(x->key, sizeof x->key);
        free(x->bits);
        free(x);
    }
}

struct gift *gifts_find(struct gifts *g, struct slice digest_hex, uint8_t key[PSK_KEY_BYTES])
{
    struct gift *found = NULL;

    lock_take(&g->lock);
    LIST_EACH (&g->all, n) {
        struct gift *x = LIST_ITEM(n, struct gift, node);
        if (found == NULL && x->keyed && slice_eqs(digest_hex, x->hex)) {
            found = x;
            x->refs++;
            memcpy(key, x->key, sizeof x->key);
        }
    }
    lock_drop(&g->lock);
    return found;
}

const char *gift_hex(const struct gift *x)
{
    return x->hex;
}

bool gift_bitmap(struct gift *x, struct buf *out)
{
    bool ok;

    lock_take(&x->gifts->lock);
    ok = !x->withdrawn;
    if (ok) {
        buf_add(out, x->bits, BITS_BYTES(x->count));
    }
    lock_drop(&x->gifts->lock);
    return ok;
}

bool gift_look(struct gift *x, uint64_t i, int *fd, uint64_t *at, size_t *n)
{
    bool ok;

    lock_take(&x->gifts->lock);
    ok = !x->withdrawn && i < x->count && bits_get(x->bits, (size_t)i);
    lock_drop(&x->gifts->lock);
    if (ok) {
        *fd = x->fd;
        *at = i * CHUNK_BYTES;
        *n = (size_t)min_u64(CHUNK_BYTES, x->size_bytes - *at);
    }
    return ok;
}
