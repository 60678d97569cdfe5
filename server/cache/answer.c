/* answer.c - the answers that callers get, made from a blob, a fetch, or an error of the origin;
 * and the body of a sealed blob. */

#include <stdlib.h>

#include "common/codec/httpdate.h"
#include "common/os/clock.h"
#include "server/cache/cache_priv.h"

enum { ANSWER_MAGIC = 0x616e7377, REFUSAL_BYTES = 512 };

struct answer_box { /* what callers see of it is `pub` */
    struct answer pub;
    uint32_t magic;
    _Atomic uint32_t refs;
    struct arena arena;
    struct object object; /* pub's fields point here */
    struct fetch *fetch;  /* held; or NULL */
};

static struct answer_box *box_of(struct answer *a)
{
    struct answer_box *x = CONTAINER_OF(a, struct answer_box, pub);
    CHECK(x->magic == ANSWER_MAGIC);
    return x;
}

static struct answer_box *box_new(int status, enum cache_state state)
{
    struct answer_box *x = NEW(struct answer_box);

    x->magic = ANSWER_MAGIC;
    atomic_init(&x->refs, 1);
    x->pub.status = status;
    x->pub.state = state;
    x->pub.total_bytes = LENGTH_UNKNOWN;
    return x;
}

struct answer *answer_hold(struct answer *a)
{
    atomic_fetch_add_explicit(&box_of(a)->refs, 1, memory_order_relaxed);
    return a;
}

void answer_release(struct answer **ap)
{
    struct answer_box *x;

    if (*ap == NULL) {
        return;
    }
    x = box_of(*ap);
    *ap = NULL;
    if (atomic_fetch_sub_explicit(&x->refs, 1, memory_order_acq_rel) != 1) {
        return;
    }
    blob_release(&x->pub.blob);
    if (x->fetch != NULL) {
        fetch_given_back(x->fetch);
    }
    fetch_release(&x->fetch);
    arena_fini(&x->arena);
    x->magic = 0;
    free(x);
}

struct slice answer_field(const struct answer *a, const char *name)
{
    for (size_t i = 0; i < a->nfields; i++) {
        if (slice_eqs(a->fields[i].name, name)) {
            return a->fields[i].value;
        }
    }
    return SLICE_NONE;
}

int answer_rc(const struct answer *a)
{
    return a->status == 200                       ? 0
           : a->status == 404 || a->status == 410 ? E_NOTFOUND
           : a->status == 401 || a->status == 403 ? E_DENIED
           : a->why.code != 0                     ? a->why.code
                                                  : E_NETWORK;
}

/* The origin has just given or confirmed it, for this request. */
static bool is_first_hand(enum cache_state s)
{
    return s == CACHE_MISS || s == CACHE_REFRESHED || s == CACHE_REVALIDATED;
}

/* Few answers have a list in their Cache-Control. */
static bool may_withhold(const struct object *o)
{
    for (size_t i = 0; i < o->nfields; i++) {
        if (slice_eqs(o->fields[i].name, "cache-control") &&
            slice_find(o->fields[i].value, '"') >= 0) {
            return true;
        }
    }
    return false;
}

static void describe_fields(struct answer_box *x, const struct object *o)
{
    struct answer *p = &x->pub;
    bool lists = may_withhold(o);

    p->fields = x->object.fields;
    p->nfields = 0;
    for (size_t i = 0; i < o->nfields; i++) {
        const struct http_field *f = &o->fields[i];
        bool withheld = lists && freshness_withholds(o->fields, o->nfields, f->name);
        p->once = p->once || withheld;
        if (!withheld || is_first_hand(p->state)) {
            x->object.fields[p->nfields++] = (struct http_field){arena_copy(&x->arena, f->name),
                                                                 arena_copy(&x->arena, f->value)};
        }
    }
    x->object.nfields = p->nfields;
    p->once = p->once && is_first_hand(p->state);
}

