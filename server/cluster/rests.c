#include "server/cluster/rests.h"

#include <stdio.h>

void rests_add(struct rests *r, const char *node, uint64_t now_ms, uint64_t ms)
{
    size_t i = 0;

    while (i < r->n && strcmp(r->of[i].node, node) != 0 && r->of[i].until_ms > now_ms) {
        i++; /* a rest that is over makes room */
    }
    if (i == MEMBERS_MAX) {
        return;
    }
    r->n = i == r->n ? i + 1 : r->n;
    r->of[i].until_ms = now_ms + ms;
    snprintf(r->of[i].node, sizeof r->of[i].node, "%s", node);
}

bool rests_has(const struct rests *r, const char *node, uint64_t now_ms)
{
    for (size_t i = 0; i < r->n; i++) {
        if (strcmp(r->of[i].node, node) == 0 && r->of[i].until_ms > now_ms) {
            return true;
        }
    }
    return false;
}

void rests_end(struct rests *r, const char *node)
{
    for (size_t i = 0; i < r->n; i++) {
        if (strcmp(r->of[i].node, node) == 0) {
            r->of[i].until_ms = 0;
        }
    }
}
