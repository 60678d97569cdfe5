/* engine.c - the exec-rsync engine of the pipeline: the program runs to its end, then its tree is walked. */
#include <errno.h>
#include <dirent.h>
#include <event2/event.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/os/clock.h"
#include "server/sync/exec/exec_engine.h"
#include "server/sync/exec/verdict.h"
#include "server/sync/exec/walk.h"

enum {
    WINDOW = 16,
    LOCK_WAIT_MS = 50, /* who was ended with a run that broke is gone in a moment */
    LOCK_WAITS = 60,
    TELL_MS = 60 * 1000,
    ERROR_LINES = 200,
};

extern const struct engine_ops engine_exec;

static void say(struct exec_engine *g, const char *what, struct slice text)
{
    g->site->log(g->site->log_arg, "%s" SLICE_FMT, what,
                 SLICE_ARG(slice_first(text, text.n < 600 ? text.n : 600)));
}

static void on_soon(evutil_socket_t fd, short what, void *arg)
{
    struct exec_engine *g = arg;

    (void)fd;
    (void)what;
    g->news(g);
}

static void soon(struct exec_engine *g, uint64_t ms, void (*news)(struct exec_engine *g))
{
    struct timeval tv = clock_timeval(ms);

    g->news = news;
    evtimer_add(g->soon, &tv);
}

static void not_listed(struct exec_engine *g, int rc, struct err *why)
{
    g->ev.on_listed(g->arg, rc, why, NULL);
}

/* --- the walk --- */

struct reading {
    struct job job;
    struct exec_engine *g;
    struct file_list *list;
    uint64_t left_out;
    int rc;
    struct err why;
};

static struct sync_entry entry_of(const struct file_list *l, uint32_t index, char *room)
{
    const struct list_entry *en = list_at(l, index);
    enum list_type type = list_type(en);
    struct sync_entry s = {.type = type == LIST_LINK     ? SYNC_LINK
                                   : type == LIST_FOLDER ? SYNC_DIR
                                                         : SYNC_FILE,
                           .path = list_path(l, en, room),
                           .size_bytes = list_size(l, en),
                           .mtime_ns = en->mtime_ns,
                           .executable = (en->mode & 0111) != 0};

    s.target = type == LIST_LINK ? list_target(l, en) : SLICE_NONE;
    return s;
}

static int tell_entries(struct exec_engine *g, const struct file_list *l)
{
    char room[LIST_PATH_MAX + 1], first[LIST_PATH_MAX + 1];
    int rc = 0;

    for (uint32_t i = 0; rc == 0 && i < list_count(l); i++) {
        const struct list_entry *en = list_at(l, i);
        struct sync_entry s = entry_of(l, i, room);
        int32_t leader = list_leader(l, en);
        if (list_type(en) == LIST_BLANK || list_type(en) == LIST_OTHER) {
            continue;
        }
        if (leader != LIST_NONE) {
            s.leader = list_path(l, list_at(l, (uint32_t)leader), first);
        }
        rc = g->ev.on_entry(g->arg, &s);
    }
    return rc;
}

static void walk_work(struct job *j)
{
    struct reading *x = CONTAINER_OF(j, struct reading, job);
    struct exec_engine *g = x->g;
    struct walk_want w = {
        .top = g->top, .said = &g->said, .limits = LIST_LIMITS, .stop = &g->close};

    if (g->site->entries_max != 0) {
        w.limits.entries = (uint32_t)min_u64(g->site->entries_max, INT32_MAX);
    }
    x->rc = walk_tree(&w, &x->list, &x->left_out, &x->why);
}

static void walk_done(struct job *j)
{
    struct reading *x = CONTAINER_OF(j, struct reading, job);
    struct exec_engine *g = x->g;
    struct engine_listed told = {.partial = g->partial, .left_out = x->left_out + g->said.odd};

    g->jobs--;
    if (!atomic_load(&g->close)) {
        x->rc = x->rc == 0 ? tell_entries(g, x->list) : x->rc;
        if (x->rc != 0 && x->why.code == 0) {
            err_set(&x->why, x->rc, "the list was given up");
        }
        g->ev.on_listed(g->arg, x->rc, &x->why, x->rc == 0 ? &told : NULL);
    }
    if (x->list != NULL) {
        list_free(&x->list);
    }
    free(x);
}

