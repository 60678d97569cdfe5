/* pulling.h - a puller opened, run with a progress bar, and closed: what pull and run share. */
#ifndef AGENT_PULL_PULLING_H
#define AGENT_PULL_PULLING_H

#include "agent/pull/artifact.h"

MUST_USE int pulling(const struct agent *a, struct artifact *one, size_t count, struct err *e);

#endif
