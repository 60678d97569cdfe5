/* h1_write.h - writes the head of an HTTP/1.1 answer. It is pure and knows no connection.
 *
 * The framing of the body, and whether the connection is kept, are decided before (h1.c).
 *
 * owns     nothing: it writes into the caller's memory
 * threads  any; pure
 */
#ifndef SERVER_HTTP_H1_WRITE_H
#define SERVER_HTTP_H1_WRITE_H

#include "server/http/h1_parse.h"

struct h1_answer {
    const struct http_reply *reply;
    struct slice now; /* the Date, if the origin gave none */
    struct slice id;
    enum h1_framing framing; /* H1_NO_BODY: no framing field is written */
    uint64_t length;         /* H1_LENGTH */
    bool close, keep_alive;  /* the Connection field: one of them, or none */
};

size_t h1_answer_bound(const struct http_reply *r); /* an upper bound of its length */
size_t h1_answer_write(char *start, const struct h1_answer *a);

#endif
