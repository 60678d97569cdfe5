/* main.c - mirrorctl: finds the verb, reads its options, runs it, turns what went wrong into an exit code. */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "server/ctl/ctl.h"

const struct verb verbs[] = {
#define VERB(noun, word, args, least, most, options, function, help)                               \
    {noun, word, args, least, most, options, help, function},
#include "server/ctl/verbs.def"
#undef VERB
};
const size_t verbs_count = ARRAY_LEN(verbs);

enum {
    OPT_SOCKET = 256,
    OPT_JSON,
    OPT_NAME,
    OPT_SCOPE,
    OPT_EXPIRES,
    OPT_LIMIT,
    OPT_ALL,
    OPT_DRY_RUN,
    OPT_DEEP,
    OPT_REPAIR,
    OPT_FORCE,
    OPT_NO_COLOR,
    OPT_VERSION
};
static const struct option options[] = {
    {"socket", required_argument, NULL, OPT_SOCKET},
    {"config", required_argument, NULL, 'c'},
    {"json", no_argument, NULL, OPT_JSON},
    {"quiet", no_argument, NULL, 'q'},
    {"no-color", no_argument, NULL, OPT_NO_COLOR},
    {"help", no_argument, NULL, 'h'},
    {"version", no_argument, NULL, OPT_VERSION},
    {"name", required_argument, NULL, OPT_NAME},
    {"scope", required_argument, NULL, OPT_SCOPE},
    {"expires", required_argument, NULL, OPT_EXPIRES},
    {"limit", required_argument, NULL, OPT_LIMIT},
    {"all", no_argument, NULL, OPT_ALL},
    {"dry-run", no_argument, NULL, OPT_DRY_RUN},
    {"deep", no_argument, NULL, OPT_DEEP},
    {"repair", no_argument, NULL, OPT_REPAIR},
    {"force", no_argument, NULL, OPT_FORCE},
    {NULL, 0, NULL, 0},
};

static const struct {
    const char *name, *help;
} about[] = {
    {"--name", "whose token it is; a limit block of that name holds for it"},
    {"--scope", "a right (read, publish, sync, admin), ':' and a pattern over REPO/PATH in which\n"
                "             '*' also crosses '/'; may be given several times"},
    {"--expires", "a time from now, such as 90d; without it never"},
    {"--limit", "this many rows at most; without it 1000"},
    {"--all", "a whole repo is meant"},
    {"--dry-run", "change nothing, count what would go"},
    {"--deep", "read every file and compare its digest"},
    {"--repair", "drop rows that point nowhere, set damaged files aside"},
    {"--force", "replace a file that is there"},
};

static void title_of(const struct verb *v, char out[64])
{
    snprintf(out, 64, "%s%s%s", v->noun, v->word[0] != '\0' ? " " : "", v->word);
}

static void help_all(void)
{
    char title[64];

    printf("usage: mirrorctl [--socket PATH] [--json] [--quiet] NOUN [VERB] ...\n\n");
    for (size_t i = 0; i < verbs_count; i++) {
        title_of(&verbs[i], title);
        printf("  %-18s %-20s %s\n", title, verbs[i].args, verbs[i].help);
    }
    printf("\n"
           "  --socket PATH   the daemon's control socket (default $MIRRORCTL_SOCKET, else\n"
           "                  /var/lib/mirrord/control.sock)\n"
           "  -c FILE         the configuration, for config test, verify and init (default\n"
           "                  /etc/mirrord/mirrord.conf)\n"
           "  --json          JSON on stdout, with stable names\n"
           "  -q, --quiet     nothing but errors\n"
           "  --no-color      no colours (also $NO_COLOR)\n\n"
           "`mirrorctl NOUN VERB --help` says more. Exit codes are those of sysexits.h.\n");
}

static bool takes(const struct verb *v, const char *option)
{
    const char *at = strstr(v->options, option);

    return at != NULL && strchr(" ]", at[strlen(option)]) != NULL; /* its end finds the NUL, too */
}

