/* carry_claim.c - is what comes in what it says it is, and may this repo have it? Its names first, then the Hub's words, then the
 * digest of each file: what the commit's listing has is what is expected, no more and no less. */
#include "server/hub/carry_in.h"

#include "server/repo/hosted/hosted.h"
#include "server/store/ref.h"

enum { NAME_MAX_BYTES = 250 };

bool carry_is_main(struct slice rev)
{
    return slice_eqs(rev, "main") || hf_is_commit(rev);
}

int carry_claim_names(struct carry_in *c, const struct carry_in_ask *ask, struct err *e)
{
    struct slice rest = ask->id;
    struct slice owner = slice_cut(&rest, '/');
    struct hf_spec spec;
    bool fine = hf_is_id(ask->id) && hf_is_commit(ask->commit) && hf_is_path(ask->rev);

    fine = fine && ask->rev.n != 0 &&
           hf_spec_parse(arena_fmt(&c->is.arena, SLICE_FMT "/" SLICE_FMT, SLICE_ARG(ask->type),
                                   SLICE_ARG(ask->id)),
                         &spec) &&
           slice_eq(spec.type, ask->type);
    for (size_t i = 0; fine && i < ask->names_count; i++) {
        fine = hf_is_id(ask->names[i]);
    }
    if (!fine || ask->type.n + ask->id.n + ask->rev.n > NAME_MAX_BYTES) {
        return err_set(e, E_INVALID, "no repository of a Hub is called so");
    }
    if (c->is.kind == STOCK_HOSTED &&
        (slice_eqs(ask->type, "kernels") || rest.n == 0 || !hosted_segment_valid(owner) ||
         !hosted_segment_valid(rest))) {
        return err_set(e, E_UNSUPPORTED,
                       SLICE_FMT
                       "/" SLICE_FMT
                       " cannot be in a hosted repo, which has models, datasets and spaces "
                       "called owner/name",
                       SLICE_ARG(ask->type), SLICE_ARG(ask->id));
    }
    if (c->is.kind == STOCK_HOSTED && !carry_is_main(ask->rev) && !ref_name_valid(ask->rev)) {
        return err_set(e, E_UNSUPPORTED,
                       "no branch of a hosted repo can be called \"" SLICE_FMT
                       "\", export the revision by its commit",
                       SLICE_ARG(ask->rev));
    }
    return 0;
}

static int learn_info(struct carry_in *c, const struct carry_in_ask *ask, struct err *e)
{
    struct buf made = BUF_INIT(CARRY_WORDS_BYTES);
    struct repo_info info;
    int rc = info_make(ask->info, &made, e);

    if (rc == 0 && (!info_read(buf_slice(&made), &info) || !slice_eq(info.commit, ask->commit) ||
                    !slice_eq(info.id, ask->id))) {
        rc = err_set(e, E_INVALID,
                     "the Hub's words that came along are of another repository or commit than "
                     "what they came with");
    }
    if (rc == 0) {
        c->is.closed = info.closed;
        buf_adds(&c->is.info, info.json);
    }
    buf_free(&made);
    return rc != 0 ? rc : c->is.info.rc;
}

/* Who may read it at the Hub nobody can be asked here. */
static int judge_rights(struct carry_in *c, struct err *e)
{
    bool hosted = c->is.kind == STOCK_HOSTED;

    if (!c->is.closed || c->open ||
        (hosted ? !c->is.repo->anonymous_read : !c->is.repo->by_caller)) {
        return 0;
    }
    if (hosted) {
        return err_set(e, E_DENIED,
                       "%.80s is not open to all at the Hub, and everybody may read repo %.40s: "
                       "add --open to show it to them, or take a repo with access { anonymous = "
                       "none }",
                       arena_cstr(&c->is.arena, c->is.id), c->is.repo->name);
    }
    return err_set(
        e, E_DENIED,
        "%.80s is not open to all at the Hub, and repo %.40s asks there for each caller's "
        "right: add --open to show it to all who may read the repo, or take one with "
        "credentials = service",
        arena_cstr(&c->is.arena, c->is.id), c->is.repo->name);
}

/* "hex path NUL" for each file, in the order of the listing. */
static int learn_digests(struct carry_in *c, struct slice said, struct err *e)
{
    c->file = mem_array(c->is.files.count + 1, sizeof *c->file);
    for (size_t i = 0; i < c->is.files.count; i++) {
        struct carry_in_file *f = &c->file[c->files];
        struct manifest_entry en;
        struct slice path;
        manifest_at(&c->is.files, i, &en);
        if (en.folder) {
            continue;
        }
        path = slice_cut(&said, '\0');
        f->at = (uint32_t)i;
        if (path.n <= DIGEST_HEX + 1 || path.p[DIGEST_HEX] != ' ' ||
            !digest_parse(slice_first(path, DIGEST_HEX), &f->digest) ||
            !slice_eq(slice_from(path, DIGEST_HEX + 1), en.path) ||
            (en.lfs && !digest_eq(&en.sha256, &f->digest))) {
            return err_set(e, E_INVALID,
                           "the files that are carried are not those of the commit's listing, "
                           "from \"" SLICE_FMT "\" on",
                           SLICE_ARG(en.path));
        }
        if (!tree_path_valid(en.path)) {
            return err_set(e, E_INVALID, "\"" SLICE_FMT "\" can be no path here",
                           SLICE_ARG(en.path));
        }
        c->files++;
    }
    return said.n == 0
               ? 0
               : err_set(e, E_INVALID, "more files are carried than the commit's listing has");
}

int carry_claim_words(struct carry_in *c, const struct carry_in_ask *ask, struct err *e)
{
    int rc = learn_info(c, ask, e);

    if (rc == 0) {
        rc = judge_rights(c, e);
    }
    if (rc == 0) {
        rc = json_join(ask->tree, true, &c->is.tree, e);
    }
    if (rc == 0) {
        rc = manifest_add(buf_slice(&c->is.tree), SLICE(""), true, true, &c->is.listing, e);
    }
    if (rc == 0 && !manifest_open(buf_slice(&c->is.listing), &c->is.files)) {
        rc = err_set(e, E_INVALID, "the listing that came along is not understood");
    }
    return rc == 0 ? learn_digests(c, ask->digests, e) : rc;
}
