#include "agent/slurm/outcome.h"

enum outcome outcome_of(int rc)
{
    switch (rc) {
    case 0:
        return OUTCOME_HERE;
    case E_NOTFOUND:
        return OUTCOME_MISSING;
    case E_DENIED:
    case E_REFUSED:
        return OUTCOME_DENIED;
    case E_NETWORK:
    case E_TIMEOUT:
    case E_AGAIN:
    case E_BUSY:
        return OUTCOME_UNREACHABLE;
    case E_CORRUPT:
    case E_INVALID:
    case E_TOOBIG:
    case E_PROTOCOL:
    case E_CHANGED:
        return OUTCOME_DAMAGED;
    case E_NOSPACE:
        return OUTCOME_FULL;
    case E_CANCELLED:
        return OUTCOME_INTERRUPTED;
    default:
        return OUTCOME_NODE;
    }
}

enum node_act outcome_act(const struct node_slurm *s, enum outcome o)
{
    switch (o) {
    case OUTCOME_HERE:
        return ACT_WARN;
#define OUTCOME(name, key, absent, words)                                                          \
    case OUTCOME_##name:                                                                           \
        return s->on_##key;
#include "agent/outcomes.def"
#undef OUTCOME
    }
    return ACT_FAIL;
}

const char *outcome_name(enum outcome o)
{
    switch (o) {
    case OUTCOME_HERE:
        return "here";
#define OUTCOME(name, key, absent, words)                                                          \
    case OUTCOME_##name:                                                                           \
        return #key;
#include "agent/outcomes.def"
#undef OUTCOME
    }
    return "?";
}

const char *outcome_words(enum outcome o)
{
    switch (o) {
    case OUTCOME_HERE:
        return "the file is on this node";
#define OUTCOME(name, key, absent, words)                                                          \
    case OUTCOME_##name:                                                                           \
        return words;
#include "agent/outcomes.def"
#undef OUTCOME
    }
    return "?";
}
