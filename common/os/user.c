#include "common/os/user.h"

#include <errno.h>
#include <grp.h>
#include <limits.h>
#include <pwd.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { ENTRY_BYTES = 16 << 10 }; /* of /etc/passwd or /etc/group; a longer one stays a number */

static void group_name(gid_t gid, char out[USER_NAME])
{
    char room[ENTRY_BYTES];
    struct group gr, *found = NULL;

    if (getgrgid_r(gid, &gr, room, sizeof room, &found) == 0 && found != NULL) {
        snprintf(out, USER_NAME, "%s", gr.gr_name);
    } else {
        snprintf(out, USER_NAME, "%u", (unsigned)gid);
    }
}

static void user_numbered(uid_t uid, gid_t gid_otherwise, struct user *out)
{
    char room[ENTRY_BYTES];
    struct passwd pw, *found = NULL;

    *out = (struct user){.uid = uid, .gid = gid_otherwise};
    if (getpwuid_r(uid, &pw, room, sizeof room, &found) == 0 && found != NULL) {
        snprintf(out->name, sizeof out->name, "%s", pw.pw_name);
        out->gid = pw.pw_gid;
    } else {
        snprintf(out->name, sizeof out->name, "%u", (unsigned)uid);
    }
    group_name(out->gid, out->group);
}

bool user_of_service(const char *folder, const char *name, struct user *out)
{
    char room[ENTRY_BYTES];
    struct passwd pw, *found = NULL;
    struct stat st;

    if (folder != NULL && stat(folder, &st) == 0 && st.st_uid != 0) {
        user_numbered(st.st_uid, st.st_gid, out);
        return true;
    }
    if (name != NULL && getpwnam_r(name, &pw, room, sizeof room, &found) == 0 && found != NULL) {
        user_numbered(pw.pw_uid, pw.pw_gid, out);
        return true;
    }
    return false;
}

void user_self(struct user *out)
{
    user_numbered(geteuid(), getegid(), out);
    out->gid = getegid();
    group_name(out->gid, out->group);
}

int user_become(const struct user *u, struct err *e)
{
    /* An account without a name is in no group but its own. */
    if (initgroups(u->name, u->gid) == -1 || setresgid(u->gid, u->gid, u->gid) == -1 ||
        setresuid(u->uid, u->uid, u->uid) == -1) {
        return err_sys(e, "cannot become the user %s", u->name);
    }
    return 0;
}

/* The first folder of the path that does not let us in; NULL: all do. */
static const char *closed_folder(const char *path, char room[PATH_MAX])
{
    size_t n = strlen(path);

    if (n >= PATH_MAX) {
        return NULL;
    }
    memcpy(room, path, n + 1);
    for (char *slash = strchr(room + 1, '/'); slash != NULL; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        if (access(room, X_OK) == -1) {
            return room;
        }
        *slash = '/';
    }
    return NULL;
}

void user_why_unreadable(const char *path, int errno_value, char out[USER_WHY])
{
    char room[PATH_MAX];
    const char *folder, *why = err_plain(err_from_errno(errno_value));
    struct user self;

    if (errno_value != EACCES) {
        snprintf(out, USER_WHY, "the file cannot be read (%s); check its path and mode", why);
        return;
    }
    user_self(&self);
    folder = closed_folder(path, room);
    if (folder != NULL) {
        snprintf(out, USER_WHY,
                 "the user %.32s cannot enter the folder %.40s; move the file or open the folder "
                 "to the group %.32s",
                 self.name, folder, self.group);
    } else {
        snprintf(out, USER_WHY,
                 "the user %.32s cannot read the file (%s); run chgrp %.32s and chmod 640 on it",
                 self.name, why, self.group);
    }
}
