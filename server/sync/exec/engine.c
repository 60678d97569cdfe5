/* engine.c - the exec-rsync engine of the pipeline: the program runs to its end, then its tree is
 * walked. */
#include <dirent.h>
#include <errno.h>
#include <event2/event.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/codec/url.h"
#include "common/os/clock.h"
#include "server/sync/exec/exec_engine.h"
#include "server/sync/exec/verdict.h"
#include "server/sync/exec/walk.h"
#include "server/sync/proxy.h"
#include "server/sync/rsync/rsyncurl.h"
#include "server/sync/sshurl.h"

/* --- what the program is called with ---
 *
 * The words and variables that the rsync program is started with.
 */

enum { WORDS_MAX = 40 };

static bool is_ssh(const struct engine_site *site)
{
    return slice_starts(site->url, SLICE("ssh://"));
}

/* rsync cuts what it is given for -e at blanks, and knows quotes; what has one itself cannot be
 * said. */
static int check_quotable(const char *key, const char *text, struct err *e)
{
    return text == NULL || (text[0] != '\0' && strpbrk(text, "'\"\n") == NULL)
               ? 0
               : err_set(e, E_CONFIG,
                         "%s: the value is empty or contains a quote or newline, which rsync "
                         "cannot pass to ssh; change it",
                         key);
}

/* What the program is called with. All from the arena. */
static int exec_check(const struct engine_site *site, struct err *e)
{
    const struct sync_conf *c = site->conf;
    struct rsync_url r;
    struct ssh_url s;
    struct proxy p;
    bool through;
    int rc;

    if (!is_ssh(site)) {
        rc = rsync_url_parse(site->url, &r, e);
        rc = rc != 0 ? rc : proxy_choose(site->proxy, site->no_proxy, r.host, &p, &through, e);
        return rc == 0 && r.tls
                   ? err_set(e, E_CONFIG,
                             "engine exec-rsync does not support rsyncs://; use engine rsync")
                   : rc;
    }
    rc = ssh_url_parse(site->url, &s, e);
    rc = rc != 0 ? rc : check_quotable("ssh", c->ssh, e);
    rc = rc != 0 ? rc : check_quotable("ssh_key", c->ssh_key, e);
    return rc != 0 ? rc : check_quotable("known_hosts", c->known_hosts, e);
}

/* The program starts elsewhere than we did. */
static const char *whole_path(struct arena *a, const char *path)
{
    char room[PATH_MAX];

    return realpath(path, room) != NULL ? arena_cstr(a, slice_str(room)) : path;
}

static const char *shell(struct arena *a, const struct engine_site *site, const struct ssh_url *u)
{
    const struct sync_conf *c = site->conf;
    struct buf b = BUF_INIT(16 << 10);
    const char *text;

    buf_addf(&b, "'%s' -oBatchMode=yes -oClearAllForwardings=yes -oConnectTimeout=%u",
             c->ssh != NULL ? c->ssh : "ssh", site->connect_ms / 1000 + 1);
    if (u->port != 0) {
        buf_addf(&b, " -p %u", (unsigned)u->port);
    }
    if (c->ssh_key != NULL) {
        buf_addf(&b, " -oIdentitiesOnly=yes -i '%s'", whole_path(a, c->ssh_key));
    }
    if (c->known_hosts != NULL) {
        buf_addf(&b, " '-oUserKnownHostsFile=\"%s\"' -oStrictHostKeyChecking=yes",
                 whole_path(a, c->known_hosts));
    }
    text = arena_cstr(a, buf_slice(&b));
    buf_free(&b);
    return text;
}

static const char *source_ssh(struct arena *a, const struct ssh_url *u)
{
    return arena_fmt(a, SLICE_FMT "%s" SLICE_FMT ":" SLICE_FMT, SLICE_ARG(u->user),
                     u->user.n != 0 ? "@" : "", SLICE_ARG(u->host), SLICE_ARG(u->path))
        .p;
}

/* "user:password", or the password of the URL's user. */
static struct slice secret_of(const struct engine_site *site, struct slice *user)
{
    struct slice rest = slice_str(site->secret != NULL ? site->secret : "");

