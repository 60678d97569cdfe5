#include "server/net/wire.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/bio.h>
#include <openssl/err.h>
#include <stdlib.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <unistd.h>

/* --- raw bytes out ---------------------------------------------------------------------------- */

/* How much of it the socket took; less than n means that the wire is not writable, or broken. */
static size_t send_now(struct wire *w, const char *p, size_t n, bool more)
{
    size_t done = 0;

    while (done < n && w->writable && !w->broken) {
        ssize_t sent = send(w->fd, p + done, n - done, MSG_NOSIGNAL | (more ? MSG_MORE : 0));
        if (sent >= 0) {
            done += (size_t)sent;
        } else if (errno == EAGAIN) {
            w->writable = false;
        } else if (errno != EINTR) {
            w->broken = true;
        }
    }
    w->bytes_out += done;
    return done;
}

/* In order, behind whatever is unsent. */
static void send_or_keep(struct wire *w, const char *p, size_t n, bool more)
{
    struct buf *rest = w->piece.n != 0 ? &w->piece.behind : &w->unsent;
    size_t done = wire_blocked(w) ? 0 : send_now(w, p, n, more);

    if (done < n && !w->broken) {
        buf_add(rest, p + done, n - done);
        w->broken = rest->rc != 0;
    }
}

static void spill_cipher(struct wire *w, bool more)
{
    size_t n = w->scratch->cipher_n;

    if (n != 0) {
        w->scratch->cipher_n = 0;
        send_or_keep(w, w->scratch->cipher, n, more);
    }
}

static void encrypt(struct wire *w, const char *p, size_t n)
{
    while (n > 0 && !w->broken) {
        size_t took = 0;
        ERR_clear_error();
        if (SSL_write_ex(w->ssl, p, n, &took) != 1) {
            w->broken = true; /* our BIO always takes all: this is no retry */
        }
        p += took;
        n -= took;
    }
}

static void spill_plain(struct wire *w, bool more)
{
    size_t n = w->scratch->plain_n;

    if (n == 0) {
        return;
    }
    w->scratch->plain_n = 0;
    if (wire_takes_files(w)) {
        send_or_keep(w, w->scratch->plain, n, more);
    } else {
        encrypt(w, w->scratch->plain, n);
    }
}

/* --- a BIO that batches: records gather in the scratch and leave by one send() ---------------- */

static int bio_write(BIO *bio, const char *p, int n)
{
    struct wire *w = BIO_get_data(bio);
    struct wire_scratch *s = w->scratch;

    BIO_clear_retry_flags(bio);
    if (w->broken || n < 0) {
        return -1;
    }
    if ((size_t)n > WIRE_CIPHER_BYTES - s->cipher_n) {
        spill_cipher(w, true);
    }
    if ((size_t)n > WIRE_CIPHER_BYTES) {
        send_or_keep(w, p, (size_t)n, true);
        return n;
    }
    memcpy(s->cipher + s->cipher_n, p, (size_t)n);
    s->cipher_n += (size_t)n;
    return n;
}

static int bio_read(BIO *bio, char *p, int n)
{
    struct wire *w = BIO_get_data(bio);
    ssize_t got;

    BIO_clear_retry_flags(bio);
    if (!w->readable) {
        BIO_set_retry_read(bio);
        return -1;
    }
    do {
        got = recv(w->fd, p, (size_t)n, 0);
    } while (got == -1 && errno == EINTR);
    if (got == -1 && errno == EAGAIN) {
        w->readable = false;
        BIO_set_retry_read(bio);
        return -1;
    }
    if (got > 0) {
        w->bytes_in += (uint64_t)got;
        w->readable = got == n || w->hung_up; /* an edge announces what comes after a short read */
    }
    return (int)got;
}

static long bio_ctrl(BIO *bio, int what, long num, void *ptr)
{
    (void)bio;
    (void)num;
    (void)ptr;
    return what == BIO_CTRL_FLUSH || what == BIO_CTRL_PUSH || what == BIO_CTRL_POP;
}

static BIO *bio_of(struct wire *w)
{
    BIO *bio = BIO_new(w->scratch->bio);

    CHECK(bio != NULL);
    BIO_set_data(bio, w);
    BIO_set_init(bio, 1);
    return bio;
}

