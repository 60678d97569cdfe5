#include "server/repo/hf/path.h"

#include "common/codec/url.h"

enum { REV_MAX = 256, PATH_MAX_BYTES = 4096, SEGMENTS = 5 };

static const struct {
    struct slice type, prefix;
} types[] = {
    {{"models", 6}, {"", 0}},
    {{"datasets", 8}, {"datasets/", 9}},
    {{"spaces", 6}, {"spaces/", 7}},
    {{"kernels", 7}, {"kernels/", 8}},
};

static const struct {
    const char *marker;
    enum hf_route route;
    bool has_rev, has_path;
} markers[] = {
    {"revision", HF_INFO, true, false},
    {"tree", HF_TREE, true, true},
    {"paths-info", HF_PATHS, true, false},
    {"refs", HF_REFS, false, false},
    {"commits", HF_COMMITS, true, false},
    {"auth-check", HF_AUTH_CHECK, false, false},
    {"xet-read-token", HF_XET, true, false},
    {"xet-write-token", HF_WRITE, true, false},
    {"xet", HF_XET_STORE, true, true},
    {"xet-put", HF_XET_PUT, true, true},
    {"preupload", HF_WRITE, true, false},
    {"commit", HF_WRITE, true, false},
    {"branch", HF_WRITE, true, false},
    {"tag", HF_WRITE, true, false},
    {"settings", HF_WRITE, false, false},
    {"super-squash", HF_WRITE, true, false},
    {"lfs-files", HF_WRITE, false, true},
    {"duplicate", HF_WRITE, false, false},
    {"discussions", HF_ABOUT, false, true},
    {"likers", HF_ABOUT, false, false},
    {"safetensors-metadata", HF_ABOUT, false, true},
};

/* Words that may well be a repository's name, "org/duplicate": routes only below an id of two
 * segments. */
static bool is_name_too(const char *marker)
{
    return strcmp(marker, "duplicate") == 0 || strcmp(marker, "likers") == 0;
}

bool hf_is_path(struct slice path)
{
    struct slice rest = path;

    for (size_t i = 0; i < path.n; i++) {
        if ((uint8_t)path.p[i] < ' ' || path.p[i] == 0x7f) {
            return false;
        }
    }
    while (rest.n != 0) {
        struct slice s = slice_cut(&rest, '/');
        if (s.n == 0 || slice_eqs(s, ".") || slice_eqs(s, "..")) {
            return false;
        }
    }
    return path.n <= PATH_MAX_BYTES && (path.n == 0 || path.p[path.n - 1] != '/');
}

bool hf_is_card(struct slice path)
{
    return slice_eqs(path, "README.md") || slice_eqs(path, ".gitattributes");
}

static int decode_hf_segment(struct slice raw, size_t max, const char *what, struct arena *a,
                             struct slice *out, struct err *e)
{
    struct buf b = BUF_INIT(max);
    int rc = 0;

    if (!url_decode(raw, &b) || b.rc != 0) {
        rc = err_set(e, E_INVALID, "the %s has an invalid escape or is too long", what);
    } else {
        *out = arena_copy(a, slice_of(b.p != NULL ? b.p : "", b.n));
        if (!hf_is_path(*out)) {
            rc = err_set(e, E_INVALID, "the %s is invalid", what);
        }
    }
    buf_free(&b);
    return rc;
}

static int take_rev(struct slice raw, struct arena *a, struct hf_path *out, struct err *e)
{
    if (raw.n == 0) {
        return err_set(e, E_INVALID, "the revision is missing");
    }
    return decode_hf_segment(raw, REV_MAX, "revision", a, &out->rev, e);
}

static int take_path(struct slice raw, struct arena *a, struct hf_path *out, struct err *e)
{
    while (raw.n != 0 && raw.p[raw.n - 1] == '/') {
        raw.n--;
    }
    return decode_hf_segment(raw, PATH_MAX_BYTES, "path", a, &out->path, e);
}

/* Cuts at `marker` behind one or two segments; marker NULL: any of the table. *which is its index
 * there. */
