/* main.c - mirrorctl: finds the verb, reads its options, runs it, turns what went wrong into an
 * exit code. */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "common/codec/nearest.h"
#include "server/ctl/ctl.h"

static const struct verb verbs[] = {
#define VERB(noun, word, args, least, most, options, function, help)                               \
    {noun, word, args, least, most, options, help, function},
#include "server/ctl/verbs.def"
#undef VERB
};

static const struct verb_option {
    const char *name;
    enum {
        FLAG,
        TEXT,   /* the last one counts */
        SCOPES, /* at most SCOPES_MAX, as a token has */
        WORDS
    } kind;
    const char *help;
} verb_options[] = {
    {"--name", WORDS,
     "the name of the token, to which a limit section of that name applies;\n"
     "for a certificate: a host name or address that clients use, in addition to those\n"
     "that this machine finds; may be given several times"},
    {"--csr", FLAG, "make a key and a signing request for an authority, instead of a certificate"},
    {"--scope", SCOPES,
     "a right (read, publish, sync, admin), ':' and a pattern for REPO/PATH, in which\n"
     "'*' also matches '/'; may be given several times"},
    {"--expires", TEXT, "when the token expires, as a time from now such as 90d (default: never)"},
    {"--limit", TEXT, "print at most this many rows (default 1000)"},
    {"--all", FLAG, "allow a whole repo"},
    {"--dry-run", FLAG, "change nothing; only count what would be removed or fetched"},
    {"--deep", FLAG, "read every file and compare its digest"},
    {"--repair", FLAG, "remove rows whose file is missing, set damaged files aside"},
    {"--force", FLAG, "replace existing files; for a sync: list even if the probe sees no change"},
    {"--wait", FLAG, "wait until it has ended; the exit code is its result"},
    {"--off", FLAG, "end the hold, or the drain: the mirror stays"},
    {"--local", FLAG, "keep the repositories: fetch what is only in the bucket to this disk"},
    {"--timeout", TEXT, "the longest time to wait for uploads (default 60s)"},
    {"--notice", TEXT, "the least time to wait, in which balancers notice (default 5s)"},
    {"--run", TEXT, "the number of the run (default: the latest)"},
    {"--include", WORDS,
     "only files whose paths match; '*' also matches '/'; may be given several times"},
    {"--exclude", WORDS, "no files whose paths match; may be given several times"},
    {"--pin", FLAG, "pin the files, so that they are never evicted"},
    {"--release", FLAG, "let the branch follow the Hub again"},
    {"--stop", FLAG, "stop a prefetch; the files that were fetched are kept"},
    {"--token-file", TEXT,
     "a file with a token of the Hub, for gated and private repositories; not stored"},
    {"--once", FLAG, "print once and exit"},
    {"--to", TEXT, "a folder, FILE.tar, or - for a tar on standard output"},
    {"--fetch", FLAG, "first fetch the files that are not here yet"},
    {"--since", TEXT, "leave out the files of an earlier bundle: its folder, or its MANIFEST.json"},
    {"--into", TEXT,
     "the repo to import into (default: the one with the name of the exported repo)"},
    {"--open", FLAG, "show private and gated repositories to every client that may read the repo"},
    {"--no-pin", FLAG, "do not pin the files: they may be evicted like files from an origin"},
    {"--digest", TEXT,
     "the SHA-256 of MANIFEST.json that export printed: any other bundle is refused"},
    {"--interval", TEXT, "the time between two updates (default 1s)"},
};

/* What means something else after `mirrorctl cluster`. */
static const struct {
    const char *name, *help;
} cluster_options[] = {
    {"--force", "if no daemon runs: leave without the files that are only in the bucket"},
    {"--digest", "the SHA-256 of the damaged entry, which is declared void"},
};

enum { SCOPES_MAX = 32 };

static void title_of(const struct verb *v, char out[64])
{
    snprintf(out, 64, "%s%s%s", v->noun, v->word[0] != '\0' ? " " : "", v->word);
}

/* "cache ls REPO [PREFIX]": the left column of a list of verbs. */
static int verb_left_column(const struct verb *v, char out[128])
{
    char title[64];

    title_of(v, title);
    return snprintf(out, 128, "%s%s%s", title, v->args[0] != '\0' ? " " : "", v->args);
}

/* One a line, all of them or a noun's: false when there is no such noun. */
static bool help_verbs(FILE *to, const char *noun)
{
    char left[128];
    int width = 0;

    for (size_t i = 0; i < ARRAY_LEN(verbs); i++) {
        int n = verb_left_column(&verbs[i], left);
        width = (noun == NULL || strcmp(verbs[i].noun, noun) == 0) && n > width ? n : width;
    }
    for (size_t i = 0; i < ARRAY_LEN(verbs); i++) {
        if (noun == NULL || strcmp(verbs[i].noun, noun) == 0) {
            verb_left_column(&verbs[i], left);
            fprintf(to, "  %-*s  %s\n", width, left, verbs[i].help);
        }
    }
    return width > 0;
}

