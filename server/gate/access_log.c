#include <arpa/inet.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "common/base/log.h"
#include "common/os/clock.h"
#include "common/os/lock.h"
#include "common/os/scribe.h"
#include "server/gate/gate.h"
#include "server/gate/token.h"

enum {
    RING_BYTES = 4 << 20,
    LINE_BYTES = 8 << 10,  /* longest line */
    VALUE_BYTES = 1 << 10, /* longest value, escapes included */
};

struct access_log {
    _Atomic bool on, json;
    struct lock lock;         /* over the two below: a reload may put another there */
    struct scribe *scribe;    /* NULL: nobody reads it */
    bool owned;               /* not the one that writes to stderr anyway */
    char *path;               /* as configured; the setter's own */
    _Atomic uint64_t dropped; /* by scribes that are gone */
};

/* --- one line --- */

static char hex_digit(unsigned n)
{
    return "0123456789abcdef"[n & 15];
}

/* Bytes from outside: printable ASCII stays, but of tokens their id (whoever errs in a repo's name has theirs in a path that nobody
 * takes it out of), all else becomes \u00XX (json) or \xXX (combined). Cut at VALUE_BYTES. */
static void escaped(struct buf *out, struct slice s, bool json)
{
    size_t start = out->n;

    for (size_t i = 0; i < s.n; i++) {
        uint8_t c = (uint8_t)s.p[i];
        size_t token = c == 'm' ? token_bytes(slice_from(s, i)) : 0;
        if (out->n - start > VALUE_BYTES - 8) {
            buf_str(out, "...");
            return;
        }
        if (token > TOKEN_SHOWN) {
            buf_add(out, s.p + i, TOKEN_SHOWN);
            buf_str(out, "...");
            i += token - 1;
        } else if (c == '"' || c == '\\') {
            buf_byte(out, '\\');
            buf_byte(out, c);
        } else if (c >= ' ' && c < 0x7f) {
            buf_byte(out, c);
        } else {
            buf_str(out, json ? "\\u00" : "\\x");
            buf_byte(out, (uint8_t)hex_digit(c >> 4));
            buf_byte(out, (uint8_t)hex_digit(c));
        }
    }
}

static void pair(struct buf *out, const char *key, struct slice value)
{
    buf_addf(out, ",\"%s\":\"", key);
    escaped(out, value, true);
    buf_byte(out, '"');
}

static void client_text(const struct sockaddr_storage *peer, char out[INET6_ADDRSTRLEN])
{
    const void *address = peer->ss_family == AF_INET6
                              ? (const void *)&((const struct sockaddr_in6 *)peer)->sin6_addr
                              : (const void *)&((const struct sockaddr_in *)peer)->sin_addr;

    if ((peer->ss_family != AF_INET && peer->ss_family != AF_INET6) ||
        inet_ntop(peer->ss_family, address, out, INET6_ADDRSTRLEN) == NULL) {
        snprintf(out, INET6_ADDRSTRLEN, "-");
    }
}

static const char *protocol_text(const struct access_entry *en)
{
    if (en->protocol != NULL) {
        return en->protocol;
    }
    switch (en->req->version) {
    case HTTP_10:
        return "HTTP/1.0";
    case HTTP_11:
        return "HTTP/1.1";
    case HTTP_2:
        return "HTTP/2";
    }
    return "";
}

/* The path without the query: signatures and keys travel there. */
static void json_line(struct buf *out, const struct access_entry *en, uint64_t unix_ms)
{
    const struct http_req *r = en->req;
    char client[INET6_ADDRSTRLEN], when[32];
    time_t s = (time_t)(unix_ms / 1000);
    struct tm tm;

    client_text(r->peer, client);
    gmtime_r(&s, &tm);
    strftime(when, sizeof(when), "%Y-%m-%dT%H:%M:%S", &tm);
    buf_addf(out, "{\"ts\":\"%s.%03uZ\",\"id\":\"%s\",\"client\":\"%s\"", when,
             (unsigned)(unix_ms % 1000), r->id, client);
    pair(out, "principal", en->who != NULL ? en->who->name : SLICE_NONE);
    pair(out, "method", r->method_text);
    pair(out, "host", r->host);
    pair(out, "path", r->path);
    buf_addf(out, ",\"proto\":\"%s\",\"tls\":%s,\"status\":%d,\"bytes\":%" PRIu64,
             protocol_text(en), r->tls ? "true" : "false", en->status, en->bytes);
    buf_addf(out, ",\"complete\":%s,\"dur_ms\":%.3f,\"ttfb_ms\":%.3f",
             en->complete ? "true" : "false", (double)en->took_ns / 1e6,
             (double)en->first_ns / 1e6);
    pair(out, "cache", slice_str(en->cache));
    pair(out, "repo", en->repo);
    pair(out, "range", http_req_field(r, "range"));
    pair(out, "ua", http_req_field(r, "user-agent"));
    if (en->protocol != NULL) {
        pair(out, "outcome", slice_str(en->outcome));
        buf_addf(out, ",\"files\":%" PRIu64, en->files);
    }
    buf_str(out, "}\n");
}

