/* bucket.c - buckets of a Hub: files without commits. docs/protocols/hf.md
 *
 * A bucket changes at any time, but the Hub's listings have the hash of each file's content beside
 * its path. The bytes are stored by that hash, for ever; the hash of a path is requested again when
 * the listing is stale. A fetch names the hash that it expects (lookup.content), so bytes of other
 * content are never stored under it: in that case the listing is requested again.
 *
 * Listings are stored separately, and each is fresh for its own time, but all that is sent of a
 * bucket is of one state: a listing that shows an upload invalidates earlier ones (learn_change()).
 * So no answer is kept in memory that the next request might not get.
 *
 * Clients read a path over HTTP, or a hash from a chunk store. Ours is file.c's, with other
 * addresses: the Hub gives bytes by path alone, and a client of a chunk store only sends the hash.
 * So the token's address has the path that the client requested last (`rev`, a hint where to look
 * for hashes), and the data's address has size and path.
 */
#include "server/repo/hf/hf.h"

#include <inttypes.h>
#include <jansson.h>

#include "common/base/endian.h"
#include "common/codec/jread.h"
#include "common/codec/url.h"
#include "common/os/clock.h"
#include "server/cache/object.h"
#include "server/repo/hf/catalog.h"
#include "server/repo/hf/key.h"
#include "server/repo/hf/xet.h"
#include "server/repo/hf/xorb.h"

enum { PATHS_MAX = 4096, ANSWER_BYTES = 8 << 20 };

#define NO_CHUNKS                                                                                  \
    "bucket; the Xet store of this mirror is disabled: read buckets with HfFileSystem "            \
    "(hf://buckets/...), not with download_bucket_files, sync_bucket or `hf buckets`"

#define EVERYWHERE "-"        /* a hint: there is none */
#define ENTITLED   "entitled" /* whose the bytes of a private bucket are, here */

enum {
    LOOKUP_S = 3600
}; /* so old may a listing be in which a hash is found: the fetch notices what has changed */

static bool has_chunks(const struct hf_ask *k)
{
    return k->r->xet_from_bytes != UINT64_MAX;
}

/* Clients print it: without a name in a chunk store they can only say that there is none. */
static void say_how(struct hf_ask *k)
{
    if (!has_chunks(k)) {
        plan_field(k->p, SLICE("x-hf-warning"), SLICE(NO_CHUNKS));
    }
}

static struct slice page_of(struct hf_ask *k, const char *behind, struct slice path)
{
    return arena_fmt(k->a, "api/buckets/" SLICE_FMT "%s%s" SLICE_FMT, SLICE_ARG(k->at.id), behind,
                     path.n != 0 ? "/" : "", SLICE_ARG(url_encoded(path, k->a)));
}

/* --- what has changed ------------------------------------------------------------------------- */

/* The note (TABLE_LAST_WORD) is a row of 8 bytes for each bucket in which an upload was seen while
 * it was read. */
enum { NOTE_BYTES = 8, CALM_S = 5 };

static struct slice note_key(struct hf_ask *k)
{
    return openness_key(k->r->name, SLICE("listings"), k->at.id, k->a);
}

/* Settles changed_unix_s. False: the plan asks. */
static bool learn_note(struct hf_ask *k)
{
    const struct result *f = plan_row(k->results, TABLE_LAST_WORD, note_key(k), k->p);

    if (f != NULL && f->rc == 0 && f->bytes.n == NOTE_BYTES) {
        k->changed_unix_s = be_get(f->bytes.p, NOTE_BYTES);
    }
    if (k->changed_unix_s > k->req->unix_s + 1) {
        k->changed_unix_s = 0; /* the clock has been set back */
    }
    return f != NULL;
}

/* From when on a listing has this upload, as the mirror dates them: in seconds, and by its own
 * clock. A Hub whose clock is ahead dates uploads later than the listing that shows them. */
static uint64_t listed_since(uint64_t uploaded_unix_s, uint64_t listed_unix_s)
{
    return uploaded_unix_s <= listed_unix_s ? uploaded_unix_s + 1 : listed_unix_s;
}

