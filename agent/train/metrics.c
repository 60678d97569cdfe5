#include "agent/train/metrics.h"

#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "agent/train/tboard.h"
#include "common/base/log.h"
#include "common/os/clock.h"
#include "common/os/newfile.h"

enum { BAR = 20, REDRAW_NS = 100000000, METRICS_MAX_BYTES = 1 << 30 };

struct metrics {
    int fd;
    struct tboard *tb;
    bool tty;
    bool line_open; /* a progress line stands unfinished on the terminal */
    bool failed;
    int64_t log_every;
    uint64_t last_ns;  /* of the last step */
    uint64_t drawn_ns; /* of the last line */
    double rate;       /* tokens a second, smoothed */
    double step_s;     /* seconds a step, smoothed */
};

/* The lines up to and including the resumed step. */
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

        if (slice_starts(line, SLICE("{\"step\":"))) {
            uint64_t step;

            digits = slice_from(line, strlen("{\"step\":"));
            if (slice_u64(slice_cut(&digits, ','), &step) && step <= (uint64_t)resumed_step) {
                newfile_write(f, line.p, line.n);
                newfile_write(f, "\n", 1);
            }
        }
    }
    if (rc == 0) {
        rc = newfile_commit(&f, e);
    }
    buf_free(&text);
    return rc;
}

int metrics_open(const char *dir, int64_t resumed_step, int64_t log_every, struct metrics **out,
                 struct err *e)
{
    struct metrics *m = NEW(struct metrics);
    char path[PATH_MAX];
    int rc;

    *out = NULL;
    *m = (struct metrics){.fd = -1, .tty = isatty(STDERR_FILENO) == 1, .log_every = log_every};
    snprintf(path, sizeof path, "%s/metrics.jsonl", dir);
    rc = keep_lines(path, resumed_step, e);
    if (rc == 0) {
        m->fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
        if (m->fd == -1) {
            rc = err_sys(e, "%s", path);
        }
    }
    if (rc == 0) {
        rc = tboard_open(dir, (double)clock_unix_ms() / 1000, &m->tb, e);
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

static void append(struct metrics *m, struct buf *line)
{
    struct err e = {0};

    if (fd_write_all(m->fd, line->p, line->n, &e) != 0 && !m->failed) {
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

static void draw(struct metrics *m, const struct step_report *r)
{
    double left_s = m->step_s * (double)(r->steps - r->step);
    char bar[BAR + 1];

    for (int i = 0; i < BAR; i++) {
        bar[i] = i * r->steps < BAR * r->step ? '#' : '.';
    }
    bar[BAR] = '\0';
    if (m->tty) {
        fprintf(stderr, "\r[%s] ", bar);
    }
    fprintf(stderr, "step %lld/%lld  loss %.4f  lr %.2e  norm %.3f  %.0f tok/s  eta %lld:%02lld",
            (long long)r->step, (long long)r->steps, r->loss, r->lr, fabs(r->grad_norm), m->rate,
            (long long)left_s / 60, (long long)left_s % 60);
    fputs(m->tty ? "\033[K" : "\n", stderr);
    m->line_open = m->tty;
}

void metrics_step(struct metrics *m, const struct step_report *r, uint64_t now_ns)
{
    const struct tboard_scalar scalars[] = {{"train/loss", r->loss},
                                            {"train/lr", r->lr},
                                            {"train/grad_norm", r->grad_norm},
                                            {"train/tokens_per_s", m->rate}};
    double took_s = (double)(now_ns - m->last_ns) / 1e9;
    struct buf line = BUF_INIT(1024);
    bool last = r->step == r->steps;

    m->last_ns = now_ns;
    m->step_s = m->step_s == 0 ? took_s : 0.9 * m->step_s + 0.1 * took_s;
    m->rate = m->step_s > 0 ? (double)r->step_tokens / m->step_s : 0;
    buf_addf(&line, "{\"step\":%lld", (long long)r->step);
    add_number(&line, "loss", r->loss);
    add_number(&line, "lr", r->lr);
    add_number(&line, "grad_norm", r->grad_norm);
    add_number(&line, "tokens_per_s", took_s > 0 ? (double)r->step_tokens / took_s : 0);
    buf_addf(&line, ",\"tokens\":%llu}\n", (unsigned long long)r->tokens);
    append(m, &line);
    tboard_add(m->tb, (double)clock_unix_ms() / 1000, r->step, scalars, ARRAY_LEN(scalars));
    if (m->tty ? last || now_ns - m->drawn_ns >= REDRAW_NS
               : last || r->step == 1 || (m->log_every > 0 && r->step % m->log_every == 0)) {
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
    append(m, &line);
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
