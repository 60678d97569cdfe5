#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "server/ctl/ctl.h"

/* The mirrord that was installed with this mirrorctl, else the one in $PATH. Returns only when none runs. */
void run_mirrord(char *const argv[])
{
    static const char *const places[] = {"/mirrord", "/../sbin/mirrord"};
    char path[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", path, sizeof(path) - 32);
    char *slash;

    path[n > 0 ? n : 0] = '\0';
    slash = strrchr(path, '/');
    for (size_t i = 0; i < ARRAY_LEN(places) && slash != NULL; i++) {
        strcpy(slash, places[i]);
        execv(path, argv);
    }
    execvp("mirrord", argv);
}

int ctl_config_test(struct ctl *c, struct err *e)
{
    char program[] = "mirrord", test[] = "-t", file[] = "-c";
    char *argv[] = {program, test, file, (char *)(uintptr_t)c->config, NULL};

    run_mirrord(argv);
    return err_sys(e, "mirrord cannot be run");
}

int ctl_config_reload(struct ctl *c, struct err *e)
{
    json_t *ok = NULL;
    int rc = ask(c, request("config.reload"), NULL, NULL, NULL, &ok, e);

    if (rc == 0 && c->json) {
        print_json(ok);
    } else if (rc == 0) {
        const char *stays = get_str(ok, "needs_restart");
        say(c, "reloaded%s%s\n", stays[0] != '\0' ? "; a restart is needed for " : "", stays);
    }
    json_decref(ok);
    return rc;
}
