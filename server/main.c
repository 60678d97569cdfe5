/* main.c - mirrord: the caching mirror. A table of contents; the parts are built in daemon.c. */
#include <getopt.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include <curl/curl.h>

#include "common/base/log.h"
#include "common/codec/nearest.h"
#include "common/codec/units.h"
#include "server/admin/admin.h"
#include "common/codec/jwrite.h"
#include "common/os/log_writer.h"
#include "common/os/user.h"
#include "server/cluster/probe.h"
#include "server/conf/schema.h"
#include "server/daemon.h"
#include "server/store/keep.h"

/* jemalloc looks for this. A run over a million files leaves its arena with its thread: without
 * threads that purge, nobody gives those pages back. At its own ten seconds it would hold what such
 * a run has freed beside what it then takes. */
extern const char *malloc_conf;
const char *malloc_conf = "background_thread:true,dirty_decay_ms:1000,muzzy_decay_ms:0";

static const char usage[] =
    "usage: mirrord [-c FILE] [-t | -T | --verify [--deep] [--repair] | --check-cluster |\n"
    "                --leave-cluster [--force] | --void-entry N [--digest HEX]] [--json]\n"
    "\n"
    "  -c, --config FILE   the configuration file (default /etc/mirrord/mirrord.conf)\n"
    "  -t, --test          test it and exit: with 0, or with 78 and a message\n"
    "  -T, --print         print the effective settings and exit\n"
    "      --verify        check the store while no daemon runs; exits with 65 if it is damaged\n"
    "      --deep          with --verify: hash every blob again\n"
    "      --repair        with --verify: remove rows without a blob, set damaged blobs aside\n"
    "      --check-cluster check whether the bucket of the cluster section keeps its promises\n"
    "      --leave-cluster without the bucket: let the store stand alone\n"
    "      --force         with --leave-cluster: also if files are missing\n"
    "      --void-entry N  look at a damaged entry of the cluster's log; with --digest HEX, its\n"
    "                      SHA-256, declare it void\n"
    "      --json          with these, -t and --verify: one JSON object on stdout\n"
    "      --version       print the version and exit\n"
    "\n"
    "Runs in the foreground and logs to stderr. SIGHUP reloads the configuration, SIGUSR1 "
    "reopens the access log,\n"
    "SIGTERM drains and stops. See mirrord(8), mirrord.conf(5), mirrorctl(1).\n";

/* One JSON object, when it is asked for: {"ok": true, ...members} or {"ok": false, "error":
 * {...}}. */
static void print_verify_json(struct slice members, const struct err *e)
{
    struct buf out = BUF_INIT(members.n + 4096);

    jwrite_open(&out, NULL, '{');
    jwrite_bool(&out, "ok", e == NULL);
    if (e != NULL) {
        jwrite_err(&out, "error", e);
    } else {
        buf_byte(&out, ',');
        buf_adds(&out, members);
    }
    jwrite_close(&out, '}');
    printf("%s\n", buf_cstr(&out));
    buf_free(&out);
}

static int print_failure(const struct err *e)
{
    fprintf(stderr, "mirrord: %s\n", e->text);
    return err_sysexit(e->code);
}

/* The sentence begins with "file:line: ", as editors know it. */
static int fail_config(const struct err *e)
{
    fprintf(stderr, "%s\n", e->text);
    return 78;
}

#define INSTALLED "/etc/mirrord/" /* the unit's configuration lies there, and it has User=mirrord */

/* A start ends where the access log cannot be opened. A folder that is not there may be made by the
 * unit (LogsDirectory=). */
static int try_access_log(const char *path, const struct conf *c, const struct user *u,
                          struct buf *warnings, struct err *e)
{
    bool file = strcmp(c->access_log, "none") != 0 && strcmp(c->access_log, "stderr") != 0;
    struct err why;
    int rc = file ? log_writer_try(c->access_log, &why) : 0;

    if (rc == E_NOTFOUND) {
        buf_addf(warnings, "%s: warning: access_log = \"%s\": its folder does not exist\n", path,
                 c->access_log);
        return 0;
    }
    return rc == 0 ? 0
                   : err_set(e, E_CONFIG,
                             "%s: access_log = \"%s\": the user %s cannot write it (%s); give "
                             "that user write access to the folder, or name another",
                             path, c->access_log, u->name, err_plain(rc));
}

/* What root can read the daemon's user may not: reads all of it once more as that user. A
 * configuration that this user cannot open is a draft: it is judged as root's. */
