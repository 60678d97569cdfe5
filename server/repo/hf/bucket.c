/* bucket.c - buckets of a Hub: files without commits. What it lists of them is passed on without what leads to its chunk store, and
 * their files come by plain HTTP, as HfFileSystem reads them; download_bucket_files() of huggingface_hub takes no other way than
 * that store. A bucket changes at any time, so nothing of it is kept for ever. */
#include "server/repo/hf/hf.h"

#include <jansson.h>

#include "common/codec/jread.h"
#include "common/codec/url.h"

enum { LISTING_BYTES = 4 << 20, PATHS_MAX = 4096, ANSWER_BYTES = 8 << 20 };

#define NO_CHUNKS                                                                                  \
    "bucket; this mirror gives the files of buckets by plain HTTP alone: read them with "          \
    "HfFileSystem (hf://buckets/...), not with download_bucket_files, sync_bucket or `hf buckets`"

/* Clients print it: without a name in the Hub's chunk store they can only say that there is none. */
static void say_how(struct hf_ask *k)
{
    plan_field(k->p, SLICE("x-hf-warning"), SLICE(NO_CHUNKS));
}

static struct slice page_of(struct hf_ask *k, const char *behind, struct slice path)
{
    return arena_fmt(k->a, "api/buckets/" SLICE_FMT "%s%s" SLICE_FMT, SLICE_ARG(k->at.id), behind,
                     path.n != 0 ? "/" : "", SLICE_ARG(url_encoded(path, k->a)));
}

/* --- single paths: the Hub answers those by POST; what it lists below what they have in common, by GET ------------- */

/* Without a part of a character, or a '/', at its end. The Hub matches it letter by letter. */
static struct slice common_prefix(const json_t *paths)
{
    struct slice all = jread_slice(json_array_get(paths, 0));
    const json_t *one;
    size_t i, n;

    json_array_foreach(paths, i, one)
    {
        struct slice path = jread_slice(one);
        for (n = 0; n < all.n && n < path.n && all.p[n] == path.p[n]; n++) {
        }
        while (n > 0 && n < all.n && ((uint8_t)all.p[n] & 0xc0) == 0x80) {
            n--;
        }
        all.n = n;
    }
    while (all.n != 0 && all.p[all.n - 1] == '/') {
        all.n--;
    }
    return all;
}

static bool are_paths(const json_t *paths)
{
    const json_t *one;
    size_t i;

    json_array_foreach(paths, i, one)
    {
        struct slice path = jread_slice(one);
        if (path.n == 0 || !hf_is_path(path)) {
            return false;
        }
    }
    return json_is_array(paths) && json_array_size(paths) <= PATHS_MAX;
}

static int into_buf(const char *p, size_t n, void *arg)
{
    buf_add(arg, p, n);
    return ((struct buf *)arg)->rc != 0 ? -1 : 0;
}

static void write_files(const json_t *listing, const json_t *paths, struct buf *out)
{
    json_t *wanted = json_object();
    const json_t *one;
    size_t i;

    CHECK(wanted != NULL);
    json_array_foreach(paths, i, one)
    {
        (void)json_object_set_new(wanted, json_string_value(one), json_true());
    }
    buf_byte(out, '[');
    json_array_foreach(listing, i, one)
    {
        const char *path = json_string_value(json_object_get(one, "path"));
        if (path == NULL || json_object_get(wanted, path) == NULL ||
            !slice_eqs(jread_text(one, "type"), "file")) {
            continue;
        }
        if (out->n > 1) {
            buf_byte(out, ',');
        }
        (void)json_dump_callback(one, into_buf, out, JSON_COMPACT);
    }
    buf_byte(out, ']');
    json_decref(wanted);
}

