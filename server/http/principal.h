/* principal.h - who asks, as the gate found out (gate/gate.h): what plans, limits and logs know of
 * a caller. */
#ifndef SERVER_HTTP_PRINCIPAL_H
#define SERVER_HTTP_PRINCIPAL_H

#include "common/base/slice.h"

struct token;

struct principal {
    struct slice name;         /* token's name, or "" for anonymous */
    const struct token *token; /* NULL: anonymous */
    uint64_t client; /* the unit of fair shares: its token, else client_of() its address */
};

#endif
