#include "server/hub/inventory.h"

#include "server/hub/inventory_priv.h"
#include "server/repo/hf/synced.h"

bool inventory_kind_of(const struct repo *r, enum inventory_kind *out)
{
    bool hub = strcmp(r->ops->name, "hf") == 0;

    *out = !hub ? INVENTORY_HOSTED : r->synced ? INVENTORY_SYNCED : INVENTORY_PULLED;
    return hub || strcmp(r->ops->name, "hosted") == 0;
}

const char *inventory_kind_name(enum inventory_kind k)
{
    switch (k) {
    case INVENTORY_PULLED:
        return "pull-through";
    case INVENTORY_SYNCED:
        return "synced";
    case INVENTORY_HOSTED:
        return "hosted";
    }
    return "?";
}

const char *inventory_state_name(enum inventory_state s)
{
    switch (s) {
    case INVENTORY_ABSENT:
        return "absent";
    case INVENTORY_PARTIAL:
        return "partial";
    case INVENTORY_WHOLE:
        return "whole";
    }
    return "?";
}

/* --- names ------------------------------------------------------------------------------------ */

static struct repo *find_hub(const struct repo_set *rs, struct slice name)
{
    struct repo *r = repo_set_find(rs, name);
    enum inventory_kind k;

    return r != NULL && inventory_kind_of(r, &k) ? r : NULL;
}

/* The name is ambiguous: the error names all candidates, and gives `text` with the first of them in
 * front as an example. */
static int several(const struct repo_set *rs, struct slice text, bool hubs, struct err *e)
{
    struct buf names = BUF_INIT(1 << 10);
    const char *first = NULL;
    enum inventory_kind k;
    int rc;

    for (size_t i = 0; i < rs->count; i++) {
        if (inventory_kind_of(rs->repo[i], &k) && (!hubs || k != INVENTORY_HOSTED)) {
            buf_addf(&names, "%s%s", first != NULL ? ", " : "", rs->repo[i]->name);
            first = first != NULL ? first : rs->repo[i]->name;
        }
    }
    rc = err_set(e, E_USAGE,
                 "several repos are possible (%.80s); put the name of one in front: %s/" SLICE_FMT,
                 buf_cstr(&names), first, SLICE_ARG(text));
    buf_free(&names);
    return rc;
}

/* Of several one is meant where it alone is a Hub's mirror. */
static int only_one(const struct repo_set *rs, struct slice text, struct repo **out, struct err *e)
{
    unsigned hubs = 0, hosted = 0;
    struct repo *of_us = NULL;
    enum inventory_kind k;

    *out = NULL;
    for (size_t i = 0; i < rs->count; i++) {
        if (!inventory_kind_of(rs->repo[i], &k)) {
            continue;
        }
        if (k == INVENTORY_HOSTED) {
            hosted++;
            of_us = rs->repo[i];
        } else {
            hubs++;
            *out = rs->repo[i];
        }
    }
    if (hubs == 1) {
        return 0;
    }
    *out = hubs == 0 && hosted == 1 ? of_us : NULL;
    if (*out != NULL) {
        return 0;
    }
    return hubs + hosted == 0 ? err_set(e, E_NOTFOUND,
                                        "no repo here has protocol hf or hosted, which this "
                                        "command needs; see `mirrorctl repo ls`")
                              : several(rs, text, hubs != 0, e);
}

/* "gpt2 main" for "gpt2@main": the first word is read as a repo's name where it has no '/'. */
static int no_repo(struct slice repo, struct slice text, struct err *e)
{
    if (slice_find(text, '/') < 0 && slice_find(text, '@') < 0) {
        return err_set(
            e, E_NOTFOUND,
            "\"" SLICE_FMT "\" is not a repo with protocol hf or hosted; see `mirrorctl "
            "repo ls`; revision " SLICE_FMT " of " SLICE_FMT " is written " SLICE_FMT "@" SLICE_FMT,
            SLICE_ARG(repo), SLICE_ARG(text), SLICE_ARG(repo), SLICE_ARG(repo), SLICE_ARG(text));
    }
    return err_set(e, E_NOTFOUND,
                   "\"" SLICE_FMT
                   "\" is not a repo with protocol hf or hosted; see `mirrorctl repo ls`",
                   SLICE_ARG(repo));
}