static int read_as_daemon(const char *path, struct conf **c, struct buf *warnings, struct err *e)
{
    bool installed = strncmp(path, INSTALLED, sizeof INSTALLED - 1) == 0;
    struct conf *again = NULL;
    struct user u;
    int rc;

    if (geteuid() != 0 ||
        !user_of_service((*c)->store.state_dir, installed ? "mirrord" : NULL, &u)) {
        return 0;
    }
    rc = user_become(&u, e);
    if (rc == 0 && !installed && access(path, R_OK) == -1) {
        buf_addf(warnings,
                 "%s: warning: tested as root, because the user %s of %s cannot read this file\n",
                 path, u.name, (*c)->store.state_dir);
        return 0;
    }
    rc = rc == 0 ? conf_read(path, &again, e) : rc;
    if (rc == 0) {
        conf_free(c);
        *c = again;
        rc = try_access_log(path, again, &u, warnings, e);
    }
    return rc;
}

static int test_config(const char *path, bool json)
{
    struct conf *c = NULL;
    struct err why = {0};
    struct buf out = BUF_INIT(1 << 20), warnings = BUF_INIT(256 << 10);
    int rc = conf_read(path, &c, &why);

    if (rc == 0) {
        rc = read_as_daemon(path, &c, &warnings, &why);
    }
    if (rc != 0) {
        if (json) {
            print_verify_json(SLICE_NONE, &why);
        }
        conf_free(&c);
        buf_free(&warnings);
        return fail_config(&why);
    }
    conf_warnings(c, &warnings);
    fputs(buf_cstr(&warnings), stderr);
    if (json) {
        jwrite_str(&out, "path", path);
        jwrite_u64(&out, "repos", c->repos_count);
        jwrite_u64(&out, "listeners", c->listeners_count);
        jwrite_text(&out, "warnings", buf_slice(&warnings));
        print_verify_json(buf_slice(&out), NULL);
        buf_free(&out);
    } else {
        printf("%s: ok: %zu %s, %zu %s\n", path, c->repos_count,
               plural(c->repos_count, "repo", "repos"), c->listeners_count,
               plural(c->listeners_count, "listener", "listeners"));
    }
    conf_free(&c);
    buf_free(&warnings);
    return 0;
}

static int print_config(const char *path)
{
    struct conf *c = NULL;
    struct err why = {0};
    struct buf out = BUF_INIT(16 << 20);

    if (conf_read(path, &c, &why) != 0) {
        return fail_config(&why);
    }
    conf_print(c, &out);
    fwrite(out.p, 1, out.n, stdout);
    buf_free(&out);
    conf_free(&c);
    return 0;
}

/* For `make docs` alone: the tables of docs/, from the same lines as the program. */
static int print_docs(const char *which)
{
    struct buf out = BUF_INIT(16 << 20);

    if (strcmp(which, "settings") == 0) {
        schema_doc(&out);
    } else if (strcmp(which, "metrics") == 0) {
        metrics_doc(&out);
    }
    fwrite(buf_cstr(&out), 1, out.n, stdout);
    buf_free(&out);
    return 0;
}

static void say_finding(void *arg, const char *what)
{
    struct buf *list = arg;

    if (list != NULL) {
        jwrite_str(list, NULL, what);
    } else {
        printf("%s\n", what);
    }
}

static void print_report(const struct verify_report *r, const struct buf *findings, bool json)
{
    struct buf out = BUF_INIT(findings->n + 4096);

    if (json) {
        report_json(r, &out);
        jwrite_open(&out, "findings", '[');
        buf_adds(&out, buf_slice(findings));
        jwrite_close(&out, ']');
        print_verify_json(buf_slice(&out), NULL);
    } else {
        printf("%" PRIu64 " blobs, %" PRIu64 " bytes; removed %" PRIu64 " orphans; damaged %" PRIu64
               ", missing %" PRIu64 ", bad rows %" PRIu64 ", repaired %" PRIu64 "\n",
               r->blobs, r->bytes, r->orphans, r->damaged, r->missing, r->bad_rows, r->repaired);
    }
    buf_free(&out);
}

