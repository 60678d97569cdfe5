/* init: a configuration from what this machine's own tools use. It asks nothing; addresses come
 * from apt's lists, pip, conda and the environment. The Hub has one address, which its clients have
 * built in: without another one it is that. */
#include <errno.h>
#include <glob.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "common/base/buf.h"
#include "common/codec/units.h"
#include "common/codec/url.h"
#include "common/os/newfile.h"
#include "server/ctl/ctl.h"

#define LISTEN     "0.0.0.0:8080"
#define ACCESS_LOG "/var/log/mirrord/access.log"
#define RECIPES    "conf.d"
#define STATE_DIR  "/var/lib/mirrord"

enum { SOURCES_MAX = 64, TEXT_BYTES = 1 << 20, NAME_BYTES = 48 };

enum source_kind { SOURCE_APT, SOURCE_PYPI, SOURCE_CONDA, SOURCE_HUB };
struct source {
    enum source_kind kind;
    char name[NAME_BYTES]; /* of the repo */
    char *url;
};

struct found {
    struct source source[SOURCES_MAX];
    size_t count;
    struct buf notes; /* comments: what was seen and left out */
};

/* --- collecting --- */

static bool name_taken(const struct found *f, const char *name)
{
    for (size_t i = 0; i < f->count; i++) {
        if (strcmp(f->source[i].name, name) == 0) {
            return true;
        }
    }
    return false;
}

/* The last part of the path, else `fallback`; small letters, made unique by a number. */
static void name_of_init_repo(const struct found *f, struct slice url, const char *fallback,
                              char out[NAME_BYTES])
{
    struct slice rest, last = SLICE_NONE;
    struct url u;
    char base[NAME_BYTES - 8];
    size_t n = 0;

    if (url_split(url, &u, NULL) == 0) {
        rest = u.path;
        while (rest.n > 0) {
            struct slice one = slice_cut(&rest, '/');
            last = one.n > 0 ? one : last;
        }
    }
    for (size_t i = 0; i < last.n && n < sizeof(base) - 1; i++) {
        char c = last.p[i];
        c = c >= 'A' && c <= 'Z' ? (char)(c + 32) : c;
        if ((c >= 'a' && c <= 'z') || (n > 0 && ((c >= '0' && c <= '9') || c == '-'))) {
            base[n++] = c;
        }
    }
    base[n] = '\0';
    snprintf(out, NAME_BYTES, "%s", n > 0 && strcmp(base, "v2") != 0 ? base : fallback);
    for (unsigned i = 2; name_taken(f, out); i++) {
        snprintf(out, NAME_BYTES, "%s-%u", n > 0 ? base : fallback, i);
    }
}

static const char *tool_of(enum source_kind kind)
{
    switch (kind) {
    case SOURCE_APT:
        return "apt";
    case SOURCE_PYPI:
        return "pip";
    case SOURCE_CONDA:
        return "conda";
    case SOURCE_HUB:
        return "the Hub's clients";
    }
    return "";
}

static void found_url(struct found *f, enum source_kind kind, struct slice url, const char *name)
{
    struct source *s = &f->source[f->count];
    struct url u;
    struct err why;

    while (slice_ends(url, SLICE("/"))) {
        url.n--;
    }
    for (size_t i = 0; i < f->count; i++) {
        if (slice_eqs(url, f->source[i].url)) {
            return;
        }
    }
    if (f->count == SOURCES_MAX || url.n == 0) {
        return;
    }
    if (url_split(url, &u, &why) != 0) {
        /* Not its text: a URL that does not split may hold a password. */
        buf_addf(&f->notes, "# Left out: a source of %s: %s\n", tool_of(kind), why.text);
        return;
    }
    s->kind = kind;
    name_of_init_repo(f, kind == SOURCE_APT ? url : SLICE_NONE, name, s->name);
    s->url = strndup(url.p, url.n);
    f->count++;
}

/* First line of what a command prints, or nothing. The commands are our own literals. */
static struct slice first_line(const char *command, char *room, size_t room_bytes)
{
    FILE *p = popen(command, "re");
    struct slice line = SLICE_NONE;