    if (slice_find(rest, ':') >= 0) {
        struct slice named = slice_cut(&rest, ':');
        *user = user->n != 0 ? *user : named;
    }
    return rest;
}

static const char *source_daemon(struct arena *a, const struct engine_site *site)
{
    struct rsync_url u;
    bool six;

    (void)!rsync_url_parse(site->url, &u, NULL); /* it was fine when we were opened */
    (void)secret_of(site, &u.user);
    six = slice_find(u.host, ':') >= 0;
    return arena_fmt(a, "rsync://" SLICE_FMT "%s%s" SLICE_FMT "%s:%u/" SLICE_FMT "/" SLICE_FMT,
                     SLICE_ARG(u.user), u.user.n != 0 ? "@" : "", six ? "[" : "", SLICE_ARG(u.host),
                     six ? "]" : "", (unsigned)u.port, SLICE_ARG(u.module), SLICE_ARG(u.path))
        .p;
}

static const char *const *exec_argv(struct exec_engine *g)
{
    /* Of what is given here the other end sees nothing that rsync 2.6 does not know. */
    static const char *const always[] = {
        "-rltHp",
        "--no-inc-recursive",
        "--chmod=ug-s,Du+rwx,Fu+rw",
        "--delete",
        "--delete-excluded",
        "--munge-links",
        "--modify-window=-1", /* nanoseconds count */
        "--no-motd",
        "--no-human-readable",
        "--info=progress2,skip1,nonreg1",
    };
    const struct engine_site *site = g->site;
    struct arena *a = &g->arena;
    struct ssh_url ssh;
    size_t rules, n = 0;
    const char *const *rule = file_filter_rules(site->file_filter, &rules);
    const char **w = arena_alloc(a, (WORDS_MAX + rules) * sizeof *w);

    w[n++] = g->program;
    for (size_t i = 0; i < ARRAY_LEN(always); i++) {
        w[n++] = always[i];
    }
    w[n++] = arena_fmt(a, "--temp-dir=%s/tmp", g->home).p;
    if (site->stall_ms != 0) {
        w[n++] = arena_fmt(a, "--timeout=%u", site->stall_ms / 1000 + 1).p;
    }
    if (site->conf->max_size_bytes != 0) {
        w[n++] = arena_fmt(a, "--max-size=%llu", (unsigned long long)site->conf->max_size_bytes).p;
    }
    for (size_t i = 0; i < rules; i++) {
        w[n++] = arena_fmt(a, "--filter=%s", rule[i]).p;
    }
    if (is_ssh(site)) {
        (void)!ssh_url_parse(site->url, &ssh, NULL);
        w[n++] = "-e";
        w[n++] = shell(a, site, &ssh);
        w[n++] = "--";
        w[n++] = source_ssh(a, &ssh);
    } else {
        w[n++] = arena_fmt(a, "--contimeout=%u", site->connect_ms / 1000 + 1).p;
        w[n++] = "--";
        w[n++] = source_daemon(a, site);
    }
    w[n++] = "tree/";
    w[n] = NULL;
    return w;
}

/* As the program reads it: no scheme, a port in any case, escapes undone. NULL: straight. */
static const char *way_of(struct arena *a, const struct engine_site *site)
{
    struct buf user = BUF_INIT(PROXY_USER_MAX);
    struct rsync_url u;
    struct proxy p;
    bool through = false;
    const char *way = NULL;

    (void)!rsync_url_parse(site->url, &u, NULL);
    (void)!proxy_choose(site->proxy, site->no_proxy, u.host, &p, &through, NULL);
    if (through && url_decode(p.user, &user)) {
        way =
            arena_fmt(a, "RSYNC_PROXY=" SLICE_FMT "%s" SLICE_FMT ":%u", SLICE_ARG(buf_slice(&user)),
                      user.n != 0 ? "@" : "", SLICE_ARG(p.host), (unsigned)p.port)
                .p;
    }
    buf_free(&user);
    return way;
}