/* o's strings are copied: a row's and a fetch's arena have lives of their own. */
static void describe_answer_object(struct answer_box *x, const struct object *o)
{
    struct answer *p = &x->pub;

    p->etag = arena_copy_opt(&x->arena, o->etag);
    p->origin_etag = arena_copy_opt(&x->arena, o->origin_etag);
    p->etag_weak = slice_starts(o->origin_etag, SLICE("W/\"")) ? p->origin_etag : SLICE_NONE;
    p->content_type = arena_copy_opt(&x->arena, o->content_type);
    p->url = arena_copy_opt(&x->arena, o->url);
    describe_fields(x, o);
    /* Age counts from when the origin made it: what was old on arrival was stored earlier, so to
     * say. */
    p->stored_unix_s = o->validated_unix_s - min_u64(o->age_s, o->validated_unix_s);
    p->validated_unix_s = o->validated_unix_s;
    p->age_s = o->age_s;
    if (o->last_modified.p != NULL &&
        !httpdate_parse(o->last_modified, clock_unix_s(), &p->last_modified_s)) {
        p->last_modified_s = 0;
    }
}

static void set_digest(struct answer_box *x, const struct digest *d)
{
    char hex[DIGEST_HEX + 1];

    x->pub.digest_known = true;
    x->pub.digest = *d;
    digest_format(d, hex);
    x->pub.etag_alias = arena_fmt(&x->arena, "\"sha256-%s\"", hex);
    if (slice_eq(x->pub.etag_alias, x->pub.etag)) {
        x->pub.etag_alias = SLICE_NONE;
    }
}

struct answer *answer_of_blob(struct cache *c, const struct object *o, struct blob *b,
                              const struct lookup *w, enum cache_state state)
{
    struct answer_box *x = box_new(200, state);

    (void)c;
    describe_answer_object(x, o);
    x->pub.blob = blob_hold(b);
    x->pub.total_bytes = o->size_bytes;
    set_digest(x, &o->digest);
    x->pub.fresh_until_unix_s = freshness_until(o, w);
    return &x->pub;
}

struct answer *answer_of_fetch(struct fetch *f, const struct lookup *w, enum cache_state state)
{
    struct answer_box *x = box_new(200, state);

    describe_answer_object(x, fetch_object(f));
    x->fetch = fetch_hold(f);
    fetch_answered(f, w);
    x->pub.total_bytes = fetch_view(f).total_bytes;
    if (fetch_lookup(f)->digest_known) {
        set_digest(x, &fetch_lookup(f)->digest);
    }
    x->pub.fresh_until_unix_s =
        fetch_keeps(f) ? freshness_until(fetch_object(f), fetch_lookup(f)) : 0;
    return &x->pub;
}

struct answer *answer_of_status(struct cache *c, int status, enum cache_state state,
                                uint32_t retry_after_s, const struct err *why)
{
    struct answer_box *x = box_new(status, state);

    (void)c;
    x->pub.total_bytes = 0;
    x->pub.retry_after_s = retry_after_s;
    x->pub.stored_unix_s = x->pub.validated_unix_s = clock_unix_s();
    if (why != NULL) {
        x->pub.why = *why;
    }
    return &x->pub;
}

/* Of a no only what explains it: 401, 403, 404, 410. */
static struct answer *of_refusal(int status, enum cache_state state, const struct origin_head *h)
{
    static const char *const reported[] = {"x-error-code", "x-error-message"};
    struct answer_box *x = box_new(status, state);

    x->pub.total_bytes = 0;
    x->pub.stored_unix_s = x->pub.validated_unix_s = clock_unix_s();
    x->pub.fields = x->object.fields;
    for (size_t i = 0; i < ARRAY_LEN(reported); i++) {
        struct slice value = slice_trim(origin_head_field(h, reported[i]));
        if (value.n > 0 && value.n <= REFUSAL_BYTES) {
            x->object.fields[x->pub.nfields++] =
                (struct http_field){slice_str(reported[i]), arena_copy(&x->arena, value)};
        }
    }
    return &x->pub;
}

static void add_field(struct answer_box *x, const char *name, struct slice value)
{
    if (value.p != NULL && x->pub.nfields < OBJECT_FIELDS) {
        x->object.fields[x->pub.nfields++] =
            (struct http_field){slice_str(name), arena_copy(&x->arena, value)};
    }
}

/* What a head says of its object, which is just now. */
static struct object *object_of_head(struct cache *c, const struct origin_head *h, struct arena *a)
{
    struct object *o = NEW(struct object);
    struct freshness fresh;

