#include "server/conf/section.h"

#include "server/conf/value.h"

size_t section_count(const struct settings_node *parent, enum section sec)
{
    size_t n = 0;

    for (const struct settings_node *c = parent->child; c != NULL; c = c->next) {
        n += c->section == sec;
    }
    return n;
}

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
    } else if (nd->next != NULL && nd->next->section == sec) {
        return settings_wrong(
            nd->next->at, e,
            "section %s stands here again, the first is at %s:%u, put both into one",
            section_info(sec)->name, nd->at.file, nd->at.line);
    }
    return values_fill(nd, base, a, e);
}
