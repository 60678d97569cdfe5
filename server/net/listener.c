#include "server/net/listener.h"

#include <stdlib.h>
#include <unistd.h>

#include "common/base/log.h"
#include "server/net/sock.h"

struct listener {
    int fd;
    char address[SOCK_TEXT_BYTES];
    char *root;
    struct tls_identity *identity;
};

int listener_open(const struct listener_settings *set, struct listener **out, struct err *e)
{
    struct listener *l = NEW(struct listener);
    int rc;

    l->fd = -1;
    rc = sock_listen(set->address, &l->fd, e);
    if (rc != 0) {
        goto out;
    }
    sock_bound(l->fd, l->address);
    if (set->root != NULL) {
        l->root = mem_strdup(set->root);
    }
    if (set->tls_certificate != NULL) {
        rc = tls_identity_open(set->tls_certificate, set->tls_key, &l->identity, e);
        if (rc != 0) {
            goto out;
        }
    }
    /* Accepted sockets inherit it. A kernel may refuse an algorithm that is not on its list: slower, not wrong. */
    if (set->tcp_congestion != NULL && !sock_congestion(l->fd, set->tcp_congestion)) {
        log_warn("listen.congestion", "address=%s algorithm=%s refused=yes", l->address,
                 set->tcp_congestion);
    }
    *out = l;
    l = NULL;
out:
    listener_close(&l);
    return rc;
}

void listener_close(struct listener **lp)
{
    struct listener *l = *lp;

    if (l == NULL) {
        return;
    }
    *lp = NULL;
    if (l->fd != -1) {
        close(l->fd);
    }
    tls_identity_close(&l->identity);
    free(l->root);
    free(l);
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
    return l->root;
}

const char *listener_address(const struct listener *l)
{
    return l->address;
}
