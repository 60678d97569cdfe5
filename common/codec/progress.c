#include "common/codec/progress.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "common/codec/units.h"

enum { DRAW_EVERY_MS = 100, RATE_SPAN_MS = 3000, BAR_MAX = 40, TEXT = 400 };

struct progress {
    char label[200];
    uint64_t drawn_at_ms;
    uint64_t last_done;
    double rate_bytes_per_s; /* smoothed over a few seconds */
    const char *what;        /* is counted; NULL: bytes */
};

void progress_bar(uint64_t done, uint64_t total, unsigned cells, char *out)
{
    double share = total > 0 ? (double)min_u64(done, total) / (double)total : 0;

    for (unsigned i = 0; i < cells; i++) {
        out[i] = i < (unsigned)(share * cells) ? '#' : '.';
    }
    out[cells] = '\0';
}

struct progress *progress_open(const char *label)
{
    const char *term = getenv("TERM");
    struct progress *p;

    if (!isatty(STDERR_FILENO) || (term != NULL && strcmp(term, "dumb") == 0)) {
        return NULL;
    }
    p = NEW(struct progress);
    progress_name(p, label);
    return p;
}

void progress_name(struct progress *p, const char *label)
{
    if (p == NULL) {
        return;
    }
    snprintf(p->label, sizeof p->label, "%s", label);
    for (char *c = p->label; *c != '\0'; c++) {
        *c = (unsigned char)*c < 0x20 || *c == 0x7f ? '?' : *c;
    }
}

void progress_counts(struct progress *p, const char *what)
{
    if (p != NULL) {
        p->what = what;
    }
}

static void amount(const struct progress *p, uint64_t n, char out[UNITS_TEXT])
{
    if (p->what != NULL) {
        snprintf(out, UNITS_TEXT, "%" PRIu64, n);
    } else {
        size_format(n, out);
    }
}

static void learn_rate(struct progress *p, uint64_t done_bytes, uint64_t took_ms)
{
    double now = (double)(done_bytes > p->last_done ? done_bytes - p->last_done : 0) * 1000 /
                 (double)took_ms;
    double weight = (double)min_u64(took_ms, RATE_SPAN_MS) / RATE_SPAN_MS;

    p->rate_bytes_per_s += (now - p->rate_bytes_per_s) * (p->rate_bytes_per_s > 0 ? weight : 1);
    p->last_done = done_bytes;
}

static unsigned progress_columns(void)
{
    struct winsize w;

    return ioctl(STDERR_FILENO, TIOCGWINSZ, &w) == 0 && w.ws_col > 20 ? w.ws_col : 80;
}

void progress_draw(struct progress *p, uint64_t done_bytes, uint64_t total_bytes, uint64_t now_ms)
{
    char done[UNITS_TEXT], total[UNITS_TEXT], rate[UNITS_TEXT], left[UNITS_TEXT] = "";
    char bar[BAR_MAX + 1] = "";
    char tail[TEXT], line[TEXT];
    bool known = total_bytes != UINT64_MAX && total_bytes > 0;
    unsigned width = progress_columns();
    int room;

    if (p == NULL || (p->drawn_at_ms != 0 && now_ms < p->drawn_at_ms + DRAW_EVERY_MS)) {
        return;
    }
    learn_rate(p, done_bytes, p->drawn_at_ms != 0 ? now_ms - p->drawn_at_ms : DRAW_EVERY_MS);
    p->drawn_at_ms = now_ms;
    amount(p, done_bytes, done);
    amount(p, known ? total_bytes : 0, total);
    amount(p, (uint64_t)p->rate_bytes_per_s, rate);
    if (known && p->rate_bytes_per_s > 1 && total_bytes >= done_bytes) {
        span_format((uint64_t)((double)(total_bytes - done_bytes) / p->rate_bytes_per_s * 1000),
                    left);
    }
    snprintf(tail, sizeof tail, "%s%s%s%s%s  %s/s%s%s", done, known ? " / " : "",
             known ? total : "", p->what != NULL ? " " : "", p->what != NULL ? p->what : "", rate,
             left[0] != '\0' ? "  left " : "", left);
    room = (int)width - (int)strlen(p->label) - (int)strlen(tail) - 12;
    if (known && room >= 8) {
        progress_bar(done_bytes, total_bytes, (unsigned)(room < BAR_MAX ? room : BAR_MAX), bar);
    }
    snprintf(line, sizeof line, "%s  %3.0f%% %s%s%s", p->label,
             known ? 100.0 * (double)min_u64(done_bytes, total_bytes) / (double)total_bytes : 0.0,
             bar, bar[0] != '\0' ? "  " : "", tail);
    fprintf(stderr, "\r\033[K%.*s", (int)width - 1, line);
    fflush(stderr);
}

void progress_wipe(const struct progress *p)
{
    if (p != NULL) {
        fprintf(stderr, "\r\033[K");
        fflush(stderr);
    }
}

void progress_close(struct progress **pp)
{
    progress_wipe(*pp);
    free(*pp);
    *pp = NULL;
}
