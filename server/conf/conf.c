#include "server/conf/conf.h"

#include <stdlib.h>
#include <sys/un.h>

#include "common/base/arena.h"
#include "common/codec/nearest.h"
#include "common/codec/network.h"
#include "common/os/clock.h"
#include "server/conf/section.h"
#include "server/conf/value.h"
#include "server/repo/oci/names.h"

enum { WARNING_BYTES = 4096 };

struct conf_file { /* what conf_read() gives out is its first field */
    struct conf conf;
    _Atomic unsigned holds;
    struct arena arena;
    struct settings_node *root;
};

static int read_limit(const struct settings_node *nd, struct limit_conf *l, struct arena *a,
                      struct err *e)
{
    struct network net;
    int rc = values_fill(nd, l, a, e);

    if (rc != 0) {
        return rc;
    }
    l->title = nd->title;
    if (nd->title[0] == '\0' ||
        (strpbrk(nd->title, ":/") != NULL && !network_parse(slice_str(nd->title), &net))) {
        return settings_wrong(
            nd->at, e,
            "limit \"%.64s\" names nobody, a title is anonymous, a token's name or a "
            "network such as 10.0.0.0/8, mend it",
            nd->title);
    }
    if (l->burst == 0) {
        l->burst = l->requests_per_s < 1 ? 1 : (uint32_t)l->requests_per_s;
    }
    return 0;
}

static int read_sections(struct conf_file *cf, struct err *e)
{
    struct conf *c = &cf->conf;
    struct arena *a = &cf->arena;
    size_t l = 0, r = 0, m = 0, d = 0;
    int rc = 0;

    c->listeners_count = settings_children(cf->root, SECTION_LISTEN);
    c->repos_count = settings_children(cf->root, SECTION_REPO);
    c->limits_count = settings_children(cf->root, SECTION_LIMIT);
    c->doors_count = settings_children(cf->root, SECTION_RSYNC);
    c->doors = arena_alloc(a, (c->doors_count + 1) * sizeof(*c->doors));
    c->listeners = arena_alloc(a, (c->listeners_count + 1) * sizeof(*c->listeners));
    c->repos = arena_alloc(a, (c->repos_count + 1) * sizeof(*c->repos));
    c->limits = arena_alloc(a, (c->limits_count + 1) * sizeof(*c->limits));
    for (struct settings_node *nd = cf->root->child; nd != NULL && rc == 0; nd = nd->next) {
        switch ((enum section)nd->section) {
        case SECTION_LISTEN:
            rc = section_listen(nd, &c->listeners[l++], a, e);
            break;
        case SECTION_REPO:
            rc = section_repo(nd, &c->repos[r], a, e);
            c->repos[r++].public_url = c->public_url;
            break;
        case SECTION_LIMIT:
            rc = read_limit(nd, &c->limits[m++], a, e);
            break;
        case SECTION_RSYNC:
            rc = section_rsync(nd, &c->doors[d++], a, e);
            break;
        case SECTION_ROOT:
        case SECTION_STORAGE:
        case SECTION_CACHE:
        case SECTION_HTTP:
        case SECTION_PEERS:
        case SECTION_RULE:
        case SECTION_ACCESS:
        case SECTION_SYNC:
        case SECTIONS:
            break;
        }
    }
    return rc;
}

static int check_roots(const struct conf_file *cf, struct err *e)
{
    const struct conf *c = &cf->conf;

    for (const struct settings_node *nd = cf->root->child; nd != NULL; nd = nd->next) {
        size_t i = 0;
        const char *root = NULL;
        for (size_t k = 0; nd->section == SECTION_LISTEN && k < c->listeners_count; k++) {
            if (c->listeners[k].address == nd->title) {
                root = c->listeners[k].root;
            }
        }
        while (root != NULL && i < c->repos_count && strcmp(c->repos[i].name, root) != 0) {
            i++;
        }
        if (root != NULL && i == c->repos_count) {
            return settings_wrong(settings_where(nd, "root"), e,
                                  "root = \"%.64s\", there is no repo of that name, add it or name "
                                  "another",
                                  root);
        }
    }
    return 0;
}

static const char *common_name(const char **a, const char **b)
{
    for (; a != NULL && *a != NULL; a++) {
        for (const char **other = b; other != NULL && *other != NULL; other++) {
            if (strcasecmp(*a, *other) == 0) {
                return *a;
            }
        }
    }
    return NULL;
}