    if (p == NULL) {
        return line;
    }
    if (fgets(room, (int)room_bytes, p) != NULL) {
        line = slice_of(room, strcspn(room, "\r\n"));
    }
    return pclose(p) == 0 ? slice_trim(line) : SLICE_NONE;
}

/* --- apt --- */

static bool is_init_blank(char c)
{
    return c == ' ' || c == '\t';
}

/* The next word; *rest moves behind it. */
static struct slice cut_word(struct slice *rest)
{
    struct slice word = slice_trim(*rest);
    size_t n = 0;

    while (n < word.n && !is_init_blank(word.p[n])) {
        n++;
    }
    *rest = slice_from(word, n);
    return slice_of(word.p, n);
}

static void apt_uris(struct found *f, struct slice uris)
{
    while (uris.n > 0) {
        struct slice one = cut_word(&uris);
        if (slice_starts(one, SLICE("http://")) || slice_starts(one, SLICE("https://"))) {
            found_url(f, SOURCE_APT, one, "apt");
        }
    }
}

/* "deb [options] URI suite component..." */
static void apt_list(struct found *f, struct slice text)
{
    while (text.n > 0) {
        struct slice rest = slice_cut(&text, '\n'), kind = cut_word(&rest);
        rest = slice_trim(rest);
        if (!slice_eqs(kind, "deb") && !slice_eqs(kind, "deb-src")) {
            continue;
        }
        if (rest.n > 0 && rest.p[0] == '[') {
            (void)slice_cut(&rest, ']');
        }
        apt_uris(f, cut_word(&rest));
    }
}

/* As apt reads a switch. */
static bool is_no_answer(struct slice value)
{
    static const char *const words[] = {"no", "false", "without", "off", "disable", "0"};

    for (size_t i = 0; i < ARRAY_LEN(words); i++) {
        if (slice_ieq(value, slice_str(words[i]))) {
            return true;
        }
    }
    return false;
}

/* deb822: paragraphs of "Key: value", which goes on in lines that begin with a blank; "Enabled: no"
 * switches one off. */
static void apt_sources(struct found *f, struct slice text)
{
    struct buf uris = BUF_INIT(TEXT_BYTES);
    bool enabled = true, in_uris = false;

    while (text.n > 0) {
        struct slice line = slice_cut(&text, '\n'), value = line, key;
        bool more = line.n > 0 && is_init_blank(line.p[0]), ends = slice_trim(line).n == 0;
        if (!more && !slice_starts(line, SLICE("#"))) {
            key = slice_cut(&value, ':');
            in_uris = slice_ieq(key, SLICE("uris"));
            if (slice_ieq(key, SLICE("enabled"))) {
                enabled = !is_no_answer(slice_trim(value));
            }
        }
        if (in_uris && !slice_starts(line, SLICE("#"))) {
            buf_adds(&uris, value);
            buf_byte(&uris, ' ');
        }
        if (ends || text.n == 0) {
            apt_uris(f, enabled ? buf_slice(&uris) : SLICE_NONE);
            buf_clear(&uris);
            enabled = true;
            in_uris = false;
        }
    }
    buf_free(&uris);
}

static void find_apt(struct found *f)
{
    static const char *const patterns[] = {"/etc/apt/sources.list",
                                           "/etc/apt/sources.list.d/*.list",
                                           "/etc/apt/sources.list.d/*.sources"};
    struct buf text = BUF_INIT(TEXT_BYTES);
    glob_t g = {0};

    for (size_t i = 0; i < ARRAY_LEN(patterns); i++) {
        (void)glob(patterns[i], i > 0 ? GLOB_APPEND : 0, NULL, &g);
    }
    for (size_t i = 0; i < g.gl_pathc; i++) {
        buf_clear(&text);
        if (buf_read_file(&text, g.gl_pathv[i], NULL) != 0) {
            continue;
        }
        if (slice_ends(slice_str(g.gl_pathv[i]), SLICE(".sources"))) {
            apt_sources(f, buf_slice(&text));
        } else {
            apt_list(f, buf_slice(&text));
        }
    }
    globfree(&g);
    buf_free(&text);
}

/* --- pip, conda, the Hub --- */

