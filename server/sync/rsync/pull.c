#include "server/sync/rsync/pull.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/sync/rsync/answer.h"
#include "server/sync/rsync/checksum.h"
#include "server/sync/rsync/handshake.h"
#include "server/sync/rsync/mux.h"
#include "server/sync/rsync/varint.h"

struct negotiation_terms { /* what we come with */
    struct slice module;   /* borrowed for good, as the two below */
    struct slice user;
    struct slice password;
    struct slice path; /* below the module; copied */
    bool hard_links;
    unsigned offer; /* 31; 30 for tests */
    bool plain;     /* do not offer varint flags */
};

struct negotiation {
    struct handshake handshake;
    struct negotiation_terms terms;
    struct buf path;
    struct buf carry; /* of the peer's abilities, not whole yet */
    bool greeted;     /* the module is open, abilities follow */
    bool done;
    /* as agreed */
    uint32_t compat;
    enum checksum_kind kind;
    int32_t seed;
};

/* --- what both ends agree on ---
 *
 * What both ends of a visit agree on before their frames begin: version, module, abilities,
 * checksum, seed.
 *
 * A client's end. Bytes go in by negotiation_feed(); it takes none of what follows the seed. Each
 * end says its names without waiting for the other's, so ours leave as soon as the peer has said
 * that it takes some.
 *
 * owns     its buffers; negotiation_fini()
 * threads  one at a time
 * errors   those of handshake.h; E_PROTOCOL, E_UNSUPPORTED: no checksum in common
 * source   sessions of the installed client and server (docs/protocols/rsync.md)
 */

enum { NEGOTIATION_CARRY_MAX = 64 << 10, PATH_ROOM = 16 << 10 };

static void negotiation_init(struct negotiation *a, const struct negotiation_terms *t)
{
    *a = (struct negotiation){
        .terms = *t, .path = BUF_INIT(PATH_ROOM), .carry = BUF_INIT(NEGOTIATION_CARRY_MAX)};
    buf_adds(&a->path, t->path);
    handshake_init(&a->handshake, t->offer, t->module, t->user, t->password);
}

static void negotiation_fini(struct negotiation *a)
{
    handshake_fini(&a->handshake);
    buf_free(&a->path);
    buf_free(&a->carry);
}

static void put_argument(struct buf *out, const char *text)
{
    buf_add(out, text, strlen(text) + 1);
}

static void put_arguments(struct negotiation *a, struct buf *out)
{
    char options[32];

    snprintf(options, sizeof options, "-lt%sre.LfxCI%su", a->terms.hard_links ? "H" : "",
             a->terms.plain ? "" : "v");
    put_argument(out, "--server");
    put_argument(out, "--sender");
    put_argument(out, options);
    put_argument(out, ".");
    buf_adds(out, a->terms.module);
    buf_byte(out, '/');
    buf_adds(out, buf_slice(&a->path));
    buf_byte(out, 0);
    put_argument(out, "");
}

static int feed_handshake(struct negotiation *a, struct slice *in, struct buf *out, struct err *e)
{
    int rc = handshake_feed(&a->handshake, in, e);

    buf_adds(out, buf_slice(&a->handshake.out));
    buf_clear(&a->handshake.out);
    if (rc != 0 || !a->handshake.done) {
        return rc;
    }
    put_arguments(a, out);
    a->greeted = true;
    return 0;
}

/* E_AGAIN: more bytes are needed. */
static int read_abilities(struct negotiation *a, struct get *g, struct buf *out, struct err *e)
{
    uint32_t compat = (uint32_t)get_varint(g);
    struct slice theirs;

    if (g->rc != 0) {
        return g->rc;
    }
    if ((compat & COMPAT_INC_RECURSE) != 0) {
        return err_set(e, E_PROTOCOL,
                       "the peer chose incremental recursion, which was not offered");
    }
    a->kind = CHECKSUM_MD5;
    if ((compat & COMPAT_VARINT) != 0) {
        if (a->compat == 0) {
            put_vstring(out, SLICE(CHECKSUM_OFFER));
        }
        a->compat = compat; /* said: not again */
        theirs = get_vstring(g);
        if (g->rc == 0 && !checksum_agree(SLICE(CHECKSUM_OFFER), theirs, &a->kind)) {
            return err_set(e, E_UNSUPPORTED,
                           "the peer supports only the checksums '" SLICE_FMT
                           "', which are not supported here",
                           SLICE_ARG(slice_first(theirs, theirs.n < 80 ? theirs.n : 80)));
        }
    }
    a->seed = get_int(g);
    a->compat = compat;
    return g->rc;
}

