/* debian.c - a Debian archive by its own indexes: InRelease and Release of each suite, then the
 * Packages and Sources that they vouch for. Every file has its digest before it is fetched, and
 * indexes are asked for by it: what we publish is one state of the archive, however often it
 * changes meanwhile. An index is read out of the store, which has it already or gets it as it
 * comes. Signatures are the clients' to check. */
#include <stdio.h>
#include <stdlib.h>

#include "server/sync/debian/packages.h"
#include "server/sync/debian/release.h"
#include "server/sync/http/http_engine.h"
#include "server/sync/pieces.h"

enum { RELEASE_BYTES = 64 << 20 };
#define INDEX_BYTES ((uint64_t)2 << 30)

static const char *const heads[] = {"InRelease", "Release", "Release.gpg"};

struct index { /* a Packages or Sources to be read */
    struct list node;
    struct debian *d;
    struct doc *doc;
    /* below the root, without the packing's ending; then with that of the form at hand */
    char *path;
    size_t stem;
    struct {
        bool named;
        struct digest digest;
    } form[PACKAGES_FORMS];
    size_t at;
    bool sources;
};

struct debian {
    struct http_engine *g;
    size_t suite;
    size_t head; /* of heads[] */
    struct doc *doc;
    struct release in, plain; /* of the suite at hand */
    bool in_there, plain_there;
    struct list waiting, coming;
    unsigned count;
    uint64_t left_out;
    bool over;
};

static void end_debian_listing(struct debian *d, int rc, const struct err *why)
{
    struct engine_listed l = {.left_out = d->left_out, .digests = true};

    d->over = true;
    http_listed(d->g, rc, why, &l);
}

static void fail_debian_listing(struct debian *d, int rc, const char *what, const struct err *why)
{
    struct err e = *why;

    e.code = rc;
    err_prefix(&e, "%.120s", what);
    end_debian_listing(d, rc, &e);
}

static const char *suite_of(const struct debian *d)
{
    return d->g->site->conf->suites[d->suite];
}

/* --- entries --- */

static int give_debian_entry(struct debian *d, struct slice path, uint64_t size_bytes,
                             const struct digest *digest, uint64_t ref, struct slice leader)
{
    struct sync_entry en = {.type = SYNC_FILE,
                            .path = path,
                            .size_bytes = size_bytes,
                            .mtime_ns = SYNC_TIME_UNKNOWN,
                            .digest_known = true,
                            .digest = *digest,
                            .leader = leader,
                            .ref = ref};

    return d->g->ev.on_entry(d->g->arg, &en);
}

/* --- indexes, in the forms that there are --- */

static struct slice bare_index_path(struct slice path)
{
    static const char *const ends[] = {".gz", ".xz", ".bz2", ".zst", ".lzma"};

    for (size_t i = 0; i < ARRAY_LEN(ends); i++) {
        if (slice_ends(path, slice_str(ends[i]))) {
            return slice_first(path, path.n - strlen(ends[i]));
        }
    }
    return path;
}

static const struct release_file *variant(const struct release *r, struct slice path,
                                          const char *ending)
{
    char name[512];

    snprintf(name, sizeof name, SLICE_FMT "%s", SLICE_ARG(path), ending);
    return release_find(r, slice_str(name));
}

/* Release also names what is only unpacked from what there is. */
static bool only_unpacked(const struct release *r, struct slice path)
{
    bool packed = false;

    for (size_t i = 0; i < PACKAGES_FORMS; i++) {
        packed = packed || (packages_form[i].how != PACKING_NONE &&
                            variant(r, path, packages_form[i].ending) != NULL);
    }
    return packed && bare_index_path(path).n == path.n;
}

static bool next_form(struct index *x)
{
    while (x->at < PACKAGES_FORMS && !x->form[x->at].named) {
        x->at++;
    }
    if (x->at == PACKAGES_FORMS) {
        return false;
    }
    strcpy(x->path + x->stem, packages_form[x->at].ending);
    return true;
}

/* Release names an index in several forms, some of which need not be there: once, at the first of
 * them that is named, it is put down to be read. */
static void note_index(struct debian *d, const struct release *r, const struct release_file *f)
{
    struct slice stem;
    bool sources;
    struct index *x;

    if (!packages_named(f->path, &stem, &sources)) {
        return;
    }
    x = NEW(struct index);
    x->d = d;
    x->sources = sources;
    x->path = mem_new(strlen(suite_of(d)) + stem.n + 32);
    x->stem = (size_t)sprintf(x->path, "dists/%s/" SLICE_FMT, suite_of(d), SLICE_ARG(stem));
    for (size_t i = 0; i < PACKAGES_FORMS; i++) {
        const struct release_file *form = variant(r, stem, packages_form[i].ending);
        x->form[i].named = form != NULL && form->size_bytes != 0;
        x->form[i].digest = form != NULL ? form->digest : x->form[i].digest;
    }
    if (next_form(x) && packages_form[x->at].how == packing_of(f->path, NULL)) {
        list_push_back(&d->waiting, &x->node);
    } else {
        free(x->path);
        free(x);
    }
}

