/* stream.h - one client's socket, for the thread that serves it: lines, then frames both ways,
 * with deadlines.
 *
 * While it waits for the client to take our bytes, it reads the client's, up to STREAM_AHEAD, so
 * neither end blocks the other. Every wait ends after stall_ms, at the deadline, or when the door
 * closes. A wait to send goes on until the client has taken something, whatever it sends in the
 * meantime. A client that takes the waiting bytes slower than the least rate is disconnected too.
 *
 * owns     buffers, not the fd
 * threads  its session's own; any may set `stop`
 * errors   E_NETWORK, E_TIMEOUT, E_CANCELLED, E_PROTOCOL, E_TOOBIG
 */
#ifndef SERVER_RSYNC_STREAM_H
#define SERVER_RSYNC_STREAM_H

#include <stdatomic.h>

#include "server/http/pace.h"
#include "server/http/reader_rate.h"
#include "server/sync/rsync/mux.h"

enum { STREAM_AHEAD = 1 << 20, STREAM_OUT = 256 << 10 };

struct stream {
    int fd;
    uint32_t stall_ms;
    const struct reader_rate_limit *least; /* borrowed */
    struct reader_rate rate;
    uint64_t deadline_ms; /* monotonic; 0: none */
    const atomic_bool *stop;
    bool framed; /* for the client's direction */
    /* its frames are opened one by one: unframed bytes may follow one */
    bool stepwise;
    bool bare; /* such bytes are coming */
    struct mux mux;
    struct buf raw;  /* as it came */
    struct buf data; /* from its frames */
    size_t data_at;
    struct buf draft; /* our bytes, not framed yet */
    struct buf out;
    bool framed_out;
    struct pace *pace[2]; /* borrowed, or NULL: sends respect each of them */
    uint64_t received_bytes, sent_bytes;
    uint64_t waits; /* requested by a pace */
};

void stream_init(struct stream *s, int fd, uint32_t stall_ms, const struct reader_rate_limit *least,
                 const atomic_bool *stop);
void stream_fini(struct stream *s);
MUST_USE int stream_line(struct stream *s, struct buf *line, struct err *e); /* without its end */
MUST_USE int stream_read(struct stream *s, void *p, size_t n, struct err *e);
MUST_USE int stream_skip(struct stream *s, uint64_t n, struct err *e);
/* Up to `end`, which is consumed too. Bytes beyond `to`'s room are skipped, and to->rc says so.
 * *left: how many bytes may come; it counts down. */
MUST_USE int stream_until(struct stream *s, char end, struct buf *to, uint64_t *left,
                          struct err *e);
/* Both directions are framed from here on; also bytes that have already arrived. */
MUST_USE int stream_frame(struct stream *s, struct err *e);
/* Between frames the client sends something without a frame: on from the point where all of the
 * last frame has been read, off where that ends. Only while `stepwise`, which bare == false ends.
 */
MUST_USE int stream_bare(struct stream *s, bool bare, struct err *e);
/* E_CANCELLED, E_TIMEOUT, E_NETWORK (the client is gone): for code that works long without
 * waiting. */
MUST_USE int stream_goes_on(struct stream *s, struct err *e);
/* After our last message: skips what the client still sends for a moment, so that it reads ours
 * before the socket closes. */
void stream_part(struct stream *s);
/* Bytes put here are sent by the next flush; call stream_push() now and then when there are many.
 */
struct buf *stream_draft(struct stream *s);
MUST_USE int stream_push(struct stream *s, struct err *e); /* sends if there are many */
MUST_USE int stream_flush(struct stream *s, struct err *e);
void stream_message(struct stream *s, enum mux_code code, struct slice text);

#endif