static int feed_abilities(struct negotiation *a, struct slice *in, struct buf *out, struct err *e)
{
    while (in->n > 0 && !a->done) { /* a byte at a time: what follows is framed */
        struct get g;
        int rc;
        buf_byte(&a->carry, (uint8_t)*in->p);
        *in = slice_from(*in, 1);
        g = get_from(buf_slice(&a->carry));
        rc = read_abilities(a, &g, out, e);
        if (rc != 0 && rc != E_AGAIN) {
            return g.rc == rc ? err_set(e, E_PROTOCOL, "the peer's capabilities cannot be parsed")
                              : rc;
        }
        a->done = rc == 0;
    }
    return 0;
}

/* Adds to `out` what is to be sent. 0: see done; `greeted` turns true in one call, and motd stands
 * in handshake then. */
static int negotiation_feed(struct negotiation *a, struct slice *in, struct buf *out, struct err *e)
{
    int rc = 0;

    while (rc == 0 && in->n > 0 && !a->greeted) {
        rc = feed_handshake(a, in, out, e);
    }
    return rc == 0 && a->greeted ? feed_abilities(a, in, out, e) : rc;
}

/* --- requests without an answer ---
 *
 * In the order in which they were sent, and the one that is being written. A peer answers in order,
 * but may say out of turn that it cannot send one. A request with a basis is written block by
 * block; its answer cannot begin before the last.
 *
 * source   sessions of the installed client and server (docs/protocols/rsync.md)
 */

struct in_flight {
    int32_t index; /* -1: answered out of turn */
    uint64_t listed_bytes;
    struct sums_head head;
};

struct in_flight_queue {
    struct in_flight ring[PULL_IN_FLIGHT_MAX];
    unsigned first, n;
    struct sums_head writing; /* count 0: none */
    uint32_t writing_next;
};

/* May a request be begun, or its next block be added? */
static bool in_flight_has_room(const struct in_flight_queue *q)
{
    return q->writing.count != 0 || q->n < PULL_IN_FLIGHT_MAX;
}

static void in_flight_add(struct in_flight_queue *q, int32_t index, uint64_t listed_bytes,
                          const struct sums_head *head)
{
    CHECK(q->writing.count == 0 && q->n < PULL_IN_FLIGHT_MAX);
    q->ring[(q->first + q->n++) % PULL_IN_FLIGHT_MAX] =
        (struct in_flight){index, listed_bytes, *head};
    q->writing = *head;
    q->writing_next = 0;
}

/* True: that was the last block of the one being written. */
static bool in_flight_wrote_block(struct in_flight_queue *q)
{
    if (++q->writing_next < q->writing.count) {
        return false;
    }
    q->writing.count = 0;
    return true;
}

/* The one whose answer comes next; NULL: none. */
static struct in_flight *in_flight_first(struct in_flight_queue *q)
{
    while (q->n > 0 && q->ring[q->first].index < 0) {
        q->first = (q->first + 1) % PULL_IN_FLIGHT_MAX;
        q->n--;
    }
    return q->n > 0 ? &q->ring[q->first] : NULL;
}

/* May the peer answer that one now, by this head? */
static bool in_flight_fits(struct in_flight_queue *q, int32_t index, const struct sums_head *h)
{
    const struct in_flight *a = in_flight_first(q);

    if (a == NULL || a->index != index || (q->writing.count != 0 && q->n == 1)) {
        return false;
    }
    return h->count == 0 || /* literals alone are always right */
           (h->count == a->head.count && h->block_bytes == a->head.block_bytes &&
            h->remainder == a->head.remainder);
}