/* As pip would choose: the environment, its files, its own default. */
static void find_pip(struct found *f)
{
    char room[2048];
    struct slice url = slice_str(getenv("PIP_INDEX_URL"));

    if (url.n == 0) {
        url = first_line("pip config get global.index-url 2>/dev/null", room, sizeof(room));
    }
    if (url.n == 0) {
        url = first_line("python3 -c 'from pip._internal.models.index import PyPI; "
                         "print(PyPI.simple_url)' 2>/dev/null",
                         room, sizeof(room));
    }
    while (slice_ends(url, SLICE("/"))) {
        url.n--;
    }
    /* The index is below the origin, as clients will ask for it below the repo. */
    if (slice_ends(url, SLICE("/simple"))) {
        url.n -= sizeof("/simple") - 1;
    }
    found_url(f, SOURCE_PYPI, url, "pypi");
}

static void find_conda(struct found *f)
{
    char room[2048];
    struct slice line =
        first_line("conda config --show channel_alias 2>/dev/null", room, sizeof(room));

    if (slice_starts(line, SLICE("channel_alias:"))) {
        found_url(f, SOURCE_CONDA, slice_trim(slice_from(line, sizeof("channel_alias:") - 1)),
                  "conda");
    }
}

static void find_hub(struct found *f)
{
    char room[2048];
    struct slice url = slice_str(getenv("HF_ENDPOINT"));

    if (url.n == 0) {
        url = first_line("python3 -c 'from huggingface_hub.constants import ENDPOINT; "
                         "print(ENDPOINT)' 2>/dev/null",
                         room, sizeof(room));
    }
    found_url(f, SOURCE_HUB, url.n > 0 ? url : SLICE("https://huggingface.co"), "hf");
}

/* --- writing --- */

static const char rules_apt[] = /* as conf/examples/debian.conf explains them */
    "    rule '/by-hash/SHA256/[0-9a-f]{64}$' { class = immutable digest_from = path }\n"
    "    rule '/by-hash/' { class = immutable }\n"
    "    rule '^pool/' { class = immutable }\n"
    "    rule '^dists/' { class = mutable ttl = 60s sie = 7d neg_ttl = 10m }\n";

static const struct {
    const char *protocol, *ends, *rules;
} forms[] = {
    [SOURCE_APT] = {"generic", "/", rules_apt},
    [SOURCE_PYPI] = {"pypi", "/", ""},
    [SOURCE_CONDA] = {"conda", "/", ""},
    [SOURCE_HUB] = {"hf", "",
                    "    # Clients use their own tokens. To use one token for all: authorization = "
                    "\"file:PATH\"\n"},
};

static void write_source(struct buf *out, const struct source *s)
{
    buf_addf(out, "\nrepo \"%s\" {\n    protocol = \"%s\"\n    origin = \"", s->name,
             forms[s->kind].protocol);
    for (const char *p = s->url; *p != '\0'; p++) {
        if (strchr("\"\\$", *p) != NULL) {
            buf_byte(out, '\\');
        }
        buf_byte(out, (uint8_t)*p);
    }
    buf_addf(out, "%s\"\n%s}\n", forms[s->kind].ends, forms[s->kind].rules);
}

/* What a client may take of a mirror that everybody can reach. Tools that fetch thousands of small
 * files in a row (apt, conda, hf) stay below it; a script that runs away does not. */
enum { LIMIT_REQUESTS = 500 /* a second */, LIMIT_BURST = 5000, LIMIT_CONNECTIONS = 256 };

static void write_limits(struct buf *out)
{
    buf_addf(out,
             "\n"
             "# Applies to each client address; requests above it are answered with 429 and "
             "Retry-After. Tools that fetch\n"
             "# thousands of files stay below it, a runaway script does not. All nodes behind one "
             "NAT address are one client:\n"
             "# raise the limit for them, or add a limit for their network.\n"
             "limit \"anonymous\" {\n"
             "    requests = \"%d/s\"\n"
             "    burst = %d\n"
             "    connections = %d\n"
             "}\n",
             LIMIT_REQUESTS, LIMIT_BURST, LIMIT_CONNECTIONS);
}

/* --- the reserve --- */

/* mirrord's own choice keeps this share of the file system free. Where that would leave the store
 * less than half of what is free, a share of the free space is kept instead. */