static bool cut_id(struct slice s, const char *marker, struct slice *id, struct slice *rest,
                   size_t *which)
{
    struct slice left = s;
    (void)slice_cut(&left, '/');

    for (int segments = 1; segments <= 2 && left.n != 0; segments++) {
        struct slice behind = left;
        struct slice word = slice_cut(&behind, '/');
        *id = slice_first(s, (size_t)(word.p - s.p) - 1);
        *rest = behind;
        if (marker != NULL && slice_eqs(word, marker)) {
            return hf_is_id(*id);
        }
        for (size_t i = 0; marker == NULL && i < ARRAY_LEN(markers); i++) {
            if (slice_eqs(word, markers[i].marker) && (!markers[i].has_rev || behind.n != 0) &&
                (segments == 2 || !is_name_too(markers[i].marker))) {
                *which = i;
                return hf_is_id(*id);
            }
        }
        left = behind;
    }
    return false;
}

static bool take_type(struct slice name, struct hf_path *out)
{
    for (size_t i = 0; i < ARRAY_LEN(types); i++) {
        if (slice_eq(name, types[i].type)) {
            out->type = types[i].type;
            out->prefix = types[i].prefix;
            return true;
        }
    }
    return false;
}

/* --- the rest of the API ---------------------------------------------------------------------- */

/* A Hub reads paths whatever their case and escapes. What is a route of ours in its one spelling is
 * none in another, and what leads to the Hub's chunk store is none at all. seg: decoded. */
static bool is_kept_out(struct slice seg, bool first)
{
    static const char *const ours[] = {"resolve-cache", "telemetry", "agent-harnesses",
                                       "whoami-v2",     "repos",     "validate-yaml"};
    struct slice xet = SLICE("xet-");

    if (slice_ieq(slice_first(seg, seg.n < xet.n ? seg.n : xet.n), xet) ||
        slice_find(seg, '/') >= 0) {
        return true;
    }
    if (!first) {
        return false;
    }
    for (size_t i = 0; i < ARRAY_LEN(types); i++) {
        if (slice_ieq(seg, types[i].type)) {
            return true;
        }
    }
    for (size_t i = 0; i < ARRAY_LEN(ours); i++) {
        if (slice_ieq(seg, slice_str(ours[i]))) {
            return true;
        }
    }
    return slice_ieq(seg, SLICE("buckets"));
}

/* rest: behind "api/"; judged and escaped anew segment by segment, so that the Hub is asked for
 * nothing but what was judged. */
static int parse_other(struct slice rest, struct arena *a, struct hf_path *out, struct err *e)
{
    bool first = true;

    out->route = HF_OTHER;
    out->other = SLICE("api");
    while (rest.n != 0) {
        struct slice raw = slice_cut(&rest, '/');
        struct slice seg;
        int rc = decode_hf_segment(raw, PATH_MAX_BYTES, "path", a, &seg, e);
        if (rc != 0) {
            return rc;
        }
        if (seg.n == 0 ||
            (is_kept_out(seg, first) && !(first && rest.n == 0 && slice_eq(raw, out->type)))) {
            out->route = HF_NONE;
        }
        out->other = arena_fmt(a, SLICE_FMT "/" SLICE_FMT, SLICE_ARG(out->other),
                               SLICE_ARG(url_encoded(seg, a)));
        first = false;
    }
    return 0;
}

/* --- what is about one repository ------------------------------------------------------------- */

