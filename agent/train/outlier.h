/* outlier.h - measures how far a number is from those before it: (x - mean) / deviation over the
 * last 128.
 *
 * Every number joins the window, including outliers: a lasting change becomes the usual.
 */
#ifndef AGENT_TRAIN_OUTLIER_H
#define AGENT_TRAIN_OUTLIER_H

#include <stdint.h>

enum { OUTLIER_WINDOW = 128 };

struct outlier {
    double window[OUTLIER_WINDOW]; /* a ring */
    int64_t count;                 /* of all numbers so far */
};

/* 0 until the window is full. */
double outlier_add(struct outlier *o, double x);

#endif
