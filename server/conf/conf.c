#include "server/conf/conf.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/un.h>
#include <unistd.h>

#include "common/base/arena.h"
#include "common/codec/nearest.h"
#include "common/codec/network.h"
#include "common/os/clock.h"
#include "server/conf/repo.h"
#include "server/conf/value.h"
#include "server/net/tls.h"
#include "server/repo/oci/names.h"
#include "server/rsync/users.h"

enum { WARNING_BYTES = 4096 };

struct conf_file { /* what conf_read() gives out is its first field */
    struct conf conf;
    _Atomic unsigned holds;
    struct arena arena;
    struct settings_node *root;
};

/* --- the sections of sockets: listen, and rsync's own --- */

static bool address_valid(const char *text)
{
    const char *colon = strrchr(text, ':');
    struct slice host, port;
    struct network net;
    uint64_t n;

    if (colon == NULL) {
        return false;
    }
    host = slice_of(text, (size_t)(colon - text));
    port = slice_str(colon + 1);
    if (!slice_u64(port, &n) || n > 65535) {
        return false;
    }
    if (host.n >= 2 && host.p[0] == '[' && host.p[host.n - 1] == ']') {
        host = slice_of(host.p + 1, host.n - 2);
        return slice_find(host, ':') >= 0 && slice_find(host, '/') < 0 && network_parse(host, &net);
    }
    return host.n == 0 ||
           (slice_find(host, ':') < 0 && slice_find(host, '/') < 0 && network_parse(host, &net));
}

static int read_listen(const struct settings_node *nd, struct listener_settings *l, struct arena *a,
                       struct err *e)
{
    struct tls_identity *t = NULL;
    struct err why = {0};
    int rc = values_fill(nd, l, a, e);

    if (rc != 0) {
        return rc;
    }
    l->address = nd->title;
    if (!address_valid(nd->title)) {
        return settings_wrong(nd->at, e,
                              "listen \"%.80s\": invalid address; write an address and a port, "
                              "such as 0.0.0.0:8080 or [::]:8443",
                              nd->title);
    }
    if ((l->tls_certificate == NULL) != (l->tls_key == NULL)) {
        return settings_wrong(
            nd->at, e,
            "listen \"%s\" has only %s, but TLS needs a certificate and its key; set both",
            nd->title, l->tls_key == NULL ? "tls_certificate" : "tls_key");
    }
    if (l->tls_certificate != NULL) {
        if (tls_identity_open(l->tls_certificate, l->tls_key, &t, &why) != 0) {
            return settings_wrong(settings_where(nd, "tls_certificate"), e,
                                  "the certificate and the key cannot be used: %s; check both "
                                  "files",
                                  why.text);
        }
        l->valid = tls_identity_validity(t);
        tls_identity_close(&t);
    }
    return 0;
}

static int read_rsync(const struct settings_node *nd, struct rsync_conf *d, struct arena *a,
                      struct err *e)
{
    struct err why;
    int rc = values_fill(nd, d, a, e);

    if (rc != 0) {
        return rc;
    }
    d->address = nd->title;
    if (!address_valid(nd->title)) {
        return settings_wrong(nd->at, e,
                              "rsync \"%.80s\": invalid address; write an address and a port, "
                              "such as 0.0.0.0:873",
                              nd->title);
    }
    return d->users != NULL && users_check(d->users, &why) != 0
               ? settings_wrong(nd->at, e, "%s", why.text)
               : 0;
}

/* --- all of them --- */

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
            "limit \"%.64s\": invalid title; write \"anonymous\", the name of a token or a "
            "network such as 10.0.0.0/8",
            nd->title);
    }
    if (l->burst == 0) {
        l->burst = l->requests_per_s < 1 ? 1 : (uint32_t)l->requests_per_s;
    }
    return 0;
}

static int read_cluster(const struct settings_node *nd, struct conf *c, struct arena *a,
                        struct err *e)
{
    struct err why = {0};
    int rc;

