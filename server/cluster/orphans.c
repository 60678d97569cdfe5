#include "server/cluster/orphans.h"

#include "server/cluster/generation.h"

/* --- what is named --- */

/* Nonces are random, so another kind of object gets another hash. */
static uint64_t hash_of_key(enum dead_kind kind, uint64_t nonce)
{
    return nonce ^ (uint64_t)kind * 0x9e3779b97f4a7c15u;
}

void named_add(struct named *n, uint64_t nonce, const struct content_index *ix)
{
    set64_add(&n->indexes, nonce);
    set64_add(&n->objects, hash_of_key(DEAD_INDEX, nonce));
    for (size_t i = 0; i < content_index_objects(ix); i++) {
        struct content_object o;
        content_index_object(ix, i, &o);
        set64_add(&n->objects, hash_of_key((enum dead_kind)o.kind, o.nonce));
    }
}

struct condemned_names {
    struct named *named;
    struct bucket *bucket;
    struct buf list;
    struct err *e;
};

static int on_condemned(void *arg, const struct condemned *c)
{
    struct condemned_names *x = arg;
    char key[CONTENT_KEY_ROOM];
    struct slice objects;
    struct dead_object o;
    int rc;

    set64_add(&x->named->objects, hash_of_key(DEAD_LIST, c->list));
    dead_list_key(c->list, key);
    rc = bucket_get(x->bucket, key, &x->list, x->e);
    rc = rc != 0 ? rc : dead_list_open(buf_slice(&x->list), &objects, x->e);
    while (rc == 0 && dead_list_next(&objects, &o)) {
        set64_add(&x->named->objects, hash_of_key(o.kind, o.nonce));
    }
    return rc == E_NOTFOUND ? 0 : rc; /* another mirror has just deleted all of it */
}

int named_add_condemned(struct named *n, struct store *s, struct bucket *b, struct err *e)
{
    struct condemned_names x = {n, b, BUF_INIT(DEAD_LIST_BYTES_MAX), e};
    int rc = condemned_each(s, on_condemned, &x, e);

    buf_free(&x.list);
    return rc;
}

bool named_has(const struct named *n, const struct dead_object *o)
{
    return set64_has(&n->objects, hash_of_key(o->kind, o->nonce));
}

void named_free(struct named *n)
{
    set64_free(&n->objects);
    set64_free(&n->indexes);
}

/* --- what is not --- */

struct listing {
    const struct named *named;
    uint64_t before_unix_s;
    const atomic_bool *stop;
    struct orphans *out;
    struct err *e;
};

static int on_key(void *arg, const struct bucket_key *k)
{
    struct listing *x = arg;
    struct dead_object o;

    if (atomic_load(x->stop)) {
        return err_set(x->e, E_CANCELLED, "this mirror is shutting down");
    }
    if (!dead_object_parse(slice_str(k->key), &o)) {
        x->out->unknown++;
        return 0;
    }
    if (named_has(x->named, &o) ||
        (x->before_unix_s != UINT64_MAX &&
         (k->modified_unix_s == 0 || k->modified_unix_s >= x->before_unix_s))) {
        return 0;
    }
    o.size_bytes = k->size_bytes;
    dead_list_add(&x->out->objects, &o);
    x->out->count++;
    x->out->bytes += o.size_bytes;
    return x->out->objects.rc != 0 ? E_TOOBIG : 0;
}

int orphans_list(struct bucket *b, const struct named *n, uint64_t before_unix_s,
                 const atomic_bool *stop, struct orphans *out, struct err *e)
{
    static const char *const prefixes[] = {"pack/", "blob/", "idx/", DEAD_LISTS};
    struct listing x = {n, before_unix_s, stop, out, e};
    int rc = 0;

    *out = (struct orphans){.objects = BUF_INIT(DEAD_LIST_BYTES_MAX)};
    for (size_t i = 0; rc == 0 && i < sizeof prefixes / sizeof prefixes[0]; i++) {
        rc = bucket_list(b, prefixes[i], "", SIZE_MAX, on_key, &x, e);
    }
    return rc == E_TOOBIG ? 0 : rc; /* the next run goes on */
}

void orphans_spare(struct orphans *o, const struct named *n)
{
    struct buf all = o->objects;
    struct slice rest = buf_slice(&all);
    struct dead_object x;

    o->objects = BUF_INIT(DEAD_LIST_BYTES_MAX);
    o->count = o->bytes = 0;
    while (dead_list_next(&rest, &x)) {
        if (!named_has(n, &x)) {
            dead_list_add(&o->objects, &x);
            o->count++;
            o->bytes += x.size_bytes;
        }
    }
    buf_free(&all);
}

void orphans_free(struct orphans *o)
{
    buf_free(&o->objects);
}
