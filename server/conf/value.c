#include "server/conf/value.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "common/codec/network.h"
#include "common/codec/units.h"
#include "common/codec/url.h"
#include "common/os/user.h"
#include "server/store/store.h"

enum { SECRET_BYTES_MAX = 8192 };

struct fetch { /* one setting under way */
    const struct setting *set;
    struct settings_given *given; /* the first one, or one made up of the default */
    size_t count;                 /* of a list */
    void *base, *field;
    struct arena *arena;
    struct err *e;
};

static int bad(const struct fetch *f, const struct settings_given *g, const char *why,
               const char *todo)
{
    return settings_wrong(g->at, f->e, "%s = \"%.60s\": %s; %s", f->set->key, g->text, why, todo);
}

/* --- numbers: *d is what ranges compare (2^53 is more than any of them), *n what integers are
 * stored from --- */

static bool number_parse(enum kind k, struct slice s, uint64_t *n, double *d)
{
    bool ok;

    switch (k) {
    case KIND_SHARE:
        return share_parse(s, d);
    case KIND_FREQUENCY:
        return frequency_parse(s, d);
    case KIND_COUNT:
        ok = slice_u64(s, n);
        break;
    case KIND_SIZE:
    case KIND_SIZE32:
        ok = size_parse(s, n);
        break;
    case KIND_RATE:
    case KIND_RATE32:
        ok = rate_parse(s, n);
        break;
    case KIND_SECONDS:
    case KIND_SECONDS32:
        ok = span_parse(s, n) && *n % 1000 == 0;
        *n /= 1000;
        break;
    default:
        ok = span_parse(s, n);
        break;
    }
    *d = ok ? (double)*n : 0;
    return ok;
}

static const char *number_form(enum kind k)
{
    switch (k) {
    case KIND_COUNT:
        return "write a number, such as 16";
    case KIND_SIZE:
    case KIND_SIZE32:
        return "write a size, such as 64k or 10g";
    case KIND_RATE:
    case KIND_RATE32:
        return "write a rate, such as 100m/s";
    case KIND_SHARE:
        return "write a share, such as 5%";
    case KIND_FREQUENCY:
        return "write a number per time, such as 200/s";
    case KIND_SECONDS:
    case KIND_SECONDS32:
        return "write a time in whole seconds, such as 30s or 5m";
    default:
        return "write a time, such as 250ms, 30s or 5m";
    }
}

static bool number_within(const struct setting *set, double d)
{
    struct slice high = slice_str(set->range), low;
    double low_d = 0, high_d = 0;
    uint64_t n;
    bool ok;

    if (high.n == 0) {
        return d < 1e15;
    }
    low = slice_first(high, (size_t)(strstr(set->range, "..") - set->range));
    high = slice_from(high, low.n + 2);
    ok = number_parse(set->kind, low, &n, &low_d) && number_parse(set->kind, high, &n, &high_d);
    CHECK(ok); /* settings.def is ours */
    return d >= low_d && d <= high_d;
}

static int fill_number(const struct fetch *f)
{
    uint64_t n = 0;
    double d = 0;
    char todo[80];

    if (!number_parse(f->set->kind, slice_str(f->given->text), &n, &d)) {
        return bad(f, f->given, "invalid value", number_form(f->set->kind));
    }
    if (!number_within(f->set, d)) {
        snprintf(todo, sizeof(todo), "choose one in %s",
                 f->set->range[0] != '\0' ? f->set->range : "10^15");
        return bad(f, f->given, "the value is out of range", todo);
    }
    switch (f->set->kind) {
    case KIND_SHARE:
    case KIND_FREQUENCY:
        *(double *)f->field = d;
        break;
    case KIND_SIZE:
    case KIND_RATE:
        *(uint64_t *)f->field = n;
        break;
    case KIND_SECONDS:
        *(int64_t *)f->field = (int64_t)n;
        break;
    default: /* their ranges end below 2^32 */
        CHECK(n <= UINT32_MAX);
        *(uint32_t *)f->field = (uint32_t)n;
        break;
    }
    return 0;
}

