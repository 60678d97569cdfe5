#include "server/live/notices.h"

#include <inttypes.h>
#include <stdlib.h>

#include "common/base/log.h"
#include "common/codec/nearest.h"
#include "common/codec/network.h"
#include "common/os/clock.h"

enum { SAID_BYTES = 1 << 20, LINE_BYTES = 4096 };

struct names { /* whom a limit may name */
    struct arena arena;
    const char **at;
    size_t count, room;
};

static void add_notice_name(struct names *n, const char *name)
{
    if (n->count == n->room) {
        n->room = n->room != 0 ? 2 * n->room : 64;
        n->at = realloc(n->at, n->room * sizeof *n->at);
        CHECK(n->at != NULL);
    }
    n->at[n->count++] = arena_cstr(&n->arena, slice_str(name));
}

static void on_expiring_token(void *arg, const struct token_info *token)
{
    add_notice_name(arg, token->name);
}

static bool has_name(const struct names *n, const char *name)
{
    for (size_t i = 0; i < n->count; i++) {
        if (strcmp(n->at[i], name) == 0) {
            return true;
        }
    }
    return false;
}

static void add_notice_line(struct buf *said, const char *fmt, ...) PRINTF_LIKE(2, 3);
static void add_notice_line(struct buf *said, const char *fmt, ...)
{
    va_list ap;

    buf_str(said, said->n > 0 ? "\n" : "");
    va_start(ap, fmt);
    buf_vaddf(said, fmt, ap);
    va_end(ap);
}

static void of_limits(struct gate *g, const struct conf *c, struct buf *said)
{
    struct names names = {0};

    add_notice_name(&names, "anonymous");
    token_each(g, on_expiring_token, &names);
    for (size_t i = 0; i < c->limits_count; i++) {
        struct slice title = slice_str(c->limits[i].title);
        const char *near;
        struct network net;
        if (network_parse(title, &net) || has_name(&names, c->limits[i].title)) {
            continue;
        }
        near = nearest_word(names.at, names.count, title);
        add_notice_line(said,
                        "limit \"" SLICE_FMT
                        "\" applies to nobody: its title is not a network, and no "
                        "token has that name%s%s%s",
                        SLICE_ARG(title), near != NULL ? "; did you mean \"" : "",
                        near != NULL ? near : "", near != NULL ? "\"?" : "");
    }
    arena_fini(&names.arena);
    free(names.at);
}

static void of_certificates(const struct conf *c, struct buf *said)
{
    int64_t now = (int64_t)clock_unix_s();
    char text[TLS_VALIDITY_TEXT];

    for (size_t i = 0; i < c->listeners_count; i++) {
        const struct listener_settings *l = &c->listeners[i];
        if (l->tls_certificate == NULL || !tls_validity_alarms(&l->valid, now)) {
            continue;
        }
        tls_validity_format(&l->valid, now, text);
        add_notice_line(said, "the certificate of %s %s; see TLS in operations.md", l->address,
                        text);
    }
}

static void of_origins(const struct conf *c, struct buf *said)
{
    struct buf line = BUF_INIT(LINE_BYTES);

    for (size_t i = 0; i < c->repos_count; i++) {
        buf_clear(&line);
        conf_warn_of_origin(&c->repos[i], &line);
        if (line.n > 0) {
            add_notice_line(said, SLICE_FMT, SLICE_ARG(buf_slice(&line)));
        }
    }
    buf_free(&line);
}

static void of_reserve(const struct conf *c, struct buf *said)
{
    struct buf line = BUF_INIT(LINE_BYTES);

    if (conf_warn_of_reserve(c, &line)) {
        add_notice_line(said, SLICE_FMT, SLICE_ARG(buf_slice(&line)));
    }
    buf_free(&line);
}

void notices_of_conf(struct gate *g, const struct conf *c, struct buf *said)
{
    of_reserve(c, said);
    of_limits(g, c, said);
    of_certificates(c, said);
    of_origins(c, said);
    if (c->repos_count == 0) {
        add_notice_line(said, "%s", CONF_NO_REPOS);
    }
}

void notices_say(struct gate *g, const struct conf *c, struct buf *said)
{
    struct buf lines = BUF_INIT(SAID_BYTES);
    struct slice rest;

    notices_of_conf(g, c, &lines);
    rest = buf_slice(&lines);
    if (said != NULL && rest.n > 0) {
        buf_addf(said, "%s" SLICE_FMT, said->n > 0 ? "\n" : "", SLICE_ARG(rest));
    }
    while (rest.n > 0) {
        struct slice line = slice_cut(&rest, '\n');
        log_warn("config.notice", SLICE_FMT, SLICE_ARG(line));
    }
    buf_free(&lines);
}