static void start_walk(struct exec_engine *g)
{
    struct reading *x = NEW(struct reading);

    x->g = g;
    x->job = (struct job){.work = walk_work, .done = walk_done, .reply = g->site->box};
    g->jobs++;
    pool_submit(g->site->disk, &x->job, g->site->client);
}

/* --- the program --- */

static void on_out(void *arg, struct slice bytes)
{
    struct exec_engine *g = arg;
    uint64_t now = clock_now_ms();

    said_out(&g->said, bytes);
    if (now - g->told_ms > TELL_MS) {
        g->told_ms = now;
        g->site->log(g->site->log_arg, "rsync has %llu bytes of files so far",
                     (unsigned long long)g->said.bytes);
    }
}

static void on_err(void *arg, struct slice bytes)
{
    struct exec_engine *g = arg;
    said_err(&g->said, bytes);
}

static void on_error_line(void *arg, struct slice line)
{
    struct exec_engine *g = arg;

    if (g->lines++ < ERROR_LINES) {
        say(g, "", line);
    }
}

static int judge(struct exec_engine *g, const struct child_end *end, struct err *e)
{
    struct exec_ended x = {.exit_code = end->exit_code};
    int rc = said_sort(&g->said, e);

    if (g->lines > ERROR_LINES) {
        g->site->log(g->site->log_arg, "%u more lines of rsync's", g->lines - ERROR_LINES);
    }
    if (rc != 0) {
        return rc;
    }
    x.said = buf_slice(&g->said.errors);
    if (end->by_signal) {
        return err_set(e, E_AGAIN, "rsync was killed by signal %d", end->exit_code - 128);
    }
    return exec_verdict(&x, &g->partial, e);
}

static void on_end(void *arg, const struct child_end *end)
{
    struct exec_engine *g = arg;
    struct err e = {.code = 0};
    int rc = judge(g, end, &e);

    child_close(&g->child);
    if (rc != 0) {
        not_listed(g, rc, &e);
    } else {
        start_walk(g);
    }
}

static int start_child(struct exec_engine *g, struct err *e)
{
    static const struct child_events events = {on_out, on_err, on_end};
    struct child_want w = {.argv = exec_argv(g),
                           .env = exec_env(g),
                           .folder = g->home,
                           .in_fd = g->lock,
                           .grace_ms = 2000};

    g->told_ms = clock_now_ms();
    return child_start(g->site->base, &w, &events, g, &g->child, e);
}

/* --- the working tree --- */

static int make_folder(const char *path, struct err *e)
{
    return mkdir(path, 0700) == -1 && errno != EEXIST ? err_sys(e, "mkdir %.150s", path) : 0;
}

static int home_of(struct exec_engine *g, struct err *e)
{
    const char *state = store_folder(g->site->store);
    char room[PATH_MAX];
    int rc;

    if (realpath(state, room) == NULL) {
        return err_sys(e, "%.150s", state);
    }
    rc = make_folder(arena_fmt(&g->arena, "%s/exec", room).p, e);
    g->home = arena_cstr(
        &g->arena, arena_fmt(&g->arena, "%s/exec/" SLICE_FMT, room, SLICE_ARG(g->site->repo)));
    rc = rc == 0 ? make_folder(g->home, e) : rc;
    rc = rc == 0 ? make_folder(arena_fmt(&g->arena, "%s/tree", g->home).p, e) : rc;
    return rc == 0 ? make_folder(arena_fmt(&g->arena, "%s/tmp", g->home).p, e) : rc;
}

