#include "server/repo/hf/info.h"

#include <jansson.h>
#include <stdlib.h>

#include "common/codec/jread.h"
#include "common/codec/jwrite.h"
#include "common/hash/digest.h"
#include "server/repo/hf/path.h"

enum { PRIVATE = 1, GATED = 2, COMMIT_HEX = 40, ID_MAX = 255, NUMBER_MAX = 64 };

static void strip(json_t *v)
{
    size_t i;
    const char *key;
    json_t *child;

    if (json_is_array(v)) {
        json_array_foreach(v, i, child)
        {
            strip(child);
        }
    } else if (json_is_object(v)) {
        (void)json_object_del(v, "xetHash");
        (void)json_object_del(v, "xetEnabled");
        (void)json_object_del(v, "casUrl");
        if (json_is_string(
                json_object_get(v, "accessToken"))) { /* whoami tells of one, as an object */
            (void)json_object_del(v, "accessToken");
        }
        json_object_foreach(v, key, child)
        {
            strip(child);
        }
    }
}

static json_t *parse_info_json(struct slice doc, struct err *e)
{
    json_t *v = jread_parse(doc, JSON_ALLOW_NUL, jread_values_of(doc.n));

    if (v == NULL) {
        err_set(e, E_PROTOCOL, "the Hub's response is not valid JSON, or has too many values");
    }
    return v;
}

static json_t *load_info_json(struct slice doc, struct err *e)
{
    json_t *v = parse_info_json(doc, e);

    if (v != NULL) {
        strip(v);
    }
    return v;
}

static void dump(const json_t *v, struct buf *out)
{
    if (json_dump_callback(v, jwrite_dumped, out, JSON_COMPACT | JSON_ENCODE_ANY) != 0 &&
        out->rc == 0) {
        out->rc = E_TOOBIG;
    }
}

/* false, null and absent are no; "auto" and "manual" are a yes. */
static bool says_yes(const json_t *o, const char *key)
{
    const json_t *v = json_object_get(o, key);

    return v != NULL && !json_is_false(v) && !json_is_null(v);
}

int info_make(struct slice doc, struct buf *out, struct err *e)
{
    json_t *v = load_info_json(doc, e);
    struct slice id;
    struct slice sha;
    struct slice number;
    int rc = 0;

    if (v == NULL) {
        return E_PROTOCOL;
    }
    id = jread_text(v, "id");
    sha = jread_text(v, "sha");
    number = jread_text(v, "_id");
    number.n = number.n <= NUMBER_MAX ? number.n : 0;
    if (!hf_is_id(id) || id.n > ID_MAX || !hf_is_commit(sha)) {
        rc = err_set(e, E_PROTOCOL,
                     "the Hub's response about a repository has no valid id or commit");
    } else {
        buf_byte(out, (uint8_t)((says_yes(v, "private") ? PRIVATE : 0) |
                                (says_yes(v, "gated") ? GATED : 0)));
        buf_adds(out, sha);
        buf_byte(out, (uint8_t)id.n);
        buf_adds(out, id);
        buf_byte(out, (uint8_t)number.n);
        buf_adds(out, number);
        dump(v, out);
        rc = out->rc;
    }
    json_decref(v);
    return rc;
}

int info_plain(struct slice doc, struct buf *out, struct err *e)
{
    static const char *const moving[] = {
        "downloads", "downloadsAllTime",         "likes",       "trendingScore", "spaces",
        "inference", "inferenceProviderMapping", "usedStorage",
    };
    json_t *v = load_info_json(doc, e);

    if (v == NULL) {
        return E_PROTOCOL;
    }
    for (size_t i = 0; json_is_object(v) && i < ARRAY_LEN(moving); i++) {
        (void)json_object_del(v, moving[i]);
    }
    dump(v, out);
    json_decref(v);
    return out->rc;
}

int info_about(struct slice doc, struct buf *out, struct err *e)
{
    json_t *v = load_info_json(doc, e);
    int rc = E_PROTOCOL;

    if (v != NULL && hf_is_id(jread_text(v, "id"))) {
        dump(v, out);
        rc = out->rc;
    } else if (v != NULL) {
        err_set(e, rc, "the Hub's response is not about a repository");
    }
    json_decref(v);
    return rc;
}

