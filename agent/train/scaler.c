#include "agent/train/scaler.h"

#include <math.h>

void scaler_init(struct scaler *s, bool on, double scale)
{
    *s = (struct scaler){.on = on, .scale = on ? scale : 1};
}

void scaler_step(struct scaler *s, bool finite)
{
    if (!s->on) {
        return;
    }
    if (!finite) {
        s->scale *= 0.5;
        s->good = 0;
    } else if (++s->good == SCALER_GROWTH_STEPS) {
        s->scale = fmin(2 * s->scale, 0x1p126);
        s->good = 0;
    }
}