/* The kernel can encrypt on sockets (kTLS). */
static bool kernel_tls(void)
{
    /* Asked of a socket, not of /proc, which a hardened unit hides: one that is not connected is
     * refused only if the name is known. */
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool found =
        fd != -1 && setsockopt(fd, IPPROTO_TCP, TCP_ULP, "tls", 3) == -1 && errno == ENOTCONN;

    if (fd != -1) {
        close(fd);
    }
    return found;
}

void wire_scratch_init(struct wire_scratch *s)
{
    *s = (struct wire_scratch){.plain = mem_new(WIRE_PLAIN_BYTES),
                               .cipher = mem_new(WIRE_CIPHER_BYTES),
                               .in = mem_new(WIRE_READ_BYTES),
                               .bio = BIO_meth_new(BIO_TYPE_SOURCE_SINK, "wire"),
                               .kernel_tls = kernel_tls()};
    CHECK(s->bio != NULL && BIO_meth_set_write(s->bio, bio_write) == 1 &&
          BIO_meth_set_read(s->bio, bio_read) == 1 && BIO_meth_set_ctrl(s->bio, bio_ctrl) == 1);
}

void wire_scratch_fini(struct wire_scratch *s)
{
    free(s->plain);
    free(s->cipher);
    free(s->in);
    BIO_meth_free(s->bio);
    *s = (struct wire_scratch){.plain = NULL};
}

/* --- the wire --------------------------------------------------------------------------------- */

void wire_open(struct wire *w, int fd, SSL *ssl, struct wire_scratch *s)
{
    *w = (struct wire){.fd = fd, .ssl = ssl, .scratch = s, .readable = true, .writable = true};
    w->unsent = BUF_INIT(WIRE_UNSENT_MAX);
    w->piece.fd = -1;
    w->piece.behind = BUF_INIT(WIRE_UNSENT_MAX);
    if (ssl == NULL) {
        return;
    }
    if (s->kernel_tls) {
        CHECK(SSL_set_fd(ssl, fd) == 1); /* kTLS needs OpenSSL's own socket BIO */
    } else {
        BIO *bio = bio_of(w);
        SSL_set_bio(ssl, bio, bio);
    }
}

static void drop_piece(struct wire *w)
{
    if (w->piece.fd != -1) {
        close(w->piece.fd);
        w->piece.fd = -1;
    }
    w->piece.n = 0;
}

void wire_close(struct wire *w)
{
    if (w->ssl != NULL) {
        SSL_free(w->ssl);
        w->ssl = NULL;
    }
    drop_piece(w);
    buf_free(&w->unsent);
    buf_free(&w->piece.behind);
    close(w->fd);
    w->fd = -1;
}

static int ssl_failed(struct wire *w, int ret)
{
    switch (SSL_get_error(w->ssl, ret)) {
    case SSL_ERROR_WANT_READ:
        w->readable = false;
        return E_AGAIN;
    case SSL_ERROR_WANT_WRITE:
        w->writable = false;
        return E_AGAIN;
    case SSL_ERROR_SYSCALL:
        return E_NETWORK;
    default:
        return E_PROTOCOL;
    }
}

int wire_handshake(struct wire *w)
{
    int ret;
    int rc;

    ERR_clear_error();
    ret = SSL_do_handshake(w->ssl);
    rc = ret == 1 ? 0 : ssl_failed(w, ret);
    spill_cipher(w, false); /* our flight, or the alert that says why not */
    if (rc == 0 && w->scratch->kernel_tls) {
        w->offload = BIO_get_ktls_send(SSL_get_wbio(w->ssl)) != 0;
        if (!w->offload) {
            SSL_set0_wbio(w->ssl, bio_of(w));
        }
    }
    return rc;
}

static ssize_t read_clear(struct wire *w, char *p, size_t n)
{
    ssize_t got;

    do {
        got = recv(w->fd, p, n, 0);
    } while (got == -1 && errno == EINTR);
    if (got == -1) {
        w->readable = false;
        return errno == EAGAIN ? E_AGAIN : E_NETWORK;
    }
    w->bytes_in += (uint64_t)got;
    w->readable = (size_t)got == n || w->hung_up;
    return got;
}

ssize_t wire_read(struct wire *w, char *p, size_t n)
{
    size_t got = 0;
    int rc;

    if (w->ssl == NULL) {
        return w->readable ? read_clear(w, p, n) : E_AGAIN;
    }
    ERR_clear_error();
    if (SSL_read_ex(w->ssl, p, n, &got) == 1) {
        w->bytes_in +=
            w->scratch->kernel_tls ? got : 0; /* our BIO has counted them, OpenSSL's does not */
        return (ssize_t)got;
    }
    rc = SSL_get_error(w->ssl, 0);
    if (rc == SSL_ERROR_ZERO_RETURN) {
        return 0;
    }
    return ssl_failed(w, 0);
}

