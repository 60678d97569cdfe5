#include "server/conf.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/un.h>
#include <unistd.h>

#include "common/base/arena.h"
#include "common/codec/filter.h"
#include "common/codec/nearest.h"
#include "server/conf/schema.h"
#include "server/conf/value.h"
#include "server/gate/network.h"
#include "server/net/tls.h"
#include "server/rsync/users.h"
#include "server/sync/sync.h"

struct conf_file { /* what conf_read() gives out is its first field */
    struct conf conf;
    struct arena arena;
    struct settings_node *root;
};

static size_t children(const struct settings_node *nd, enum section sec)
{
    size_t n = 0;

    for (const struct settings_node *c = nd->child; c != NULL; c = c->next) {
        n += c->section == sec;
    }
    return n;
}

/* A section that may stand once; where it does not stand, an empty one is put, so that `-T` shows its defaults. Children
 * stand in the order of settings.def. */
static int fill_single(struct settings_node *parent, enum section sec, void *base, struct arena *a,
                       struct err *e)
{
    struct settings_node **at = &parent->child, *nd;

    while (*at != NULL && (*at)->section < sec) {
        at = &(*at)->next;
    }
    nd = *at;
    if (nd == NULL || nd->section != sec) {
        nd = settings_empty(parent, sec, a);
        nd->next = *at;
        *at = nd;
    } else if (nd->next != NULL && nd->next->section == sec) {
        return settings_wrong(
            nd->next->at, e,
            "section %s stands here again, the first is at %s:%u, put both into one",
            section_info(sec)->name, nd->at.file, nd->at.line);
    }
    return values_fill(nd, base, a, e);
}

/* --- listeners --- */

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

static int read_listener(const struct settings_node *nd, struct listener_settings *l,
                         struct arena *a, struct err *e)
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
                              "listen \"%.80s\", that is no address and port, write one such as "
                              "0.0.0.0:8080 or [::]:8443",
                              nd->title);
    }
    if ((l->tls_certificate == NULL) != (l->tls_key == NULL)) {
        return settings_wrong(
            nd->at, e,
            "listen \"%s\" has %s alone, TLS needs the certificate and its key, write "
            "both",
            nd->title, l->tls_key == NULL ? "tls_certificate" : "tls_key");
    }
    if (l->tls_certificate != NULL) {
        if (tls_identity_open(l->tls_certificate, l->tls_key, &t, &why) != 0) {
            return settings_wrong(settings_where(nd, "tls_certificate"), e,
                                  "certificate and key do not serve, %s, see to both files",
                                  why.text);
        }
        tls_identity_close(&t);
    }
    return 0;
}

/* --- repos --- */

static bool name_valid(const char *name)
{
    static const char *const reserved[] = {"healthz", "readyz", "metrics", "v2", "-"};
    size_t n = strlen(name);

    for (size_t i = 0; i < ARRAY_LEN(reserved); i++) {
        if (strcmp(name, reserved[i]) == 0) {
            return false;
        }
    }
    return n > 0 && n < 64 && name[0] != '.' && name[0] != '-' &&
           strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789._-") == n;
}

static int read_rules(const struct settings_node *nd, struct repo_conf *r, struct arena *a,
                      struct err *e)
{
    size_t n = children(nd, SECTION_RULE), i = 0;
    struct rule_conf *rules = arena_alloc(a, (n + 1) * sizeof(*rules));
    int rc;

    for (const struct settings_node *c = nd->child; c != NULL; c = c->next) {
        struct rules *compiled = NULL;
        struct err why = {0};
        if (c->section != SECTION_RULE) {
            continue;
        }
        rules[i].pattern = c->title;
        rc = values_fill(c, &rules[i], a, e);
        if (rc != 0) {
            return rc;
        }
        /* One by one, so that the error names the line. */
        if (rules_compile(&rules[i], 1, &compiled, &why) != 0) {
            return settings_wrong(c->at, e, "rule '%.60s' does not work, %s, see pcre2pattern(3)",
                                  c->title, why.text);
        }
        rules_free(&compiled);
        i++;
    }
    r->rules = rules;
    r->rules_count = n;
    return 0;
}

