#include "agent/pull/artifact.h"

#include <event2/event.h>
#include <stdio.h>
#include <stdlib.h>

#include "agent/peers/peers.h"
#include "agent/pull/ask.h"
#include "agent/pull/hub.h"
#include "agent/pull/known.h"
#include "agent/pull/listing.h"
#include "agent/pull/parts.h"
#include "agent/pull/pull.h"
#include "agent/pull/sheaves.h"
#include "agent/shelf/place.h"
#include "common/codec/glob.h"
#include "common/os/clock.h"
#include "common/os/newfile.h"

enum { LISTING_MAX = 256 << 20 };

struct artifacts {
    struct puller *pl;
    struct artifact *one;
    size_t count;
    int rc;
    struct err why;
};

struct waiting { /* one file under way */
    struct artifact *a;
    size_t index;
};

static void stop(struct artifact *a, int rc, const struct err *why)
{
    if (a->run->rc == 0) {
        a->run->rc = rc;
        a->run->why = *why;
    }
    puller_stop(a->run->pl);
}

/* "repo/a b" -> "repo/a%20b"; escapes that are there stay. */
static struct slice from_url(struct artifact *a, const struct agent *ag, struct slice from)
{
    struct buf out = BUF_INIT(64 << 10);
    struct slice url;

    while (from.n > 0 && from.p[0] == '/') {
        from = slice_from(from, 1);
    }
    buf_adds(&out, ag->mirror);
    buf_byte(&out, '/');
    for (size_t i = 0; i < from.n; i++) {
        char c = from.p[i];
        if ((uint8_t)c <= ' ' || (uint8_t)c >= 0x7f || strchr("\"<>\\^`{|}", c) != NULL) {
            buf_addf(&out, "%%%02X", (uint8_t)c);
        } else {
            buf_byte(&out, (uint8_t)c);
        }
    }
    url = arena_copy(&a->arena, buf_slice(&out));
    buf_free(&out);
    return url;
}

/* Ends in '/'. */
static struct slice folder_url(struct artifact *a, const struct agent *ag)
{
    struct slice from = slice_str(a->from);
    struct slice url = from_url(a, ag, slice_cut(&from, '#'));

    return slice_ends(url, SLICE("/")) ? url : arena_fmt(&a->arena, SLICE_FMT "/", SLICE_ARG(url));
}

static bool fits(const char *pattern, const char *name)
{
    return glob_match_how(slice_str(pattern), slice_str(name), GLOB_FLAT, NULL);
}

bool artifact_wants(const struct artifact *a, const char *name)
{
    bool in = a->ninclude == 0;

    for (size_t i = 0; i < a->ninclude && !in; i++) {
        in = fits(a->include[i], name);
    }
    for (size_t i = 0; i < a->nexclude && in; i++) {
        in = !fits(a->exclude[i], name);
    }
    return in;
}

static void on_file(void *arg, const struct pull_result *r)
{
    struct waiting *w = arg;
    struct artifact *a = w->a;
    struct artifact_file *f = &a->file[w->index];

    free(w);
    if (r->rc != 0) {
        stop(a, r->rc, &r->why);
        return;
    }
    f->digest = r->digest;
    f->size_bytes = r->size_bytes;
    a->size_bytes += r->size_bytes;
    a->fetched_bytes += r->fetched_bytes;
    a->peer_bytes += r->peer_bytes;
    a->peers = peers_givers(a->run->pl->peers);
}

static void on_first_try(void *arg, const struct pull_result *r);

/* The digest of a folder's file has an address of its own: the head may move while we fetch. */
static void pull_next(struct artifact *a)
{
    const struct agent *ag = a->run->pl->agent;
    struct artifact_file *f = &a->file[a->next];
    struct waiting *w = NEW(struct waiting);
    struct pull_want want = {.digest = f->digest, .size_bytes = SIZE_UNKNOWN};
    struct buf url = BUF_INIT(64 << 10);
    struct buf other = BUF_INIT(64 << 10);
    char hex[DIGEST_HEX + 1];

    *w = (struct waiting){a, a->next++};
    buf_adds(&url, a->url);
    if (a->hub != NULL) {
        url_encode_path(f->name, &url);
        want.size_bytes = f->size_bytes;
    } else if (a->is_folder) {
        url_encode_path(f->name, &url);
        digest_format(&f->digest, hex);
        buf_addf(&other, SLICE_FMT "/-/blob/%s", SLICE_ARG(ag->mirror), hex);
        want.size_bytes = f->size_bytes;
    }
    want.url = buf_slice(&url);
    want.other_url = buf_slice(&other);
    if (a->is_folder && sheaves_fit(a->run->pl->sheaves, &want)) {
        sheaves_add(a->run->pl->sheaves, &want, on_file, w);
    } else {
        pull_add(a->run->pl, &want, a->is_folder ? on_file : on_first_try, w);
    }
    buf_free(&url);
    buf_free(&other);
}

