#include "server/repo/conda/path.h"

#include "common/hash/digest.h"

static bool is_shard(struct slice name)
{
    static const struct slice ending = {".msgpack.zst", 12};
    struct digest d;

    return name.n == DIGEST_HEX + ending.n && slice_ends(name, ending) &&
           digest_parse(slice_first(name, DIGEST_HEX), &d);
}

/* The one form that every channel has is no option: without it there is no channel, and a client
 * should read why. */
static bool is_optional(struct slice name)
{
    return name.n != 0 && !slice_eqs(name, "repodata.json");
}

struct conda_path conda_path_of(struct slice path)
{
    struct conda_path p = {.kind = CONDA_INDEX};
    size_t at = slice_behind(path, '/');

    p.folder = slice_first(path, at);
    p.name = slice_from(path, at);
    if (slice_ends(p.name, SLICE(".conda")) || slice_ends(p.name, SLICE(".tar.bz2"))) {
        p.kind = CONDA_PACKAGE;
    } else if (is_shard(p.name)) {
        p.kind = CONDA_SHARD;
    } else if (slice_ends(p.name, SLICE(".jlap"))) {
        p.kind = CONDA_JLAP;
    }
    p.optional = p.kind == CONDA_INDEX && is_optional(p.name);
    return p;
}
