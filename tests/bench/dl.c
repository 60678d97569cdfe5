/* dl.c - N clients of one object over HTTP/1.1 at once; prints when each byte came as one line of
 * JSON.
 *
 * dl [-n clients] [-H "Name: value"]... [-c FILE] [-t seconds] PORT /path
 *
 * Bodies are thrown away inside the kernel (MSG_TRUNC), so the client costs next to nothing; with
 * -c every byte of every body is compared to FILE instead, at the offset that Content-Range names.
 * Loopback only. Exit 1 unless all were whole.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { HEAD_ROOM = 8192, PIECE = 1 << 20 };

struct client {
    int fd;
    bool headed, whole, wrong;
    size_t head_n;
    uint64_t at, got, length;
    double head_s, body_s, end_s;
    char head[HEAD_ROOM];
};

struct reference {
    const char *p;
    uint64_t n;
};

static char piece[PIECE];

static double now_s(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void die(const char *what)
{
    perror(what);
    exit(2);
}

static struct reference reference_open(const char *path)
{
    struct reference r = {0};
    struct stat st;
    int fd = open(path, O_RDONLY | O_CLOEXEC);

    if (fd == -1 || fstat(fd, &st) == -1) {
        die(path);
    }
    r.n = (uint64_t)st.st_size;
    r.p = mmap(NULL, r.n, PROT_READ, MAP_PRIVATE, fd, 0);
    if (r.p == MAP_FAILED) {
        die(path);
    }
    close(fd);
    return r;
}

static void client_start(struct client *c, int port, const char *request)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};

    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    c->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (c->fd == -1 || connect(c->fd, (struct sockaddr *)&a, sizeof a) == -1) {
        die("connect");
    }
    if (write(c->fd, request, strlen(request)) != (ssize_t)strlen(request)) {
        die("write");
    }
}

/* Takes exactly the head off the socket, so that what follows is body. false: not complete, or
 * over. */
static bool client_head(struct client *c, double since_s, bool *over)
{
    ssize_t n =
        recv(c->fd, c->head + c->head_n, HEAD_ROOM - 1 - c->head_n, MSG_DONTWAIT | MSG_PEEK);
    const char *end, *field;
    size_t take;

    if (n <= 0) {
        *over = n == 0 || errno != EAGAIN;
        return false;
    }
    if (c->head_s == 0) {
        c->head_s = since_s;
    }
    c->head[c->head_n + (size_t)n] = '\0';
    end = strstr(c->head, "\r\n\r\n");
    take = end != NULL ? (size_t)(end + 4 - c->head) - c->head_n : (size_t)n;
    if (recv(c->fd, c->head + c->head_n, take, MSG_DONTWAIT) != (ssize_t)take) {
        die("recv");
    }
    c->head_n += take;
    c->head[c->head_n] = '\0';
    if (end == NULL) {
        *over = c->head_n == HEAD_ROOM - 1;
        return false;
    }
    c->headed = true;
    field = strcasestr(c->head, "\r\ncontent-length:");
    c->length = field != NULL ? strtoull(field + 17, NULL, 10) : UINT64_MAX;
    field = strcasestr(c->head, "\r\ncontent-range: bytes ");
    c->at = field != NULL ? strtoull(field + 23, NULL, 10) : 0;
    return true;
}

/* false: over, whole or not. */
static bool client_body(struct client *c, const struct reference *ref, double since_s)
{
    for (int turn = 0; turn < 16; turn++) {
        int how = MSG_DONTWAIT | (ref->p != NULL ? 0 : MSG_TRUNC);
        ssize_t n = recv(c->fd, piece, sizeof piece, how);

        if (n == -1 && errno == EAGAIN) {
            return true;
        }
        if (n <= 0) {
            return false;
        }
        if (c->body_s == 0) {
            c->body_s = since_s;
        }
        if (ref->p != NULL) {
            uint64_t off = c->at + c->got;
            c->wrong |= off + (uint64_t)n > ref->n || memcmp(ref->p + off, piece, (size_t)n) != 0;
        }
        c->got += (uint64_t)n;
        if (c->got >= c->length) {
            c->whole = c->got == c->length && !c->wrong;
            return false;
        }
    }
    return true;
}