static int parse_repo_api(struct slice rest, struct arena *a, struct hf_path *out, struct err *e)
{
    size_t which = 0;
    struct slice tail = SLICE_NONE;
    int rc = 0;

    while (rest.n != 0 && rest.p[rest.n - 1] == '/') {
        rest.n--;
    }
    if (rest.n == 0) {
        return parse_other(out->type, a, out, e);
    }
    if (!cut_id(rest, NULL, &out->id, &tail, &which)) {
        out->id = rest;
        out->route = hf_is_id(rest) ? HF_INFO : HF_NONE;
        return 0;
    }
    out->route = markers[which].route;
    if (out->route == HF_AUTH_CHECK && slice_eqs(tail, "write")) {
        out->verb = tail;
        return 0;
    }
    if (out->route == HF_WRITE && markers[which].has_rev) {
        out->verb = slice_str(markers[which].marker);
        return take_rev(slice_cut(&tail, '/'), a, out, e);
    }
    if (out->route == HF_WRITE || out->route == HF_ABOUT) {
        out->verb = slice_str(markers[which].marker);
        return take_path(tail, a, out, e);
    }
    if (markers[which].has_rev) {
        rc = take_rev(slice_cut(&tail, '/'), a, out, e);
    }
    if (rc == 0 && markers[which].has_path) {
        return take_path(tail, a, out, e);
    }
    out->route = tail.n == 0 ? out->route : HF_NONE;
    return rc;
}

static int parse_file(struct slice id, struct slice tail, struct arena *a, struct hf_path *out,
                      struct err *e)
{
    int rc = take_rev(slice_cut(&tail, '/'), a, out, e);

    out->route = HF_FILE;
    out->id = id;
    rc = rc != 0 ? rc : take_path(tail, a, out, e);
    if (rc == 0 && out->path.n == 0) {
        rc = err_set(e, E_INVALID, "the path of the file is missing");
    }
    return rc;
}

/* api/resolve-cache/{T}/{id}/{rev}/{path}: no marker, so the revision has to be a commit. */
static int parse_resolve_cache(struct slice rest, struct arena *a, struct hf_path *out,
                               struct err *e)
{
    struct slice all = rest;

    for (int segments = 1; segments <= 2; segments++) {
        struct slice behind;
        (void)slice_cut(&rest, '/');
        behind = rest;
        if (hf_is_commit(slice_cut(&behind, '/'))) {
            struct slice id = slice_first(all, (size_t)(rest.p - all.p) - 1);
            if (hf_is_id(id)) {
                return parse_file(id, rest, a, out, e);
            }
        }
    }
    return 0;
}

/* --- buckets ---------------------------------------------------------------------------------- */

/* As is_kept_out(): what leads to the Hub's chunk store is no bucket's name either. */
static bool is_bucket_word(struct slice seg)
{
    return seg.n != 0 && !is_kept_out(seg, false) && slice_find(seg, '%') < 0;
}

/* "owner/name" from the front of *rest. False: it is none. */
static bool cut_bucket(struct slice *rest, struct slice *id)
{
    struct slice left = *rest;
    struct slice owner = slice_cut(&left, '/');
    struct slice name = slice_cut(&left, '/');

    if (!is_bucket_word(owner) || !is_bucket_word(name)) {
        return false;
    }
    *id = slice_first(*rest, owner.n + 1 + name.n);
    *rest = left;
    return hf_is_id(*id);
}

static void is_bucket(struct hf_path *out, enum hf_route route, struct slice id, struct slice verb)
{
    out->route = route;
    out->type = SLICE("buckets");
    out->id = id;
    out->verb = verb;
}

/* A place in a bucket, of an address that bucket.c has made. "": none was said. */
static int take_place(struct slice raw, struct arena *a, struct hf_path *out, struct err *e)
{
    return decode_hf_segment(raw, PATH_MAX_BYTES, "place in a bucket", a, &out->rev, e);
}

/* rest: behind "api/buckets/". What else there is below a bucket changes it, or leads to the Hub's
 * chunk store. */