int inventory_name_read(const struct repo_set *rs, struct slice repo, struct slice text,
                        struct inventory_name *out, struct err *e)
{
    struct slice rest = text;
    struct slice first = slice_cut(&rest, '/');
    bool has_rev = slice_find(text, '@') >= 0;
    struct hf_spec spec;
    int rc = 0;

    *out = (struct inventory_name){0};
    if (repo.p != NULL) {
        out->repo = find_hub(rs, repo);
        rest = text;
        rc = out->repo == NULL ? no_repo(repo, text, e) : 0;
    } else if (rest.n != 0 && find_hub(rs, first) != NULL && hf_spec_parse(rest, &spec)) {
        out->repo = find_hub(rs, first);
    } else {
        rest = text;
        rc = only_one(rs, text, &out->repo, e);
    }
    if (rc == 0 && !hf_spec_parse(rest, &spec)) {
        rc = err_set(e, E_INVALID,
                     "\"" SLICE_FMT "\" is not a repository; write owner/name, datasets/owner/name "
                     "or spaces/owner/name, optionally followed by @revision",
                     SLICE_ARG(text));
    }
    if (rc == 0) {
        out->type = spec.type;
        out->prefix = spec.prefix;
        out->id = spec.id;
        out->rev = has_rev ? spec.rev : SLICE_NONE;
    }
    return rc;
}

/* --- by kind ---------------------------------------------------------------------------------- */

static const struct inventory_ops *ops_of(const struct inventory_view *v)
{
    enum inventory_kind k;

    CHECK(inventory_kind_of(v->r, &k));
    switch (k) {
    case INVENTORY_PULLED:
        return &inventory_pulled;
    case INVENTORY_SYNCED:
        return &inventory_synced;
    case INVENTORY_HOSTED:
        return &inventory_hosted;
    }
    return &inventory_pulled;
}

int inventory_each(const struct inventory_view *v, struct slice prefix,
                   int (*each)(void *arg, const struct inventory_repo *x), void *arg, struct err *e)
{
    return ops_of(v)->repos(v, prefix, each, arg, e);
}

int inventory_revisions(const struct inventory_view *v, struct slice type, struct slice id,
                        int (*each)(void *arg, const struct inventory_revision *x), void *arg,
                        struct err *e)
{
    return ops_of(v)->revisions(v, type, id, each, arg, e);
}

int inventory_files(const struct inventory_view *v, struct slice type, struct slice id,
                    struct slice rev, struct arena *a, struct inventory_revision *about,
                    int (*each)(void *arg, const struct inventory_file *f), void *arg,
                    struct err *e)
{
    *about = (struct inventory_revision){0};
    return ops_of(v)->files(v, type, id, rev.p != NULL ? rev : SLICE("main"), a, about, each, arg,
                            e);
}

int inventory_id(const struct inventory_view *v, struct slice type, struct slice id,
                 struct arena *a, struct slice *out, struct err *e)
{
    const struct inventory_ops *ops = ops_of(v);

    *out = id;
    return ops->id != NULL ? ops->id(v, type, id, a, out, e) : 0;
}

bool inventory_shown(struct slice type, struct slice id, struct slice prefix)
{
    struct buf name = BUF_INIT(1024);
    bool yes;

    if (!slice_eqs(type, "models")) {
        buf_addf(&name, SLICE_FMT "/", SLICE_ARG(type));
    } else if (slice_starts(prefix, SLICE("models/"))) {
        prefix = slice_from(prefix, 7);
    }
    buf_adds(&name, id);
    yes = slice_starts(buf_slice(&name), prefix);
    buf_free(&name);
    return yes;
}
