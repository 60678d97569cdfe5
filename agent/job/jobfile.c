#include "agent/job/jobfile.h"

#include <stdlib.h>
#include <unistd.h>

#include "agent/publish/publish.h"
#include "common/codec/nearest.h"
#include "common/codec/settings.h"
#include "common/codec/units.h"

enum { RESTARTS_MAX = 1000000, RANKS_MAX = 1024 };

/* --- the grammar ------------------------------------------------------------------------------ */

enum section { SECTION_FILE, SECTION_ARTIFACT, SECTION_RUN, SECTION_PUBLISH, SECTION_PREFLIGHT };

static const struct settings_key in_file[] = {{"mirror", true}};
static const struct settings_key in_artifact[] = {
    {"from", false}, {"sha256", false}, {"unpack", false}, {"include", true}, {"exclude", true}};
static const struct settings_key in_run[] = {
    {"command", true},       {"ranks", false},         {"restarts", false},
    {"grace", false},        {"backoff", false},       {"out", false},
    {"nodes", false},        {"node_rank", false},     {"elastic", false},
    {"rendezvous", false},   {"rendezvous_id", false}, {"rendezvous_external", false},
    {"join_timeout", false}, {"node_timeout", false}};
static const struct settings_key in_publish[] = {{"from", false}, {"to", false}};

static const struct settings_section sections[] = {
    [SECTION_FILE] = {"", 0, SETTINGS_ONCE, in_file, ARRAY_LEN(in_file)},
    [SECTION_ARTIFACT] = {"artifact", 0, SETTINGS_TITLED, in_artifact, ARRAY_LEN(in_artifact)},
    [SECTION_RUN] = {"run", 0, SETTINGS_ONCE, in_run, ARRAY_LEN(in_run)},
    [SECTION_PUBLISH] = {"publish", 0, SETTINGS_MANY, in_publish, ARRAY_LEN(in_publish)},
    [SECTION_PREFLIGHT] = {"preflight", 0, SETTINGS_ONCE, expect_keys, EXPECT_KEYS},
};

static const struct settings_grammar grammar = {
    .sections = sections,
    .nsections = ARRAY_LEN(sections),
    .manual = "trainagent(1)",
    .absent = "name another",
    .long_texts = true, /* shell scripts */
};

/* --- values ----------------------------------------------------------------------------------- */

static int read_bool(const struct settings_node *nd, const char *key, bool *out, struct err *e)
{
    return settings_truth(settings_text(nd, key, "false"), out)
               ? 0
               : settings_bad(nd, key, "is neither true nor false; write one of them", e);
}

static int read_span(const struct settings_node *nd, const char *key, const char *otherwise,
                     uint64_t *ms, struct err *e)
{
    return span_parse(slice_str(settings_text(nd, key, otherwise)), ms)
               ? 0
               : settings_bad(nd, key, "is not a time span; write one such as 25s", e);
}

/* --- sections --------------------------------------------------------------------------------- */