/* Out of turn: false when it was not asked, or not to its end. */
static bool in_flight_strike(struct in_flight_queue *q, int32_t index)
{
    unsigned whole =
        q->n - (q->writing.count != 0); /* the last is not, while it is being written */

    for (unsigned i = 0; i < whole && index >= 0; i++) {
        struct in_flight *a = &q->ring[(q->first + i) % PULL_IN_FLIGHT_MAX];
        if (a->index == index) {
            a->index = -1;
            return true;
        }
    }
    return false;
}

/* Everything has its answer, and nothing is being written. */
static bool in_flight_is_empty(struct in_flight_queue *q)
{
    return in_flight_first(q) == NULL && q->writing.count == 0;
}

/* --- a visit --- */

enum state {
    PULL_NEGOTIATION, /* not framed yet */
    PULL_LIST,
    PULL_ANSWERS,
    PULL_STATS,
    PULL_GOODBYE,
    PULL_DONE,
};

enum {
    CARRY_MAX = 1 << 20,
    OUT_MAX = 4 << 20, /* beyond PULL_OUT_HIGH: one request and the goodbyes */
    DRAFT_BYTES = 4 << 10,
    TEXT_SHOWN = 200,
    STATISTICS = 5,
};

struct pull {
    enum state state;
    struct pull_settings set;
    struct pull_events ev;
    void *arg;
    struct negotiation negotiation;
    struct mux mux;
    struct buf carry; /* data of the peer that is not a whole something yet */
    struct buf draft; /* ours, not framed yet */
    struct buf out;
    struct buf filters;
    bool paused;
    /* the list */
    struct file_list *list;
    int32_t io_error;
    uint32_t count; /* entries, once listed */
    /* requests and answers */
    struct index_coding coding;
    struct in_flight_queue in_flight;
    struct answer_reader answer;
    struct checksum sum;
    char *block; /* of a basis */
    uint64_t came_bytes;
    unsigned phase;
    bool ending, ended; /* we want the phase's end; have said so */
    char last_error[TEXT_SHOWN + 1];
};

struct pull *pull_new(const struct pull_settings *set, const struct pull_events *ev, void *arg)
{
    struct pull *p = NEW(struct pull);

    p->set = *set;
    p->ev = *ev;
    p->arg = arg;
    negotiation_init(&p->negotiation, &(struct negotiation_terms){.module = set->module,
                                                                  .user = set->user,
                                                                  .password = set->password,
                                                                  .path = set->path,
                                                                  .hard_links = set->hard_links,
                                                                  .offer = set->offer,
                                                                  .plain = set->plain});
    mux_init(&p->mux);
    p->carry = BUF_INIT(CARRY_MAX);
    p->draft = BUF_INIT(OUT_MAX);
    p->out = BUF_INIT(OUT_MAX);
    p->filters = BUF_INIT(OUT_MAX / 4);
    p->coding = INDEX_CODING_INIT;
    for (size_t i = 0; i < set->filters; i++) {
        put_int(&p->filters, (int32_t)strlen(set->filter[i]));
        buf_str(&p->filters, set->filter[i]);
    }
    put_int(&p->filters, 0);
    p->set.filter = NULL;
    return p;
}

void pull_free(struct pull **pp)
{
    struct pull *p = *pp;

    if (p == NULL) {
        return;
    }
    *pp = NULL;
    negotiation_fini(&p->negotiation);
    mux_fini(&p->mux);
    buf_free(&p->carry);
    buf_free(&p->draft);
    buf_free(&p->out);
    buf_free(&p->filters);
    list_free(&p->list);
    checksum_fini(&p->sum);
    free(p->block);
    free(p);
}

