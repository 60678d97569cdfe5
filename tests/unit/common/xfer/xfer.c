#include "common/xfer/xfer.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include <arpa/inet.h>
#include <event2/event.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/base/buf.h"

/* --- an origin that says exactly what its script says ----------------------------------------- */

struct script {
    const char *path;
    const char *answer;
    bool close;       /* after the answer */
    size_t big_bytes; /* of 'x' behind the answer */
};

static const struct script scripts[] = {
    {"/ok", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nETag: \"a\"\r\n\r\nhello", false, 0},
    {"/100", "HTTP/1.1 103 Early\r\nLink: x\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi",
     false, 0},
    {"/short", "HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\nhello", true, 0},
    {"/chunked",
     "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\nX-T: 1\r\n\r\n",
     false, 0},
    {"/cutchunk", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n", true, 0},
    {"/eof", "HTTP/1.1 200 OK\r\n\r\nhello", true, 0},
    {"/twolen", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello", true, 0},
    {"/fold", "HTTP/1.1 200 OK\r\nA: b\r\n c\r\nContent-Length: 0\r\n\r\n", true, 0},
    {"/redir", "HTTP/1.1 302 Found\r\nLocation: /ok\r\nContent-Length: 0\r\n\r\n", false, 0},
    {"/none", "", true, 0},
    {"/old", "hello there, this is no HTTP\r\n", true, 0},
    {"/big", "HTTP/1.1 200 OK\r\nContent-Length: 3000000\r\n\r\n", false, 3000000},
    {"/coded", "HTTP/1.1 200 OK\r\nTransfer-Encoding: bogus\r\nContent-Length: 5\r\n\r\nhello",
     false, 0},
    {"/coded2",
     "HTTP/1.1 200 OK\r\nTransfer-Encoding: bogus, chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n", false,
     0},
    {"/nogzip",
     "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n", false,
     0},
    {"/twice",
     "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked, chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n", false,
     0},
    {"/longline", "HTTP/1.1 200 OK\r\nX: ", true, 400000},
    {"/longstatus", "HTTP/1.1 200 ", true, 400000},
    {"/longtrailer",
     "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\nX: ", true, 10000},
    {"/put", "HTTP/1.1 201 Created\r\nContent-Length: 0\r\n\r\n", false, 0},
};

static struct {
    int fd;
    char base[64];
    pthread_mutex_t mutex;
    struct buf seen; /* all requests as they came */
    int accepted;
} origin;

static bool read_request(int fd, struct buf *in, char path[64])
{
    size_t need = 0;

    buf_clear(in);
    while (need == 0 || in->n < need) {
        if (strstr(buf_cstr(in), "chunked\r\n") != NULL &&
            strstr(buf_cstr(in), "\r\n0\r\n\r\n") != NULL) {
            break;
        }
        char *p = buf_room(in, 65536);
        ssize_t n = read(fd, p, 65536);
        const char *end;
        const char *len;

        if (n <= 0) {
            return false;
        }
        buf_grew(in, (size_t)n);
        end = strstr(buf_cstr(in), "\r\n\r\n");
        if (need == 0 && end != NULL) {
            len = strstr(in->p, "Content-Length: ");
            need =
                (size_t)(end + 4 - in->p) + (len != NULL ? (size_t)strtoul(len + 16, NULL, 10) : 0);
            if (strstr(in->p, "chunked\r\n") != NULL) {
                need = SIZE_MAX; /* up to the end that is marked */
            }
        }
    }
    return sscanf(in->p, "%*s %63s", path) == 1;
}

static void *serve_one(void *arg)
{
    int fd = (int)(intptr_t)arg;
    struct buf in = BUF_INIT(1 << 20);
    char path[64];
    bool more = true;

    while (more && read_request(fd, &in, path)) {
        pthread_mutex_lock(&origin.mutex);
        buf_adds(&origin.seen, buf_slice(&in));
        pthread_mutex_unlock(&origin.mutex);
        for (size_t i = 0; i < ARRAY_LEN(scripts); i++) {
            const struct script *s = &scripts[i];
            if (strcmp(s->path, path) == 0) {
                char block[1000];
                ssize_t put = write(fd, s->answer, strlen(s->answer));
                memset(block, 'x', sizeof block);
                for (size_t n = 0; put >= 0 && n < s->big_bytes; n += sizeof block) {
                    put = send(fd, block, sizeof block, MSG_NOSIGNAL);
                }
                more = !s->close;
            }
        }
    }
    close(fd);
    buf_free(&in);
    return NULL;
}

static void *serve(void *arg)
{
    int fd;

    (void)arg;
    while ((fd = accept(origin.fd, NULL, NULL)) >= 0) {
        pthread_t t;
        pthread_mutex_lock(&origin.mutex);
        origin.accepted++;
        pthread_mutex_unlock(&origin.mutex);
        assert_int_equal(pthread_create(&t, NULL, serve_one, (void *)(intptr_t)fd), 0);
        pthread_detach(t);
    }
    return NULL;
}

static int start_origin(void **state)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof a;
    pthread_t t;

    (void)state;
    pthread_mutex_init(&origin.mutex, NULL);
    origin.seen = BUF_INIT(4 << 20);
    origin.fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(bind(origin.fd, (struct sockaddr *)&a, sizeof a), 0);
    assert_int_equal(listen(origin.fd, 16), 0);
    getsockname(origin.fd, (struct sockaddr *)&a, &n);
    snprintf(origin.base, sizeof origin.base, "http://127.0.0.1:%u", ntohs(a.sin_port));
    assert_int_equal(pthread_create(&t, NULL, serve, NULL), 0);
    pthread_detach(t);
    return 0;
}

/* --- one transfer, watched -------------------------------------------------------------------- */

struct seen {
    struct event_base *base;
    struct xfer_loop *loop;
    struct xfer *x;
    int heads;
    int status;
    bool framed;
    uint64_t length;
    char etag[16];
    struct buf body;
    int dones;
    int rc;
    struct err why;
    uint64_t count;
    int head_says;
    bool pause_each;
    bool cancel_in_body;
    bool refuse;
    unsigned reads; /* of a body that comes later */
};

static int on_head(void *arg, const struct xfer_head *h)
{
    struct seen *s = arg;
    struct slice etag = xfer_head_field(h, "etag");

    s->heads++;
    s->status = h->status;
    s->framed = h->framed;
    s->length = h->content_length;
    snprintf(s->etag, sizeof s->etag, SLICE_FMT, SLICE_ARG(etag));
    return s->head_says;
}

static void resume_later(evutil_socket_t fd, short what, void *arg)
{
    struct seen *s = arg;

    (void)fd;
    (void)what;
    if (s->x != NULL) {
        xfer_resume(s->x);
    }
}

static int on_body(void *arg, struct slice bytes)
{
    struct seen *s = arg;

    buf_adds(&s->body, bytes);
    if (s->cancel_in_body) {
        xfer_cancel(&s->x);
        event_base_once(s->base, -1, EV_TIMEOUT, resume_later, s,
                        NULL); /* a turn for the reaping */
        return 0;
    }
    if (s->pause_each) {
        event_base_once(s->base, -1, EV_TIMEOUT, resume_later, s, NULL);
        return XFER_PAUSE;
    }
    return 0;
}

static void on_done(void *arg, int rc, const struct err *why, uint64_t count)
{
    struct seen *s = arg;

    s->dones++;
    s->rc = rc;
    s->why = *why;
    s->count = count;
    s->x = NULL;
    event_base_loopbreak(s->base);
}

static bool admit(void *arg, const struct sockaddr *sa)
{
    const struct seen *s = arg;

    assert_int_equal(sa->sa_family, AF_INET);
    return !s->refuse;
}

static const struct xfer_events events = {on_head, on_body, on_done};

static void seen_open(struct seen *s)
{
    *s = (struct seen){.body = BUF_INIT(8 << 20)};
    s->base = event_base_new();
    s->loop = xfer_loop_open(s->base, NULL);
}

static void seen_close(struct seen *s)
{
    xfer_loop_close(&s->loop);
    event_base_free(s->base);
    buf_free(&s->body);
}

static void go(struct seen *s, struct xfer_params *w, const char *path)
{
    char url[128];

    snprintf(url, sizeof url, "%s%s", origin.base, path);
    w->url = slice_str(url);
    s->heads = s->dones = 0;
    buf_clear(&s->body);
    s->x = xfer_start(s->loop, w, &events, s);
    event_base_dispatch(s->base);
}

static void get(struct seen *s, const char *path)
{
    struct xfer_params w = {0};
    go(s, &w, path);
}

static void test_whole_answers(void **state)
{
    struct seen s;

    (void)state;
    seen_open(&s);
    get(&s, "/ok");
    assert_int_equal(s.rc, 0);
    assert_int_equal(s.heads, 1);
    assert_int_equal(s.dones, 1);
    assert_int_equal(s.status, 200);
    assert_int_equal(s.length, 5);
    assert_int_equal(s.count, 5);
    assert_true(s.framed);
    assert_string_equal(s.etag, "\"a\"");
    assert_string_equal(buf_cstr(&s.body), "hello");
    get(&s, "/100");
    assert_int_equal(s.rc, 0);
    assert_int_equal(s.heads, 1);
    assert_string_equal(buf_cstr(&s.body), "hi");
    get(&s, "/chunked");
    assert_int_equal(s.rc, 0);
    assert_true(s.framed);
    assert_true(s.length == XFER_UNKNOWN);
    assert_string_equal(buf_cstr(&s.body), "hello");
    get(&s, "/redir");
    assert_int_equal(s.rc, 0);
    assert_int_equal(s.status, 302);
    get(&s, "/eof");
    assert_int_equal(s.rc, 0);
    assert_false(s.framed);
    seen_close(&s);
}

static void test_cut_and_crooked_answers_fail(void **state)
{
    static const struct {
        const char *path;
        int rc;
    } t[] = {{"/short", E_NETWORK},     {"/cutchunk", E_NETWORK}, {"/twolen", E_PROTOCOL},
             {"/fold", E_PROTOCOL},     {"/none", E_NETWORK},     {"/old", E_PROTOCOL},
             {"/ok?sig=x y", E_INVALID}};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(t); i++) {
        struct seen s;
        seen_open(&s);
        get(&s, t[i].path);
        if (s.rc != t[i].rc) {
            fail_msg("%s: %d (%s)", t[i].path, s.rc, s.why.text);
        }
        assert_int_equal(s.dones, 1);
        assert_null(strstr(s.why.text, "sig="));
        seen_close(&s);
    }
}