static int unknown_protocol(const struct settings_node *nd, const char *said, struct err *e)
{
    static const char *const spoken[] = {
#define REPO(protocol) #protocol,
#include "server/repo/repos.def"
#undef REPO
    };
    const char *near = nearest_word(spoken, ARRAY_LEN(spoken), slice_str(said));

    return settings_wrong(settings_where(nd, "protocol"), e,
                          "protocol = \"%.40s\", this server does not speak it, %s%s%s", said,
                          near != NULL ? "did you mean \""
                                       : "see mirrord.conf(5) for those it does",
                          near != NULL ? near : "", near != NULL ? "\"?" : "");
}

static bool is_rsync(const char *url)
{
    return url != NULL && (strncmp(url, "rsync", 5) == 0 || strncmp(url, "ssh://", 6) == 0);
}

static bool is_s3(const char *url)
{
    return url != NULL && strncmp(url, "s3://", 5) == 0;
}

/* Built once, so that the error names the line. */
static int try_bucket(const struct settings_node *nd, const struct repo_conf *r, const char *key,
                      const char *url, struct err *e)
{
    struct origin_settings set = r->origin;
    struct origin *o = NULL;
    struct err why = {0};
    int rc;

    set.url = url;
    rc = origin_new(r->name, &set, &o, &why);
    origin_free(&o);
    return rc == 0
               ? 0
               : settings_wrong(settings_where(nd, key), e, "repo \"%s\": %s", r->name, why.text);
}

static int check_s3(const struct settings_node *nd, const struct repo_conf *r, struct err *e)
{
    static const char *const keys[] = {"endpoint", "region", "addressing"};

    for (size_t i = 0; i < ARRAY_LEN(keys) && !is_s3(r->origin.url); i++) {
        if (settings_written(nd, keys[i])) {
            return settings_wrong(settings_where(nd, keys[i]), e,
                                  "repo \"%s\" has %s and no origin by s3, which alone it is for, "
                                  "write origin = \"s3://bucket/\" or remove it",
                                  r->name, keys[i]);
        }
    }
    if (!is_s3(r->origin.url)) {
        return 0;
    }
    if (strcmp(r->protocol, "generic") != 0) {
        return settings_wrong(settings_where(nd, "origin"), e,
                              "repo \"%s\" has an origin by s3, protocol %s does not speak it, "
                              "write protocol = generic",
                              r->name, r->protocol);
    }
    return try_bucket(nd, r, "origin", r->origin.url, e);
}

/* What a repo of a protocol of its own is listed by follows from that. */
static int settle_list(const struct settings_node *nd, const struct repo_conf *r,
                       struct sync_conf *c, struct err *e)
{
    static const char *const pythons[] = {"3.10", "3.11", "3.12", "3.13"};
    static const char *const platforms[] = {"manylinux_2_28_x86_64"};
    bool hf = strcmp(r->protocol, "hf") == 0;
    bool pypi = strcmp(r->protocol, "pypi") == 0;

    if (!hf && !pypi && strcmp(r->protocol, "generic") != 0) {
        return settings_wrong(
            nd->at, e,
            "repo \"%s\" has a sync section, protocol %s cannot be synced, remove "
            "it",
            r->name, r->protocol);
    }
    if (c->engine != NULL && strcmp(c->engine, "http") != 0) {
        return 0; /* another mirror has such a tree already */
    }
    if (hf != (c->repos_count != 0)) {
        return settings_wrong(nd->at, e,
                              hf ? "repo \"%s\" has a sync section that lists nothing, write repos "
                                   "= {\"owner/name\"}"
                                 : "repo \"%s\" is no Hub, it cannot have repos, remove them",
                              r->name);
    }
    if (pypi != (c->requirements_count != 0)) {
        return settings_wrong(
            nd->at, e,
            pypi ? "repo \"%s\" has a sync section that requires nothing, write requirements "
                   "= {\"torch>=2.4\"}"
                 : "repo \"%s\" is no package index, it cannot have requirements, remove them",
            r->name);
    }
    if (hf && r->credentials != NULL && strcmp(r->credentials, "caller") == 0) {
        return settings_wrong(settings_where(nd, "credentials"), e,
                              "repo \"%s\" has credentials = caller, what is synced was fetched "
                              "before anybody asked, remove it",
                              r->name);
    }
    c->list = hf ? "hf" : pypi ? "pypi" : c->list;
    if (c->python_count == 0) {
        c->python = pythons;
        c->python_count = ARRAY_LEN(pythons);
    }
    if (c->platforms_count == 0) {
        c->platforms = platforms;
        c->platforms_count = ARRAY_LEN(platforms);
    }
    return 0;
}