/* Names become folders and placeholders. */
static bool name_ok(struct slice s)
{
    for (size_t i = 0; i < s.n; i++) {
        char c = s.p[i];
        if (!((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
              c == '-' || c == '_')) {
            return false;
        }
    }
    return s.n > 0 && s.n <= 64 && !slice_eq(s, SLICE("out"));
}

static int read_artifact(struct jobfile *j, const struct settings_node *nd, struct err *e)
{
    struct job_artifact *a = &j->artifact[j->nartifacts++];
    const char *sha256 = settings_text(nd, "sha256", NULL);

    a->name = nd->title;
    a->from = settings_text(nd, "from", NULL);
    a->include = settings_texts(nd, "include", &j->arena, &a->ninclude);
    a->exclude = settings_texts(nd, "exclude", &j->arena, &a->nexclude);
    if (!name_ok(slice_str(a->name))) {
        return settings_wrong(
            nd->at, e,
            "artifact \"%.70s\": a name consists of letters, digits, '-' and '_', and out is "
            "reserved; rename it",
            a->name);
    }
    if (a->from == NULL) {
        return settings_wrong(
            nd->at, e,
            "artifact \"%s\" has no from, so there is nothing to fetch; write from = "
            "\"<repo>/<path>\"",
            a->name);
    }
    if (sha256 != NULL &&
        (!digest_parse(slice_str(sha256), &a->digest) || digest_is_zero(&a->digest))) {
        return settings_bad(nd, "sha256", "is not a SHA-256; write 64 hex digits or leave it out",
                            e);
    }
    return read_bool(nd, "unpack", &a->unpack, e);
}

/* What is wrong in the texts is said where they are read (nodes.h): the command line's come before
 * them. */
static int read_nodes(struct nodes_said *n, const struct settings_node *nd, struct err *e)
{
    const char *nodes = settings_text(nd, "nodes", "auto");
    uint64_t count = 0;
    int rc;

    if (strcmp(nodes, "auto") != 0 &&
        (!slice_u64(slice_str(nodes), &count) || count == 0 || count > NODES_MAX)) {
        return settings_bad(nd, "nodes", "is not a number of nodes; write auto or 1 to 4096", e);
    }
    n->nodes = (unsigned)count;
    n->node_rank = settings_text(nd, "node_rank", NULL);
    n->rendezvous = settings_text(nd, "rendezvous", NULL);
    n->id = settings_text(nd, "rendezvous_id", NULL);
    n->elastic = settings_text(nd, "elastic", NULL);
    rc = read_bool(nd, "rendezvous_external", &n->external, e);
    rc = rc != 0 ? rc : read_span(nd, "join_timeout", "0", &n->join_ms, e);
    return rc != 0 ? rc : read_span(nd, "node_timeout", "0", &n->lost_ms, e);
}

static int read_jobfile_run(struct jobfile *j, const struct settings_node *nd, struct err *e)
{
    const char *ranks = settings_text(nd, "ranks", "auto");
    uint64_t n = 0;
    uint64_t restarts = 0;
    int rc;

    j->command = settings_texts(nd, "command", &j->arena, &j->ncommand);
    j->out = settings_text(nd, "out", NULL);
    if (j->ncommand == 0) {
        return settings_wrong(
            nd->at, e,
            "run has no command, so there is nothing to start; write command = {\"program\", "
            "\"argument\"}");
    }
    if (strcmp(ranks, "auto") != 0 &&
        (!slice_u64(slice_str(ranks), &n) || n == 0 || n > RANKS_MAX)) {
        return settings_bad(nd, "ranks", "is not a number of processes; write auto or 1 to 1024",
                            e);
    }
    if (!slice_u64(slice_str(settings_text(nd, "restarts", "0")), &restarts) ||
        restarts > RESTARTS_MAX) {
        return settings_bad(nd, "restarts", "is not a count; write 0 to 1000000", e);
    }
    j->ranks = (unsigned)n;
    j->restarts = (unsigned)restarts;
    rc = read_nodes(&j->nodes, nd, e);
    rc = rc != 0 ? rc : read_span(nd, "grace", "25s", &j->grace_ms, e);
    return rc != 0 ? rc : read_span(nd, "backoff", "1s", &j->backoff_ms, e);
}

static int read_publish(struct jobfile *j, const struct settings_node *nd, struct err *e)
{
    struct job_publish *p = &j->publish[j->npublish++];

    p->from = settings_text(nd, "from", NULL);
    p->to = settings_text(nd, "to", NULL);
    if (p->from == NULL) {
        return settings_wrong(
            nd->at, e, "publish has no from, so there is nothing to send; write from = \"{out}\"");
    }
    if (p->to == NULL) {
        return settings_wrong(nd->at, e,
                              "publish has no to, so there is no destination; write to = "
                              "\"<repo>/<owner>/<name>\"");
    }
    /* Known now, and not when the training is done. */
    return publish_to_ok(slice_str(p->to))
               ? 0
               : settings_bad(nd, "to",
                              "is not a tree of a repository; write <repo>/<owner>/<name>", e);
}

/* --- placeholders: looked at before anything is fetched --------------------------------------- */

static const char *known_variable(void *arg, struct slice name)
{
    const struct jobfile *j = arg;

    for (size_t i = 0; i < j->nartifacts; i++) {
        if (slice_eqs(name, j->artifact[i].name)) {
            return "";
        }
    }
    return slice_eq(name, SLICE("out")) ? "" : NULL;
}

static int check_text(struct jobfile *j, const struct settings_given *g, struct err *e)
{
    const char **names = arena_alloc(&j->arena, (j->nartifacts + 1) * sizeof names[0]);
    struct buf unused = BUF_INIT(64 << 10);
    const char *near;
    struct slice name;
    int rc = jobfile_fill(g->text, known_variable, j, &unused, &name, e);

    buf_free(&unused);
    if (rc != E_NOTFOUND) {
        return rc;
    }
    for (size_t i = 0; i < j->nartifacts; i++) {
        names[i] = j->artifact[i].name;
    }
    names[j->nartifacts] = "out";
    near = nearest_word(names, j->nartifacts + 1, name);
    return settings_wrong(
        g->at, e,
        "{%.*s} is neither an artifact of this job nor {out}%s%s%s (write {{ for a literal brace)",
        (int)min_u64(name.n, 64), name.p, near != NULL ? ", did you mean {" : "",
        near != NULL ? near : "", near != NULL ? "}?" : "");
}

static int check_texts(struct jobfile *j, const struct settings_node *nd, const char *key,
                       struct err *e)
{
    int rc = 0;

    for (const struct settings_given *g = settings_given(nd, key); g != NULL && rc == 0;
         g = g->next) {
        rc = check_text(j, g, e);
    }
    return rc;
}

/* --- the file --------------------------------------------------------------------------------- */

static int read_section(struct jobfile *j, const struct settings_node *nd, struct err *e)
{
    switch ((enum section)nd->section) {
    case SECTION_ARTIFACT:
        return read_artifact(j, nd, e);
    case SECTION_RUN:
        return read_jobfile_run(j, nd, e);
    case SECTION_PUBLISH:
        return read_publish(j, nd, e);
    case SECTION_PREFLIGHT:
        j->preflight = true;
        return expect_section(nd, &j->expect, e);
    case SECTION_FILE:
        break;
    }
    return 0;
}

static int read_jobfile_keys(struct jobfile *j, const struct settings_node *root, struct err *e)
{
    int rc = 0;

    j->mirror = settings_joined(root, "mirror", &j->arena);
    j->artifact = arena_alloc(&j->arena, (settings_children(root, SECTION_ARTIFACT) + 1) *
                                             sizeof j->artifact[0]);
    j->publish = arena_alloc(&j->arena,
                             (settings_children(root, SECTION_PUBLISH) + 1) * sizeof j->publish[0]);
    if (root->child == NULL) {
        return settings_wrong(
            root->at, e,
            "the file has no artifact, run or publish, so there is nothing to do; write run { "
            "command = {\"program\", \"argument\"} }");
    }
    for (const struct settings_node *nd = root->child; nd != NULL && rc == 0; nd = nd->next) {
        rc = read_section(j, nd, e);
    }
    for (const struct settings_node *nd = root->child; nd != NULL && rc == 0; nd = nd->next) {
        if (nd->section == SECTION_RUN) {
            rc = check_texts(j, nd, "command", e);
        } else if (nd->section == SECTION_PUBLISH) {
            rc = check_texts(j, nd, "from", e);
        }
    }
    return rc;
}

int jobfile_read(const char *path, struct jobfile *j, struct err *e)
{
    struct settings_node *root;
    int rc;

    *j = (struct jobfile){0};
    if (access(path, R_OK) == -1) {
        return err_sys(e, "%s", path); /* not found is not wrong */
    }
    rc = settings_read(&grammar, path, &j->arena, &root, e);
    rc = rc != 0 ? rc : read_jobfile_keys(j, root, e);
    if (rc != 0) {
        jobfile_fini(j);
    }
    return rc;
}

void jobfile_fini(struct jobfile *j)
{
    arena_fini(&j->arena);
    *j = (struct jobfile){0};
}

int jobfile_fill(const char *text, const char *(*value)(void *arg, struct slice name), void *arg,
                 struct buf *out, struct slice *unknown, struct err *e)
{
    struct slice rest = slice_str(text);

    while (rest.n > 0) {
        ptrdiff_t end = slice_find(rest, '}');
        struct slice name;
        const char *v;

        if (rest.p[0] != '{') {
            buf_byte(out, (uint8_t)rest.p[0]);
            rest = slice_from(rest, 1);
            continue;
        }
        if (rest.n > 1 && rest.p[1] == '{') {
            buf_byte(out, '{');
            rest = slice_from(rest, 2);
            continue;
        }
        name = end > 0 ? slice_of(rest.p + 1, (size_t)end - 1) : slice_from(rest, 1);
        v = end > 0 ? value(arg, name) : NULL;
        if (v == NULL) {
            *unknown = name;
            return err_set(e, E_NOTFOUND, "no {" SLICE_FMT "}", SLICE_ARG(name));
        }
        buf_str(out, v);
        rest = slice_from(rest, (size_t)end + 1);
    }
    return out->rc != 0 ? err_set(e, E_TOOBIG, "\"%.100s\": the text is too long", text) : 0;
}
