/* h2.h - an HTTP/2 connection from within (RFC 9113).
 *
 * h2.c opens, drives and ends it, holds its limits, takes apart the frames that come and writes
 * those that are no answer; h2_request.c makes exchanges of heads and bodies; h2_answer.c sends
 * answers. Request heads are decompressed by nghttp2's inflater, answers' heads compressed by
 * hpack.c.
 *
 * Frames are written into the loop's scratch, a body's bytes read behind room for their frame's
 * header: an answer is copied once, and a cold page is known before a length is promised. A wire
 * that is blocked is given control frames only, and those are bounded.
 *
 * Streams that have something to send take turns, a few frames each: an index must not wait behind
 * 70 GB on the same connection. What peers say of priorities is not heeded.
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

struct bucket { /* how often something may happen: `burst` at once, then `per_s` */
    uint64_t milli;
    uint64_t at_ms;
};

/* A stream (RFC 9113 5.1), from the first piece of its head on. Ours is closed when it is gone.
 *
 *   HEAD --the block is complete--> OPEN --END_STREAM of the peer--> HALF_CLOSED_REMOTE --ours--> CLOSED
 *     |                              |                                                              |
 *     +--and ends the request--> HALF_CLOSED_REMOTE                                                 |
 *                                    +--END_STREAM of ours--> HALF_CLOSED_LOCAL --the peer's--------+
 *   each --RST_STREAM of either side, or the connection's end--> CLOSED
 */
enum h2_stream_state {
    H2_STREAM_HEAD,
    H2_STREAM_OPEN,
    H2_STREAM_HALF_CLOSED_REMOTE, /* the request is complete */
    H2_STREAM_HALF_CLOSED_LOCAL,  /* the answer is */
    H2_STREAM_CLOSED,
    H2_STREAM_STATES
};

/* What is to happen to a stream in the connection's next turn. Frames are written in turns alone:
 * the scratch is every connection's. */
enum h2_doom {
    H2_LIVES,
    H2_BODY_REFUSED, /* its answer is out, and more of its body comes than is let in */
    H2_SHED          /* the memory of its body is needed */
};

struct h2_stream {
    uint32_t id;
    enum h2_stream_state state;
    enum h2_doom doom;
    struct exchange *x;
    struct h2_stream *next;   /* in its slot */
    struct list node;         /* of all */
    struct list woken;        /* something to say, or to hear */
    struct list sending;      /* has bytes of a body to send, and a window for them */
    int64_t window;           /* what the peer lets us send */
    struct reader_rate taken; /* by the peer, of this stream alone */
    int64_t room;             /* what we let it send */
    uint32_t granted, owed;   /* of room: all of it, and what is to be given back */
    uint64_t discarded;       /* of the request's body, since nobody reads */

    /* The head, while it is collected. */
    uint64_t announced;        /* the request's Content-Length, or LENGTH_UNKNOWN */
    size_t header_bytes;       /* as RFC 9113 6.5.2 counts */
    struct http_field *fields; /* in the exchange's arena */
    struct slice authority;    /* likewise */
    uint8_t pseudo;            /* fields that stand once, as seen (h2_request.c) */
    bool malformed;            /* it breaks a rule */
    int refuse_status;         /* answer this instead of asking the handler */
};

/* How a connection begins (RFC 9113 3.4). */
enum h2_opening { H2_AWAITS_PREFACE, H2_AWAITS_SETTINGS, H2_OPENED, H2_OPENINGS };

/* How it ends (RFC 9113 6.8).
 *
 *   SERVING --drained--> WARNING --GOAWAY of all streams--> WARNED --after NOTICE_MS, GOAWAY of the last one--> LAST_NAMED
 *      |                    |                                 |                                               |
 *      +--------------------+---------------------------------+--a GOAWAY with an error, or of an idle one----+--> OVER
 */
enum h2_closing {
    H2_SERVING,
    H2_WARNING,    /* "no new streams, please" is to be said */
    H2_WARNED,     /* it was said: streams that were under way then are served */
    H2_LAST_NAMED, /* and so was the last stream that is served: later ones are not */
    H2_OVER,       /* our last word is said */
    H2_CLOSINGS
};