static void quoted_or_dash(struct buf *out, struct slice s)
{
    buf_str(out, " \"");
    escaped(out, s.n > 0 ? s : SLICE("-"), false);
    buf_byte(out, '"');
}

static void combined_line(struct buf *out, const struct access_entry *en, uint64_t unix_ms)
{
    const struct http_req *r = en->req;
    char client[INET6_ADDRSTRLEN], when[48];
    time_t s = (time_t)(unix_ms / 1000);
    struct tm tm;

    client_text(r->peer, client);
    gmtime_r(&s, &tm);
    strftime(when, sizeof(when), "%d/%b/%Y:%H:%M:%S +0000", &tm);
    buf_addf(out, "%s - ", client);
    escaped(out, en->who != NULL && en->who->name.n > 0 ? en->who->name : SLICE("-"), false);
    buf_addf(out, " [%s] \"", when);
    escaped(out, r->method_text, false);
    buf_byte(out, ' ');
    escaped(out, r->path, false);
    buf_addf(out, " %s\" %d %" PRIu64, protocol_text(en), en->status, en->bytes);
    quoted_or_dash(out, http_req_field(r, "referer"));
    quoted_or_dash(out, http_req_field(r, "user-agent"));
    buf_byte(out, '\n');
}

void access_log_write(struct access_log *l, const struct access_entry *en)
{
    struct buf line = BUF_INIT(LINE_BYTES);

    if (!atomic_load_explicit(&l->on, memory_order_relaxed)) {
        return;
    }
    (void)buf_room(&line, 1024); /* at once: it would grow four times */
    if (atomic_load_explicit(&l->json, memory_order_relaxed)) {
        json_line(&line, en, clock_unix_ms());
    } else {
        combined_line(&line, en, clock_unix_ms());
    }
    CHECK(line.rc == 0); /* every value is cut: nine of them fit */
    lock_take(&l->lock);
    if (l->scribe != NULL) {
        (void)scribe_add(l->scribe, buf_slice(&line), false); /* it counts what it drops */
    }
    lock_drop(&l->lock);
    buf_free(&line);
}

/* --- where the lines go --- */

static int open_scribe(const char *path, struct scribe **out, bool *owned, struct err *e)
{
    *out = NULL;
    *owned = false;
    if (strcmp(path, "none") == 0) {
        return 0;
    }
    if (strcmp(path, "stderr") == 0) {
        *out = log_scribe();
    }
    if (*out != NULL) {
        return 0;
    }
    *owned = true;
    return scribe_open("access-log", strcmp(path, "stderr") != 0 ? path : NULL, RING_BYTES, out, e);
}

static void close_scribe(struct access_log *l, struct scribe *s, bool owned)
{
    if (s != NULL && owned) {
        atomic_fetch_add(&l->dropped, scribe_dropped(s));
        scribe_close(&s);
    }
}

int access_log_set(struct access_log *l, const char *path, const char *format, struct err *e)
{
    struct scribe *fresh = NULL, *old;
    bool owned = false, old_owned, same = l->path != NULL && strcmp(l->path, path) == 0;
    char *name;
    int rc;

    rc = same ? 0 : open_scribe(path, &fresh, &owned, e);
    if (rc != 0) {
        return rc;
    }
    atomic_store(&l->json, strcmp(format, "json") == 0);
    if (same) {
        return 0;
    }
    name = mem_strdup(path);
    lock_take(&l->lock);
    old = l->scribe;
    old_owned = l->owned;
    l->scribe = fresh;
    l->owned = owned;
    lock_drop(&l->lock);
    free(l->path);
    l->path = name;
    atomic_store(&l->on, fresh != NULL);
    close_scribe(l, old, old_owned);
    return 0;
}

int access_log_open(const char *path, const char *format, struct access_log **out, struct err *e)
{
    struct access_log *l = NEW(struct access_log);
    int rc;

    lock_init(&l->lock, LOCK_ACCESS_LOG);
    rc = access_log_set(l, path, format, e);
    if (rc != 0) {
        access_log_close(&l);
    }
    *out = l;
    return rc;
}

void access_log_reopen(struct access_log *l)
{
    lock_take(&l->lock);
    if (l->scribe != NULL) {
        scribe_reopen(l->scribe);
    }
    lock_drop(&l->lock);
}

uint64_t access_log_dropped(struct access_log *l)
{
    uint64_t n = atomic_load(&l->dropped);

    lock_take(&l->lock);
    n += l->scribe != NULL ? scribe_dropped(l->scribe) : 0;
    lock_drop(&l->lock);
    return n;
}

void access_log_close(struct access_log **lp)
{
    struct access_log *l = *lp;

    *lp = NULL;
    if (l == NULL) {
        return;
    }
    close_scribe(l, l->scribe, l->owned);
    lock_fini(&l->lock);
    free(l->path);
    free(l);
}
