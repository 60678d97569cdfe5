#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/buf.h"
#include "common/codec/jwrite.h"
#include "common/codec/units.h"
#include "server/ctl/ctl.h"

/* The mirrord that was installed with this mirrorctl, else the one in $PATH. */
int run_mirrord(char *const argv[], struct err *e)
{
    static const char *const places[] = {"/mirrord", "/../sbin/mirrord"};
    char path[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", path, sizeof(path) - 32);
    char *slash;

    fflush(stdout);
    path[n > 0 ? n : 0] = '\0';
    slash = strrchr(path, '/');
    for (size_t i = 0; i < ARRAY_LEN(places) && slash != NULL; i++) {
        strcpy(slash, places[i]);
        execv(path, argv);
    }
    execvp("mirrord", argv);
    return err_sys(e, "mirrord cannot be run");
}

enum { SETTINGS_BYTES = 16 << 20, TEST_PATIENCE_S = 30 };

/* `key = "value"` at the beginning of a line; p NULL: there is none. */
static struct slice setting(struct slice text, const char *key)
{
    while (text.n > 0) {
        struct slice value = slice_cut(&text, '\n'), name = slice_cut(&value, '=');
        value = slice_trim(value);
        if (slice_eqs(slice_trim(name), key) && value.n >= 2 && value.p[0] == '"') {
            return slice_of(value.p + 1, value.n - 2);
        }
    }
    return SLICE_NONE;
}

/* The first line of what a child wrote. */
static void first_line(int fd, char *out, size_t room)
{
    ssize_t n = pread(fd, out, room - 1, 0);

    out[n > 0 ? n : 0] = '\0';
    out[strcspn(out, "\r\n")] = '\0';
}

/* What `mirrord -T` prints. */
static int settings_of(const char *config, struct buf *out, struct err *e)
{
    char program[] = "mirrord", print[] = "-T", file[] = "-c", why[PATH_MAX + 256];
    char *argv[] = {program, print, file, (char *)(uintptr_t)config, NULL};
    int status = -1, fd[2], said = memfd_create("stderr", MFD_CLOEXEC);
    pid_t pid;
    ssize_t n;

    if (said == -1 || pipe2(fd, O_CLOEXEC) == -1) {
        err_sys(e, "pipe");
        close(said);
        return E_IO;
    }
    fflush(NULL);
    pid = fork();
    if (pid == 0) {
        dup2(fd[1], STDOUT_FILENO);
        dup2(said, STDERR_FILENO);
        (void)run_mirrord(argv, NULL);
        _exit(127);
    }
    close(fd[1]);
    while (pid != -1) {
        char *room = buf_room(out, 64 << 10);
        n = room != NULL ? read(fd[0], room, 64 << 10) : 0;
        if (n <= 0) {
            break;
        }
        buf_grew(out, (size_t)n);
    }
    close(fd[0]);
    if (pid != -1 && waitpid(pid, &status, 0) != pid) {
        status = -1;
    }
    first_line(said, why, sizeof why);
    close(said);
    if (status != 0) {
        return err_set(
            e, E_CONFIG,
            "the daemon's socket is not known; run `mirrorctl config test` with the same -c, or "
            "give --socket STATE_DIR/control.sock: %s",
            why[0] != '\0' ? why : config);
    }
    return 0;
}

/* The last line `key = "/..."` of a file that mirrord refuses: the daemon may run by what the file
 * was before. */
static struct slice rough_setting(struct slice text, const char *key)
{
    struct slice found = SLICE_NONE;

    while (text.n > 0) {
        struct slice rest = slice_cut(&text, '\n'), name = slice_cut(&rest, '='), value;
        rest = slice_trim(rest);
        if (!slice_eqs(slice_trim(name), key) || !slice_starts(rest, SLICE("\"/"))) {
            continue;
        }
        rest = slice_from(rest, 1);
        value = rest;
        value.n = 0;
        while (value.n < rest.n && strchr("\"\\$", rest.p[value.n]) == NULL) {
            value.n++;
        }
        if (value.n < rest.n && rest.p[value.n] == '"') {
            found = value;
        }
    }
    return found;
}

/* Of a configuration, or of the part of it that can be read. E_CONFIG: its state_dir is unknown. */
static int places_of(const char *config, struct buf *text, struct slice *socket,
                     struct slice *state, struct err *e)
{
    int rc = settings_of(config, text, e);

    if (rc == 0) {
        *socket = setting(buf_slice(text), "control_socket");
        *state = setting(buf_slice(text), "state_dir");
        return 0;
    }
    buf_clear(text);
    if (buf_read_file(text, config, NULL) != 0) {
        return rc;
    }
    *socket = rough_setting(buf_slice(text), "control_socket");
    *state = rough_setting(buf_slice(text), "state_dir");
    return socket->n > 0 || state->n > 0 ? 0 : rc;
}

int config_places(const char *config, char **socket, char **state_dir, struct err *e)
{
    struct buf text = BUF_INIT(SETTINGS_BYTES);
    struct slice listens, state;
    int rc = places_of(config, &text, &listens, &state, e);

    if (rc == 0 && socket != NULL) {
        CHECK(asprintf(socket, SLICE_FMT "%s", SLICE_ARG(listens.n > 0 ? listens : state),
                       listens.n > 0 ? "" : "/control.sock") >= 0);
    }
    if (rc == 0 && state_dir != NULL) {
        CHECK(asprintf(state_dir, SLICE_FMT, SLICE_ARG(state)) >= 0);
    }
    buf_free(&text);
    return rc;
}

/* As `mirrord -t` says it. */
static void test_passed(struct ctl *c, json_t *ok)
{
    uint64_t repos = get_u64(ok, "repos"), listeners = get_u64(ok, "listeners");
    struct slice rest = slice_str(get_str(ok, "warnings"));

    while (rest.n > 0 && !c->quiet) {
        struct slice line = slice_cut(&rest, '\n');
        fprintf(stderr, "%s: warning: " SLICE_FMT "\n", c->config, SLICE_ARG(line));
    }
    if (c->json) {
        json_object_set_new(ok, "ok", json_true());
        print_json(ok);
    }
    say(c, "%s: ok: %" PRIu64 " %s, %" PRIu64 " %s, checked by the running daemon\n", c->config,
        repos, plural(repos, "repo", "repos"), listeners,
        plural(listeners, "listener", "listeners"));
}

static int test_failed(const struct ctl *c, const struct err *why)
{
    struct buf out = BUF_INIT(16 << 10);

    if (c->json) {
        jwrite_open(&out, NULL, '{');
        jwrite_bool(&out, "ok", false);
        jwrite_err(&out, "error", why);
        jwrite_close(&out, '}');
        printf("%s\n", buf_cstr(&out));
        buf_free(&out);
    }
    fprintf(stderr, "%s\n", why->text);
    return err_sysexit(why->code);
}

/* Asks the daemon that runs this configuration: it alone knows its user's groups, its credentials
 * and its unit's file system. False: no such daemon runs. *code: the exit code of what it said. */
static bool daemon_tests(struct ctl *c, int *code)
{
    struct err why = {0};
    char path[PATH_MAX];
    json_t *req, *ok = NULL;
    bool ours;
    int rc;

    if (realpath(c->config, path) == NULL ||
        (c->socket == NULL && config_places(c->config, &c->found, NULL, NULL) != 0)) {
        return false;
    }
    c->socket = c->socket != NULL ? c->socket : c->found;
    c->patience_s = TEST_PATIENCE_S;
    req = request("config.test");
    json_object_set_new(req, "path", json_string(path));
    json_object_set_new(req, "version", json_string(MIRROR_VERSION));
    rc = ask(c, req, NULL, NULL, NULL, &ok, &why);
    ours = rc == E_CONFIG || (rc == 0 && !get_bool(ok, "other"));
    if (ours && rc == 0) {
        test_passed(c, ok);
        *code = 0;
    } else if (ours) {
        *code = test_failed(c, &why);
    }
    json_decref(ok);
    return ours;
}

int ctl_config_test(struct ctl *c, struct err *e)
{
    char program[] = "mirrord", test[] = "-t", file[] = "-c", json[] = "--json";
    char *argv[] = {program, test, file, (char *)(uintptr_t)c->config, c->json ? json : NULL, NULL};
    int code;

    return daemon_tests(c, &code) ? code : run_mirrord(argv, e);
}

int ctl_config_reload(struct ctl *c, struct err *e)
{
    json_t *ok = NULL;
    int rc = act(c, request("config.reload"), &ok, e);

    if (rc == 0) {
        const char *stays = get_str(ok, "needs_restart"), *warnings = get_str(ok, "warnings");
        say(c, "reloaded%s%s\n", stays[0] != '\0' ? "; restart the daemon to apply " : "", stays);
        if (warnings[0] != '\0' && !c->quiet) {
            fprintf(stderr, "mirrorctl: %s\n", warnings);
        }
    }
    json_decref(ok);
    return rc;
}