static void help_all(FILE *to)
{
    fprintf(to, "usage: mirrorctl [--socket PATH] [--json|--plain] [--quiet] NOUN [VERB] ...\n\n");
    help_verbs(to, NULL);
    fprintf(
        to,
        "\n"
        "  --socket PATH   the daemon's control socket (default: $MIRRORCTL_SOCKET, else the "
        "one in the file of\n"
        "                  -c, else /var/lib/mirrord/control.sock)\n"
        "  -c FILE         the configuration file, also for config test, verify and init "
        "(default:\n"
        "                  /etc/mirrord/mirrord.conf)\n"
        "  --json          print JSON with stable names on stdout\n"
        "  --plain         print tables with a title line, tabs between columns and RFC 3339 "
        "times\n"
        "  -q, --quiet     print only errors\n"
        "  --no-color      print no colours (also $NO_COLOR)\n"
        "\n"
        "`mirrorctl NOUN VERB --help` explains one command. Exit codes are those of sysexits.h; 1\n"
        "from `mirrorctl status` or `cluster status` means that a problem needs attention.\n");
}

/* "--include GLOB" as the verb's line has it; n 0: it takes no such option. */
static struct slice option_of(const struct verb *v, const char *option)
{
    const char *at = strstr(v->options, option), *end;

    if (at == NULL || strchr(" ]", at[strlen(option)]) == NULL) { /* its end finds the NUL, too */
        return SLICE_NONE;
    }
    for (end = at; *end != '\0' && *end != ']' && strncmp(end, " [", 2) != 0 &&
                   strncmp(end, " --", 3) != 0;) {
        end++;
    }
    return slice_of(at, (size_t)(end - at));
}

static bool verb_takes_option(const struct verb *v, const char *option)
{
    return option_of(v, option).n > 0;
}

const struct words *option_words(const struct ctl *c, const char *name)
{
    size_t i = 0;

    CHECK(verb_takes_option(c->verb, name)); /* it asks for what its line lists */
    while (strcmp(verb_options[i].name, name) != 0) {
        i++;
        CHECK(i < ARRAY_LEN(verb_options));
    }
    return &c->given[i];
}

const char *option_text(const struct ctl *c, const char *name)
{
    const struct words *given = option_words(c, name);

    return given->count > 0 ? given->at[given->count - 1] : NULL;
}

bool option_given(const struct ctl *c, const char *name)
{
    return option_words(c, name)->count > 0;
}

static const char *help_of_option(const struct verb *v, const struct verb_option *o)
{
    for (size_t i = 0; strcmp(v->noun, "cluster") == 0 && i < ARRAY_LEN(cluster_options); i++) {
        if (strcmp(cluster_options[i].name, o->name) == 0) {
            return cluster_options[i].help;
        }
    }
    return o->help;
}

static void help_verb(const struct verb *v)
{
    size_t width = 0;
    char left[128];

    verb_left_column(v, left);
    printf("usage: mirrorctl %s%s%s\n\n%s\n", left, v->options[0] != '\0' ? " " : "", v->options,
           v->help);
    printf("%s", v->options[0] != '\0' ? "\n" : "");
    for (size_t i = 0; i < ARRAY_LEN(verb_options); i++) {
        width = max_u64(width, option_of(v, verb_options[i].name).n);
    }
    for (size_t i = 0; i < ARRAY_LEN(verb_options); i++) {
        const struct verb_option *o = &verb_options[i];
        const char *help = help_of_option(v, o);
        struct slice option = option_of(v, o->name), rest = slice_str(help);
        while (option.n > 0 && rest.n > 0) {
            struct slice line = slice_cut(&rest, '\n');
            bool first = line.p == help;
            printf("  %-*.*s  " SLICE_FMT "\n", (int)width, first ? (int)option.n : 0, option.p,
                   SLICE_ARG(line));
        }
    }
}