/* "in the list": for messages. */
static const char *where(const struct pull *p)
{
    switch (p->state) {
    case PULL_NEGOTIATION:
        return "in the handshake";
    case PULL_LIST:
        return "in the list";
    case PULL_ANSWERS:
        return p->answer.at == ANSWER_AT_INDEX ? "between files" : "in a file";
    case PULL_STATS:
    case PULL_GOODBYE:
        return "at the end of the session";
    case PULL_DONE:
        return "after the session";
    }
    return "";
}

/* --- before the frames ------------------------------------------------------------------------ */

static void draft_frame(struct pull *p)
{
    if (p->draft.n > 0) {
        mux_put(&p->out, MUX_DATA, buf_slice(&p->draft));
        buf_clear(&p->draft);
    }
}

static void begin_list(struct pull *p)
{
    struct list_form form = {.varint_flags = (p->negotiation.compat & COMPAT_VARINT) != 0,
                             .safe = (p->negotiation.compat & COMPAT_SAFE_LIST) != 0,
                             .hard_links = p->set.hard_links};

    p->list = list_new(form, p->set.limits);
    buf_adds(&p->draft, buf_slice(&p->filters));
    buf_free(&p->filters);
    draft_frame(p);
    answer_reader_init(&p->answer, checksum_bytes(p->negotiation.kind));
    checksum_init(&p->sum, p->negotiation.kind);
    p->state = PULL_LIST;
}

static int feed_negotiation(struct pull *p, struct slice *in, struct err *e)
{
    struct buf *motd = &p->negotiation.handshake.motd;
    int rc = negotiation_feed(&p->negotiation, in, &p->out, e);

    if (p->negotiation.greeted && motd->n > 0) {
        p->ev.on_text(p->arg, false, buf_slice(motd));
        buf_free(motd);
    }
    if (rc == 0 && p->negotiation.done) {
        begin_list(p);
    }
    return rc;
}

/* --- data ------------------------------------------------------------------------------------- */

static int feed_list(struct pull *p, struct slice *in, struct err *e)
{
    bool done;
    int rc = list_feed(p->list, in, &done, e);

    if (rc != 0 || !done) {
        return rc;
    }
    rc = list_sort(p->list, e);
    if (rc != 0) {
        return rc;
    }
    p->io_error |= list_io_error(p->list);
    p->state = PULL_ANSWERS;
    p->count = list_count(p->list);
    rc = p->ev.on_list(p->arg, p->list);
    list_free(&p->list);
    return rc != 0 ? err_set(e, rc, "the list was rejected") : 0;
}

static void try_end(struct pull *p)
{
    if (p->ending && !p->ended && in_flight_is_empty(&p->in_flight)) {
        put_index(&p->draft, &p->coding, INDEX_DONE);
        p->ended = true;
    }
}

static int on_phase(struct pull *p, struct err *e)
{
    if (!p->ended) {
        return err_set(e, E_PROTOCOL, "the peer ended a phase too early");
    }
    p->ending = p->ended = false;
    p->phase++;
    if (p->phase == 1) {
        p->ev.on_phase(p->arg, p->phase);
    } else if (p->phase == 2) {
        p->ending = true;
        try_end(p);
    } else {
        p->state = PULL_STATS;
    }
    return 0;
}

static int on_begin(struct pull *p, struct err *e)
{
    if (!in_flight_fits(&p->in_flight, p->answer.index, &p->answer.head)) {
        return err_set(e, E_PROTOCOL, "the peer answered a request that was not sent (entry %d)",
                       (int)p->answer.index);
    }
    checksum_begin(&p->sum);
    p->came_bytes = 0;
    return p->ev.on_begin(p->arg, p->answer.index);
}

static int pass_bytes(struct pull *p, struct slice bytes, bool here, struct err *e)
{
    uint64_t listed = in_flight_first(&p->in_flight)->listed_bytes;
    int rc;

    p->came_bytes += bytes.n;
    /* A file may have grown since it was listed; one without an end is an attack. */
    if (p->came_bytes / 2 > listed && p->came_bytes > (uint64_t)1 << 30) {
        return err_set(e, E_PROTOCOL, "the peer's file is far larger than listed");
    }
    checksum_add(&p->sum, bytes);
    rc = p->ev.on_bytes(p->arg, bytes, here);
    if (rc == PULL_PAUSE) {
        p->paused = true;
        rc = 0;
    }
    return rc;
}

