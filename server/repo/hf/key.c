#include "server/repo/hf/key.h"

#include "common/codec/url.h"
#include "server/repo/hf/path.h"

struct slice key_words(struct slice type, struct slice id, struct arena *a)
{
    return arena_fmt(a, "api/" SLICE_FMT "/" SLICE_FMT, SLICE_ARG(type), SLICE_ARG(id));
}

struct slice key_info(struct slice type, struct slice id, struct slice rev, struct arena *a)
{
    struct slice words = key_words(type, id, a);

    return rev.p == NULL ? words
                         : arena_fmt(a, SLICE_FMT "/revision/" SLICE_FMT, SLICE_ARG(words),
                                     SLICE_ARG(url_encoded(rev, a)));
}

struct slice key_tree(struct slice type, struct slice id, struct slice commit, struct arena *a)
{
    return arena_fmt(a, "api/" SLICE_FMT "/" SLICE_FMT "/tree/" SLICE_FMT, SLICE_ARG(type),
                     SLICE_ARG(id), SLICE_ARG(commit));
}

struct slice key_auth_check(struct slice type, struct slice id, struct arena *a)
{
    return arena_fmt(a, SLICE_FMT "/auth-check", SLICE_ARG(key_words(type, id, a)));
}

struct slice key_files(struct slice type, struct slice id, struct arena *a)
{
    return arena_fmt(a, SLICE_FMT "/" SLICE_FMT "/blobs/", SLICE_ARG(type), SLICE_ARG(id));
}

struct slice key_etag(const struct manifest_entry *f, char room[ETAG_HEX + 1])
{
    if (f->lfs) {
        digest_format(&f->sha256, room);
    } else {
        git_oid_format(&f->oid, room);
    }
    return slice_str(room);
}

struct slice key_file(struct slice type, struct slice id, const struct manifest_entry *f,
                      struct arena *a)
{
    char room[ETAG_HEX + 1];

    return arena_fmt(a, SLICE_FMT "/" SLICE_FMT "/blobs/" SLICE_FMT, SLICE_ARG(type), SLICE_ARG(id),
                     SLICE_ARG(key_etag(f, room)));
}

bool key_read_file(struct slice key, struct slice *type, struct slice *id, struct slice *etag)
{
    static const struct slice mark = {"/blobs/", 7};
    const char *at;

    *type = slice_cut(&key, '/');
    at = memmem(key.p, key.n, mark.p, mark.n);
    if (at == NULL || slice_starts(*type, SLICE("rights")) || /* of an owner called "blobs" */
        slice_eqs(*type, "buckets")) {
        return false;
    }
    *id = slice_first(key, (size_t)(at - key.p));
    *etag = slice_from(key, id->n + mark.n);
    return hf_is_id(*id);
}

struct slice key_bucket_file(struct slice id, const struct digest *hash, struct arena *a)
{
    char hex[DIGEST_HEX + 1];

    digest_format(hash, hex);
    return arena_fmt(a, "buckets/" SLICE_FMT "/blobs/%s", SLICE_ARG(id), hex);
}

bool key_is_bucket_file(struct slice key)
{
    struct digest hash;

    if (!slice_eqs(slice_cut(&key, '/'), "buckets")) {
        return false;
    }
    (void)slice_cut(&key, '/');
    (void)slice_cut(&key, '/');
    return slice_eqs(slice_cut(&key, '/'), "blobs") && digest_parse(key, &hash);
}

struct slice key_resolve(struct slice prefix, struct slice id, struct slice rev, struct slice path,
                         struct arena *a)
{
    return arena_fmt(a, SLICE_FMT SLICE_FMT "/resolve/" SLICE_FMT "/" SLICE_FMT, SLICE_ARG(prefix),
                     SLICE_ARG(id), SLICE_ARG(rev), SLICE_ARG(url_encoded_path(path, a)));
}