/* libcurl's own words for these mislead ("Out of memory", "content encoding"), and its codes look
 * like trouble that passes. */
static void test_what_an_answer_may_not_be_is_named(void **state)
{
    static const struct {
        const char *path;
        int rc;
        const char *words;
    } t[] = {{"/coded", E_PROTOCOL, "unsupported Transfer-Encoding"},
             {"/coded2", E_PROTOCOL, "unsupported Transfer-Encoding"},
             {"/nogzip", E_PROTOCOL, "unsupported Transfer-Encoding: gzip, chunked"},
             {"/twice", E_PROTOCOL, "unsupported Transfer-Encoding: chunked, chunked"},
             {"/longline", E_TOOBIG, "header of the response is larger than 65536 bytes"},
             {"/longstatus", E_TOOBIG, "header of the response is larger than 65536 bytes"},
             {"/longtrailer", E_TOOBIG, "the trailer of the response is too large"}};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(t); i++) {
        struct seen s;
        seen_open(&s);
        get(&s, t[i].path);
        if (s.rc != t[i].rc || strstr(s.why.text, t[i].words) == NULL) {
            fail_msg("%s: %d (%s)", t[i].path, s.rc, s.why.text);
        }
        seen_close(&s);
    }
}

static void test_nothing_listens(void **state)
{
    struct seen s;
    struct xfer_params w = {.url = SLICE("http://127.0.0.1:1/x?secret=1")};

    (void)state;
    seen_open(&s);
    s.x = xfer_start(s.loop, &w, &events, &s);
    event_base_dispatch(s.base);
    assert_int_equal(s.rc, E_NETWORK);
    assert_string_equal(s.why.text, "127.0.0.1:1: cannot connect: Connection refused");
    seen_close(&s);
}