static int verify_store_files(const char *path, bool deep, bool repair, bool json)
{
    struct buf findings = BUF_INIT(1 << 30);
    struct verify_report r = {0};
    struct conf *c = NULL;
    struct store *s = NULL;
    struct err why = {0};
    int rc = conf_read(path, &c, &why);

    if (rc == 0) {
        rc = store_open(&c->store, &s, &why);
    }
    if (rc == 0) {
        rc = verify_run(s, deep, repair, NULL, say_finding, json ? &findings : NULL, &r, &why);
    }
    store_close(&s);
    conf_free(&c);
    if (rc == 0) {
        print_report(&r, &findings, json);
        rc = verify_is_clean(&r) ? 0 : 65;
    } else {
        if (json) {
            print_verify_json(SLICE_NONE, &why);
        }
        rc = print_failure(&why);
    }
    buf_free(&findings);
    return rc;
}

/* As mirrorctl cluster check writes it. steps: NULL, or gets them as JSON. */
static void say_step(void *arg, const struct probe_step *s)
{
    struct buf *steps = arg;
    const char *why = s->why->code != 0 ? s->why->text : "";

    if (steps == NULL) {
        printf("%-6s  %s (%" PRIu64 " ms)%s%s\n", s->rc == 0 ? "ok" : "FAILED", s->what, s->took_ms,
               why[0] != '\0' ? ": " : "", why);
        fflush(stdout);
        return;
    }
    jwrite_open(steps, NULL, '{');
    jwrite_str(steps, "step", s->what);
    jwrite_bool(steps, "ok", s->rc == 0);
    jwrite_u64(steps, "took_ms", s->took_ms);
    jwrite_str(steps, "why", why);
    jwrite_close(steps, '}');
}

/* place: of the bucket; NULL: not known. */
static void print_check_json(const char *place, const struct buf *steps, const struct err *why)
{
    struct buf out = BUF_INIT(1 << 20);

    jwrite_open(&out, NULL, '{');
    jwrite_bool(&out, "ok", why->code == 0);
    jwrite_open(&out, "steps", '[');
    buf_adds(&out, buf_slice(steps));
    jwrite_close(&out, ']');
    if (place != NULL) {
        jwrite_str(&out, "bucket", place);
    }
    if (why->code != 0) {
        jwrite_err(&out, "error", why);
    }
    jwrite_close(&out, '}');
    printf("%s\n", buf_cstr(&out));
    buf_free(&out);
}

static int check_cluster(const char *path, bool json)
{
    struct buf steps = BUF_INIT(1 << 20);
    struct bucket *b = NULL;
    struct conf *c = NULL;
    struct err why = {0};
    uint64_t nonce;
    int rc;

    CHECK(getrandom(&nonce, sizeof nonce, 0) == (ssize_t)sizeof nonce);
    signal(SIGPIPE, SIG_IGN);
    curl_global_init(CURL_GLOBAL_DEFAULT);
    rc = conf_read(path, &c, &why);
    if (rc == 0 && c->cluster.bucket.url == NULL) {
        rc =
            err_set(&why, E_CONFIG, "%s: there is no cluster section, so no bucket to check", path);
    }
    rc = rc != 0 ? rc : bucket_open(&c->cluster.bucket, &b, &why);
    rc =
        rc != 0 ? rc : probe_run(b, PROBE_ROUNDS_MANY, nonce, say_step, json ? &steps : NULL, &why);
    if (json) {
        print_check_json(b != NULL ? bucket_place(b) : NULL, &steps, &why);
    } else if (rc == 0) {
        printf("%s: the bucket keeps its promises\n", bucket_place(b));
    }
    bucket_close(&b);
    conf_free(&c);
    curl_global_cleanup();
    buf_free(&steps);
    return rc == 0 ? 0 : rc == E_CONFIG ? fail_config(&why) : print_failure(&why);
}

static void print_leave_json(uint64_t missing, uint64_t bytes, const struct err *why)
{
    struct buf out = BUF_INIT(64 << 10);

    jwrite_open(&out, NULL, '{');
    jwrite_u64(&out, "missing", missing);
    jwrite_u64(&out, "missing_bytes", bytes);
    if (why->code != 0) {
        jwrite_err(&out, "error", why);
    }
    jwrite_close(&out, '}');
    printf("%s\n", buf_cstr(&out));
    buf_free(&out);
}

