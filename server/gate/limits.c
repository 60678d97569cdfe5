#include "server/gate/limits.h"

#include <stdatomic.h>
#include <stdlib.h>

#include "common/codec/network.h"

struct limit {
    struct limit_conf conf;
    bool is_network;
    struct network network;
};

struct limits {
    _Atomic unsigned holds;
    struct arena arena;
    size_t count;
    struct limit limit[];
};

struct limits *limits_new(const struct limit_conf *conf, size_t count)
{
    struct limits *ls = mem_new(sizeof(*ls) + count * sizeof(ls->limit[0]));

    ls->holds = 1;
    ls->count = count;
    for (size_t i = 0; i < count; i++) {
        struct slice title = slice_str(conf[i].title);
        ls->limit[i].conf = conf[i];
        ls->limit[i].conf.title = arena_cstr(&ls->arena, title);
        ls->limit[i].is_network = network_parse(title, &ls->limit[i].network);
    }
    return ls;
}

struct limits *limits_hold(struct limits *ls)
{
    atomic_fetch_add(&ls->holds, 1);
    return ls;
}

void limits_release(struct limits **lp)
{
    struct limits *ls = *lp;

    *lp = NULL;
    if (ls != NULL && atomic_fetch_sub(&ls->holds, 1) == 1) {
        arena_fini(&ls->arena);
        free(ls);
    }
}

const struct limit_conf *limits_find(const struct limits *ls, struct slice token_name,
                                     const uint8_t address[16])
{
    const struct limit *best = NULL, *anonymous = NULL;

    for (size_t i = 0; i < ls->count; i++) {
        const struct limit *l = &ls->limit[i];
        if (l->is_network) {
            if (network_has(&l->network, address) &&
                (best == NULL || l->network.bits > best->network.bits)) {
                best = l;
            }
        } else if (token_name.n > 0 && slice_eqs(token_name, l->conf.title)) {
            return &l->conf;
        } else if (strcmp(l->conf.title, "anonymous") == 0) {
            anonymous = l;
        }
    }
    if (best == NULL && token_name.n == 0) {
        best = anonymous;
    }
    return best != NULL ? &best->conf : NULL;
}
