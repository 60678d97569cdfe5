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
    bool has_rev;
} markers[] = {
    {"revision", HF_INFO, true},      {"tree", HF_TREE, true},
    {"paths-info", HF_PATHS, true},   {"refs", HF_REFS, false},
    {"commits", HF_COMMITS, true},    {"auth-check", HF_AUTH_CHECK, false},
    {"xet-read-token", HF_XET, true}, {"xet-write-token", HF_WRITE, true},
    {"xet", HF_XET_STORE, true},      {"xet-put", HF_XET_PUT, true},
    {"preupload", HF_WRITE, true},    {"commit", HF_WRITE, true},
    {"branch", HF_WRITE, true},       {"tag", HF_WRITE, true},
    {"settings", HF_WRITE, false},    {"super-squash", HF_WRITE, true},
    {"discussions", HF_WRITE, false}, {"lfs-files", HF_WRITE, false},
};

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

static int decode(struct slice raw, size_t max, const char *what, struct arena *a,
                  struct slice *out, struct err *e)
{
    struct buf b = BUF_INIT(max);
    int rc = 0;

    if (!url_decode(raw, &b) || b.rc != 0) {
        rc = err_set(e, E_INVALID, "the %s is badly escaped or too long", what);
    } else {
        *out = arena_copy(a, slice_of(b.p != NULL ? b.p : "", b.n));
        if (!hf_is_path(*out)) {
            rc = err_set(e, E_INVALID, "no %s can be so", what);
        }
    }
    buf_free(&b);
    return rc;
}

static int take_rev(struct slice raw, struct arena *a, struct hf_path *out, struct err *e)
{
    if (raw.n == 0) {
        return err_set(e, E_INVALID, "a revision is missing");
    }
    return decode(raw, REV_MAX, "revision", a, &out->rev, e);
}

static int take_path(struct slice raw, struct arena *a, struct hf_path *out, struct err *e)
{
    while (raw.n != 0 && raw.p[raw.n - 1] == '/') {
        raw.n--;
    }
    return decode(raw, PATH_MAX_BYTES, "path", a, &out->path, e);
}

/* Cuts at `marker` behind one or two segments; marker NULL: any of the table. *which is its index there. */
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
            if (slice_eqs(word, markers[i].marker) && (!markers[i].has_rev || behind.n != 0)) {
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

static int parse_repo_api(struct slice rest, struct arena *a, struct hf_path *out, struct err *e)
{
    size_t which = 0;
    struct slice tail = SLICE_NONE;
    int rc;

    if (!cut_id(rest, NULL, &out->id, &tail, &which)) {
        out->id = rest;
        out->route = rest.n == 0 ? HF_OTHER : hf_is_id(rest) ? HF_INFO : HF_NONE;
        return 0;
    }
    out->route = markers[which].route;
    if (out->route == HF_WRITE) {
        struct slice rev = slice_cut(&tail, '/');
        out->verb = slice_str(markers[which].marker);
        return markers[which].has_rev ? take_rev(rev, a, out, e) : 0;
    }
    if (!markers[which].has_rev) {
        return 0;
    }
    rc = take_rev(slice_cut(&tail, '/'), a, out, e);
    return rc != 0 ||
                   (out->route != HF_TREE && out->route != HF_XET_STORE && out->route != HF_XET_PUT)
               ? rc
               : take_path(tail, a, out, e);
}

static int parse_file(struct slice id, struct slice tail, struct arena *a, struct hf_path *out,
                      struct err *e)
{
    int rc = take_rev(slice_cut(&tail, '/'), a, out, e);

    out->route = HF_FILE;
    out->id = id;
    if (rc == 0) {
        rc = take_path(tail, a, out, e);
    }
    if (rc == 0 && out->path.n == 0) {
        rc = err_set(e, E_INVALID, "the path of a file is missing");
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
    out->route = slice_eqs(word, "telemetry")                                   ? HF_TELEMETRY
                 : slice_eqs(all, "agent-harnesses")                            ? HF_NONE
                 : slice_eqs(all, "whoami-v2")                                  ? HF_WHOAMI
                 : slice_eqs(word, "repos") || slice_eqs(word, "validate-yaml") ? HF_WRITE
                                                                                : HF_OTHER;
    out->verb = out->route == HF_WRITE ? all : SLICE_NONE;
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

    *out = (struct hf_path){.path = SLICE("")};
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
