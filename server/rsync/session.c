#include "server/rsync/session.h"

#include <openssl/rand.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>

#include "common/base/log.h"
#include "common/codec/base64.h"
#include "common/os/clock.h"
#include "server/rsync/sender.h"
#include "server/rsync/users.h"
#include "server/rsync/view.h"
#include "server/sync/rsync/handshake.h"
#include "server/sync/rsync/list.h"
#include "server/sync/rsync/varint.h"

/* --- before the frames ---
 *
 * Versions, the module, a password where it wants one, then the client's arguments.
 *
 * A module that anybody may read is open; one that anonymous may not asks for a password where
 * there are users, and is unknown where there are none. Whoever proves a password is who the token
 * of that name says. Both fall under the limits of the gate.
 *
 * source   sessions of the installed client
 */

enum { SERVE_VERSION = 31, EARLY_INPUT_MAX = 5120, CHALLENGE_BYTES = 24, CHALLENGE_ROOM = 48 };

struct welcome {
    unsigned version; /* agreed */
    bool listed;
    char module[SESSION_MODULE_MAX + 1];
    struct module is;
    enum module_kind kind;
    struct principal who;
    struct pace *pace; /* or NULL */
    struct buf arguments;
};

static void welcome_init(struct welcome *w)
{
    *w = (struct welcome){.who = {.name = SLICE("")}, .arguments = BUF_INIT(OPTIONS_BYTES_MAX)};
}

static void welcome_fini(struct welcome *w, const struct session_site *site)
{
    gate_release(site->gate, &w->who);
    pace_release(&w->pace);
    buf_free(&w->arguments);
}

static int send_session_text(struct stream *s, const char *text, struct err *e)
{
    buf_str(stream_draft(s), text);
    return stream_flush(s, e);
}

/* A line of the client's language for errors, before there are frames. */
static int welcome_refuse(struct stream *s, const char *text, struct err *e)
{
    buf_addf(stream_draft(s), "@ERROR: %s\n", text);
    return stream_flush(s, e);
}

/* --- modules ---------------------------------------------------------------------------------- */

static void tell_module(void *to, const char *module)
{
    buf_addf(stream_draft(to), "%-15s\tmirrored\n", module);
}

static int tell_modules(struct welcome *w, struct stream *s, const struct session_site *site,
                        struct err *e)
{
    int rc;

    site->each(site->arg, tell_module, s);
    rc = send_session_text(s, "@RSYNCD: EXIT\n", e);
    w->listed = rc == 0;
    return rc != 0 ? rc : err_set(e, E_CANCELLED, "only the list of modules was requested");
}

static int unknown_module(struct stream *s, struct err *e)
{
    (void)!welcome_refuse(s, "Unknown module", NULL);
    return err_set(e, E_NOTFOUND, "no such module");
}

static int find_module(struct welcome *w, struct stream *s, const struct session_site *site,
                       struct slice name, struct err *e)
{
    if (name.n == 0 || slice_eq(name, SLICE("#list"))) {
        return tell_modules(w, s, site, e);
    }
    if (name.n > SESSION_MODULE_MAX) {
        return unknown_module(s, e);
    }
    snprintf(w->module, sizeof w->module, SLICE_FMT, SLICE_ARG(name));
    w->kind = site->find(site->arg, slice_str(w->module), &w->is);
    if (w->kind == MODULE_NONE || (w->kind == MODULE_LOCKED && site->users == NULL)) {
        return unknown_module(s, e);
    }
    return 0;
}

/* --- who, and how fast ------------------------------------------------------------------------ */

static int spend(struct welcome *w, struct stream *s, const struct session_site *site,
                 const struct sockaddr_storage *peer, struct err *e)
{
    struct gate_decision v;
    char text[80];

    gate_spend(site->gate, &w->who, peer, clock_now_ms(), &v);
    if (v.pass) {
        w->pace = v.pace;
        return 0;
    }
    snprintf(text, sizeof text, "max connections (%llu) reached -- try again later",
             (unsigned long long)v.limit);
    (void)!welcome_refuse(s, text, NULL);
    return err_set(e, E_BUSY, "the client reached its limit of connections");
}

