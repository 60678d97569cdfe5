/* verbs.h - the verbs of the program, one file each; and the setup that they share. */
#ifndef AGENT_TRAIN_VERBS_H
#define AGENT_TRAIN_VERBS_H

#include "agent/train/data.h"
#include "agent/train/model.h"
#include "agent/train/options.h"
#include "agent/train/schedule.h"

/* Each fills in what the options left open, and returns 0 or an error for main() to print;
 * E_AGAIN asks for a restart (exit status 75). */
int verb_train(struct options *o, struct err *e);
int verb_eval(struct options *o, struct err *e);
int verb_sample(struct options *o, struct err *e);
int verb_tokenize(struct options *o, struct err *e);
int verb_bench(struct options *o, struct err *e);
int bench_comm(const struct options *o, struct err *e); /* bench --comm */
int verb_info(struct options *o, struct err *e);

/* The operations for --device; a GPU is the machine's local_rank-th. */
MUST_USE int setup_device(const struct options *o, int local_rank, const struct kops **out,
                          struct err *e);
/* --dtype auto becomes `before`, the type of the checkpoint that a run resumes, "" without one;
 * else bf16 if the device has it, else f32. `tell`: logs a choice that is not f32. */
void setup_dtype(struct options *o, const struct kops *k, const char *before, bool tell);
/* --model may be a run's --out: then *newest, to be freed, is its newest complete checkpoint, and
 * o->model points to it. */
MUST_USE int setup_find_model(struct options *o, char **newest, struct err *e);
/* The shape that --model or --config names. */
MUST_USE int setup_config(const struct options *o, struct model_config *out, struct err *e);
/* --seq, or what the model's context suggests. */
int64_t setup_seq(const struct options *o, const struct model_config *c);
/* What the verb requires of its model. */
struct setup {
    int world;
    struct comm *comm;     /* borrowed, gives the world; NULL: for a plan, or a single rank */
    struct comm *replicas; /* model.h */
    int groups;            /* for a plan: the number that there will be; 0: one */
    struct comm *all;      /* its failure ends waits for the model's stream; NULL: none */
    /* those that divide the model with this one; NULL: for a plan, or none */
    struct comm *tp;
    int64_t passes;         /* of a training step; 0: 1 */
    int64_t compress_start; /* steps before --compress begins */
    int64_t batch;
    int64_t seq;
    bool training;
    bool caching; /* for model_extend() */
    bool blank;   /* its weights come from a checkpoint */
    bool tell;    /* writes to stderr how much memory it takes, before it takes any */
};

/* The rank given by --compress, 0 for none; refuses combinations that do not work. */
MUST_USE int setup_compress(const struct options *o, int64_t *rank, struct err *e);
/* The number of uncompressed steps, for a run with that schedule. */
int64_t setup_compress_start(const struct options *o, const struct schedule *s);
/* A model without memory: as far as model_open() goes. */
MUST_USE int setup_open(const struct options *o, const struct model_config *c, const struct kops *k,
                        const struct setup *s, struct model **out, struct err *e);
/* A model with the weights of --model, or fresh ones from --seed, and room for such passes.
 * E_NOSPACE names the largest batch that fits. */
MUST_USE int setup_model(const struct options *o, const struct model_config *c,
                         const struct kops *k, const struct setup *s, struct model **out,
                         struct err *e);
/* Refuses data that were made with another tokenizer than that of the folder or file, if both are
 * known. */
MUST_USE int setup_same_tokenizer(const char *path, const struct data *d, struct err *e);
/* Refuses an option's value below its least. */
MUST_USE int setup_at_least(const char *name, int64_t value, int64_t least, struct err *e);
/* Refuses a stage of ZeRO that does not exist. */
MUST_USE int setup_zero(const struct options *o, struct err *e);
/* Refuses a value outside [low, high). */
MUST_USE int setup_within(const char *name, double value, double low, double high, struct err *e);

#endif