/* false: this client is done. */
static bool client_step(struct client *c, const struct reference *ref, double since_s)
{
    bool over = false;

    if (!c->headed && !client_head(c, since_s, &over)) {
        return !over;
    }
    if (c->length == 0) {
        c->whole = true;
        return false;
    }
    return client_body(c, ref, since_s);
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static void print_spread(const char *name, const struct client *c, size_t n, size_t field)
{
    double *v = calloc(n, sizeof *v);

    for (size_t i = 0; i < n; i++) {
        memcpy(&v[i], (const char *)&c[i] + field, sizeof v[i]);
    }
    qsort(v, n, sizeof *v, by_value);
    printf(", \"%s_s\": [%.6f, %.6f, %.6f]", name, v[0], v[n / 2], v[n - 1]);
    free(v);
}

static int report(const struct client *c, size_t n, double took_s)
{
    uint64_t bytes = 0;
    size_t whole = 0, wrong = 0;

    for (size_t i = 0; i < n; i++) {
        bytes += c[i].got;
        whole += c[i].whole;
        wrong += c[i].wrong;
    }
    printf("{\"clients\": %zu, \"whole\": %zu, \"wrong\": %zu, \"bytes\": %llu, \"took_s\": %.6f",
           n, whole, wrong, (unsigned long long)bytes, took_s);
    print_spread("head", c, n, offsetof(struct client, head_s));
    print_spread("body", c, n, offsetof(struct client, body_s));
    print_spread("end", c, n, offsetof(struct client, end_s));
    printf(", \"status\": %d}\n", c[0].headed ? atoi(c[0].head + 9) : 0);
    return whole == n ? 0 : 1;
}

static void run(struct client *c, size_t n, const struct reference *ref, int ep, double begun_s,
                double limit_s)
{
    size_t left = n;

    while (left > 0 && now_s() - begun_s < limit_s) {
        struct epoll_event ev[256];
        int k = epoll_wait(ep, ev, 256, 100);

        for (int j = 0; j < k; j++) {
            struct client *x = &c[ev[j].data.u64];
            if (!client_step(x, ref, now_s() - begun_s)) {
                x->end_s = now_s() - begun_s;
                close(x->fd);
                left--;
            }
        }
    }
}

int main(int argc, char **argv)
{
    int failed;
    char request[4096], fields[2048] = "";
    struct reference ref = {0};
    struct client *clients;
    size_t n = 1;
    double limit_s = 120, begun_s;
    int opt, ep;

    while ((opt = getopt(argc, argv, "n:H:c:t:")) != -1) {
        size_t used = strlen(fields);
        switch (opt) {
        case 'n':
            n = strtoul(optarg, NULL, 10);
            break;
        case 'H':
            snprintf(fields + used, sizeof fields - used, "%s\r\n", optarg);
            break;
        case 'c':
            ref = reference_open(optarg);
            break;
        case 't':
            limit_s = strtod(optarg, NULL);
            break;
        default:
            return 2;
        }
    }
    if (argc - optind != 2 || n == 0) {
        fputs("usage: dl [-n clients] [-H field]... [-c FILE] [-t seconds] PORT /path\n", stderr);
        return 2;
    }
    snprintf(request, sizeof request, "GET %s HTTP/1.1\r\nHost: localhost\r\n%s\r\n",
             argv[optind + 1], fields);
    clients = calloc(n, sizeof *clients);
    ep = epoll_create1(EPOLL_CLOEXEC);
    if (clients == NULL || ep == -1) {
        die("dl");
    }
    begun_s = now_s();
    for (size_t i = 0; i < n; i++) {
        struct epoll_event ev = {.events = EPOLLIN, .data.u64 = i};
        client_start(&clients[i], atoi(argv[optind]), request);
        epoll_ctl(ep, EPOLL_CTL_ADD, clients[i].fd, &ev);
    }
    run(clients, n, &ref, ep, begun_s, limit_s);
    failed = report(clients, n, now_s() - begun_s);
    free(clients);
    return failed;
}
