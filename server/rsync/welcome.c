#include "server/rsync/welcome.h"

#include <openssl/rand.h>
#include <stdio.h>

#include "common/base/log.h"
#include "common/codec/base64.h"
#include "common/os/clock.h"
#include "server/rsync/options.h"
#include "server/rsync/users.h"
#include "server/sync/rsync/greeting.h"

enum { SERVE_VERSION = 31, EARLY_INPUT_MAX = 5120, CHALLENGE_BYTES = 24, CHALLENGE_ROOM = 48 };

void welcome_init(struct welcome *w)
{
    *w = (struct welcome){.who = {.name = SLICE("")}, .arguments = BUF_INIT(OPTIONS_BYTES_MAX)};
}

void welcome_fini(struct welcome *w, const struct welcome_site *site)
{
    gate_release(site->gate, &w->who);
    pace_release(&w->pace);
    buf_free(&w->arguments);
}

static int say(struct stream *s, const char *text, struct err *e)
{
    buf_str(stream_draft(s), text);
    return stream_flush(s, e);
}

int welcome_refuse(struct stream *s, const char *text, struct err *e)
{
    buf_addf(stream_draft(s), "@ERROR: %s\n", text);
    return stream_flush(s, e);
}

/* --- modules -------------------------------------------------------------------------------------------------------------- */

static void tell_module(void *to, const char *module)
{
    buf_addf(stream_draft(to), "%-15s\tmirrored\n", module);
}

static int tell_modules(struct welcome *w, struct stream *s, const struct welcome_site *site,
                        struct err *e)
{
    int rc;

    site->each(site->arg, tell_module, s);
    rc = say(s, "@RSYNCD: EXIT\n", e);
    w->listed = rc == 0;
    return rc != 0 ? rc : err_set(e, E_CANCELLED, "the modules were listed");
}

static int unknown_module(struct stream *s, struct err *e)
{
    (void)!welcome_refuse(s, "Unknown module", NULL);
    return err_set(e, E_NOTFOUND, "no such module");
}

static int find_module(struct welcome *w, struct stream *s, const struct welcome_site *site,
                       struct slice name, struct err *e)
{
    if (name.n == 0 || slice_eq(name, SLICE("#list"))) {
        return tell_modules(w, s, site, e);
    }
    if (name.n > WELCOME_MODULE_MAX) {
        return unknown_module(s, e);
    }
    snprintf(w->module, sizeof w->module, SLICE_FMT, SLICE_ARG(name));
    w->kind = site->find(site->arg, slice_str(w->module), &w->is);
    if (w->kind == MODULE_NONE || (w->kind == MODULE_LOCKED && site->users == NULL)) {
        return unknown_module(s, e);
    }
    return 0;
}

/* --- who, and how fast ------------------------------------------------------------------------------------------------------ */

static int spend(struct welcome *w, struct stream *s, const struct welcome_site *site,
                 const struct sockaddr_storage *peer, struct err *e)
{
    struct gate_verdict v;
    char text[80];

    gate_spend(site->gate, &w->who, peer, clock_now_ms(), &v);
    if (v.pass) {
        w->pace = v.pace;
        return 0;
    }
    snprintf(text, sizeof text, "max connections (%llu) reached -- try again later",
             (unsigned long long)v.limit);
    (void)!welcome_refuse(s, text, NULL);
    return err_set(e, E_BUSY, "more sessions than its limit");
}

/* Its line is "name answer". A name without a token gets no further than one with a wrong password. */
static int prove(struct welcome *w, const struct welcome_site *site, struct slice line,
                 const char *challenge, struct err *e)
{
    struct slice user = slice_cut(&line, ' ');
    int rc = users_prove(site->users, user, slice_str(challenge), slice_trim(line), e);

    if (rc == E_DENIED || rc == 0) {
        int named = rc == 0 ? gate_named(site->gate, user, &w->who, e) : 0;
        return named != 0 ? err_set(e, E_DENIED, "there is no token of that name") : rc;
    }
    log_error("rsync.users", "%s", e->text);
    return rc;
}

static bool reads(const struct welcome *w, struct slice path)
{
    char room[WELCOME_MODULE_MAX + GREETING_LINE_MAX + 4];
    int n = snprintf(room, sizeof room, "%s/" SLICE_FMT "%s\1", w->module, SLICE_ARG(path),
                     path.n > 0 ? "/" : "");

    return n > 0 && (size_t)n < sizeof room &&
           gate_allows(&w->who, "read", slice_of(room, (size_t)n));
}

/* Only a scope that ends in '*' has a last part of that one odd byte, and such a scope has all others too. */
bool welcome_reads(const struct welcome *w, struct slice path)
{
    return w->kind == MODULE_OPEN || reads(w, path);
}

/* Another each time. */
static void make_challenge(char out[CHALLENGE_ROOM])
{
    uint8_t bytes[CHALLENGE_BYTES];

    CHECK(RAND_bytes(bytes, sizeof bytes) == 1);
    base64_encode(bytes, sizeof bytes, out);
}