enum { RESERVE_PERCENT = 5, RESERVE_FREE_PART = 10, MIB = 1 << 20 };

struct reserve {
    uint64_t bytes; /* 0: the usual share of the file system */
    char usual[UNITS_TEXT], unused[UNITS_TEXT], chosen[UNITS_TEXT];
};

/* Of STATE_DIR, or of the nearest folder above it that exists. */
static struct reserve choose_reserve(void)
{
    static const char *const folders[] = {STATE_DIR, "/var/lib", "/var", "/"};
    struct reserve r = {0};
    struct statvfs v;
    uint64_t usual, unused;
    size_t i = 0;

    while (i < ARRAY_LEN(folders) && statvfs(folders[i], &v) == -1) {
        i++;
    }
    if (i == ARRAY_LEN(folders)) {
        return r;
    }
    usual = (uint64_t)v.f_blocks * v.f_frsize / 100 * RESERVE_PERCENT;
    unused = (uint64_t)v.f_bavail * v.f_frsize;
    if (usual > unused / 2) {
        r.bytes = max_u64(unused / RESERVE_FREE_PART / MIB, 1) * MIB;
        size_format(usual, r.usual);
        size_format(unused, r.unused);
        size_format(r.bytes, r.chosen);
    }
    return r;
}

static void write_storage(struct buf *out, const struct reserve *r)
{
    buf_addf(out,
             "# The store. It may use all free space except %s, so its size changes as other "
             "programs use\n"
             "# the disk. storage { quota = ... } sets a fixed size.\n"
             "state_dir = \"" STATE_DIR "\"\n",
             r->bytes != 0 ? r->chosen : "5 % of the file system");
    if (r->bytes != 0) {
        buf_addf(out,
                 "# 5 %% of this file system is %s, and only %s are free: with that share kept "
                 "free, little or nothing\n"
                 "# could be stored. On a larger disk, remove this line.\n"
                 "storage { reserve = \"%" PRIu64 "m\" }\n",
                 r->usual, r->unused, r->bytes / MIB);
    }
}

static void say_storage(const struct ctl *c, const struct reserve *r)
{
    if (r->bytes == 0) {
        say(c, "  storage: all free space in " STATE_DIR " except 5 %% of the file system; it "
               "changes as others use the disk\n");
        return;
    }
    say(c,
        "  storage: all free space in " STATE_DIR " except %s; it changes as others use the disk.\n"
        "    The usual reserve, 5 %% of the file system, is %s, and only %s are free: free space "
        "there, or use a larger disk\n",
        r->chosen, r->usual, r->unused);
}

/* installed: where the unit finds it, whose folders there are then. */
static void write_all(struct buf *out, const struct found *f, const struct reserve *reserve,
                      bool installed)
{
    buf_str(
        out,
        "# Written by `mirrorctl init` from the settings of this machine. See mirrord.conf(5).\n"
        "\n");
    write_storage(out, reserve);
    buf_str(out, installed ? "access_log = \"" ACCESS_LOG "\"\n" : "");
    buf_str(
        out,
        "\n"
        "# All addresses, plain HTTP. Every client that can connect may read every repo without "
        "an access section.\n"
        "# For TLS, run `mirrorctl tls init`.\n"
        "listen \"" LISTEN "\" { }\n");
    write_limits(out);
    for (size_t i = 0; i < f->count; i++) {
        write_source(out, &f->source[i]);
    }
    buf_str(out, "\n"
                 "# For uploads and checkpoints. To upload, create a token: mirrorctl token "
                 "create --name me --scope 'publish:models/*'\n"
                 "repo \"models\" {\n"
                 "    protocol = \"hosted\"\n"
                 "}\n");
    buf_str(
        out,
        "\n# Lets nodes that pull the same file at the same time send its chunks to each other.\n"
        "# See \"Nodes that share what they pull\" in operations.md.\n# peers { }\n");
    buf_str(out, "\n# One file for each recipe, in a folder beside this file.\ninclude(\"" RECIPES
                 "/*.conf\")\n");
    if (f->notes.n > 0) {
        buf_byte(out, '\n');
        buf_adds(out, buf_slice(&f->notes));
    }
}

static int save_init_file(const struct ctl *c, const char *path, const struct buf *text,
                          struct err *e)
{
    struct newfile *nf = NULL;
    int rc;