/* What was listed before the last upload in this listing is old. It is noted where such a listing
 * may be here, and not for each of many uploads: between two notes the listings live for CALM_S, so
 * that the Hub is not asked for all of them again and again. False: the plan writes. */
static bool learn_change(struct hf_ask *k, const struct result *listing, uint64_t uploaded_unix_s)
{
    uint64_t former = k->changed_unix_s;
    uint64_t since = listed_since(uploaded_unix_s, listing->spoken_unix_s);
    uint64_t life_s =
        2 * (uint64_t)listing->dependency.lookup.ttl_s; /* and stale for as long as fresh */
    const struct result *row;
    char *bytes;

    if (uploaded_unix_s == 0 || since <= former || k->req->unix_s < former + CALM_S ||
        since + life_s <= k->req->unix_s) {
        return true;
    }
    k->changed_unix_s = since;
    if (k->change_noted) {
        return true;
    }
    k->change_noted = true;
    row = plan_row(k->results, TABLE_LAST_WORD, note_key(k), k->p);
    if (row == NULL) {
        return false;
    }
    bytes = arena_alloc(k->a, NOTE_BYTES);
    be_put(bytes, NOTE_BYTES, since);
    return plan_put_row(k->results, TABLE_LAST_WORD, note_key(k),
                        row->rc == 0 ? row->bytes : SLICE_NONE, slice_of(bytes, NOTE_BYTES),
                        k->p) != NULL;
}

/* A catalog, as access_listing() says. NULL: the plan asks, or writes. */
static const struct result *list_bucket_page(struct hf_ask *k, struct slice page,
                                             struct slice query, const char *make, bool one_part,
                                             uint32_t least_s)
{
    const struct result *f = access_listing(k, page, query, make, one_part, least_s);

    return f != NULL && f->rc == 0 && !learn_change(k, f, catalog_uploaded_unix_s(f->bytes)) ? NULL
                                                                                             : f;
}

/* The same of a listing that is passed on. */
static const struct result *list_json(struct hf_ask *k, struct slice page, struct slice query)
{
    const struct result *f = access_json(k, page, query, false), *up;

    if (f == NULL || f->rc != 0) {
        return f;
    }
    up = access_listing(k, page, query, HF_MAKE_UPLOADS, true, 0);
    return up == NULL || (up->rc == 0 && !learn_change(k, up, uploads_unix_s(up->bytes))) ? NULL
                                                                                          : f;
}

/* --- whom it is open to ----------------------------------------------------------------------- */

static bool is_private(struct slice info)
{
    json_t *o = jread_parse(info, 0, jread_values_of(info.n));
    bool yes = !json_is_false(json_object_get(o, "private"));

    json_decref(o);
    return yes;
}

/* Settles reader, closed and until_unix_s: what leaves of a private bucket leaves for a caller to
 * whom the Hub has shown the bucket. False: the plan asks, or says no. */
static bool learn_open(struct hf_ask *k)
{
    struct slice page = page_of(k, "", SLICE(""));
    const struct result *f = access_word(k, page, HF_MAKE_BUCKET);
    bool service = ((const struct hf *)k->r->state)->service;

    if (f != NULL && f->rc == 0 && !service && k->reader.n == 0 && is_private(f->bytes)) {
        if (k->token.p == NULL) {
            say_error(k, 401, SLICE("RepoNotFound"),
                      SLICE("the Hub shows this bucket only to users who have access to it"));
            return false;
        }
        k->reader = k->caller; /* that everybody is shown it says nothing of its files */
        f = access_word(k, page, HF_MAKE_BUCKET);
    }
    if (f == NULL) {
        return false;
    }
    if (f->rc != 0) {
        say_result(k, f);
        return false;
    }
    k->closed = k->reader.n != 0 && !service;
    k->until_unix_s = k->open_until_unix_s = f->stale ? 1 : f->until_unix_s;
    k->stale = f->stale;
    k->in_trouble = f->in_trouble;
    return learn_note(k);
}

static void rest_on(struct hf_ask *k, const struct result *f)
{
    k->until_unix_s = min_u64(k->until_unix_s, f->stale ? 1 : f->until_unix_s);
    k->stale = k->stale || f->stale;
    k->in_trouble = k->in_trouble || f->in_trouble;
}