/* Of our own environment only what programs need: it may hold where secrets are. */
static const char *const *exec_env(struct exec_engine *g)
{
    static const char *const passed_on[] = {"PATH", "HOME", "USER", "SSH_AUTH_SOCK", "TZ"};
    const struct engine_site *site = g->site;
    const char **env = arena_alloc(&g->arena, (ARRAY_LEN(passed_on) + 4) * sizeof *env);
    struct slice user = SLICE(""), password = secret_of(site, &user);
    const char *proxy;
    size_t n = 0;

    for (size_t i = 0; i < ARRAY_LEN(passed_on); i++) {
        const char *value = getenv(passed_on[i]);
        if (value != NULL) {
            env[n++] = arena_fmt(&g->arena, "%s=%s", passed_on[i], value).p;
        }
    }
    env[n++] = "LC_ALL=C";
    if (!is_ssh(site)) { /* an empty one, too: else it would ask at a terminal, and wait */
        env[n++] = arena_fmt(&g->arena, "RSYNC_PASSWORD=" SLICE_FMT, SLICE_ARG(password)).p;
    }
    if (!is_ssh(site) && (proxy = way_of(&g->arena, site)) != NULL) {
        env[n++] = proxy;
    }
    env[n] = NULL;
    return env;
}

/* --- files of the working tree ---
 *
 * The bytes of one file, read from the working tree piece by piece on the disk pool.
 */

enum { PIECE_BYTES = 256 << 10 };

struct download {
    struct list node;
    struct exec_engine *g;
    struct download_events ev;
    void *arg;
    struct job job;
    bool working; /* the job is under way */
    bool telling; /* inside an event */
    bool cancelled, begun;
    bool resumed; /* while it was telling */
    int fd;
    uint64_t size, at;
    int rc;
    struct err why;
    size_t n; /* of piece */
    char *piece;
    char path[];
};

static void free_exec_download(struct download *t)
{
    list_remove_if(&t->node);
    if (t->fd != -1) {
        close(t->fd);
    }
    free(t->piece);
    free(t);
}

/* --- on the pool --- */

static int open_exec_download(struct download *t)
{
    struct stat st;

    /* O_NONBLOCK: should it be a pipe by now, nobody waits for its writer. */
    t->fd = walk_open(t->g->top, t->path, O_RDONLY | O_NONBLOCK);
    if (t->fd == -1) {
        return err_sys(&t->why, "cannot read a file of the working tree");
    }
    if (fstat(t->fd, &st) == -1) {
        return err_sys(&t->why, "cannot read a file of the working tree");
    }
    if (!S_ISREG(st.st_mode) || (uint64_t)st.st_size != t->size) {
        return err_set(&t->why, E_CHANGED, "the working tree was changed by another process");
    }
    return 0;
}

static int read_piece(struct download *t)
{
    size_t want = (size_t)min_u64(PIECE_BYTES, t->size - t->at);

    t->n = 0;
    while (t->n < want) {
        ssize_t n = pread(t->fd, t->piece + t->n, want - t->n, (off_t)(t->at + t->n));
        if (n == -1 && errno != EINTR) {
            return err_sys(&t->why, "cannot read a file of the working tree");
        }
        if (n == 0) {
            return err_set(&t->why, E_CHANGED, "the working tree was changed by another process");
        }
        t->n += n > 0 ? (size_t)n : 0;
    }
    return 0;
}

static void run_exec_read(struct job *j)
{
    struct download *t = CONTAINER_OF(j, struct download, job);

    if (atomic_load(&t->g->close)) {
        return;
    }
    t->rc = t->fd == -1 ? open_exec_download(t) : 0;
    if (t->rc == 0) {
        t->rc = read_piece(t);
    }
}

/* --- on the run's thread --- */

static void submit_exec_download(struct download *t)
{
    t->working = true;
    t->g->jobs++;
    pool_submit(t->g->site->disk, &t->job, t->g->site->client);
}

static void end_exec_download(struct download *t, int rc)
{
    struct download_result got = {.mtime_ns = SYNC_TIME_UNKNOWN};

    t->ev.on_done(t->arg, rc, &t->why, rc == 0 ? &got : NULL);
    free_exec_download(t);
}