/* What clients of registries say by ?ns= leads to one repo. */
static int check_names(struct conf_file *cf, struct err *e)
{
    const struct conf *c = &cf->conf;
    const char ***names = arena_alloc(&cf->arena, (c->repos_count + 1) * sizeof(*names));
    size_t i = 0;

    for (const struct settings_node *nd = cf->root->child; nd != NULL; nd = nd->next) {
        const char *name = NULL;
        if (nd->section != SECTION_REPO) {
            continue;
        }
        if (strcmp(c->repos[i].protocol, "oci") == 0 &&
            oci_names(&c->repos[i], &cf->arena, &names[i], e) != 0) {
            return err_prefix(e, "repo \"%s\": origin", c->repos[i].name);
        }
        for (size_t k = 0; k < i && name == NULL; k++) {
            name = common_name(names[i], names[k]);
            if (name != NULL) {
                return settings_wrong(nd->at, e,
                                      "repo \"%s\" is called %.80s by ?ns=, as repo \"%s\" is, "
                                      "give it other names, or none: names = {}",
                                      c->repos[i].name, name, c->repos[k].name);
            }
        }
        i++;
    }
    return 0;
}

static int check_whole(struct conf_file *cf, struct err *e)
{
    struct conf *c = &cf->conf;
    int rc;
    struct settings_place top = cf->root->at;

    if (c->store.low_ratio > c->store.high_ratio) {
        return settings_wrong(
            top, e,
            "storage has low above high, room would be made without end, put low below "
            "high");
    }
    if (c->listeners_count == 0) {
        return settings_wrong(top, e,
                              "there is no listen section, nobody could connect, write listen "
                              "\"0.0.0.0:8080\" { }");
    }
    if (c->control_socket == NULL) {
        c->control_socket = arena_fmt(&cf->arena, "%s/control.sock", c->store.state_dir).p;
    }
    if (strlen(c->control_socket) >= sizeof(((struct sockaddr_un *)NULL)->sun_path)) {
        return settings_wrong(
            settings_where(cf->root, "control_socket"), e,
            "the control socket's path is too long, the system takes 107 bytes, set "
            "control_socket to a shorter one");
    }
    rc = check_roots(cf, e);
    return rc == 0 ? check_names(cf, e) : rc;
}

int conf_read(const char *path, struct conf **out, struct err *e)
{
    struct conf_file *cf = NEW(struct conf_file);
    struct conf *c = &cf->conf;
    int rc;

    cf->holds = 1;
    rc = settings_read(schema_grammar(&cf->arena), path, &cf->arena, &cf->root, e);

    if (rc == 0) {
        rc = values_fill(cf->root, c, &cf->arena, e);
    }
    if (rc == 0) {
        rc = section_single(cf->root, SECTION_STORAGE, &c->store, &cf->arena, e);
    }
    if (rc == 0) {
        rc = section_single(cf->root, SECTION_CACHE, &c->cache, &cf->arena, e);
    }
    if (rc == 0) {
        rc = section_single(cf->root, SECTION_HTTP, &c->http, &cf->arena, e);
    }
    if (rc == 0 && settings_children(cf->root, SECTION_PEERS) != 0) { /* it is what turns them on */
        rc = section_single(cf->root, SECTION_PEERS, &c->peers, &cf->arena, e);
    }
    if (rc == 0) {
        rc = read_sections(cf, e);
    }
    if (rc == 0) {
        rc = check_whole(cf, e);
    }
    if (rc == 0) {
        *out = c;
    } else {
        conf_free(&c);
    }
    return rc;
}

struct conf *conf_hold(struct conf *c)
{
    atomic_fetch_add(&((struct conf_file *)(void *)c)->holds, 1);
    return c;
}

void conf_free(struct conf **cp)
{
    struct conf_file *cf = (struct conf_file *)(void *)*cp;

    *cp = NULL;
    if (cf == NULL || atomic_fetch_sub(&cf->holds, 1) != 1) {
        return;
    }
    for (size_t i = 0; i < cf->conf.repos_count; i++) {
        const char *secret = cf->conf.repos[i].origin.authorization;
        if (secret != NULL) {
            explicit_bzero((void *)(uintptr_t)secret, strlen(secret)); /* in our own arena */
        }
    }
    arena_fini(&cf->arena);
    free(cf);
}