/* --- single paths -----------------------------------------------------------------------------
 *
 * The Hub answers those by POST; here they are found in what it lists by GET.
 */

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

static int compare_bucket_paths(const void *a, const void *b)
{
    return slice_cmp(*(const struct slice *)a, *(const struct slice *)b);
}

/* Each once, in the order of the Hub's listings. */
static struct slice *sorted(const json_t *paths, struct arena *a, size_t *count)
{
    struct slice *out = arena_alloc(a, json_array_size(paths) * sizeof *out);
    const json_t *one;
    size_t i, n = 0;

    json_array_foreach(paths, i, one)
    {
        out[i] = jread_slice(one);
    }
    qsort(out, json_array_size(paths), sizeof *out, compare_bucket_paths);
    for (i = 0; i < json_array_size(paths); i++) {
        if (n == 0 || !slice_eq(out[i], out[n - 1])) {
            out[n++] = out[i];
        }
    }
    *count = n;
    return out;
}

/* The Hub's listing of all whose path begins with this one, as far as it is needed to find the file
 * of that very path. That sorts before all others, so the first part is enough where the Hub lists
 * in order: the rest may be the whole bucket, for a path of one letter that a client chose. NULL:
 * the plan asks. */
static const struct result *list_at(struct hf_ask *k, struct slice path, const char *make,
                                    struct catalog_file *out, bool *here)
{
    struct slice page = page_of(k, "/tree", path), query = SLICE("recursive=true");
    const struct result *f = list_bucket_page(k, page, query, make, true, 0);

    *here = f != NULL && f->rc == 0 && catalog_find(f->bytes, path, out);
    if (f == NULL || f->rc != 0 || *here || f->next.p == NULL || catalog_in_order(f->bytes)) {
        return f;
    }
    f = list_bucket_page(k, page, query, make, false, 0);
    *here = f != NULL && f->rc == 0 && catalog_find(f->bytes, path, out);
    return f;
}

/* So many are looked for one by one: each has a listing of its own, which begins with it. */
enum { APART_MAX = 3 };

struct answered { /* the files of the answer */
    struct catalog_file *at;
    size_t count;
};

static void add_found(struct answered *to, struct slice catalog, struct slice path)
{
    to->count += catalog_find(catalog, path, &to->at[to->count]);
}

static void say_files(struct hf_ask *k, const struct answered *found)
{
    struct buf out = BUF_INIT(ANSWER_BYTES);

    buf_byte(&out, '[');
    for (size_t i = 0; i < found->count; i++) {
        if (i > 0) {
            buf_byte(&out, ',');
        }
        buf_adds(&out, found->at[i].words);
    }
    buf_byte(&out, ']');
    if (out.rc != 0) {
        say_error(k, 413, SLICE_NONE, SLICE("the request is too large; request fewer paths"));
    } else {
        say_json(k, arena_copy(k->a, buf_slice(&out)));
        say_how(k);
    }
    buf_free(&out);
}

/* The files among these paths. The first part of what is below their common beginning has them all,
 * as a rule, and says where it ends; what is behind that is looked for one by one, and only of many
 * paths all parts are read. False: the plan asks, or refuses. */
static bool find_paths(struct hf_ask *k, struct slice prefix, const struct slice *path,
                       size_t count, struct answered *out)
{
    struct slice page = page_of(k, "/tree", prefix), query = SLICE("recursive=true");
    const struct result *f = list_bucket_page(k, page, query, HF_MAKE_FILES, true, 0);
    size_t here = 0;

    if (f != NULL && f->rc == 0 && f->next.p != NULL) {
        while (here < count && catalog_reaches(f->bytes, path[here])) {
            here++;
        }
        if (count - here > APART_MAX || !catalog_in_order(f->bytes)) {
            f = list_bucket_page(k, page, query, HF_MAKE_FILES, false, 0);
            here = count;
        }
    } else {
        here = count;
    }
    if (f == NULL) {
        return false;
    }
    rest_on(k, f);
    if (f->rc != 0) {
        say_result(k, f);
        return false;
    }
    for (size_t i = 0; i < here; i++) {
        add_found(out, f->bytes, path[i]);
    }
    for (size_t i = here; i < count; i++) {
        struct catalog_file file;
        bool there;
        f = list_at(k, path[i], HF_MAKE_FILES, &file, &there);
        if (f == NULL) {
            return false;
        }
        rest_on(k, f);
        if (f->rc != 0) {
            say_result(k, f);
            return false;
        }
        if (there) {
            out->at[out->count++] = file;
        }
    }
    return true;
}