/* Rule by rule, so that the error names the line. */
static int check_filter(const struct settings_node *nd, struct err *e)
{
    const struct filter_rule *bad = NULL;
    struct filter f = {.count = 0};
    struct err why = {0};
    int rc = 0;

    for (const struct settings_given *g = settings_given(nd, "filter"); g != NULL && rc == 0;
         g = g->next) {
        if (filter_add_own(&f, slice_str(g->text), &why) != 0) {
            rc = settings_wrong(g->at, e, "filter: %s", why.text);
        }
    }
    if (rc == 0 && filter_check(&f, &bad, &why) != 0) {
        rc = settings_wrong(settings_where(nd, "filter"), e, "filter: %s", why.text);
    }
    filter_fini(&f);
    return rc;
}

static int read_sync(struct settings_node *nd, struct repo_conf *r, struct arena *a, struct err *e)
{
    struct sync_conf *c = ARENA_NEW(a, struct sync_conf);
    struct err why = {0};
    int rc;

    if (children(nd, SECTION_SYNC) == 0) {
        return !is_rsync(r->origin.url)
                   ? 0
                   : settings_wrong(
                         settings_where(nd, "origin"), e,
                         "repo \"%s\" has an origin by rsync or ssh and no sync section, single "
                         "files cannot be asked for that way, add sync { }",
                         r->name);
    }
    rc = fill_single(nd, SECTION_SYNC, c, a, e);
    if (rc == 0) {
        rc = settle_list(nd, r, c, e);
    }
    for (const struct settings_node *s = nd->child; s != NULL && rc == 0; s = s->next) {
        rc = s->section == SECTION_SYNC ? check_filter(s, e) : 0;
    }
    if (rc == 0 && sync_check(c, r->origin.url, &why) != 0) {
        rc = settings_wrong(nd->at, e, "repo \"%s\": %s", r->name, why.text);
    }
    for (size_t i = 0; rc == 0 && i < c->upstreams_count; i++) {
        if (is_s3(c->upstreams[i])) {
            rc = is_s3(r->origin.url)
                     ? try_bucket(nd, r, "origin", c->upstreams[i], e)
                     : settings_wrong(nd->at, e,
                                      "repo \"%s\" has an upstream by s3 and an origin that is "
                                      "not, endpoint and keys are the origin's, let both be s3",
                                      r->name);
        }
    }
    r->sync = c;
    return rc;
}

static int check_protocol(const struct settings_node *nd, const struct repo_conf *r, struct err *e)
{
    bool hosted = strcmp(r->protocol, "hosted") == 0;

    if (repo_ops_find(r->protocol) == NULL) {
        return unknown_protocol(nd, r->protocol, e);
    }
    if (hosted && r->origin.url != NULL) {
        return settings_wrong(
            settings_where(nd, "origin"), e,
            "repo \"%s\" is hosted and has an origin, hosted files come from uploads, "
            "remove the origin",
            r->name);
    }
    if (!hosted && r->origin.url == NULL) {
        return settings_wrong(
            nd->at, e,
            "repo \"%s\" has no origin, it would have nothing to serve, write origin "
            "= \"https://...\"",
            r->name);
    }
    return 0;
}

