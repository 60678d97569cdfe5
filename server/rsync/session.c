#include "server/rsync/session.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>

#include "common/base/log.h"
#include "common/os/clock.h"
#include "server/rsync/listout.h"
#include "server/rsync/stream.h"
#include "server/rsync/view.h"
#include "server/sync/rsync/answer.h"
#include "server/sync/rsync/greeting.h"

enum {
    SERVE_VERSION = 31,
    BEGIN_MS = 30000, /* for all before the list */
    LITERAL_BYTES = 32 << 10,
    FILTER_BYTES_MAX = 1 << 20,
    INDEX_DELETED = -3,
    DELETION_COUNTS = 5,
};

enum {
    COMPAT_SYMLINK_TIMES = 2,
    COMPAT_SAFE_LIST = 8,
    COMPAT_SEED_FIRST = 0x20,
    COMPAT_VARINT = 0x80
};

struct session {
    const struct session_site *site;
    struct stream stream;
    struct options options;
    struct buf arguments;
    struct filter filter;
    struct listing *listing;
    struct view view;
    enum checksum_kind kind;
    struct list_written form;
    unsigned version;
    struct index_coding coming, going;
    struct checksum sum;
    struct session_end *end;
    struct slice path; /* below the module */
    char block[LITERAL_BYTES];
};

/* --- the lines ---------------------------------------------------------------------------------------------------------- */

static int say(struct session *s, const char *text, struct err *e)
{
    buf_str(stream_draft(&s->stream), text);
    return stream_flush(&s->stream, e);
}

static void tell_module(void *to, const char *module)
{
    struct session *s = to;
    buf_addf(stream_draft(&s->stream), "%-15s\tmirrored\n", module);
}

static int tell_modules(struct session *s, struct err *e)
{
    int rc;

    s->site->each(s->site->arg, tell_module, s);
    rc = say(s, "@RSYNCD: EXIT\n", e);
    return rc != 0 ? rc : err_set(e, E_CANCELLED, "the modules were listed");
}

static int greet(struct session *s, struct err *e)
{
    struct buf line = BUF_INIT(GREETING_LINE_MAX);
    struct slice digests;
    struct slice tree = SLICE_NONE;
    unsigned version = 0;
    int rc = say(s, "@RSYNCD: 31.0 sha512 sha256 sha1 md5\n", e);

    if (rc == 0) {
        rc = stream_line(&s->stream, &line, e);
    }
    if (rc == 0 && !greeting_parse(buf_slice(&line), &version, &digests)) {
        rc = err_set(e, E_PROTOCOL, "the client does not speak rsync");
    }
    if (rc == 0 && version < GREETING_VERSION_LEAST) {
        (void)!say(s, "@ERROR: this server needs protocol 30, rsync 3.0 or newer\n", NULL);
        rc = err_set(e, E_UNSUPPORTED, "the client speaks version %u", version);
    }
    s->version = version < SERVE_VERSION ? version : SERVE_VERSION;
    if (rc == 0) {
        rc = stream_line(&s->stream, &line, e);
    }
    if (rc == 0 && (line.n == 0 || slice_eq(buf_slice(&line), SLICE("#list")))) {
        rc = tell_modules(s, e);
    }
    if (rc == 0) {
        snprintf(s->end->module, sizeof s->end->module, SLICE_FMT, SLICE_ARG(buf_slice(&line)));
        if (line.n >= sizeof s->end->module ||
            !s->site->readable(s->site->arg, buf_slice(&line), &tree)) {
            (void)!say(s, "@ERROR: Unknown module\n", NULL);
            rc = err_set(e, E_NOTFOUND, "no such module");
        }
    }
    if (rc == 0) {
        rc = listing_acquire(s->site->listings, slice_str(s->end->module), tree, &s->listing, e);
        if (rc != 0) {
            (void)!say(s, "@ERROR: nothing has been published there yet, try again later\n", NULL);
        }
    }
    buf_free(&line);
    return rc != 0 ? rc : say(s, "@RSYNCD: OK\n", e);
}