static int fill_size_or_share(const struct fetch *f)
{
    struct store_settings *st = f->base;
    struct slice s = slice_str(f->given->text);

    st->reserve_bytes = 0;
    st->reserve_ratio = 0;
    if (share_parse(s, &st->reserve_ratio) || size_parse(s, &st->reserve_bytes)) {
        return 0;
    }
    return bad(f, f->given, "invalid value", "write a size or a share, such as 20g or 5%");
}

/* --- texts --- */

static int fill_choice(const struct fetch *f)
{
    struct slice rest = slice_str(f->set->range), one;
    char todo[80];

    while (rest.n > 0) {
        one = slice_trim(slice_cut(&rest, '|'));
        if (slice_eqs(one, f->given->text)) {
            *(const char **)f->field = f->given->text;
            return 0;
        }
    }
    snprintf(todo, sizeof(todo), "choose one of %s", f->set->range);
    return bad(f, f->given, "unknown value", todo);
}

static int fill_bool(const struct fetch *f)
{
    return settings_truth(f->given->text, f->field)
               ? 0
               : bad(f, f->given, "not a boolean", "write true or false");
}

static int check_url(const struct fetch *f, const struct settings_given *g)
{
    struct err why = {0};
    struct url u;

    if (url_split(slice_str(g->text), &u, &why) != 0) {
        if (strchr(g->text, '@') != NULL) { /* maybe a password: not for the log */
            return settings_wrong(
                g->at, f->e,
                "%s: the URL contains a user, whose password would appear in logs; write "
                "authorization = \"credential:NAME\"",
                f->set->key);
        }
        return bad(f, g, why.text, "write http:// or https://, a host and a path");
    }
    if (u.query.p != NULL || strchr(g->text, '#') != NULL) {
        return bad(f, g, "paths are appended to it", "remove the query and the fragment");
    }
    return 0;
}

/* rsync:// and rsyncs:// are made like http://; what stands behind s3:// is raw, and the origin
 * judges it; ssh:// may have a user, and the engine judges it. */
static int check_upstream(const struct fetch *f, const struct settings_given *g)
{
    struct settings_given as = *g;
    size_t n = strncmp(g->text, "rsync://", 8) == 0    ? 5
               : strncmp(g->text, "rsyncs://", 9) == 0 ? 6
                                                       : 0;

    if (strncmp(g->text, "s3://", 5) == 0 || strncmp(g->text, "ssh://", 6) == 0) {
        return 0;
    }
    if (n != 0) {
        as.text = arena_fmt(f->arena, "http%s", g->text + n).p;
    }
    return check_url(f, &as);
}

static int fill_url(const struct fetch *f)
{
    int rc = f->set->kind == KIND_UPSTREAM ? check_upstream(f, f->given) : check_url(f, f->given);

    if (rc == 0) {
        *(const char **)f->field = f->given->text;
    }
    return rc;
}

/* Beside the file it was written in. */
static const char *beside(const struct fetch *f, const char *path)
{
    const char *slash = strrchr(f->given->at.file, '/');

    if (path[0] == '/' || slash == NULL) {
        return path;
    }
    return arena_fmt(f->arena, "%.*s/%s", (int)(slash - f->given->at.file), f->given->at.file, path)
        .p;
}

/* What "credential:NAME" stands for; anything else as it is. */
static int credential(const struct fetch *f, const char **path)
{
    static const char scheme[] = "credential:";
    const char *text = f->given->text, *name = text + sizeof(scheme) - 1;
    const char *folder = getenv("CREDENTIALS_DIRECTORY");

    if (strncmp(text, scheme, sizeof(scheme) - 1) != 0) {
        *path = beside(f, text);
        return 0;
    }
    if (name[0] == '\0' || strchr(name, '/') != NULL) {
        return bad(f, f->given, "the name of a credential has no path", "write credential:NAME");
    }
    if (folder == NULL) {
        return bad(f, f->given, "CREDENTIALS_DIRECTORY is not set",
                   "use LoadCredential= in the unit, or write file:PATH");
    }
    *path = arena_fmt(f->arena, "%s/%s", folder, name).p;
    return 0;
}