static int open_home(struct exec_engine *g, struct err *e)
{
    int home = open(g->home, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    int rc = 0;

    if (home == -1) {
        return err_sys(e, "%.150s", g->home);
    }
    g->lock = openat(home, "lock", O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    g->top = openat(home, "tree", O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (g->lock == -1 || g->top == -1) {
        rc = err_sys(e, "%.150s", g->home);
    }
    close(home);
    return rc;
}

/* What an rsync that was killed had not brought to its end. */
static int empty_tmp(struct exec_engine *g, struct err *e)
{
    const char *path = arena_fmt(&g->arena, "%s/tmp", g->home).p;
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *d = fd != -1 ? fdopendir(fd) : NULL;
    const struct dirent *en;

    if (d == NULL) {
        if (fd != -1) {
            close(fd);
        }
        return err_sys(e, "%.150s", path);
    }
    while ((en = readdir(d)) != NULL) { // NOLINT(concurrency-mt-unsafe)
        unlinkat(fd, en->d_name, 0);    /* "." and ".." stay */
    }
    closedir(d);
    return 0;
}

static void try_lock(struct exec_engine *g)
{
    struct err e = {.code = 0};
    int rc = 0;

    if (flock(g->lock, LOCK_EX | LOCK_NB) == -1) {
        if (errno == EWOULDBLOCK && g->waits++ < LOCK_WAITS) {
            soon(g, LOCK_WAIT_MS, try_lock);
            return;
        }
        rc = errno == EWOULDBLOCK
                 ? err_set(&e, E_BUSY, "an rsync of an earlier run still writes to %.100s", g->home)
                 : err_sys(&e, "%.150s", g->home);
    }
    rc = rc == 0 ? empty_tmp(g, &e) : rc;
    rc = rc == 0 ? start_child(g, &e) : rc;
    if (rc != 0) {
        not_listed(g, rc, &e);
    }
}

static void start(struct exec_engine *g)
{
    struct err e = {.code = 0};
    int rc = home_of(g, &e);

    rc = rc == 0 ? open_home(g, &e) : rc;
    if (rc != 0) {
        not_listed(g, rc, &e);
    } else {
        try_lock(g);
    }
}

/* --- the engine's door --- */

/* *path: of a program of that name in PATH. */
static bool find_program(const char *name, struct arena *a, char **path)
{
    struct slice rest = slice_str(getenv("PATH") != NULL ? getenv("PATH") : "/usr/bin:/bin");

    while (rest.n > 0) {
        struct slice folder = slice_cut(&rest, ':');
        *path = arena_cstr(a, arena_fmt(a, SLICE_FMT "/%s", SLICE_ARG(folder), name));
        if (folder.n > 0 && access(*path, X_OK) == 0) {
            return true;
        }
    }
    return false;
}

static int exec_open(const struct engine_site *site, const struct engine_events *ev, void *arg,
                     struct engine **out, struct err *e)
{
    struct exec_engine *g;
    int rc = exec_check(site, e);

    if (rc != 0) {
        return rc;
    }
    g = NEW(struct exec_engine);
    g->ops = &engine_exec;
    g->site = site;
    g->ev = *ev;
    g->arg = arg;
    g->lock = g->top = -1;
    if (!find_program("rsync", &g->arena, &g->program)) {
        arena_fini(&g->arena);
        free(g);
        return err_set(e, E_CONFIG,
                       "engine exec-rsync needs the rsync program, it is not in PATH, install it");
    }
    said_init(&g->said, on_error_line, g);
    list_init(&g->takes);
    g->soon = evtimer_new(site->base, on_soon, g);
    CHECK(g->soon != NULL);
    *out = (struct engine *)g;
    return 0;
}

static void unknown(struct exec_engine *g)
{
    g->ev.on_probe(g->arg, PROBE_UNKNOWN);
}

static void probe(struct engine *eg, struct slice cursor)
{
    (void)cursor;
    soon((struct exec_engine *)eg, 0, unknown);
}

static void list(struct engine *eg)
{
    soon((struct exec_engine *)eg, 0, start);
}

static unsigned window(const struct engine *eg)
{
    (void)eg;
    return WINDOW;
}

static void finished(struct exec_engine *g)
{
    g->ev.on_finished(g->arg, 0, NULL);
}

static void finish(struct engine *eg)
{
    soon((struct exec_engine *)eg, 0, finished);
}

static void close_engine(struct engine **gp)
{
    struct exec_engine *g = (struct exec_engine *)*gp;

    *gp = NULL;
    if (g == NULL) {
        return;
    }
    atomic_store(&g->close, true);
    child_close(&g->child);
    exec_takes_cancel(g);
    event_del(g->soon);
    while (g->jobs != 0) { /* they are told to stop, and come back soon */
        (void)!event_base_loop(g->site->base, EVLOOP_ONCE);
    }
    if (g->top != -1) {
        close(g->top);
    }
    if (g->lock != -1) {
        close(g->lock);
    }
    event_free(g->soon);
    said_fini(&g->said);
    arena_fini(&g->arena);
    free(g);
}

static const char *const schemes[] = {"ssh", "rsync", NULL};
const struct engine_ops engine_exec = {.name = "exec-rsync",
                                       .schemes = schemes,
                                       .open = exec_open,
                                       .probe = probe,
                                       .list = list,
                                       .window = window,
                                       .take = exec_take,
                                       .resume = exec_resume,
                                       .cancel = exec_cancel,
                                       .finish = finish,
                                       .close = close_engine};
