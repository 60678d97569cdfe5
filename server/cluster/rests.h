/* rests.h - mirrors that did not answer, and are left out until some time has passed.
 *
 * owns     nothing: a plain struct, zeroed at first
 * threads  its owner's lock
 */
#ifndef SERVER_CLUSTER_RESTS_H
#define SERVER_CLUSTER_RESTS_H

#include "server/cluster/member.h"

struct rests {
    struct {
        char node[MEMBER_ID_ROOM];
        uint64_t until_ms;
    } of[MEMBERS_MAX];
    size_t n;
};

/* If all places are taken by mirrors that still rest, this one does not. */
void rests_add(struct rests *r, const char *node, uint64_t now_ms, uint64_t ms);
void rests_end(struct rests *r, const char *node);
bool rests_has(const struct rests *r, const char *node, uint64_t now_ms);

#endif
