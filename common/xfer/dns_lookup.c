#include "common/xfer/dns_lookup.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>

#include "common/os/lock.h"

/* Whether the answer is still wanted is asked, and the answer posted, under the lock: after
 * dns_lookup_cancel() the message queue may be gone. */
struct dns_lookup {
    struct message message;
    struct lock lock;
    struct message_queue *box; /* NULL: cancelled */
    void (*done)(void *arg, struct addrinfo *found, const char *why);
    void *arg;
    struct addrinfo *found;
    int failed;
    char host[DNS_LOOKUP_HOST_MAX + 1];
    char port[8];
};

static void dns_lookup_free(struct dns_lookup *l)
{
    lock_fini(&l->lock);
    if (l->found != NULL) {
        freeaddrinfo(l->found);
    }
    free(l);
}

static void *on_thread(void *arg)
{
    struct dns_lookup *l = arg;
    struct addrinfo want = {.ai_socktype = SOCK_STREAM};
    bool wanted;

    l->failed = getaddrinfo(l->host, l->port, &want, &l->found);
    lock_take(&l->lock);
    wanted = l->box != NULL;
    if (wanted) {
        message_queue_post(l->box, &l->message);
    }
    lock_drop(&l->lock);
    if (!wanted) {
        dns_lookup_free(l);
    }
    return NULL;
}

static void on_loop(struct message *message)
{
    struct dns_lookup *l = CONTAINER_OF(message, struct dns_lookup, message);
    struct addrinfo *found = l->failed == 0 ? l->found : NULL;
    bool wanted;

    lock_take(&l->lock); /* the thread that posted it has let go of it */
    wanted = l->box != NULL;
    lock_drop(&l->lock);
    if (wanted) {
        l->found = NULL;
        l->done(l->arg, found, found != NULL ? "" : gai_strerror(l->failed));
    }
    dns_lookup_free(l);
}

struct dns_lookup *
dns_lookup_start(struct message_queue *box, struct slice host, uint16_t port,
                 void (*done)(void *arg, struct addrinfo *found, const char *why), void *arg)
{
    struct dns_lookup *l = NEW(struct dns_lookup);
    pthread_t thread;

    CHECK(host.n <= DNS_LOOKUP_HOST_MAX);
    memcpy(l->host, host.p, host.n);
    snprintf(l->port, sizeof l->port, "%u", (unsigned)port);
    lock_init(&l->lock, LOCK_DNS_LOOKUP);
    l->box = box;
    l->done = done;
    l->arg = arg;
    l->message.deliver = on_loop;
    if (thread_try("lookup", on_thread, l, &thread)) {
        CHECK(pthread_detach(thread) == 0);
    } else {
        l->failed = EAI_AGAIN;
        message_queue_post(box, &l->message);
    }
    return l;
}

void dns_lookup_cancel(struct dns_lookup **lp)
{
    struct dns_lookup *l = *lp;

    *lp = NULL;
    if (l == NULL) {
        return;
    }
    /* If its answer is in the box already, on_loop() frees it, else its thread does. */
    lock_take(&l->lock);
    l->box = NULL;
    lock_drop(&l->lock);
}
