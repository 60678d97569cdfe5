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
#include "common/codec/nearest.h"
#include "common/codec/units.h"

static const struct verb {
    const char *name;
    int (*run)(struct verb_line *v, struct err *e);
    const char *own; /* options, beside those that all verbs take */
    const char *line;
} verbs[] = {
    {"pull", verb_pull, "--to --unpack --sha256 --copy",
     "pull FROM [--to DIR] [--unpack]   bring a file or folder here, verified"},
    {"run", verb_run, "--copy --jitter",
     "run JOB                           pull, launch, restart, publish, as the job file says"},
    {"launch", verb_launch, "--ranks --restarts",
     "launch [--ranks N] -- CMD...      start the ranks of a command and watch them"},
    {"preflight", verb_preflight,
     "--full --only --skip --expect --config --textfile --explain --list --root",
     "preflight [JOB] [--full]          is this node fit: driver, GPUs, fabric, disks, memory"},
    {"publish", verb_publish, "--if-match",
     "publish DIR TO                    put a folder into a hosted repository, whole or not"},
    {"status", verb_status, "",
     "status                            what is on the shelf, which jobs ran"},
    {"gc", verb_gc, "--keep --age", "gc [--keep SIZE] [--age SPAN]     make room on the shelf"},
    {"prolog", verb_prolog, "--deadline",
     "prolog [--deadline SPAN]          Slurm's: bring what a job's comment names"},
    {"taskprolog", verb_taskprolog, "",
     "taskprolog                        Slurm's: what a task is told, and where its files are"},
    {"epilog", verb_epilog, "--deadline",
     "epilog [--deadline SPAN]          Slurm's: take away what a job had"},
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
        "  --node-file FILE    for " AGENT_NODE_FILE "  ($TRAINAGENT_CONF)\n"
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
        "  --full              preflight: also what takes longer\n"
        "  --only NAME,...     preflight: these checks, of those that --list tells\n"
        "  --skip NAME,...     ... all but these\n"
        "  --expect KEY=VALUE  ... what the node must have, gpus=8; again for the next\n"
        "  -c, --config FILE   ... the node's file                      ($TRAINAGENT_PREFLIGHT)\n"
        "  --textfile FILE     ... also as metrics for Prometheus' node_exporter\n"
        "  --explain           ... also which CPUs are near which GPU\n"
        "  --root DIR          ... proc, sys and dev of the node are in DIR\n"
        "  --list              ... every check and every key, and nothing else\n"
        "  --deadline SPAN     prolog, epilog: when they end, whatever is under way\n"
        "  --json -q, --quiet -v, --verbose --help --version\n",
        to);
}

enum {
    OPT_MIRROR = 256,
    OPT_SHELF,
    OPT_STATE,
    OPT_CONF,
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
    OPT_FULL,
    OPT_ONLY,
    OPT_SKIP,
    OPT_EXPECT,
    OPT_TEXTFILE,
    OPT_EXPLAIN,
    OPT_ROOT,
    OPT_LIST,
    OPT_DEADLINE,
    OPT_JSON,
    OPT_HELP,
    OPT_VERSION,
};

static const struct option options[] = {
    {"mirror", required_argument, NULL, OPT_MIRROR},
    {"shelf", required_argument, NULL, OPT_SHELF},
    {"state", required_argument, NULL, OPT_STATE},
    {"node-file", required_argument, NULL, OPT_CONF},
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
    {"full", no_argument, NULL, OPT_FULL},
    {"only", required_argument, NULL, OPT_ONLY},
    {"skip", required_argument, NULL, OPT_SKIP},
    {"expect", required_argument, NULL, OPT_EXPECT},
    {"config", required_argument, NULL, 'c'},
    {"textfile", required_argument, NULL, OPT_TEXTFILE},
    {"explain", no_argument, NULL, OPT_EXPLAIN},
    {"root", required_argument, NULL, OPT_ROOT},
    {"list", no_argument, NULL, OPT_LIST},
    {"deadline", required_argument, NULL, OPT_DEADLINE},
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

/* False: not one of preflight's, or an argument that it does not take. */
static bool take_preflight(struct preflight_line *p, int opt, const char *arg)
{
    switch (opt) {
    case OPT_FULL:
        p->full = true;
        return true;
    case OPT_ONLY:
        p->only = arg;
        return true;
    case OPT_SKIP:
        p->skip = arg;
        return true;
    case OPT_EXPECT:
        if (p->nexpect == EXPECT_WORDS) {
            return false;
        }
        p->expect[p->nexpect++] = arg;
        return true;
    case 'c':
        p->config = arg;
        return true;
    case OPT_TEXTFILE:
        p->textfile = arg;
        return true;
    case OPT_EXPLAIN:
        p->explain = true;
        return true;
    case OPT_ROOT:
        p->root = arg;
        return true;
    case OPT_LIST:
        p->list = true;
        return true;
    default:
        return false;
    }
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
    case OPT_CONF:
        a->conf_file = arg;
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
    case OPT_DEADLINE:
        return span_parse(slice_str(arg), &v->deadline_ms) && v->deadline_ms > 0;
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
        return take_preflight(&v->preflight, opt, arg);
    }
    return ok;
}