static int report_exec_download(struct download *t)
{
    int rc = 0;

    t->telling = true;
    t->resumed = false;
    if (!t->begun) {
        t->begun = true;
        rc = t->ev.on_begin(t->arg, 0, SLICE_NONE);
    }
    if (rc == 0 && t->n != 0 && !t->cancelled) {
        t->at += t->n;
        rc = t->ev.on_body(t->arg, slice_of(t->piece, t->n));
    }
    t->telling = false;
    return rc == DOWNLOAD_PAUSE && t->resumed ? 0 : rc;
}

static void continue_exec_download(struct download *t)
{
    if (t->at == t->size) {
        end_exec_download(t, 0);
    } else {
        submit_exec_download(t);
    }
}

static void on_exec_download_done(struct job *j)
{
    struct download *t = CONTAINER_OF(j, struct download, job);
    int rc;

    t->working = false;
    t->g->jobs--;
    if (t->cancelled) {
        free_exec_download(t);
        return;
    }
    rc = t->rc != 0 ? t->rc : report_exec_download(t);
    if (t->cancelled) {
        free_exec_download(t);
    } else if (rc == 0) {
        continue_exec_download(t);
    } else if (rc != DOWNLOAD_PAUSE) {
        if (t->why.code == 0) {
            err_set(&t->why, rc, "canceled: the received bytes could not be stored");
        }
        end_exec_download(t, rc);
    }
}

/* --- doors --- */

static struct download *exec_download(struct engine *eg, const struct download_params *w,
                                      const struct download_events *ev, void *arg)
{
    struct exec_engine *g = (struct exec_engine *)eg;
    size_t n = w->entry->path.n;
    struct download *t = mem_new(sizeof *t + n + 1);

    t->g = g;
    t->ev = *ev;
    t->arg = arg;
    t->fd = -1;
    t->size = w->entry->size_bytes;
    t->piece = mem_new(PIECE_BYTES);
    memcpy(t->path, w->entry->path.p, n);
    t->job =
        (struct job){.work = run_exec_read, .done = on_exec_download_done, .reply = g->site->box};
    list_push_back(&g->downloads, &t->node);
    submit_exec_download(t);
    return t;
}

static void exec_resume(struct download *t)
{
    t->resumed = t->telling;
    if (!t->working && !t->telling) {
        continue_exec_download(t);
    }
}

static void exec_cancel(struct download **tp)
{
    struct download *t = *tp;

    *tp = NULL;
    if (t == NULL) {
        return;
    }
    t->cancelled = true;
    if (!t->working && !t->telling) {
        free_exec_download(t);
    }
}

static void exec_downloads_cancel(struct exec_engine *g)
{
    LIST_EACH (&g->downloads, it) {
        struct download *t = LIST_ITEM(it, struct download, node);
        exec_cancel(&t);
    }
}

enum {
    WINDOW = 16,
    LOCK_WAIT_MS = 50, /* who was ended with a run that broke is gone in a moment */
    LOCK_WAITS = 60,
    TELL_MS = 60 * 1000,
    ERROR_LINES = 200,
};

extern const struct engine_ops engine_exec;

static void log_exec_text(struct exec_engine *g, const char *what, struct slice text)
{
    g->site->log(g->site->log_arg, "%s" SLICE_FMT, what,
                 SLICE_ARG(slice_first(text, text.n < 600 ? text.n : 600)));
}

static void on_exec_engine_soon(evutil_socket_t fd, short what, void *arg)
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

