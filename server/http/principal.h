/* principal.h - the caller of a request, as the gate has identified it (gate/gate.h), for plans,
 * limits and logs.
 *
 * owns     nothing by itself: gate_hold() and gate_release() count the token
 * threads  plain data
 */
#ifndef SERVER_HTTP_PRINCIPAL_H
#define SERVER_HTTP_PRINCIPAL_H

#include "common/base/slice.h"

struct token;

struct principal {
    struct slice name;         /* the token's name, or "" for anonymous */
    const struct token *token; /* NULL: anonymous */
    uint64_t client; /* the unit of fair shares: its token, else the client_of() of its address */
};

#endif
