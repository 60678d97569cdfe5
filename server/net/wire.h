/* wire.h - the bytes to and from one socket, TLS or not.
 *
 * Writing goes through the loop's two scratch areas, so that a connection with nothing unsent owns
 * no buffer: wire_reserve() gives room in `plain`, wire_commit() takes it, wire_flush() encrypts
 * (into `cipher`) and sends with one send() what the socket takes. Only what it refuses is copied
 * into the connection's own `unsent`, at most about one scratch; a wire that is blocked must not be
 * given more than control frames. Files on a cleartext wire go by sendfile().
 *
 * Edge-triggered: `readable` and `writable` are set by the event and cleared by EAGAIN; `hung_up`
 * means that the peer has finished sending, so a short read is not the end of the news.
 *
 * owns     the fd, the SSL, unsent bytes
 * threads  one loop; between two events plain and cipher are empty
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

struct wire_scratch { /* one a loop */
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
    bool offload; /* the kernel encrypts: we write as on a cleartext wire */
    bool corked;  /* wire_cork() */
    struct buf unsent;
    struct
    { /* a piece of a file that must follow `unsent`, because its frame header has left already */
        int fd; /* a duplicate, ours */
        uint64_t off;
        size_t n;
        struct buf behind; /* and what must follow the piece */
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
/* 0: all is with the kernel; E_AGAIN: blocked; E_NETWORK. `more`: a file follows at once. */
int wire_flush(struct wire *w, bool more);
/* Cleartext. Sends what the socket takes now: > 0, E_AGAIN, E_NETWORK; E_IO when the file is
 * shorter. */
ssize_t wire_sendfile(struct wire *w, int fd, uint64_t off, size_t n);
/* Cleartext. Until it is taken back only whole segments leave. Who forgets that holds the last one
 * back for the peer's delayed ACK, 40 ms; a wire that ends sends it. */
void wire_cork(struct wire *w, bool on);
/* The rest of a file piece that has been promised to the peer: sent before anything else. */
void wire_owe_file(struct wire *w, int fd, uint64_t off, size_t n);
void wire_shutdown(struct wire *w); /* close_notify and FIN; reading goes on */
void wire_break(struct wire *w);    /* it will be closed by a reset: a FIN says that all was sent */

/* Before a long wait: the next read asks the kernel. A reset that came together with the last bytes
 * has no edge of its own (libevent tells EPOLLERR as readable and writable), and shows only after
 * them. */
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