static struct sync_entry exec_sync_entry(const struct file_list *l, uint32_t index, char *room)
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
        struct sync_entry s = exec_sync_entry(l, i, room);
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
    struct walk_params w = {
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
    struct engine_listed reported = {.partial = g->partial, .left_out = x->left_out + g->said.odd};

    g->jobs--;
    if (!atomic_load(&g->close)) {
        x->rc = x->rc != 0 ? x->rc : tell_entries(g, x->list);
        if (x->rc != 0 && x->why.code == 0) {
            err_set(&x->why, x->rc, "an entry of the list was rejected");
        }
        g->ev.on_listed(g->arg, x->rc, &x->why, x->rc == 0 ? &reported : NULL);
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
    if (now - g->reported_ms > TELL_MS) {
        g->reported_ms = now;
        g->site->log(g->site->log_arg, "rsync has downloaded files of %llu bytes so far",
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
        log_exec_text(g, "", line);
    }
}

static int check_exec_end(struct exec_engine *g, const struct child_end *end, struct err *e)
{
    struct exec_ended x = {.exit_code = end->exit_code};
    int rc = said_sort(&g->said, e);

    if (g->lines > ERROR_LINES) {
        g->site->log(g->site->log_arg, "%u more lines of rsync are not shown",
                     g->lines - ERROR_LINES);
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

static void on_exec_child_end(void *arg, const struct child_end *end)
{
    struct exec_engine *g = arg;
    struct err e = {.code = 0};
    int rc = check_exec_end(g, end, &e);

    child_close(&g->child);
    if (rc != 0) {
        not_listed(g, rc, &e);
    } else {
        start_walk(g);
    }
}

static int start_child(struct exec_engine *g, struct err *e)
{
    static const struct child_events events = {on_out, on_err, on_exec_child_end};
    struct child_params w = {.argv = exec_argv(g),
                             .env = exec_env(g),
                             .folder = g->home,
                             .in_fd = g->lock,
                             .grace_ms = 2000};

    g->reported_ms = clock_now_ms();
    return child_start(g->site->base, &w, &events, g, &g->child, e);
}

/* --- the working tree --- */

static int make_folder(const char *path, struct err *e)
{
    return mkdir(path, 0700) == -1 && errno != EEXIST ? err_sys(e, "cannot create %.150s", path)
                                                      : 0;
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
    rc = rc != 0 ? rc : make_folder(g->home, e);
    rc = rc != 0 ? rc : make_folder(arena_fmt(&g->arena, "%s/tree", g->home).p, e);
    return rc != 0 ? rc : make_folder(arena_fmt(&g->arena, "%s/tmp", g->home).p, e);
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
        rc =
            errno == EWOULDBLOCK
                ? err_set(&e, E_BUSY,
                          "the rsync of an earlier run is still writing to %.100s; try again later",
                          g->home)
                : err_sys(&e, "%.150s", g->home);
    }
    rc = rc != 0 ? rc : empty_tmp(g, &e);
    rc = rc != 0 ? rc : start_child(g, &e);
    if (rc != 0) {
        not_listed(g, rc, &e);
    }
}

static void start_exec_child(struct exec_engine *g)
{
    struct err e = {.code = 0};
    int rc = home_of(g, &e);

    rc = rc != 0 ? rc : open_home(g, &e);
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
        return err_set(
            e, E_CONFIG,
            "engine exec-rsync needs the rsync program, which is not in PATH; install it");
    }
    said_init(&g->said, on_error_line, g);
    list_init(&g->downloads);
    g->soon = evtimer_new(site->base, on_exec_engine_soon, g);
    CHECK(g->soon != NULL);
    *out = (struct engine *)g;
    return 0;
}

static void exec_probe_unknown(struct exec_engine *g)
{
    g->ev.on_probe(g->arg, PROBE_UNKNOWN);
}

static void probe_exec_upstream(struct engine *eg, struct slice cursor)
{
    (void)cursor;
    soon((struct exec_engine *)eg, 0, exec_probe_unknown);
}

static void start_exec_listing(struct engine *eg)
{
    soon((struct exec_engine *)eg, 0, start_exec_child);
}

static unsigned window(const struct engine *eg)
{
    (void)eg;
    return WINDOW;
}

static void exec_engine_finished(struct exec_engine *g)
{
    g->ev.on_finished(g->arg, 0, NULL);
}

static void finish_exec_listing(struct engine *eg)
{
    soon((struct exec_engine *)eg, 0, exec_engine_finished);
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
    exec_downloads_cancel(g);
    event_del(g->soon);
    while (g->jobs != 0) { /* they are asked to stop, and come back soon */
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
                                       .probe = probe_exec_upstream,
                                       .list = start_exec_listing,
                                       .window = window,
                                       .download = exec_download,
                                       .resume = exec_resume,
                                       .cancel = exec_cancel,
                                       .finish = finish_exec_listing,
                                       .close = close_engine};