    if (strcmp(path, "-") == 0) {
        if (!c->json) {
            fwrite(text->p, 1, text->n, stdout);
        }
        return 0;
    }
    if (!option_given(c, "--force") && access(path, F_OK) == 0) {
        return err_set(e, E_EXISTS, "%s exists and may be in use; give another name or --force",
                       path);
    }
    /* Readable by the daemon's user, who is not the one that runs this. No secret is ever written
     * into the file. */
    rc = newfile_open(path, 0644, &nf, e);
    if (rc == E_NOTFOUND) {
        return err_set(e, rc,
                       "%s cannot be written: its folder does not exist; create it, or give "
                       "another file: mirrorctl init FILE",
                       path);
    }
    if (rc != 0) {
        return rc;
    }
    newfile_write(nf, text->p, text->n);
    return newfile_commit(&nf, e);
}

/* The folder of the include line, beside the file: what is written there later needs it. */
static int make_recipes(const char *path, struct err *e)
{
    const char *slash = strrchr(path, '/');
    char *folder = NULL;
    int rc = 0;

    CHECK(asprintf(&folder, "%.*s" RECIPES, slash != NULL ? (int)(slash - path) + 1 : 0, path) >=
          0);
    if (mkdir(folder, 0755) == -1) {
        rc = errno == EEXIST ? 0 : err_sys(e, "%s cannot be made", folder);
    } else if (chmod(folder, 0755) == -1) { /* a umask may have closed it to the daemon's user */
        rc = err_sys(e, "%s", folder);
    }
    free(folder);
    return rc;
}

int ctl_init(struct ctl *c, struct err *e)
{
    struct found *f = NEW(struct found);
    struct buf text = BUF_INIT(TEXT_BYTES);
    const char *path = c->args > 0 ? c->arg[0] : c->config;
    bool installed = strncmp(path, DEFAULT_FOLDER, sizeof DEFAULT_FOLDER - 1) == 0;
    struct reserve reserve = choose_reserve();
    int rc;

    f->notes = BUF_INIT(TEXT_BYTES);
    find_apt(f);
    find_pip(f);
    find_conda(f);
    find_hub(f);
    write_all(&text, f, &reserve, installed);
    rc = save_init_file(c, path, &text, e);
    if (rc == 0 && strcmp(path, "-") != 0) {
        rc = make_recipes(path, e);
    }
    if (rc == 0 && c->json) {
        json_t *ok =
            json_pack("{s:s, s:i, s:s, s:I, s:{s:i, s:i, s:i}}", "path", path, "origins",
                      (int)f->count, "listen", LISTEN, "reserve_bytes", (json_int_t)reserve.bytes,
                      "limit_anonymous", "requests_per_s", LIMIT_REQUESTS, "burst", LIMIT_BURST,
                      "connections", LIMIT_CONNECTIONS);
        if (strcmp(path, "-") == 0) {
            json_object_set_new(ok, "text", json_string(buf_cstr(&text)));
        }
        print_json(ok);
        json_decref(ok);
    } else if (rc == 0 && strcmp(path, "-") != 0) {
        say(c, "wrote %s: %zu origins found\n", path, f->count);
        say(c,
            "these settings were chosen for you; the file says where to change them:\n"
            "  listen " LISTEN ": every address of this machine, plain HTTP (`mirrorctl tls "
            "init` makes a certificate)\n"
            "  every client that can connect may read every repo (to restrict a repo: access { "
            "anonymous = none })\n"
            "  limit anonymous: %d requests a second, a burst of %d, %d connections, for each "
            "client address:\n"
            "    tools that fetch thousands of files stay below it, a runaway script does not\n",
            LIMIT_REQUESTS, LIMIT_BURST, LIMIT_CONNECTIONS);
        say_storage(c, &reserve);
        say(c, "  access log: %s\n",
            installed ? ACCESS_LOG : "on standard error, unless access_log names a file");
        say(c, "next: mirrorctl -c %s config test\n", path);
    }
    for (size_t i = 0; i < f->count; i++) {
        free(f->source[i].url);
    }
    buf_free(&f->notes);
    free(f);
    buf_free(&text);
    return rc;
}