static int parse_bucket_api(struct slice rest, struct arena *a, struct hf_path *out, struct err *e)
{
    struct slice id, word;

    if (slice_find(rest, '/') < 0 && is_bucket_word(rest) && hf_is_id(rest)) {
        is_bucket(out, HF_BUCKET, rest, SLICE("list"));
        return 0;
    }
    if (!cut_bucket(&rest, &id)) {
        return 0;
    }
    word = slice_cut(&rest, '/');
    if (word.n == 0 && rest.n == 0) {
        is_bucket(out, HF_BUCKET, id, SLICE("info"));
    } else if (slice_eqs(word, "tree")) {
        is_bucket(out, HF_BUCKET, id, SLICE("tree"));
        return take_path(rest, a, out, e);
    } else if (slice_eqs(word, "paths-info") && rest.n == 0) {
        is_bucket(out, HF_BUCKET, id, SLICE("paths-info"));
    } else if (slice_eqs(word, "xet-read-token")) {
        is_bucket(out, HF_BUCKET, id, SLICE("xet-read-token"));
        return take_place(rest, a, out, e);
    } else if (slice_eqs(word, "xet")) {
        int rc = take_place(slice_cut(&rest, '/'), a, out, e);
        is_bucket(out, HF_BUCKET, id, SLICE("xet"));
        return rc != 0 ? rc : take_path(rest, a, out, e);
    } else if ((slice_eqs(word, "batch") || slice_eqs(word, "settings") ||
                slice_eqs(word, "xet-write-token")) &&
               rest.n == 0) {
        is_bucket(out, HF_WRITE, id, word);
    }
    return 0;
}

/* rest: behind "buckets/". True: it is a file of one. */
static bool parse_bucket_file(struct slice rest, struct arena *a, struct hf_path *out, int *rc,
                              struct err *e)
{
    struct slice id;

    if (!cut_bucket(&rest, &id) || !slice_eqs(slice_cut(&rest, '/'), "resolve")) {
        return false;
    }
    is_bucket(out, HF_BUCKET, id, SLICE("resolve"));
    *rc = take_path(rest, a, out, e);
    if (*rc == 0 && out->path.n == 0) {
        *rc = err_set(e, E_INVALID, "the path of the file is missing");
    }
    return true;
}

static int parse_api(struct slice rest, struct arena *a, struct hf_path *out, struct err *e)
{
    struct slice all = rest;
    struct slice word = slice_cut(&rest, '/');

    if (take_type(word, out)) {
        return parse_repo_api(rest, a, out, e);
    }
    if (slice_eqs(word, "resolve-cache")) {
        return take_type(slice_cut(&rest, '/'), out) ? parse_resolve_cache(rest, a, out, e) : 0;
    }
    if (slice_eqs(word, "telemetry")) {
        out->route = HF_TELEMETRY;
    } else if (slice_eqs(word, "buckets")) {
        return parse_bucket_api(rest, a, out, e);
    } else if (slice_eqs(all, "agent-harnesses")) {
        out->route = HF_NONE;
    } else if (slice_eqs(all, "whoami-v2")) {
        out->route = HF_WHOAMI;
        out->other = SLICE("api/whoami-v2");
    } else if (slice_eqs(word, "repos") || slice_eqs(word, "validate-yaml")) {
        out->route = HF_WRITE;
        out->verb = all;
    } else {
        return parse_other(all, a, out, e);
    }
    return 0;
}

int hf_path_parse(struct slice raw, struct arena *a, struct hf_path *out, struct err *e)
{
    struct slice rest = raw;
    struct slice first = slice_cut(&rest, '/');
    struct slice id;
    struct slice tail;
    const char *git;
    size_t which = 0;
    int rc;

    *out = (struct hf_path){.path = SLICE("")};
    if (slice_eqs(first, "buckets") && parse_bucket_file(rest, a, out, &rc, e)) {
        return rc;
    }
    if (slice_eqs(first, "api")) {
        return parse_api(rest, a, out, e);
    }
    if (slice_eqs(first, "models") || !take_type(first, out)) {
        (void)take_type(SLICE("models"), out);
        rest = raw;
    }
    if (cut_id(rest, "resolve", &id, &tail, &which)) {
        return parse_file(id, tail, a, out, e);
    }
    if (cut_id(rest, "raw", &id, &tail, &which) && tail.n != 0) {
        out->raw = true;
        return parse_file(id, tail, a, out, e);
    }
    git = memmem(rest.p, rest.n, ".git/", 5);
    if (git != NULL) {
        out->route = HF_WRITE;
        id = slice_first(rest, (size_t)(git - rest.p));
        if (hf_is_id(id) && slice_eqs(slice_from(rest, id.n), ".git/info/lfs/objects/batch")) {
            out->id = id;
            out->verb = SLICE("lfs-batch");
        }
    }
    return 0;
}
