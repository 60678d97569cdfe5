/* trainagent - the agent of a training node: pull, check, launch, watch, publish. */
#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sysexits.h>
#include <unistd.h>

#include "agent/verb.h"
#include "common/base/log.h"
#include "common/codec/units.h"

static const struct {
    const char *name;
    int (*run)(struct verb_line *v, struct err *e);
    const char *line;
} verbs[] = {
    {"pull", verb_pull, "pull FROM [--to DIR] [--unpack]   bring a file or folder here, verified"},
    {"run", verb_run,
     "run JOB                           pull, launch, restart, publish, as the job file says"},
    {"launch", verb_launch,
     "launch [--ranks N] -- CMD...      start the ranks of a command and watch them"},
    {"publish", verb_publish,
     "publish DIR TO                    put a folder into a hosted repository, whole or not"},
    {"status", verb_status,
     "status                            what is on the shelf, which jobs ran"},
    {"gc", verb_gc, "gc [--keep SIZE] [--age SPAN]     make room on the shelf"},
};

static void usage(FILE *to)
{
    fputs("usage: trainagent [options] VERB ...\n\n", to);
    for (size_t i = 0; i < ARRAY_LEN(verbs); i++) {
        fprintf(to, "  %s\n", verbs[i].line);
    }
    fputs(
        "\nFROM is <repo>/<path>[@version][#sha256=<hex>] below the mirror; a '/' at its end means a folder;\n"
        "or hf/<owner>/<name>[@<rev>]: a repository of a Hub, laid out as the Hub's client keeps it.\n\n"
        "  --mirror URL        the mirror                               ($TRAINAGENT_MIRROR)\n"
        "  --shelf DIR         this node's cache                        ($TRAINAGENT_SHELF)\n"
        "  --state DIR         what jobs keep                           ($TRAINAGENT_STATE)\n"
        "  --token-file FILE   holds the token; never over plain HTTP   ($TRAINAGENT_TOKEN_FILE)\n"
        "  --plaintext-token   ... but on a network that you trust\n"
        "  --ca-file FILE      certificates to trust                    ($TRAINAGENT_CA_FILE)\n"
        "  --connections N     at once, 1 to 64 (8)\n"
        "  --idle-timeout S    seconds below 1 KiB/s that fail a transfer (60)\n"
        "  --tries N           of the network in a row, 0.1 s and doubling between them (7)\n"
        "  --to DIR            where pull puts it; without: on the shelf, print where\n"
        "  --unpack            of tar and zip, the content\n"
        "  --sha256 HEX        what a pulled file must be\n"
        "  --copy              copies that may be written to, no hard links\n"
        "  --jitter SPAN       run: wait up to this long, always the same on one host\n"
        "  --ranks N|auto      launch: processes; auto is one for each GPU\n"
        "  --restarts N        launch: how often to start again after 75 or a signal\n"
        "  --if-match ROOT     publish: only when the repository is still there\n"
        "  --keep SIZE --age SPAN   gc: what may stay\n"
        "  --json -q, --quiet -v, --verbose --help --version\n",
        to);
}

enum {
    OPT_MIRROR = 256,
    OPT_SHELF,
    OPT_STATE,
    OPT_TOKEN_FILE,
    OPT_PLAINTEXT,
    OPT_CA_FILE,
    OPT_CONNECTIONS,
    OPT_IDLE,
    OPT_TRIES,
    OPT_TO,
    OPT_UNPACK,
    OPT_SHA256,
    OPT_COPY,
    OPT_JITTER,
    OPT_RANKS,
    OPT_RESTARTS,
    OPT_IF_MATCH,
    OPT_KEEP,
    OPT_AGE,
    OPT_JSON,
    OPT_HELP,
    OPT_VERSION,
};

static const struct option options[] = {
    {"mirror", required_argument, NULL, OPT_MIRROR},
    {"shelf", required_argument, NULL, OPT_SHELF},
    {"state", required_argument, NULL, OPT_STATE},
    {"token-file", required_argument, NULL, OPT_TOKEN_FILE},
    {"plaintext-token", no_argument, NULL, OPT_PLAINTEXT},
    {"ca-file", required_argument, NULL, OPT_CA_FILE},
    {"connections", required_argument, NULL, OPT_CONNECTIONS},
    {"idle-timeout", required_argument, NULL, OPT_IDLE},
    {"tries", required_argument, NULL, OPT_TRIES},
    {"to", required_argument, NULL, OPT_TO},
    {"unpack", no_argument, NULL, OPT_UNPACK},
    {"sha256", required_argument, NULL, OPT_SHA256},
    {"copy", no_argument, NULL, OPT_COPY},
    {"jitter", required_argument, NULL, OPT_JITTER},
    {"ranks", required_argument, NULL, OPT_RANKS},
    {"restarts", required_argument, NULL, OPT_RESTARTS},
    {"if-match", required_argument, NULL, OPT_IF_MATCH},
    {"keep", required_argument, NULL, OPT_KEEP},
    {"age", required_argument, NULL, OPT_AGE},
    {"json", no_argument, NULL, OPT_JSON},
    {"quiet", no_argument, NULL, 'q'},
    {"verbose", no_argument, NULL, 'v'},
    {"help", no_argument, NULL, OPT_HELP},
    {"version", no_argument, NULL, OPT_VERSION},
    {NULL, 0, NULL, 0},
};