static int unknown_ctl_word(const char *noun, const char *word, struct err *e)
{
    char said[128], title[ARRAY_LEN(verbs)][64], words[256] = "";
    const char *titles[ARRAY_LEN(verbs)], *near;
    bool is_noun = false;
    size_t n = 0;

    snprintf(said, sizeof(said), "%s%s%s", noun, word[0] != '\0' ? " " : "", word);
    for (size_t i = 0; i < ARRAY_LEN(verbs); i++) {
        title_of(&verbs[i], title[i]);
        titles[i] = title[i];
        if (strcmp(verbs[i].noun, noun) == 0 && n < sizeof(words)) {
            n += (size_t)snprintf(words + n, sizeof(words) - n, "%s%s", is_noun ? ", " : "",
                                  verbs[i].word);
            is_noun = true;
        }
    }
    near = nearest_word(titles, ARRAY_LEN(verbs), slice_str(said));
    if (is_noun && word[0] == '\0') {
        return err_set(e, E_USAGE, "%s needs a verb: %s; see `mirrorctl %s --help`", noun, words,
                       noun);
    }
    if (is_noun && near == NULL) {
        return err_set(e, E_USAGE,
                       "unknown command \"%s\"; `mirrorctl %s --help` lists the "
                       "verbs",
                       said, noun);
    }
    if (near == NULL) {
        return err_set(e, E_USAGE, "unknown command \"%s\"; see `mirrorctl --help`", said);
    }
    return err_set(e, E_USAGE, "unknown command \"%s\"; did you mean \"%s\"?", said, near);
}

/* --- the command line --- */

static int find_verb(struct ctl *c, char **arg, int count, struct err *e)
{
    const char *word = count > 1 ? arg[1] : "";

    for (size_t i = 0; i < ARRAY_LEN(verbs); i++) {
        const struct verb *v = &verbs[i];
        if (strcmp(v->noun, arg[0]) == 0 && (v->word[0] == '\0' || strcmp(v->word, word) == 0)) {
            int skip = v->word[0] == '\0' ? 1 : 2;
            c->verb = v;
            c->arg = (const char *const *)(void *)(arg + skip);
            c->args = (size_t)(count - skip);
            return 0;
        }
    }
    return unknown_ctl_word(arg[0], word, e);
}

static int check_args(const struct ctl *c, struct err *e)
{
    const struct verb *v = c->verb;
    char title[64];

    if (c->args < v->least || c->args > v->most) {
        title_of(v, title);
        return err_set(e, E_USAGE, "%s takes %s, but %zu %s given; see `mirrorctl %s --help`",
                       title, v->args[0] != '\0' ? v->args : "no arguments", c->args,
                       c->args == 1 ? "was" : "were", title);
    }
    return 0;
}

enum {
    OPT_SOCKET = 256,
    OPT_JSON,
    OPT_PLAIN,
    OPT_NO_COLOR,
    OPT_VERSION,
    OPT_OWN, /* and behind it one for each of verb_options[] */
};

static int take_value(struct words *values, const struct verb_option *o, const char *value,
                      struct err *e)
{
    size_t most = o->kind == WORDS ? ARRAY_LEN(values->at) : o->kind == SCOPES ? SCOPES_MAX : 1;

    if (most == 1) {
        values->count = 0;
    } else if (values->count == most && o->kind == SCOPES) {
        return err_set(e, E_USAGE, "too many scopes: a token has at most %zu; use patterns", most);
    } else if (values->count == most) {
        return err_set(e, E_USAGE, "%s is given more than %zu times; write fewer patterns", o->name,
                       most);
    }
    values->at[values->count++] = value;
    return 0;
}

/* said: as getopt stopped at it; a letter of several is in optopt. */
static int unknown_ctl_option(const struct option *options, const char *said, struct err *e)
{
    const char *name[16 + ARRAY_LEN(verb_options)], *near;
    struct slice word = slice_str(said);
    size_t n = 0;

    if (optopt > 0 && optopt < OPT_SOCKET) {
        return err_set(e, E_USAGE, "unknown option -%c; see `mirrorctl --help`", optopt);
    }
    for (size_t i = 0; options[i].name != NULL; i++) {
        CHECK(n < ARRAY_LEN(name));
        name[n++] = options[i].name;
    }
    word = slice_from(word, slice_starts(word, SLICE("--")) ? 2 : 0);
    near = nearest_word(name, n, slice_cut(&word, '='));
    return near != NULL ? err_set(e, E_USAGE, "unknown option %s; did you mean --%s?", said, near)
                        : err_set(e, E_USAGE, "unknown option %s; see `mirrorctl --help`", said);
}

/* given: by verb_options[]. Reads on behind what is wrong: --json may stand there. */
static int read_options(struct ctl *c, int argc, char **argv, bool *help, struct words *given,
                        struct err *e)
{
    struct err why;
    struct option options[10 + ARRAY_LEN(verb_options)] = {
        {"socket", required_argument, NULL, OPT_SOCKET}, {"config", required_argument, NULL, 'c'},
        {"json", no_argument, NULL, OPT_JSON},           {"quiet", no_argument, NULL, 'q'},
        {"no-color", no_argument, NULL, OPT_NO_COLOR},   {"help", no_argument, NULL, 'h'},
        {"version", no_argument, NULL, OPT_VERSION},     {"plain", no_argument, NULL, OPT_PLAIN},
    };
    int o, rc = 0, now;

