/* h2.h - the inside of an HTTP/2 connection (RFC 9113).
 *
 * h2.c opens, drives and ends it, enforces its limits, parses incoming frames and writes those that
 * are not answers. h2_request.c makes exchanges of heads and bodies; h2_answer.c sends answers.
 * Request heads are decompressed by nghttp2's inflater, answers' heads compressed by hpack.c.
 *
 * Frames are written into the loop's scratch. A body's bytes are read to a position that leaves
 * room for their frame header. So an answer is copied once, and a page that is not in memory is
 * noticed before a length is promised. A blocked wire only gets control frames, and those are
 * bounded.
 *
 * Streams with bytes to send take turns, a few frames each, because an index must not wait for 70
 * GB on the same connection. Priorities that peers send are ignored.
 *
 * owns     a connection owns its struct h2, which owns its streams
 * threads  one loop
 */
#ifndef SERVER_HTTP_H2_H
#define SERVER_HTTP_H2_H

#include <nghttp2/nghttp2.h>

#include "server/http/conn.h"
#include "server/http/hpack.h"

enum {
    FRAME_HEAD_BYTES = 9,
    FRAME_USUAL = 16 * 1024,
    WINDOW_USUAL = 65535,
    CONNECTION_WINDOW = 4 * 1024 * 1024,
    STREAM_SLOTS = 32,
    SAID_BYTES = 43,
    USED_BITS = 64,
    CUT_STREAMS = 128,
};

struct bucket { /* a rate limit: `burst` in one go, then `per_s` */
    uint64_t milli;
    uint64_t at_ms;
};

/* The state of a stream (RFC 9113 5.1), from the first piece of its head on. A closed stream is
 * freed.
 *
 *   HEAD --the block is complete--> OPEN --the peer's END_STREAM--> HALF_CLOSED_REMOTE
 *   HEAD --and ends the request--> HALF_CLOSED_REMOTE --our END_STREAM--> CLOSED
 *   OPEN --our END_STREAM--> HALF_CLOSED_LOCAL --the peer's--> CLOSED
 *   each --RST_STREAM of either side, or the connection's end--> CLOSED
 */
enum h2_stream_state {
    H2_STREAM_HEAD,
    H2_STREAM_OPEN,
    H2_STREAM_HALF_CLOSED_REMOTE, /* the request is complete */
    H2_STREAM_HALF_CLOSED_LOCAL,  /* the answer is complete */
    H2_STREAM_CLOSED,
    H2_STREAM_STATES
};

/* What happens to a stream in the connection's next turn. Frames are only written in turns, because
 * all connections share the scratch. */
enum h2_doom {
    H2_LIVES,
    H2_BODY_REFUSED, /* it is answered, and its body exceeds what is accepted */
    H2_SHED          /* the memory of its body is needed */
};

struct h2_stream {
    uint32_t id;
    enum h2_stream_state state;
    enum h2_doom doom;
    struct exchange *x;
    struct h2_stream *next;   /* in its slot */
    struct list node;         /* of all */
    struct list woken;        /* has frames to send or bytes to receive */
    struct list sending;      /* has bytes of a body to send, and a window for them */
    int64_t window;           /* how much we may send */
    struct reader_rate taken; /* at which the peer takes bytes, of this stream alone */
    int64_t room;             /* how much the peer may send */
    uint32_t granted, owed;   /* of room: the total, and what is to be given back */
    uint64_t discarded;       /* bytes of the request's body that were not read */

    /* --- the head, while it is being received --- */
    uint64_t announced;        /* the request's Content-Length, or LENGTH_UNKNOWN */
    size_t header_bytes;       /* counted as in RFC 9113 6.5.2 */
    struct http_field *fields; /* in the exchange's arena */
    struct slice authority;    /* likewise */
    /* pseudo-header fields seen so far (h2_request.c); each may occur once */
    uint8_t pseudo;
    bool malformed;    /* it breaks a rule */
    int refuse_status; /* answer with this instead of calling the handler */
};

/* How a connection begins (RFC 9113 3.4). */
enum h2_opening { H2_AWAITS_PREFACE, H2_AWAITS_SETTINGS, H2_OPENED, H2_OPENINGS };

/* How it ends (RFC 9113 6.8).
 *
 *   SERVING --drained--> WARNING --GOAWAY of all streams--> WARNED
 *   WARNED --after NOTICE_MS, GOAWAY of the last stream--> LAST_NAMED
 *   each --a GOAWAY with an error, or of an idle connection--> OVER
 */
enum h2_closing {
    H2_SERVING,
    H2_WARNING,    /* "no new streams, please" is to be sent */
    H2_WARNED,     /* it was sent: streams that were under way then are served */
    H2_LAST_NAMED, /* the last stream that is served was sent, too: later ones are not served */
    H2_OVER,       /* our last frame is sent */
    H2_CLOSINGS
};

