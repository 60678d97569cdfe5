/* redis.h - commands and replies as Redis and Valkey write them (RESP2), as far as hints need them.
 *
 * A reply is a line ("+OK", "-ERR why", ":3"), a text ("$5 hello") or an array of lines and texts,
 * which is what a subscriber gets: "message", the channel, the text.
 *
 * owns     a reply's slices point into the bytes that it was read from
 * threads  any; pure
 * source   the RESP protocol specification, version 2
 */
#ifndef SERVER_CLUSTER_REDIS_H
#define SERVER_CLUSTER_REDIS_H

#include "common/base/buf.h"

enum { REDIS_ITEMS_MAX = 4 };

struct redis_reply {
    char type; /* '+' '-' ':' '$', or '*' with items */
    struct slice text;
    size_t items;
    struct slice item[REDIS_ITEMS_MAX];
};

void redis_command(struct buf *out, const struct slice *word, size_t n);
/* Reads the reply at the front of *in and takes its bytes. 1: it is in *out; 0: it is not complete
 * yet; E_INVALID: this is no reply, or one with more items or arrays within arrays. */
MUST_USE int redis_reply_read(struct slice *in, struct redis_reply *out);

#endif