static int read_arguments(struct session *s, struct err *e)
{
    size_t count = 0;
    size_t began = 0;

    for (;;) {
        char c;
        int rc = stream_read(&s->stream, &c, 1, e);
        if (rc != 0) {
            return rc;
        }
        if (c == '\0' && s->arguments.n == began) {
            return 0;
        }
        buf_byte(&s->arguments, (uint8_t)c);
        if (c == '\0') {
            began = s->arguments.n;
            count++;
        }
        if (s->arguments.rc != 0 || count > OPTIONS_COUNT_MAX) {
            return err_set(e, E_TOOBIG, "the client has too many arguments");
        }
    }
}

/* --- what both can ------------------------------------------------------------------------------------------------------ */

static int read_names(struct session *s, char room[256], struct slice *out, struct err *e)
{
    uint8_t n;
    int rc = stream_read(&s->stream, &n, 1, e);

    if (rc == 0 && n > 0x7f) {
        rc = err_set(e, E_PROTOCOL, "the client's names have no end");
    }
    rc = rc != 0 ? rc : stream_read(&s->stream, room, n, e);
    *out = slice_of(room, n);
    return rc;
}

static int agree(struct session *s, struct err *e)
{
    struct slice letters = s->options.abilities;
    struct buf *out = stream_draft(&s->stream);
    int32_t compat = COMPAT_SYMLINK_TIMES | COMPAT_SEED_FIRST;
    int32_t seed = s->options.seed;
    char room[256];
    struct slice names;
    int rc = 0;

    s->form.varint_flags = slice_find(letters, 'v') >= 0;
    s->form.safe = slice_find(letters, 'f') >= 0;
    compat |= s->form.varint_flags ? COMPAT_VARINT : 0;
    compat |= s->form.safe ? COMPAT_SAFE_LIST : 0;
    if (slice_find(letters, 'C') < 0) {
        compat &= ~COMPAT_SEED_FIRST;
    }
    s->kind = CHECKSUM_MD5;
    put_varint(out, compat);
    if (s->form.varint_flags) {
        bool compress = s->options.compress && !s->options.compress_chosen;
        if (s->options.checksum.n == 0) {
            put_vstring(out, SLICE(CHECKSUM_OFFER));
        }
        if (compress) { /* refused, but in frames, where it can be said */
            put_vstring(out, SLICE("zstd lz4 zlibx zlib none"));
        }
        if (s->options.checksum.n == 0) {
            rc = read_names(s, room, &names, e);
            if (rc == 0 && !checksum_agree(names, SLICE(CHECKSUM_OFFER), &s->kind)) {
                rc = err_set(e, E_UNSUPPORTED, "no checksum in common with the client");
            }
        }
        if (rc == 0 && compress) {
            rc = read_names(s, room, &names, e);
        }
    }
    if (rc == 0 && !s->options.seeded && getrandom(&seed, sizeof seed, 0) != sizeof seed) {
        seed = (int32_t)clock_now_ns();
    }
    put_int(out, seed);
    return rc;
}

