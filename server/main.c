/* main.c - mirrord: the caching mirror. A table of contents; the parts are built in daemon.c. */
#include <getopt.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <curl/curl.h>

#include "common/base/log.h"
#include "server/admin/admin.h"
#include "server/conf/schema.h"
#include "server/daemon.h"
#include "server/store/keep.h"

static const char usage[] =
    "usage: mirrord [-c FILE] [-t | -T | --verify [--deep] [--repair]]\n"
    "\n"
    "  -c, --config FILE   the configuration (default /etc/mirrord/mirrord.conf)\n"
    "  -t, --test          test it and exit: 0, or 78 and what is wrong\n"
    "  -T, --print         print the effective settings and exit\n"
    "      --verify        check the store while no daemon runs: 0, or 65 when something is damaged\n"
    "      --deep          with --verify: hash every blob again\n"
    "      --repair        with --verify: drop rows that point nowhere, set damaged blobs aside\n"
    "      --version       print the version and exit\n"
    "\n"
    "Runs in the foreground and logs to stderr. SIGHUP reloads the configuration, SIGUSR1 reopens the access log,\n"
    "SIGTERM drains and stops. See mirrord(8), mirrord.conf(5), mirrorctl(1).\n";

static int fail(const struct err *e)
{
    fprintf(stderr, "mirrord: %s\n", e->text);
    return err_sysexit(e->code);
}

static int test_config(const char *path, bool print)
{
    struct conf *c = NULL;
    struct err why = {0};
    struct buf out = BUF_INIT(16 << 20);

    if (conf_read(path, &c, &why) != 0) {
        fprintf(stderr, "%s\n", why.text);
        return 78;
    }
    if (print) {
        conf_print(c, &out);
        fwrite(out.p, 1, out.n, stdout);
        buf_free(&out);
    } else {
        printf("%s: ok: %zu repos, %zu listeners\n", path, c->repos_count, c->listeners_count);
    }
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
    (void)arg;
    printf("%s\n", what);
}

static int verify(const char *path, bool deep, bool repair)
{
    struct verify_report r = {0};
    struct conf *c = NULL;
    struct store *s = NULL;
    struct err why = {0};
    int rc = conf_read(path, &c, &why);

    if (rc == 0) {
        rc = store_open(&c->store, &s, &why);
    }
    if (rc == 0) {
        rc = verify_run(s, deep, repair, NULL, say_finding, NULL, &r, &why);
    }
    store_close(&s);
    conf_free(&c);
    if (rc != 0) {
        return fail(&why);
    }
    printf("%" PRIu64 " blobs, %" PRIu64 " bytes; removed %" PRIu64 " orphans; damaged %" PRIu64
           ", missing %" PRIu64 ", bad rows %" PRIu64 ", repaired %" PRIu64 "\n",
           r.blobs, r.bytes, r.orphans, r.damaged, r.missing, r.bad_rows, r.repaired);
    return r.damaged + r.missing + r.bad_rows > r.repaired ? 65 : 0;
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

static int serve(const char *path)
{
    struct daemon *d = NULL;
    struct err why = {0};
    int rc;

    block_signals();
    curl_global_init(CURL_GLOBAL_DEFAULT);
    rc = daemon_open(path, &d, &why);
    if (rc != 0) {
        return fail(&why);
    }
    rc = daemon_run(d);
    daemon_close(&d);
    curl_global_cleanup();
    return rc;
}

int main(int argc, char **argv)
{
    enum { OPT_VERSION = 256, OPT_VERIFY, OPT_DEEP, OPT_REPAIR, OPT_DOCS };
    static const struct option options[] = {{"config", required_argument, NULL, 'c'},
                                            {"test", no_argument, NULL, 't'},
                                            {"print", no_argument, NULL, 'T'},
                                            {"help", no_argument, NULL, 'h'},
                                            {"version", no_argument, NULL, OPT_VERSION},
                                            {"verify", no_argument, NULL, OPT_VERIFY},
                                            {"deep", no_argument, NULL, OPT_DEEP},
                                            {"repair", no_argument, NULL, OPT_REPAIR},
                                            {"print-docs", required_argument, NULL, OPT_DOCS},
                                            {NULL, 0, NULL, 0}};
    const char *path = "/etc/mirrord/mirrord.conf";
    bool deep = false;
    bool repair = false;
    int what = 0;
    int opt;

    while ((opt = getopt_long(argc, argv, "c:tTh", options, NULL)) != -1) {
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
        case 't':
        case 'T':
        case OPT_VERIFY:
            what = opt;
            break;
        default:
            fputs(usage, stderr);
            return 64;
        }
    }
    if (optind != argc) {
        fprintf(stderr, "mirrord: %s: unexpected argument; mirrord --help lists the options\n",
                argv[optind]);
        return 64;
    }
    switch (what) {
    case 't':
    case 'T':
        return test_config(path, what == 'T');
    case OPT_VERIFY:
        return verify(path, deep, repair);
    default:
        return serve(path);
    }
}