struct h2 {
    struct conn *conn;
    enum h2_opening opening;
    enum h2_closing closing;
    bool peer_leaves; /* the peer has sent GOAWAY */
    nghttp2_hd_inflater *inflater;
    struct hpack heads;
    /* how the first fields of a numbered reply were written last, when the table held all of
     * them */
    struct {
        uint64_t number; /* 0: none */
        uint32_t last;   /* of the table, which must not have changed since */
        uint8_t n;
        char bytes[SAID_BYTES];
    } said;
    struct list streams; /* h2_stream.node */
    struct list woken;   /* h2_stream.woken */
    struct list sending; /* h2_stream.sending; the next one to send is first */
    struct h2_stream *slot[STREAM_SLOTS];
    unsigned nstreams;
    uint32_t last_stream; /* the highest that we serve or have served */
    uint32_t opened;      /* the highest that the peer has opened; those above it are idle */
    /* Bit i: the peer has opened stream `opened` - 2i; if not, it skipped it. */
    uint64_t used;
    uint32_t cut[CUT_STREAMS]; /* a ring: streams that were closed before the peer had ended them */
    unsigned cut_at;
    struct bucket resets, useless;
    uint64_t useful_bytes;  /* heads and bodies, in both directions */
    uint64_t head_begun_ms; /* a header block that is not complete; 0: none */
    uint64_t sent_ms;       /* when bytes of any stream's body were last sent */
    uint64_t scanned_ms;    /* when the streams' deadlines were last checked */
    uint64_t goaway_ms;     /* WARNED: when the last stream to be served is named */
    size_t budget;          /* DATA bytes left for this call of drive() */
    unsigned queued;        /* control frames since the wire has been blocked */
    int64_t window;         /* how much we may send, in total */
    int64_t room;           /* how much the peer may send, in total */
    uint32_t owed;          /* of room: to be given back */
    uint32_t first_window;  /* of a stream, as the peer announced */
    uint32_t frame_max;     /* likewise */
    struct {                /* a header block that is not complete; stream 0: none */
        uint32_t stream;
        unsigned pieces;
        size_t bytes; /* unpacked */
        bool ends, trailer, refused;
    } block;
    struct { /* a DATA frame that is not complete; stream 0: none */
        uint32_t stream;
        size_t left, padding;
        bool ends;
    } data;
    bool waits; /* the last bytes are the beginning of a frame */
};

/* The peer has sent all of its request, or will send no more. */
static inline bool h2_has_all(const struct h2_stream *st)
{
    return st->state == H2_STREAM_HALF_CLOSED_REMOTE || st->state == H2_STREAM_CLOSED;
}

static inline char *h2_frame_head(char *to, size_t n, uint8_t type, uint8_t flags, uint32_t stream)
{
    to[0] = (char)(n >> 16);
    to[1] = (char)(n >> 8);
    to[2] = (char)n;
    to[3] = (char)type;
    to[4] = (char)flags;
    to[5] = (char)(stream >> 24);
    to[6] = (char)(stream >> 16);
    to[7] = (char)(stream >> 8);
    to[8] = (char)stream;
    return to + FRAME_HEAD_BYTES;
}

/* h2.c */
extern const struct state_table h2_stream_states, h2_openings, h2_closings;
void h2_stream_becomes(struct h2_stream *st, enum h2_stream_state to);
void h2_stream_end(struct h2 *h, struct h2_stream *st, bool complete);
struct h2_stream *h2_stream(const struct h2 *h, uint32_t id); /* NULL: idle, or closed */
void h2_calm(struct h2 *h);                                   /* GOAWAY ENHANCE_YOUR_CALM */
void h2_put(struct h2 *h, uint8_t type, uint8_t flags, uint32_t stream, struct slice payload);
void h2_fail(struct h2 *h, uint32_t code); /* GOAWAY; nothing is sent after it */
/* Sends RST_STREAM and frees the stream. */
void h2_kill(struct h2 *h, struct h2_stream *st, uint32_t code);
void h2_refuse(struct h2 *h, uint32_t stream,
               uint32_t code); /* the same for a stream that never began */
/* Give window back: of the connection, and of a stream. */
void h2_consume(struct h2 *h, size_t n);
void h2_consume_stream(struct h2 *h, struct h2_stream *st, size_t n);
void h2_widen(struct h2 *h, struct h2_stream *st, uint32_t window);

/* h2_request.c */
struct h2_stream *h2_request(struct h2 *h, uint32_t id); /* begins a stream */
void h2_head_piece(struct h2 *h, const char *p, size_t n, bool last);
void h2_body(struct h2 *h, struct h2_stream *st, struct slice bytes);
void h2_body_end(struct h2 *h, struct h2_stream *st);
void h2_feed(struct h2 *h, struct h2_stream *st); /* held bytes go to the handler, if it reads */
void h2_drop_held(struct h2 *h, struct h2_stream *st); /* it is answered: they will not be read */

/* h2_answer.c */
/* Sends what the stream has to send, as far as possible. The stream may be freed by it. */
void h2_answer(struct h2 *h, struct h2_stream *st);
void h2_send(struct h2 *h);                         /* bodies, stream by stream in turns */
void h2_resume(struct h2 *h, struct h2_stream *st); /* its window has opened */

#endif