    for (size_t i = 0; i < ARRAY_LEN(verb_options); i++) {
        options[8 + i] = (struct option){
            verb_options[i].name + 2,
            verb_options[i].kind == FLAG ? no_argument : required_argument, NULL, OPT_OWN + (int)i};
    }
    opterr = 0;
    while ((o = getopt_long(argc, argv, ":c:qh", options, NULL)) != -1) {
        now = 0;
        switch (o) {
        case OPT_SOCKET:
            c->socket = optarg;
            break;
        case 'c':
            c->config = optarg;
            break;
        case OPT_JSON:
            c->json = true;
            break;
        case OPT_PLAIN:
            c->plain = true;
            c->tty = false;
            break;
        case 'q':
            c->quiet = true;
            break;
        case OPT_NO_COLOR:
            c->color = false;
            break;
        case 'h':
            *help = true;
            break;
        case OPT_VERSION:
            printf("mirrorctl " MIRROR_VERSION "\n");
            exit(0);
        case ':':
            now = err_set(&why, E_USAGE, "%s needs a value; write it after the option",
                          argv[optind - 1]);
            break;
        case '?':
            now = unknown_ctl_option(options, argv[optind - 1], &why);
            break;
        default:
            now = take_value(&given[o - OPT_OWN], &verb_options[o - OPT_OWN], optarg, &why);
            break;
        }
        if (rc == 0 && now != 0) {
            rc = now;
            *e = why;
        }
    }
    return rc;
}

static int check_ctl_options(const struct ctl *c, struct err *e)
{
    char title[64];

    title_of(c->verb, title);
    for (size_t i = 0; i < ARRAY_LEN(verb_options); i++) {
        if (c->given[i].count > 0 && !verb_takes_option(c->verb, verb_options[i].name)) {
            return err_set(e, E_USAGE, "%s is not an option of %s, which has %s",
                           verb_options[i].name, title,
                           c->verb->options[0] != '\0' ? c->verb->options : "no options");
        }
    }
    return 0;
}

/* Requests are JSON, which has no other text. */
static int check_texts(int argc, char **argv, struct err *e)
{
    for (int i = 1; i < argc; i++) {
        json_t *text = json_string(argv[i]);
        if (text == NULL) {
            return err_set(e, E_USAGE, "argument %d is not UTF-8, which the daemon would reject",
                           i);
        }
        json_decref(text);
    }
    return 0;
}

int main(int argc, char **argv)
{
    const char *no_color = getenv("NO_COLOR");
    struct words given[ARRAY_LEN(verb_options)] = {0};
    struct ctl c = {
        .given = given,
        .socket = getenv("MIRRORCTL_SOCKET"),
        .tty = isatty(STDOUT_FILENO),
        .color = isatty(STDERR_FILENO) && (no_color == NULL || no_color[0] == '\0'),
    };
    bool help = false;
    struct err e = {0};
    int rc = read_options(&c, argc, argv, &help, given, &e);

    c.config_given = c.config != NULL;
    if (c.socket == NULL && c.config == NULL) {
        c.socket = DEFAULT_SOCKET;
    }
    c.config = c.config != NULL ? c.config : DEFAULT_CONFIG;
    if (rc == 0 && argc > optind && strcmp(argv[optind], "help") == 0) {
        help = true;
        optind++;
    }
    if (rc == 0 && argc == optind && c.json && !help) {
        rc = err_set(&e, E_USAGE, "the command is missing; see `mirrorctl --help`");
    }
    if (rc == 0 && argc == optind) {
        help_all(help ? stdout : stderr);
        return help ? 0 : 64;
    }
    rc = rc != 0 ? rc : check_texts(argc, argv, &e);
    if (rc == 0) {
        rc = find_verb(&c, argv + optind, argc - optind, &e);
        if (rc != 0 && help && argc - optind == 1 && help_verbs(stdout, argv[optind])) {
            return 0;
        }
    }
    if (rc == 0 && help) {
        help_verb(c.verb);
        return 0;
    }
    rc = rc != 0 ? rc : check_ctl_options(&c, &e);
    rc = rc != 0 ? rc : check_args(&c, &e);
    if (rc == 0) {
        rc = c.verb->run(&c, &e);
        free(c.found);
    }
    if (rc == 0 && fflush(stdout) != 0) {
        rc = err_sys(&e, "standard output");
    }
    return rc < 0 ? print_error(&c, &e) : rc;
}