/* --- folders ---------------------------------------------------------------------------------------------------------- */

/* Has the caller a folder of just these files? */
static bool is_laid(struct artifact *a)
{
    bool named = a->is_folder &&
                 a->lay != NULL; /* by digests, all of them: of a Hub's, git's names do not do */

    for (size_t i = 0; named && i < a->nfiles; i++) {
        named = !digest_is_zero(&a->file[i].digest);
    }
    a->laid = named && a->lay(a->lay_arg, a);
    for (size_t i = 0; a->laid && i < a->nfiles; i++) {
        a->size_bytes += a->file[i].size_bytes;
    }
    return a->laid;
}

/* Their names are there. */
static void begin_files(struct artifact *a)
{
    if (a->hub != NULL) {
        a->url = hub_files_url(a->hub, a->run->pl->agent->mirror, &a->arena);
    }
    a->next = 0;
    if (is_laid(a)) {
        a->next = a->nfiles;
        return;
    }
    for (size_t i = 0; i < a->nfiles; i++) {
        a->run->pl->known_bytes += a->file[i].size_bytes;
    }
}

static void start_listing(struct artifact *a);
static int read_hub(struct artifact *a, struct slice doc, struct err *e);

static void list_again(evutil_socket_t fd, short what, void *arg)
{
    struct artifact *a = arg;

    (void)fd;
    (void)what;
    if (!a->run->pl->stopping) {
        start_listing(a);
    }
}

static int read_answer(struct artifact *a, const struct ask_answer *ans, struct err *e)
{
    if (a->hub != NULL) {
        return read_hub(a, ans->body, e);
    }
    a->etag = arena_copy(&a->arena, ans->etag);
    return listing_read(a, ans->body, e);
}

static void on_listing(void *arg, int rc, const struct err *why, const struct ask_answer *ans)
{
    struct artifact *a = arg;
    struct err e = *why;
    struct slice folder = ans->url;

    a->ask = NULL;
    if (rc == 0 && !(ans->status == 304 && a->known)) { /* else it is as it was */
        a->known = false;
        rc = ask_judge(ans->status, &ans->reason, &e);
        err_prefix(&e, "%s", a->from);
        rc = rc != 0 ? rc : read_answer(a, ans, &e);
        if (rc == 0 && a->ask != NULL) {
            return; /* the second document is on its way */
        }
    }
    if ((rc == E_AGAIN || rc == E_NETWORK || rc == E_TIMEOUT) &&
        ++a->tries < a->run->pl->agent->tries) {
        const struct timeval wait =
            clock_timeval(puller_pause_ms(a->run->pl, a->tries, ans->retry_after_s));
        event_base_once(a->run->pl->base, -1, EV_TIMEOUT, list_again, a, &wait);
        return;
    }
    a->listing = false;
    if (rc != 0) {
        stop(a, rc, &e);
        return;
    }
    a->url = arena_copy(&a->arena, slice_cut(&folder, '?'));
    begin_files(a);
}

static void start_listing(struct artifact *a)
{
    const struct puller *pl = a->run->pl;
    struct slice fields[2] = {SLICE("Accept: application/json")};
    struct ask_want w = {.fields = fields, .nfields = 1, .body_max = LISTING_MAX};

    a->is_folder = a->listing = true;
    if (a->hub == NULL && known_read(pl->agent, a) && a->etag.n != 0) {
        fields[w.nfields++] = arena_fmt(&a->arena, "If-None-Match: " SLICE_FMT, SLICE_ARG(a->etag));
    }
    w.url =
        a->hub != NULL
            ? arena_fmt(&a->arena, SLICE_FMT "/" SLICE_FMT, SLICE_ARG(pl->agent->mirror),
                        SLICE_ARG(hub_next_url(a->hub, &a->arena)))
            : arena_fmt(&a->arena, SLICE_FMT "?recursive=1", SLICE_ARG(folder_url(a, pl->agent)));
    a->ask = ask_start(pl->xfers, pl->agent, &w, on_listing, a);
}