    object_learn(o, h, a);
    freshness_read(h->fields, h->nfields, NULL, clock_unix_s(), c->set.default_ttl_s, &fresh);
    o->validated_unix_s = clock_unix_s();
    o->age_s = fresh.age_s;
    return o;
}

static struct answer *of_words(struct cache *c, int status, enum cache_state state,
                               const struct origin_head *h, struct slice text)
{
    struct answer_box *x = box_new(status, state);
    struct arena a = {0};
    struct object *o = object_of_head(c, h, &a);

    describe_answer_object(x, o);
    add_field(x, "etag", o->origin_etag);
    add_field(x, "last-modified", o->last_modified);
    x->pub.total_bytes = text.n;
    x->pub.text = arena_copy(&x->arena, text);
    x->pub.retry_after_s = status == 503 ? BUSY_S : 0; /* no words of trouble say it themselves */
    arena_fini(&a);
    free(o);
    return &x->pub;
}

struct answer *answer_of_error(struct cache *c, struct fetch *f, int status, enum cache_state state,
                               const struct origin_head *h)
{
    return fetch_text(f).p != NULL && status == h->status
               ? of_words(c, status, state, h, fetch_text(f))
               : of_refusal(status, state, h);
}

struct answer *answer_of_head(struct cache *c, const struct origin_head *h, const struct lookup *w)
{
    struct answer_box *x = box_new(200, CACHE_MISS);
    struct arena a = {0};
    struct object *o = object_of_head(c, h, &a);
    char hex[DIGEST_HEX + 1];

    if (etag_is_strong(o->origin_etag)) {
        o->etag = o->origin_etag;
    } else if (w->digest_known) {
        digest_format(&w->digest, hex);
        o->etag = arena_fmt(&a, "\"sha256-%s\"", hex);
    }
    describe_answer_object(x, o);
    x->pub.total_bytes = h->content_length;
    if (w->digest_known) {
        set_digest(x, &w->digest);
    }
    arena_fini(&a);
    free(o);
    return &x->pub;
}

/* --- bodies ----------------------------------------------------------------------------------- */

struct sealed { /* a body out of a sealed blob: all of it may be sent */
    struct body body;
    struct answer *answer; /* held */
    struct cache *cache;
};

struct suspect { /* a blob that the disk could not read */
    struct job job;
    struct store *store;
    struct digest digest;
};

static void check_suspect(struct job *j)
{
    struct suspect *x = CONTAINER_OF(j, struct suspect, job);

    damage_suspect(x->store, &x->digest);
    free(x);
}

void cache_suspect(struct cache *c, const struct blob *b)
{
    struct suspect *x = NEW(struct suspect);

    *x = (struct suspect){
        .job = {.work = check_suspect}, .store = c->store, .digest = *blob_digest(b)};
    pool_submit(c->disk, &x->job, CLIENT_PROGRAM);
}

static void sealed_close(struct body *b)
{
    struct sealed *s = CONTAINER_OF(b, struct sealed, body);

    if (b->unreadable && s->answer->blob != NULL) {
        cache_suspect(s->cache, s->answer->blob);
    }
    answer_release(&s->answer);
    free(s);
}

struct body *answer_body(struct cache *c, struct answer *a, struct loop *l, uint64_t first,
                         uint64_t end)
{
    static const struct body_ops ops = {.close = sealed_close};
    struct answer_box *x = box_of(a);
    struct sealed *s;

    CHECK(a->status == 200);
    if (x->fetch != NULL) {
        return fetch_body(x->fetch, a, l, first, end);
    }
    s = NEW(struct sealed);
    s->answer = answer_hold(a);
    s->cache = c;
    s->body =
        (struct body){.ops = &ops, .off = first, .end = min_u64(end, a->total_bytes), .fd = -1};
    /* Neither a fetch nor a blob: the answer to a HEAD, which has a length and no bytes to send. */
    if (a->blob != NULL) {
        s->body.fd = blob_fd(a->blob);
        s->body.bytes = s->body.fd == -1 ? blob_bytes(a->blob).p : NULL;
    }
    return &s->body;
}