static void test_pausing(void **state)
{
    struct seen s;

    (void)state;
    seen_open(&s);
    s.pause_each = true;
    get(&s, "/big");
    assert_int_equal(s.rc, 0);
    assert_int_equal(s.body.n, 3000000);
    get(&s, "/ok"); /* ends while paused: the end waits for the resume */
    assert_int_equal(s.rc, 0);
    assert_int_equal(s.body.n, 5);
    seen_close(&s);
}

static void test_cancelling_inside_an_event(void **state)
{
    struct seen s;

    (void)state;
    seen_open(&s);
    s.cancel_in_body = true;
    get(&s, "/big");
    assert_null(s.x);
    assert_int_equal(s.dones, 0);
    assert_true(s.body.n > 0 && s.body.n < 3000000);
    s.cancel_in_body = false;
    get(&s, "/ok");
    assert_int_equal(s.rc, 0);
    seen_close(&s);
}

static void test_head_may_refuse(void **state)
{
    struct seen s;

    (void)state;
    seen_open(&s);
    s.head_says = E_CHANGED;
    get(&s, "/big");
    assert_int_equal(s.rc, E_CHANGED);
    assert_int_equal(s.body.n, 0);
    seen_close(&s);
}

static void test_admission_holds_for_kept_connections(void **state)
{
    struct seen s;
    struct xfer_params w = {.admit = admit};

    (void)state;
    seen_open(&s);
    s.refuse = true;
    go(&s, &w, "/ok");
    assert_int_equal(s.rc, E_DENIED);
    s.refuse = false;
    go(&s, &w, "/ok");
    assert_int_equal(s.rc, 0);
    s.refuse = true; /* the connection is there already */
    go(&s, &w, "/ok");
    assert_int_equal(s.rc, E_DENIED);
    assert_int_equal(s.heads, 0);
    seen_close(&s);
}