/* --- a Hub's repository: two documents, then its files ---------------------------------------------------------------- */

static int add_hub_file(void *arg, const struct hub_file *h)
{
    struct artifact *a = arg;

    if (!place_name_ok(slice_str(h->name))) {
        return E_INVALID;
    }
    if (artifact_wants(a, h->name)) {
        if ((a->nfiles & (a->nfiles - 1)) == 0) { /* full at 1, 2, 4, ... */
            a->file = reallocarray(a->file, max_u64(1, 2 * a->nfiles), sizeof a->file[0]);
            CHECK(a->file != NULL);
        }
        a->file[a->nfiles++] =
            (struct artifact_file){.name = arena_copy(&a->arena, slice_str(h->name)),
                                   .digest = h->digest,
                                   .size_bytes = h->size_bytes,
                                   .etag = arena_copy(&a->arena, slice_str(h->etag))};
    }
    return 0;
}

static int read_hub(struct artifact *a, struct slice doc, struct err *e)
{
    int rc;

    if (a->hub->commit.p == NULL) {
        rc = hub_read_info(a->hub, doc, &a->arena, e);
        if (rc == 0 && !known_read(a->run->pl->agent, a)) {
            a->tries = 0;
            start_listing(a);
        }
        return rc;
    }
    a->nfiles = 0;
    rc = hub_read_files(doc, add_hub_file, a, e);
    if (rc == E_INVALID) {
        err_set(e, rc, "%s: the listing holds a name that leads elsewhere", a->from);
    } else if (rc == 0 && a->nfiles == 0) {
        rc = err_set(e, E_NOTFOUND, "%s: no file there matches the patterns", a->from);
    }
    return rc;
}

/* --- one file, or perhaps a folder after all ------------------------------------------------------------------------------ */

static void on_first_try(void *arg, const struct pull_result *r)
{
    struct waiting *w = arg;
    struct artifact *a = w->a;

    if (r->rc == E_NOTFOUND && digest_is_zero(&a->file[0].digest) && !a->run->pl->stopping) {
        free(w);
        start_listing(a);
    } else {
        on_file(w, r);
    }
}

/* What kind of thing FROM names: a Hub's repository, a folder, or a file with its name. */
static int read_from(const struct agent *ag, struct artifact *a, struct err *e)
{
    struct slice rest = slice_str(a->from);
    struct slice path = slice_cut(&rest, '#');
    struct slice name = path;
    struct hub hub;
    ptrdiff_t slash;

    if (hub_from(slice_str(a->from), &a->arena, &hub)) {
        a->hub = ARENA_NEW(&a->arena, struct hub);
        *a->hub = hub;
        return 0;
    }
    if (rest.n > 0 &&
        (!slice_starts(rest, SLICE("sha256=")) || !digest_parse(slice_from(rest, 7), &a->digest) ||
         digest_is_zero(&a->digest))) { /* zero is our "none" */
        return err_set(e, E_USAGE, "%s: behind '#' only sha256=<64 hex digits> has a meaning",
                       a->from);
    }
    if (path.n == 0) {
        return err_set(e, E_USAGE, "FROM is empty; write <repo>/<path>");
    }
    a->is_folder = path.p[path.n - 1] == '/';
    if (a->is_folder) {
        return 0;
    }
    name = slice_cut(&name, '?');
    while ((slash = slice_find(name, '/')) >= 0) {
        name = slice_from(name, (size_t)slash + 1);
    }
    if (!place_name_ok(name)) {
        return err_set(e, E_USAGE, "%s: its last part is no file name", a->from);
    }
    a->file = mem_array(1, sizeof a->file[0]);
    a->nfiles = 1;
    a->file[0] = (struct artifact_file){.name = arena_copy(&a->arena, name), .digest = a->digest};
    a->url = from_url(a, ag, path);
    return 0;
}

static int start_one(struct artifact *a, struct err *e)
{
    const struct agent *ag = a->run->pl->agent;
    int rc = read_from(ag, a, e);

    if (rc == 0 && known_is_fixed(a) && known_read(ag, a)) {
        a->url = folder_url(a, ag);
        begin_files(a);
    } else if (rc == 0 && (a->hub != NULL || a->is_folder)) {
        start_listing(a);
    }
    return rc;
}

/* The next file of the first artifact that has one. */
static enum puller_more more(void *arg)
{
    struct artifacts *r = arg;
    bool listing = false;

