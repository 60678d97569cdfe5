#include "agent/train/outlier.h"

#include <math.h>

double outlier_add(struct outlier *o, double x)
{
    double mean = 0, square = 0, z = 0;

    if (o->count >= OUTLIER_WINDOW) {
        for (int i = 0; i < OUTLIER_WINDOW; i++) {
            mean += o->window[i] / OUTLIER_WINDOW;
        }
        for (int i = 0; i < OUTLIER_WINDOW; i++) {
            square += (o->window[i] - mean) * (o->window[i] - mean) / OUTLIER_WINDOW;
        }
        z = square > 0 ? (x - mean) / sqrt(square) : 0;
    }
    o->window[o->count++ % OUTLIER_WINDOW] = x;
    return z;
}
