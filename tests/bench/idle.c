/* idle.c - opens N connections, makes one request on each, then holds them: what does a silent
 * client cost a server?
 *
 * idle PORT h1|tls1|h2c|h2 COUNT /path
 *
 * Prints "open N" once all are there and holds them until stdin is closed. Loopback only.
 */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <openssl/ssl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

struct held {
    int fd;
    SSL *ssl;
};

static ssize_t held_write(struct held *c, const void *p, size_t n)
{
    return c->ssl != NULL ? SSL_write(c->ssl, p, (int)n) : write(c->fd, p, n);
}

static ssize_t held_read(struct held *c, void *p, size_t n)
{
    return c->ssl != NULL ? SSL_read(c->ssl, p, (int)n) : read(c->fd, p, n);
}

static bool held_connect(struct held *c, int port, SSL_CTX *tls)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    struct timeval limit = {.tv_sec = 10};

    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    c->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (c->fd == -1 || connect(c->fd, (struct sockaddr *)&a, sizeof a) == -1) {
        perror("connect");
        return false;
    }
    setsockopt(c->fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    if (tls != NULL) {
        c->ssl = SSL_new(tls);
        SSL_set_fd(c->ssl, c->fd);
        return SSL_connect(c->ssl) == 1;
    }
    return true;
}

/* Preface, empty SETTINGS, and one HEADERS frame (literals without indexing, no Huffman):
 * END_STREAM | END_HEADERS. */
static size_t h2_request(char *out, const char *path, bool over_tls)
{
    static const char preface[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0";
    size_t path_n = strlen(path), block = 2 + 2 + path_n + 11, n = sizeof preface - 1;

    memcpy(out, preface, n);
    out[n++] = 0;
    out[n++] = (char)(block >> 8);
    out[n++] = (char)block;
    memcpy(out + n, "\1\5\0\0\0\1\x82", 7); /* HEADERS, flags, stream 1; :method GET */
    n += 7;
    out[n++] = over_tls ? '\x87' : '\x86'; /* :scheme */
    out[n++] = '\x04';                     /* :path */
    out[n++] = (char)path_n;
    memcpy(out + n, path, path_n);
    n += path_n;
    memcpy(out + n, "\x01\x09localhost", 11); /* :authority */
    return n + 11;
}

/* Reads until nothing comes for a moment after the first bytes: the answer is small and on
 * loopback. */
static bool held_ask(struct held *c, bool h2, const char *request, size_t n)
{
    static const char settings_ack[] = "\0\0\0\4\1\0\0\0\0";
    struct timeval soon = {.tv_usec = 2000};
    char answer[16384];
    ssize_t got;

    if (held_write(c, request, n) != (ssize_t)n ||
        (got = held_read(c, answer, sizeof answer)) <= 0) {
        return false;
    }
    setsockopt(c->fd, SOL_SOCKET, SO_RCVTIMEO, &soon, sizeof soon);
    while (h2 && held_read(c, answer, sizeof answer) > 0) {
    }
    return !h2 || held_write(c, settings_ack, 9) == 9;
}

static SSL_CTX *tls_client(bool h2)
{
    SSL_CTX *tls = SSL_CTX_new(TLS_client_method());
    const char *alpn = h2 ? "\2h2" : "\10http/1.1";

    SSL_CTX_set_mode(tls, SSL_MODE_RELEASE_BUFFERS);
    SSL_CTX_set_alpn_protos(tls, (const unsigned char *)alpn, (unsigned)strlen(alpn));
    return tls;
}

int main(int argc, char **argv)
{
    struct rlimit files;
    struct held *held;
    bool h2, over_tls;
    char request[1024];
    size_t request_n;
    SSL_CTX *tls;
    int count, open = 0;

    if (argc != 5 || strlen(argv[4]) > 100) {
        fputs("usage: idle PORT h1|tls1|h2c|h2 COUNT /path\n", stderr);
        return 2;
    }
    over_tls = strcmp(argv[2], "h2") == 0 || strcmp(argv[2], "tls1") == 0;
    h2 = strncmp(argv[2], "h2", 2) == 0;
    count = atoi(argv[3]);
    getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
    tls = over_tls ? tls_client(h2) : NULL;
    if (h2) {
        request_n = h2_request(request, argv[4], over_tls);
    } else {
        request_n = (size_t)snprintf(request, sizeof request,
                                     "GET %s HTTP/1.1\r\nHost: localhost\r\n\r\n", argv[4]);
    }
    held = calloc((size_t)count, sizeof *held);
    for (int i = 0; held != NULL && i < count; i++) {
        if (!held_connect(&held[i], atoi(argv[1]), tls) ||
            !held_ask(&held[i], h2, request, request_n)) {
            break;
        }
        open++;
    }
    printf("open %d\n", open);
    fflush(stdout);
    while (read(STDIN_FILENO, request, sizeof request) > 0) {
    }
    return open == count ? 0 : 1;
}
