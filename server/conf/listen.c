/* listen.c - the sections of sockets: listen, and rsync's own. */
#include "common/codec/network.h"
#include "server/conf/section.h"
#include "server/conf/value.h"
#include "server/net/tls.h"
#include "server/rsync/users.h"

static bool address_valid(const char *text)
{
    const char *colon = strrchr(text, ':');
    struct slice host, port;
    struct network net;
    uint64_t n;

    if (colon == NULL) {
        return false;
    }
    host = slice_of(text, (size_t)(colon - text));
    port = slice_str(colon + 1);
    if (!slice_u64(port, &n) || n > 65535) {
        return false;
    }
    if (host.n >= 2 && host.p[0] == '[' && host.p[host.n - 1] == ']') {
        host = slice_of(host.p + 1, host.n - 2);
        return slice_find(host, ':') >= 0 && slice_find(host, '/') < 0 && network_parse(host, &net);
    }
    return host.n == 0 ||
           (slice_find(host, ':') < 0 && slice_find(host, '/') < 0 && network_parse(host, &net));
}

int section_listen(const struct settings_node *nd, struct listener_settings *l, struct arena *a,
                   struct err *e)
{
    struct tls_identity *t = NULL;
    struct err why = {0};
    int rc = values_fill(nd, l, a, e);

    if (rc != 0) {
        return rc;
    }
    l->address = nd->title;
    if (!address_valid(nd->title)) {
        return settings_wrong(nd->at, e,
                              "listen \"%.80s\", that is no address and port, write one such as "
                              "0.0.0.0:8080 or [::]:8443",
                              nd->title);
    }
    if ((l->tls_certificate == NULL) != (l->tls_key == NULL)) {
        return settings_wrong(
            nd->at, e,
            "listen \"%s\" has %s alone, TLS needs the certificate and its key, write "
            "both",
            nd->title, l->tls_key == NULL ? "tls_certificate" : "tls_key");
    }
    if (l->tls_certificate != NULL) {
        if (tls_identity_open(l->tls_certificate, l->tls_key, &t, &why) != 0) {
            return settings_wrong(settings_where(nd, "tls_certificate"), e,
                                  "certificate and key do not serve, %s, see to both files",
                                  why.text);
        }
        l->valid = tls_identity_validity(t);
        tls_identity_close(&t);
    }
    return 0;
}

int section_rsync(const struct settings_node *nd, struct rsync_conf *d, struct arena *a,
                  struct err *e)
{
    struct err why;
    int rc = values_fill(nd, d, a, e);

    d->address = nd->title;
    if (rc == 0 && !address_valid(nd->title)) {
        return settings_wrong(nd->at, e,
                              "rsync \"%.80s\", that is no address and port, write one such as "
                              "0.0.0.0:873",
                              nd->title);
    }
    if (rc == 0 && d->users != NULL && users_check(d->users, &why) != 0) {
        return settings_wrong(nd->at, e, "%s", why.text);
    }
    return rc;
}
