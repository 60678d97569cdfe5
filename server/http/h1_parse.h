/* h1_parse.h - parses HTTP/1.x requests from bytes: heads and chunked bodies. It is pure and knows
 * no connection.
 *
 * It is strict, because framing is a matter of security (RFC 9112, and the papers on request
 * smuggling): CRLF only, one framing per message, no folding, no blank before a colon, no control
 * bytes. A refusal says which status to answer with. After a refusal the following bytes mean
 * nothing, so the connection must be closed.
 *
 * owns     nothing: slices point into the caller's bytes
 * threads  any; pure
 * errors   a refusal is a negative HTTP status: -400, -414, -417, -431, -501, -505
 */
#ifndef SERVER_HTTP_H1_PARSE_H
#define SERVER_HTTP_H1_PARSE_H

#include "server/http/msg.h"

struct h1_limits {
    size_t header_bytes;
    size_t header_fields;
    size_t uri_bytes;
};

/* The length of the head, including the empty line; 0 when more bytes are needed; or a refusal.
 * `scanned` keeps, between calls on the same growing bytes, how far the search got; start with
 * 0. */
ptrdiff_t h1_head_end(struct slice bytes, const struct h1_limits *limits, size_t *scanned);

enum h1_framing { H1_NO_BODY, H1_LENGTH, H1_CHUNKED };

struct h1_head {
    struct slice method, target, host; /* target in origin-form */
    enum http_version version;         /* HTTP_10 or HTTP_11 */
    enum h1_framing framing;
    uint64_t content_length;
    bool keep_alive;
    bool expect_continue;
    /* the fields for the server's pipeline: without Host, Connection and framing fields */
    size_t nfields;
};

/* Parses a complete head, as h1_head_end() found it; names are changed to lower case in place.
 * `fields` has room for limits->header_fields. 0, or a refusal. */
int h1_parse_head(char *bytes, size_t n, const struct h1_limits *limits, struct h1_head *head,
                  struct http_field *fields);
bool h1_valid_target(struct slice target); /* no blank, control byte or fragment */
bool h1_valid_host(struct slice host);     /* uri-host [ ":" port ], no userinfo */

enum h1_chunk_state {
    CHUNK_SIZE_FIRST,
    CHUNK_SIZE,
    CHUNK_SIZE_BLANK, /* after the size: an extension or the line's end */
    CHUNK_EXTENSION,
    CHUNK_SIZE_LF,
    CHUNK_DATA,
    CHUNK_DATA_CR,
    CHUNK_DATA_LF,
    CHUNK_TRAILER_FIRST,
    CHUNK_TRAILER_NAME,
    CHUNK_TRAILER,
    CHUNK_TRAILER_LF,
    CHUNK_END_LF,
    CHUNK_DONE
};

struct h1_chunks { /* zeroed at the start */
    enum h1_chunk_state state;
    uint64_t left;     /* of this chunk's data */
    uint32_t digits;   /* of this chunk's size */
    uint32_t overhead; /* extension bytes of all chunks and trailer bytes, which are bounded */
};

/* Decodes from `bytes`: *used bytes were taken, *data (part of them) is body. 0: continue with the
 * rest, or with more bytes; 1: the body has ended; -400. Returns after each piece of data. */
int h1_chunks_feed(struct h1_chunks *c, struct slice bytes, size_t *used, struct slice *data);

#endif