static int fill_path(const struct fetch *f)
{
    if (f->given->text[0] == '\0') {
        return bad(f, f->given, "it is empty", "write a path");
    }
    f->given->text = beside(f, f->given->text);
    *(const char **)f->field = f->given->text;
    return 0;
}

static int unreadable(const struct fetch *f, const char *path, int errno_value)
{
    char why[USER_WHY];

    user_why_unreadable(path, errno_value, why);
    return settings_wrong(f->given->at, f->e, "%s = \"%.80s\": %s", f->set->key, path, why);
}

static int fill_file(const struct fetch *f)
{
    const char *path;
    int rc = credential(f, &path);

    if (rc != 0) {
        return rc;
    }
    if (access(path, R_OK) != 0) {
        return unreadable(f, path, errno);
    }
    if (strncmp(f->given->text, "credential:", 11) != 0) {
        f->given->text = path;
    }
    *(const char **)f->field = path;
    return 0;
}

static int fill_log(const struct fetch *f)
{
    if (strcmp(f->given->text, "stderr") == 0 || strcmp(f->given->text, "none") == 0) {
        *(const char **)f->field = f->given->text;
        return 0;
    }
    return fill_path(f);
}

/* One line of a file. A bare token is a Bearer's, which is what registries give out. */
static int fill_secret(const struct fetch *f)
{
    struct buf bytes = BUF_INIT(SECRET_BYTES_MAX);
    struct settings_given inner = *f->given;
    struct fetch file = *f;
    struct slice s;
    const char *path;
    int rc;

    if (strncmp(inner.text, "file:", 5) == 0) {
        inner.text = beside(f, inner.text + 5);
        f->given->text = arena_fmt(f->arena, "file:%s", inner.text).p;
    } else if (strncmp(inner.text, "credential:", 11) != 0) {
        /* Not bad(): that would print it. */
        return settings_wrong(f->given->at, f->e,
                              "%s contains the secret itself, but many users can read a "
                              "configuration; write credential:NAME or file:PATH",
                              f->set->key);
    }
    file.given = &inner;
    rc = credential(&file, &path);
    if (rc != 0) {
        return rc;
    }
    if (access(path, R_OK) != 0) {
        return unreadable(f, path, errno);
    }
    rc = buf_read_file(&bytes, path, NULL);
    s = slice_trim(buf_slice(&bytes));
    while (s.n > 0 && (s.p[s.n - 1] == '\n' || s.p[s.n - 1] == '\r')) {
        s.n--;
    }
    for (size_t i = 0; i < s.n && rc == 0; i++) {
        rc = (uint8_t)s.p[i] < ' ' || (uint8_t)s.p[i] >= 0x7f ? E_INVALID : 0;
    }
    if (rc != 0 || s.n == 0) {
        rc = bad(f, f->given,
                 rc != 0 && rc != E_INVALID ? "its file cannot be read"
                                            : "its file does not contain exactly one line of "
                                              "text",
                 "check the file");
        goto out;
    }
    *(const char **)f->field =
        arena_fmt(f->arena, "%s" SLICE_FMT, slice_find(s, ' ') < 0 ? "Bearer " : "", SLICE_ARG(s))
            .p;
out:
    if (bytes.p != NULL) {
        explicit_bzero(bytes.p, bytes.n);
    }
    buf_free(&bytes);
    return rc;
}

/* --- lists --- */

static bool host_valid(struct slice s)
{
    struct buf b = BUF_INIT(512);
    struct url u;
    bool ok;

    buf_addf(&b, "http://" SLICE_FMT "/", SLICE_ARG(s));
    ok = b.rc == 0 && url_split(buf_slice(&b), &u, NULL) == 0 && u.path.n == 1 && u.query.p == NULL;
    buf_free(&b);
    return ok;
}