static int leave_cluster(const char *path, bool force, bool json)
{
    uint64_t missing = 0, bytes = 0;
    struct store *s = NULL;
    struct conf *c = NULL;
    struct err why = {0};
    int rc = conf_read(path, &c, &why);

    rc = rc != 0 ? rc : store_open(&c->store, &s, &why);
    rc = rc != 0 ? rc : cluster_leave_offline(s, force, &missing, &bytes, &why);
    store_close(&s);
    conf_free(&c);
    if (json) {
        print_leave_json(missing, bytes, &why);
    } else if (rc == 0) {
        printf("the store stands alone; files that trees hold and that are not here: %" PRIu64
               ", %" PRIu64 " bytes\n",
               missing, bytes);
    }
    return rc == 0 ? 0 : print_failure(&why);
}

static void print_void_json(const struct void_look *look, bool declared, const struct err *why)
{
    struct buf out = BUF_INIT(64 << 10);

    jwrite_open(&out, NULL, '{');
    if (why->code != 0) {
        jwrite_err(&out, "error", why);
    } else {
        void_members(look, declared, &out);
    }
    jwrite_close(&out, '}');
    printf("%s\n", buf_cstr(&out));
    buf_free(&out);
}

static void print_void(const struct void_look *look, bool declared)
{
    char damaged[DIGEST_HEX + 1];

    digest_format(&look->damaged, damaged);
    if (declared) {
        printf("entry %" PRIu64 " is void: restart the mirrors that have stopped\n", look->seq);
    } else {
        printf("entry %" PRIu64 " is damaged: %" PRIu64 " bytes with SHA-256 %s%s\n", look->seq,
               look->size_bytes, damaged,
               look->followed ? "; there is a next entry, so a mirror has applied this one" : "");
    }
}

/* digest: NULL: only looks. */
static int void_entry(const char *path, uint64_t seq, const char *digest, bool json)
{
    struct void_look look = {0};
    struct bucket *b = NULL;
    struct conf *c = NULL;
    struct err why = {0};
    int rc;

    signal(SIGPIPE, SIG_IGN);
    curl_global_init(CURL_GLOBAL_DEFAULT);
    rc = conf_read(path, &c, &why);
    if (rc == 0 && c->cluster.bucket.url == NULL) {
        rc = err_set(&why, E_CONFIG, "%s: there is no cluster section", path);
    }
    rc = rc != 0 ? rc : bucket_open(&c->cluster.bucket, &b, &why);
    rc = rc != 0 ? rc : void_look(b, seq, &look, &why);
    if (rc == 0 && digest != NULL) {
        rc = void_declare(b, &look, slice_str(digest), &why);
    }
    if (json) {
        print_void_json(&look, digest != NULL, &why);
    } else if (rc == 0) {
        print_void(&look, digest != NULL);
    }
    bucket_close(&b);
    conf_free(&c);
    curl_global_cleanup();
    return rc == 0 ? 0 : print_failure(&why);
}

/* Threads inherit the mask: signals are for daemon_run() alone. */
static void block_signals(void)
{
    sigset_t set;

    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGHUP);
    sigaddset(&set, SIGUSR1);
    sigaddset(&set, SIGPIPE);
    sigprocmask(SIG_BLOCK, &set, NULL);
    signal(SIGPIPE, SIG_IGN);
}

static int serve_mirror(const char *path)
{
    struct daemon *d = NULL;
    struct err why = {0};
    int rc;

    block_signals();
    log_begin();
    curl_global_init(CURL_GLOBAL_DEFAULT);
    rc = daemon_open(path, &d, &why);
    if (rc == 0) {
        rc = daemon_run(d, &why);
        daemon_close(&d);
    } else if (rc == E_CANCELLED) {
        log_info("daemon.ended", "why=\"it was told to end before it served\"");
        rc = 0;
    }
    curl_global_cleanup();
    log_end();
    return rc < 0 ? print_failure(&why) : rc;
}

/* said: as getopt stopped at it. */
static int unknown_mirrord_option(const struct option *options, const char *said)
{
    const char *name[16], *near;
    struct slice word = slice_str(said);
    size_t n = 0;

    for (size_t i = 0; options[i].name != NULL; i++) {
        CHECK(n < ARRAY_LEN(name));
        name[n++] = options[i].name;
    }
    word = slice_from(word, slice_starts(word, SLICE("--")) ? 2 : word.n);
    near = nearest_word(name, n, slice_cut(&word, '='));
    fprintf(stderr, "mirrord: unknown option %s; %s%s%s\n", said,
            near != NULL ? "did you mean --" : "mirrord --help lists the options",
            near != NULL ? near : "", near != NULL ? "?" : "");
    return 64;
}

