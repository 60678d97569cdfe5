#include "server/rsync/groups.h"

#include <stdlib.h>
#include <uthash.h>

struct member {
    struct member *next;
    uint32_t arrival;
};

struct group {
    UT_hash_handle hh;
    struct slice first;
    struct member *members;
};

void groups_note(struct groups *gs, struct slice first, uint32_t arrival)
{
    struct member *m = ARENA_NEW(&gs->arena, struct member);
    struct group *g;

    HASH_FIND(hh, gs->table, first.p, first.n, g);
    if (g == NULL) {
        g = ARENA_NEW(&gs->arena, struct group);
        g->first = arena_copy(&gs->arena, first);
        HASH_ADD_KEYPTR(hh, gs->table, g->first.p, g->first.n, g);
    }
    m->arrival = arrival;
    m->next = g->members;
    g->members = m;
}

void groups_place(const struct groups *gs, struct file_list *l)
{
    char room[LIST_PATH_MAX + 1];

    for (uint32_t i = 0; gs->table != NULL && i < list_count(l); i++) {
        struct slice path = list_path(l, list_at(l, i), room);
        struct group *g;
        HASH_FIND(hh, gs->table, path.p, path.n, g);
        for (struct member *m = g != NULL ? g->members : NULL; m != NULL; m = m->next) {
            list_set_leader(l, m->arrival, i);
        }
    }
}

void groups_fini(struct groups *gs)
{
    HASH_CLEAR(hh, gs->table);
    arena_fini(&gs->arena);
}

/* --- of one client's view ------------------------------------------------------------------------------------------------- */

enum { HAS_MEMBERS = -3 };

void groups_view_init(struct groups_view *gv, const struct view *v)
{
    *gv = (struct groups_view){.at = NULL};
    for (uint32_t i = 0; i < v->count; i++) {
        int32_t first = list_leader(v->list, view_at(v, i));
        if (first == LIST_NONE) {
            continue;
        }
        if (gv->at == NULL) {
            gv->at = mem_array(list_count(v->list), sizeof *gv->at);
            for (uint32_t k = 0; k < list_count(v->list); k++) {
                gv->at[k] = GROUP_NONE;
            }
        }
        gv->at[first] = HAS_MEMBERS;
    }
}

int32_t groups_view_next(struct groups_view *gv, const struct view *v, uint32_t index)
{
    int32_t first;
    int32_t was;

    if (gv->at == NULL) {
        return GROUP_NONE;
    }
    first = list_leader(v->list, view_at(v, index));
    first = first == LIST_NONE ? (int32_t)v->entry[index].at : first;
    was = gv->at[first];
    if (was == HAS_MEMBERS) {
        gv->at[first] = (int32_t)index;
        return GROUP_FIRST;
    }
    return was;
}

void groups_view_fini(struct groups_view *gv)
{
    free(gv->at);
    gv->at = NULL;
}
