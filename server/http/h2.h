/* h2.h - an HTTP/2 connection from within (RFC 9113).
 *
 * h2.c opens, drives and ends it and holds its limits; h2_frames.c takes apart what comes, h2_control.c writes what is no
 * answer; h2_request.c makes exchanges of heads and bodies, by the rules of h2_rules.c; h2_answer.c sends answers. Request heads are
 * decompressed by nghttp2's inflater, answers' heads compressed by hpack.c.
 *
 * Frames are written into the loop's scratch, a body's bytes read behind room for their frame's header: an answer is copied
 * once, and a cold page is known before a length is promised. A wire that is blocked is given control frames only, and
 * those are bounded.
 *
 * Streams that have something to send take turns, a few frames each: an index must not wait behind 70 GB on the same connection.
 * What peers say of priorities is not heeded.
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

struct h2 {
    struct conn *conn;
    nghttp2_hd_inflater *inflater;
    struct hpack heads;
    struct
    { /* how the fields that a numbered reply begins with were written last, when the table held all of them */
        uint64_t number; /* 0: nothing */
        uint32_t last;   /* of the table, which must not have changed */
        uint8_t n;
        char bytes[SAID_BYTES];
    } said;
    struct list streams; /* exchange.node */
    struct list woken;   /* exchange.woken */
    struct list sending; /* exchange.sending; whose turn it is stands in front */
    struct exchange *slot[STREAM_SLOTS];
    unsigned nstreams;
    uint32_t last_stream; /* the highest that we serve, or have served */
    uint32_t opened;      /* the highest that the peer has opened: above it streams are idle */
    uint64_t
        used; /* bit i: the peer has opened stream `opened` - 2i; if not, it passed that over */
    uint32_t cut[CUT_STREAMS]; /* a ring: streams that closed before the peer had ended them */
    unsigned cut_at;
    struct bucket resets, useless;
    uint64_t useful_bytes;  /* heads and bodies, either way */
    uint64_t head_begun_ms; /* a header block that is not complete; 0: none */
    uint64_t sent_ms;       /* when bytes of a body were sent last, of any stream */
    uint64_t scanned_ms;    /* when the streams' deadlines were looked at */
    uint64_t goaway_ms;     /* draining: when the last stream to be served is named */
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
    bool waits;         /* what came last is the beginning of a frame */
    bool greeted;       /* the preface came */
    bool settled;       /* and the peer's first SETTINGS */
    bool notice;        /* drained: "no new streams, please" is to be said */
    bool going;         /* we or the peer want no new streams */
    bool closed_to_new; /* we have named the last one */
    bool over;          /* our last word is said */
};

/* h2.c */
void h2_calm(struct h2 *h); /* GOAWAY ENHANCE_YOUR_CALM */
void h2_useless(struct h2 *h);
void h2_reset(struct h2 *h); /* one was received, or the peer caused it */
void h2_stream_end(struct h2 *h, struct exchange *x, bool complete);
struct exchange *h2_stream(const struct h2 *h, uint32_t id); /* NULL: idle, or closed */
/* It is closed, and the peer may not know yet: what it still sends there is no error. */
void h2_note_cut(struct h2 *h, uint32_t stream);

/* h2_frames.c */
/* Takes whole frames, and DATA as it comes: how many bytes it used. */
size_t h2_take(struct h2 *h, const char *p, size_t n);

/* h2_control.c */
void h2_put(struct h2 *h, uint8_t type, uint8_t flags, uint32_t stream, struct slice payload);
char *h2_frame_head(char *to, size_t n, uint8_t type, uint8_t flags, uint32_t stream);
void h2_settings(struct h2 *h); /* ours */
void h2_goaway(struct h2 *h, uint32_t last, uint32_t code);
void h2_fail(struct h2 *h, uint32_t code); /* GOAWAY, and no more */
/* RST_STREAM; x is gone after it. */
void h2_kill(struct h2 *h, struct exchange *x, uint32_t code);
void h2_refuse(struct h2 *h, uint32_t stream,
               uint32_t code);                     /* likewise, of one that never began */
void h2_say_closed(struct h2 *h, uint32_t stream); /* RST_STREAM: it has ended long ago */
/* Gives window back: of the connection, of a stream too. */
void h2_consume(struct h2 *h, size_t n);
void h2_consume_stream(struct h2 *h, struct exchange *x, size_t n);
void h2_widen(struct h2 *h, struct exchange *x, uint32_t window);

/* h2_request.c */
struct exchange *h2_request(struct h2 *h, uint32_t id); /* begins */
void h2_head_piece(struct h2 *h, const char *p, size_t n, bool last);
void h2_body(struct h2 *h, struct exchange *x, struct slice bytes);
void h2_body_end(struct h2 *h, struct exchange *x);
void h2_feed(struct h2 *h, struct exchange *x); /* held bytes go to the handler, when it reads */
void h2_drop_held(struct h2 *h, struct exchange *x); /* nobody will read them: it is answered */

/* h2_rules.c: what RFC 9113 8 says of a head. False: malformed. */
bool h2_field_allowed(struct exchange *x, struct slice name, struct slice value, bool trailer);
bool h2_head_allowed(const struct exchange *x);

/* h2_answer.c */
/* Says what x has to say, as far as it may. x may be gone after it. */
void h2_answer(struct h2 *h, struct exchange *x);
void h2_send(struct h2 *h);                       /* bodies, turn by turn */
void h2_resume(struct h2 *h, struct exchange *x); /* its window has opened */

#endif
