/* trainer - trains GPT-2 and Llama models: one program for CPU and GPU, files and ranks in,
 * checkpoints out. */
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>
#include <unistd.h>

#include "agent/train/verbs.h"
#include "common/base/log.h"
#include "common/codec/nearest.h"
#include "kernels/cpu/blas.h"

static const struct verb_row {
    const char *name;
    enum verb verb;
    int (*run)(struct options *o, struct err *e);
    const char *arguments;
    const char *summary;
} verbs[] = {
    {"train", TRAIN, verb_train, "",
     "train on token shards; write checkpoints, metrics.jsonl and TensorBoard events"},
    {"eval", EVAL, verb_eval, "", "print the mean loss over consecutive windows of --seq tokens"},
    {"sample", SAMPLE, verb_sample, "", "generate a continuation of a text"},
    {"tokenize", TOKENIZE, verb_tokenize, " FILE|FOLDER...",
     "turn text files (.txt, .jsonl, also as .gz or .zst) into token shards"},
    {"bench", BENCH, verb_bench, "", "time the operations of a model and whole training steps"},
    {"info", INFO, verb_info, " [CHECKPOINT|FOLDER|config.json|SHARD]",
     "describe a model (size, tensors, memory), verify a checkpoint or a shard"},
};

static int usage(FILE *to)
{
    fputs("usage: trainer VERB [OPTION...]; trainer VERB --help lists the options\n\n", to);
    for (size_t i = 0; i < ARRAY_LEN(verbs); i++) {
        fprintf(to, "  %-10s %s\n", verbs[i].name, verbs[i].summary);
    }
    return to == stdout ? 0 : EX_USAGE;
}

static int help(const struct verb_row *v)
{
    printf("usage: trainer %s [OPTION...]%s\n\n%s\n\n", v->name, v->arguments, v->summary);
    options_help(v->verb);
    return 0;
}

static int run_trainer_verb(const struct verb_row *v, int argc, char **argv)
{
    struct err e = {0};
    struct options o;
    char *newest = NULL;
    int rc = options_parse(v->verb, argc, argv, &o, &e);

    if (rc == 0 && o.help) {
        return help(v);
    }
    rc = rc != 0 ? rc : setup_find_model(&o, &newest, &e);
    rc = rc != 0 ? rc : v->run(&o, &e);
    free(newest);
    if (rc == 0 && (fflush(stdout) != 0 || ferror(stdout))) {
        rc = err_sys(&e, "standard output");
    }
    if (rc != 0) {
        fprintf(stderr, "trainer %s: %s\n", v->name, e.text[0] != '\0' ? e.text : err_plain(rc));
    }
    return err_sysexit(rc);
}

/* Sets a variable that the user has not set; whether it did. */
static bool preset(const char *name, const char *value)
{
    return getenv(name) == NULL && value != NULL && setenv(name, value, 0) == 0;
}

/* libgomp and OpenBLAS read their environment before main() only, hence the second start.
 *
 * OpenMP's threads spin while they wait, and starve whatever shares the cores: beside a parallel
 * build a step took five times as long as with sleeping ones. matmul.c splits its work among
 * OpenMP's threads, so those of OpenBLAS would only be started. */
static void preset_environment(char **argv)
{
    char self[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    bool changed = preset("OMP_WAIT_POLICY", "passive");

    changed |= preset("OPENBLAS_NUM_THREADS", "1");
    changed |= preset("OPENBLAS_CORETYPE", blas_better_core());
    if (!changed) {
        return;
    }
    if (n > 0) { /* ps and top call a process as its program's path ends */
        self[n] = '\0';
        execv(self, argv);
    }
    execv("/proc/self/exe", argv); /* without /proc the run is slower, not wrong */
}

static int no_verb(const char *said)
{
    const char *name[ARRAY_LEN(verbs)], *near;

    for (size_t i = 0; i < ARRAY_LEN(verbs); i++) {
        name[i] = verbs[i].name;
    }
    near = nearest_word(name, ARRAY_LEN(verbs), slice_str(said));
    fprintf(stderr, "trainer: %.60s is not a verb; %s%s%s\n", said,
            near != NULL ? "did you mean " : "trainer --help lists them", near != NULL ? near : "",
            near != NULL ? "?" : "");
    return EX_USAGE;
}

/* "help", "help VERB": as with --help. */
static const char *verb_wanted(int argc, char **argv)
{
    return strcmp(argv[1], "help") == 0 && argc > 2 ? argv[2] : argv[1];
}

int main(int argc, char **argv)
{
    char ask[] = "--help", *asked[] = {ask, NULL};
    const char *verb;

    preset_environment(argv);
    if (argc < 2) {
        return usage(stderr);
    }
    verb = verb_wanted(argc, argv);
    if (strcmp(verb, "--help") == 0 || strcmp(verb, "-h") == 0 || strcmp(verb, "help") == 0) {
        return usage(stdout);
    }
    if (strcmp(argv[1], "--version") == 0) {
        printf("trainer %s\n", MIRROR_VERSION);
        return 0;
    }
    for (size_t i = 0; i < ARRAY_LEN(verbs); i++) {
        if (strcmp(verb, verbs[i].name) == 0) {
            return verb == argv[1] ? run_trainer_verb(&verbs[i], argc - 2, argv + 2)
                                   : run_trainer_verb(&verbs[i], 1, asked);
        }
    }
    return no_verb(verb);
}