static void help_verb(const struct verb *v)
{
    char title[64];

    title_of(v, title);
    printf("usage: mirrorctl %s%s%s%s%s\n\n%s\n", title, v->args[0] != '\0' ? " " : "", v->args,
           v->options[0] != '\0' ? " " : "", v->options, v->help);
    printf("%s", v->options[0] != '\0' ? "\n" : "");
    for (size_t i = 0; i < ARRAY_LEN(about); i++) {
        if (takes(v, about[i].name)) {
            printf("  %-10s %s\n", about[i].name, about[i].help);
        }
    }
}

/* The verbs of a noun, one a line: false when there is no such noun. */
static bool help_noun(const char *noun)
{
    char title[64];
    bool any = false;

    for (size_t i = 0; i < verbs_count; i++) {
        if (strcmp(verbs[i].noun, noun) == 0) {
            any = true;
            title_of(&verbs[i], title);
            printf("  %-18s %-20s %s\n", title, verbs[i].args, verbs[i].help);
        }
    }
    return any;
}

/* --- did you mean --- */

static unsigned distance(const char *a, const char *b)
{
    unsigned row[33];
    size_t n = strlen(b), m = strlen(a);

    if (n > 32 || m > 32) {
        return 99;
    }
    for (unsigned j = 0; j <= n; j++) {
        row[j] = j;
    }
    for (size_t i = 1; i <= m; i++) {
        unsigned corner = row[0];
        row[0] = (unsigned)i;
        for (size_t j = 1; j <= n; j++) {
            unsigned above = row[j], d = corner + (a[i - 1] != b[j - 1]);
            d = d < above + 1 ? d : above + 1;
            d = d < row[j - 1] + 1 ? d : row[j - 1] + 1;
            row[j] = d;
            corner = above;
        }
    }
    return row[n];
}

static int unknown(const char *noun, const char *word, struct err *e)
{
    const struct verb *best = NULL;
    unsigned best_d = 4;
    bool is_noun = false;
    char said[128], near[64];

    snprintf(said, sizeof(said), "%s%s%s", noun, word[0] != '\0' ? " " : "", word);
    for (size_t i = 0; i < verbs_count; i++) {
        unsigned d;
        title_of(&verbs[i], near);
        d = distance(said, near);
        if (d < best_d) {
            best_d = d;
            best = &verbs[i];
        }
        is_noun = is_noun || strcmp(verbs[i].noun, noun) == 0;
    }
    if (is_noun && (word[0] == '\0' || best == NULL)) {
        return err_set(e, E_USAGE, "\"%s\" is no command; `mirrorctl %s --help` lists its verbs",
                       said, noun);
    }
    if (best == NULL) {
        return err_set(e, E_USAGE, "\"%s\" is no command; see `mirrorctl --help`", said);
    }
    title_of(best, near);
    return err_set(e, E_USAGE, "\"%s\" is no command; did you mean \"%s\"?", said, near);
}

/* --- the command line --- */

static int find_verb(struct ctl *c, char **arg, int count, struct err *e)
{
    const char *word = count > 1 ? arg[1] : "";

    for (size_t i = 0; i < verbs_count; i++) {
        const struct verb *v = &verbs[i];
        if (strcmp(v->noun, arg[0]) == 0 && (v->word[0] == '\0' || strcmp(v->word, word) == 0)) {
            int skip = v->word[0] == '\0' ? 1 : 2;
            c->verb = v;
            c->arg = (const char *const *)(void *)(arg + skip);
            c->args = (size_t)(count - skip);
            return 0;
        }
    }
    return unknown(arg[0], word, e);
}

static int check_args(const struct ctl *c, struct err *e)
{
    const struct verb *v = c->verb;
    char title[64];

    if (c->args < v->least || c->args > v->most) {
        title_of(v, title);
        return err_set(e, E_USAGE, "%s takes %s, %zu %s given; see `mirrorctl %s --help`", title,
                       v->args[0] != '\0' ? v->args : "no arguments", c->args,
                       c->args == 1 ? "was" : "were", title);
    }
    return 0;
}