static void say_files(struct hf_ask *k, const struct fact *f, const json_t *paths)
{
    struct buf out = BUF_INIT(ANSWER_BYTES);
    json_t *listing =
        f->bytes.n <= LISTING_BYTES ? jread_parse(f->bytes, 0, jread_values_of(f->bytes.n)) : NULL;

    if (!json_is_array(listing)) {
        say_error(k, 413, SLICE_NONE,
                  SLICE("what these paths have in common is too much of the bucket: ask for those "
                        "of one folder"));
    } else {
        write_files(listing, paths, &out);
        say_json(k, arena_copy(k->a, buf_slice(&out)));
        say_how(k);
    }
    json_decref(listing);
    buf_free(&out);
}

static void paths_of(struct hf_ask *k, const json_t *paths)
{
    struct slice prefix = common_prefix(paths);
    const struct fact *f;

    if (json_array_size(paths) == 0) {
        say_json(k, SLICE("[]"));
        return;
    }
    f = access_json(k, page_of(k, "/tree", arena_copy(k->a, prefix)), SLICE("recursive=true"),
                    false);
    if (f == NULL) {
        return;
    }
    k->stale = f->stale;
    if (f->rc != 0) {
        say_fact(k, f);
    } else {
        say_files(k, f, paths);
    }
}

static void plan_paths(struct hf_ask *k)
{
    const struct fact *body = plan_request_body(k->facts, k->p);
    json_t *o;

    if (body == NULL) {
        return;
    }
    o = body->rc == 0 ? jread_parse(body->bytes, JSON_REJECT_DUPLICATES, 2 * PATHS_MAX) : NULL;
    if (!are_paths(json_object_get(o, "paths"))) {
        say_error(k, 400, SLICE_NONE, SLICE("the body is {\"paths\": [...]}, of at most 4096"));
    } else {
        paths_of(k, json_object_get(o, "paths"));
    }
    json_decref(o);
}

/* --- a file ------------------------------------------------------------------------------------------------------- */

/* Is it everybody's? False: the plan asks, or says no. */
static bool learn_open(struct hf_ask *k)
{
    const struct fact *f = access_word(k, page_of(k, "", SLICE("")), HF_MAKE_BUCKET);
    json_t *o;

    if (f == NULL) {
        return false;
    }
    if (f->rc != 0) {
        say_fact(k, f);
        return false;
    }
    o = jread_parse(f->bytes, 0, jread_values_of(f->bytes.n));
    k->closed = (k->reader.n != 0 || !json_is_false(json_object_get(o, "private"))) &&
                !((const struct hf *)k->r->state)->service;
    k->until_unix_s = f->stale ? 1 : f->until_unix_s;
    json_decref(o);
    return true;
}

static void plan_file(struct hf_ask *k)
{
    struct slice key =
        arena_fmt(k->a, "buckets/" SLICE_FMT "/resolve/" SLICE_FMT, SLICE_ARG(k->at.id),
                  SLICE_ARG(url_encoded_path(k->at.path, k->a)));
    struct want w;

    if (!learn_open(k) || !access_want(k, key, key, &w)) {
        return;
    }
    if (k->closed) {
        if (k->token.p == NULL) {
            say_error(k, 401, SLICE("RepoNotFound"),
                      SLICE("the Hub shows this bucket only to those who have a right to it"));
            return;
        }
        access_as_caller(k, &w);
    }
    k->p->kind = PLAN_WANT;
    k->p->want = w;
    k->p->own_fields = true;
    k->p->for_all = !k->closed;
    k->p->until_unix_s = k->until_unix_s;
    k->p->content_type = SLICE("application/octet-stream");
    k->p->cache_control = k->closed ? SLICE("private, no-cache") : SLICE("no-cache");
    if (k->req->method == METHOD_HEAD) {
        say_how(k);
    }
}

void bucket_plan(struct hf_ask *k)
{
    if (slice_eqs(k->at.verb, "resolve")) {
        plan_file(k);
    } else if (slice_eqs(k->at.verb, "paths-info")) {
        plan_paths(k);
    } else if (slice_eqs(k->at.verb, "tree")) {
        hf_plan_json(k, page_of(k, "/tree", k->at.path), false);
    } else {
        hf_plan_json(k, page_of(k, "", SLICE("")), false);
    }
}
