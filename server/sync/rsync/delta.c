#include "server/sync/rsync/delta.h"

static const char *const compressed[] = {
    "gz",  "tgz", "xz",   "txz", "bz2", "tbz",  "zst",  "lz4",   "lzma", "zip",
    "7z",  "deb", "udeb", "rpm", "whl", "jar",  "apk",  "conda", "jpg",  "png",
    "mp4", "mkv", "webm", "mp3", "ogg", "flac", "webp", "br",
};

struct slice delta_ending(struct slice path)
{
    size_t at = path.n;

    while (at > 0 && path.p[at - 1] != '.' && path.p[at - 1] != '/') {
        at--;
    }
    return at > 0 && path.p[at - 1] == '.' ? slice_from(path, at) : SLICE("");
}

unsigned delta_class(struct slice path)
{
    return (unsigned)(slice_hash(delta_ending(path)) % DELTA_CLASSES);
}

bool delta_compressed(struct slice path)
{
    struct slice end = delta_ending(path);

    for (size_t i = 0; i < ARRAY_LEN(compressed); i++) {
        if (slice_eqs(end, compressed[i])) {
            return true;
        }
    }
    return false;
}

bool delta_pays(const struct delta *d, struct slice path, uint64_t size_bytes, uint64_t basis_bytes)
{
    if (size_bytes < DELTA_LEAST || basis_bytes < DELTA_LEAST || delta_compressed(path)) {
        return false;
    }
    return (d->given_up >> delta_class(path) & 1) == 0;
}

void delta_learn(struct delta *d, unsigned class, uint64_t found_bytes, uint64_t all_bytes)
{
    if (found_bytes < all_bytes / 20) {
        d->given_up |= (uint64_t)1 << class;
    }
}