/* Of an option's value, where it stands among them: also of one that was written as a letter. */
static size_t index_of(int opt)
{
    size_t i = 0;

    while (options[i].name != NULL && options[i].val != opt) {
        i++;
    }
    return i;
}

/* --- which options belong to which verb --- */

static bool has_word(const char *words, const char *name)
{
    struct slice rest = slice_str(words);

    while (rest.n > 0) {
        struct slice word = slice_cut(&rest, ' ');
        if (slice_eqs(slice_from(word, 2), name)) {
            return true;
        }
    }
    return false;
}

/* A verb's own; those of no verb are everybody's. */
static bool belongs(const char *option, const struct verb *verb)
{
    bool somebodys = false;

    for (size_t i = 0; i < ARRAY_LEN(verbs); i++) {
        somebodys = somebodys || has_word(verbs[i].own, option);
    }
    return !somebodys || has_word(verb->own, option);
}

static const char *nearest_option(struct slice said, const struct verb *verb)
{
    const char *name[ARRAY_LEN(options)];
    size_t n = 0;

    for (size_t i = 0; options[i].name != NULL; i++) {
        if (verb == NULL || belongs(options[i].name, verb)) {
            name[n++] = options[i].name;
        }
    }
    return nearest_word(name, n, said);
}

static int no_option(const char *said, struct err *e)
{
    struct slice name = slice_str(said);
    const char *near;

    if (optopt > 0 && optopt < OPT_MIRROR) {
        return err_set(e, E_USAGE, "-%c is no option; try trainagent --help", optopt);
    }
    while (slice_starts(name, SLICE("-"))) {
        name = slice_from(name, 1);
    }
    name = slice_cut(&name, '=');
    near = nearest_option(name, NULL);
    return near != NULL ? err_set(e, E_USAGE, "%.80s is no option; did you mean --%s?", said, near)
                        : err_set(e, E_USAGE, "%.80s is no option; try trainagent --help", said);
}

/* A number of ranks that is passed over in silence is a job on one GPU. */
static int check_options(const struct verb *verb, const bool *used, struct err *e)
{
    for (size_t i = 0; options[i].name != NULL; i++) {
        const char *name = options[i].name;
        if (used[i] && !belongs(name, verb)) {
            const char *near = nearest_option(slice_str(name), verb);
            return err_set(e, E_USAGE, "--%s does not belong to %s, which has %s%s%s%s", name,
                           verb->name, verb->own[0] != '\0' ? verb->own : "none of its own",
                           near != NULL ? "; did you mean --" : "", near != NULL ? near : "",
                           near != NULL ? "?" : "");
        }
    }
    return 0;
}

static int find_verb(const char *said, const struct verb **out, struct err *e)
{
    const char *name[ARRAY_LEN(verbs)];
    const char *near;

    for (size_t i = 0; i < ARRAY_LEN(verbs); i++) {
        name[i] = verbs[i].name;
        if (strcmp(said, verbs[i].name) == 0) {
            *out = &verbs[i];
            return 0;
        }
    }
    near = nearest_word(name, ARRAY_LEN(verbs), slice_str(said));
    return near != NULL ? err_set(e, E_USAGE, "%s: no such verb; did you mean %s?", said, near)
                        : err_set(e, E_USAGE, "%s: no such verb; try trainagent --help", said);
}

enum { GO_ON = 1 };