struct h2 {
    struct conn *conn;
    enum h2_opening opening;
    enum h2_closing closing;
    bool peer_leaves; /* the peer has said that it wants no new streams */
    nghttp2_hd_inflater *inflater;
    struct hpack heads;
    struct
    { /* how the fields that a numbered reply begins with were written last, when the table held all of them */
        uint64_t number; /* 0: nothing */
        uint32_t last;   /* of the table, which must not have changed */
        uint8_t n;
        char bytes[SAID_BYTES];
    } said;
    struct list streams; /* h2_stream.node */
    struct list woken;   /* h2_stream.woken */
    struct list sending; /* h2_stream.sending; whose turn it is stands in front */
    struct h2_stream *slot[STREAM_SLOTS];
    unsigned nstreams;
    uint32_t last_stream; /* the highest that we serve, or have served */
    uint32_t opened;      /* the highest that the peer has opened: above it streams are idle */
    /* bit i: the peer has opened stream `opened` - 2i; if not, it passed that over */
    uint64_t used;
    uint32_t cut[CUT_STREAMS]; /* a ring: streams that closed before the peer had ended them */
    unsigned cut_at;
    struct bucket resets, useless;
    uint64_t useful_bytes;  /* heads and bodies, either way */
    uint64_t head_begun_ms; /* a header block that is not complete; 0: none */
    uint64_t sent_ms;       /* when bytes of a body were sent last, of any stream */
    uint64_t scanned_ms;    /* when the streams' deadlines were looked at */
    uint64_t goaway_ms;     /* WARNED: when the last stream to be served is named */
    size_t budget;          /* DATA bytes left for this drive */
    unsigned queued;        /* control frames since the wire is blocked */
    int64_t window;         /* what the peer lets us send, in all */
    int64_t room;           /* what we let it send, in all */
    uint32_t owed;          /* of room: to be given back */
    uint32_t first_window;  /* of a stream, as the peer announced */
    uint32_t frame_max;     /* likewise */
    struct {                /* a header block under way; stream 0: none */
        uint32_t stream;
        unsigned pieces;
        size_t bytes; /* unpacked */
        bool ends, trailer, refused;
    } block;
    struct { /* a DATA frame under way; stream 0: none */
        uint32_t stream;
        size_t left, padding;
        bool ends;
    } data;
    bool waits; /* what came last is the beginning of a frame */
};

/* The peer has sent all of its request, or all that it will. */
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
void h2_fail(struct h2 *h, uint32_t code); /* GOAWAY, and no more */
/* RST_STREAM; the stream is gone after it. */
void h2_kill(struct h2 *h, struct h2_stream *st, uint32_t code);
void h2_refuse(struct h2 *h, uint32_t stream,
               uint32_t code); /* likewise, of one that never began */
/* Gives window back: of the connection, of a stream too. */
void h2_consume(struct h2 *h, size_t n);
void h2_consume_stream(struct h2 *h, struct h2_stream *st, size_t n);
void h2_widen(struct h2 *h, struct h2_stream *st, uint32_t window);

/* h2_request.c */
struct h2_stream *h2_request(struct h2 *h, uint32_t id); /* begins */
void h2_head_piece(struct h2 *h, const char *p, size_t n, bool last);
void h2_body(struct h2 *h, struct h2_stream *st, struct slice bytes);
void h2_body_end(struct h2 *h, struct h2_stream *st);
void h2_feed(struct h2 *h, struct h2_stream *st); /* held bytes go to the handler, when it reads */
void h2_drop_held(struct h2 *h, struct h2_stream *st); /* nobody will read them: it is answered */

/* h2_answer.c */
/* Says what the stream has to say, as far as it may. It may be gone after that. */
void h2_answer(struct h2 *h, struct h2_stream *st);
void h2_send(struct h2 *h);                         /* bodies, turn by turn */
void h2_resume(struct h2 *h, struct h2_stream *st); /* its window has opened */

#endif