/* Its line is "name answer". A name without a token gets no further than one with a wrong
 * password. */
static int prove(struct welcome *w, const struct session_site *site, struct slice line,
                 const char *challenge, struct err *e)
{
    struct slice user = slice_cut(&line, ' ');
    int rc = users_prove(site->users, user, slice_str(challenge), slice_trim(line), e);

    if (rc == E_DENIED || rc == 0) {
        int named = rc == 0 ? gate_named(site->gate, user, &w->who, e) : 0;
        return named != 0
                   ? err_set(e, E_DENIED, "no token has the user's name; see `mirrorctl token ls`")
                   : rc;
    }
    log_error("rsync.users", "%s", e->text);
    return rc;
}

static bool reads(const struct welcome *w, struct slice path)
{
    char room[SESSION_MODULE_MAX + HANDSHAKE_LINE_MAX + 4];
    int n = snprintf(room, sizeof room, "%s/" SLICE_FMT "%s\1", w->module, SLICE_ARG(path),
                     path.n > 0 ? "/" : "");

    return n > 0 && (size_t)n < sizeof room &&
           gate_allows(&w->who, "read", slice_of(room, (size_t)n));
}

/* May this one read all that is below `path` of the module? Only a scope that ends in '*' has a
 * last part of that one odd byte, and such a scope has all others too. */
static bool welcome_reads(const void *arg, struct slice path)
{
    const struct welcome *w = arg;

    return w->kind == MODULE_OPEN || reads(w, path);
}

/* Another each time. */
static void make_challenge(char out[CHALLENGE_ROOM])
{
    uint8_t bytes[CHALLENGE_BYTES];

    CHECK(RAND_bytes(bytes, sizeof bytes) == 1);
    base64_encode(bytes, sizeof bytes, out);
}

static int ask_password(struct welcome *w, struct stream *s, const struct session_site *site,
                        const struct sockaddr_storage *peer, struct err *e)
{
    struct buf line = BUF_INIT(HANDSHAKE_LINE_MAX);
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
        return err_set(e, E_PROTOCOL, "the client's early input has an invalid length");
    }
    rc = stream_skip(s, n, e);
    return rc != 0 ? rc : stream_line(s, line, e);
}

/* --- in order --------------------------------------------------------------------------------- */

/* Up to the module's OK, which is not sent yet. E_CANCELLED with `listed`: the modules were
 * listed, and nothing more was requested; E_NOTFOUND, E_DENIED, E_BUSY: as reported to the
 * client. */