static void test_connections_are_kept(void **state)
{
    struct seen s;
    int before;

    (void)state;
    seen_open(&s);
    get(&s, "/ok");
    before = origin.accepted;
    get(&s, "/ok");
    get(&s, "/chunked");
    assert_int_equal(origin.accepted, before);
    seen_close(&s);
}

static ptrdiff_t read_pattern(void *arg, uint64_t offset, void *p, size_t n)
{
    (void)arg;
    n = n < 1000 ? n : 1000;
    for (size_t i = 0; i < n; i++) {
        ((char *)p)[i] = (char)('a' + (offset + i) % 26);
    }
    return (ptrdiff_t)n;
}

static bool origin_saw(const char *text)
{
    bool yes;

    pthread_mutex_lock(&origin.mutex);
    yes = strstr(buf_cstr(&origin.seen), text) != NULL;
    pthread_mutex_unlock(&origin.mutex);
    return yes;
}

static void test_what_is_sent(void **state)
{
    static const struct slice lines[] = {{"X-A: 1", 6}};
    struct seen s;
    struct xfer_params put = {.method = XFER_PUT, .body_read = read_pattern, .body_bytes = 20000};
    struct xfer_params post = {
        .method = XFER_POST, .body = SLICE("{}"), .fields = lines, .nfields = 1};
    struct xfer_params head = {.method = XFER_HEAD};
    struct xfer_params del = {.method = XFER_DELETE};
    struct xfer_params range = {.ranged = true, .range_first = 7, .range_last = 9};
    struct slice bad = SLICE("A: b\r\nC: d");
    struct xfer_params inject = {.fields = &bad, .nfields = 1};

    (void)state;
    seen_open(&s);
    setenv("http_proxy", "http://127.0.0.1:1", 1);
    buf_clear(&origin.seen);
    go(&s, &put, "/put");
    assert_int_equal(s.rc, 0);
    assert_int_equal(s.status, 201);
    assert_true(origin_saw("PUT /put HTTP/1.1\r\n"));
    assert_true(origin_saw("Content-Length: 20000\r\n"));
    assert_true(origin_saw("\r\n\r\nabcdefghijklmnopqrstuvwxyzabc"));
    assert_false(origin_saw("Expect"));
    go(&s, &post, "/put");
    assert_true(origin_saw("POST /put HTTP/1.1\r\n"));
    assert_true(origin_saw("X-A: 1\r\n"));
    assert_false(origin_saw("Content-Type"));
    go(&s, &del, "/put");
    assert_true(origin_saw("DELETE /put HTTP/1.1\r\n"));
    go(&s, &range, "/ok");
    assert_true(origin_saw("Range: bytes=7-9\r\n"));
    assert_true(origin_saw("Accept-Encoding: identity\r\n"));
    go(&s, &inject, "/ok");
    assert_int_equal(s.rc, E_INVALID);
    go(&s, &head, "/big"); /* the script sends a body to HEAD: it may not be taken for one */
    assert_int_equal(s.length, 3000000);
    assert_int_equal(s.body.n, 0);
    unsetenv("http_proxy");
    seen_close(&s);
}