static int on_block(struct pull *p, struct err *e)
{
    const struct sums_head *h = &p->answer.head;
    uint32_t n = sums_block(h, p->answer.block);
    int rc;

    if (p->block == NULL) {
        p->block = mem_new(SUMS_BLOCK_MOST);
    }
    rc = p->ev.read_basis(p->arg, (uint64_t)p->answer.block * h->block_bytes, p->block, n, e);
    return rc != 0 ? rc : pass_bytes(p, slice_of(p->block, n), true, e);
}

static int on_rsync_pull_end(struct pull *p)
{
    uint8_t ours[CHECKSUM_BYTES_MAX];
    bool good;
    int rc;

    checksum_end(&p->sum, ours);
    good = memcmp(ours, p->answer.digest, p->answer.digest_bytes) == 0;
    in_flight_first(&p->in_flight)->index = -1;
    rc = p->ev.on_end(p->arg, p->answer.index, good);
    try_end(p);
    return rc;
}

static int feed_answers(struct pull *p, struct slice *in, struct err *e)
{
    int event = answer_next(&p->answer, in, e);
    int rc;

    switch (event) {
    case ANSWER_MORE:
        return E_AGAIN;
    case ANSWER_PHASE:
        return on_phase(p, e);
    case ANSWER_BEGIN:
        rc = on_begin(p, e);
        break;
    case ANSWER_LITERAL:
        rc = pass_bytes(p, p->answer.bytes, false, e);
        break;
    case ANSWER_BLOCK:
        rc = on_block(p, e);
        break;
    case ANSWER_END:
        rc = on_rsync_pull_end(p);
        break;
    default:
        return event;
    }
    return rc;
}

static int feed_stats(struct pull *p, struct slice *in, struct err *e)
{
    struct get g = get_from(*in);

    for (int i = 0; i < STATISTICS; i++) {
        (void)get_varlong(&g, 3); /* the peer's sums of what went both ways: ours are our own */
    }
    if (g.rc == E_AGAIN) {
        return E_AGAIN;
    }
    if (g.rc != 0) {
        return err_set(e, E_PROTOCOL, "the peer's statistics cannot be parsed");
    }
    *in = slice_of(g.p, g.n);
    put_index(&p->draft, &p->coding, INDEX_DONE);
    p->state = PULL_GOODBYE;
    if (p->negotiation.handshake.version < 31) {
        p->state = PULL_DONE;
        p->ev.on_done(p->arg);
    }
    return 0;
}

static int feed_goodbye(struct pull *p, struct slice *in, struct err *e)
{
    if (*in->p != 0) {
        return err_set(e, E_PROTOCOL, "the peer ended the session with %d instead of 0",
                       (int)(unsigned char)*in->p);
    }
    *in = slice_from(*in, 1);
    put_index(&p->draft, &p->coding, INDEX_DONE);
    p->state = PULL_DONE;
    p->ev.on_done(p->arg);
    return 0;
}

/* Until the data is used up, or a whole something is not there, or a pause. */
static int use_data(struct pull *p, struct slice *in, struct err *e)
{
    int rc = 0;

    while (rc == 0 && in->n > 0 && !p->paused) {
        enum state before = p->state;
        switch (p->state) {
        case PULL_LIST:
            rc = feed_list(p, in, e);
            rc = rc == 0 && p->state == before ? E_AGAIN : rc;
            break;
        case PULL_ANSWERS:
            rc = feed_answers(p, in, e);
            break;
        case PULL_STATS:
            rc = feed_stats(p, in, e);
            break;
        case PULL_GOODBYE:
            rc = feed_goodbye(p, in, e);
            break;
        case PULL_NEGOTIATION:
            CHECK(false);
            break;
        case PULL_DONE:
            *in = slice_from(*in, in->n);
            break;
        }
    }
    return rc == E_AGAIN ? 0 : rc;
}

