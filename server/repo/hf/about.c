/* about.c - what else a Hub tells of a repository: who likes it, what is discussed, of what tensors a sharded model consists.
 * Passed on as the Hub has it, as everybody sees it or else as this caller does, and kept as briefly as other documents. */
#include "server/repo/hf/hf.h"

#include "common/codec/url.h"
#include "server/repo/hf/key.h"

static bool is_number(struct slice s)
{
    uint64_t n;

    return slice_u64(s, &n) && n != 0;
}

/* The Hub tells of `main` as it is now. */
static bool main_is_held(struct hf_ask *k)
{
    return held_find(k->r->state, k->at.type, k->at.id, SLICE("main")) != NULL;
}

/* Below the origin; p == NULL: the Hub has no such page, or none that fits what the mirror serves. */
static struct slice page_of(struct hf_ask *k)
{
    struct slice words = key_words(k->at.type, k->at.id, k->a);
    struct slice verb = k->at.verb, path = k->at.path;

    if (slice_eqs(verb, "safetensors-metadata")) {
        return slice_ends(path, SLICE(".json")) && !main_is_held(k)
                   ? arena_fmt(k->a, SLICE_FMT "/" SLICE_FMT "/" SLICE_FMT, SLICE_ARG(words),
                               SLICE_ARG(verb), SLICE_ARG(url_encoded_path(path, k->a)))
                   : SLICE_NONE;
    }
    if (path.n == 0) {
        return arena_fmt(k->a, SLICE_FMT "/" SLICE_FMT, SLICE_ARG(words), SLICE_ARG(verb));
    }
    return is_number(path) ? arena_fmt(k->a, SLICE_FMT "/" SLICE_FMT "/" SLICE_FMT,
                                       SLICE_ARG(words), SLICE_ARG(verb), SLICE_ARG(path))
                           : SLICE_NONE;
}

void about_plan(struct hf_ask *k)
{
    struct slice page = page_of(k);

    if (page.p == NULL) {
        say_error(k, 404, SLICE_NONE,
                  SLICE("this mirror passes on no such page; metadata of safetensors files can be "
                        "read from the files, by get_safetensors_metadata()"));
        return;
    }
    if (access_seen(k, page)) {
        hf_plan_json(k, page, false);
    }
}
