#include "common/xfer/lookup.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>

#include "common/os/lock.h"

/* Whether the answer is still wanted is asked, and the answer posted, under the lock: after
 * lookup_cancel() the mailbox may be gone. */
struct lookup {
    struct letter letter;
    struct lock lock;
    struct mailbox *box; /* NULL: cancelled */
    void (*done)(void *arg, struct addrinfo *found, const char *why);
    void *arg;
    struct addrinfo *found;
    int failed;
    char host[LOOKUP_HOST_MAX + 1];
    char port[8];
};

static void lookup_free(struct lookup *l)
{
    lock_fini(&l->lock);
    if (l->found != NULL) {
        freeaddrinfo(l->found);
    }
    free(l);
}

static void *on_thread(void *arg)
{
    struct lookup *l = arg;
    struct addrinfo want = {.ai_socktype = SOCK_STREAM};
    bool wanted;

    l->failed = getaddrinfo(l->host, l->port, &want, &l->found);
    lock_take(&l->lock);
    wanted = l->box != NULL;
    if (wanted) {
        mailbox_post(l->box, &l->letter);
    }
    lock_drop(&l->lock);
    if (!wanted) {
        lookup_free(l);
    }
    return NULL;
}

static void on_loop(struct letter *letter)
{
    struct lookup *l = CONTAINER_OF(letter, struct lookup, letter);
    struct addrinfo *found = l->failed == 0 ? l->found : NULL;
    bool wanted;

    lock_take(&l->lock); /* the thread that posted it has let go of it */
    wanted = l->box != NULL;
    lock_drop(&l->lock);
    if (wanted) {
        l->found = NULL;
        l->done(l->arg, found, found != NULL ? "" : gai_strerror(l->failed));
    }
    lookup_free(l);
}

struct lookup *lookup_start(struct mailbox *box, struct slice host, uint16_t port,
                            void (*done)(void *arg, struct addrinfo *found, const char *why),
                            void *arg)
{
    struct lookup *l = NEW(struct lookup);
    pthread_t thread;

    CHECK(host.n <= LOOKUP_HOST_MAX);
    memcpy(l->host, host.p, host.n);
    snprintf(l->port, sizeof l->port, "%u", (unsigned)port);
    lock_init(&l->lock, LOCK_LOOKUP);
    l->box = box;
    l->done = done;
    l->arg = arg;
    l->letter.deliver = on_loop;
    if (thread_try("lookup", on_thread, l, &thread)) {
        CHECK(pthread_detach(thread) == 0);
    } else {
        l->failed = EAI_AGAIN;
        mailbox_post(box, &l->letter);
    }
    return l;
}

void lookup_cancel(struct lookup **lp)
{
    struct lookup *l = *lp;

    *lp = NULL;
    if (l == NULL) {
        return;
    }
    /* If its answer is in the box already, on_loop() frees it, else its thread does. */
    lock_take(&l->lock);
    l->box = NULL;
    lock_drop(&l->lock);
}