static int ask_password(struct welcome *w, struct stream *s, const struct welcome_site *site,
                        const struct sockaddr_storage *peer, struct err *e)
{
    struct buf line = BUF_INIT(GREETING_LINE_MAX);
    char challenge[CHALLENGE_ROOM];
    char text[120];
    int rc;

    make_challenge(challenge);
    buf_addf(stream_draft(s), "@RSYNCD: AUTHREQD %s\n", challenge);
    rc = stream_flush(s, e);
    rc = rc != 0 ? rc : stream_line(s, &line, e);
    if (rc == 0) {
        rc = prove(w, site, buf_slice(&line), challenge, e);
        if (rc != 0 && spend(w, s, site, peer, NULL) == 0) { /* guesses count as anybody's */
            snprintf(text, sizeof text, "auth failed on module %s", w->module);
            (void)!welcome_refuse(s, text, NULL);
        }
    }
    if (line.p != NULL) {
        explicit_bzero(line.p, line.n);
    }
    buf_free(&line);
    return rc;
}

/* --- early input --- */

/* A stock daemon gives it to its `early exec` script, of which there is none here. */
static int skip_early_input(struct stream *s, struct buf *line, struct err *e)
{
    static const char command[] = "#early_input=";
    uint64_t n;
    int rc;

    if (!slice_starts(buf_slice(line), slice_str(command))) {
        return 0;
    }
    if (!slice_u64(slice_from(buf_slice(line), sizeof command - 1), &n) || n == 0 ||
        n > EARLY_INPUT_MAX) {
        (void)!welcome_refuse(s, "invalid early_input length", NULL);
        return err_set(e, E_PROTOCOL, "the client's early input has a length that is not served");
    }
    rc = stream_skip(s, n, e);
    return rc != 0 ? rc : stream_line(s, line, e);
}

/* --- in order --------------------------------------------------------------------------------------------------------------- */

int welcome_client(struct welcome *w, struct stream *s, const struct welcome_site *site,
                   const struct sockaddr_storage *peer, struct err *e)
{
    struct buf line = BUF_INIT(GREETING_LINE_MAX);
    struct slice digests;
    unsigned version = 0;
    int rc = say(s, "@RSYNCD: 31.0 sha512 sha256 sha1 md5\n", e);

    rc = rc != 0 ? rc : stream_line(s, &line, e);
    if (rc == 0 && !greeting_parse(buf_slice(&line), &version, &digests)) {
        rc = err_set(e, E_PROTOCOL, "the client does not speak rsync");
    }
    if (rc == 0 && version < GREETING_VERSION_LEAST) {
        (void)!welcome_refuse(s, "this server needs protocol 30, rsync 3.0 or newer", NULL);
        rc = err_set(e, E_UNSUPPORTED, "the client speaks version %u", version);
    }
    w->version = version < SERVE_VERSION ? version : SERVE_VERSION;
    rc = rc != 0 ? rc : stream_line(s, &line, e);
    rc = rc != 0 ? rc : skip_early_input(s, &line, e);
    rc = rc != 0 ? rc : find_module(w, s, site, buf_slice(&line), e);
    if (rc == 0 && w->kind == MODULE_LOCKED) {
        rc = ask_password(w, s, site, peer, e);
    }
    rc = rc != 0 ? rc : spend(w, s, site, peer, e);
    buf_free(&line);
    return rc;
}

/* One list of arguments, up to the empty one. The bounds are those of all lists together. */
static int read_arguments(struct welcome *w, struct stream *s, size_t *count, struct err *e)
{
    size_t began = w->arguments.n;

    for (;;) {
        char c;
        int rc = stream_read(s, &c, 1, e);
        if (rc != 0) {
            return rc;
        }
        if (c == '\0' && w->arguments.n == began) {
            return 0;
        }
        buf_byte(&w->arguments, (uint8_t)c);
        if (c == '\0') {
            began = w->arguments.n;
            *count += 1;
        }
        if (w->arguments.rc != 0 || *count > OPTIONS_COUNT_MAX) {
            return err_set(e, E_TOOBIG, "the client has too many arguments");
        }
    }
}

/* The list that follows with --secluded-args. The program's name, its first word, is removed. */
static int read_secluded(struct welcome *w, struct stream *s, size_t *count, struct err *e)
{
    size_t at = w->arguments.n;
    int rc = read_arguments(w, s, count, e);

    if (rc == 0 && w->arguments.n > at) {
        size_t name = strlen(w->arguments.p + at) + 1;
        memmove(w->arguments.p + at, w->arguments.p + at + name, w->arguments.n - at - name);
        w->arguments.n -= name;
    }
    return rc;
}

int welcome_in(struct welcome *w, struct stream *s, struct err *e)
{
    size_t count = 0;
    int rc = say(s, "@RSYNCD: OK\n", e);

    rc = rc != 0 ? rc : read_arguments(w, s, &count, e);
    if (rc == 0 && options_secluded(buf_slice(&w->arguments))) {
        rc = read_secluded(w, s, &count, e);
    }
    return rc;
}
