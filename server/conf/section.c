#include "server/conf/section.h"

#include "server/conf/value.h"

int section_single(struct settings_node *parent, enum section sec, void *base, struct arena *a,
                   struct err *e)
{
    struct settings_node **at = &parent->child, *nd;

    while (*at != NULL && (*at)->section < sec) {
        at = &(*at)->next;
    }
    nd = *at;
    if (nd == NULL || nd->section != sec) {
        nd = settings_empty(parent, sec, a);
        nd->next = *at;
        *at = nd;
    }
    return values_fill(nd, base, a, e);
}
