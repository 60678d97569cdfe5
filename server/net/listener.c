#include "server/net/listener.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/base/log.h"
#include "server/net/sock.h"

struct listener {
    _Atomic unsigned holds;
    _Atomic bool retired;
    int fd;     /* -1 when retired */
    bool again; /* the socket was another's, whose settings it has until listener_begin() */
    char address[SOCK_TEXT_BYTES];
    struct listener_settings set; /* copies */
    struct tls_identity *identity;
};

static const char *copy_listener_text(const char *s)
{
    return s != NULL ? mem_strdup(s) : NULL;
}

static bool same_listener_text(const char *a, const char *b)
{
    return a == NULL || b == NULL ? a == b : strcmp(a, b) == 0;
}

static struct listener *listener_new(const struct listener_settings *set)
{
    struct listener *l = NEW(struct listener);

    l->holds = 1;
    l->fd = -1;
    l->set = (struct listener_settings){
        .address = copy_listener_text(set->address),
        .root = copy_listener_text(set->root),
        .tls_certificate = copy_listener_text(set->tls_certificate),
        .tls_key = copy_listener_text(set->tls_key),
        .tcp_congestion = copy_listener_text(set->tcp_congestion),
    };
    return l;
}

/* NULL: the system's usual one. */
static bool use_algorithm(int fd, const char *algorithm)
{
    char usual[16] = "";
    socklen_t n = sizeof usual - 1;
    int fresh = algorithm == NULL ? socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0) : -1;

    if (fresh != -1) {
        (void)getsockopt(fresh, IPPROTO_TCP, TCP_CONGESTION, usual, &n);
        close(fresh);
    }
    algorithm = algorithm != NULL ? algorithm : usual;
    return setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, algorithm, (socklen_t)strlen(algorithm)) ==
           0;
}

/* Accepted sockets inherit it. A kernel may refuse an algorithm that is not on its list: slower,
 * not wrong. */
static void set_congestion(struct listener *l)
{
    const char *algorithm = l->set.tcp_congestion;

    if (!use_algorithm(l->fd, algorithm)) {
        log_warn("listen.congestion", "address=%s algorithm=%s refused=yes", l->address,
                 algorithm != NULL ? algorithm : "usual");
    }
}

static int prepare_listener(struct listener *l, struct err *e)
{
    sock_bound(l->fd, l->address);
    return l->set.tls_certificate == NULL
               ? 0
               : tls_identity_open(l->set.tls_certificate, l->set.tls_key, &l->identity, e);
}

bool listener_named(const struct listener *l, const char *address)
{
    return strcmp(l->set.address, address) == 0;
}

static bool is_same(const struct listener *l, const struct listener_settings *set)
{
    return listener_named(l, set->address) && same_listener_text(l->set.root, set->root) &&
           same_listener_text(l->set.tls_certificate, set->tls_certificate) &&
           same_listener_text(l->set.tls_key, set->tls_key) &&
           same_listener_text(l->set.tcp_congestion, set->tcp_congestion);
}

static int open_new(const struct listener_settings *set, struct listener **out, struct err *e)
{
    struct listener *l = listener_new(set);
    int rc = sock_listen(set->address, &l->fd, e);

    rc = rc != 0 ? rc : prepare_listener(l, e);
    if (rc == 0 && set->tcp_congestion != NULL) {
        set_congestion(l);
    }
    if (rc != 0) {
        listener_release(&l);
    }
    *out = l;
    return rc;
}

/* The socket of `old` under other settings. */
static int open_again(const struct listener *old, const struct listener_settings *set,
                      struct listener **out, struct err *e)
{
    struct listener *l = listener_new(set);
    int rc;

    l->again = true;
    l->fd = fcntl(old->fd, F_DUPFD_CLOEXEC, 0);
    rc = l->fd != -1 ? prepare_listener(l, e) : err_sys(e, "listener %s", set->address);
    if (rc != 0) {
        listener_release(&l);
    }
    *out = l;
    return rc;
}

int listener_open(const struct listener *old, const struct listener_settings *set,
                  struct listener **out, struct err *e)
{
    if (old == NULL) {
        return open_new(set, out, e);
    }
    if (!is_same(old, set)) {
        return open_again(old, set, out, e);
    }
    *out = listener_hold(old);
    return old->identity != NULL ? tls_identity_reread(old->identity, e) : 0;
}

void listener_begin(struct listener *l)
{
    if (l->again) {
        set_congestion(l);
        l->again = false;
    }
    if (l->identity != NULL) {
        tls_identity_begin(l->identity);
    }
}

struct listener *listener_hold(const struct listener *l)
{
    struct listener *held = (struct listener *)(uintptr_t)l; /* the count is not part of it */

    atomic_fetch_add_explicit(&held->holds, 1, memory_order_relaxed);
    return held;
}

void listener_release(struct listener **lp)
{
    struct listener *l = *lp;

    *lp = NULL;
    if (l == NULL || atomic_fetch_sub_explicit(&l->holds, 1, memory_order_acq_rel) != 1) {
        return;
    }
    if (l->fd != -1) {
        close(l->fd);
    }
    tls_identity_close(&l->identity);
    free((void *)(uintptr_t)l->set.address);
    free((void *)(uintptr_t)l->set.root);
    free((void *)(uintptr_t)l->set.tls_certificate);
    free((void *)(uintptr_t)l->set.tls_key);
    free((void *)(uintptr_t)l->set.tcp_congestion);
    free(l);
}

void listener_cancel(struct listener **lp)
{
    if (*lp != NULL && (*lp)->identity != NULL) {
        tls_identity_forget((*lp)->identity);
    }
    listener_release(lp);
}

void listener_retire(struct listener *l)
{
    close(l->fd);
    l->fd = -1;
    atomic_store(&l->retired, true);
}

bool listener_retired(const struct listener *l)
{
    return atomic_load(&l->retired);
}

int listener_fd(const struct listener *l)
{
    return l->fd;
}

struct tls_identity *listener_identity(const struct listener *l)
{
    return l->identity;
}

const char *listener_root(const struct listener *l)
{
    return l->set.root;
}

const char *listener_address(const struct listener *l)
{
    return l->address;
}