/* Tokens live in the store, so a title that is neither `anonymous` nor a network may name one of those. Names that begin with a
 * digit and have only digits and dots are taken for addresses. */
static bool title_is_doubtful(struct slice title)
{
    static const char *const known[] = {"anonymous"};
    struct network net;
    bool numeric = true;

    if (slice_eqs(title, known[0]) || network_parse(title, &net)) {
        return false;
    }
    for (size_t i = 0; i < title.n; i++) {
        numeric = numeric && ((title.p[i] >= '0' && title.p[i] <= '9') || title.p[i] == '.');
    }
    return (numeric && slice_find(title, '.') >= 0) || nearest_word(known, 1, title) != NULL;
}

static void warn_of_limit(const struct settings_node *nd, struct buf *out)
{
    struct slice title = slice_str(nd->title);

    if (!title_is_doubtful(title)) {
        return;
    }
    buf_addf(out,
             "%s:%u: warning: limit \"%s\" holds only for a token of that name, %s, mend the "
             "title unless there is such a token\n",
             nd->at.file, nd->at.line, nd->title,
             slice_find(title, '.') >= 0 ? "and it is no network such as 10.0.0.0/8"
                                         : "did you mean \"anonymous\"?");
}

static void warn_of_certificate(const struct settings_node *nd, const struct listener_settings *l,
                                struct buf *out)
{
    int64_t now = (int64_t)clock_unix_s();
    char text[TLS_VALIDITY_TEXT];

    if (l->tls_certificate == NULL || !tls_validity_alarms(&l->valid, now)) {
        return;
    }
    tls_validity_format(&l->valid, now, text);
    buf_addf(out, "%s:%u: warning: the certificate of %s %s: see TLS in operations.md\n",
             nd->at.file, nd->at.line, l->address, text);
}

void conf_warn_of_origin(const struct repo_conf *r, struct buf *out)
{
    static const struct {
        const char *protocol, *folder;
    } below[] = {{"pypi", "simple"}, {"conda", "noarch"}, {"conda", "linux-64"}};
    struct slice url = slice_str(r->origin.url);

    while (slice_ends(url, SLICE("/"))) {
        url.n--;
    }
    for (size_t i = 0; i < ARRAY_LEN(below); i++) {
        struct slice folder = slice_str(below[i].folder);
        if (strcmp(r->protocol, below[i].protocol) == 0 && slice_ends(url, folder) &&
            url.p[url.n - folder.n - 1] == '/' &&
            (r->sync == NULL || strcmp(r->sync->index, "simple/") == 0)) {
            buf_addf(out,
                     "repo \"%s\": origin ends in \"%s/\", so what clients ask for as /%s/%s/ is "
                     "looked for in %s/%s/ there; write the address above it",
                     r->name, below[i].folder, r->name, below[i].folder, below[i].folder,
                     below[i].folder);
        }
    }
}

static void warn_of_repo(const struct settings_node *nd, const struct repo_conf *r, struct buf *out)
{
    struct settings_place at = settings_where(nd, "origin");
    struct buf said = BUF_INIT(WARNING_BYTES);

    conf_warn_of_origin(r, &said);
    if (said.n > 0) {
        buf_addf(out, "%s:%u: warning: " SLICE_FMT "\n", at.file, at.line,
                 SLICE_ARG(buf_slice(&said)));
    }
    buf_free(&said);
}

void conf_warnings(const struct conf *c, struct buf *out)
{
    const struct conf_file *cf = (const struct conf_file *)(const void *)c;
    size_t listener = 0, repo = 0;

    for (const struct settings_node *nd = cf->root->child; nd != NULL; nd = nd->next) {
        if (nd->section == SECTION_LIMIT) {
            warn_of_limit(nd, out);
        } else if (nd->section == SECTION_LISTEN) {
            warn_of_certificate(nd, &c->listeners[listener++], out);
        } else if (nd->section == SECTION_REPO) {
            warn_of_repo(nd, &c->repos[repo++], out);
        }
    }
}

void conf_print(const struct conf *c, struct buf *out)
{
    section_print(((const struct conf_file *)(const void *)c)->root, out);
}