/* The client prints it and ends. */
static int refuse(struct session *s, const struct err *why)
{
    char text[300];
    struct buf code = BUF_INIT(4);
    int n = snprintf(text, sizeof text, "%s\n", why->text);

    stream_message(&s->stream, MUX_ERROR, slice_of(text, min_u64((uint64_t)n, sizeof text - 1)));
    put_int(&code, 4); /* an option that is not supported */
    stream_message(&s->stream, MUX_ERROR_EXIT, buf_slice(&code));
    (void)!stream_flush(&s->stream, NULL);
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
            rc = err_set(e, E_TOOBIG, "too many filter rules");
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

/* --- the list ------------------------------------------------------------------------------------------------------------ */

static int send_list(struct session *s, struct err *e)
{
    struct list_writer *w = NEW(struct list_writer);
    char room[LIST_PATH_MAX + 1];
    int rc = 0;

    w->form = s->form;
    for (uint32_t i = 0; i < s->view.count && rc == 0; i++) {
        const struct list_entry *en = list_at(s->view.list, s->view.at[i]);
        list_write(w, stream_draft(&s->stream), s->view.list, en, view_path(&s->view, i, room));
        rc = stream_push(&s->stream, e);
    }
    free(w);
    list_write_end(&s->form, stream_draft(&s->stream), 0);
    return rc != 0 ? rc : stream_flush(&s->stream, e);
}

/* --- answers ------------------------------------------------------------------------------------------------------------- */

static int read_index(struct session *s, int32_t *out, struct err *e)
{
    uint8_t bytes[6];
    size_t n = 0;

    for (;;) {
        struct index_coding coding = s->coming;
        struct get g;
        int rc = n < sizeof bytes ? stream_read(&s->stream, bytes + n, 1, e)
                                  : err_set(e, E_PROTOCOL, "an index that cannot be");
        if (rc != 0) {
            return rc;
        }
        n++;
        g = get_from(slice_of(bytes, n));
        *out = get_index(&g, &coding);
        if (g.rc == 0) {
            s->coming = coding;
            return 0;
        }
        if (g.rc != E_AGAIN) {
            return err_set(e, E_PROTOCOL, "an index that cannot be");
        }
    }
}

struct request {
    int32_t index;
    uint16_t flags;
    uint8_t basis;
    uint8_t name_n[2];
    char name[LIST_PATH_MAX + 1];
    size_t name_bytes;
};

static int read_request(struct session *s, struct request *r, struct err *e)
{
    uint8_t two[2];
    int rc = stream_read(&s->stream, two, sizeof two, e);

    r->flags = (uint16_t)(two[0] | two[1] << 8);
    if (rc == 0 && (r->flags & ITEM_BASIS_FOLLOWS) != 0) {
        rc = stream_read(&s->stream, &r->basis, 1, e);
    }
    r->name_bytes = 0;
    if (rc == 0 && (r->flags & ITEM_NAME_FOLLOWS) != 0) {
        rc = stream_read(&s->stream, &two[0], 1, e);
        if (rc == 0 && (two[0] & 0x80) != 0) {
            rc = stream_read(&s->stream, &two[1], 1, e);
            r->name_bytes = (size_t)(two[0] & 0x7f) << 8 | two[1];
        } else {
            r->name_bytes = two[0];
        }
        if (rc == 0 && r->name_bytes > LIST_PATH_MAX) {
            rc = err_set(e, E_PROTOCOL, "a name that cannot be");
        }
        rc = rc != 0 ? rc : stream_read(&s->stream, r->name, r->name_bytes, e);
    }
    return rc;
}

/* The client's blocks, read past. */
static int skip_sums(struct session *s, struct err *e)
{
    uint8_t head[16];
    struct get g;
    struct sums_head h;
    int rc = stream_read(&s->stream, head, sizeof head, e);

    if (rc != 0) {
        return rc;
    }
    g = get_from(slice_of(head, sizeof head));
    h = get_sums_head(&g, CHECKSUM_BYTES_MAX);
    if (g.rc != 0) {
        return err_set(e, E_PROTOCOL, "block sums that cannot be");
    }
    return stream_skip(&s->stream, (uint64_t)h.count * (4 + h.strong_bytes), e);
}

static void echo(struct session *s, const struct request *r)
{
    struct buf *b = stream_draft(&s->stream);

    put_index(b, &s->going, r->index);
    put_short(b, r->flags);
    if ((r->flags & ITEM_BASIS_FOLLOWS) != 0) {
        buf_byte(b, r->basis);
    }
    if ((r->flags & ITEM_NAME_FOLLOWS) != 0) {
        put_vstring(b, slice_of(r->name, r->name_bytes));
    }
}

static int send_bytes(struct session *s, struct blob *blob, struct err *e)
{
    uint64_t size = blob_size_bytes(blob);
    struct buf *b = stream_draft(&s->stream);
    uint8_t digest[CHECKSUM_BYTES_MAX];
    int rc = 0;

    checksum_begin(&s->sum);
    for (uint64_t at = 0; at < size && rc == 0;) {
        size_t n = (size_t)min_u64(size - at, sizeof s->block);
        rc = blob_read(blob, at, s->block, n, e);
        if (rc != 0) {
            return rc;
        }
        checksum_add(&s->sum, slice_of(s->block, n));
        put_int(b, (int32_t)n);
        buf_add(b, s->block, n);
        at += n;
        rc = stream_push(&s->stream, e);
    }
    put_int(b, 0);
    checksum_end(&s->sum, digest);
    buf_add(b, digest, checksum_bytes(s->kind));
    s->end->files++;
    s->end->bytes += size;
    return rc;
}

static int cannot_send(struct session *s, int32_t index)
{
    struct buf number = BUF_INIT(4);

    put_int(&number, index);
    stream_message(&s->stream, MUX_ERROR_XFER, SLICE("a file cannot be read any more\n"));
    stream_message(&s->stream, MUX_NO_SEND, buf_slice(&number));
    buf_free(&number);
    return 0;
}

static int answer(struct session *s, int32_t index, struct err *e)
{
    static const struct sums_head whole = {.count = 0};
    struct request r = {.index = index};
    const struct list_entry *en;
    struct blob *blob = NULL;
    char room[LIST_PATH_MAX + 1];
    int rc;

    if (index < 0 || (uint32_t)index >= s->view.count) {
        return err_set(e, E_PROTOCOL, "entry %d of %u is asked for", (int)index,
                       (unsigned)s->view.count);
    }
    rc = read_request(s, &r, e);
    if (rc != 0) {
        return rc;
    }
    if ((r.flags & ITEM_TRANSFER) == 0 || s->options.dry_run) {
        echo(s, &r);
        return stream_push(&s->stream, e);
    }
    rc = skip_sums(s, e);
    if (rc != 0) {
        return rc;
    }
    en = list_at(s->view.list, s->view.at[index]);
    if (list_type(en) != LIST_FILE) {
        return err_set(e, E_PROTOCOL, "entry %d is no file", (int)index);
    }
    rc = listing_open(s->listing, list_path(s->view.list, en, room), &blob, e);
    if (rc != 0) {
        log_warn("rsync.unreadable", "module=%s path=%s error=%s %s", s->end->module, room,
                 err_name(rc), e->text);
        return cannot_send(s, index);
    }
    echo(s, &r);
    put_sums_head(stream_draft(&s->stream), &whole);
    rc = send_bytes(s, blob, e);
    blob_release(&blob);
    return rc;
}

static int read_varint(struct session *s, int32_t *out, struct err *e)
{
    uint8_t bytes[5];

    for (size_t n = 0; n < sizeof bytes; n++) {
        struct get g;
        int rc = stream_read(&s->stream, bytes + n, 1, e);
        if (rc != 0) {
            return rc;
        }
        g = get_from(slice_of(bytes, n + 1));
        *out = get_varint(&g);
        if (g.rc == 0) {
            return 0;
        }
    }
    return err_set(e, E_PROTOCOL, "a number that cannot be");
}

/* How much was deleted, one process of the client's tells the other through us. */
static int pass_deletions(struct session *s, struct err *e)
{
    put_index(stream_draft(&s->stream), &s->going, INDEX_DELETED);
    for (int i = 0; i < DELETION_COUNTS; i++) {
        int32_t v = 0;
        int rc = read_varint(s, &v, e);
        if (rc != 0) {
            return rc;
        }
        put_varint(stream_draft(&s->stream), v);
    }
    return 0;
}

static int answer_all(struct session *s, struct err *e)
{
    unsigned phase = 0;
    int rc = 0;

    while (rc == 0 && phase < 3) {
        int32_t index;
        rc = read_index(s, &index, e);
        if (rc == 0 && index == INDEX_DONE) {
            phase++;
            put_index(stream_draft(&s->stream), &s->going, INDEX_DONE);
        } else if (rc == 0 &&
                   index == INDEX_DELETED) { /* before a phase's end, or at the goodbye */
            rc = pass_deletions(s, e);
        } else if (rc == 0) {
            rc = answer(s, index, e);
        }
    }
    return rc;
}

static int say_goodbye(struct session *s, struct err *e)
{
    struct buf *b = stream_draft(&s->stream);
    int32_t index;
    int rc;

    put_varlong(b, (int64_t)s->stream.received_bytes, 3);
    put_varlong(b, (int64_t)s->stream.sent_bytes, 3);
    put_varlong(b, (int64_t)s->view.size_bytes, 3);
    put_varlong(b, 1, 3);
    put_varlong(b, 1, 3);
    rc = read_index(s, &index, e);
    if (rc == 0 && index == INDEX_DELETED) {
        rc = pass_deletions(s, e);
        rc = rc != 0 ? rc : read_index(s, &index, e);
    }
    if (rc == 0 && index == INDEX_DONE && s->version >= 31) {
        put_index(b, &s->going, INDEX_DONE);
        rc = stream_flush(&s->stream, e);
        if (rc == 0) { /* its last word; who has left by now had all */
            (void)!read_index(s, &index, NULL);
        }
    }
    return rc;
}

/* --- all of it ------------------------------------------------------------------------------------------------------------ */

static int begin(struct session *s, struct err *e)
{
    struct err why = {.code = 0};
    struct slice module;
    int refused;
    int rc = greet(s, e);

    rc = rc != 0 ? rc : read_arguments(s, e);
    if (rc != 0) {
        return rc;
    }
    refused = options_parse(buf_slice(&s->arguments), &s->options, &why);
    rc = agree(s, e);
    if (rc != 0) {
        return rc;
    }
    rc = stream_frame(&s->stream, e);
    if (rc != 0) {
        return rc;
    }
    if (refused == 0 && s->options.checksum.n != 0 &&
        !checksum_agree(s->options.checksum, SLICE(CHECKSUM_OFFER), &s->kind)) {
        refused = err_set(&why, E_UNSUPPORTED, "that checksum is not served here");
    }
    if (refused == 0 && s->options.compress) {
        refused = err_set(&why, E_UNSUPPORTED, "compression (-z) is not served here");
    }
    s->form.nsec = s->version >= 31;
    s->form.owner = s->options.owner;
    s->form.group = s->options.group;
    s->form.numeric = s->options.numeric_ids;
    s->form.links = s->options.links;
    s->path = s->options.path;
    module = slice_cut(&s->path, '/');
    if (refused == 0 && !slice_eqs(module, s->end->module)) {
        refused = err_set(&why, E_INVALID, "the path is not of this module");
    }
    if (refused == 0) {
        rc = read_filters(s, &why);
        refused = rc == E_UNSUPPORTED || rc == E_TOOBIG ? rc : 0;
        if (rc != 0 && refused == 0) {
            *e = why;
            return rc;
        }
    }
    if (refused != 0) {
        *e = why;
        return refuse(s, &why);
    }
    return 0;
}

static int nothing_there(struct session *s, struct err *why, struct err *e)
{
    char text[200];

    snprintf(text, sizeof text, "rsync: [sender] link_stat \"%.100s\" (in %s) failed: %s\n",
             s->path.n > 0 ? s->path.p : "", s->end->module, why->text);
    stream_message(&s->stream, MUX_ERROR_XFER, slice_str(text));
    list_write_end(&s->form, stream_draft(&s->stream), 1);
    return stream_flush(&s->stream, e);
}

int session_run(int fd, const struct session_site *site, struct session_end *out, struct err *e)
{
    struct session *s = NEW(struct session);
    struct err why = {.code = 0};
    int rc;

    *out = (struct session_end){.files = 0};
    s->site = site;
    s->end = out;
    s->arguments = BUF_INIT(OPTIONS_BYTES_MAX);
    s->coming = s->going = INDEX_CODING_INIT;
    stream_init(&s->stream, fd, site->stall_ms, site->stop);
    s->stream.deadline_ms = clock_now_ms() + BEGIN_MS;
    rc = begin(s, e);
    s->stream.deadline_ms = 0;
    if (rc == 0) {
        rc = view_make(listing_list(s->listing), s->path, &s->options, &s->filter, &s->view, &why);
        checksum_init(&s->sum, s->kind);
        rc = rc == 0 ? send_list(s, e) : nothing_there(s, &why, e);
    }
    if (rc == 0 && s->view.count > 0) {
        rc = answer_all(s, e);
        rc = rc != 0 ? rc : say_goodbye(s, e);
    } else if (rc == 0) {
        int32_t index; /* it leaves by itself */
        (void)!read_index(s, &index, NULL);
    }
    out->sent_bytes = s->stream.sent_bytes;
    out->received_bytes = s->stream.received_bytes;
    checksum_fini(&s->sum);
    view_fini(&s->view);
    listing_release(&s->listing);
    filter_fini(&s->filter);
    buf_free(&s->arguments);
    stream_fini(&s->stream);
    free(s);
    return rc;
}
