/* metrics.h - a run's output: metrics.jsonl, TensorBoard events, and a progress line on stderr.
 *
 * Each step is one line of metrics.jsonl. After a resume the lines after the checkpoint's step
 * are removed, because those steps are repeated. On a terminal the progress line is redrawn in
 * place; elsewhere it comes every `log_every` steps.
 *
 * owns     struct metrics holds both files
 * errors   writing never stops a run: lines and events that cannot be written are omitted as a
 *          whole, and the first failure is logged
 */
#ifndef AGENT_TRAIN_METRICS_H
#define AGENT_TRAIN_METRICS_H

#include "common/base/err.h"

struct metrics;

struct step_report {
    int64_t step;
    int64_t steps; /* the last one of this process */
    double loss;   /* mean nats a token */
    double lr;
    double grad_norm;
    double loss_scale;    /* 0: none */
    double sent_bytes;    /* gradient bytes sent by this rank; 0: a single rank */
    uint64_t tokens;      /* so far */
    uint64_t step_tokens; /* in this step */
};

/* Constant over a run. */
struct metrics_about {
    int64_t resumed_step;
    int64_t log_every;
    double token_flops;  /* flops.h */
    double peak_flops;   /* per second, of all ranks; 0: unknown */
    size_t memory_bytes; /* of the device */
};

MUST_USE int metrics_open(const char *dir, const struct metrics_about *about, struct metrics **out,
                          struct err *e);
void metrics_step(struct metrics *m, const struct step_report *r, uint64_t now_ns);
void metrics_val(struct metrics *m, int64_t step, double loss);
/* A sentence for people, next to the progress line. */
void metrics_say(struct metrics *m, const char *fmt, ...) PRINTF_LIKE(2, 3);
void metrics_close(struct metrics **mp); /* NULL is fine */

#endif