    if (c->cluster.bucket.url != NULL) {
        return settings_wrong(nd->at, e,
                              "there are two cluster sections; a mirror belongs to one cluster");
    }
    rc = values_fill(nd, &c->cluster, a, e);
    if (rc != 0) {
        return rc;
    }
    c->cluster.bucket.url = nd->title;
    rc = bucket_check_settings(&c->cluster.bucket, &why);
    rc = rc != 0 || c->cluster.hints == NULL ? rc : hints_check_url(c->cluster.hints, &why);
    return rc == 0 ? 0 : settings_wrong(nd->at, e, "cluster \"%.80s\": %s", nd->title, why.text);
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
            rc = read_listen(nd, &c->listeners[l++], a, e);
            break;
        case SECTION_REPO:
            rc = section_repo(nd, &c->repos[r], a, e);
            c->repos[r++].public_url = c->public_url;
            break;
        case SECTION_LIMIT:
            rc = read_limit(nd, &c->limits[m++], a, e);
            break;
        case SECTION_RSYNC:
            rc = read_rsync(nd, &c->doors[d++], a, e);
            break;
        case SECTION_CLUSTER:
            rc = read_cluster(nd, c, a, e);
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
                                  "root = \"%.64s\": there is no repo of that name; add it or "
                                  "name another",
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
                                      "repo \"%s\" has the registry name %.80s (?ns=), which "
                                      "repo \"%s\" has too; give it other names, or none: names "
                                      "= {}",
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
            top, e, "storage has low above high, so eviction would never end; set low below high");
    }
    if (c->listeners_count == 0) {
        return settings_wrong(top, e,
                              "there is no listen section, so no client could connect; write "
                              "listen \"0.0.0.0:8080\" { }");
    }
    if (c->control_socket == NULL) {
        c->control_socket = arena_fmt(&cf->arena, "%s/control.sock", c->store.state_dir).p;
    }
    if (strlen(c->control_socket) >= sizeof(((struct sockaddr_un *)NULL)->sun_path)) {
        return settings_wrong(
            settings_where(cf->root, "control_socket"), e,
            "the control socket's path is too long: the system's limit is 107 bytes; set "
            "control_socket to a shorter one");
    }
    rc = check_roots(cf, e);
    return rc != 0 ? rc : check_names(cf, e);
}