static void feed_later(evutil_socket_t fd, short what, void *arg)
{
    struct seen *s = arg;

    (void)fd;
    (void)what;
    if (s->x != NULL) {
        xfer_feed(s->x);
    }
}

/* Every second time there is nothing yet; the last one is the end. */
static ptrdiff_t read_later(void *arg, uint64_t offset, void *p, size_t n)
{
    struct seen *s = arg;

    if (s->reads++ % 2 == 0) {
        event_base_once(s->base, -1, EV_TIMEOUT, feed_later, s, NULL);
        return XFER_NOT_YET;
    }
    return offset == 3000 ? 0 : read_pattern(arg, offset, p, n);
}

static void test_a_body_that_comes_while_it_is_sent(void **state)
{
    static const enum xfer_method methods[] = {XFER_PUT, XFER_POST, XFER_PATCH};
    static const char *const names[] = {"PUT ", "POST ", "PATCH "};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(methods); i++) {
        struct xfer_params w = {.method = methods[i],
                                .body_read = read_later,
                                .body_bytes = XFER_UNKNOWN,
                                .own_connection = true,
                                .unacknowledged_ms = 10000};
        struct seen s;
        int accepted = origin.accepted;

        seen_open(&s);
        buf_clear(&origin.seen);
        go(&s, &w, "/put");
        assert_int_equal(s.rc, 0);
        assert_int_equal(s.status, 201);
        assert_true(origin_saw(names[i]));
        assert_true(origin_saw("Transfer-Encoding: chunked\r\n"));
        assert_true(origin_saw("\r\n3e8\r\nabcdef"));
        assert_true(origin_saw("\r\n0\r\n\r\n"));
        w.body_bytes = 2500; /* the same with a length */
        s.reads = 0;
        buf_clear(&origin.seen);
        go(&s, &w, "/put");
        assert_int_equal(s.rc, 0);
        assert_true(origin_saw("Content-Length: 2500\r\n"));
        assert_int_equal(origin.accepted, accepted + 2);
        seen_close(&s);
    }
}

static ptrdiff_t never(void *arg, uint64_t offset, void *p, size_t n)
{
    (void)arg, (void)offset, (void)p, (void)n;
    return XFER_NOT_YET;
}

static void cancel_now(evutil_socket_t fd, short what, void *arg)
{
    struct seen *s = arg;

    (void)fd;
    (void)what;
    xfer_cancel(&s->x);
    event_base_loopbreak(s->base);
}

static void test_a_body_that_never_comes(void **state)
{
    struct xfer_params w = {
        .method = XFER_PUT, .body_read = never, .body_bytes = 10, .idle_timeout_s = 1};
    struct timeval soon = {0, 50000};
    struct seen s;

    (void)state;
    seen_open(&s);
    go(&s, &w, "/put");
    assert_int_equal(s.rc, E_TIMEOUT);
    w.idle_timeout_s = 0;
    event_base_once(s.base, -1, EV_TIMEOUT, cancel_now, &s, &soon);
    go(&s, &w, "/put");
    assert_int_equal(s.dones, 0);
    seen_close(&s);
}