static void paths_of(struct hf_ask *k, const json_t *paths)
{
    struct answered found = {.at = arena_alloc(k->a, json_array_size(paths) * sizeof *found.at)};
    struct slice prefix = arena_copy(k->a, common_prefix(paths));
    struct slice *path;
    size_t count;

    if (json_array_size(paths) == 0) {
        say_json(k, SLICE("[]"));
        return;
    }
    path = sorted(paths, k->a, &count);
    if (learn_open(k) && find_paths(k, prefix, path, count, &found)) {
        say_files(k, &found);
    }
}

static void plan_bucket_paths(struct hf_ask *k)
{
    const struct result *body = plan_request_body(k->results, k->p);
    json_t *o;

    if (body == NULL) {
        return;
    }
    o = body->rc == 0 ? jread_parse(body->bytes, JSON_REJECT_DUPLICATES, 2 * PATHS_MAX) : NULL;
    if (!are_paths(json_object_get(o, "paths"))) {
        say_error(k, 400, SLICE_NONE,
                  SLICE("invalid body: it must be {\"paths\": [...]}, with at most 4096 paths"));
    } else {
        paths_of(k, json_object_get(o, "paths"));
    }
    json_decref(o);
}

/* --- where a file is -------------------------------------------------------------------------- */

static struct slice folder_of_bucket_path(struct slice path)
{
    size_t n = slice_behind(path, '/');

    return slice_first(path, n > 0 ? n - 1 : 0);
}

/* Clients of HfFileSystem have just listed the folder: its first part is kept here. What is not in
 * that is looked for by its own path. False: the plan asks, or says that there is none. */
static bool find_file(struct hf_ask *k, struct catalog_file *out)
{
    const struct result *f = NULL;
    bool here;

    if (k->req->method == METHOD_GET) {
        f = list_bucket_page(k, page_of(k, "/tree", folder_of_bucket_path(k->at.path)),
                             SLICE("recursive=false"), HF_MAKE_PATHS, true, 0);
        if (f == NULL) {
            return false;
        }
    }
    if (f == NULL || f->rc != 0 || !catalog_find(f->bytes, k->at.path, out)) {
        f = list_at(k, k->at.path, HF_MAKE_PATHS, out, &here);
        if (f == NULL) {
            return false;
        }
        if (f->rc != 0) {
            say_result(k, f);
            return false;
        }
        if (!here) {
            say_error(k, 404, SLICE("EntryNotFound"),
                      arena_fmt(k->a, "no \"" SLICE_FMT "\" in bucket " SLICE_FMT,
                                SLICE_ARG(k->at.path), SLICE_ARG(k->at.id)));
            return false;
        }
    }
    rest_on(k, f);
    return true;
}

/* Is the file that the client looked at last the one that has the hash? The client says which one
 * that was, so no more is listed for it than for any path. False: the plan asks. */
static bool look_at_hint(struct hf_ask *k, const struct digest *d, struct catalog_file *out,
                         bool *here, const struct result **fp)
{
    *here = false;
    if (k->at.rev.n == 0 || slice_eqs(k->at.rev, EVERYWHERE)) {
        return true;
    }
    *fp = list_at(k, k->at.rev, HF_MAKE_PATHS, out, here);
    *here = *here && out->named && digest_eq(&out->hash, d);
    return *fp != NULL;
}

/* In the listing of the whole bucket. *here is false where it does not have the hash, or cannot be
 * had. False: the plan asks. */
