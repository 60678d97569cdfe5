#include "agent/train/angles.h"

#include <math.h>

double angle_of_pair(const struct model_config *c, int64_t i)
{
    const struct rope_scaling *s = &c->rope_scaling;
    double angle = pow(c->rope_theta, -2.0 * (double)i / (double)c->head_dim);
    double turns = (double)s->context * angle / 6.283185307179586477;

    if (s->factor == 0 || turns > s->high) {
        return angle;
    }
    if (turns < s->low) {
        return angle / s->factor;
    }
    double share = (turns - s->low) / (s->high - s->low);
    return (1 - share) * angle / s->factor + share * angle;
}

void angles_fill(const struct model_config *c, int64_t seq, double *cosine, double *sine)
{
    int64_t half = c->head_dim / 2;

    for (int64_t i = 0; i < half; i++) {
        double angle = angle_of_pair(c, i);

        for (int64_t t = 0; t < seq; t++) {
            cosine[t * half + i] = cos((double)t * angle);
            sine[t * half + i] = sin((double)t * angle);
        }
    }
}
