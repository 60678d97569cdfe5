/* verbs.h - what the program can do, one file a verb; and how they all begin. */
#ifndef AGENT_TRAIN_VERBS_H
#define AGENT_TRAIN_VERBS_H

#include "agent/train/data.h"
#include "agent/train/model.h"
#include "agent/train/options.h"
#include "agent/train/schedule.h"

/* Each fills in what the options left open, and returns 0 or an error for main() to print; E_AGAIN
 * asks to be started again (exit 75). */
int verb_train(struct options *o, struct err *e);
int verb_eval(struct options *o, struct err *e);
int verb_sample(struct options *o, struct err *e);
int verb_tokenize(struct options *o, struct err *e);
int verb_bench(struct options *o, struct err *e);
int bench_comm(const struct options *o, struct err *e); /* bench --comm */
int verb_info(struct options *o, struct err *e);

/* The operations that --device asks for; a GPU is the machine's local_rank-th. */
MUST_USE int setup_device(const struct options *o, int local_rank, const struct kops **out,
                          struct err *e);
/* --dtype auto becomes `before`, the type of the checkpoint that a run goes on from, "" without
 * one; else bf16 where the device has it, else f32. `tell`: logs a choice that is not f32. */
void setup_dtype(struct options *o, const struct kops *k, const char *before, bool tell);
/* --model may be a run's --out: then *newest, to be freed, is its newest checkpoint that is whole,
 * and o->model that. */
MUST_USE int setup_find_model(struct options *o, char **newest, struct err *e);
/* The shape that --model or --config names. */
MUST_USE int setup_config(const struct options *o, struct model_config *out, struct err *e);
/* --seq, or what the model's context suggests. */
int64_t setup_seq(const struct options *o, const struct model_config *c);
/* What the verb wants of its model. */
struct setup {
    int world;
    struct comm *comm;     /* borrowed, gives the world; NULL: for a plan, or without others */
    struct comm *replicas; /* model.h */
    int groups;            /* for a plan: those that there will be; 0: one */
    struct comm *all;      /* whose failure ends waits for the model's stream; NULL: nobody's */
    struct comm *tp;       /* those that cut the model with this one; NULL: for a plan, or nobody */
    int64_t passes;        /* of a training step; 0: 1 */
    int64_t compress_start; /* steps before --compress begins */
    int64_t batch;
    int64_t seq;
    bool training;
    bool caching; /* for model_extend() */
    bool blank;   /* its weights come from elsewhere, a checkpoint */
    bool tell;    /* says on stderr what memory it takes, before it takes any */
};

/* The rank that --compress asks for, 0 for none; refuses what does not go with it. */
MUST_USE int setup_compress(const struct options *o, int64_t *rank, struct err *e);
/* Steps that are not compressed, of a run by that schedule. */
int64_t setup_compress_start(const struct options *o, const struct schedule *s);
/* A model that has taken no memory yet: as far as model_open() goes. */
MUST_USE int setup_open(const struct options *o, const struct model_config *c, const struct kops *k,
                        const struct setup *s, struct model **out, struct err *e);
/* A model with the weights of --model, or fresh ones from --seed, and room for such passes.
 * E_NOSPACE names the largest batch that fits. */
MUST_USE int setup_model(const struct options *o, const struct model_config *c,
                         const struct kops *k, const struct setup *s, struct model **out,
                         struct err *e);
/* Refuses data that were made with another tokenizer than that of the folder or file, as far as
 * both are known. */
MUST_USE int setup_same_tokenizer(const char *path, const struct data *d, struct err *e);
/* Refuses an option's value below its least. */
MUST_USE int setup_at_least(const char *name, int64_t value, int64_t least, struct err *e);
/* A stage of ZeRO that there is not. */
MUST_USE int setup_zero(const struct options *o, struct err *e);
/* One outside of [low, high). */
MUST_USE int setup_within(const char *name, double value, double low, double high, struct err *e);

#endif