/* --- the indexes --- */

static void index_free(struct index *x)
{
    doc_free(&x->doc);
    list_remove_if(&x->node);
    free(x->path);
    free(x);
}

static int on_listed_deb(void *arg, struct slice path, uint64_t size_bytes,
                         const struct digest *digest, struct err *e)
{
    struct debian *d = arg;
    int rc = give_debian_entry(d, path, size_bytes, digest, 0, SLICE_NONE);

    return rc != 0 ? err_set(e, rc, "the indexes list too many files; raise max_entries") : 0;
}

static int feed_debian_index(void *arg, struct slice bytes, struct err *e)
{
    return packages_feed(arg, bytes, e);
}

static int read_debian_index(struct index *x, struct err *e)
{
    struct packages_events ev = {on_listed_deb, x->d};
    struct packages *p = packages_open(x->sources, &ev);
    int rc = pieces_read(x->d->g->site->store, &x->form[x->at].digest,
                         packing_of(slice_str(x->path), NULL), feed_debian_index, p, e);

    rc = rc != 0 ? rc : packages_finish(p, e);
    packages_close(&p);
    return rc;
}

static void continue_debian_listing(struct debian *d);
static void begin_index(struct debian *d, struct index *x);

static void on_index(struct doc *doc, int rc)
{
    struct index *x = doc->arg;
    struct debian *d = x->d;
    struct err why = doc->why;

    if (rc == E_NOTFOUND && x->at + 1 < PACKAGES_FORMS) {
        x->at++;
        if (next_form(x)) {
            doc_free(&x->doc);
            list_remove(&x->node);
            d->count--;
            begin_index(d, x);
            continue_debian_listing(d);
            return;
        }
    }
    if (rc == 0) {
        err_clear(&why);
        rc = digest_eq(keep_digest(doc->keep), &x->form[x->at].digest)
                 ? read_debian_index(x, &why)
                 : err_set(&why, E_AGAIN, "its digest does not match the one in Release");
    } else if (rc == E_NOTFOUND) {
        rc = E_AGAIN; /* its Release has just been replaced */
    }
    d->count--;
    if (rc != 0) {
        fail_debian_listing(d, rc, x->path, &why);
        index_free(x);
        return;
    }
    index_free(x);
    continue_debian_listing(d);
}

static void ask_index(struct debian *d, struct index *x)
{
    char *url = http_url_of(d->g, slice_str(x->path));
    struct doc_want w = {.url = url, .keep_as = x->path, .max_bytes = INDEX_BYTES};

    list_push_back(&d->coming, &x->node);
    d->count++;
    x->doc = doc_open(d->g, &w, on_index, x);
    free(url);
}

/* What some repo holds is not fetched. */
static bool has_index(const struct index *x)
{
    struct blob *b = NULL;
    bool yes = blob_open(x->d->g->site->store, &x->form[x->at].digest, &b, NULL) == 0;

    blob_release(&b);
    return yes;
}

static void begin_index(struct debian *d, struct index *x)
{
    struct err why = {0};
    int rc;

    if (!has_index(x)) {
        ask_index(d, x);
        return;
    }
    rc = read_debian_index(x, &why);
    if (rc != 0) {
        fail_debian_listing(d, rc, x->path, &why);
    }
    index_free(x);
}

/* --- Release --- */

static int note_file(struct debian *d, const struct release *r, const struct release_file *f)
{
    char path[4200], leader[4200], hex[DIGEST_HEX + 1];
    int rc;

    if (f->path.n > 3900 || !release_wants(r, d->g->site->conf, f->path) ||
        only_unpacked(r, f->path)) {
        return 0;
    }
    snprintf(leader, sizeof leader, "dists/%s/" SLICE_FMT, suite_of(d), SLICE_ARG(f->path));
    rc = give_debian_entry(d, slice_str(leader), f->size_bytes, &f->digest,
                           REF_OPTIONAL | (r->by_hash ? REF_BY_HASH : 0), SLICE_NONE);
    if (rc == 0 && r->by_hash) {
        struct slice folder = slice_first(f->path, slice_behind(f->path, '/'));
        digest_format(&f->digest, hex);
        snprintf(path, sizeof path, "dists/%s/" SLICE_FMT "by-hash/SHA256/%s", suite_of(d),
                 SLICE_ARG(folder), hex);
        rc = give_debian_entry(d, slice_str(path), f->size_bytes, &f->digest, 0, slice_str(leader));
    }
    if (rc == 0) {
        note_index(d, r, f);
    }
    return rc;
}