static int read_repo(struct settings_node *nd, struct repo_conf *r, struct arena *a, struct err *e)
{
    struct access_conf access = {0};
    int rc = values_fill(nd, r, a, e);

    if (rc != 0) {
        return rc;
    }
    r->name = nd->title;
    r->source = arena_fmt(a, "%s:%u", nd->at.file, nd->at.line).p;
    r->origin.hosts_set = settings_written(nd, "hosts");
    r->origin.kind = r->protocol;
    if (!name_valid(nd->title)) {
        return settings_wrong(
            nd->at, e,
            "repo \"%.64s\" cannot have that name, it becomes the first part of its "
            "paths, use small letters, digits, '.', '_' and '-', none of healthz "
            "readyz metrics v2",
            nd->title);
    }
    rc = check_protocol(nd, r, e);
    if (rc == 0) {
        rc = check_s3(nd, r, e);
    }
    if (rc == 0) {
        rc = fill_single(nd, SECTION_ACCESS, &access, a, e);
    }
    if (rc == 0) {
        r->anonymous_read = strcmp(access.anonymous, "read") == 0;
        rc = read_rules(nd, r, a, e);
    }
    return rc == 0 ? read_sync(nd, r, a, e) : rc;
}

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

static int read_door(const struct settings_node *nd, struct rsync_conf *d, struct arena *a,
                     struct err *e)
{
    struct err why;
    int rc = values_fill(nd, d, a, e);

    d->address = nd->title;
    if (rc == 0 && !address_valid(nd->title)) {
        return settings_wrong(nd->at, e,
                              "rsync \"%.80s\", that is no address and port, write one such as "
                              "0.0.0.0:873",
                              nd->title);
    }
    if (rc == 0 && d->users != NULL && users_check(d->users, &why) != 0) {
        return settings_wrong(nd->at, e, "%s", why.text);
    }
    return rc;
}

/* --- the whole --- */

static int read_sections(struct conf_file *cf, struct err *e)
{
    struct conf *c = &cf->conf;
    struct arena *a = &cf->arena;
    size_t l = 0, r = 0, m = 0, d = 0;
    int rc = 0;

    c->listeners_count = children(cf->root, SECTION_LISTEN);
    c->repos_count = children(cf->root, SECTION_REPO);
    c->limits_count = children(cf->root, SECTION_LIMIT);
    c->doors_count = children(cf->root, SECTION_RSYNC);
    c->doors = arena_alloc(a, (c->doors_count + 1) * sizeof(*c->doors));
    c->listeners = arena_alloc(a, (c->listeners_count + 1) * sizeof(*c->listeners));
    c->repos = arena_alloc(a, (c->repos_count + 1) * sizeof(*c->repos));
    c->limits = arena_alloc(a, (c->limits_count + 1) * sizeof(*c->limits));
    for (struct settings_node *nd = cf->root->child; nd != NULL && rc == 0; nd = nd->next) {
        switch ((enum section)nd->section) {
        case SECTION_LISTEN:
            rc = read_listener(nd, &c->listeners[l++], a, e);
            break;
        case SECTION_REPO:
            rc = read_repo(nd, &c->repos[r], a, e);
            c->repos[r++].public_url = c->public_url;
            break;
        case SECTION_LIMIT:
            rc = read_limit(nd, &c->limits[m++], a, e);
            break;
        case SECTION_RSYNC:
            rc = read_door(nd, &c->doors[d++], a, e);
            break;
        case SECTION_ROOT:
        case SECTION_STORAGE:
        case SECTION_CACHE:
        case SECTION_HTTP:
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

static int check_whole(struct conf_file *cf, struct err *e)
{
    struct conf *c = &cf->conf;
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
    return check_roots(cf, e);
}

int conf_read(const char *path, struct conf **out, struct err *e)
{
    struct conf_file *cf = NEW(struct conf_file);
    struct conf *c = &cf->conf;
    int rc = settings_read(schema_grammar(&cf->arena), path, &cf->arena, &cf->root, e);

    if (rc == 0) {
        rc = values_fill(cf->root, c, &cf->arena, e);
    }
    if (rc == 0) {
        rc = fill_single(cf->root, SECTION_STORAGE, &c->store, &cf->arena, e);
    }
    if (rc == 0) {
        rc = fill_single(cf->root, SECTION_CACHE, &c->cache, &cf->arena, e);
    }
    if (rc == 0) {
        rc = fill_single(cf->root, SECTION_HTTP, &c->http, &cf->arena, e);
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

void conf_free(struct conf **cp)
{
    struct conf_file *cf = (struct conf_file *)(void *)*cp;

    *cp = NULL;
    if (cf == NULL) {
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

/* --- printing: the texts as written, defaults where nothing was --- */

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
