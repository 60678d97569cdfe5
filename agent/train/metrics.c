#include "agent/train/metrics.h"

#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "agent/train/tboard.h"
#include "common/base/log.h"
#include "common/codec/progress.h"
#include "common/codec/units.h"
#include "common/os/clock.h"
#include "common/os/newfile.h"

enum { BAR = 20, REDRAW_NS = 100000000, METRICS_MAX_BYTES = 1 << 30 };

struct metrics {
    int fd;
    struct tboard *tb;
    bool tty;
    bool line_open; /* a progress line stands unfinished on the terminal */
    bool failed;
    struct metrics_about about;
    uint64_t last_ns;  /* of the last step */
    uint64_t drawn_ns; /* of the last line */
    double rate;       /* tokens a second, smoothed */
    double step_s;     /* seconds a step, smoothed */
};

/* The lines up to and including the resumed step, but for one that a crash tore. */
static int keep_lines(const char *path, int64_t resumed_step, struct err *e)
{
    struct buf text = BUF_INIT(METRICS_MAX_BYTES);
    struct newfile *f = NULL;
    struct slice rest;
    int rc = buf_read_file(&text, path, e);

    if (rc != 0) {
        buf_free(&text);
        return rc == E_NOTFOUND ? 0 : rc;
    }
    rc = newfile_open(path, 0644, &f, e);
    for (rest = buf_slice(&text); rc == 0 && rest.n > 0;) {
        struct slice line = slice_cut(&rest, '\n'), digits = line;

        if (slice_starts(line, SLICE("{\"step\":")) && slice_ends(line, SLICE("}"))) {
            uint64_t step;

            digits = slice_from(line, strlen("{\"step\":"));
            if (slice_u64(slice_cut(&digits, ','), &step) && step <= (uint64_t)resumed_step) {
                newfile_write(f, line.p, line.n);
                newfile_write(f, "\n", 1);
            }
        }
    }
    rc = rc != 0 ? rc : newfile_commit(&f, e);
    buf_free(&text);
    return rc;
}

int metrics_open(const char *dir, const struct metrics_about *about, struct metrics **out,
                 struct err *e)
{
    struct metrics *m = NEW(struct metrics);
    char path[PATH_MAX];
    int rc;

    *out = NULL;
    *m = (struct metrics){.fd = -1, .tty = isatty(STDERR_FILENO) == 1, .about = *about};
    snprintf(path, sizeof path, "%s/metrics.jsonl", dir);
    rc = keep_lines(path, about->resumed_step, e);
    if (rc == 0) {
        m->fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
        if (m->fd == -1) {
            rc = err_sys(e, "%s", path);
        }
    }
    if (rc == 0) {
        rc = tboard_open(dir, (double)clock_unix_ms() / 1000, about->resumed_step + 1, &m->tb, e);
    }
    if (rc != 0) {
        metrics_close(&m);
        return rc;
    }
    m->last_ns = clock_now_ns();
    *out = m;
    return 0;
}

static void close_line(struct metrics *m)
{
    if (m->line_open) {
        fputc('\n', stderr);
        m->line_open = false;
    }
}

static void append_metrics_line(struct metrics *m, struct buf *line)
{
    struct err e = {0};

    if (fd_append(m->fd, line->p, line->n, &e) != 0 && !m->failed) {
        m->failed = true;
        close_line(m);
        log_warn("metrics.failed", "metrics.jsonl: %s", e.text);
    }
    buf_free(line);
}

/* JSON has no NaN. */
static void add_number(struct buf *b, const char *key, double v)
{
    if (isfinite(v)) {
        buf_addf(b, ",\"%s\":%.9g", key, v);
    } else {
        buf_addf(b, ",\"%s\":null", key);
    }
}

/* Of what the chips could do at most, at so many tokens a second. */
static double utilization(const struct metrics *m, double rate)
{
    return m->about.peak_flops > 0 ? rate * m->about.token_flops / m->about.peak_flops : 0;
}

/* Redrawn in place it must not wrap. */
static size_t metrics_columns(void)
{
    struct winsize w;

    return ioctl(STDERR_FILENO, TIOCGWINSZ, &w) == 0 && w.ws_col > 1 ? w.ws_col - 1u : 79;
}

static void redraw(const struct step_report *r, struct slice text)
{
    size_t room = metrics_columns();
    char bar[BAR + 1] = "";

    if (room < text.n + BAR + 3) {
        text.n = text.n < room ? text.n : room;
        fprintf(stderr, "\r" SLICE_FMT "\033[K", SLICE_ARG(text));
        return;
    }
    progress_bar((uint64_t)r->step, (uint64_t)r->steps, BAR, bar);
    fprintf(stderr, "\r[%s] " SLICE_FMT "\033[K", bar, SLICE_ARG(text));
}