static int read_options(struct ctl *c, int argc, char **argv, bool *help, bool used[16],
                        struct err *e)
{
    int o, index = -1;

    opterr = 0;
    while ((o = getopt_long(argc, argv, ":c:qh", options, &index)) != -1) {
        if (o >= OPT_NAME && o <= OPT_FORCE) {
            used[o - OPT_NAME] = true;
        }
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
        case OPT_NAME:
            c->name = optarg;
            break;
        case OPT_SCOPE:
            if (c->scopes == ARRAY_LEN(c->scope)) {
                return err_set(e, E_USAGE, "too many scopes, a token has at most %zu, use patterns",
                               ARRAY_LEN(c->scope));
            }
            c->scope[c->scopes++] = optarg;
            break;
        case OPT_EXPIRES:
            c->expires = optarg;
            break;
        case OPT_LIMIT:
            c->limit = optarg;
            break;
        case OPT_ALL:
            c->all = true;
            break;
        case OPT_DRY_RUN:
            c->dry_run = true;
            break;
        case OPT_DEEP:
            c->deep = true;
            break;
        case OPT_REPAIR:
            c->repair = true;
            break;
        case OPT_FORCE:
            c->force = true;
            break;
        case ':':
            return err_set(e, E_USAGE, "%s needs a value, write it behind", argv[optind - 1]);
        default:
            return err_set(e, E_USAGE, "%s is no option; see `mirrorctl --help`", argv[optind - 1]);
        }
    }
    return 0;
}

static int check_options(const struct ctl *c, const bool used[16], struct err *e)
{
    char name[32], title[64];

    title_of(c->verb, title);
    for (size_t i = 0; options[i].name != NULL; i++) {
        int o = options[i].val;
        if (o < OPT_NAME || o > OPT_FORCE || !used[o - OPT_NAME]) {
            continue;
        }
        snprintf(name, sizeof(name), "--%s", options[i].name);
        if (!takes(c->verb, name)) {
            return err_set(e, E_USAGE, "%s does not belong to %s, which has %s", name, title,
                           c->verb->options[0] != '\0' ? c->verb->options : "no options");
        }
    }
    return 0;
}

static int fail(const struct ctl *c, const struct err *e)
{
    fprintf(stderr, c->color ? "\033[31mmirrorctl:\033[0m %s\n" : "mirrorctl: %s\n", e->text);
    return err_sysexit(e->code);
}

int main(int argc, char **argv)
{
    const char *socket = getenv("MIRRORCTL_SOCKET"), *no_color = getenv("NO_COLOR");
    struct ctl c = {
        .socket = socket != NULL ? socket : "/var/lib/mirrord/control.sock",
        .config = "/etc/mirrord/mirrord.conf",
        .tty = isatty(STDOUT_FILENO),
        .color = isatty(STDERR_FILENO) && (no_color == NULL || no_color[0] == '\0'),
    };
    bool help = false, used[16] = {false};
    struct err e = {0};
    int rc = read_options(&c, argc, argv, &help, used, &e);

    if (rc == 0 && (argc == optind || (help && argc - optind < 1))) {
        help_all();
        return help ? 0 : 64;
    }
    if (rc == 0) {
        rc = find_verb(&c, argv + optind, argc - optind, &e);
        if (rc != 0 && help && argc - optind == 1 && help_noun(argv[optind])) {
            return 0;
        }
    }
    if (rc == 0 && help) {
        help_verb(c.verb);
        return 0;
    }
    if (rc == 0) {
        rc = check_options(&c, used, &e);
    }
    if (rc == 0) {
        rc = check_args(&c, &e);
    }
    if (rc == 0) {
        rc = c.verb->run(&c, &e);
    }
    if (rc == 0 && fflush(stdout) != 0) {
        rc = err_sys(&e, "standard output");
    }
    return rc < 0 ? fail(&c, &e) : rc;
}
