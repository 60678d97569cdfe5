/* h1_write.h - the head of an HTTP/1.1 answer as bytes. Pure: knows no connection.
 *
 * How the body will be marked, and what becomes of the connection, is decided before (h1.c).
 */
#ifndef SERVER_HTTP_H1_WRITE_H
#define SERVER_HTTP_H1_WRITE_H

#include "server/http/h1_parse.h"

struct h1_answer {
    const struct http_reply *reply;
    struct slice now; /* the Date of those that the origin gave none */
    struct slice id;
    enum h1_framing framing; /* H1_NO_BODY: nothing is said of it */
    uint64_t length;         /* H1_LENGTH */
    bool close, keep_alive;  /* what is said of the connection: one of them, or nothing */
};

size_t h1_answer_bound(const struct http_reply *r); /* it has no more bytes than that */
size_t h1_answer_write(char *start, const struct h1_answer *a);

#endif