static bool look_for_hash(struct hf_ask *k, uint32_t least_s, const struct digest *d,
                          struct catalog_file *out, bool *here, const struct result **fp)
{
    const struct result *f = list_bucket_page(
        k, page_of(k, "/tree", SLICE("")), SLICE("recursive=true"), HF_MAKE_HASHES, false, least_s);

    *fp = f;
    if (f == NULL) {
        return false;
    }
    *here = f->rc == 0 && catalog_find_hash(f->bytes, d, out);
    return true;
}

/* A client may have the hash from a listing of before. What is kept under it is whole, so no path
 * is needed; the hash stands in its place. False: the plan asks. */
static bool look_for_kept(struct hf_ask *k, const struct digest *d, struct catalog_file *out,
                          bool *here)
{
    struct slice row =
        access_row(k, key_bucket_file(k->at.id, d, k->a), k->closed ? SLICE(ENTITLED) : SLICE(""));
    const struct result *f = plan_row(k->results, TABLE_OBJECT, row, k->p);
    char hex[DIGEST_HEX + 1];
    struct object o;

    if (f == NULL) {
        return false;
    }
    *here = f->rc == 0 && object_decode(f->bytes, k->a, &o);
    if (*here) {
        digest_format(d, hex);
        *out = (struct catalog_file){.path = arena_copy(k->a, slice_str(hex)),
                                     .size_bytes = o.size_bytes,
                                     .named = true,
                                     .hash = *d};
    }
    return true;
}

/* At the hint, else in the whole bucket, as it was or as it is now, else here. False: the plan
 * asks, or says that there is none. */
static bool find_hash(struct hf_ask *k, const struct digest *d, struct catalog_file *out)
{
    const struct result *f;
    bool here = false;

    if (!look_at_hint(k, d, out, &here, &f) ||
        (!here && !look_for_hash(k, LOOKUP_S, d, out, &here, &f)) ||
        (!here && !look_for_hash(k, 0, d, out, &here, &f))) {
        return false;
    }
    if (here) {
        rest_on(k, f);
    } else if (!look_for_kept(k, d, out, &here) || here) {
        return here;
    } else if (f->rc != 0) {
        say_result(k, f);
    } else {
        say_error(k, 404, SLICE("EntryNotFound"),
                  SLICE("no file of this bucket has that content now; list the bucket again"));
    }
    return here;
}

/* --- a file ----------------------------------------------------------------------------------- */

static struct xet_place place_at(const struct hf_ask *k, struct slice at)
{
    return (struct xet_place){.home = plan_home(k->r, k->req, k->raw, k->a),
                              .type = k->at.type,
                              .id = k->at.id,
                              .commit = url_encoded(at, k->a)};
}

static struct slice resolve_path(struct hf_ask *k, struct slice path)
{
    return arena_fmt(k->a, "buckets/" SLICE_FMT "/resolve/" SLICE_FMT, SLICE_ARG(k->at.id),
                     SLICE_ARG(url_encoded_path(path, k->a)));
}

/* The plan becomes these bytes, kept by their hash. False: a rule denies it. */
static bool lookup_content(struct hf_ask *k, const struct catalog_file *f)
{
    struct slice path = resolve_path(k, f->path);
    char hex[DIGEST_HEX + 1];
    struct lookup w;

    if (!access_lookup(k, path, path, &w)) {
        return false;
    }
    digest_format(&f->hash, hex);
    w.key = key_bucket_file(k->at.id, &f->hash, k->a);
    w.content = arena_copy(k->a, slice_str(hex));
    w.class = LOOKUP_IMMUTABLE;
    w.size_bytes = f->size_bytes;
    w.redirects = REDIRECTS_HOLD;
    w.refusal_ttl_s = w.neg_ttl_s = 0; /* a no is about the path */
    w.errors &= ~(unsigned)REFUSALS_END_KEPT;
    if (k->closed) {
        w.authorization = k->token;
        w.principal = SLICE(ENTITLED);
    }
    plan_become(k->p, PLAN_LOOKUP);
    k->p->lookup = w;
    k->p->etag = arena_fmt(k->a, "\"%s\"", hex);
    return true;
}