static bool same_table(const struct release *a, const struct release *b)
{
    bool same = a->count == b->count;

    for (size_t i = 0; same && i < a->count; i++) {
        same = slice_eq(a->file[i].path, b->file[i].path) &&
               digest_eq(&a->file[i].digest, &b->file[i].digest);
    }
    return same;
}

static void suite_known(struct debian *d)
{
    const struct release *r = d->in_there ? &d->in : &d->plain;
    struct err e = {0};
    int rc = 0;

    if (!d->in_there && !d->plain_there) {
        rc = err_set(&e, E_NOTFOUND, "the upstream has neither InRelease nor Release");
    } else if (d->in_there && d->plain_there && !same_table(&d->in, &d->plain)) {
        rc = err_set(&e, E_AGAIN,
                     "InRelease and Release list different files: the upstream is being "
                     "updated; try again later");
    }
    d->left_out += r->left_out;
    for (size_t i = 0; rc == 0 && i < r->count; i++) {
        rc = note_file(d, r, &r->file[i]);
        if (rc != 0) {
            err_set(&e, rc, "the archive has too many files; raise max_entries");
        }
    }
    release_free(&d->in);
    release_free(&d->plain);
    if (rc != 0) {
        fail_debian_listing(d, rc, suite_of(d), &e);
        return;
    }
    d->suite++;
    continue_debian_listing(d);
}

static int take_release_head(struct debian *d, struct slice body, struct err *e)
{
    char path[512];
    struct digest digest;
    int rc = 0;

    if (d->head == 0) {
        rc = release_read(body, &d->in, e);
        d->in_there = rc == 0;
    } else if (d->head == 1) {
        rc = release_read(body, &d->plain, e);
        d->plain_there = rc == 0;
    }
    digest_of(body, &digest);
    snprintf(path, sizeof path, "dists/%s/%s", suite_of(d), heads[d->head]);
    return rc != 0 ? rc : give_debian_entry(d, slice_str(path), body.n, &digest, 0, SLICE_NONE);
}

static void ask_head(struct debian *d);

static void on_release_head(struct doc *doc, int rc)
{
    struct debian *d = doc->arg;
    struct err why = doc->why;

    if (rc == 0) {
        err_clear(&why);
        rc = take_release_head(d, buf_slice(&doc->body), &why);
    } else if (rc == E_NOTFOUND) {
        rc = 0;
    }
    doc_free(&d->doc);
    if (rc != 0) {
        fail_debian_listing(d, rc, heads[d->head], &why);
    } else if (++d->head < ARRAY_LEN(heads)) {
        ask_head(d);
    } else {
        suite_known(d);
    }
}

static void ask_head(struct debian *d)
{
    char path[512];
    char *url;

    snprintf(path, sizeof path, "dists/%s/%s", suite_of(d), heads[d->head]);
    url = http_url_of(d->g, slice_str(path));
    d->doc = doc_ask(d->g, url, NULL, RELEASE_BYTES, on_release_head, d);
    free(url);
}

static void continue_debian_listing(struct debian *d)
{
    if (d->over) {
        return;
    }
    if (d->suite < d->g->site->conf->suites_count) {
        if (d->doc == NULL && d->count == 0) {
            d->head = 0;
            d->in_there = d->plain_there = false;
            ask_head(d);
        }
        return;
    }
    while (!d->over && d->count < d->g->site->parallel && !list_empty(&d->waiting)) {
        begin_index(d, LIST_ITEM(list_pop_front(&d->waiting), struct index, node));
    }
    if (!d->over && d->count == 0) {
        end_debian_listing(d, 0, NULL);
    }
}

static void debian_start(struct http_engine *g)
{
    struct debian *d = NEW(struct debian);

    d->g = g;
    list_init(&d->waiting);
    list_init(&d->coming);
    g->lister_state = d;
    continue_debian_listing(d);
}

static void free_debian_indexes(struct list *indexes)
{
    LIST_EACH (indexes, it) {
        index_free(LIST_ITEM(it, struct index, node));
    }
}

static void debian_free(struct http_engine *g)
{
    struct debian *d = g->lister_state;

    if (d != NULL) {
        free_debian_indexes(&d->waiting);
        free_debian_indexes(&d->coming);
        doc_free(&d->doc);
        release_free(&d->in);
        release_free(&d->plain);
        free(d);
        g->lister_state = NULL;
    }
}

const struct lister lister_debian = {"debian", debian_start, debian_free, NULL, NULL};