int right_read(struct slice doc, struct err *e)
{
    json_t *v;
    bool yes;

    doc = slice_trim(doc);
    v = doc.n != 0 ? jread_parse(doc, 0, jread_values_of(doc.n)) : NULL;
    yes = doc.n == 0 || (json_is_object(v) && !says_yes(v, "error"));
    json_decref(v);
    return yes ? 0
               : err_set(
                     e, E_PROTOCOL,
                     "the Hub's response to an access check is unexpected, possibly a login form");
}

bool info_read(struct slice bytes, struct repo_info *out)
{
    size_t id_n;
    size_t number_n;
    size_t json_at;

    if (bytes.n < COMMIT_HEX + 2) {
        return false;
    }
    id_n = (uint8_t)bytes.p[COMMIT_HEX + 1];
    if (bytes.n < COMMIT_HEX + 3 + id_n) {
        return false;
    }
    number_n = (uint8_t)bytes.p[COMMIT_HEX + 2 + id_n];
    json_at = COMMIT_HEX + 3 + id_n + number_n;
    if (bytes.n < json_at) {
        return false;
    }
    *out = (struct repo_info){
        .id = slice_of(bytes.p + COMMIT_HEX + 2, id_n),
        .number = slice_of(bytes.p + COMMIT_HEX + 3 + id_n, number_n),
        .commit = slice_of(bytes.p + 1, COMMIT_HEX),
        .closed = bytes.p[0] != 0,
        .private = (bytes.p[0] & PRIVATE) != 0,
        .json = slice_from(bytes, json_at),
    };
    return true;
}

int json_filter(struct slice doc,
                bool (*wanted)(void *arg, struct slice path, bool folder, uint64_t size_bytes),
                void *arg, struct buf *out, struct err *e)
{
    json_t *v = load_info_json(doc, e), *from, *to = json_array(), *one;
    size_t i;

    CHECK(to != NULL);
    if (v == NULL) {
        json_decref(to);
        return E_PROTOCOL;
    }
    from = json_is_array(v) ? v : json_object_get(v, "siblings");
    json_array_foreach(from, i, one)
    {
        const json_t *size = json_object_get(one, "size");
        struct slice path = jread_text(one, from == v ? "path" : "rfilename");
        bool folder = slice_eqs(jread_text(one, "type"), "directory");
        if (path.p == NULL ||
            wanted(arg, path, folder,
                   json_is_integer(size) ? (uint64_t)json_integer_value(size) : UINT64_MAX)) {
            (void)json_array_append(to, one);
        }
    }
    if (from != NULL && from != v) {
        (void)json_object_set(v, "siblings", to);
    }
    dump(from == v ? to : v, out);
    json_decref(to);
    json_decref(v);
    return out->rc;
}

/* Takes v. */
static int join_info_lists(json_t *v, bool first, struct buf *out, struct err *e)
{
    size_t at = out->n;

    dump(v, out);
    if (!first && out->rc == 0) {
        /* "[1,2]" and "[3]": the bracket between the two becomes a comma. */
        if (!json_is_array(v) || at < 2 || out->p[at - 1] != ']') {
            json_decref(v);
            return err_set(e, E_PROTOCOL, "a page of the Hub's listing is not a list");
        }
        if (json_array_size(v) == 0) {
            out->n = at;
        } else if (at == 2) {
            buf_drop(out, 2);
        } else {
            out->p[at - 1] = ',';
            memmove(out->p + at, out->p + at + 1, out->n - at - 1);
            out->n--;
        }
    }
    json_decref(v);
    return out->rc;
}

int json_join(struct slice doc, bool first, struct buf *out, struct err *e)
{
    json_t *v = load_info_json(doc, e);

    return v != NULL ? join_info_lists(v, first, out, e) : E_PROTOCOL;
}

void json_bucket_file(json_t *file, bool hashes)
{
    json_t *name = json_incref(json_object_get(file, "xetHash"));
    struct digest hash;
    bool keep = hashes && digest_parse(jread_slice(name), &hash);

    strip(file);
    CHECK(json_object_set(file, "xetHash", keep ? name : json_null()) == 0);
    json_decref(name);
}

int json_bucket(struct slice doc, bool hashes, bool first, struct buf *out, struct err *e)
{
    json_t *v = parse_info_json(doc, e), *one;
    size_t i;

    if (v == NULL) {
        return E_PROTOCOL;
    }
    json_array_foreach(v, i, one)
    {
        if (slice_eqs(jread_text(one, "type"), "file")) {
            json_bucket_file(one, hashes);
        } else {
            strip(one);
        }
    }
    if (!json_is_array(v)) {
        strip(v);
    }
    return join_info_lists(v, first, out, e);
}