    for (size_t i = 0; i < r->count; i++) {
        struct artifact *a = &r->one[i];
        if (a->listing) {
            listing = true;
        } else if (a->next < a->nfiles) {
            pull_next(a);
            return MORE_ADDED;
        }
    }
    return listing ? MORE_LATER : MORE_NONE;
}

int artifacts_pull(struct puller *pl, struct artifact *a, size_t count, struct err *e)
{
    struct artifacts run = {.pl = pl, .one = a, .count = count};
    int rc = 0;

    pl->more = more;
    pl->more_arg = &run;
    for (size_t i = 0; rc == 0 && i < count; i++) {
        a[i].run = &run;
        rc = start_one(&a[i], e);
        if (rc != 0) {
            run.rc = rc;
            run.why = *e;
            puller_stop(pl);
        }
    }
    rc = puller_run(pl, e);
    for (size_t i = 0; i < count; i++) {
        ask_cancel(&a[i].ask);
        a[i].run = NULL;
    }
    if (run.rc != 0) {
        *e = run.why;
        return run.rc;
    }
    for (size_t i = 0; rc == 0 && !pl->stopping && i < count; i++) {
        rc = a[i].hub != NULL && !a[i].known && !a[i].laid ? hub_check(pl->agent, &a[i], e) : 0;
        if (rc == 0) {
            known_write(pl->agent, &a[i]);
        }
    }
    return pl->stopping
               ? err_set(e, E_CANCELLED, "stopped; what was fetched is kept for the next run")
               : rc;
}

static bool all_here(const struct agent *ag, struct artifact *a)
{
    uint64_t size;

    for (size_t i = 0; i < a->nfiles; i++) {
        struct artifact_file *f = &a->file[i];
        if (shelf_find(ag->shelf, &f->digest, &size, NULL) != 0 ||
            (a->is_folder && size != f->size_bytes)) {
            return false;
        }
        f->size_bytes = size;
        a->size_bytes += size;
        if (!a->known) { /* whose list has been looked at just now, which gc takes as a use of all */
            shelf_note(ag->shelf, &f->digest, size, SLICE_NONE, SLICE_NONE);
        }
    }
    return true;
}

bool artifact_at_hand(const struct agent *ag, struct artifact *a)
{
    struct artifact blank = *a;
    bool all = read_from(ag, a, NULL) == 0;

    if (all && !digest_is_zero(&a->digest)) {
        all = !a->is_folder && all_here(ag, a);
    } else {
        all = all && known_is_fixed(a) && known_read(ag, a) && (is_laid(a) || all_here(ag, a));
    }
    if (!all) {
        artifact_fini(a);
        *a = blank;
    }
    return all;
}

void artifact_key(const struct artifact *a, struct digest *out)
{
    struct hasher *h;

    if (!a->is_folder) {
        *out = a->file[0].digest;
        return;
    }
    h = hasher_new_whole();
    for (size_t i = 0; i < a->nfiles; i++) {
        hasher_add(h, a->file[i].name.p, a->file[i].name.n);
        hasher_add(h, "", 1);
        hasher_add(h, a->file[i].digest.b, DIGEST_BYTES);
    }
    if (a->hub != NULL) {
        hasher_add(h, a->hub->rev.p, a->hub->rev.n);
        hasher_add(h, a->hub->commit.p, a->hub->commit.n);
    }
    hasher_final(h, out);
    hasher_free(&h);
}

int artifact_place(const struct agent *ag, const struct artifact *a, const char *dir, struct err *e)
{
    int rc = place_folder(dir, ag->fleeting, e);
    struct placer *p;

    if (rc != 0 || a->hub != NULL) {
        return rc != 0 ? rc : hub_place(ag, a, dir, e);
    }
    p = placer_open(ag->shelf, dir, ag->copy, ag->fleeting);
    for (size_t i = 0; rc == 0 && i < a->nfiles; i++) {
        rc = placer_put(p, &a->file[i].digest, a->file[i].name, e);
    }
    placer_close(&p);
    return rc;
}

void artifact_path(const struct artifact *a, const char *dir, char out[PATH_MAX])
{
    if (a->hub != NULL) {
        hub_snapshot(a->hub, dir, out);
    } else {
        snprintf(out, PATH_MAX, "%.3900s%s" SLICE_FMT, dir, a->is_folder ? "" : "/",
                 SLICE_ARG(a->is_folder ? SLICE_NONE : a->file[0].name));
    }
}

void artifact_fini(struct artifact *a)
{
    free(a->file);
    a->file = NULL;
    arena_fini(&a->arena);
}
