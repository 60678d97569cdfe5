/* asks.c - N connections ask for the paths of a list, one after the other, for some seconds; prints
 * what came as JSON.
 *
 * asks [-I] [-n connections] [-d seconds] [-H "Name: value"]... PORT FILE
 *
 * FILE has a path a line; each connection takes the next of all when it has its answer. -I asks
 * with HEAD (wrk waits for the body of one for ever). Bodies are thrown away inside the kernel
 * (MSG_TRUNC). Loopback only, HTTP/1.1. Exit 1 with a line on stderr as soon as an answer is no 200
 * or a connection ends.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { HEAD_ROOM = 16384, PIECE = 4 << 20 };

struct request {
    char *text;
    size_t n;
};

struct list { /* the requests, in the order of the file */
    struct request *all;
    size_t count, next;
};

struct connection {
    int fd;
    bool headed;
    size_t head_n;
    uint64_t left; /* of the body */
    const struct request *asked;
    char head[HEAD_ROOM];
};

static bool head_only;
static uint64_t answers, bytes;
static char piece[PIECE];

static void die(const char *what)
{
    perror(what);
    exit(2);
}

static double now_s(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static struct list list_read(const char *file, const char *fields)
{
    struct list l = {0};
    FILE *f = fopen(file, "r");
    char *line = NULL;
    size_t room = 0;
    ssize_t n;

    if (f == NULL) {
        die(file);
    }
    while ((n = getline(&line, &room, f)) > 0) {
        struct request *r;
        int len;
        line[n - 1] = line[n - 1] == '\n' ? '\0' : line[n - 1];
        l.all = reallocarray(l.all, l.count + 1, sizeof *l.all);
        if (l.all == NULL) {
            die("asks");
        }
        r = &l.all[l.count++];
        len = asprintf(&r->text, "%s %s HTTP/1.1\r\nHost: localhost\r\n%s\r\n",
                       head_only ? "HEAD" : "GET", line, fields);
        if (len == -1) {
            die("asks");
        }
        r->n = (size_t)len;
    }
    free(line);
    fclose(f);
    return l;
}

static void ask(struct connection *c, struct list *l)
{
    c->asked = &l->all[l->next];
    l->next = (l->next + 1) % l->count;
    c->headed = false;
    c->head_n = 0;
    if (write(c->fd, c->asked->text, c->asked->n) != (ssize_t)c->asked->n) {
        die("write");
    }
}

static void give_up(const struct connection *c, const char *why)
{
    fprintf(stderr, "asks: %s after %llu answers; the head so far: %.*s\nthe request: %s", why,
            (unsigned long long)answers, (int)c->head_n, c->head, c->asked->text);
    exit(1);
}

/* The body's first bytes may come along with the head. */
static void take_head(struct connection *c)
{
    ssize_t n = recv(c->fd, c->head + c->head_n, HEAD_ROOM - 1 - c->head_n, MSG_DONTWAIT);
    const char *end, *field;
    uint64_t length;
    size_t behind;

    if (n == -1 && errno == EAGAIN) {
        return;
    }
    if (n <= 0) {
        give_up(c, "the connection ended");
    }
    c->head_n += (size_t)n;
    c->head[c->head_n] = '\0';
    end = strstr(c->head, "\r\n\r\n");
    if (end == NULL) {
        if (c->head_n == HEAD_ROOM - 1) {
            give_up(c, "a head without an end");
        }
        return;
    }
    if (strncmp(c->head, "HTTP/1.1 20", 11) != 0) {
        give_up(c, "no 200");
    }
    field = strcasestr(c->head, "\r\ncontent-length:");
    if (field == NULL) {
        give_up(c, "no Content-Length");
    }
    length = head_only ? 0 : strtoull(field + 17, NULL, 10);
    behind = c->head_n - (size_t)(end + 4 - c->head);
    if (behind > length) {
        give_up(c, "more than the answer");
    }
    bytes += behind;
    c->left = length - behind;
    c->headed = true;
}

static void take_body(struct connection *c)
{
    while (c->left > 0) {
        size_t want = c->left < PIECE ? (size_t)c->left : PIECE;
        ssize_t n = recv(c->fd, piece, want, MSG_DONTWAIT | MSG_TRUNC);

        if (n == -1 && errno == EAGAIN) {
            return;
        }
        if (n <= 0) {
            give_up(c, "the connection ended");
        }
        bytes += (uint64_t)n;
        c->left -= (uint64_t)n;
    }
}

static void step(struct connection *c, struct list *l)
{
    if (!c->headed) {
        take_head(c);
    }
    if (c->headed) {
        take_body(c);
        if (c->left == 0) {
            answers++;
            ask(c, l);
        }
    }
}

static void open_one(struct connection *c, int port, int ep, uint64_t i)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    struct epoll_event ev = {.events = EPOLLIN, .data.u64 = i};
    int on = 1;

    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    c->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (c->fd == -1 || connect(c->fd, (struct sockaddr *)&a, sizeof a) == -1 ||
        setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on) == -1 ||
        epoll_ctl(ep, EPOLL_CTL_ADD, c->fd, &ev) == -1) {
        die("connect");
    }
}

static double run(struct connection *all, size_t n, struct list *l, int ep, double limit_s)
{
    double begun_s = now_s();

    for (size_t i = 0; i < n; i++) {
        ask(&all[i], l);
    }
    while (now_s() - begun_s < limit_s) {
        struct epoll_event ev[256];
        int k = epoll_wait(ep, ev, 256, 100);

        for (int j = 0; j < k; j++) {
            step(&all[ev[j].data.u64], l);
        }
    }
    return now_s() - begun_s;
}

int main(int argc, char **argv)
{
    char fields[2048] = "";
    struct connection *all;
    struct list l;
    size_t n = 1;
    double limit_s = 3, took_s;
    int opt, ep;

    while ((opt = getopt(argc, argv, "In:d:H:")) != -1) {
        size_t used = strlen(fields);
        switch (opt) {
        case 'I':
            head_only = true;
            break;
        case 'n':
            n = strtoul(optarg, NULL, 10);
            break;
        case 'd':
            limit_s = strtod(optarg, NULL);
            break;
        case 'H':
            snprintf(fields + used, sizeof fields - used, "%s\r\n", optarg);
            break;
        default:
            return 2;
        }
    }
    if (argc - optind != 2 || n == 0) {
        fputs("usage: asks [-I] [-n connections] [-d seconds] [-H field]... PORT FILE\n", stderr);
        return 2;
    }
    l = list_read(argv[optind + 1], fields);
    all = calloc(n, sizeof *all);
    ep = epoll_create1(EPOLL_CLOEXEC);
    if (all == NULL || ep == -1 || l.count == 0) {
        die("asks");
    }
    for (size_t i = 0; i < n; i++) {
        open_one(&all[i], atoi(argv[optind]), ep, i);
    }
    took_s = run(all, n, &l, ep, limit_s);
    printf("{\"requests\": %llu, \"bytes\": %llu, \"took_s\": %.6f}\n", (unsigned long long)answers,
           (unsigned long long)bytes, took_s);
    return 0;
}