static bool number(const char *text, uint64_t min, uint64_t max, uint64_t *out)
{
    return slice_u64(slice_str(text), out) && *out >= min && *out <= max;
}

static bool span_s(const char *text, uint64_t *out)
{
    uint64_t ms;

    if (!span_parse(slice_str(text), &ms)) {
        return false;
    }
    *out = ms / 1000;
    return true;
}

/* False: the argument is none that this option takes. */
static bool take(struct verb_line *v, int opt, const char *arg)
{
    struct agent *a = v->agent;
    uint64_t n = 0;
    bool ok = true;

    switch (opt) {
    case OPT_MIRROR:
        a->mirror = slice_str(arg);
        break;
    case OPT_SHELF:
        a->shelf_dir = arg;
        break;
    case OPT_STATE:
        a->state_dir = arg;
        break;
    case OPT_TOKEN_FILE:
        a->token_file = arg;
        break;
    case OPT_PLAINTEXT:
        a->plaintext_token = true;
        break;
    case OPT_CA_FILE:
        a->ca_file = arg;
        break;
    case OPT_CONNECTIONS:
        ok = number(arg, 1, 64, &n);
        a->connections = (unsigned)n;
        break;
    case OPT_IDLE:
        ok = number(arg, 1, 86400, &n);
        a->idle_timeout_s = (unsigned)n;
        break;
    case OPT_TRIES:
        ok = number(arg, 1, 20, &n);
        a->tries = (unsigned)n;
        break;
    case OPT_TO:
        v->to = arg;
        break;
    case OPT_UNPACK:
        v->unpack = true;
        break;
    case OPT_SHA256:
        v->sha256 = arg;
        break;
    case OPT_COPY:
        a->copy = true;
        break;
    case OPT_JITTER:
        return span_parse(slice_str(arg), &v->jitter_ms);
    case OPT_RANKS:
        ok = strcmp(arg, "auto") == 0 || number(arg, 1, 1024, &n);
        v->ranks = (int)n;
        break;
    case OPT_RESTARTS:
        ok = number(arg, 0, 1000000, &n);
        v->restarts = (unsigned)n;
        break;
    case OPT_IF_MATCH:
        v->if_match = arg;
        break;
    case OPT_KEEP:
        return size_parse(slice_str(arg), &v->keep_bytes);
    case OPT_AGE:
        return span_s(arg, &v->keep_age_s);
    case OPT_JSON:
        a->json = true;
        break;
    case 'q':
        a->quiet = true;
        break;
    case 'v':
        log_set_level(LOG_DEBUG);
        break;
    default:
        return false;
    }
    return ok;
}

/* 0: go on; else the program's exit code, one less than it: 1 means 0. */
static int read_line(struct verb_line *v, int argc, char **argv)
{
    int opt;
    int which = 0;

    while ((opt = getopt_long(argc, argv, "qv", options, &which)) != -1) {
        if (opt == OPT_HELP) {
            usage(stdout);
            return 1;
        }
        if (opt == OPT_VERSION) {
            puts("trainagent " MIRROR_VERSION);
            return 1;
        }
        if (opt == '?') {
            fputs("try trainagent --help\n", stderr);
            return EX_USAGE + 1;
        }
        if (!take(v, opt, optarg)) {
            fprintf(stderr,
                    "trainagent: --%s takes no \"%s\"; `trainagent --help` says what it takes\n",
                    options[which].name, optarg);
            return EX_USAGE + 1;
        }
    }
    return 0;
}

int main(int argc, char **argv)
{
    struct agent agent;
    struct verb_line v = {.agent = &agent, .keep_bytes = UINT64_MAX, .keep_age_s = UINT64_MAX};
    struct err why = {0};
    int rc = E_USAGE;
    int stop;

    signal(SIGPIPE, SIG_IGN);
    signal(SIGCHLD, SIG_DFL); /* ignored ones stay so over exec, and children then leave no word */
    agent_init(&agent);
    stop = read_line(&v, argc, argv);
    if (stop != 0) {
        return stop - 1;
    }
    if (optind == argc) {
        usage(stderr);
        return EX_USAGE;
    }
    v.argc = argc - optind - 1;
    v.argv = argv + optind + 1;
    err_set(&why, E_USAGE, "%s: no such verb; try trainagent --help", argv[optind]);
    for (size_t i = 0; i < ARRAY_LEN(verbs); i++) {
        if (strcmp(argv[optind], verbs[i].name) == 0) {
            err_clear(&why);
            rc = verbs[i].run(&v, &why);
        }
    }
    agent_fini(&agent);
    /* Where something is, or what was published, must not be lost in silence; a reader who had enough is no trouble. */
    if (rc == 0 && (fflush(stdout) != 0 || ferror(stdout)) && errno != EPIPE) {
        rc = err_sys(&why, "standard output");
    }
    if (rc != 0) {
        fprintf(stderr, "trainagent: %s\n", why.text);
        return err_sysexit(rc);
    }
    return v.exit_code;
}
