/* h2.h - an HTTP/2 connection from within: nghttp2 speaks the protocol, we hold its limits and move the bytes.
 *
 * h2.c drives the session, h2_request.c hears its frames, h2_answer.c feeds it answers. nghttp2 1.52 bounds CONTINUATION,
 * SETTINGS and acknowledgements; resets of either cause, useless frames, header lists, the outbound queue and stalled
 * windows are bounded here.
 *
 * DATA is never copied through nghttp2: the read callback puts a file's bytes behind room for the frame's header in the
 * loop's scratch (so a cold page is known before a length is promised), the send callback writes the header before them.
 */
#ifndef SERVER_HTTP_H2_H
#define SERVER_HTTP_H2_H

#include <nghttp2/nghttp2.h>

#include "server/http/conn.h"

enum { FRAME_HEAD_BYTES = 9 };

struct bucket { /* how often something may happen: `burst` at once, then `per_s` */
    uint64_t milli;
    uint64_t at_ms;
};

struct h2 {
    struct conn *conn;
    nghttp2_session *session;
    struct list streams; /* exchange.node */
    struct list woken;   /* exchange.woken */
    unsigned nstreams;
    struct bucket resets, useless;
    uint64_t useful_bytes;  /* heads and bodies, either way */
    uint64_t head_begun_ms; /* a header block that is not complete; 0: none */
    uint64_t scanned_ms;    /* when the streams' deadlines were looked at */
    uint64_t goaway_ms;     /* draining: when the last stream to be served is named */
    size_t budget;          /* DATA bytes left for this drive */
    struct {                /* what the read callback prepared */
        const char *at;
        bool file;
    } staged;
};

/* h2.c */
void h2_calm(struct h2 *h); /* GOAWAY ENHANCE_YOUR_CALM */
void h2_useless(struct h2 *h);
void h2_reset(struct h2 *h); /* one was received, or the peer caused it */
void h2_stream_end(struct h2 *h, struct exchange *x, bool complete);

/* h2_request.c */
void h2_hear(nghttp2_session_callbacks *on);
void h2_feed(struct h2 *h, struct exchange *x); /* held bytes go to the handler, when it reads */
void h2_drop_held(struct h2 *h, struct exchange *x); /* nobody will read them: it is answered */

/* h2_answer.c */
void h2_speak(nghttp2_session_callbacks *on);
void h2_refuse_more(struct h2 *h, struct exchange *x); /* answered whole: ends the request's body */
int h2_answer(struct h2 *h,
              struct exchange *x); /* submits or resumes what x has to say; nghttp2's code */

#endif