char *wire_reserve(struct wire *w, size_t n)
{
    struct wire_scratch *s = w->scratch;

    CHECK(n <= WIRE_PLAIN_BYTES);
    if (n > WIRE_PLAIN_BYTES - s->plain_n) {
        wire_flush(w, true);
    }
    return s->plain + s->plain_n;
}

void wire_commit(struct wire *w, size_t n)
{
    w->scratch->plain_n += n;
}

void wire_put(struct wire *w, struct slice bytes)
{
    while (bytes.n > 0) {
        size_t n = bytes.n < WIRE_PLAIN_BYTES ? bytes.n : WIRE_PLAIN_BYTES;
        memcpy(wire_reserve(w, n), bytes.p, n);
        wire_commit(w, n);
        bytes = slice_from(bytes, n);
    }
}

static void resume_unsent(struct wire *w)
{
    size_t done = send_now(w, w->unsent.p, w->unsent.n, w->piece.n != 0);

    if (done == w->unsent.n) {
        buf_free(&w->unsent);
    } else {
        buf_drop(&w->unsent, done);
    }
}

static void resume_piece(struct wire *w)
{
    while (w->piece.n > 0 && w->writable && !w->broken) {
        ssize_t sent = wire_sendfile(w, w->piece.fd, w->piece.off, w->piece.n);
        if (sent > 0) {
            w->piece.off += (uint64_t)sent;
            w->piece.n -= (size_t)sent;
        } else if (sent != E_AGAIN) {
            w->broken = true; /* the peer was promised these bytes */
        }
    }
    if (w->piece.n == 0) {
        drop_piece(w);
        w->unsent = w->piece.behind;
        w->piece.behind = BUF_INIT(WIRE_UNSENT_MAX);
    }
}

static void resume_wire(struct wire *w)
{
    while (wire_blocked(w) && w->writable && !w->broken) {
        if (w->unsent.n != 0) {
            resume_unsent(w);
        } else {
            resume_piece(w);
        }
    }
}

int wire_flush(struct wire *w, bool more)
{
    resume_wire(w);
    spill_plain(w, more);
    spill_cipher(w, more);
    if (w->broken) {
        w->scratch->plain_n = w->scratch->cipher_n = 0;
        return E_NETWORK;
    }
    return wire_blocked(w) ? E_AGAIN : 0;
}

ssize_t wire_sendfile(struct wire *w, int fd, uint64_t off, size_t n)
{
    off_t at = (off_t)off;
    ssize_t sent;

    if (!w->writable) {
        return E_AGAIN;
    }
    do {
        sent = sendfile(w->fd, fd, &at, n);
    } while (sent == -1 && errno == EINTR);
    if (sent > 0) {
        w->bytes_out += (uint64_t)sent;
        return sent;
    }
    if (sent == 0) {
        return E_IO; /* the file ends before what was promised */
    }
    if (errno == EAGAIN) {
        w->writable = false;
        return E_AGAIN;
    }
    return errno == EIO ? E_IO : E_NETWORK;
}

void wire_cork(struct wire *w, bool on)
{
    const int value = on; /* of TCP_CORK: on, only whole segments leave */

    if (w->corked != on && w->ssl == NULL) {
        setsockopt(w->fd, IPPROTO_TCP, TCP_CORK, &value, sizeof value);
        w->corked = on;
    }
}

void wire_owe_file(struct wire *w, int fd, uint64_t off, size_t n)
{
    CHECK(w->piece.n == 0 && w->scratch->plain_n == 0);
    w->piece.fd =
        fcntl(fd, F_DUPFD_CLOEXEC, 0); /* its stream may be reset before the bytes have left */
    w->piece.off = off;
    w->piece.n = n;
    w->broken = w->broken || w->piece.fd == -1;
}

void wire_shutdown(struct wire *w)
{
    if (w->ssl != NULL && !w->broken) {
        ERR_clear_error();
        SSL_shutdown(w->ssl);
        wire_flush(w, false);
    }
    shutdown(w->fd, SHUT_WR);
}

void wire_break(struct wire *w)
{
    static const struct linger reset = {.l_onoff = 1};

    setsockopt(w->fd, SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
    w->broken = true;
}
