#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

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

int ctl_config_test(struct ctl *c, struct err *e)
{
    char program[] = "mirrord", test[] = "-t", file[] = "-c", json[] = "--json";
    char *argv[] = {program, test, file, (char *)(uintptr_t)c->config, c->json ? json : NULL, NULL};

    return run_mirrord(argv, e);
}

int ctl_config_reload(struct ctl *c, struct err *e)
{
    json_t *ok = NULL;
    int rc = act(c, request("config.reload"), &ok, e);

    if (rc == 0) {
        const char *stays = get_str(ok, "needs_restart"), *warnings = get_str(ok, "warnings");
        say(c, "reloaded%s%s\n", stays[0] != '\0' ? "; a restart is needed for " : "", stays);
        if (warnings[0] != '\0' && !c->quiet) {
            fprintf(stderr, "mirrorctl: %s\n", warnings);
        }
    }
    json_decref(ok);
    return rc;
}
