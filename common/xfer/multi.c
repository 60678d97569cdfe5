#include "common/xfer/multi.h"

#include <event2/event.h>
#include <stdlib.h>

struct multi {
    struct event_base *base;
    CURLM *curl;
    struct event *timer; /* libcurl's own timeouts */
    void (*on_end)(void *private, CURLcode code);
};

static void harvest(struct multi *m)
{
    CURLMsg *said;
    int left;

    while ((said = curl_multi_info_read(m->curl, &left)) != NULL) {
        CURLcode code = said->data.result; /* the handle may be gone when on_end() returns */
        char *p = NULL;

        CHECK(said->msg == CURLMSG_DONE);
        CHECK(curl_easy_getinfo(said->easy_handle, CURLINFO_PRIVATE, &p) == CURLE_OK);
        m->on_end(p, code);
    }
}

static void act(struct multi *m, curl_socket_t fd, int what)
{
    int running;

    CHECK(curl_multi_socket_action(m->curl, fd, what, &running) == CURLM_OK);
    harvest(m);
}

static void on_curl_multi_timer(evutil_socket_t fd, short what, void *arg)
{
    (void)fd;
    (void)what;
    act(arg, CURL_SOCKET_TIMEOUT, 0);
}

static void on_ready(evutil_socket_t fd, short what, void *arg)
{
    act(arg, fd, (what & EV_READ ? CURL_CSELECT_IN : 0) | (what & EV_WRITE ? CURL_CSELECT_OUT : 0));
}

static int want_timer(CURLM *curl, long ms, void *arg)
{
    struct multi *m = arg;
    struct timeval tv = {ms / 1000, ms % 1000 * 1000};

    (void)curl;
    if (ms < 0) {
        evtimer_del(m->timer);
    } else {
        evtimer_add(m->timer, &tv);
    }
    return 0;
}

static int want_socket(CURL *easy, curl_socket_t fd, int what, void *arg, void *per_socket)
{
    struct multi *m = arg;
    struct event *ev = per_socket;
    short mask =
        (short)((what & CURL_POLL_IN ? EV_READ : 0) | (what & CURL_POLL_OUT ? EV_WRITE : 0));

    (void)easy;
    if (ev != NULL) {
        event_free(ev);
        ev = NULL;
    }
    if (what != CURL_POLL_REMOVE) {
        ev = event_new(m->base, fd, (short)(mask | EV_PERSIST), on_ready, m);
        CHECK(ev != NULL && event_add(ev, NULL) == 0);
    }
    curl_multi_assign(m->curl, fd, ev);
    return 0;
}

void multi_add(struct multi *m, CURL *easy)
{
    CHECK(curl_multi_add_handle(m->curl, easy) == CURLM_OK);
}

void multi_remove(struct multi *m, CURL *easy)
{
    CHECK(curl_multi_remove_handle(m->curl, easy) == CURLM_OK);
}

struct multi *multi_open(struct event_base *base, unsigned connections, unsigned host_connections,
                         void (*on_end)(void *private, CURLcode code))
{
    struct multi *m = NEW(struct multi);

    CHECK(curl_global_init(CURL_GLOBAL_DEFAULT) == CURLE_OK);
    m->base = base;
    m->on_end = on_end;
    m->timer = evtimer_new(base, on_curl_multi_timer, m);
    m->curl = curl_multi_init();
    CHECK(m->timer != NULL && m->curl != NULL);
    curl_multi_setopt(m->curl, CURLMOPT_SOCKETFUNCTION, want_socket);
    curl_multi_setopt(m->curl, CURLMOPT_SOCKETDATA, m);
    curl_multi_setopt(m->curl, CURLMOPT_TIMERFUNCTION, want_timer);
    curl_multi_setopt(m->curl, CURLMOPT_TIMERDATA, m);
    curl_multi_setopt(m->curl, CURLMOPT_MAX_TOTAL_CONNECTIONS, (long)connections);
    curl_multi_setopt(m->curl, CURLMOPT_MAX_HOST_CONNECTIONS, (long)host_connections);
    curl_multi_setopt(m->curl, CURLMOPT_MAXCONNECTS, (long)connections);
    return m;
}

void multi_close(struct multi **mp)
{
    struct multi *m = *mp;

    if (m == NULL) {
        return;
    }
    *mp = NULL;
    CHECK(curl_multi_cleanup(m->curl) == CURLM_OK); /* it refuses while it is on the stack */
    event_free(m->timer);
    free(m);
}
