/* mux.h - frames: data and messages in one stream, both ways.
 *
 * A header is a little-endian word: 7 + code in the top byte, the length below. Data is passed on
 * in pieces as it arrives. The text of a message is kept until it is complete, so it has a limit.
 *
 * owns     a message's text, until the next mux_next()
 * threads  one at a time
 * errors   E_PROTOCOL: an unknown code, a message beyond MUX_TEXT_MAX
 */
#ifndef SERVER_SYNC_RSYNC_MUX_H
#define SERVER_SYNC_RSYNC_MUX_H

#include "common/base/buf.h"

enum mux_code {
    MUX_DATA = 0,
    MUX_ERROR_XFER = 1,
    MUX_INFO = 2,
    MUX_ERROR = 3,
    MUX_WARNING = 4,
    MUX_ERROR_SOCKET = 5,
    MUX_LOG = 6,
    MUX_CLIENT = 7,
    MUX_ERROR_UTF8 = 8,
    MUX_REDO = 9,
    MUX_STATS = 10,
    MUX_IO_ERROR = 22,
    MUX_IO_TIMEOUT = 33,
    MUX_NOOP = 42,
    MUX_ERROR_EXIT = 86,
    MUX_SUCCESS = 100,
    MUX_DELETED = 101,
    MUX_NO_SEND = 102,
};
enum { MUX_HEAD = 4, MUX_TEXT_MAX = 64 << 10, MUX_DATA_MAX = 0xffffff };

struct mux {
    uint8_t head[MUX_HEAD];
    unsigned head_n;
    enum mux_code code;
    size_t left;   /* of the frame */
    bool reported; /* the text has been given to the caller */
    struct buf text;
};

struct mux_piece {
    enum mux_code code;
    struct slice bytes; /* of data: inside the input; of a message: the whole text */
};

void mux_init(struct mux *m);
void mux_fini(struct mux *m);
/* Consumes from *in. 1: *out is the next piece; 0: *in is used up; or an error. */
MUST_USE int mux_next(struct mux *m, struct slice *in, struct mux_piece *out, struct err *e);
/* True between two frames: no frame has been read in part. */
bool mux_between(const struct mux *m);
/* One frame, or as many as the data needs. */
void mux_put(struct buf *b, enum mux_code code, struct slice bytes);

#endif