static int fill_list(const struct fetch *f)
{
    const char **list = arena_alloc(f->arena, (f->count + 1) * sizeof(*list));
    struct network net;
    size_t n = 0;

    for (const struct settings_given *g = f->given; g != NULL; g = g->next) {
        struct slice s = slice_str(g->text);
        if (f->set->kind == KIND_HOSTS && !host_valid(s)) {
            return bad(f, g, "invalid host", "write host or host:port");
        }
        if (f->set->kind == KIND_NETWORKS && !network_parse(s, &net)) {
            return bad(f, g, "invalid network", "write one such as 10.0.0.0/8 or fd00::/8");
        }
        if (f->set->kind == KIND_URLS && check_url(f, g) != 0) {
            return E_CONFIG;
        }
        if ((f->set->kind == KIND_UPSTREAMS || f->set->kind == KIND_ORIGINS) &&
            check_upstream(f, g) != 0) {
            return E_CONFIG;
        }
        list[n++] = g->text;
    }
    *(const char *const **)f->field = list;
    /* STYLE of every list: the count stands right behind the pointer. */
    *(size_t *)(void *)((char *)f->field + sizeof(char *)) = n;
    return 0;
}

static int fill_one(const struct fetch *f)
{
    switch (f->set->kind) {
    case KIND_TEXT:
        *(const char **)f->field = f->given->text;
        return 0;
    case KIND_PATH:
        return fill_path(f);
    case KIND_FILE:
        return fill_file(f);
    case KIND_LOG:
        return fill_log(f);
    case KIND_URL:
    case KIND_UPSTREAM:
        return fill_url(f);
    case KIND_SECRET:
        return fill_secret(f);
    case KIND_CHOICE:
        return fill_choice(f);
    case KIND_BOOL:
        return fill_bool(f);
    case KIND_SIZE_OR_SHARE:
        return fill_size_or_share(f);
    case KIND_HOSTS:
    case KIND_URLS:
    case KIND_NETWORKS:
    case KIND_UPSTREAMS:
    case KIND_ORIGINS:
    case KIND_TEXTS:
        return fill_list(f);
    case KIND_COUNT:
    case KIND_SIZE:
    case KIND_SIZE32:
    case KIND_SHARE:
    case KIND_RATE:
    case KIND_RATE32:
    case KIND_FREQUENCY:
    case KIND_SPAN:
    case KIND_SECONDS:
    case KIND_SECONDS32:
        return fill_number(f);
    }
    return 0;
}

int values_fill(const struct settings_node *nd, void *base, struct arena *a, struct err *e)
{
    size_t n;
    const struct setting *set = section_settings((enum section)nd->section, &n);
    int rc = 0;

    for (size_t i = 0; i < n && rc == 0; i++) {
        struct settings_given def = {.text = set[i].def, .at = nd->at};
        struct fetch f = {&set[i], nd->given[i], 0, base, (char *)base + set[i].offset, a, e};

        for (const struct settings_given *g = f.given; g != NULL; g = g->next) {
            f.count++;
        }
        if (f.given == NULL && kind_is_list(set[i].kind)) {
            rc = nd->written[i] ? fill_list(&f) : 0;
            continue;
        }
        if (f.given == NULL && def.text == NULL) {
            if (set[i].kind == KIND_SECONDS) {
                *(int64_t *)f.field = -1;
            }
            continue;
        }
        if (f.given == NULL && strcmp(def.text, "!") == 0) {
            rc = settings_wrong(nd->at, e,
                                "%s \"%.60s\" has no %s, which is required; write %s = ...",
                                nd->is->name, nd->title, set[i].key, set[i].key);
            continue;
        }
        if (f.given == NULL) {
            f.given = &def;
        }
        rc = fill_one(&f);
    }
    return rc;
}

int values_single(struct settings_node *parent, enum section sec, void *base, struct arena *a,
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
    }
    return values_fill(nd, base, a, e);
}
