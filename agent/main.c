/* trainagent - the agent of a training node: pull, check, launch, watch, publish. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sysexits.h>
#include <unistd.h>

#include "agent/options.h"
#include "common/codec/url.h"
#include "common/codec/nearest.h"

static const struct agent_verb *const verbs[] = {
    &verb_pull,   &verb_run, &verb_launch, &verb_rendezvous, &verb_preflight, &verb_publish,
    &verb_status, &verb_gc,  &verb_prolog, &verb_taskprolog, &verb_epilog,
};

static void usage(FILE *to)
{
    int width = 0;

    for (size_t i = 0; i < ARRAY_LEN(verbs); i++) {
        int n = (int)(strlen(verbs[i]->name) + strlen(verbs[i]->args)) + 1;
        width = n > width ? n : width;
    }
    fputs("usage: trainagent [options] VERB ...\n\n", to);
    for (size_t i = 0; i < ARRAY_LEN(verbs); i++) {
        fprintf(to, "  %s %-*s  %s\n", verbs[i]->name, width - (int)strlen(verbs[i]->name) - 1,
                verbs[i]->args, verbs[i]->help);
    }
    options_help(NULL, "Options of every verb:", to);
    fputs("\n`trainagent VERB --help` lists the options of one verb with an example; `man "
          "trainagent` explains all of them.\n",
          to);
}

static void usage_of(const struct agent_verb *verb)
{
    printf("usage: trainagent %s [options]%s%s\n\n", verb->name, verb->args[0] != '\0' ? " " : "",
           verb->args);
    printf("%s - %s\n", verb->name, verb->help);
    if (verb->more != NULL) {
        printf("\n%s\n", verb->more);
    }
    options_help(verb->name, "Options:", stdout);
    printf("\nExample:\n\n  %s\n", verb->example);
    puts("\n`trainagent --help` lists the options of every verb; `man trainagent` explains all of "
         "them.");
}

static int find_verb(const char *said, const struct agent_verb **out, struct err *e)
{
    const char *name[ARRAY_LEN(verbs)];
    const char *near;

    for (size_t i = 0; i < ARRAY_LEN(verbs); i++) {
        name[i] = verbs[i]->name;
        if (strcmp(said, verbs[i]->name) == 0) {
            *out = verbs[i];
            return 0;
        }
    }
    near = nearest_word(name, ARRAY_LEN(verbs), slice_str(said));
    return near != NULL ? err_set(e, E_USAGE, "%s: no such verb; did you mean %s?", said, near)
                        : err_set(e, E_USAGE, "%s: no such verb; try trainagent --help", said);
}

/* "--help", "help", and either of them with a verb. */
static int help(struct verb_line *v, struct err *e)
{
    const struct agent_verb *verb = NULL;
    int skip = v->argc > 0 && strcmp(v->argv[0], "help") == 0;
    int rc = v->argc > skip ? find_verb(v->argv[skip], &verb, e) : 0;

    if (rc == 0 && verb != NULL) {
        usage_of(verb);
    } else if (rc == 0) {
        usage(stdout);
    }
    return rc;
}

/* --- as slurmd starts us ---------------------------------------------------------------------- */

/* slurm.conf has room for a path and none for an argument: a link whose name ends in a verb of
 * Slurm's is that verb. */
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

/* A prolog or epilog that fails drains the node, be it for an option with a slip in it: so the verb
 * is looked for before they are read. What stands behind another verb is that one's. */
static bool must_not_fail(int argc, char **argv)
{
    const struct agent_verb *verb = NULL;

    for (int i = 1; i < argc && verb == NULL; i++) {
        for (size_t j = 0; j < ARRAY_LEN(verbs) && verb == NULL; j++) {
            verb = strcmp(argv[i], verbs[j]->name) == 0 ? verbs[j] : NULL;
        }
    }
    return verb != NULL && (verb == &verb_prolog || verb == &verb_epilog) &&
           getenv("SLURM_JOB_ID") != NULL;
}

static int do_verb(struct verb_line *v, uint64_t said, struct err *e)
{
    const struct agent_verb *verb = NULL;
    int rc = find_verb(v->argv[0], &verb, e);

    rc = rc != 0 ? rc : options_check(verb->name, said, e);
    v->argc--;
    v->argv++;
    return rc != 0 ? rc : verb->run(v, e);
}

static int do_line(struct verb_line *v, int argc, char **argv, struct err *e)
{
    uint64_t said;
    int rc = options_read(v, argc, argv, &said, e);

    if (rc == OPTIONS_VERSION) {
        puts("trainagent " MIRROR_VERSION);
        return 0;
    }
    if (rc == OPTIONS_HELP ||
        (rc == OPTIONS_DONE && v->argc > 0 && strcmp(v->argv[0], "help") == 0)) {
        return help(v, e);
    }
    if (rc == OPTIONS_DONE && v->argc == 0) {
        usage(stderr);
        v->exit_code = EX_USAGE;
        return 0;
    }
    return rc < 0 ? rc : do_verb(v, said, e);
}

int main(int argc, char **argv)
{
    struct agent agent;
    struct verb_line v = {.agent = &agent, .keep_bytes = UINT64_MAX, .keep_age_s = UINT64_MAX};
    struct err why = {0};
    bool never_fails;
    int rc;

    signal(SIGPIPE, SIG_IGN);
    signal(SIGCHLD, SIG_DFL); /* ignored ones stay so over exec, and children then leave no word */
    agent_init(&agent);
    argv = spell_out(&agent.arena, &argc, argv);
    never_fails = must_not_fail(argc, argv);
    rc = do_line(&v, argc, argv, &why);
    agent_fini(&agent);
    /* Where something is, or what was published, must not be lost in silence; a reader who had
     * enough is no trouble. */
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