static int welcome_client(struct welcome *w, struct stream *s, const struct session_site *site,
                          const struct sockaddr_storage *peer, struct err *e)
{
    struct buf line = BUF_INIT(HANDSHAKE_LINE_MAX);
    struct slice digests;
    unsigned version = 0;
    int rc = send_session_text(s, "@RSYNCD: 31.0 sha512 sha256 sha1 md5\n", e);

    rc = rc != 0 ? rc : stream_line(s, &line, e);
    if (rc == 0 && !handshake_parse(buf_slice(&line), &version, &digests)) {
        rc = err_set(e, E_PROTOCOL, "the client does not speak rsync");
    }
    if (rc == 0 && version < HANDSHAKE_VERSION_LEAST) {
        (void)!welcome_refuse(s, "this server needs protocol 30, rsync 3.0 or newer", NULL);
        rc = err_set(e, E_UNSUPPORTED, "the client speaks protocol version %u, which is too old",
                     version);
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
            return err_set(e, E_TOOBIG, "the client sent too many arguments");
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

/* OK, arguments. */
static int welcome_in(struct welcome *w, struct stream *s, struct err *e)
{
    size_t count = 0;
    int rc = send_session_text(s, "@RSYNCD: OK\n", e);

    rc = rc != 0 ? rc : read_arguments(w, s, &count, e);
    if (rc == 0 && options_secluded(buf_slice(&w->arguments))) {
        rc = read_secluded(w, s, &count, e);
    }
    return rc;
}

struct list_written { /* what client and server agreed on, and the client asked for */
    bool varint_flags, safe, nsec;
    struct client_facts facts;
};

struct list_writer {
    struct list_written form;
    bool any; /* has been written; the rest is of the last one */
    int64_t mtime_s;
    uint32_t mode;
    size_t name_n;
    char name[LIST_PATH_MAX + 1];
};

/* --- a list as it is written for a client ---
 *
 * A list as it is written for a client: names by what they share, facts only where they change.
 *
 * threads  one at a time; plain memory
 * source   sessions of the installed client and server
 */

enum {
    SAY_TOP = 1,
    SAY_SAME_MODE = 2,
    SAY_MORE = 4,
    SAY_SAME_UID = 8,
    SAY_SAME_GID = 0x10,
    SAY_SAME_NAME = 0x20,
    SAY_LONG_NAME = 0x40,
    SAY_SAME_TIME = 0x80,
    SAY_BARE = 0x100,
    SAY_LINKED = 0x200,
    SAY_LINKED_FIRST = 0x1000,
    SAY_NSEC = 0x2000,
    SAY_ERROR_END = 0x1000,
    SHARED_MAX = 255,
};

static void put_flags(const struct list_written *form, struct buf *b, uint32_t flags)
{
    if (form->varint_flags) {
        put_varint(b, (int32_t)(flags != 0 ? flags : SAY_MORE));
    } else if (flags > 0xff || flags == 0) {
        buf_byte(b, (uint8_t)(flags | SAY_MORE));
        buf_byte(b, (uint8_t)(flags >> 8));
    } else {
        buf_byte(b, (uint8_t)flags);
    }
}

static void put_name(struct buf *b, uint32_t flags, size_t shared, struct slice path)
{
    if ((flags & SAY_SAME_NAME) != 0) {
        buf_byte(b, (uint8_t)shared);
    }
    if ((flags & SAY_LONG_NAME) != 0) {
        put_varint(b, (int32_t)(path.n - shared));
    } else {
        buf_byte(b, (uint8_t)(path.n - shared));
    }
    buf_adds(b, slice_from(path, shared));
}

static size_t shared_with(const struct list_writer *w, struct slice path)
{
    size_t n = 0;

    while (n < w->name_n && n < path.n && n < SHARED_MAX && w->name[n] == path.p[n]) {
        n++;
    }
    return n;
}

/* An owner is sent with the first entry, and is the same from then on. */
static uint32_t flags_of(const struct list_writer *w, const struct list_entry *en, int64_t mtime_s,
                         int32_t nsec, size_t shared, struct slice path)
{
    uint32_t flags = 0;

    flags |= shared > 0 ? SAY_SAME_NAME : 0;
    flags |= path.n - shared > SHARED_MAX ? SAY_LONG_NAME : 0;
    flags |= w->any && w->mtime_s == mtime_s ? SAY_SAME_TIME : 0;
    flags |= w->any && w->mode == en->mode ? SAY_SAME_MODE : 0;
    flags |= !w->form.facts.owner || w->any ? SAY_SAME_UID : 0;
    flags |= !w->form.facts.group || w->any ? SAY_SAME_GID : 0;
    flags |= nsec != 0 && w->form.nsec ? SAY_NSEC : 0;
    return flags;
}

static int64_t seconds_of(const struct list_entry *en)
{
    int64_t s = en->mtime_ns / 1000000000;
    return s - (s * 1000000000 > en->mtime_ns);
}

static int32_t nsec_of(const struct list_entry *en)
{
    return (int32_t)(en->mtime_ns - seconds_of(en) * 1000000000);
}

static void put_facts(const struct list_writer *w, struct buf *to, const struct file_list *l,
                      const struct list_entry *en, uint32_t flags)
{
    put_varlong(to, (int64_t)list_size(l, en), 3);
    if ((flags & SAY_SAME_TIME) == 0) {
        put_varlong(to, seconds_of(en), 4);
    }
    if ((flags & SAY_NSEC) != 0) {
        put_varint(to, nsec_of(en));
    }
    if ((flags & SAY_SAME_MODE) == 0) {
        put_int(to, en->mode);
    }
    if ((flags & SAY_SAME_UID) == 0) {
        put_varint(to, 0);
    }
    if ((flags & SAY_SAME_GID) == 0) {
        put_varint(to, 0);
    }
    if (w->form.facts.links && list_type(en) == LIST_LINK) {
        struct slice target = list_target(l, en);
        put_varint(to, (int32_t)target.n);
        buf_adds(to, target);
    }
}

/* path: as the client is to know it. say: VIEW_... of view.h; link: of hard links, as view_link()
 * says it. */
static void list_write(struct list_writer *w, struct buf *to, const struct file_list *l,
                       const struct list_entry *en, struct slice path, unsigned say, int32_t link)
{
    int64_t mtime_s = seconds_of(en);
    size_t shared = shared_with(w, path);
    uint32_t flags = flags_of(w, en, mtime_s, nsec_of(en), shared, path);

    flags |= (say & VIEW_TOP) != 0 ? SAY_TOP : 0;
    flags |= (say & VIEW_BARE) != 0 ? SAY_BARE : 0;
    flags |= link != VIEW_LINK_NONE ? SAY_LINKED : 0;
    flags |= link == VIEW_LINK_FIRST ? SAY_LINKED_FIRST : 0;
    put_flags(&w->form, to, flags);
    put_name(to, flags, shared, path);
    if (link >= 0) { /* all else is as it was said of that one */
        put_varint(to, link);
    } else {
        put_facts(w, to, l, en, flags);
    }
    memcpy(w->name, path.p, path.n);
    w->name_n = path.n;
    w->mtime_s = mtime_s;
    w->mode = en->mode;
    w->any = true;
}

/* io_error: nonzero when not all could be listed. */
static void list_write_end(const struct list_written *form, struct buf *to, int32_t io_error)
{
    if (form->varint_flags) {
        put_varint(to, 0);
        put_varint(to, io_error);
    } else if (form->safe && io_error != 0) {
        buf_byte(to, SAY_MORE);
        buf_byte(to, SAY_ERROR_END >> 8);
        put_varint(to, io_error);
    } else {
        buf_byte(to, 0);
    }
    /* Names of owners: all is root's, whose number needs none. */
    if (form->facts.owner && !form->facts.numeric_ids) {
        put_varint(to, 0);
    }
    if (form->facts.group && !form->facts.numeric_ids) {
        put_varint(to, 0);
    }
}

/* --- a session --- */

enum {
    ENTRY_STEPS = 16, /* of a budget: an entry of the list is written */
    BEGIN_MS = 30000, /* for all that the client says before the list */
    FILTER_BYTES_MAX = 1 << 20,
};

enum { COMPAT_SYMLINK_TIMES = 2 }; /* the others stand in greeting.h */

struct session {
    const struct session_site *site;
    const struct session_peer *peer;
    struct budget budget;
    struct stream stream;
    struct client_options options;
    struct welcome welcome;
    struct filter filter;
    struct listing *listing;
    struct view_choice choice;
    enum checksum_kind kind;
    enum literal_kind literal;
    struct list_written form;
    struct sender sender;
    struct session_end *end;
};

/* --- what both can ---------------------------------------------------------------------------- */

static int read_names(struct session *s, char room[256], struct slice *out, struct err *e)
{
    uint8_t n;
    int rc = stream_read(&s->stream, &n, 1, e);

    if (rc == 0 && n > 0x7f) {
        rc = err_set(e, E_PROTOCOL, "the client's list of algorithms is too long");
    }
    rc = rc != 0 ? rc : stream_read(&s->stream, room, n, e);
    *out = slice_of(room, n);
    return rc;
}

static int agree(struct session *s, struct err *e)
{
    struct slice messages = s->options.abilities;
    struct buf *out = stream_draft(&s->stream);
    int32_t compat = COMPAT_SYMLINK_TIMES | COMPAT_SEED_FIRST;
    int32_t seed = (int32_t)s->options.seed;
    char room[256];
    struct slice names;
    int rc = 0;

    s->form.varint_flags = slice_find(messages, 'v') >= 0;
    s->form.safe = slice_find(messages, 'f') >= 0;
    compat |= s->form.varint_flags ? COMPAT_VARINT : 0;
    compat |= s->form.safe ? COMPAT_SAFE_LIST : 0;
    if (slice_find(messages, 'C') < 0) {
        compat &= ~COMPAT_SEED_FIRST;
    }
    s->kind = CHECKSUM_MD5;
    s->literal = s->options.compression.wanted ? LITERAL_ZLIB : LITERAL_PLAIN;
    put_varint(out, compat);
    if (s->form.varint_flags) {
        bool compress = s->options.compression.wanted && s->options.compression.kind.n == 0;
        if (s->options.checksum.n == 0) {
            put_vstring(out, SLICE(CHECKSUM_OFFER));
        }
        if (compress) {
            put_vstring(out, SLICE(LITERAL_OFFER));
        }
        if (s->options.checksum.n == 0) {
            rc = read_names(s, room, &names, e);
            if (rc == 0 && !checksum_agree(names, SLICE(CHECKSUM_OFFER), &s->kind)) {
                rc =
                    err_set(e, E_UNSUPPORTED, "the client supports none of the server's checksums");
            }
        }
        if (rc == 0 && compress) {
            rc = read_names(s, room, &names, e);
            if (rc == 0 && !literal_agree(names, &s->literal)) {
                rc = err_set(e, E_UNSUPPORTED,
                             "the client supports none of the server's compressions");
            }
        }
    }
    if (rc == 0 && s->options.seed < 0 && getrandom(&seed, sizeof seed, 0) != sizeof seed) {
        seed = (int32_t)clock_now_ns();
    }
    put_int(out, seed);
    return rc;
}

/* The client prints it and ends. */
static int refuse_rsync_session(struct session *s, const struct err *why, int32_t exit_code)
{
    char text[300];
    struct buf code = BUF_INIT(4);
    int n = snprintf(text, sizeof text, "%s\n", why->text);

    stream_message(&s->stream, MUX_ERROR, slice_of(text, min_u64((uint64_t)n, sizeof text - 1)));
    put_int(&code, exit_code);
    stream_message(&s->stream, MUX_ERROR_EXIT, buf_slice(&code));
    if (stream_flush(&s->stream, NULL) == 0) {
        stream_part(&s->stream); /* it may be sending its names */
    }
    buf_free(&code);
    return why->code;
}

static int read_filters(struct session *s, struct err *e)
{
    struct buf rule = BUF_INIT(FILTER_RULE_MAX);
    uint64_t all = 0;
    int rc = 0;

    for (;;) {
        uint8_t head[4];
        struct get g;
        int32_t n;
        rc = stream_read(&s->stream, head, sizeof head, e);
        if (rc != 0) {
            break;
        }
        g = get_from(slice_of(head, sizeof head));
        n = get_int(&g);
        if (n == 0) {
            break;
        }
        all += (uint32_t)n;
        if (n < 0 || n > FILTER_RULE_MAX || all > FILTER_BYTES_MAX) {
            rc = err_set(e, E_TOOBIG,
                         "the client sent too many filter rules, or one that is too long");
            break;
        }
        buf_clear(&rule);
        rc = stream_read(&s->stream, buf_room(&rule, (size_t)n), (size_t)n, e);
        if (rc == 0) {
            rule.n = (size_t)n;
            rc = filter_add(&s->filter, buf_slice(&rule), e);
        }
        if (rc != 0) {
            break;
        }
    }
    buf_free(&rule);
    return rc;
}

/* --- the list --------------------------------------------------------------------------------- */

static int send_list(struct session *s, struct err *e)
{
    struct list_writer *w = NEW(struct list_writer);
    char room[LIST_PATH_MAX + 1];
    int rc = 0;

    w->form = s->form;
    for (uint32_t i = 0; i < s->choice.view.count && rc == 0; i++) {
        list_write(w, stream_draft(&s->stream), s->choice.view.list, view_at(&s->choice.view, i),
                   view_path(&s->choice.view, i, room), s->choice.view.entry[i].say,
                   s->options.facts.hard_links ? view_link(&s->choice.view, i) : VIEW_LINK_NONE);
        rc = budget_spend(&s->budget, ENTRY_STEPS, e);
        rc = rc != 0 ? rc : stream_push(&s->stream, e);
    }
    free(w);
    list_write_end(&s->form, stream_draft(&s->stream), s->choice.io_error);
    return rc != 0 ? rc : stream_flush(&s->stream, e);
}

/* --- all of it -------------------------------------------------------------------------------- */

/* Until here its address counted: many users may stand behind one. */
static int take_slot(struct session *s, struct err *e)
{
    uint32_t most = 0;
    char text[80];

    if (s->welcome.who.token == NULL || s->peer->is == NULL ||
        s->peer->is(s->peer->arg, s->welcome.who.client, &most)) {
        return 0;
    }
    snprintf(text, sizeof text, "max connections (%u) reached -- try again later", (unsigned)most);
    (void)!welcome_refuse(&s->stream, text, NULL);
    return err_set(e, E_BUSY, "the client reached its limit of connections");
}

static void refuse_empty(struct session *s)
{
    char text[SESSION_MODULE_MAX + 160];

    snprintf(text, sizeof text,
             s->welcome.is.passed_through
                 ? "%s is not mirrored whole (it has no sync section), so there is no list "
                   "of its files for rsync; use HTTP"
                 : "nothing has been published in %s yet; try again later",
             s->welcome.module);
    (void)!welcome_refuse(&s->stream, text, NULL);
}

static int come_in(struct session *s, struct err *e)
{
    int rc = welcome_client(&s->welcome, &s->stream, s->site, s->peer->address, e);

    rc = rc != 0 ? rc : take_slot(s, e);
    if (rc != 0) {
        return rc;
    }
    rc = listing_acquire(s->site->listings, slice_str(s->welcome.module), s->welcome.is.tree,
                         &s->listing, e);
    s->stream.deadline_ms =
        clock_now_ms() + BEGIN_MS; /* what that took was no time of the client's */
    if (rc != 0) {
        refuse_empty(s);
        return rc;
    }
    return welcome_in(&s->welcome, &s->stream, e);
}

static int choose_session_module(struct session *s, struct err *e)
{
    s->stream.deadline_ms = 0; /* from here on its budget counts */
    s->choice.budget = &s->budget;
    s->choice.stream = &s->stream;
    s->choice.module = s->welcome.module;
    s->choice.version = s->welcome.version;
    s->choice.reads = welcome_reads;
    s->choice.arg = &s->welcome;
    s->choice.options = &s->options;
    s->choice.filter = &s->filter;
    return view_choose(&s->choice, listing_list(s->listing), e);
}

/* Why a choice is refused the client hears; but not who has left, or takes nothing. */
static bool is_reported(const struct session *s, int rc)
{
    return rc == E_DENIED || rc == E_INVALID || rc == E_TOOBIG || rc == E_NOTFOUND ||
           (rc == E_TIMEOUT && s->choice.exit_code == CHOICE_EXIT_TIMEOUT);
}

static int begin_rsync_session(struct session *s, struct err *e)
{
    struct err why = {.code = 0};
    int refused;
    int rc = come_in(s, e);

    if (rc != 0) {
        return rc;
    }
    s->stream.pace[0] = s->welcome.pace;
    refused = options_parse(buf_slice(&s->welcome.arguments), &s->options, &why);
    if (!s->options.sender) {
        s->choice.exit_code = CHOICE_EXIT_SYNTAX; /* as the installed server ends a push */
    }
    if (s->options.bwlimit_bytes_per_s > 0) {
        s->stream.pace[1] = pace_new(s->options.bwlimit_bytes_per_s);
    }
    rc = agree(s, e);
    if (rc != 0) {
        return rc;
    }
    s->stream.stepwise = s->options.names && s->welcome.version < 31;
    rc = stream_frame(&s->stream, e);
    if (rc != 0) {
        return rc;
    }
    if (refused == 0 && s->options.checksum.n != 0 &&
        !checksum_agree(s->options.checksum, SLICE(CHECKSUM_OFFER), &s->kind)) {
        refused = err_set(&why, E_UNSUPPORTED, "the requested checksum is not supported");
    }
    if (refused == 0 && s->options.compression.kind.n != 0 &&
        !literal_named(s->options.compression.kind, &s->literal)) {
        refused = err_set(&why, E_UNSUPPORTED, "the requested compression is not supported");
    }
    if (s->options.compression.level_zero &&
        (s->literal == LITERAL_ZLIB || s->literal == LITERAL_ZLIBX)) {
        s->literal = LITERAL_PLAIN;
    }
    s->form.nsec = s->welcome.version >= 31;
    s->form.facts = s->options.facts;
    if (refused == 0) {
        rc = read_filters(s, &why);
        refused = rc == E_UNSUPPORTED || rc == E_TOOBIG ? rc : 0;
        if (rc != 0 && refused == 0) {
            *e = why;
            return rc;
        }
    }
    if (refused == 0) {
        rc = choose_session_module(s, &why);
        refused = rc == E_UNSUPPORTED || is_reported(s, rc) ? rc : 0;
    }
    if (refused != 0 || rc != 0) {
        *e = why;
        return refused != 0 ? refuse_rsync_session(s, &why, s->choice.exit_code) : rc;
    }
    return 0;
}

/* The list, then what is asked for of it. */
static int serve_rsync_session(struct session *s, struct err *e)
{
    char gone;
    int rc;

    if (s->choice.view.count == 0) { /* it leaves by itself */
        list_write_end(&s->form, stream_draft(&s->stream), s->choice.io_error);
        rc = stream_flush(&s->stream, e);
        if (rc == 0) {
            (void)!stream_read(&s->stream, &gone, 1, NULL);
        }
        return rc != 0             ? rc
               : s->choice.missing ? err_set(e, E_NOTFOUND, "none of the requested paths exists")
                                   : 0;
    }
    rc = send_list(s, e);
    if (rc != 0) {
        return rc;
    }
    sender_init(&s->sender, &s->stream, s->kind, s->literal, s->options.compression.skip);
    s->sender.listing = s->listing;
    s->sender.view = &s->choice.view;
    s->sender.module = s->welcome.module;
    s->sender.version = s->welcome.version;
    s->sender.dry_run = s->options.dry_run;
    return sender_run(&s->sender, e);
}

int session_run(const struct session_peer *peer, const struct session_site *site,
                struct session_end *out, struct err *e)
{
    struct session *s = NEW(struct session);
    int rc;

    *out = (struct session_end){.files = 0};
    s->site = site;
    s->peer = peer;
    s->end = out;
    s->choice.exit_code = CHOICE_EXIT_REFUSED;
    welcome_init(&s->welcome);
    stream_init(&s->stream, peer->fd, site->stall_ms, &site->reader, site->stop);
    s->budget = (struct budget){.stream = &s->stream, .max = site->max_steps};
    s->stream.deadline_ms = clock_now_ms() + BEGIN_MS;
    rc = begin_rsync_session(s, e);
    s->stream.deadline_ms = 0;
    rc = rc != 0 ? rc : serve_rsync_session(s, e);
    rc = s->welcome.listed ? 0 : rc;
    snprintf(out->module, sizeof out->module, "%s", s->welcome.module);
    snprintf(out->user, sizeof out->user, SLICE_FMT, SLICE_ARG(s->welcome.who.name));
    out->files = s->sender.files;
    out->bytes = s->sender.bytes;
    out->sent_bytes = s->stream.sent_bytes;
    out->waits = s->stream.waits;
    out->steps = s->budget.steps;
    out->received_bytes = s->stream.received_bytes;
    sender_fini(&s->sender);
    view_fini(&s->choice.view);
    listing_release(&s->listing);
    filter_fini(&s->filter);
    pace_release(&s->stream.pace[1]);
    welcome_fini(&s->welcome, site);
    stream_fini(&s->stream);
    free(s);
    return rc;
}