/* No name has one of 64 bytes, and nobody needs to be asked for that. */
#define LONG_LABEL "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"

/* The scripted origin stands for the proxy: what it is asked for is all that matters. */
static void test_a_proxy_is_asked_for_what_was_admitted(void **state)
{
    struct seen s;
    char proxy[32];
    struct xfer_params w = {.url = SLICE("https://127.0.0.1:8443/x"),
                            .proxy = proxy,
                            .proxy_resolve = true,
                            .admit = admit};

    (void)state;
    snprintf(proxy, sizeof proxy, "%s", origin.base);
    seen_open(&s);
    s.refuse = true;
    s.x = xfer_start(s.loop, &w, &events, &s);
    assert_int_equal(s.dones, 0);
    event_base_dispatch(s.base);
    assert_int_equal(s.dones, 1);
    assert_int_equal(s.rc, E_DENIED);
    assert_false(origin_saw("CONNECT"));
    s.refuse = false;
    s.x = xfer_start(s.loop, &w, &events, &s);
    event_base_dispatch(s.base);
    assert_int_equal(s.dones, 2);
    assert_int_not_equal(s.rc, 0); /* it is no proxy */
    assert_true(origin_saw("CONNECT 127.0.0.1:8443 HTTP/1.1\r\n"));
    w.url = SLICE("https://" LONG_LABEL ".example/x");
    s.x = xfer_start(s.loop, &w, &events, &s);
    event_base_dispatch(s.base);
    assert_int_equal(s.rc, E_NETWORK);
    assert_string_equal(s.why.text, LONG_LABEL ".example:443: the name does not resolve");
    w.url = SLICE("https://127.0.0.1:8443/x");
    s.x = xfer_start(s.loop, &w, &events, &s);
    xfer_cancel(&s.x); /* the look-up is under way; the loop is closed before it can tell */
    seen_close(&s);
    assert_int_equal(s.dones, 3);
}

/* libcurl reads "u" as the host of such a URL. */
static void test_no_byte_of_a_proxys_password_is_reported(void **state)
{
    static const char *const proxies[] = {
        "http://u:s3c/ret@px.invalid:3128", "http://u:s3c?ret@px.invalid:3128",
        "u:s3c#r@et@px.invalid:3128", "http://u:s3c%2Fret@px.invalid:3128/"};
    struct seen s;
    struct xfer_params w = {.url = SLICE("http://127.0.0.1:8443/x")};

    (void)state;
    seen_open(&s);
    for (size_t i = 0; i < ARRAY_LEN(proxies); i++) {
        w.proxy = proxies[i];
        s.x = xfer_start(s.loop, &w, &events, &s);
        event_base_dispatch(s.base);
        assert_int_equal(s.rc, E_NETWORK);
        assert_null(strstr(s.why.text, "s3c"));
        assert_null(strstr(s.why.text, "et@"));
        assert_non_null(strstr(s.why.text, "the proxy px.invalid:3128"));
    }
    seen_close(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_whole_answers),
        cmocka_unit_test(test_cut_and_crooked_answers_fail),
        cmocka_unit_test(test_what_an_answer_may_not_be_is_named),
        cmocka_unit_test(test_nothing_listens),
        cmocka_unit_test(test_pausing),
        cmocka_unit_test(test_cancelling_inside_an_event),
        cmocka_unit_test(test_head_may_refuse),
        cmocka_unit_test(test_admission_holds_for_kept_connections),
        cmocka_unit_test(test_no_byte_of_a_proxys_password_is_reported),
        cmocka_unit_test(test_a_proxy_is_asked_for_what_was_admitted),
        cmocka_unit_test(test_connections_are_kept),
        cmocka_unit_test(test_what_is_sent),
        cmocka_unit_test(test_a_body_that_comes_while_it_is_sent),
        cmocka_unit_test(test_a_body_that_never_comes),
    };
    return cmocka_run_group_tests(tests, start_origin, NULL);
}