/* What matters most comes first: a narrow terminal cuts the end. */
static void draw(struct metrics *m, const struct step_report *r)
{
    double left_s = m->step_s * (double)(r->steps - r->step);
    char left[UNITS_TEXT], memory[UNITS_TEXT];
    struct buf line = BUF_INIT(1024);

    span_format((uint64_t)(1000 * left_s), left);
    size_format(m->about.memory_bytes, memory);
    buf_addf(&line, "step %lld/%lld  loss %.4f  norm %.3f  %.0f tok/s", (long long)r->step,
             (long long)r->steps, r->loss, fabs(r->grad_norm), m->rate);
    if (m->about.peak_flops > 0) {
        buf_addf(&line, "  mfu %.1f%%", 100 * utilization(m, m->rate));
    }
    buf_addf(&line, "  eta %s  lr %.2e  %s", left, r->lr, memory);
    if (m->tty) {
        redraw(r, buf_slice(&line));
    } else {
        fprintf(stderr, SLICE_FMT "\n", SLICE_ARG(buf_slice(&line)));
    }
    m->line_open = m->tty;
    buf_free(&line);
}

static void write_step(struct metrics *m, const struct step_report *r, double rate)
{
    const struct tboard_scalar scalars[] = {{"train/loss", r->loss},
                                            {"train/lr", r->lr},
                                            {"train/grad_norm", r->grad_norm},
                                            {"train/tokens_per_s", rate},
                                            {"train/mfu", utilization(m, rate)},
                                            {"train/loss_scale", r->loss_scale}};
    struct buf line = BUF_INIT(1024);

    buf_addf(&line, "{\"step\":%lld", (long long)r->step);
    add_number(&line, "loss", r->loss);
    add_number(&line, "lr", r->lr);
    add_number(&line, "grad_norm", r->grad_norm);
    add_number(&line, "tokens_per_s", rate);
    if (m->about.peak_flops > 0) {
        add_number(&line, "mfu", utilization(m, rate));
    }
    if (r->loss_scale > 0) {
        add_number(&line, "loss_scale", r->loss_scale);
    }
    if (r->sent_bytes > 0) {
        buf_addf(&line, ",\"gradient_bytes\":%.0f", r->sent_bytes);
    }
    buf_addf(&line, ",\"tokens\":%llu}\n", (unsigned long long)r->tokens);
    append_metrics_line(m, &line);
    tboard_add(m->tb, (double)clock_unix_ms() / 1000, r->step, scalars,
               ARRAY_LEN(scalars) - (r->loss_scale > 0 ? 0 : 1));
}

void metrics_step(struct metrics *m, const struct step_report *r, uint64_t now_ns)
{
    double took_s = (double)(now_ns - m->last_ns) / 1e9;
    bool last = r->step == r->steps;

    m->last_ns = now_ns;
    m->step_s = m->step_s == 0 ? took_s : 0.9 * m->step_s + 0.1 * took_s;
    m->rate = m->step_s > 0 ? (double)r->step_tokens / m->step_s : 0;
    write_step(m, r, took_s > 0 ? (double)r->step_tokens / took_s : 0);
    if (m->tty ? last || now_ns - m->drawn_ns >= REDRAW_NS
               : last || r->step == 1 ||
                     (m->about.log_every > 0 && r->step % m->about.log_every == 0)) {
        m->drawn_ns = now_ns;
        draw(m, r);
    }
}

void metrics_val(struct metrics *m, int64_t step, double loss)
{
    const struct tboard_scalar scalar = {"val/loss", loss};
    struct buf line = BUF_INIT(1024);

    buf_addf(&line, "{\"step\":%lld", (long long)step);
    add_number(&line, "val_loss", loss);
    buf_str(&line, "}\n");
    append_metrics_line(m, &line);
    tboard_add(m->tb, (double)clock_unix_ms() / 1000, step, &scalar, 1);
    metrics_say(m, "step %lld: validation loss %.4f, perplexity %.2f", (long long)step, loss,
                exp(loss));
    m->last_ns = clock_now_ns(); /* not the next step's time */
}

void metrics_say(struct metrics *m, const char *fmt, ...)
{
    va_list ap;

    close_line(m);
    va_start(ap, fmt);
    vfprintf(stderr, fmt, ap);
    va_end(ap);
    fputc('\n', stderr);
}

void metrics_close(struct metrics **mp)
{
    struct metrics *m = *mp;
    struct err e = {0};

    if (m == NULL) {
        return;
    }
    *mp = NULL;
    close_line(m);
    if (tboard_close(&m->tb, &e) != 0) {
        log_warn("metrics.failed", "%s", e.text);
    }
    if (m->fd != -1) {
        close(m->fd);
    }
    free(m);
}
