/* wire.h - the bytes to and from one socket, with or without TLS.
 *
 * Writes go through the loop's two scratch areas, so a connection without unsent bytes owns no
 * buffer. wire_reserve() gives room in `plain`, wire_commit() takes it, wire_flush() encrypts (into
 * `cipher`) and sends with one send() what the socket takes. Only what the socket refuses is copied
 * into the connection's own `unsent`, at most about one scratch. A blocked wire must only be given
 * control frames. Files on a cleartext wire are sent by sendfile().
 *
 * It is edge-triggered: `readable` and `writable` are set by the event and cleared by EAGAIN.
 * `hung_up` means that the peer has finished sending, so after a short read there may still be an
 * end of file to read.
 *
 * owns     the fd, the SSL, unsent bytes
 * threads  one loop; between two events plain and cipher are empty
 * errors   E_AGAIN is ordinary; E_NETWORK, E_PROTOCOL: the wire is broken
 */
#ifndef SERVER_NET_WIRE_H
#define SERVER_NET_WIRE_H

#include <openssl/ssl.h>

#include "common/base/buf.h"

enum {
    WIRE_PLAIN_BYTES = 64 * 1024 + 4 * 16, /* four DATA frames of 16 KiB with their headers */
    WIRE_CIPHER_BYTES = 80 * 1024,
    WIRE_READ_BYTES = 64 * 1024,
    WIRE_UNSENT_MAX = 512 * 1024,
};

struct wire_scratch { /* one for each loop */
    char *plain;
    size_t plain_n;
    char *cipher;
    size_t cipher_n;
    char *in; /* for readers: WIRE_READ_BYTES */
    BIO_METHOD *bio;
    bool kernel_tls;
};

struct wire {
    int fd;
    SSL *ssl; /* NULL: cleartext */
    struct wire_scratch *scratch;
    bool readable, writable, hung_up;
    bool broken;  /* a send failed for good */
    bool offload; /* the kernel encrypts: bytes are written as on a cleartext wire */
    bool corked;  /* wire_cork() */
    struct buf unsent;
    /* a piece of a file that must follow `unsent`, because its frame header has been sent
     * already */
    struct {
        int fd; /* a duplicate, owned here */
        uint64_t off;
        size_t n;
        struct buf behind; /* what must follow the piece */
    } piece;
    uint64_t bytes_in, bytes_out;
};

void wire_scratch_init(struct wire_scratch *s);
void wire_scratch_fini(struct wire_scratch *s);

void wire_open(struct wire *w, int fd, SSL *ssl, struct wire_scratch *s); /* takes fd and ssl */
void wire_close(struct wire *w);
MUST_USE int wire_handshake(struct wire *w); /* 0 done, E_AGAIN, E_PROTOCOL */

/* > 0, 0 at the peer's end, E_AGAIN, E_NETWORK, E_PROTOCOL. */
ssize_t wire_read(struct wire *w, char *p, size_t n);

char *wire_reserve(struct wire *w,
                   size_t n); /* n <= WIRE_PLAIN_BYTES; never NULL; may flush first */
void wire_commit(struct wire *w, size_t n);
void wire_put(struct wire *w, struct slice bytes);
/* 0: the kernel has all bytes; E_AGAIN: blocked; E_NETWORK. `more`: a file follows immediately. */
int wire_flush(struct wire *w, bool more);
/* Cleartext only. Sends what the socket takes now: > 0, E_AGAIN, E_NETWORK; E_IO when the file is
 * shorter. */
ssize_t wire_sendfile(struct wire *w, int fd, uint64_t off, size_t n);
/* Cleartext only. While it is on, only full segments are sent. If it is not turned off, the last
 * segment waits for the peer's delayed ACK, 40 ms; closing the wire sends it. */
void wire_cork(struct wire *w, bool on);
/* The rest of a piece of a file that was promised to the peer: sent before anything else. */
void wire_owe_file(struct wire *w, int fd, uint64_t off, size_t n);
void wire_shutdown(struct wire *w); /* close_notify and FIN; reading continues */
/* it will be closed by a reset, because a FIN says that all was sent */
void wire_break(struct wire *w);

/* To be called before a long wait: the next read asks the kernel. A reset that came together with
 * the last bytes has no edge of its own (libevent reports EPOLLERR as readable and writable), and
 * only shows after them. */
static inline void wire_look_again(struct wire *w)
{
    w->readable = true;
}

static inline bool wire_blocked(const struct wire *w)
{
    return w->unsent.n != 0 || w->piece.n != 0;
}

static inline bool wire_takes_files(const struct wire *w)
{
    return w->ssl == NULL || w->offload;
}

#endif