int conf_read(const char *path, struct conf **out, struct err *e)
{
    struct conf_file *cf = NEW(struct conf_file);
    struct conf *c = &cf->conf;
    int rc;

    cf->holds = 1;
    rc = settings_read(schema_grammar(&cf->arena), path, &cf->arena, &cf->root, e);
    rc = rc != 0 ? rc : values_fill(cf->root, c, &cf->arena, e);
    rc = rc != 0 ? rc : values_single(cf->root, SECTION_STORAGE, &c->store, &cf->arena, e);
    rc = rc != 0 ? rc : values_single(cf->root, SECTION_CACHE, &c->cache, &cf->arena, e);
    rc = rc != 0 ? rc : values_single(cf->root, SECTION_HTTP, &c->http, &cf->arena, e);
    if (rc == 0 && settings_children(cf->root, SECTION_PEERS) != 0) { /* it is what turns them on */
        rc = values_single(cf->root, SECTION_PEERS, &c->peers, &cf->arena, e);
    }
    rc = rc != 0 ? rc : read_sections(cf, e);
    rc = rc != 0 ? rc : check_whole(cf, e);
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

static void forget_secret(const char *secret)
{
    if (secret != NULL) {
        explicit_bzero((void *)(uintptr_t)secret, strlen(secret)); /* in our own arena */
    }
}

void conf_free(struct conf **cp)
{
    struct conf_file *cf = (struct conf_file *)(void *)*cp;

    *cp = NULL;
    if (cf == NULL || atomic_fetch_sub(&cf->holds, 1) != 1) {
        return;
    }
    for (size_t i = 0; i < cf->conf.repos_count; i++) {
        forget_secret(cf->conf.repos[i].origin.authorization);
    }
    forget_secret(cf->conf.cluster.bucket.authorization);
    forget_secret(cf->conf.cluster.secret);
    forget_secret(cf->conf.cluster.hints_authorization);
    arena_fini(&cf->arena);
    free(cf);
}

/* Tokens live in the store, so a title that is neither `anonymous` nor a network may name one of
 * those. Names that begin with a digit and have only digits and dots are taken for addresses. */
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
             "%s:%u: warning: limit \"%s\" applies only to a token of that name (%s); correct "
             "the title unless there is such a token\n",
             nd->at.file, nd->at.line, nd->title,
             slice_find(title, '.') >= 0 ? "it is not a network such as 10.0.0.0/8"
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
    buf_addf(out, "%s:%u: warning: the certificate of %s %s; see TLS in operations.md\n",
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
                     "repo \"%s\": origin ends in \"%s/\", so a request for /%s/%s/ would be "
                     "sent there as %s/%s/; write the address one level above",
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

bool conf_warn_of_reserve(const struct conf *c, struct buf *out)
{
    return store_warn_of_reserve(&c->store, out);
}

static void warn_of_reserve(const struct settings_node *root, const struct conf *c, struct buf *out)
{
    struct settings_place at = settings_where(root, "state_dir");
    struct buf said = BUF_INIT(WARNING_BYTES);

    for (const struct settings_node *nd = root->child; nd != NULL; nd = nd->next) {
        at = nd->section == SECTION_STORAGE ? settings_where(nd, "reserve") : at;
    }
    if (conf_warn_of_reserve(c, &said)) {
        buf_addf(out, "%s:%u: warning: " SLICE_FMT "\n", at.file, at.line,
                 SLICE_ARG(buf_slice(&said)));
    }
    buf_free(&said);
}

static void warn_of_cluster(const struct settings_node *nd, const struct cluster_settings *set,
                            struct buf *out)
{
    bool addressed = set->address != NULL;

    if (addressed != (set->secret != NULL)) {
        struct settings_place at = settings_where(nd, addressed ? "address" : "secret");
        buf_addf(out,
                 "%s:%u: warning: mirrors pass on uploads and ask each other for objects only if "
                 "both secret and address are set; add %s\n",
                 at.file, at.line, addressed ? "secret" : "address");
    }
}

void conf_warnings(const struct conf *c, struct buf *out)
{
    const struct conf_file *cf = (const struct conf_file *)(const void *)c;
    size_t listener = 0, repo = 0;

    warn_of_reserve(cf->root, c, out);
    for (const struct settings_node *nd = cf->root->child; nd != NULL; nd = nd->next) {
        if (nd->section == SECTION_LIMIT) {
            warn_of_limit(nd, out);
        } else if (nd->section == SECTION_LISTEN) {
            warn_of_certificate(nd, &c->listeners[listener++], out);
        } else if (nd->section == SECTION_REPO) {
            warn_of_repo(nd, &c->repos[repo++], out);
        } else if (nd->section == SECTION_CLUSTER) {
            warn_of_cluster(nd, &c->cluster, out);
        }
    }
    if (c->repos_count == 0) {
        buf_addf(out, "%s:%u: warning: %s\n", cf->root->at.file, cf->root->at.line, CONF_NO_REPOS);
    }
}

/* --- printing: the settings as they count, texts as written, defaults where nothing was --- */

static void print_text(struct buf *out, const char *text)
{
    buf_byte(out, '"');
    for (; *text != '\0'; text++) {
        if (*text == '\n' || *text == '\r' || *text == '\t') {
            buf_addf(out, "\\%c", *text == '\n' ? 'n' : *text == '\r' ? 'r' : 't');
            continue;
        }
        if (strchr("\"\\$", *text) != NULL) {
            buf_byte(out, '\\');
        }
        buf_byte(out, (uint8_t)*text);
    }
    buf_byte(out, '"');
}

/* A path that is still relative counts from here, but the print may be read from elsewhere. */
static bool counts_from_here(const struct setting *set, const char *text)
{
    return set->kind == KIND_PATH ||
           (set->kind == KIND_FILE && strncmp(text, "credential:", 11) != 0) ||
           (set->kind == KIND_LOG && strcmp(text, "stderr") != 0 && strcmp(text, "none") != 0);
}

static void print_value(struct buf *out, const struct setting *set, const char *text)
{
    char path[PATH_MAX * 2];
    size_t n;

    if (text[0] == '/' || !counts_from_here(set, text) || getcwd(path, PATH_MAX) == NULL) {
        print_text(out, text);
        return;
    }
    n = strlen(path);
    snprintf(path + n, sizeof(path) - n, "/%s", text);
    print_text(out, path);
}

static void print_setting(struct buf *out, const char *indent, const struct setting *set,
                          const struct settings_given *g, bool written)
{
    if (set->kind == KIND_ORIGINS && g != NULL && g->next == NULL) {
        buf_addf(out, "%s%s = ", indent, set->key);
        print_text(out, g->text);
        buf_byte(out, '\n');
        return;
    }
    if (kind_is_list(set->kind)) {
        if (!written) {
            return;
        }
        buf_addf(out, "%s%s = {", indent, set->key);
        for (; g != NULL; g = g->next) {
            print_text(out, g->text);
            buf_str(out, g->next != NULL ? ", " : "");
        }
        buf_str(out, "}\n");
        return;
    }
    if (g == NULL && set->def == NULL) {
        return;
    }
    buf_addf(out, "%s%s = ", indent, set->key);
    print_value(out, set, g != NULL ? g->text : set->def);
    buf_byte(out, '\n');
}

static void print_section(struct buf *out, const struct settings_node *nd, unsigned depth)
{
    static const char *const indents[] = {"", "    ", "        "};
    const struct section_info *info = section_info((enum section)nd->section);
    size_t n;
    const struct setting *set = section_settings((enum section)nd->section, &n);

    CHECK(depth < ARRAY_LEN(indents));
    for (size_t i = 0; i < n; i++) {
        print_setting(out, indents[depth], &set[i], nd->given[i], nd->written[i]);
    }
    for (const struct settings_node *c = nd->child; c != NULL; c = c->next) {
        info = section_info((enum section)c->section);
        buf_addf(out, "%s%s ", indents[depth], info->name);
        if (info->titled[0] != '\0') {
            print_text(out, c->title);
            buf_byte(out, ' ');
        }
        buf_str(out, "{\n");
        print_section(out, c, depth + 1);
        buf_addf(out, "%s}\n", indents[depth]);
    }
}

void conf_print(const struct conf *c, struct buf *out)
{
    print_section(out, ((const struct conf_file *)(const void *)c)->root, 0);
}
