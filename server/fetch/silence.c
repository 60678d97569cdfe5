#include "server/fetch/silence.h"

#include <inttypes.h>

enum {
    KEPT_MS =
        10000, /* after so long without a sign, a silence is confirmed before it is reported */
    PROBE_MS = 3000, /* between two requests that ask whether it is over */
};

static void doubt(struct silence *s)
{
    s->word = ORIGIN_DOUBTED;
    s->again_ms = 0;
}

static void find_silent(struct silence *s, uint64_t now_ms)
{
    if (s->word != ORIGIN_SILENT) {
        s->word = ORIGIN_SILENT;
        s->probe_ms = now_ms + PROBE_MS;
    }
    s->seen_ms = now_ms;
}

static bool is_past(uint64_t from_ms, uint64_t span_ms, uint64_t now_ms)
{
    return now_ms >= from_ms + span_ms;
}

static void update(struct silence *s, uint64_t patience_ms, uint64_t now_ms)
{
    bool waits = s->waiting > 0;

    switch (s->word) {
    case ORIGIN_HEARD:
        if (waits && is_past(s->since_ms, patience_ms, now_ms)) {
            s->why = (struct err){0};
            doubt(s);
        }
        break;
    case ORIGIN_DOUBTED:
        if (waits && s->again_ms != 0 && is_past(s->again_ms, patience_ms, now_ms)) {
            find_silent(s, now_ms);
        }
        break;
    case ORIGIN_SILENT:
        if (waits) {
            s->seen_ms = now_ms;
        } else if (is_past(s->seen_ms, KEPT_MS, now_ms)) {
            doubt(s);
        }
        break;
    }
}

void silence_asked(struct silence *s, uint64_t patience_ms, uint64_t now_ms)
{
    update(s, patience_ms, now_ms);
    if (s->waiting++ == 0 && s->word == ORIGIN_HEARD) {
        s->since_ms = now_ms;
    }
    if (s->word == ORIGIN_DOUBTED && s->again_ms == 0) {
        s->again_ms = now_ms;
    }
}

void silence_left(struct silence *s, uint64_t patience_ms, uint64_t now_ms)
{
    CHECK(s->waiting > 0);
    update(s, patience_ms, now_ms);
    s->waiting--;
}

void silence_failed(struct silence *s, uint64_t began_ms, uint64_t now_ms, const struct err *why)
{
    if (s->word == ORIGIN_HEARD && s->since_ms > began_ms) {
        return; /* others were answered meanwhile: it was that request's own trouble */
    }
    if (s->word == ORIGIN_SILENT ||
        (s->word == ORIGIN_DOUBTED && s->again_ms != 0 && began_ms >= s->again_ms)) {
        find_silent(s, now_ms);
    } else if (s->word == ORIGIN_HEARD) {
        doubt(s);
    }
    s->why = *why;
}

void silence_heard(struct silence *s, uint64_t now_ms)
{
    s->word = ORIGIN_HEARD;
    s->since_ms = now_ms;
}

void silence_answered(struct silence *s, uint64_t now_ms)
{
    CHECK(s->waiting > 0);
    s->waiting--;
    silence_heard(s, now_ms);
}

enum origin_word silence_word(struct silence *s, uint64_t patience_ms, uint64_t now_ms,
                              struct err *why)
{
    update(s, patience_ms, now_ms);
    if (s->word != ORIGIN_HEARD && s->why.code != 0) {
        *why = s->why;
    } else if (s->word != ORIGIN_HEARD) {
        err_set(why, E_TIMEOUT, "the origin has not answered for %" PRIu64 " s",
                (now_ms - s->since_ms + 999) / 1000);
    }
    return s->word;
}

bool silence_probe(struct silence *s, uint64_t now_ms)
{
    if (s->word != ORIGIN_SILENT || now_ms < s->probe_ms) {
        return false;
    }
    s->probe_ms = now_ms + PROBE_MS;
    return true;
}