/* A file whose hash the Hub does not give: by its path, and asked for again as a document is. */
static bool lookup_path(struct hf_ask *k)
{
    struct slice key = resolve_path(k, k->at.path);
    struct lookup w;

    if (!access_lookup(k, key, key, &w)) {
        return false;
    }
    if (k->closed) {
        access_as_caller(k, &w);
    }
    plan_become(k->p, PLAN_LOOKUP);
    k->p->lookup = w;
    return true;
}

/* By a rule that leaves it to the origin a copy by path holds for so long, too: there is no word of
 * the origin on hashes. */
enum { BY_PATH_S = 60 };

/* Is the file's copy one that was kept by its path, because the Hub's answer named no content, or
 * another one each time? While that copy is fresh, or the Hub is silent, the Hub is not asked for
 * the content again. A copy under the listed hash goes first. False: the plan asks, or a rule
 * denies the file. */
static bool look_by_path(struct hf_ask *k, const struct catalog_file *file, bool *by_path)
{
    struct slice key = resolve_path(k, k->at.path);
    struct catalog_file kept;
    const struct result *f;
    uint64_t ttl_s;
    struct object o;
    struct lookup w;

    *by_path = false;
    if (!access_lookup(k, key, key, &w)) {
        return false;
    }
    f = plan_row(k->results, TABLE_OBJECT, access_row(k, key, k->closed ? k->caller : SLICE("")),
                 k->p);
    if (f == NULL) {
        return false;
    }
    if (f->rc != 0 || !object_decode(f->bytes, k->a, &o)) {
        return true;
    }
    ttl_s = w.ttl_s == TTL_ORIGIN ? BY_PATH_S : w.ttl_s;
    if (!k->stale && k->req->unix_s >= max_u64(o.validated_unix_s, o.stored_unix_s) + ttl_s) {
        return true;
    }
    if (!look_for_kept(k, &file->hash, &kept, by_path)) {
        return false;
    }
    *by_path = !*by_path;
    return true;
}

static void say_file(struct hf_ask *k)
{
    k->p->fields_of = FIELDS_OWN;
    k->p->reuse = k->closed ? REUSE_USUAL : REUSE_ALL;
    k->p->until_unix_s = k->until_unix_s;
    k->p->content_type = SLICE("application/octet-stream");
    k->p->cache_control = k->closed ? SLICE("private, no-cache") : SLICE("no-cache");
}

/* Nothing is missing of it, and no chunk store has it. */
static void give_empty(struct hf_ask *k)
{
    struct slice etag = k->p->etag; /* which the reply does not keep */

    plan_reply(k->p, 200, SLICE(""));
    k->p->content_type = SLICE("application/octet-stream");
    plan_field(k->p, SLICE("etag"), etag);
    plan_field(k->p, SLICE("cache-control"),
               k->closed ? SLICE("private, no-cache") : SLICE("no-cache"));
}

static void plan_bucket_file(struct hf_ask *k)
{
    struct catalog_file f;
    struct xet_place at;
    bool by_path;

    if (!learn_open(k) || !find_file(k, &f)) {
        return;
    }
    by_path =
        !f.named || k->results->changes ==
                        RESULTS_CHANGES; /* it changes all the time, or answers have no hash */
    if (!by_path && k->req->method == METHOD_GET && k->results->changes == 0 && f.size_bytes != 0 &&
        !look_by_path(k, &f, &by_path)) {
        return;
    }
    if (by_path) {
        if (lookup_path(k)) {
            say_file(k);
            k->p->until_unix_s = 1; /* another listing may tell of a change */
            say_how(k);
        }
        return;
    }
    if (!lookup_content(k, &f)) {
        return;
    }
    say_file(k);
    k->p->until_unix_s = 1;
    k->p->fields_of = FIELDS_KNOWN;
    if (k->req->method == METHOD_GET && f.size_bytes == 0) {
        give_empty(k);
    }
    say_commit(k);
    plan_field(k->p, SLICE("x-linked-size"), arena_u64(k->a, f.size_bytes));
    if (has_chunks(k)) {
        at = place_at(k, k->at.path);
        xet_announce(&at, &f.hash, k->a, k->p);
    } else {
        say_how(k);
    }
}

