/* neighbor.h - other mirrors that are asked for an object before its origin is.
 *
 * The names are those of cache hierarchies (RFC 2187): a parent fetches from the origin what it
 * does not have, and a sibling only gives what it has. In a cluster each object has one owner,
 * which is the parent of the other mirrors. So the origin is asked by one mirror.
 *
 *   GET /-/cluster/object
 *     Mirrord-Lookup: <neighbor_text(), base64>    Mirrord-Signature: <HMAC, hex>
 *     Range, If-Range, If-None-Match, If-Modified-Since: as to the origin
 *
 * The response is that of the origin: its status, its validators, its fields. Some more fields say
 * what the origin's response cannot:
 *
 *   Mirrord-Since  how many seconds ago the origin gave or confirmed it. A response without this
 *                  field is not the origin's: the next neighbor is asked
 *   Mirrord-Etag   the ETag that clients get, so that all mirrors send the same one
 *   Mirrord-Url    where the bytes came from, after redirects
 *   Mirrord-Why    the reason why the origin has given no response: timeout, busy or network, then
 *                  a sentence. An object beside it is an older one
 *
 * A mirror that is asked this way never asks a parent. It answers from what it has, or joins or
 * starts a request to the origin. It does not let such a request wait for a fetch that itself waits
 * for a parent: the mirror is refused. If that mirror has found its own parent dead, the fetch
 * leaves its parent instead and goes on at the origin, unless it cannot go on in the middle. So
 * requests of mirrors with different lists of members cannot wait for each other in a ring.
 *
 * owns     as each part says
 * threads  the fetch thread, except for neighbor_text(), neighbor_lookup() and is_neighbors_field()
 */
#ifndef SERVER_CACHE_NEIGHBOR_H
#define SERVER_CACHE_NEIGHBOR_H

#include "server/cache/lookup.h"

enum { NEIGHBORS_MAX = 3, NEIGHBOR_TEXT_MAX = 16 << 10, NEIGHBOR_SIGNATURE_ROOM = 65 };

#define NEIGHBOR_PATH            "/-/cluster/object"
#define NEIGHBOR_LOOKUP_FIELD    "mirrord-lookup"
#define NEIGHBOR_SIGNATURE_FIELD "mirrord-signature"
#define NEIGHBOR_SINCE_FIELD     "mirrord-since"
#define NEIGHBOR_ETAG_FIELD      "mirrord-etag"
#define NEIGHBOR_URL_FIELD       "mirrord-url"
#define NEIGHBOR_WHY_FIELD       "mirrord-why"
#define NEIGHBOR_WHY_TIMEOUT     "timeout"
#define NEIGHBOR_WHY_BUSY        "busy"
#define NEIGHBOR_WHY_NETWORK     "network"

struct neighbor {
    struct origin *origin; /* held */
    bool sibling;
};

struct neighbor_ops {
    /* The mirrors to ask for the object of that row key, in order; their number. `sibling`: only
     * those that may have it, because a mirror asks us. */
    unsigned (*choose)(void *arg, struct slice row_key, bool sibling,
                       struct neighbor out[NEIGHBORS_MAX]);
    bool (*is_alive)(void *arg, const struct origin *o);
    /* It broke off, or did not answer (E_TIMEOUT): it is not chosen for a while. */
    void (*failed)(void *arg, const struct origin *o, int rc);
    void (*sign)(void *arg, struct slice text, char out[NEIGHBOR_SIGNATURE_ROOM]);
};

/* What another mirror needs to know of a lookup. parent: of the mirror that this one has asked
 * before. False: too long to be sent. */
MUST_USE bool neighbor_text(const struct lookup *w, bool sibling, enum lookup_parent parent,
                            struct buf *out);
struct neighbor_asked {
    struct lookup lookup; /* without origin and reader */
    uint64_t origin;      /* its identity */
    struct slice reader;  /* its name; or p == NULL */
};
/* Strings are in the arena. False: the text is damaged, or of another version. */
MUST_USE bool neighbor_lookup(struct slice text, struct arena *a, struct neighbor_asked *out);
/* Whether a field of a response is about mirrors, and not the origin's. */
bool is_neighbors_field(struct slice name);

#endif