static int on_rsync_pull_data(struct pull *p, struct slice data, struct err *e)
{
    bool carried = p->carry.n > 0;
    struct slice rest;
    int rc;

    if (carried) {
        buf_adds(&p->carry, data);
        data = buf_slice(&p->carry);
    }
    rest = data;
    rc = use_data(p, &rest, e);
    if (rc != 0) {
        return rc;
    }
    if (carried) {
        buf_drop(&p->carry, data.n - rest.n);
    } else {
        buf_adds(&p->carry, rest);
    }
    return p->carry.rc != 0 ? err_set(e, E_PROTOCOL, "the peer's data cannot be parsed") : 0;
}

/* --- messages --------------------------------------------------------------------------------- */

static int on_no_send(struct pull *p, struct slice bytes, struct err *e)
{
    struct get g = get_from(bytes);
    int32_t index = get_int(&g);
    bool begun =
        p->answer.at != ANSWER_AT_INDEX && p->answer.index == index; /* an answer has an end */

    if (g.rc == 0 && !begun && in_flight_strike(&p->in_flight, index)) {
        p->ev.on_missing(p->arg, index);
        try_end(p);
        return 0;
    }
    return err_set(e, E_PROTOCOL, "the peer refused a request that was not sent (entry %d)",
                   (int)index);
}

static void keep_text(struct pull *p, bool error, struct slice text)
{
    while (text.n > 0 && (text.p[text.n - 1] == '\n' || text.p[text.n - 1] == '\r')) {
        text.n--;
    }
    if (error) {
        snprintf(p->last_error, sizeof p->last_error, SLICE_FMT, SLICE_ARG(text));
    }
    p->ev.on_text(p->arg, error, text);
}

static int on_gave_up(struct pull *p, struct slice bytes, struct err *e)
{
    struct get g = get_from(bytes);
    int32_t code = get_int(&g);

    if (p->state == PULL_DONE) {
        return 0;
    }
    return err_set(e, E_NETWORK, "the peer aborted %s (%d): %s", where(p),
                   g.rc == 0 ? (int)code : 0,
                   p->last_error[0] != '\0' ? p->last_error : "it gave no reason");
}

static int on_mux_message(struct pull *p, const struct mux_piece *m, struct err *e)
{
    struct get g = get_from(m->bytes);

    switch (m->code) {
    case MUX_ERROR_XFER:
    case MUX_ERROR:
    case MUX_ERROR_SOCKET:
    case MUX_ERROR_UTF8:
        keep_text(p, true, m->bytes);
        return 0;
    case MUX_INFO:
    case MUX_WARNING:
    case MUX_LOG:
    case MUX_CLIENT:
        keep_text(p, false, m->bytes);
        return 0;
    case MUX_IO_ERROR:
        p->io_error |= get_int(&g);
        return 0;
    case MUX_NO_SEND:
        return on_no_send(p, m->bytes, e);
    case MUX_ERROR_EXIT:
        return on_gave_up(p, m->bytes, e);
    case MUX_DATA:
    case MUX_REDO:
    case MUX_STATS:
    case MUX_IO_TIMEOUT:
    case MUX_NOOP:
    case MUX_SUCCESS:
    case MUX_DELETED:
        return 0; /* nothing that concerns a receiver; frames keep the line alive */
    }
    return 0;
}

static int feed_frames(struct pull *p, struct slice *in, struct err *e)
{
    struct mux_piece piece;
    int rc = 1;

    if (p->carry.n > 0) { /* what a pause left */
        rc = on_rsync_pull_data(p, SLICE_NONE, e);
        if (rc != 0) {
            return rc;
        }
    }
    while (!p->paused && (rc = mux_next(&p->mux, in, &piece, e)) == 1) {
        rc = piece.code == MUX_DATA ? on_rsync_pull_data(p, piece.bytes, e)
                                    : on_mux_message(p, &piece, e);
        if (rc != 0) {
            return rc;
        }
    }
    return rc < 0 ? rc : 0;
}