/* --- our chunk store -------------------------------------------------------------------------- */

static void plan_token(struct hf_ask *k)
{
    struct xet_place at;

    if (!has_chunks(k)) {
        say_error(k, 404, SLICE_NONE, SLICE(NO_CHUNKS));
    } else if (learn_open(k)) {
        at = place_at(k, k->at.rev.n != 0 ? k->at.rev : SLICE(EVERYWHERE));
        xet_token(&at, http_req_field(k->req, "authorization"), clock_unix_s(), k->a, k->p);
    }
}

/* The data's address always has a key (answer_bucket_data() refuses others), so its path and size
 * are those that were sealed here. */
static void answer_bucket_terms(struct hf_ask *k, const struct digest *d)
{
    struct catalog_file f;
    struct xet_place at;
    struct slice key;

    if (!learn_open(k) || !find_hash(k, d, &f)) {
        return;
    }
    at = place_at(k, arena_fmt(k->a, "%" PRIu64 "/" SLICE_FMT, f.size_bytes, SLICE_ARG(f.path)));
    key =
        xet_key_seal(k->r, &at, d, k->token.p != NULL ? k->token : SLICE(""), clock_unix_s(), k->a);
    xet_terms(&at, k->req, d, f.size_bytes, key, k->a, k->p);
}

static void answer_bucket_data(struct hf_ask *k, const struct digest *d)
{
    struct xet_place at = place_at(k, k->at.rev);
    struct catalog_file f = {.path = k->at.rev, .named = true, .hash = *d};
    enum xet_key key = chunks_use_key(k, &at, d);

    if (key == XET_KEY_BAD) {
        return;
    }
    if (key == XET_KEY_NONE || !slice_u64(slice_cut(&f.path, '/'), &f.size_bytes)) {
        say_error(k, 403, SLICE_NONE, SLICE("this address is incomplete; request a new one"));
        return;
    }
    if (!learn_open(k)) {
        return;
    }
    if (k->results->changes == RESULTS_CHANGES) {
        say_error(k, 404, SLICE("EntryNotFound"),
                  SLICE("the Hub does not have the bytes of that hash; list the bucket again"));
        return;
    }
    if (k->results->changes != 0) { /* another content is at that path by now */
        k->at.rev = SLICE(EVERYWHERE);
        if (!find_hash(k, d, &f)) {
            return;
        }
    }
    if (lookup_content(k, &f)) {
        say_file(k);
        k->p->framing = &xorb_framing;
        k->p->etag = arena_fmt(k->a, "\"xorb-" SLICE_FMT, SLICE_ARG(slice_from(k->p->etag, 1)));
    }
}

static void plan_store(struct hf_ask *k)
{
    struct digest d;
    enum xet_ask ask = xet_path_parse(k->at.path, &d);

    if (ask == XET_ASK_TERMS && has_chunks(k)) {
        answer_bucket_terms(k, &d);
    } else if (ask == XET_ASK_DATA && has_chunks(k)) {
        answer_bucket_data(k, &d);
    } else {
        say_error(k, 404, SLICE_NONE,
                  SLICE("no such path in this Xet store; it has reconstructions (v1) and data"));
    }
}

static void plan_tree(struct hf_ask *k)
{
    struct slice page = page_of(k, "/tree", k->at.path);

    if (learn_open(k) && list_json(k, page, k->req->query) != NULL) {
        hf_plan_json(k, page, false);
        if (k->p->kind == PLAN_REPLY) {
            k->p->reuse = REUSE_USUAL;
        }
    }
}

void bucket_plan(struct hf_ask *k)
{
    if (slice_eqs(k->at.verb, "resolve")) {
        plan_bucket_file(k);
    } else if (slice_eqs(k->at.verb, "xet-read-token")) {
        plan_token(k);
    } else if (slice_eqs(k->at.verb, "xet")) {
        plan_store(k);
    } else if (slice_eqs(k->at.verb, "paths-info")) {
        plan_bucket_paths(k);
    } else if (slice_eqs(k->at.verb, "tree")) {
        plan_tree(k);
    } else {
        hf_plan_json(k, page_of(k, "", SLICE("")), false);
    }
}