/* GO_ON, 0 (all is said), or an E_*. */
static int read_line(struct verb_line *v, int argc, char **argv, bool *used, struct err *e)
{
    int opt;

    opterr = 0;
    while ((opt = getopt_long(argc, argv, ":qvc:", options, NULL)) != -1) {
        switch (opt) {
        case OPT_HELP:
            usage(stdout);
            return 0;
        case OPT_VERSION:
            puts("trainagent " MIRROR_VERSION);
            return 0;
        case ':':
            return err_set(e, E_USAGE, "%.80s needs a value; write it behind", argv[optind - 1]);
        case '?':
            return no_option(argv[optind - 1], e);
        default:
            if (!take(v, opt, optarg)) {
                return err_set(e, E_USAGE,
                               "--%s takes no \"%.80s\"; `trainagent --help` says what it takes",
                               options[index_of(opt)].name, optarg);
            }
            used[index_of(opt)] = true;
        }
    }
    return GO_ON;
}

static int do_verb(struct verb_line *v, int argc, char **argv, const bool *used, struct err *e)
{
    const struct verb *verb = NULL;
    int rc = find_verb(argv[0], &verb, e);

    rc = rc != 0 ? rc : check_options(verb, used, e);
    v->argc = argc - 1;
    v->argv = argv + 1;
    return rc != 0 ? rc : verb->run(v, e);
}

/* --- as slurmd starts us ---------------------------------------------------------------------------------------------------- */

/* slurm.conf has room for a path and none for an argument: a link whose name ends in a verb of Slurm's is that verb. */
static const char *verb_of_name(const char *program)
{
    static const char *const slurm[] = {"taskprolog", "prolog", "epilog"};
    const char *base = program != NULL ? strrchr(program, '/') : NULL;
    struct slice name = slice_str(base != NULL ? base + 1 : program);

    for (size_t i = 0; i < ARRAY_LEN(slurm); i++) {
        if (slice_ends(name, slice_str(slurm[i]))) {
            return slurm[i];
        }
    }
    return NULL;
}

/* Longer by the verb, where the name says one. In the arena. */
static char **spell_out(struct arena *a, int *argc, char **argv)
{
    const char *verb = verb_of_name(*argc > 0 ? argv[0] : NULL);
    char **longer;

    if (verb == NULL) {
        return argv;
    }
    longer = arena_alloc(a, ((size_t)*argc + 2) * sizeof longer[0]);
    longer[0] = argv[0];
    longer[1] = arena_cstr(a, slice_str(verb));
    memcpy(longer + 2, argv + 1, (size_t)(*argc - 1) * sizeof argv[0]);
    ++*argc;
    return longer;
}

/* A prolog or epilog that fails drains the node, be it for an option with a slip in it: so the verb is looked for before they
 * are read. What stands behind another verb is that one's. */
static bool must_not_fail(int argc, char **argv)
{
    const struct verb *verb = NULL;

    for (int i = 1; i < argc && verb == NULL; i++) {
        for (size_t j = 0; j < ARRAY_LEN(verbs) && verb == NULL; j++) {
            verb = strcmp(argv[i], verbs[j].name) == 0 ? &verbs[j] : NULL;
        }
    }
    return verb != NULL && (verb->run == verb_prolog || verb->run == verb_epilog) &&
           getenv("SLURM_JOB_ID") != NULL;
}

int main(int argc, char **argv)
{
    struct agent agent;
    struct verb_line v = {.agent = &agent, .keep_bytes = UINT64_MAX, .keep_age_s = UINT64_MAX};
    bool used[ARRAY_LEN(options)] = {false};
    struct err why = {0};
    bool never_fails;
    int rc;

    signal(SIGPIPE, SIG_IGN);
    signal(SIGCHLD, SIG_DFL); /* ignored ones stay so over exec, and children then leave no word */
    agent_init(&agent);
    argv = spell_out(&agent.arena, &argc, argv);
    never_fails = must_not_fail(argc, argv);
    rc = read_line(&v, argc, argv, used, &why);
    if (rc == GO_ON && optind < argc && strcmp(argv[optind], "help") == 0) {
        usage(stdout);
        rc = 0;
    }
    if (rc == GO_ON && optind == argc) {
        usage(stderr);
        return EX_USAGE;
    }
    if (rc == GO_ON) {
        rc = do_verb(&v, argc - optind, argv + optind, used, &why);
    }
    agent_fini(&agent);
    /* Where something is, or what was published, must not be lost in silence; a reader who had enough is no trouble. */
    if (rc == 0 && (fflush(stdout) != 0 || ferror(stdout)) && errno != EPIPE) {
        rc = err_sys(&why, "standard output");
    }
    if (rc != 0) {
        url_hide_queries(why.text); /* a job's stderr is a file that others read */
        fprintf(stderr, "trainagent: %s\n", why.text);
        return never_fails ? 0 : err_sysexit(rc);
    }
    return v.exit_code;
}