int pull_feed(struct pull *p, struct slice *in, struct err *e)
{
    int rc = 0;

    if (p->state == PULL_NEGOTIATION && !p->paused) {
        rc = feed_negotiation(p, in, e);
    }
    if (rc == 0 && p->state > PULL_NEGOTIATION) {
        rc = feed_frames(p, in, e);
    }
    if (rc != 0 && e != NULL && e->code == 0) {
        err_set(e, rc, "%s %s", err_plain(rc), where(p));
    }
    return rc;
}

int pull_eof(struct pull *p, struct err *e)
{
    if (p->state == PULL_DONE) {
        return 0;
    }
    return err_set(e, E_NETWORK, "the peer closed the connection %s%s%s", where(p),
                   p->last_error[0] != '\0' ? ": " : "", p->last_error);
}

struct buf *pull_out(struct pull *p)
{
    draft_frame(p);
    return &p->out;
}

void pull_keep_alive(struct pull *p)
{
    if (p->state == PULL_NEGOTIATION || p->state == PULL_DONE) {
        return;
    }
    draft_frame(p);
    mux_put(&p->out, p->negotiation.handshake.version >= 31 ? MUX_NOOP : MUX_DATA, SLICE_NONE);
}

void pull_resume(struct pull *p)
{
    p->paused = false;
}

bool pull_paused(const struct pull *p)
{
    return p->paused;
}

/* --- asking ----------------------------------------------------------------------------------- */

bool pull_may_ask(const struct pull *p)
{
    return p->state == PULL_ANSWERS && !p->ending && p->out.n + p->draft.n < PULL_OUT_HIGH &&
           in_flight_has_room(&p->in_flight);
}

void pull_ask(struct pull *p, int32_t index, uint64_t listed_bytes, uint64_t basis_bytes,
              bool full_sums)
{
    struct sums_head head = {.count = 0};

    CHECK(!p->ending && index >= 0 && (uint32_t)index < p->count);
    if (basis_bytes != 0) {
        head = sums_of(basis_bytes, p->negotiation.kind, full_sums);
    }
    in_flight_add(&p->in_flight, index, listed_bytes, &head);
    put_index(&p->draft, &p->coding, index);
    put_short(&p->draft, ITEM_TRANSFER);
    put_sums_head(&p->draft, &head);
}

const struct sums_head *pull_asking(const struct pull *p, uint32_t *next)
{
    *next = p->in_flight.writing_next;
    return p->in_flight.writing.count != 0 ? &p->in_flight.writing : NULL;
}

void pull_block(struct pull *p, struct slice block)
{
    const struct sums_head *h = &p->in_flight.writing;
    const struct negotiation *a = &p->negotiation;
    uint8_t strong[CHECKSUM_BYTES_MAX];

    CHECK(h->count != 0 && block.n == sums_block(h, p->in_flight.writing_next));
    checksum_block(a->kind, a->seed, (a->compat & COMPAT_SEED_FIRST) != 0, block, strong);
    put_int(&p->draft, (int32_t)sums_rolling(block));
    buf_add(&p->draft, strong, h->strong_bytes);
    if (p->draft.n > DRAFT_BYTES) {
        draft_frame(p);
    }
    if (in_flight_wrote_block(&p->in_flight)) {
        try_end(p);
    }
}

void pull_end_phase(struct pull *p)
{
    CHECK(p->state == PULL_ANSWERS);
    p->ending = true;
    try_end(p);
}

bool pull_is_done(const struct pull *p)
{
    return p->state == PULL_DONE;
}

int32_t pull_io_error(const struct pull *p)
{
    return p->io_error;
}

unsigned pull_version(const struct pull *p)
{
    return p->negotiation.handshake.version;
}

enum checksum_kind pull_checksum(const struct pull *p)
{
    return p->negotiation.kind;
}