int main(int argc, char **argv)
{
    enum {
        OPT_VERSION = 256,
        OPT_VERIFY,
        OPT_DEEP,
        OPT_REPAIR,
        OPT_JSON,
        OPT_DOCS,
        OPT_CHECK,
        OPT_LEAVE,
        OPT_FORCE,
        OPT_VOID,
        OPT_DIGEST
    };
    static const struct option options[] = {{"config", required_argument, NULL, 'c'},
                                            {"test", no_argument, NULL, 't'},
                                            {"print", no_argument, NULL, 'T'},
                                            {"help", no_argument, NULL, 'h'},
                                            {"version", no_argument, NULL, OPT_VERSION},
                                            {"verify", no_argument, NULL, OPT_VERIFY},
                                            {"deep", no_argument, NULL, OPT_DEEP},
                                            {"check-cluster", no_argument, NULL, OPT_CHECK},
                                            {"leave-cluster", no_argument, NULL, OPT_LEAVE},
                                            {"force", no_argument, NULL, OPT_FORCE},
                                            {"void-entry", required_argument, NULL, OPT_VOID},
                                            {"digest", required_argument, NULL, OPT_DIGEST},
                                            {"repair", no_argument, NULL, OPT_REPAIR},
                                            {"json", no_argument, NULL, OPT_JSON},
                                            {"print-docs", required_argument, NULL, OPT_DOCS},
                                            {NULL, 0, NULL, 0}};
    const char *path = "/etc/mirrord/mirrord.conf";
    bool deep = false;
    bool repair = false;
    bool json = false;
    bool force = false;
    const char *digest = NULL;
    uint64_t entry = 0;
    int what = 0;
    int opt;

    opterr = 0;
    while ((opt = getopt_long(argc, argv, ":c:tTh", options, NULL)) != -1) {
        switch (opt) {
        case 'c':
            path = optarg;
            break;
        case 'h':
            fputs(usage, stdout);
            return 0;
        case OPT_VERSION:
            printf("mirrord %s\n", MIRROR_VERSION);
            return 0;
        case OPT_DOCS:
            return print_docs(optarg);
        case OPT_DEEP:
            deep = true;
            break;
        case OPT_REPAIR:
            repair = true;
            break;
        case OPT_JSON:
            json = true;
            break;
        case OPT_FORCE:
            force = true;
            break;
        case OPT_DIGEST:
            digest = optarg;
            break;
        case OPT_VOID:
            what = opt;
            if (!slice_u64(slice_str(optarg), &entry)) {
                fprintf(stderr, "mirrord: --void-entry %s is no number\n", optarg);
                return 64;
            }
            break;
        case 't':
        case 'T':
        case OPT_VERIFY:
        case OPT_CHECK:
        case OPT_LEAVE:
            what = opt;
            break;
        case ':':
            fprintf(stderr, "mirrord: %s needs a value; write it after the option\n",
                    argv[optind - 1]);
            return 64;
        default:
            return unknown_mirrord_option(options, argv[optind - 1]);
        }
    }
    if ((deep || repair) &&
        what != OPT_VERIFY) { /* a daemon that starts instead looks as if it checked */
        fprintf(stderr, "mirrord: %s is only for --verify\n", deep ? "--deep" : "--repair");
        return 64;
    }
    if (json && what != OPT_VERIFY && what != OPT_CHECK && what != OPT_LEAVE && what != OPT_VOID &&
        what != 't') {
        fputs("mirrord: --json is only for -t, --verify, --check-cluster, --leave-cluster and "
              "--void-entry\n",
              stderr);
        return 64;
    }
    if (digest != NULL && what != OPT_VOID) {
        fputs("mirrord: --digest is only for --void-entry\n", stderr);
        return 64;
    }
    if (force && what != OPT_LEAVE) {
        fputs("mirrord: --force is only for --leave-cluster\n", stderr);
        return 64;
    }
    if (optind != argc) {
        fprintf(stderr, "mirrord: %s: unexpected argument; mirrord --help lists the options\n",
                argv[optind]);
        return 64;
    }
    switch (what) {
    case 't':
        return test_config(path, json);
    case 'T':
        return print_config(path);
    case OPT_VERIFY:
        return verify_store_files(path, deep, repair, json);
    case OPT_CHECK:
        return check_cluster(path, json);
    case OPT_LEAVE:
        return leave_cluster(path, force, json);
    case OPT_VOID:
        return void_entry(path, entry, digest, json);
    default:
        return serve_mirror(path);
    }
}
